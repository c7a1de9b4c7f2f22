//! LibreChat's code API, both generations at once (`contracts/librechat.md` tells what its clients send and read).
//!
//! | file | subject |
//! |---|---|
//! | `mod.rs` | the routes, what all have in common |
//! | `exec.rs` | a program per call |
//! | `programmatic.rs` | programs that call the chat's tools, and wait for the answers |
//! | `conversations.rs` | those whose variables live on between two requests |
//! | `programs.rs` | those that are alive between two requests |
//! | `function_names.rs` | what tools are called inside a program |
//! | `files.rs` | uploads, listings, downloads, deletions |
//! | `outcome.rs` | how a program ended, in the words that its model is shown |

mod conversations;
mod exec;
mod files;
mod function_names;
mod outcome;
mod programmatic;
mod programs;

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use redoma_model::{Resource, ResourceKind};
use serde::Deserialize;
use serde_json::json;

use crate::App;
use crate::auth::valid_user;
use crate::failure::Failure;

pub(crate) use conversations::Conversations;
pub(crate) use programs::Programs;

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/exec", post(exec::exec))
        .route("/exec/programmatic", post(programmatic::programmatic))
        .route("/exec/programmatic/cancel", post(programmatic::cancel))
        .route("/upload", post(files::upload))
        .route("/upload/batch", post(files::upload_batch))
        .route("/sessions/{session}/objects/{file}", get(files::object).delete(files::remove))
        .route("/files/{session}", get(files::list))
        .route("/files/{session}/{file}", delete(files::remove))
        .route("/download/{session}/{file}", get(files::download))
        .route("/health", get(|| async { Json(json!({ "status": "ok" })) }))
        .layer(axum::middleware::from_fn(check_profile))
}

/// A failure as its clients read it.
#[derive(Debug)]
pub(crate) struct Error(Failure);

impl<F: Into<Failure>> From<F> for Error {
    fn from(failure: F) -> Self {
        Self(failure.into())
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let Failure { code, detail, retry_after, .. } = &self.0;
        let mut body = json!({ "error": code, "message": detail });
        if let Some(seconds) = retry_after {
            body["retry_after_seconds"] = (*seconds).into();
        }
        self.0.dress(Json(body).into_response())
    }
}

/// What a request says that files belong to: `?kind&id[&version]`, or `?entity_id` in the first generation.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Claim {
    pub(crate) kind: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) entity_id: Option<String>,
}

impl Claim {
    /// What cannot be read claims nothing.
    pub(crate) fn resource(&self) -> Option<Resource> {
        let named = |id: &Option<String>| id.as_deref().and_then(valid_user);
        match &self.kind {
            Some(kind) => {
                let kind = serde_json::from_value(kind.as_str().into()).ok()?;
                let version = if kind == ResourceKind::Skill { named(&self.version) } else { None };
                Some(Resource { kind, id: named(&self.id)?, version })
            }
            None => Some(Resource { kind: ResourceKind::Agent, id: named(&self.entity_id)?, version: None }),
        }
    }
}

/// What is asked about a path's objects.
#[derive(Debug)]
pub(crate) struct Claimed(pub(crate) Option<Resource>);

impl FromRequestParts<Arc<App>> for Claimed {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Error> {
        let query: Result<Query<Claim>, QueryRejection> = Query::try_from_uri(&parts.uri);
        Ok(Self(query.ok().and_then(|Query(claim)| claim.resource())))
    }
}

/// The profile that a client expects. This server has both: variables live on for those who name their conversation.
async fn check_profile(request: Request, next: Next) -> Response {
    let expected =
        request.headers().get("x-codeapi-expected-profile").map(|value| value.to_str().unwrap_or("?"));
    let failure = match expected {
        None | Some("default" | "stateful") => return next.run(request).await,
        Some(_) => Failure::bad_request("X-CodeAPI-Expected-Profile must be `default` or `stateful`"),
    };
    Error(failure).into_response()
}
