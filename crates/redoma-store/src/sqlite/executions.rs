//! The table of executions.

use redoma_model::{ExecutionId, SessionId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::journal::Noted;
use super::parse;
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

pub(super) fn add(connection: &Connection, noted: &Noted) -> Result<(), StoreError> {
    let sql = "INSERT INTO executions (id, session, started_at, language, result) VALUES (?, ?, ?, ?, ?)";
    let session = noted.session.as_str();
    let row = params![noted.id, session, noted.started_at, noted.language, noted.result];
    connection.prepare_cached(sql)?.execute(row)?;
    // The last ones only: a session that is kept for ever would fill the disk with them.
    let sql = "DELETE FROM executions WHERE session = ?1 AND started_at < \
               (SELECT started_at FROM executions WHERE session = ?1 ORDER BY started_at DESC LIMIT 1 OFFSET ?2)";
    connection.prepare_cached(sql)?.execute(params![session, MOST_OF_A_SESSION])?;
    Ok(())
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
