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
//! | `metrics.rs` | `/metrics` |
//! | `connections.rs` | whose connections there are, and which are closed for others |
//! | `body.rs`, `multipart.rs`, `websocket.rs` | what comes in, bounded |
//! | `failure.rs` | why a request fails |
//! | `admission.rs` | whose turn it is |
//! | `memory.rs` | bytes of requests, by owner |
//! | `reload.rs` | a new configuration while it runs |
//! | `rates/` | how much somebody may ask for |
//! | `telemetry/` | traces, for a collector |

mod admission;
mod archive;
mod auth;
mod body;
mod connections;
mod documentation;
mod download;
mod executing;
mod failure;
mod front;
mod health;
mod jupyter;
mod librechat;
mod listen;
mod memory;
mod metrics;
mod multipart;
mod native;
mod rates;
mod reload;
mod telemetry;
mod upload;
mod websocket;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use axum::Router;
use redoma_engine::Concurrency;
use redoma_engine::interpreter::Interpreter;
use redoma_model::{AuditEvent, AuditedAction, Principal};
use tokio::sync::watch;

use admission::Admission;
use auth::Auth;
use failure::Failure;
use jupyter::Jupyter;
use librechat::{Conversations, Programs};
use memory::Memory;
use metrics::RequestMeter;
use rates::{Permit, RateLimits, Refusals, Wanted};
use telemetry::Tracer;
use websocket::Sockets;

pub use auth::JwtError;
pub use connections::Limits as ConnectionLimits;
pub use documentation::openapi_json;
pub use jupyter::KernelLimits;
pub use listen::{Listening, ServeError};
pub use metrics::MetricsAccess;
pub use rates::{Network, NotANetwork};
pub use reload::{Reload, Reloaded};
pub use telemetry::{Endpoint, ExportHeaders, Sample, ServiceName, TelemetryConfig, TelemetryError};

/// How the server is set up.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// No keys: for a server that only this host can reach.
    pub is_open: bool,
    /// LibreChat's public key, if it signs its requests.
    pub librechat_jwt_key: Option<PathBuf>,
    pub concurrency: Concurrency,
    /// Where it is kept over a restart what they have used.
    pub rates_file: Option<PathBuf>,
    /// Those whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<Network>,
    /// The most bytes of a JSON body.
    pub most_json: usize,
    /// How many connections there may be.
    pub connections: ConnectionLimits,
    /// How long runs may go on when the server is told to end.
    pub grace: Duration,
    /// How many Jupyter kernels there may be.
    pub kernels: KernelLimits,
    pub versions: Versions,
    /// Reads the configuration again.
    pub reload: Reload,
    /// Who may read `/metrics`.
    pub metrics: MetricsAccess,
    /// Where traces go, if anywhere.
    pub telemetry: Option<TelemetryConfig>,
}

/// What programs are run with, for those who ask; where it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Versions {
    /// Of Python's libraries, by the names under which they are imported.
    pub libraries: Arc<BTreeMap<String, String>>,
    pub python: Option<String>,
    pub node: Option<String>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            is_open: false,
            librechat_jwt_key: None,
            concurrency: Concurrency::default(),
            rates_file: None,
            trusted_proxies: Vec::new(),
            most_json: 8 << 20,
            connections: ConnectionLimits { in_all: 4096, per_address: 128 },
            grace: Duration::from_secs(30),
            kernels: KernelLimits::default(),
            versions: Versions::default(),
            reload: Reload::default(),
            metrics: MetricsAccess::default(),
            telemetry: None,
        }
    }
}

/// What all requests share.
#[derive(Debug)]
pub struct App {
    interpreter: Arc<Interpreter>,
    auth: Auth,
    admission: Admission,
    rates: RateLimits,
    /// Of whom it was written down lately that they asked for too much.
    refusals: Refusals,
    /// What requests take of it.
    memory: Memory,
    /// How many WebSockets each owner has.
    sockets: Sockets,
    /// Programs of LibreChat's that wait for a tool's answer.
    programs: Programs,
    /// Jupyter's kernels, and who has logged in there.
    jupyter: Jupyter,
    /// LibreChat's conversations with live variables.
    conversations: Conversations,
    requests: RequestMeter,
    /// Follows requests, where that is wanted.
    tracer: Option<Arc<Tracer>>,
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
            refusals: Refusals::default(),
            rates: RateLimits::open(config.rates_file.clone()),
            memory: Memory::new(config.most_json),
            sockets: Sockets::default(),
            programs: Programs::default(),
            jupyter: Jupyter::new(config.kernels),
            conversations: Conversations::default(),
            requests: RequestMeter::default(),
            tracer: config.telemetry.clone().map(Tracer::new),
            config,
            is_ready: AtomicBool::new(false),
            stopping: watch::Sender::new(false),
        }))
    }

    /// Reads the configuration again; for somebody, or by a signal.
    pub fn reload(&self, admin: Option<&Principal>) -> Result<Reloaded, String> {
        self.interpreter
            .record_admin(admin, "reload")
            .map_err(|error| format!("the audit can't be written: {error}"))?;
        self.config.reload.run(&self.interpreter)
    }

    pub fn interpreter(&self) -> &Arc<Interpreter> {
        &self.interpreter
    }

    /// Whether they may have one more of this, by the rates of their profile. Who may not is counted, and now and then
    /// written down.
    fn permit(&self, principal: &Principal, wanted: Wanted) -> Result<Permit, Failure> {
        let rates = self.interpreter.profiles().of(principal)?.0.profile.rates;
        let permit = self.rates.check(principal, &rates, wanted);
        if let Err(failure) = &permit {
            self.interpreter.meter().rate_limited(wanted.name());
            if self.refusals.is_worth_a_record(&principal.owner) {
                let (who, what) = (principal.into(), wanted.name().to_owned());
                let note = Some(failure.detail.clone());
                let interpreter = Arc::clone(&self.interpreter);
                // Off the threads that serve connections: it may wait for the disk.
                tokio::task::spawn_blocking(move || {
                    interpreter.note(|| AuditEvent::RateLimited(AuditedAction { who, what, note }));
                });
            }
        }
        permit
    }
}

/// All routes.
fn router(app: &Arc<App>) -> Router {
    let (native, _) = native::routes().split_for_parts();
    let router = Router::new()
        .merge(native)
        .nest("/v1", librechat::routes())
        .nest("/jupyter", jupyter::routes())
        .merge(health::routes())
        .merge(metrics::routes())
        .merge(documentation::routes())
        .fallback(|| async { Failure::not_found("page") })
        .method_not_allowed_fallback(|| async {
            let status = axum::http::StatusCode::METHOD_NOT_ALLOWED;
            Failure::new(status, "method_not_allowed", "this can't be done here; see /docs")
        })
        .layer(axum::middleware::from_fn_with_state(Arc::clone(app), metrics::measure));
    let router = match app.tracer {
        Some(_) => router.layer(axum::middleware::from_fn_with_state(Arc::clone(app), telemetry::follow)),
        None => router,
    };
    router.with_state(Arc::clone(app))
}
