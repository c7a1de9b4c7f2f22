//! What stands behind the question mark of a path.

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// What can be said there, by name.
pub trait Question: DeserializeOwned + Send {
    const NAMES: &'static [&'static str];
}

/// As axum's `Query`, of one or two kinds together. A name that nobody knows is refused: a filter with a slip in its name
/// would let everything through.
#[derive(Debug)]
pub struct Asked<A, B = Nothing>(pub A, pub B);

/// No second kind.
#[derive(Debug, serde::Deserialize)]
pub struct Nothing {}

impl Question for Nothing {
    const NAMES: &'static [&'static str] = &[];
}

impl<S: Sync, A: Question, B: Question> FromRequestParts<S> for Asked<A, B> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Failure> {
        let names = [A::NAMES, B::NAMES].concat();
        let said: Vec<(String, String)> = read(parts)?;
        if let Some((unknown, _)) = said.iter().find(|(name, _)| !names.contains(&name.as_str())) {
            let unknown: String = unknown.chars().take(80).collect();
            let known = names.join(", ");
            return Err(Failure::bad_request(format!(
                "there is no `{unknown}` to ask for here; there is {known}"
            )));
        }
        Ok(Self(read(parts)?, read(parts)?))
    }
}

fn read<T: DeserializeOwned>(parts: &Parts) -> Result<T, Failure> {
    let read = Query::<T>::try_from_uri(&parts.uri);
    let why = |error: axum::extract::rejection::QueryRejection| Failure::bad_request(error.body_text());
    read.map(|Query(said)| said).map_err(why)
}
