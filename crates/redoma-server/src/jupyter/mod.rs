//! Jupyter's kernels API, for Open WebUI, `jupyter_kernel_client` and Jupyter servers that use this one as their gateway
//! (`contracts/openwebui.md` tells what they send and read). A kernel is a session whose variables live on.
//!
//! | file | subject |
//! |---|---|
//! | `mod.rs` | the routes, what all have in common |
//! | `access.rs` | who is asking: tokens, cookies, and pages that ask in somebody's name |
//! | `login.rs` | logging in with a password |
//! | `specs.rs` | the kinds of kernels |
//! | `kernels.rs` | kernels over REST |
//! | `registry.rs` | the kernels that there are, and how many there may be |
//! | `lifecycle.rs` | starting, interrupting, restarting and ending one |
//! | `kernel.rs` | one kernel: who is connected, what waits |
//! | `queue.rs` | what waits, one after the other |
//! | `cell.rs` | running a cell |
//! | `expressions.rs` | what a client wants to be told with a cell's reply |
//! | `outputs.rs` | what a cell shows, as messages |
//! | `outcome.rs` | how a cell ended, in words |
//! | `requests.rs` | requests that run nothing |
//! | `channels.rs` | the WebSocket |
//! | `outbox.rs` | what waits to be sent over one |
//! | `messages.rs`, `framing.rs` | Jupyter's messages, and how they go over a WebSocket |
//! | `limits.rs`, `bundles.rs`, `picture.rs` | keeping each message below 1 MiB |
//! | `random.rs` | ids and tokens |

mod access;
mod bundles;
mod cell;
mod channels;
mod expressions;
mod framing;
mod kernel;
mod kernels;
mod lifecycle;
mod limits;
mod login;
mod messages;
mod outbox;
mod outcome;
mod outputs;
mod picture;
mod queue;
mod random;
mod registry;
mod requests;
mod specs;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use redoma_engine::{Concurrency, Sharing};
use serde_json::json;

use crate::App;
use crate::admission::Admission;
use crate::failure::Failure;
use login::Logins;
use registry::Registry;

pub use registry::KernelLimits;

/// The version of the server whose API this is.
const VERSION: &str = "2.21.1";

/// What this façade remembers between requests.
#[derive(Debug)]
pub(crate) struct Jupyter {
    registry: Registry,
    logins: Logins,
    /// Making pictures smaller takes a core and some memory each: two at the same time, one of an owner.
    shrinking: Admission,
    /// When the server started.
    started: String,
}

impl Jupyter {
    pub(crate) fn new(limits: KernelLimits) -> Self {
        // Each kernel has one picture at a time, so that there is a place for each to wait.
        let shrinking = Concurrency {
            running: 2,
            waiting: limits.in_all.saturating_mul(4),
            patience: Duration::from_hours(1),
            sharing: Sharing::Fair,
        };
        Self {
            registry: Registry::new(limits),
            logins: Logins::default(),
            shrinking: Admission::new(shrinking),
            started: now(),
        }
    }
}

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/", get(login::page))
        .route("/login", get(login::form).post(login::log_in))
        .route("/logout", get(login::page).post(login::log_out))
        .route("/api", get(|| async { Json(json!({ "version": VERSION })) }))
        .route("/api/", get(|| async { Json(json!({ "version": VERSION })) }))
        .route("/api/status", get(kernels::status))
        .route("/api/me", get(kernels::me))
        .route("/api/kernelspecs", get(specs::list))
        .route("/api/kernelspecs/{name}", get(specs::get))
        .route("/api/kernels", get(kernels::list).post(kernels::create))
        // What jupyter_kernel_client makes of a URL that ends in a slash.
        .route("//api/kernels", post(kernels::create))
        .route("/api/kernels/{kernel}", get(kernels::get).delete(kernels::remove))
        .route("/api/kernels/{kernel}/interrupt", post(kernels::interrupt))
        .route("/api/kernels/{kernel}/restart", post(kernels::restart))
        .route("/api/kernels/{kernel}/channels", get(channels::connect))
        .fallback(|| async { Error(Failure::not_found("page")) })
}

/// A failure as Jupyter's clients read it.
#[derive(Debug)]
pub(crate) struct Error(Failure);

impl<F: Into<Failure>> From<F> for Error {
    fn from(failure: F) -> Self {
        Self(failure.into())
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let body = json!({ "message": self.0.detail, "reason": self.0.code });
        self.0.dress(Json(body).into_response())
    }
}

/// The time as Jupyter's clients expect it: with a fraction of at most six digits and a `Z`.
fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    crate::native::time(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
