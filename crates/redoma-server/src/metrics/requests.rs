//! Requests by route, method and status. The route is the template (`/api/v1/sessions/{id}`), never the path: that has ids in
//! it, and anybody can make up paths.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use redoma_engine::meter::{Counter, Exposition, Family, Histogram, OTHER};

use crate::App;

/// Routes × methods × classes; there are some fifty routes.
const MOST: usize = 512;

#[derive(Debug)]
pub(crate) struct RequestMeter {
    requests: Family<Counter>,
    seconds: Family<Histogram>,
}

impl Default for RequestMeter {
    fn default() -> Self {
        Self {
            requests: Family::new(&["route", "method", "status"], MOST, Counter::default),
            seconds: Family::new(&["route", "method"], MOST, Histogram::of_seconds),
        }
    }
}

impl RequestMeter {
    pub(crate) fn write(&self, page: &mut Exposition) {
        let help = "Requests, by route, method and class of status.";
        page.counter("redoma_http_requests", help).counts(&self.requests);
        let help = "How long requests took, until their answer began.";
        page.histogram("redoma_http_request_seconds", help).spreads(&self.seconds);
    }
}

/// Counts a request on its way.
pub(crate) async fn measure(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let method = name(request.method());
    let response = next.run(request).await;
    let route = route.as_ref().map_or(OTHER, MatchedPath::as_str);
    app.requests.requests.with(&[route, method, class(response.status())], Counter::add_one);
    app.requests.seconds.with(&[route, method], |seconds| seconds.note(begun.elapsed()));
    response
}

/// The usual ones: a client may send any word.
fn name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => OTHER,
    }
}

fn class(status: StatusCode) -> &'static str {
    match status.as_u16() / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        // Told apart from other mistakes of clients: it is this server that has too much to do.
        4 if status == StatusCode::TOO_MANY_REQUESTS => "429",
        4 => "4xx",
        5 => "5xx",
        _ => OTHER,
    }
}
