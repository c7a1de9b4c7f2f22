//! The table of sessions.

use redoma_model::{Name, Owner, Resource, Session, SessionId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::files::{Counts, count_for_owner};
use super::{by_name, name_of, owner_from, parse, signed, unsigned, user_column};
use crate::StoreError;
use crate::metadata::{Beginning, MayGo, SessionChange, SessionQuery, Totals};

const COLUMNS: &str = "id, client, user, name, profile, resource_kind, resource_id, resource_version, created_at, used_at, \
                       expires_at, bytes, files";

fn read(row: &Row<'_>) -> rusqlite::Result<Result<Session, StoreError>> {
    let id: String = row.get(0)?;
    let (client, user) = (row.get(1)?, row.get(2)?);
    let kind: Option<String> = row.get(5)?;
    let (resource_id, version): (Option<String>, Option<String>) = (row.get(6)?, row.get(7)?);
    let (name, profile) = (row.get(3)?, row.get(4)?);
    let (created_at, used_at, expires_at) = (row.get(8)?, row.get(9)?, row.get(10)?);
    let (bytes, files): (i64, i64) = (row.get(11)?, row.get(12)?);
    let build = || {
        let resource = match (kind, resource_id) {
            (Some(kind), Some(id)) => Some(Resource { kind: by_name(&kind)?, id, version }),
            _ => None,
        };
        Ok(Session {
            id: parse(&id)?,
            owner: owner_from(client, user),
            name,
            profile,
            resource,
            created_at,
            used_at,
            expires_at,
            bytes: unsigned(bytes),
            files: unsigned(files),
        })
    };
    Ok(build())
}

pub(super) fn add(connection: &Connection, beginning: &Beginning) -> Result<(), StoreError> {
    let Beginning { session, ttl, is_single } = beginning;
    let sql = "INSERT INTO sessions (id, client, user, name, profile, resource_kind, resource_id, resource_version, \
               created_at, used_at, ttl, expires_at, is_single) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    connection.prepare_cached(sql)?.execute(params![
        session.id.as_str(),
        session.owner.client,
        user_column(&session.owner),
        session.name,
        session.profile,
        session.resource.as_ref().map(|resource| name_of(&resource.kind)),
        session.resource.as_ref().map(|resource| &resource.id),
        session.resource.as_ref().and_then(|resource| resource.version.as_ref()),
        session.created_at,
        session.used_at,
        ttl,
        ttl.map(|ttl| session.used_at.saturating_add(ttl)),
        is_single,
    ])?;
    count_for_owner(connection, &session.owner, &Counts { sessions: 1, ..Counts::default() })
}

pub(super) fn get(connection: &Connection, id: &SessionId) -> Result<Option<Session>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM sessions WHERE id = ?");
    connection.prepare_cached(&sql)?.query_row([id.as_str()], read).optional()?.transpose()
}

pub(super) fn list(connection: &Connection, query: &SessionQuery) -> Result<Vec<Session>, StoreError> {
    let (at, after) = match &query.after {
        Some((at, id)) => (*at, id.as_str()),
        None => (i64::MIN, ""),
    };
    let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
    let collect = |rows: rusqlite::Result<Vec<Result<Session, StoreError>>>| rows?.into_iter().collect();
    if let Some(owner) = &query.owner {
        let sql = format!(
            "SELECT {COLUMNS} FROM sessions WHERE client = ? AND user = ? AND (created_at, id) > (?, ?) \
                 ORDER BY created_at, id LIMIT ?"
        );
        let mut statement = connection.prepare_cached(&sql)?;
        let of = params![owner.client, user_column(owner), at, after, limit];
        collect(statement.query_map(of, read)?.collect())
    } else {
        let sql = format!(
            "SELECT {COLUMNS} FROM sessions WHERE (created_at, id) > (?, ?) ORDER BY created_at, id LIMIT ?"
        );
        let mut statement = connection.prepare_cached(&sql)?;
        collect(statement.query_map(params![at, after, limit], read)?.collect())
    }
}

pub(super) fn change(
    connection: &Connection,
    id: &SessionId,
    change: &SessionChange,
    now: i64,
) -> Result<bool, StoreError> {
    if let Some(name) = &change.name {
        connection
            // A caller who names a session wants to come back to it.
            .prepare_cached(
                "UPDATE sessions SET name = ?2, is_single = is_single AND ?2 IS NULL WHERE id = ?1",
            )?
            .execute(params![id.as_str(), name.as_ref().map(Name::as_str)])?;
    }
    if let Some(ttl) = change.ttl {
        connection
            .prepare_cached("UPDATE sessions SET ttl = ?2 WHERE id = ?1")?
            .execute(params![id.as_str(), ttl])?;
    }
    touch(connection, id, now)
}

/// How many there are, and what they hold.
pub(super) fn totals(connection: &Connection) -> Result<Totals, StoreError> {
    let sql = "SELECT count(*), coalesce(sum(bytes), 0), coalesce(sum(files), 0) FROM sessions";
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let (sessions, bytes, files) = connection.prepare_cached(sql)?.query_row([], read)?;
    Ok(Totals { sessions: unsigned(sessions), bytes: unsigned(bytes), files: unsigned(files), disk: None })
}

