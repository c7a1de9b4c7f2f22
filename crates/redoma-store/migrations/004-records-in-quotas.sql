-- Bytes of the records of its executions, which count against the owner's quota.
ALTER TABLE sessions ADD COLUMN records INTEGER NOT NULL DEFAULT 0;
-- Whether no caller asked for it: a single run, a conversation or a Jupyter kernel began it. Without files there is nothing to
-- come back to but records. A caller who names it keeps it.
ALTER TABLE sessions ADD COLUMN is_single INTEGER NOT NULL DEFAULT 0;
-- Sessions of an older database with one record and nothing else look like those of single runs. They make room too.
UPDATE sessions SET is_single = 1 WHERE files = 0 AND name IS NULL AND resource_kind IS NULL
    AND (SELECT count(*) FROM executions WHERE session = sessions.id) = 1;
ALTER TABLE usage ADD COLUMN records INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage ADD COLUMN sessions INTEGER NOT NULL DEFAULT 0;
UPDATE sessions SET records =
    coalesce((SELECT sum(octet_length(result) + 256) FROM executions WHERE session = sessions.id), 0);
INSERT INTO usage (client, user, bytes, files, records, sessions)
    SELECT client, user, 0, 0, sum(records), count(*) FROM sessions WHERE true GROUP BY client, user
    ON CONFLICT DO UPDATE SET records = excluded.records, sessions = excluded.sessions;
-- Rows of owners who have nothing any more would stay for ever.
DELETE FROM usage WHERE sessions = 0 AND bytes = 0 AND files = 0;
-- Which sessions of an owner go first when there are too many, and whose records when these are too large.
CREATE INDEX sessions_to_evict ON sessions (client, user, used_at)
    WHERE is_single = 1 AND files = 0;
CREATE INDEX sessions_with_records ON sessions (client, user, used_at) WHERE records > 0;
