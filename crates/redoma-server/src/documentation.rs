//! The reference: an OpenAPI document made from the code, and a page that shows it. Nothing is loaded from elsewhere.

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::App;
use crate::native;

/// The document, as it is served.
pub fn openapi_json() -> String {
    let (_, document) = native::routes().split_for_parts();
    document.to_pretty_json().unwrap_or_default()
}

pub(crate) fn routes() -> Router<Arc<App>> {
    const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' \
                          data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    let page = |kind: &'static str, text: &'static str| -> Response {
        ([(header::CONTENT_TYPE, kind), (header::CONTENT_SECURITY_POLICY, POLICY)], text).into_response()
    };
    let html = move || async move { page("text/html; charset=utf-8", include_str!("docs/index.html")) };
    let css = move || async move { page("text/css; charset=utf-8", include_str!("docs/docs.css")) };
    let js = move || async move { page("text/javascript; charset=utf-8", include_str!("docs/docs.js")) };
    Router::new()
        .route("/openapi.json", get(openapi))
        .route("/docs", get(html))
        // Relative, for those behind a path prefix.
        .route("/docs/", get(|| async { (StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, "../docs")]) }))
        .route("/docs/docs.css", get(css))
        .route("/docs/docs.js", get(js))
}

async fn openapi() -> Response {
    static DOCUMENT: LazyLock<String> = LazyLock::new(openapi_json);
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.as_str()).into_response()
}
