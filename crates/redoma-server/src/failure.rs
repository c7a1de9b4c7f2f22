//! Why a request fails: a status, a code for programs, a sentence for people. What is internal goes to the log.
//!
//! Each façade writes it down in its own format; the native one is `application/problem+json` (RFC 9457).

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use redoma_engine::interpreter::{InterpreterError, StoreError, UploadError};
use redoma_engine::{RunError, StagingError};
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub status: StatusCode,
    pub code: &'static str,
    pub detail: String,
    /// Seconds after which it may be tried again.
    pub retry_after: Option<u64>,
}

impl Failure {
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into(), retry_after: None }
    }

    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", detail)
    }

    pub fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", format!("there is no such {what}"))
    }

    pub fn too_large(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail)
    }

    pub fn busy(detail: impl Into<String>) -> Self {
        let retry_after = Some(2);
        Self { retry_after, ..Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", detail) }
    }

    /// There is no room for anybody at the moment.
    pub fn overloaded(detail: impl Into<String>) -> Self {
        let retry_after = Some(5);
        Self { retry_after, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", detail) }
    }

    /// Something of ours does not work: nobody outside is told what.
    pub fn internal(error: &dyn std::fmt::Display) -> Self {
        tracing::error!(%error, "a request failed");
        let detail = "something went wrong on the server; its log says what";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
    }

    fn unavailable(error: &dyn std::fmt::Display) -> Self {
        tracing::error!(%error, "programs can't be run");
        let detail = "programs can't be run at the moment; `redoma doctor` on the server tells why";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail)
    }

    /// What can't be written down does not happen.
    fn not_audited(error: &dyn std::fmt::Display) -> Self {
        tracing::error!(%error, "the audit can't be written");
        let detail = "the server can't write its audit, and does nothing without; its log says why";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "audit_unavailable", detail)
    }

    fn no_space() -> Self {
        tracing::error!("the disk is full");
        Self::new(StatusCode::INSUFFICIENT_STORAGE, "no_space", "the server's disk is full")
    }

    /// Headers that go with it in every format.
    pub fn dress(&self, mut response: Response) -> Response {
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"redoma\""));
        }
        response
    }
}

impl From<InterpreterError> for Failure {
    fn from(error: InterpreterError) -> Self {
        match error {
            InterpreterError::NotFound(what) => Self::not_found(what),
            InterpreterError::BadRequest(detail) => Self::bad_request(detail),
            InterpreterError::Forbidden(detail) => Self::new(StatusCode::FORBIDDEN, "forbidden", detail),
            InterpreterError::TooManySessions { .. } => {
                Self::new(StatusCode::CONFLICT, "too_many_sessions", error.to_string())
            }
            InterpreterError::NoRoom(detail) => Self::new(StatusCode::INSUFFICIENT_STORAGE, "quota", detail),
            InterpreterError::Store(StoreError::NoRoom { .. }) => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "quota", error.to_string())
            }
            InterpreterError::InUse => Self::new(StatusCode::CONFLICT, "in_use", error.to_string()),
            InterpreterError::Run(error) => error.into(),
            InterpreterError::Audit(error) => Self::not_audited(&error),
            InterpreterError::Store(StoreError::NoSuchSession) => Self::not_found("session"),
            InterpreterError::Store(error) if error.is_full() => Self::no_space(),
            InterpreterError::Store(error) => Self::internal(&error),
        }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match &error {
            RunError::Busy { .. } | RunError::InputMemory => Self::busy(error.to_string()),
            RunError::Overloaded => Self::overloaded(error.to_string()),
            RunError::Cancelled => Self::new(StatusCode::CONFLICT, "cancelled", error.to_string()),
            RunError::KernelSlow => {
                let failure = Self::new(StatusCode::SERVICE_UNAVAILABLE, "session_slow", error.to_string());
                Self { retry_after: Some(5), ..failure }
            }
            RunError::KernelLost => Self::new(StatusCode::CONFLICT, "variables_lost", error.to_string()),
            RunError::NoCheckpoint => Self::new(StatusCode::CONFLICT, "no_checkpoint", error.to_string()),
            RunError::ShuttingDown => {
                let failure = Self::new(StatusCode::SERVICE_UNAVAILABLE, "shutting_down", error.to_string());
                Self { retry_after: Some(5), ..failure }
            }
            RunError::ArgumentsTooLong
            | RunError::ScriptName(_)
            | RunError::Plan(_)
            | RunError::ToolsInLanguage(_) => Self::bad_request(error.to_string()),
            RunError::Staging(StagingError::Copy { source, .. })
                if source.kind() == std::io::ErrorKind::StorageFull =>
            {
                Self::no_space()
            }
            // Deleted between the request and the run.
            RunError::Staging(StagingError::Read { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                Self::new(StatusCode::CONFLICT, "file_deleted", "a file was deleted meanwhile; try again")
            }
            _ => Self::unavailable(&error),
        }
    }
}

impl From<UploadError> for Failure {
    fn from(error: UploadError) -> Self {
        match &error {
            UploadError::TooLarge { .. } => Self::too_large(error.to_string()),
            UploadError::Type { .. } => {
                Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "file_type", error.to_string())
            }
            UploadError::Quota { .. } => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "quota", error.to_string())
            }
            UploadError::Store(StoreError::NoSuchSession) => Self::not_found("session"),
            _ if error.is_full() => Self::no_space(),
            _ => Self::internal(&error),
        }
    }
}

/// RFC 9457.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Problem {
    /// Always `about:blank`: the code says which it is.
    #[serde(rename = "type")]
    kind: &'static str,
    title: String,
    status: u16,
    /// What happened, and what to do.
    detail: String,
    /// For programs: `not_found`, `rate_limited`, `quota`, …
    code: &'static str,
    /// The same, where LibreChat's clients look for it.
    error: &'static str,
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let problem = Problem {
            kind: "about:blank",
            title: self.status.canonical_reason().unwrap_or("Error").to_owned(),
            status: self.status.as_u16(),
            detail: self.detail.clone(),
            code: self.code,
            error: self.code,
        };
        let mut response = Json(problem).into_response();
        let json = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        self.dress(response)
    }
}
