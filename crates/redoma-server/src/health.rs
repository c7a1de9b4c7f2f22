//! Whether the server is alive, and whether it can run programs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::App;

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new().route("/healthz", get(alive)).route("/readyz", get(ready))
}

async fn alive() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

async fn ready(State(app): State<Arc<App>>) -> (StatusCode, Json<Value>) {
    let status = match (*app.stopping.borrow(), app.is_ready.load(Ordering::Relaxed)) {
        (true, _) => "stopping",
        (false, true) => "ready",
        (false, false) => "starting",
    };
    let code = if status == "ready" { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(json!({ "status": status })))
}

impl App {
    /// Sandboxes wait for programs.
    pub fn set_ready(&self) {
        self.is_ready.store(true, Ordering::Relaxed);
    }
}
