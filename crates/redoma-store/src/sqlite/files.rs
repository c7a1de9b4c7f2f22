//! The table of files. Sums are kept beside it, so that a quota costs the same however much there is.

use redoma_model::{FileId, FileName, Owner, Session, SessionId, StoredFile};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{by_name, name_of, parse, signed, unsigned, user_column};
use crate::StoreError;
use crate::blobs::BlobPath;
use crate::metadata::{Added, FileRecord, NewFile, OwnerUsage, Quota, Refused};

const COLUMNS: &str = "id, session, name, version, is_current, size, sha256, content_type, origin, read_only, created_at, \
                       execution, blob";

#[derive(Debug, Clone, Copy)]
pub(super) enum Which {
    Current,
    All,
}

fn read(row: &Row<'_>) -> rusqlite::Result<Result<FileRecord, StoreError>> {
    let (id, session, name): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
    let (version, is_current, size): (i64, bool, i64) = (row.get(3)?, row.get(4)?, row.get(5)?);
    let (sha256, content_type, origin): (String, String, String) = (row.get(6)?, row.get(7)?, row.get(8)?);
    let (read_only, created_at): (bool, i64) = (row.get(9)?, row.get(10)?);
    let (execution, blob): (Option<String>, String) = (row.get(11)?, row.get(12)?);
    let build = || {
        Ok(FileRecord {
            file: StoredFile {
                id: parse(&id)?,
                session: parse(&session)?,
                name: parse(&name)?,
                version: unsigned(version),
                is_current,
                size: unsigned(size),
                sha256,
                content_type,
                origin: by_name(&origin)?,
                read_only,
                created_at,
                execution: execution.as_deref().map(parse).transpose()?,
            },
            blob: blob.parse()?,
        })
    };
    Ok(build())
}

pub(super) fn get(connection: &Connection, id: &FileId) -> Result<Option<FileRecord>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM files WHERE id = ?");
    connection.prepare_cached(&sql)?.query_row([id.as_str()], read).optional()?.transpose()
}

pub(super) fn list(
    connection: &Connection,
    session: &SessionId,
    which: Which,
) -> Result<Vec<FileRecord>, StoreError> {
    let condition = match which {
        Which::Current => "AND is_current = 1",
        Which::All => "",
    };
    let sql = format!("SELECT {COLUMNS} FROM files WHERE session = ? {condition} ORDER BY name, version");
    let mut statement = connection.prepare_cached(&sql)?;
    let rows: rusqlite::Result<Vec<_>> = statement.query_map([session.as_str()], read)?.collect();
    rows?.into_iter().collect()
}

/// Adds files and takes names away.
pub(super) fn add(
    connection: &Connection,
    session: &Session,
    files: Vec<NewFile>,
    gone: &[FileId],
    quota: Quota,
) -> Result<Added, StoreError> {
    for id in gone {
        connection
            .prepare_cached(
                "UPDATE files SET is_current = 0 WHERE id = ? AND session = ? AND is_current = 1",
            )?
            .execute([id.as_str(), session.id.as_str()])?;
    }
    let (mut bytes, mut count) = (session.bytes, session.files);
    // Records are not counted here: they make room for files.
    let OwnerUsage { file_bytes: mut of_owner, files: mut owner_count, .. } =
        owner_usage(connection, &session.owner)?;
    let mut added = Added::default();
    for new in files {
        let reason = if bytes + new.size > quota.session_bytes {
            Some("the session's quota is used up")
        } else if of_owner + new.size > quota.owner_bytes {
            Some("the user's quota is used up")
        } else if count + 1 > quota.session_files {
            Some("the session has too many files")
        } else if owner_count + 1 > quota.owner_files {
            Some("the user has too many files; sessions that are removed make room")
        } else {
            None
        };
        if let Some(reason) = reason {
            added.refused.push(Refused { name: new.name, blob: new.blob, reason: reason.to_owned() });
            continue;
        }
        bytes += new.size;
        of_owner += new.size;
        count += 1;
        owner_count += 1;
        added.files.push(insert(connection, &session.id, new)?);
    }
    let (more_bytes, more_files) = (signed(bytes - session.bytes), signed(count - session.files));
    count_for_session(connection, &session.id, more_bytes, more_files)?;
    let more = Counts { bytes: more_bytes, files: more_files, ..Counts::default() };
    count_for_owner(connection, &session.owner, &more)?;
    Ok(added)
}

fn forget_current(connection: &Connection, session: &SessionId, name: &FileName) -> Result<(), StoreError> {
    connection
        .prepare_cached("UPDATE files SET is_current = 0 WHERE session = ? AND name = ? AND is_current = 1")?
        .execute([session.as_str(), name.as_str()])?;
    Ok(())
}