/// Its time begins anew; whether there is such a session.
pub(super) fn touch(connection: &Connection, id: &SessionId, now: i64) -> Result<bool, StoreError> {
    let touched = connection
        .prepare_cached("UPDATE sessions SET used_at = ?2, expires_at = ?2 + ttl WHERE id = ?1")?
        .execute(params![id.as_str(), now])?;
    Ok(touched > 0)
}

/// The same for a time that may be over: one that was used later stays so.
pub(super) fn note_use(connection: &Connection, id: &SessionId, at: i64) -> Result<bool, StoreError> {
    let sql =
        "UPDATE sessions SET used_at = max(used_at, ?2), expires_at = max(used_at, ?2) + ttl WHERE id = ?1";
    Ok(connection.prepare_cached(sql)?.execute(params![id.as_str(), at])? > 0)
}

pub(super) fn expired(
    connection: &Connection,
    now: i64,
    after: Option<&(i64, SessionId)>,
    limit: usize,
) -> Result<Vec<(i64, SessionId)>, StoreError> {
    let sql = "SELECT expires_at, id FROM sessions WHERE expires_at <= ? AND (expires_at, id) > (?, ?) \
               ORDER BY expires_at, id LIMIT ?";
    let mut statement = connection.prepare_cached(sql)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let (at, id) = after.map_or((i64::MIN, ""), |(at, id)| (*at, id.as_str()));
    let found: rusqlite::Result<Vec<(i64, String)>> =
        statement.query_map(params![now, at, id, limit], |row| Ok((row.get(0)?, row.get(1)?)))?.collect();
    found?.iter().map(|(at, id)| Ok((*at, parse(id)?))).collect()
}

pub(super) fn remove(
    connection: &Connection,
    id: &SessionId,
    may: impl FnOnce(&Session) -> bool,
) -> Result<Option<Session>, StoreError> {
    let Some(session) = get(connection, id)?.filter(may) else { return Ok(None) };
    let records: i64 = connection
        .prepare_cached("SELECT records FROM sessions WHERE id = ?")?
        .query_row([id.as_str()], |row| row.get(0))?;
    for sql in [
        "DELETE FROM files WHERE session = ?",
        "DELETE FROM executions WHERE session = ?",
        "DELETE FROM sessions WHERE id = ?",
    ] {
        connection.prepare_cached(sql)?.execute([id.as_str()])?;
    }
    let (bytes, files) = (-signed(session.bytes), -signed(session.files));
    count_for_owner(connection, &session.owner, &Counts { bytes, files, records: -records, sessions: -1 })?;
    // Clients may make up users: of one who has nothing any more, nothing stays.
    connection
        .prepare_cached("DELETE FROM usage WHERE client = ? AND user = ? AND sessions <= 0")?
        .execute([session.owner.client.as_str(), user_column(&session.owner)])?;
    Ok(Some(session))
}

/// How many an owner has.
pub(super) fn count_of(connection: &Connection, owner: &Owner) -> Result<u64, StoreError> {
    let sql = "SELECT sessions FROM usage WHERE client = ? AND user = ?";
    let of = [owner.client.as_str(), user_column(owner)];
    let count: Option<i64> = connection.prepare_cached(sql)?.query_row(of, |row| row.get(0)).optional()?;
    Ok(unsigned(count.unwrap_or(0)))
}

/// Maximum number of candidates that one query for sessions to evict finds.
const EVICTION_PAGE: i64 = 256;

/// Removes sessions of an owner that no caller asked for and that have no files: nothing of them is left to come back to but
/// records. Those not used for longest go first.
pub(super) fn evict(
    connection: &Connection,
    owner: &Owner,
    count: usize,
    opened_before: i64,
    may: &MayGo,
) -> Result<Vec<Session>, StoreError> {
    let sql = "SELECT used_at, id FROM sessions WHERE client = ? AND user = ? AND is_single = 1 AND files = 0 \
               AND (records > 0 OR created_at < ?) AND (used_at, id) > (?, ?) \
               ORDER BY used_at, id LIMIT ?";
    let mut gone = Vec::new();
    let mut after = (i64::MIN, String::new());
    // Page by page: those at the beginning may all be in use.
    while gone.len() < count {
        let (used_at, id) = &after;
        let of = params![owner.client, user_column(owner), opened_before, used_at, id, EVICTION_PAGE];
        let page: rusqlite::Result<Vec<(i64, String)>> =
            connection.prepare_cached(sql)?.query_map(of, |row| Ok((row.get(0)?, row.get(1)?)))?.collect();
        let page = page?;
        for (_, id) in &page {
            let id = parse(id)?;
            if gone.len() < count && may(&id) {
                gone.extend(remove(connection, &id, |_| true)?);
            }
        }
        let Some(last) = page.into_iter().last() else { break };
        after = last;
    }
    Ok(gone)
}
