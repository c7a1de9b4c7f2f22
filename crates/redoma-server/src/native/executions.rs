//! Running programs: one answer at the end, or events as they come for those who ask for them.

#![expect(unused_qualifications, reason = "utoipa's macros write types out in full")]

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use redoma_engine::interpreter::{ExecutionRequest, Target, Variables, new_execution_id};
use redoma_model::{ExecutionId, Principal};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::asked::{Asked, Question};
use super::wire::{ExecutionBody, ExecutionView};
use super::{blocking, id, stream};
use crate::auth::Caller;
use crate::body::JsonBody;
use crate::executing;
use crate::failure::{Failure, Problem};
use crate::listen::Line;
use crate::memory::Share;
use crate::{App, archive};

/// What the body asks for, in this place.
pub(super) fn request(
    app: &App,
    target: Target,
    body: ExecutionBody,
    live: bool,
) -> Result<ExecutionRequest, Failure> {
    // In a session of its own nobody could come back to variables.
    let variables = match (body.stateful, &target) {
        (Some(true), _) | (None, Target::Session(_)) => Variables::Kept,
        _ => Variables::Fresh,
    };
    if variables == Variables::Kept && !body.arguments.is_empty() {
        return Err(Failure::bad_request(
            "a cell of a live session takes no `arguments`: set variables in the code, or say `\"stateful\": false`",
        ));
    }
    let known = app.interpreter.languages().by_name(&body.language);
    known.map_err(|unknown| Failure::bad_request(unknown.to_string()))?;
    if body.timeout_ms == Some(0) {
        return Err(Failure::bad_request("`timeout_ms` is 0: nothing could run"));
    }
    Ok(ExecutionRequest {
        id: new_execution_id().map_err(|error| Failure::internal(&error))?,
        target,
        language: body.language,
        code: body.code.into_bytes(),
        arguments: body.arguments,
        files: Vec::new(),
        timeout: body.timeout_ms.map(Duration::from_millis),
        tools: None,
        live,
        variables,
        pictures: false,
    })
}

/// The session to run in: checked before anything of the answer is sent. (Whoever sends it whole hears of it in time anyway.)
pub(super) fn target(app: &App, principal: &Principal, session: &str) -> Result<Target, Failure> {
    let session = app.interpreter.session(principal, &id(session, "session")?, None)?;
    Ok(Target::Session(session.id))
}

fn wants_events(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/event-stream"))
}

async fn answer(
    app: Arc<App>,
    principal: Principal,
    target: Target,
    (headers, line): (&HeaderMap, &Line),
    body: ExecutionBody,
    room: Share,
) -> Result<Response, Failure> {
    let wants_events = wants_events(headers);
    let request = request(&app, target, body, wants_events)?;
    let permit = executing::permit(&app, &principal)?.holding(room);
    if wants_events {
        return Ok(stream::events(app, principal, request, permit));
    }
    let execution = executing::execute(&app, principal, request, permit, line).await?;
    Ok(Json(ExecutionView::from(execution)).into_response())
}

/// Run a program in a session.
///
/// It is a cell of the session: it finds the variables, imports and functions of the cells before it, and the session's files in
/// `/mnt/data`; what it makes or changes there is kept. A cell that times out, runs out of memory or ends its process is undone:
/// variables are then as they were before it (`cell.restored`). With `"stateful": false` it is a program of its own instead.
/// A program that fails is a 200: look at `ending` and `exit_code`. With `Accept: text/event-stream` the answer is a stream of events: `started`
/// (`{"id", "session_id"}`), `stdout` and `stderr` (`{"text"}`), `output` (what a cell shows: a display, its value, an error), and
/// at the end `result` (this answer) or `error` (a
/// problem). If the client goes away, the program is ended.
#[utoipa::path(post, path = "/api/v1/sessions/{session}/executions", operation_id = "run_execution", tag = "executions",
    params(("session" = String, Path)), request_body = ExecutionBody,
    responses((status = 200, body = ExecutionView), (status = 400, body = Problem), (status = 404, body = Problem),
        (status = 429, body = Problem)))]
