//! What a request brings to prove who makes it.

use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;

/// The key in the path (`/k/KEY/v1/…`), for clients that can send no header. It is taken out before anything else sees the
/// path, so that no log has it.
#[derive(Clone)]
pub struct PathKey(pub String);

impl std::fmt::Debug for PathKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PathKey(…)")
    }
}

/// A key that a façade has found in a place that is its own (Jupyter's clients have several).
#[derive(Clone)]
pub struct GivenKey {
    pub secret: String,
    /// Where, for the log.
    pub way: &'static str,
}

impl std::fmt::Debug for GivenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GivenKey({}: …)", self.way)
    }
}

/// Whether the request brings something that every façade looks at.
pub fn has_credential(parts: &Parts) -> bool {
    Credential::of(parts).is_some()
}

pub(super) enum Credential {
    Key {
        secret: String,
        way: &'static str,
    },
    /// A key, or a signed token.
    Token(String),
}

impl Credential {
    pub(super) fn of(parts: &Parts) -> Option<Self> {
        if let Some(GivenKey { secret, way }) = parts.extensions.get() {
            return Some(Self::Key { secret: secret.clone(), way });
        }
        if let Some(PathKey(secret)) = parts.extensions.get() {
            return Some(Self::Key { secret: secret.clone(), way: "path" });
        }
        let header = |name: &str| parts.headers.get(name)?.to_str().ok().map(str::trim);
        if let Some(secret) = header("x-api-key").filter(|secret| !secret.is_empty()) {
            return Some(Self::Key { secret: secret.to_owned(), way: "x-api-key" });
        }
        let (scheme, value) = header(AUTHORIZATION.as_str())?.split_once(' ')?;
        let value = value.trim();
        if scheme.eq_ignore_ascii_case("bearer") {
            Some(Self::Token(value.to_owned()))
        } else if scheme.eq_ignore_ascii_case("basic") {
            let text = String::from_utf8(redoma_engine::base64::decode(value)?).ok()?;
            let (_, secret) = text.split_once(':')?;
            Some(Self::Key { secret: secret.to_owned(), way: "basic" })
        } else {
            None
        }
    }

    pub(super) fn way(&self) -> &'static str {
        match self {
            Self::Key { way, .. } => way,
            Self::Token(_) => "bearer",
        }
    }
}