fn insert(connection: &Connection, session: &SessionId, new: NewFile) -> Result<StoredFile, StoreError> {
    let last: Option<i64> = connection
        .prepare_cached("SELECT max(version) FROM files WHERE session = ? AND name = ?")?
        .query_row([session.as_str(), new.name.as_str()], |row| row.get(0))?;
    let version = last.unwrap_or(0) + 1;
    forget_current(connection, session, &new.name)?;
    let sql = "INSERT INTO files (id, session, name, version, is_current, size, sha256, content_type, origin, read_only, \
               created_at, execution, blob) VALUES (?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?)";
    connection.prepare_cached(sql)?.execute(params![
        new.id.as_str(),
        session.as_str(),
        new.name.as_str(),
        version,
        signed(new.size),
        new.sha256,
        new.content_type,
        name_of(&new.origin),
        new.read_only,
        new.created_at,
        new.execution.as_ref().map(redoma_model::ExecutionId::as_str),
        new.blob.to_string(),
    ])?;
    Ok(StoredFile {
        id: new.id,
        session: session.clone(),
        name: new.name,
        version: unsigned(version),
        is_current: true,
        size: new.size,
        sha256: new.sha256,
        content_type: new.content_type,
        origin: new.origin,
        read_only: new.read_only,
        created_at: new.created_at,
        execution: new.execution,
    })
}

pub(super) fn remove(connection: &Connection, id: &FileId) -> Result<Option<FileRecord>, StoreError> {
    let Some(record) = get(connection, id)? else { return Ok(None) };
    connection.prepare_cached("DELETE FROM files WHERE id = ?")?.execute([id.as_str()])?;
    let size = signed(record.file.size);
    if let Some(session) = super::sessions::get(connection, &record.file.session)? {
        count_for_session(connection, &session.id, -size, -1)?;
        let less = Counts { bytes: -size, files: -1, ..Counts::default() };
        count_for_owner(connection, &session.owner, &less)?;
    }
    Ok(Some(record))
}

pub(super) fn knows_blob(connection: &Connection, blob: &BlobPath) -> Result<bool, StoreError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM files WHERE blob = ?)";
    Ok(connection.prepare_cached(sql)?.query_row([blob.to_string()], |row| row.get(0))?)
}

fn count_for_session(
    connection: &Connection,
    session: &SessionId,
    bytes: i64,
    files: i64,
) -> Result<(), StoreError> {
    connection
        .prepare_cached("UPDATE sessions SET bytes = bytes + ?, files = files + ? WHERE id = ?")?
        .execute(params![bytes, files, session.as_str()])?;
    Ok(())
}

/// What is added to an owner's sums.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) bytes: i64,
    pub(super) files: i64,
    /// Bytes of records of executions.
    pub(super) records: i64,
    pub(super) sessions: i64,
}

pub(super) fn count_for_owner(
    connection: &Connection,
    owner: &Owner,
    more: &Counts,
) -> Result<(), StoreError> {
    let Counts { bytes, files, records, sessions } = *more;
    if *more == Counts::default() {
        return Ok(());
    }
    let sql = "INSERT INTO usage (client, user, bytes, files, records, sessions) VALUES (?, ?, ?, ?, ?, ?) \
               ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes, files = files + excluded.files, \
               records = records + excluded.records, sessions = sessions + excluded.sessions";
    let row = params![owner.client, user_column(owner), bytes, files, records, sessions];
    connection.prepare_cached(sql)?.execute(row)?;
    Ok(())
}

pub(super) fn owner_usage(connection: &Connection, owner: &Owner) -> Result<OwnerUsage, StoreError> {
    let sql = "SELECT bytes, records, files FROM usage WHERE client = ? AND user = ?";
    let read = |row: &Row<'_>| {
        let [file_bytes, record_bytes, files] = [row.get(0)?, row.get(1)?, row.get(2)?].map(unsigned);
        Ok(OwnerUsage { file_bytes, record_bytes, files })
    };
    let of = [owner.client.as_str(), user_column(owner)];
    Ok(connection.prepare_cached(sql)?.query_row(of, read).optional()?.unwrap_or_default())
}

/// Sums that are not what they should be, and files without a session.
pub(super) fn wrong_sums(connection: &Connection) -> Result<Vec<String>, StoreError> {
    let sql = "SELECT 'session ' || id || ': ' || bytes || ' bytes are counted' FROM sessions \
               LEFT JOIN (SELECT session, sum(size) AS size, count(*) AS count FROM files GROUP BY session) \
               ON session = id WHERE bytes <> coalesce(size, 0) OR files <> coalesce(count, 0) \
               UNION ALL SELECT 'file ' || files.id || ' has no session' FROM files \
               LEFT JOIN sessions ON sessions.id = files.session WHERE sessions.id IS NULL \
               UNION ALL SELECT 'session ' || id || ': ' || records || ' bytes of records are counted' FROM sessions \
               LEFT JOIN (SELECT session, sum(octet_length(result) + 256) AS size FROM executions GROUP BY session) \
               ON session = id WHERE records <> coalesce(size, 0) \
               UNION ALL SELECT 'usage of ' || client || '/' || user FROM \
               (SELECT client, user, -bytes AS bytes, -files AS files, -records AS records, -sessions AS count FROM usage \
                UNION ALL SELECT client, user, bytes, files, records, 1 FROM sessions) \
               GROUP BY client, user HAVING sum(bytes) <> 0 OR sum(files) <> 0 OR sum(records) <> 0 OR sum(count) <> 0";
    let mut statement = connection.prepare(sql)?;
    let rows: rusqlite::Result<Vec<String>> = statement.query_map([], |row| row.get(0))?.collect();
    Ok(rows?)
}
