//! The table of keys, and of those who had none.

use redoma_model::KeyId;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{by_name, name_of, owner_from, parse, user_column};
use crate::StoreError;
use crate::key::KeyRecord;
use crate::metadata::FailedLogin;

/// So many failed logins are remembered.
const MOST_FAILURES: i64 = 10_000;

const COLUMNS: &str = "id, role, client, user, label, created_at, revoked_at, hash, profile";

fn read(row: &Row<'_>) -> rusqlite::Result<Result<KeyRecord, StoreError>> {
    let (id, role): (String, String) = (row.get(0)?, row.get(1)?);
    let (client, user) = (row.get(2)?, row.get(3)?);
    let (label, created_at, revoked_at, hash) = (row.get(4)?, row.get(5)?, row.get(6)?, row.get(7)?);
    let profile = row.get(8)?;
    let build = || {
        Ok(KeyRecord {
            id: parse(&id)?,
            role: by_name(&role)?,
            owner: owner_from(client, user),
            label,
            profile,
            created_at,
            revoked_at,
            hash,
        })
    };
    Ok(build())
}

/// A key whose hash is there already takes the other's place: the secret is the same.
pub(super) fn add(connection: &Connection, key: &KeyRecord) -> Result<(), StoreError> {
    let sql = "INSERT OR REPLACE INTO keys (id, role, client, user, label, hash, created_at, revoked_at, profile) \
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)";
    connection.prepare_cached(sql)?.execute(params![
        key.id.as_str(),
        name_of(&key.role),
        key.owner.client,
        user_column(&key.owner),
        key.label,
        key.hash,
        key.created_at,
        key.revoked_at,
        key.profile,
    ])?;
    Ok(())
}

pub(super) fn by_hash(connection: &Connection, hash: &[u8; 32]) -> Result<Option<KeyRecord>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM keys WHERE hash = ? AND revoked_at IS NULL");
    connection.prepare_cached(&sql)?.query_row([hash.as_slice()], read).optional()?.transpose()
}

pub(super) fn list(connection: &Connection) -> Result<Vec<KeyRecord>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM keys ORDER BY created_at, id");
    let mut statement = connection.prepare_cached(&sql)?;
    let rows: rusqlite::Result<Vec<_>> = statement.query_map([], read)?.collect();
    rows?.into_iter().collect()
}

pub(super) fn revoke(connection: &Connection, id: &KeyId, now: i64) -> Result<bool, StoreError> {
    let sql = "UPDATE keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL";
    Ok(connection.prepare_cached(sql)?.execute(params![now, id.as_str()])? > 0)
}

pub(super) fn note_failed_login(connection: &Connection, failed: &FailedLogin) -> Result<(), StoreError> {
    connection
        .prepare_cached("INSERT INTO failed_logins (at, address, way, reason) VALUES (?, ?, ?, ?)")?
        .execute(params![failed.at, failed.address, failed.way, failed.reason])?;
    connection
        .prepare_cached("DELETE FROM failed_logins WHERE number <= ?")?
        .execute([connection.last_insert_rowid() - MOST_FAILURES])?;
    Ok(())
}

pub(super) fn failed_logins(connection: &Connection, limit: usize) -> Result<Vec<FailedLogin>, StoreError> {
    let sql = "SELECT at, address, way, reason FROM failed_logins ORDER BY number DESC LIMIT ?";
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let read = |row: &Row<'_>| {
        Ok(FailedLogin { at: row.get(0)?, address: row.get(1)?, way: row.get(2)?, reason: row.get(3)? })
    };
    let mut statement = connection.prepare_cached(sql)?;
    let rows: rusqlite::Result<Vec<_>> = statement.query_map([limit], read)?.collect();
    Ok(rows?)
}
