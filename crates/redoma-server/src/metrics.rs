//! `/metrics`: what Prometheus reads, in its own text format or, if it asks for that, as OpenMetrics.
//!
//! The page names no user, session or address, but it tells what goes on here, so it is not for everybody: it takes an admin
//! key or a token that opens nothing else. That a request comes from this host says nothing, since behind a proxy on the same
//! host all of them do.
//!
//! | file | subject |
//! |---|---|
//! | `metrics.rs` | who may read the page, and what is on it |
//! | `metrics/requests.rs` | requests by route |
//! | `metrics/process.rs` | this process |

mod process;
mod requests;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::Router;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use redoma_engine::meter::{Exposition, Format, Phase};
use redoma_model::Role;
use sha2::{Digest, Sha256};

use crate::App;
use crate::auth::Caller;
use crate::executing::blocking;
use crate::failure::Failure;
use crate::telemetry;
pub(crate) use requests::{RequestMeter, measure};

/// Who may read the page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum MetricsAccess {
    /// Whoever has an admin key or, if there is one, this token.
    #[default]
    Keys,
    Token(String),
    /// Whoever can reach the server: for one that a firewall or a proxy guards.
    Open,
    /// Nobody: there is no such page.
    Off,
}

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new().route("/metrics", get(page))
}

async fn page(State(app): State<Arc<App>>, request: Request) -> Result<Response, Failure> {
    let (mut parts, _) = request.into_parts();
    let may = match &app.config.metrics {
        MetricsAccess::Off => return Err(Failure::not_found("page")),
        MetricsAccess::Open => true,
        MetricsAccess::Token(token) => has_token(&parts.headers, token),
        MetricsAccess::Keys => false,
    };
    if !may {
        require_admin(&mut parts, &app).await?;
    }
    let format = format(&parts.headers);
    let text = blocking(move || Ok::<_, Failure>(app.metrics_page(format))).await?;
    Ok(([(header::CONTENT_TYPE, format.content_type())], text).into_response())
}

/// Without keys everybody who gets this far is one.
async fn require_admin(parts: &mut Parts, app: &Arc<App>) -> Result<(), Failure> {
    let Caller(principal) = Caller::from_request_parts(parts, app).await?;
    if principal.role == Role::Admin {
        return Ok(());
    }
    let detail = "metrics take an admin key, or the token `server.metrics_token`";
    Err(Failure::new(StatusCode::FORBIDDEN, "forbidden", detail))
}

/// Compared by their hashes: how long that takes tells nothing of the token.
fn has_token(headers: &HeaderMap, token: &str) -> bool {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    given.is_some_and(|(_, given)| Sha256::digest(given.trim()) == Sha256::digest(token))
}

/// Prometheus says which it can read, best first; whoever says nothing gets the older one, which everything reads.
fn format(headers: &HeaderMap) -> Format {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let quality = |range: &str| {
        let q = range.split(';').find_map(|part| part.trim().strip_prefix("q=")?.parse::<f32>().ok());
        q.unwrap_or(1.0)
    };
    let best = |is_it: fn(&str) -> bool| {
        let ranges =
            accepted.split(',').filter(|range| is_it(range.split(';').next().unwrap_or_default().trim()));
        ranges.map(quality).fold(0.0, f32::max)
    };
    let open = best(|kind| kind.eq_ignore_ascii_case("application/openmetrics-text"));
    let plain = best(|kind| kind.eq_ignore_ascii_case("text/plain"));
    if open > 0.0 && open >= plain { Format::OpenMetrics } else { Format::Prometheus }
}

impl App {
    /// The whole page. Asks the store, so off the threads that serve connections.
    fn metrics_page(&self, format: Format) -> String {
        let begun = Instant::now();
        let mut page = Exposition::new(format);
        let versions = &self.config.versions;
        page.gauge("redoma_build_info", "Always 1; which program this is, and what it runs programs with.")
            .count(
                &[
                    ("version", env!("CARGO_PKG_VERSION")),
                    ("python", versions.python.as_deref().unwrap_or_default()),
                    ("node", versions.node.as_deref().unwrap_or_default()),
                ],
                1,
            );
        let is_ready = self.is_ready.load(Ordering::Relaxed) && !*self.stopping.borrow();
        page.gauge("redoma_ready", "Whether programs can be run.").count(&[], u64::from(is_ready));
        let meter = self.interpreter.meter();
        let gauges = self.interpreter.gauges();
        meter.write(&mut page);
        meter.write_violations(&mut page, &gauges.status.kernel_words);
        gauges.write(&mut page, self.admission.waiting());
        self.requests.write(&mut page);
        telemetry::write(self.tracer.as_ref(), &mut page);
        process::write(&mut page);
        let help = "How long this page took.";
        page.gauge("redoma_scrape_seconds", help).number(&[], begun.elapsed().as_secs_f64());
        page.finish()
    }

    /// Waits for a turn, and counts for how long.
    pub(crate) async fn queued<T>(&self, turn: impl Future<Output = T>) -> T {
        let begun = Instant::now();
        let turn = turn.await;
        let time = begun.elapsed();
        self.interpreter.meter().phase(Phase::Queue, time);
        if let Some(trace) = telemetry::current() {
            trace.phase(Phase::Queue, begun, time);
        }
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[test]
    fn openmetrics_is_for_those_who_want_it() {
        let of = |accept: &str| format(&headers(header::ACCEPT, accept));
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!(of(prometheus), Format::OpenMetrics);
        assert_eq!(of("text/plain;q=0.9, application/openmetrics-text;q=0.1"), Format::Prometheus);
        assert_eq!(of("application/openmetrics-text;q=0"), Format::Prometheus);
        assert_eq!(of("*/*"), Format::Prometheus);
        assert_eq!(format(&HeaderMap::new()), Format::Prometheus);
    }

    #[test]
    fn only_the_whole_token_is_the_token() {
        let has = |value: &str| has_token(&headers(header::AUTHORIZATION, value), "0123456789abcdef");
        assert!(has("Bearer 0123456789abcdef") && has("bearer 0123456789abcdef"));
        for value in
            ["Bearer 0123456789abcde", "Bearer ", "Basic 0123456789abcdef", "0123456789abcdef", "Bearer"]
        {
            assert!(!has(value), "{value}");
        }
    }
}
