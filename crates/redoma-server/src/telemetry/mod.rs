//! Traces, for those who have a collector: each request that runs a program is a span, with the parts of its way below it.
//!
//! Where none is configured there is nothing of it on a request's way. Where one is, a request notes what it would have measured anyway,
//! and leaves that in a queue; whether a collector takes it is no concern of the request's. As in metrics, nobody is named: no
//! user, key, session, address, code or file.
//!
//! | file | subject |
//! |---|---|
//! | `mod.rs` | which requests are followed, and where what is noted belongs |
//! | `settings.rs` | where spans go, and how many |
//! | `traceparent.rs` | the caller's trace |
//! | `trace.rs` | what is noted of one request |
//! | `queue.rs` | what waits to be sent |
//! | `exporter.rs`, `post.rs` | sending it |
//! | `otlp.rs` | what that looks like |

mod exporter;
mod otlp;
mod post;
mod queue;
mod settings;
mod trace;
mod traceparent;

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::Response;
use redoma_engine::meter::Exposition;

use crate::App;
use queue::Queue;
use trace::TracedRequest;
use traceparent::Parent;

pub(crate) use exporter::Exporter;
pub use settings::{Endpoint, ExportHeaders, Sample, ServiceName, TelemetryConfig, TelemetryError};
pub(crate) use trace::Trace;
pub(crate) use traceparent::TraceId;

/// The routes that run programs, with one request for one program.
const EXECUTIONS: [&str; 4] =
    ["/api/v1/executions", "/api/v1/sessions/{session}/executions", "/v1/exec", "/v1/exec/programmatic"];

/// What is configured, and what waits to be sent there.
#[derive(Debug)]
pub(crate) struct Tracer {
    config: TelemetryConfig,
    queue: Queue,
}

impl Tracer {
    pub fn new(config: TelemetryConfig) -> Arc<Self> {
        Arc::new(Self { config, queue: Queue::default() })
    }
}

tokio::task_local! {
    static CURRENT: Option<Trace>;
}

/// The trace of the request that is being answered, if it has one.
pub(crate) fn current() -> Option<Trace> {
    CURRENT.try_with(Clone::clone).ok().flatten()
}

/// Does something that belongs to a trace.
pub(crate) async fn under<T>(trace: Option<Trace>, work: impl Future<Output = T>) -> T {
    CURRENT.scope(trace, work).await
}

/// Follows a request on its way. On that of a server only that has a tracer.
pub(crate) async fn follow(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let (Some(tracer), Some(route)) = (&app.tracer, execution_route(&request)) else {
        return next.run(request).await;
    };
    let parent = Parent::of(request.headers());
    let trace = Trace::begin(tracer, TracedRequest { method: "POST", route }, parent);
    let mut response = under(trace.clone(), next.run(request)).await;
    // Also if it is not kept here: somebody else may look for it.
    if let Some(id) = trace.as_ref().map(Trace::id).or(parent.map(|parent| parent.trace)) {
        response.extensions_mut().insert(id);
    }
    if let Some(trace) = trace {
        trace.answered(&response);
    }
    response
}

fn execution_route(request: &Request) -> Option<&'static str> {
    let path = request.extensions().get::<MatchedPath>().filter(|_| request.method() == Method::POST)?;
    EXECUTIONS.into_iter().find(|route| *route == path.as_str())
}

/// The trace of one program of the many that come over a WebSocket, which somebody has opened who was let in.
pub(crate) fn of_message(app: &App, route: &'static str, opened_with: Option<&HeaderMap>) -> Option<Trace> {
    let request = TracedRequest { method: "GET", route };
    let trace = Trace::begin(app.tracer.as_ref()?, request, opened_with.and_then(Parent::of))?;
    trace.let_in();
    Some(trace)
}

/// What became of spans.
pub(crate) fn write(tracer: Option<&Arc<Tracer>>, page: &mut Exposition) {
    queue::write(tracer.map(|tracer| &tracer.queue), page);
}
