//! A JSON body: bounded in size, in time and in what it grows to, and told what is wrong with it.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use serde::de::{DeserializeOwned, Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tokio::sync::OwnedSemaphorePermit;

use crate::App;
use crate::failure::Failure;

/// How long a body may take to come.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bodies below this are let in without counting.
const SMALL: u64 = 256 << 10;
/// KiB of larger ones that are in memory at the same time; the next one waits.
pub const MOST_KIB: u32 = 128 << 10;
/// Elements of a list. A list of many small values takes thirty times its text.
const LONGEST_LIST: usize = 4096;

/// The body as a `T`, whatever type the client says it has. What it takes of the memory for bodies is kept as long as this.
#[derive(Debug)]
pub struct JsonBody<T>(pub T, pub Option<OwnedSemaphorePermit>);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for JsonBody<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Failure> {
        let most = app.config.most_json;
        let too_large =
            || Failure::too_large(format!("a request may have at most {most} bytes; pass data as files"));
        let declared = request.headers().get(header::CONTENT_LENGTH);
        let declared = declared.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        let expected = declared.unwrap_or(most as u64);
        if expected > most as u64 {
            return Err(too_large());
        }
        let read = async {
            let kib = u32::try_from(expected / 1024).unwrap_or(u32::MAX).min(MOST_KIB);
            let room = Arc::clone(&app.bodies);
            let room = if expected > SMALL { room.acquire_many_owned(kib).await.ok() } else { None };
            (to_bytes(request.into_body(), most).await, room)
        };
        let Ok((bytes, room)) = tokio::time::timeout(PATIENCE, read).await else {
            let detail = "the request took too long to arrive";
            return Err(Failure::new(StatusCode::REQUEST_TIMEOUT, "timeout", detail));
        };
        let bytes = bytes.map_err(|error| match error.to_string() {
            text if text.contains("length limit") => too_large(),
            text => Failure::bad_request(format!("the body could not be read: {text}")),
        })?;
        serde_json::from_slice(&bytes).map(|body| Self(body, room)).map_err(|error| {
            Failure::bad_request(format!("the body is not the JSON that is expected: {error}"))
        })
    }
}

/// A list that is given up when it gets too long, and may be left out.
pub fn short_list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_any(ShortList(PhantomData))
}

struct ShortList<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ShortList<T> {
    type Value = Vec<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a list of at most {LONGEST_LIST}")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = sequence.next_element()? {
            if list.len() == LONGEST_LIST {
                return Err(A::Error::custom(format!("a list has more than {LONGEST_LIST} elements")));
            }
            list.push(element);
        }
        Ok(list)
    }

    fn visit_unit<E: Error>(self) -> Result<Vec<T>, E> {
        Ok(Vec::new())
    }
}
