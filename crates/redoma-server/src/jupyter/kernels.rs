//! Kernels over REST.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use redoma_model::Owner;
use serde::Deserialize;
use serde_json::{Value, json};

use super::access::Visitor;
use super::specs::Spec;
use super::{Error, lifecycle};
use crate::App;
use crate::body;
use crate::failure::Failure;

/// Maximum number of bytes of a body.
const MAX_BODY: usize = 256 << 10;

/// Forgets kernels that nobody has used for long, whenever somebody asks for any.
fn forget_idle(app: &Arc<App>) {
    lifecycle::bury(app, app.jupyter.registry.forget_idle());
}

pub async fn list(State(app): State<Arc<App>>, Visitor(principal): Visitor) -> Json<Value> {
    forget_idle(&app);
    let kernels = app.jupyter.registry.list(&principal.owner);
    Json(kernels.iter().map(|kernel| kernel.model()).collect())
}

pub async fn get(
    State(app): State<Arc<App>>,
    Visitor(principal): Visitor,
    Path(id): Path<String>,
) -> Result<Json<Value>, Error> {
    Ok(Json(app.jupyter.registry.find(&principal, &id)?.model()))
}

/// What a client may say about the kernel that it wants. Its environment and folder are not the server's.
#[derive(Debug, Default, Deserialize)]
struct Wanted {
    name: Option<String>,
}

/// The body, whatever type the client says it has, or none.
async fn wanted(app: &App, owner: &Owner, request: Request) -> Result<Wanted, Failure> {
    let bytes = body::read(app, owner, request, MAX_BODY).await?;
    if bytes.trim_ascii().is_empty() {
        return Ok(Wanted::default());
    }
    let wanted: Result<Option<Wanted>, _> = serde_json::from_slice(&bytes);
    wanted
        .map(Option::unwrap_or_default)
        .map_err(|error| Failure::bad_request(format!("the body is not the JSON that is expected: {error}")))
}

pub async fn create(
    State(app): State<Arc<App>>,
    Visitor(principal): Visitor,
    request: Request,
) -> Result<impl IntoResponse, Error> {
    let wanted = wanted(&app, &principal.owner, request).await?;
    let spec = Spec::named(wanted.name.as_deref()).ok_or_else(|| Failure::not_found("kind of kernel"))?;
    let kernel = lifecycle::start(&app, principal, spec).await?;
    let location = format!("/jupyter/api/kernels/{}", kernel.id);
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(kernel.model())))
}

pub async fn remove(
    State(app): State<Arc<App>>,
    Visitor(principal): Visitor,
    Path(id): Path<String>,
) -> Result<StatusCode, Error> {
    let kernel = app.jupyter.registry.find(&principal, &id)?;
    lifecycle::end(&app, &kernel).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub async fn interrupt(
    State(app): State<Arc<App>>,
    Visitor(principal): Visitor,
    Path(id): Path<String>,
) -> Result<StatusCode, Error> {
    let kernel = app.jupyter.registry.find(&principal, &id)?;
    lifecycle::interrupt(&app, principal, &kernel).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub async fn restart(
    State(app): State<Arc<App>>,
    Visitor(principal): Visitor,
    Path(id): Path<String>,
) -> Result<Json<Value>, Error> {
    let kernel = app.jupyter.registry.find(&principal, &id)?;
    lifecycle::restart(&app, principal, &kernel).await?;
    Ok(Json(kernel.model()))
}

/// What goes on, as far as it is theirs.
pub async fn status(State(app): State<Arc<App>>, Visitor(principal): Visitor) -> Json<Value> {
    let kernels = app.jupyter.registry.list(&principal.owner);
    let started = &app.jupyter.started;
    let last = kernels.iter().map(|kernel| kernel.last_used_time()).max();
    Json(json!({
        "connections": kernels.iter().map(|kernel| kernel.count_connections()).sum::<usize>(),
        "kernels": kernels.len(),
        "last_activity": last.as_ref().unwrap_or(started),
        "started": started,
    }))
}

pub async fn me(Visitor(principal): Visitor) -> Json<Value> {
    let name = principal.owner.user.unwrap_or(principal.owner.client);
    let initials: String =
        name.chars().next().map(|letter| letter.to_uppercase().collect()).unwrap_or_default();
    Json(json!({
        "identity": {
            "username": name,
            "name": name,
            "display_name": name,
            "initials": initials,
            "avatar_url": null,
            "color": null,
        },
        "permissions": {},
    }))
}
