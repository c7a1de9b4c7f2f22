//! The table of executions.

use redoma_model::{ExecutionId, SessionId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::journal::Noted;
use super::{parse, unsigned};
use crate::StoreError;
use crate::metadata::ExecutionRecord;

/// So many runs of a session are remembered.
const MOST_OF_A_SESSION: i64 = 100;

fn read(row: &Row<'_>) -> rusqlite::Result<Result<ExecutionRecord, StoreError>> {
    let (id, session): (String, String) = (row.get(0)?, row.get(1)?);
    let (started_at, language, result) = (row.get(2)?, row.get(3)?, row.get(4)?);
    let build =
        || Ok(ExecutionRecord { id: parse(&id)?, session: parse(&session)?, started_at, language, result });
    Ok(build())
}

pub(super) fn is_there(connection: &Connection, id: &str) -> Result<bool, StoreError> {
    Ok(connection.prepare_cached("SELECT 1 FROM executions WHERE id = ?")?.exists([id])?)
}

/// Bytes that a row takes beside its result: ids, times, indexes. Migrations and checks name this number too.
const ROW_BYTES: i64 = 256;
/// Maximum number of records that one transaction removes to make room.
const MAX_EVICTED: usize = 1000;

/// Adds a record, and counts it. Records that there is no room for go, those first whose session was not used for longest.
/// Whether there are more to go.
pub(super) fn add(connection: &Connection, noted: &Noted, owner_bytes: u64) -> Result<bool, StoreError> {
    let sql = "INSERT INTO executions (id, session, started_at, language, result) VALUES (?, ?, ?, ?, ?)";
    let session = noted.session.as_str();
    let row = params![noted.id, session, noted.started_at, noted.language, noted.result];
    connection.prepare_cached(sql)?.execute(row)?;
    let number = connection.last_insert_rowid();
    // The last ones only: a session that is kept for ever would fill the disk with them.
    let sql = "DELETE FROM executions WHERE session = ?1 AND started_at < \
               (SELECT started_at FROM executions WHERE session = ?1 ORDER BY started_at DESC LIMIT 1 OFFSET ?2) \
               RETURNING octet_length(result)";
    let removed = sum_of_removed(connection, sql, params![session, MOST_OF_A_SESSION])?;
    let added = i64::try_from(noted.result.len()).unwrap_or(i64::MAX).saturating_add(ROW_BYTES);
    count(connection, session, added - removed)?;
    // The caller is about to be told of it.
    make_room(connection, session, owner_bytes, Some(Kept { number, bytes: added }))
}

/// A record that stays, however much there is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    number: i64,
    bytes: i64,
}

/// Bytes of the records that a statement removes.
fn sum_of_removed(
    connection: &Connection,
    sql: &str,
    of: &[&dyn rusqlite::ToSql],
) -> Result<i64, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    let sizes: rusqlite::Result<Vec<i64>> = statement.query_map(of, |row| row.get(0))?.collect();
    Ok(sizes?.iter().map(|size| size + ROW_BYTES).sum())
}

/// Counts bytes of records for a session and its owner.
fn count(connection: &Connection, session: &str, bytes: i64) -> Result<(), StoreError> {
    let of_session = "UPDATE sessions SET records = records + ?2 WHERE id = ?1";
    connection.prepare_cached(of_session)?.execute(params![session, bytes])?;
    let of_owner = "UPDATE usage SET records = records + ?2 \
                    WHERE (client, user) = (SELECT client, user FROM sessions WHERE id = ?1)";
    connection.prepare_cached(of_owner)?.execute(params![session, bytes])?;
    Ok(())
}

/// Makes the sums of a session right whose records are less than was counted.
fn correct(connection: &Connection, session: &str) -> Result<(), StoreError> {
    let sql = "SELECT coalesce((SELECT sum(octet_length(result) + ?2) FROM executions WHERE session = ?1), 0) - records \
               FROM sessions WHERE id = ?1";
    let missing: i64 =
        connection.prepare_cached(sql)?.query_row(params![session, ROW_BYTES], |row| row.get(0))?;
    count(connection, session, missing)
}

/// Removes records of a session's owner that are beyond the quota, up to a maximum; whether there are more to go. `kept` is a
/// record of that session: the owner may be beyond the quota by it.
pub(super) fn make_room(
    connection: &Connection,
    session: &str,
    owner_bytes: u64,
    kept: Option<Kept>,
) -> Result<bool, StoreError> {
    let held = "SELECT client, user, bytes + records FROM usage \
                WHERE (client, user) = (SELECT client, user FROM sessions WHERE id = ?)";
    let oldest = "SELECT id FROM sessions WHERE client = ? AND user = ? AND records > 0 AND (id <> ? OR records > ?) \
                  ORDER BY used_at LIMIT 1";
    let remove = "DELETE FROM executions WHERE number = (SELECT number FROM executions WHERE session = ? \
                  AND number <> ? ORDER BY started_at, id LIMIT 1) RETURNING octet_length(result)";
    // Numbers of records begin with 1.
    let Kept { number, bytes } = kept.unwrap_or(Kept { number: 0, bytes: 0 });
    for _ in 0..MAX_EVICTED {
        let owner: Option<(String, String, i64)> = connection
            .prepare_cached(held)?
            .query_row([session], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        let Some((client, user, _)) = owner.filter(|(_, _, bytes)| unsigned(*bytes) > owner_bytes) else {
            return Ok(false);
        };
        let found: Option<String> = connection
            .prepare_cached(oldest)?
            .query_row(params![client, user, session, bytes], |row| row.get(0))
            .optional()?;
        let Some(found) = found else { return Ok(false) };
        let removed = sum_of_removed(connection, remove, params![found, number])?;
        if removed == 0 {
            correct(connection, &found)?;
        } else {
            count(connection, &found, -removed)?;
        }
    }
    Ok(true)
}

pub(super) fn get(connection: &Connection, id: &ExecutionId) -> Result<Option<ExecutionRecord>, StoreError> {
    let sql = "SELECT id, session, started_at, language, result FROM executions WHERE id = ?";
    connection.prepare_cached(sql)?.query_row([id.as_str()], read).optional()?.transpose()
}

pub(super) fn list(
    connection: &Connection,
    session: &SessionId,
    limit: usize,
) -> Result<Vec<ExecutionRecord>, StoreError> {
    let sql = "SELECT id, session, started_at, language, result FROM executions WHERE session = ? \
               ORDER BY started_at DESC, id DESC LIMIT ?";
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(sql)?;
    let rows: rusqlite::Result<Vec<_>> =
        statement.query_map(params![session.as_str(), limit], read)?.collect();
    rows?.into_iter().collect()
}
