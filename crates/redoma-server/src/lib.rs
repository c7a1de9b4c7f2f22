//! Redoma over HTTP: one thin façade per wire format, all over the same interpreter.
//!
//! A request's way: `listen.rs` (connections, time limits) → `front.rs` (request id, log, the key in the path) → a route →
//! `auth/` (who is asking) → the façade's handler, which translates and makes one call → `executing.rs`, `upload.rs` or
//! `download.rs` (`archive.rs` for many files) → the interpreter.
//!
//! | room | subject |
//! |---|---|
//! | `native/` | `/api/v1`: sessions, executions, files, keys |
//! | `librechat/` | `/v1`: LibreChat's code API, both generations |
//! | `jupyter/` | `/jupyter`: Jupyter's kernels API |
//! | `documentation.rs`, `docs/` | `/openapi.json` and the page at `/docs` |
//! | `health.rs` | `/healthz`, `/readyz` |
//! | `body.rs`, `multipart.rs` | what comes in, bounded |
//! | `failure.rs` | why a request fails |
//! | `admission.rs` | whose turn it is |

mod admission;
mod archive;
mod auth;
mod body;
mod documentation;
mod download;
mod executing;
mod failure;
mod front;
mod health;
mod jupyter;
mod librechat;
mod listen;
mod multipart;
mod native;
mod upload;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use axum::Router;
use redoma_engine::Concurrency;
use redoma_engine::interpreter::Interpreter;
use tokio::sync::{Semaphore, watch};

use admission::Admission;
use auth::Auth;
use jupyter::Jupyter;
use librechat::{Conversations, Programs};

pub use auth::JwtError;
pub use documentation::openapi_json;
pub use jupyter::KernelLimits;
pub use listen::{Listening, ServeError};

/// How the server is set up.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// No keys: for a server that only this host can reach.
    pub is_open: bool,
    /// LibreChat's public key, if it signs its requests.
    pub librechat_jwt_key: Option<PathBuf>,
    pub concurrency: Concurrency,
    /// The most bytes of a JSON body.
    pub most_json: usize,
    /// Connections at the same time; more wait to be accepted.
    pub connections: usize,
    /// How long runs may go on when the server is told to end.
    pub grace: Duration,
    /// How many Jupyter kernels there may be.
    pub kernels: KernelLimits,
    pub versions: Versions,
}

/// What programs are run with, for those who ask; where it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Versions {
    pub python: Option<String>,
    pub node: Option<String>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            is_open: false,
            librechat_jwt_key: None,
            concurrency: Concurrency::default(),
            most_json: 8 << 20,
            connections: 4096,
            grace: Duration::from_secs(30),
            kernels: KernelLimits::default(),
            versions: Versions::default(),
        }
    }
}

/// What all requests share.
#[derive(Debug)]
pub struct App {
    interpreter: Arc<Interpreter>,
    auth: Auth,
    admission: Admission,
    /// KiB of large bodies that may be in memory at the same time.
    bodies: Arc<Semaphore>,
    /// Programs of LibreChat's that wait for a tool's answer.
    programs: Programs,
    /// Jupyter's kernels, and who has logged in there.
    jupyter: Jupyter,
    /// LibreChat's conversations with live variables.
    conversations: Conversations,
    config: ServerConfig,
    /// Whether sandboxes wait for programs.
    is_ready: AtomicBool,
    /// Turns true when the server ends.
    stopping: watch::Sender<bool>,
}

impl App {
    pub fn new(interpreter: Interpreter, config: ServerConfig) -> Result<Arc<Self>, JwtError> {
        Ok(Arc::new(Self {
            interpreter: Arc::new(interpreter),
            auth: Auth::new(config.is_open, config.librechat_jwt_key.clone())?,
            admission: Admission::new(config.concurrency),
            bodies: Arc::new(Semaphore::new(body::MOST_KIB as usize)),
            programs: Programs::default(),
            jupyter: Jupyter::new(config.kernels),
            conversations: Conversations::default(),
            config,
            is_ready: AtomicBool::new(false),
            stopping: watch::Sender::new(false),
        }))
    }

    pub fn interpreter(&self) -> &Arc<Interpreter> {
        &self.interpreter
    }
}

/// All routes.
fn router(app: &Arc<App>) -> Router {
    let (native, _) = native::routes().split_for_parts();
    Router::new()
        .merge(native)
        .nest("/v1", librechat::routes())
        .nest("/jupyter", jupyter::routes())
        .merge(health::routes())
        .merge(documentation::routes())
        .fallback(|| async { failure::Failure::not_found("page") })
        .method_not_allowed_fallback(|| async {
            let status = axum::http::StatusCode::METHOD_NOT_ALLOWED;
            failure::Failure::new(status, "method_not_allowed", "this can't be done here; see /docs")
        })
        .with_state(Arc::clone(app))
}
