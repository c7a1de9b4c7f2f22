-- Times are milliseconds since 1970. Nobody in particular is the empty user.
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    client TEXT NOT NULL,
    user TEXT NOT NULL,
    name TEXT,
    profile TEXT NOT NULL,
    resource_kind TEXT,
    resource_id TEXT,
    resource_version TEXT,
    created_at INTEGER NOT NULL,
    used_at INTEGER NOT NULL,
    -- How long it lives unused; null is for ever.
    ttl INTEGER,
    expires_at INTEGER,
    bytes INTEGER NOT NULL DEFAULT 0,
    files INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_by_owner ON sessions (client, user, created_at, id);
CREATE INDEX sessions_by_age ON sessions (created_at, id);
CREATE INDEX sessions_by_expiry ON sessions (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE files (
    id TEXT PRIMARY KEY,
    session TEXT NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    is_current INTEGER NOT NULL,
    size INTEGER NOT NULL,
    sha256 TEXT NOT NULL,
    content_type TEXT NOT NULL,
    origin TEXT NOT NULL,
    read_only INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    execution TEXT,
    -- Where its bytes are: folder/session/uuid.ext.
    blob TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX files_by_name ON files (session, name, version);
CREATE UNIQUE INDEX current_files ON files (session, name) WHERE is_current = 1;
CREATE UNIQUE INDEX files_by_blob ON files (blob);

-- What each owner has in all, so that a quota need not add it up.
CREATE TABLE usage (
    client TEXT NOT NULL,
    user TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    files INTEGER NOT NULL,
    PRIMARY KEY (client, user)
) STRICT, WITHOUT ROWID;

CREATE TABLE executions (
    id TEXT PRIMARY KEY,
    session TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    language TEXT NOT NULL,
    -- Everything about it, as the API shows it.
    result TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX executions_by_session ON executions (session, started_at, id);

CREATE TABLE keys (
    id TEXT PRIMARY KEY,
    role TEXT NOT NULL,
    client TEXT NOT NULL,
    user TEXT NOT NULL,
    label TEXT,
    -- SHA-256 of the key, which is random throughout: there is nothing to guess that a slow hash would protect.
    hash BLOB NOT NULL UNIQUE,
    created_at INTEGER NOT NULL,
    revoked_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE failed_logins (
    number INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    address TEXT NOT NULL,
    way TEXT NOT NULL,
    reason TEXT NOT NULL
) STRICT;
