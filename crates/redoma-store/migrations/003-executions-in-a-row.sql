-- By number, in the order in which they came. Kept by their ids, which are random, each row was written somewhere else, and
-- on the way there SQLite read others whole, since results are longer than what it keeps of a row beside its key.
CREATE TABLE numbered_executions (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    session TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    language TEXT NOT NULL,
    -- Everything about it, as the API shows it.
    result TEXT NOT NULL
) STRICT;
INSERT INTO numbered_executions (id, session, started_at, language, result)
    SELECT id, session, started_at, language, result FROM executions ORDER BY started_at, id;
DROP TABLE executions;
ALTER TABLE numbered_executions RENAME TO executions;
CREATE INDEX executions_by_session ON executions (session, started_at, id);
