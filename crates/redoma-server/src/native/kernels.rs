//! A session's live process: what it does, and what can be done about it beside running cells.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use redoma_model::SessionId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::sessions::checked_name;
use super::wire::{KernelView, SessionView};
use super::{blocking, id};
use crate::App;
use crate::auth::Caller;
use crate::body::{JsonBody, Weigh};
use crate::failure::{Failure, Problem};
use crate::rates::Wanted;

/// What a session's kernel is doing.
#[utoipa::path(get, path = "/api/v1/sessions/{session}/kernel", operation_id = "get_kernel", tag = "executions",
    params(("session" = String, Path)),
    responses((status = 200, body = KernelView), (status = 404, body = Problem)))]
pub async fn get(
    State(app): State<Arc<App>>,
    Caller(principal): Caller,
    Path(session): Path<String>,
) -> Result<Json<KernelView>, Failure> {
    let session: SessionId = id(&session, "session")?;
    let status = blocking(move || app.interpreter.kernel(&principal, &session)).await?;
    Ok(Json(status.into()))
}

/// Interrupt the cell that runs.
///
/// In Python it gets a `KeyboardInterrupt`. Variables stay as they are. If no cell runs, nothing happens.
#[utoipa::path(post, path = "/api/v1/sessions/{session}/interrupt", operation_id = "interrupt_session", tag = "executions",
    params(("session" = String, Path)), responses((status = 202), (status = 404, body = Problem)))]
pub async fn interrupt(
    State(app): State<Arc<App>>,
    Caller(principal): Caller,
    Path(session): Path<String>,
) -> Result<StatusCode, Failure> {
    let session: SessionId = id(&session, "session")?;
    blocking(move || app.interpreter.interrupt(&principal, &session)).await?;
    Ok(StatusCode::ACCEPTED)
}

/// Begin with no variables again.
///
/// Ends the session's process, with the cell that runs. Files stay. The next cell starts another.
#[utoipa::path(post, path = "/api/v1/sessions/{session}/restart", operation_id = "restart_session", tag = "executions",
    params(("session" = String, Path)), responses((status = 204), (status = 404, body = Problem)))]
pub async fn restart(
    State(app): State<Arc<App>>,
    Caller(principal): Caller,
    Path(session): Path<String>,
) -> Result<StatusCode, Failure> {
    let session: SessionId = id(&session, "session")?;
    blocking(move || app.interpreter.stop_kernel(&principal, &session)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// How much to take back.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UndoBody {
    /// The last so many cells [1].
    cells: Option<u64>,
}

impl Weigh for UndoBody {
    fn weight(&self) -> usize {
        0
    }
}

/// What became of a session whose last cells were undone.
#[derive(Debug, Serialize, ToSchema)]
pub struct UndoView {
    /// Cells whose effects are still there.
    cells: u64,
    /// Files that are again what they were.
    restored_files: Vec<String>,
    /// Files that are gone, since those cells had made them.
    removed_files: Vec<String>,
}

/// Take back the last cells.
///
/// Variables are what they were before them, and so are files, as far as these cells changed them: what was uploaded meanwhile
/// stays. Only the last few cells of a live session can be undone (`undoable` in its kernel).
#[utoipa::path(post, path = "/api/v1/sessions/{session}/undo", operation_id = "undo_cells", tag = "executions",
    params(("session" = String, Path)), request_body = UndoBody,
    responses((status = 200, body = UndoView), (status = 400, body = Problem), (status = 404, body = Problem)))]
pub async fn undo(
    State(app): State<Arc<App>>,
    Caller(principal): Caller,
    Path(session): Path<String>,
    JsonBody(body, _room): JsonBody<UndoBody>,
) -> Result<Json<UndoView>, Failure> {
    let session: SessionId = id(&session, "session")?;
    let undone =
        blocking(move || app.interpreter.undo(&principal, &session, body.cells.unwrap_or(1))).await?;
    Ok(Json(UndoView {
        cells: undone.cells,
        restored_files: undone.restored_files,
        removed_files: undone.removed_files,
    }))
}

/// What the new session is called.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BranchBody {
    name: Option<String>,
}

impl Weigh for BranchBody {
    fn weight(&self) -> usize {
        self.name.weight()
    }
}

/// A new session that goes on from another.
#[derive(Debug, Serialize, ToSchema)]
pub struct BranchView {
    session: SessionView,
    /// Whether it has the other's variables: not if that had none.
    has_variables: bool,
}

/// Go on from here in a second session.
///
/// The new session has this one's files, and its variables as they are now, without a copy of the memory until one of the two
/// changes it. From then on each has its own. They stay in one sandbox: they share its limits and its `/tmp`, and take turns in it. Files
/// that are open stay the other's.
#[utoipa::path(post, path = "/api/v1/sessions/{session}/branch", operation_id = "branch_session", tag = "executions",
    params(("session" = String, Path)), request_body = BranchBody,
    responses((status = 201, body = BranchView), (status = 400, body = Problem), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 429, body = Problem), (status = 507, body = Problem)))]
pub async fn branch(
    State(app): State<Arc<App>>,
    Caller(principal): Caller,
    Path(session): Path<String>,
    JsonBody(body, _room): JsonBody<BranchBody>,
) -> Result<(StatusCode, Json<BranchView>), Failure> {
    let session: SessionId = id(&session, "session")?;
    let name = checked_name(body.name.as_deref())?;
    let _permit = app.permit(&principal, Wanted::Session)?;
    let made = blocking(move || app.interpreter.branch(&principal, &session, name)).await;
    let (session, has_variables) = made?;
    Ok((StatusCode::CREATED, Json(BranchView { session: session.into(), has_variables })))
}
