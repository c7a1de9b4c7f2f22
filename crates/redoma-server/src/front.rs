//! What every request goes through first: it gets an id, loses the key in its path, and is written to the log.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderValue, Request, Response, Uri, header};
use axum::response::IntoResponse;
use redoma_model::Role;
use tower::ServiceExt;

use crate::App;
use crate::auth::{OverTls, PathKey, Peer};
use crate::connections::Busy;
use crate::failure::Failure;
use crate::rates::{client_address, is_over_tls, with_standing};
use crate::telemetry::TraceId;

const REQUEST_ID: &str = "x-request-id";

/// Answers one request.
pub(crate) async fn answer(
    app: &App,
    router: Router,
    mut peer: Peer,
    mut request: Request<Body>,
) -> Response<Body> {
    let start = Instant::now();
    let proxies = &app.config.trusted_proxies;
    let id = request_id(&request);
    if is_over_tls(peer.0.ip(), request.headers(), proxies) {
        request.extensions_mut().insert(OverTls);
    }
    peer.0.set_ip(client_address(peer.0.ip(), request.headers(), proxies));
    request.extensions_mut().insert(peer);
    if let Some((key, rest)) = key_in_path(request.uri()) {
        request.extensions_mut().insert(PathKey(key));
        *request.uri_mut() = rest;
    }
    let method = request.method().clone();
    let path = without_keys(request.uri().path());
    let answering = async {
        let request = match refuse_on_reserve(app, request) {
            Ok(request) => request,
            Err(failure) => return closing(failure.into_response()),
        };
        match router.oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    };
    let mut response = with_standing(answering).await;
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id.clone());
    // Nothing that is served here is to be guessed at, framed or passed on.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers
        .entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'; sandbox"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    let (status, ms) = (response.status().as_u16(), (start.elapsed().as_secs_f64() * 1e6).round() / 1e3);
    let id = id.to_str().unwrap_or_default();
    let trace_id = response.extensions().get::<TraceId>().map(tracing::field::display);
    if is_health(&path) {
        tracing::debug!(%method, path, status, ms, id, "request");
    } else {
        tracing::info!(%method, path, status, ms, id, trace_id, "request");
    }
    response
}

fn is_health(path: &str) -> bool {
    ["/healthz", "/readyz", "/metrics"].contains(&path)
}

/// Connections beyond the limit are for health checks, metrics and admins.
fn refuse_on_reserve(app: &App, request: Request<Body>) -> Result<Request<Body>, Failure> {
    let is_reserved = request.extensions().get::<Busy>().is_some_and(|busy| busy.0.is_reserved());
    if !is_reserved || is_health(request.uri().path()) {
        return Ok(request);
    }
    let (parts, body) = request.into_parts();
    match app.auth.still_valid(&app.interpreter, &parts) {
        Ok(principal) if principal.role == Role::Admin => Ok(Request::from_parts(parts, body)),
        _ => Err(Failure::overloaded("all connections of the server are busy; try again")),
    }
}

/// An answer that is the last on its connection.
fn closing(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// The client's own id for the request, if it has a sane one, else one of ours.
fn request_id(request: &Request<Body>) -> HeaderValue {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let given = request.headers().get(REQUEST_ID).filter(|id| {
        let bytes = id.as_bytes();
        (1..=64).contains(&bytes.len())
            && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
    });
    given.cloned().unwrap_or_else(|| {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let id = format!("{:08x}-{number:x}", std::process::id());
        HeaderValue::from_str(&id).unwrap_or(HeaderValue::from_static("-"))
    })
}

/// `/k/KEY/rest` as key and `/rest`.
fn key_in_path(uri: &Uri) -> Option<(String, Uri)> {
    let path = uri.path().strip_prefix("/k/")?;
    let (key, rest) = path.split_once('/').unwrap_or((path, ""));
    let rest = match uri.query() {
        Some(query) => format!("/{rest}?{query}"),
        None => format!("/{rest}"),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(rest).ok()?);
    Some((key.to_owned(), Uri::from_parts(parts).ok()?))
}

/// The path for the log: what may be a key in one that was written in another way is not shown.
fn without_keys(path: &str) -> String {
    let mut after_k = false;
    let shown = path.split('/').map(|part| {
        let hidden = after_k && !part.is_empty();
        after_k = part.eq_ignore_ascii_case("k")
            || part.eq_ignore_ascii_case("%6b")
            || (after_k && part.is_empty());
        if hidden { "…" } else { part }
    });
    shown.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_leaves_the_path() {
        let uri: Uri = "/k/rdm_abc/v1/exec?x=1".parse().unwrap();
        let (key, rest) = key_in_path(&uri).unwrap();
        assert_eq!((key.as_str(), rest.to_string().as_str()), ("rdm_abc", "/v1/exec?x=1"));
        let (key, rest) = key_in_path(&"/k/rdm_abc".parse().unwrap()).unwrap();
        assert_eq!((key.as_str(), rest.path()), ("rdm_abc", "/"));
        assert!(key_in_path(&"/v1/exec".parse().unwrap()).is_none());
        for path in ["//k/rdm_abc/v1", "/k/rdm_abc", "/x/%6b//rdm_abc", "/K/rdm_abc"] {
            assert!(!without_keys(path).contains("rdm_abc"), "{path}");
        }
        assert_eq!(without_keys("/v1/files/abc"), "/v1/files/abc");
    }
}
