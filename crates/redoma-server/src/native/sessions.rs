//! Conversations.

#![expect(unused_qualifications, reason = "utoipa's macros write types out in full")]

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use redoma_model::{BadName, Name};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::asked::{Asked, Question};
use super::wire::{RetentionField, SessionView};
use super::{blocking, id};
use crate::App;
use crate::auth::Caller;
use crate::body::{JsonBody, Weigh};
use crate::failure::{Failure, Problem};
use crate::rates::Wanted;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSession {
    name: Option<String>,
    /// One of the server's profiles.
    profile: Option<String>,
    retention: Option<RetentionField>,
}

impl Weigh for NewSession {
    fn weight(&self) -> usize {
        self.name.weight() + self.profile.weight()
    }
}

/// A new session.
#[utoipa::path(post, path = "/api/v1/sessions", operation_id = "create_session", tag = "sessions", request_body = NewSession,
    responses((status = 201, body = SessionView), (status = 400, body = Problem), (status = 401, body = Problem),
        (status = 409, body = Problem), (status = 429, body = Problem)))]
pub async fn create(
    State(app): State<Arc<App>>,
    Caller(principal): Caller,
    JsonBody(body, _room): JsonBody<NewSession>,
) -> Result<(StatusCode, Json<SessionView>), Failure> {
    let name = checked_name(body.name.as_deref())?;
    let _permit = app.permit(&principal, Wanted::Session)?;
    let session = blocking(move || {
        let retention = body.retention.map(|field| field.0);
        app.interpreter.open_session(&principal, name, body.profile.as_deref(), retention)
    })
    .await?;
    Ok((StatusCode::CREATED, Json(session.into())))
}

/// A session's name as it may be. An empty one is none.
pub(super) fn checked_name(name: Option<&str>) -> Result<Option<Name>, Failure> {
    match name.map(str::parse) {
        None | Some(Err(BadName::Empty)) => Ok(None),
        Some(Ok(name)) => Ok(Some(name)),
        Some(Err(bad)) => Err(Failure::bad_request(format!("`name`: {bad}"))),
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Page {
    /// Go on after this session.
    after: Option<String>,
    /// At most so many [50, at most 500].
    limit: Option<usize>,
}

impl Question for Page {
    const NAMES: &'static [&'static str] = &["after", "limit"];
}

#[derive(Debug, Serialize, ToSchema)]
pub struct SessionList {
    sessions: Vec<SessionView>,
    /// Where to go on, if there may be more.
    next: Option<String>,
}

/// Your sessions.
///
/// Oldest first.
#[utoipa::path(get, path = "/api/v1/sessions", operation_id = "list_sessions", tag = "sessions", params(Page),
    responses((status = 200, body = SessionList), (status = 401, body = Problem)))]
pub async fn list(
    State(app): State<Arc<App>>,
    Caller(principal): Caller,
    Asked(page, _): Asked<Page>,
) -> Result<Json<SessionList>, Failure> {
    let limit = page.limit.unwrap_or(50).clamp(1, 500);
    let after = page.after.as_deref().map(|after| id(after, "session")).transpose()?;
    let sessions = blocking(move || app.interpreter.sessions(&principal, after.as_ref(), limit)).await?;
    let next = sessions.last().filter(|_| sessions.len() == limit).map(|last| last.id.to_string());
    Ok(Json(SessionList { sessions: sessions.into_iter().map(SessionView::from).collect(), next }))
}

/// One session.
#[utoipa::path(get, path = "/api/v1/sessions/{session}", operation_id = "get_session", tag = "sessions", params(("session" = String, Path)),
    responses((status = 200, body = SessionView), (status = 404, body = Problem)))]
pub async fn get(
    State(app): State<Arc<App>>,
    Caller(principal): Caller,
    Path(session): Path<String>,
) -> Result<Json<SessionView>, Failure> {
    let session = app.interpreter.session(&principal, &id(&session, "session")?, None)?;
    Ok(Json(session.into()))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionChange {
    name: Option<String>,
    retention: Option<RetentionField>,
}

impl Weigh for SessionChange {
    fn weight(&self) -> usize {
        self.name.weight()
    }
}

/// Rename a session, or keep it longer.
#[utoipa::path(patch, path = "/api/v1/sessions/{session}", operation_id = "change_session", tag = "sessions", params(("session" = String, Path)),
    request_body = SessionChange,
    responses((status = 200, body = SessionView), (status = 404, body = Problem)))]
pub async fn change(
    State(app): State<Arc<App>>,
    Caller(principal): Caller,
    Path(session): Path<String>,
    JsonBody(body, _room): JsonBody<SessionChange>,
) -> Result<Json<SessionView>, Failure> {
    let session = id(&session, "session")?;
    let name = body.name.map(|name| checked_name(Some(&name))).transpose()?;
    let changed = blocking(move || {
        app.interpreter.change_session(&principal, &session, name, body.retention.map(|field| field.0))
    });
    Ok(Json(changed.await?.into()))
}

/// Remove a session.
///
/// With all its files. Refused while a program runs in it.
#[utoipa::path(delete, path = "/api/v1/sessions/{session}", operation_id = "remove_session", tag = "sessions", params(("session" = String, Path)),
    responses((status = 204), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub async fn remove(
    State(app): State<Arc<App>>,
    Caller(principal): Caller,
    Path(session): Path<String>,
) -> Result<StatusCode, Failure> {
    let session = id(&session, "session")?;
    blocking(move || app.interpreter.remove_session(&principal, &session)).await?;
    Ok(StatusCode::NO_CONTENT)
}
