//! What is left of a rate, on every answer to which it applied: `RateLimit-Limit`, `-Remaining` and `-Reset` (seconds), and the same
//! with `X-` in front. The check happens deep inside a handler, the headers are written where all answers pass; between
//! the two it is a note that belongs to the request's task.

use std::cell::Cell;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Response};

use super::ledger::Standing;

tokio::task_local! {
    static STANDING: Cell<Option<Standing>>;
}

/// Notes what is left, for the answer to the request that is being answered.
pub(super) fn note(standing: Option<Standing>) {
    if let Some(standing) = standing {
        // Outside of a request nobody reads it.
        let _ = STANDING.try_with(|cell| cell.set(Some(standing)));
    }
}

const NAMES: [[HeaderName; 2]; 3] = [
    [HeaderName::from_static("ratelimit-limit"), HeaderName::from_static("x-ratelimit-limit")],
    [HeaderName::from_static("ratelimit-remaining"), HeaderName::from_static("x-ratelimit-remaining")],
    [HeaderName::from_static("ratelimit-reset"), HeaderName::from_static("x-ratelimit-reset")],
];

/// Answers a request, and writes on the answer what was noted meanwhile.
pub async fn with_standing(answer: impl Future<Output = Response<Body>>) -> Response<Body> {
    STANDING
        .scope(Cell::new(None), async {
            let mut response = answer.await;
            if let Some(Standing { limit, left, reset }) = STANDING.with(Cell::get) {
                let values = [u64::from(limit), u64::from(left), reset];
                for (names, value) in NAMES.into_iter().zip(values) {
                    for name in names {
                        response.headers_mut().insert(name, HeaderValue::from(value));
                    }
                }
            }
            response
        })
        .await
}