pub async fn run(
    State(app): State<Arc<App>>,
    Caller(principal): Caller,
    Path(session): Path<String>,
    headers: HeaderMap,
    line: Line,
    JsonBody(body, room): JsonBody<ExecutionBody>,
) -> Result<Response, Failure> {
    let target = if wants_events(&headers) {
        target(&app, &principal, &session)?
    } else {
        Target::Session(id(&session, "session")?)
    };
    answer(app, principal, target, (&headers, &line), body, room).await
}

/// Run a program in a new session of its own.
#[utoipa::path(post, path = "/api/v1/executions", operation_id = "run_once", tag = "executions", request_body = ExecutionBody,
    responses((status = 200, body = ExecutionView), (status = 400, body = Problem), (status = 429, body = Problem)))]
pub async fn run_once(
    State(app): State<Arc<App>>,
    Caller(principal): Caller,
    headers: HeaderMap,
    line: Line,
    JsonBody(body, room): JsonBody<ExecutionBody>,
) -> Result<Response, Failure> {
    let target = app.interpreter.new_target(&principal, None)?;
    answer(app, principal, target, (&headers, &line), body, room).await
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct LastExecutions {
    /// At most so many [20, at most 100].
    limit: Option<usize>,
}

impl Question for LastExecutions {
    const NAMES: &'static [&'static str] = &["limit"];
}

#[derive(Debug, Serialize, ToSchema)]
pub struct ExecutionList {
    executions: Vec<ExecutionView>,
}

/// The last executions in a session.
///
/// Newest first.
#[utoipa::path(get, path = "/api/v1/sessions/{session}/executions", operation_id = "list_executions", tag = "executions",
    params(("session" = String, Path), LastExecutions),
    responses((status = 200, body = ExecutionList), (status = 404, body = Problem)))]
pub async fn list(
    State(app): State<Arc<App>>,
    Caller(principal): Caller,
    Path(session): Path<String>,
    Asked(last, _): Asked<LastExecutions>,
) -> Result<Json<ExecutionList>, Failure> {
    let session = id(&session, "session")?;
    let limit = last.limit.unwrap_or(20).clamp(1, 100);
    let found = blocking(move || app.interpreter.executions(&principal, &session, limit)).await?;
    Ok(Json(ExecutionList { executions: found.into_iter().map(ExecutionView::from).collect() }))
}

/// An execution that is over.
///
/// Of its output at most 64 KiB are kept.
#[utoipa::path(get, path = "/api/v1/executions/{execution}", operation_id = "get_execution", tag = "executions",
    params(("execution" = String, Path)),
    responses((status = 200, body = ExecutionView), (status = 404, body = Problem)))]
pub async fn get(
    State(app): State<Arc<App>>,
    Caller(principal): Caller,
    Path(execution): Path<String>,
) -> Result<Json<ExecutionView>, Failure> {
    let execution: ExecutionId = id(&execution, "execution")?;
    let execution = blocking(move || app.interpreter.execution(&principal, &execution)).await?;
    Ok(Json(execution.into()))
}

/// All files of an execution as a ZIP archive.
///
/// Those that it made or changed, however many: also those that its answer does not list.
#[utoipa::path(get, path = "/api/v1/executions/{execution}/archive", operation_id = "download_execution_archive",
    tag = "executions", params(("execution" = String, Path)),
    responses((status = 200, content_type = "application/zip", body = Vec<u8>), (status = 404, body = Problem),
        (status = 413, body = Problem)))]
pub async fn download_archive(
    State(app): State<Arc<App>>,
    Caller(principal): Caller,
    Path(execution): Path<String>,
) -> Result<Response, Failure> {
    let execution: ExecutionId = id(&execution, "execution")?;
    let name = format!("{execution}.zip");
    let (reader, owner) = (Arc::clone(&app), principal.clone());
    let files = blocking(move || reader.interpreter.execution_files(&owner, &execution)).await?;
    archive::archive(app, principal, &name, files)
}

/// End an execution that goes on.
#[utoipa::path(post, path = "/api/v1/executions/{execution}/cancel", operation_id = "cancel_execution", tag = "executions",
    params(("execution" = String, Path)),
    responses((status = 202), (status = 404, body = Problem)))]
pub async fn cancel(
    State(app): State<Arc<App>>,
    Caller(principal): Caller,
    Path(execution): Path<String>,
) -> Result<StatusCode, Failure> {
    app.interpreter.cancel(&principal, &id(&execution, "execution")?)?;
    Ok(StatusCode::ACCEPTED)
}
