//! One request to the collector, on a connection of its own, with an end in sight.

use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::settings::TelemetryConfig;

/// A collector that takes longer has not taken it.
const PATIENCE: Duration = Duration::from_secs(10);
/// As much of an answer is read, with its head and whatever is sent before it.
const LONGEST_ANSWER: u16 = u16::MAX;

/// Why spans were not taken.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    #[error("it can't be reached: {0}")]
    Connect(io::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Slow,
    #[error("it answered {status}")]
    Status { status: StatusCode, retry_after: Option<Duration> },
}

impl PostError {
    /// Whether the same may be taken later: what OTLP says of an answer, and whatever is wrong with the connection.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Connect(_) | Self::Http(_) | Self::Slow => true,
            Self::Status { status, .. } => matches!(status.as_u16(), 429 | 502 | 503 | 504),
        }
    }

    /// When the collector wants to be asked again.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// Sends spans; how many of them the collector did not want, of those that it was sent.
pub async fn post(config: &TelemetryConfig, body: Bytes) -> Result<usize, PostError> {
    tokio::time::timeout(PATIENCE, exchange(config, body)).await.unwrap_or(Err(PostError::Slow))
}

async fn exchange(config: &TelemetryConfig, body: Bytes) -> Result<usize, PostError> {
    let endpoint = &config.endpoint;
    let stream = TcpStream::connect(endpoint.host_and_port()).await.map_err(PostError::Connect)?;
    let _ = stream.set_nodelay(true);
    let (answer, question) = stream.into_split();
    let stream = tokio::io::join(answer.take(LONGEST_ANSWER.into()), question);
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with this function, however that ends.
    let mut driving = JoinSet::new();
    driving.spawn(connection);
    let mut request = Request::post(endpoint.path())
        .header(header::HOST, endpoint.authority())
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONNECTION, "close")
        .body(Body::from(body))
        .expect("its parts are valid each for itself");
    request.headers_mut().extend(config.headers.map().clone());
    let response = sender.send_request(request).await?;
    let status = response.status();
    if !status.is_success() {
        return Err(PostError::Status { status, retry_after: retry_after(&response) });
    }
    let answer = axum::body::to_bytes(Body::new(response.into_body()), LONGEST_ANSWER.into()).await;
    Ok(answer.map_or(0, |answer| rejected(&answer)))
}

/// In seconds; a date is as good as nothing.
fn retry_after(response: &Response<Incoming>) -> Option<Duration> {
    let seconds = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// A collector may take some of what it is sent and say of how many it did not.
fn rejected(answer: &[u8]) -> usize {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(rename = "partialSuccess")]
        partial: Option<Partial>,
    }
    #[derive(Deserialize)]
    struct Partial {
        #[serde(rename = "rejectedSpans")]
        rejected: Option<Count>,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Count {
        Number(usize),
        Text(String),
    }
    let answer = serde_json::from_slice::<Answer>(answer).ok();
    match answer.and_then(|answer| answer.partial?.rejected) {
        Some(Count::Number(count)) => count,
        Some(Count::Text(text)) => text.parse().unwrap_or(0),
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_may_take_some_and_not_others() {
        for (answer, count) in [
            (r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"no"}}"#, 3),
            (r#"{"partialSuccess":{"rejectedSpans":3}}"#, 3),
            (r#"{"partialSuccess":{}}"#, 0),
            (r#"{"partialSuccess":{"rejectedSpans":-1}}"#, 0),
            ("{}", 0),
            ("", 0),
            ("<html>", 0),
        ] {
            assert_eq!(rejected(answer.as_bytes()), count, "{answer}");
        }
    }
}
