//! A JSON body: bounded in size, in time and in what it grows to, and told what is wrong with it.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use futures_core::Stream;
use redoma_model::Owner;
use serde::de::{DeserializeOwned, Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tokio::sync::Notify;

use crate::App;
use crate::auth::Identified;
use crate::failure::Failure;
use crate::memory::Share;

/// How long a body may take to arrive.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of elements of a list. A list of many small values takes thirty times its text.
const LONGEST_LIST: usize = 4096;

/// The body as a `T`, whatever type the client says it has. Bytes count against the caller's share of the memory as they
/// arrive; from then on only what was read into the `T` does, for as long as the [`Share`] lives.
#[derive(Debug)]
pub struct JsonBody<T>(pub T, pub Share);

/// What a value holds outside of itself.
pub trait Weigh {
    /// In bytes.
    fn weight(&self) -> usize;
}

impl Weigh for String {
    fn weight(&self) -> usize {
        self.capacity()
    }
}

impl<T: Weigh> Weigh for Option<T> {
    fn weight(&self) -> usize {
        self.as_ref().map_or(0, Weigh::weight)
    }
}

impl<T: Weigh> Weigh for Vec<T> {
    fn weight(&self) -> usize {
        self.capacity() * size_of::<T>() + self.iter().map(Weigh::weight).sum::<usize>()
    }
}

impl<T: DeserializeOwned + Weigh> FromRequest<Arc<App>> for JsonBody<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Failure> {
        let owner = match request.extensions().get::<Identified>() {
            Some(Identified(owner)) => owner.clone(),
            // Handlers ask who it is first.
            None => return Err(Failure::internal(&"a body is read before its sender is known")),
        };
        let bytes = read(app, &owner, request, app.config.most_json).await?;
        let body: T = serde_json::from_slice(&bytes).map_err(|error| {
            Failure::bad_request(format!("the body is not the JSON that is expected: {error}"))
        })?;
        drop(bytes);
        let held = app.memory.waiting.share(&owner);
        held.try_grow_to(body.weight()).map_err(|_| no_room())?;
        Ok(Self(body, held))
    }
}

/// The requests of one owner hold too much memory.
pub fn no_room() -> Failure {
    Failure::busy(
        "your requests hold as much of the server's memory as one user may; wait for some of them to end",
    )
}

/// Bytes with the memory that they take.
pub struct Counted {
    bytes: Vec<u8>,
    _share: Share,
}

impl std::ops::Deref for Counted {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A body of at most so many bytes, counted as it arrives.
pub async fn read(app: &App, owner: &Owner, request: Request, most: usize) -> Result<Counted, Failure> {
    let too_large =
        || Failure::too_large(format!("a request may have at most {most} bytes; pass data as files"));
    let declared = declared_length(request.headers());
    if declared.is_some_and(|declared| declared > most as u64) {
        return Err(too_large());
    }
    let pushed_out = Arc::new(Notify::new());
    let end = Arc::clone(&pushed_out);
    let share = app.memory.arriving.evictable_share(owner, move || end.notify_one());
    let body = request.into_body();
    let read = async {
        let mut bytes = Vec::new();
        let mut pieces = body.into_data_stream();
        while let Some(piece) = std::future::poll_fn(|context| Pin::new(&mut pieces).poll_next(context)).await
        {
            let piece = piece
                .map_err(|error| Failure::bad_request(format!("the body could not be read: {error}")))?;
            let length = bytes.len() + piece.len();
            if length > most {
                return Err(too_large());
            }
            share.grow_to(length).await.map_err(|_| no_room())?;
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    };
    let bytes = tokio::select! {
        read = tokio::time::timeout(BODY_TIMEOUT, read) => read.unwrap_or_else(|_| {
            let detail = "the request took too long to arrive";
            Err(Failure::new(StatusCode::REQUEST_TIMEOUT, "timeout", detail))
        }),
        () = pushed_out.notified() => Err(no_room()),
    };
    Ok(Counted { bytes: bytes?, _share: share })
}

fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
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
