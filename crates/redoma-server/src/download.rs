//! Files on their way out. Whatever a program made is data: it is handed out as a download, under a policy that lets
//! nothing in it run in our name, and read in pieces.

use std::fs::File;
use std::io::{self, Read};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::{Body as HttpBody, Frame};
use redoma_model::{Owner, StoredFile};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::App;
use crate::failure::Failure;
use crate::memory::Share;

const PIECE: usize = 64 << 10;
/// Pieces that are read ahead of what the client has taken.
const AHEAD: usize = 1;

/// Bytes of memory that a download takes: the piece that is sent and those ahead of it.
pub const DOWNLOAD_BYTES: usize = PIECE * (AHEAD + 1);

/// A body whose pieces come from a thread or a task.
#[derive(Debug)]
pub struct Pieces {
    receiver: Receiver<io::Result<Bytes>>,
    /// The memory that it takes.
    _memory: Option<Share>,
}

impl Pieces {
    pub fn new() -> (Sender<io::Result<Bytes>>, Self) {
        let (sender, receiver) = channel(AHEAD);
        (sender, Self { receiver, _memory: None })
    }

    /// The same, with so much of the owner's memory for as long as it is sent.
    pub fn counted(
        app: &App,
        owner: &Owner,
        bytes: usize,
    ) -> Result<(Sender<io::Result<Bytes>>, Self), Failure> {
        let too_many =
            |_| Failure::busy("you have as many downloads as one user may have at once; try again");
        let memory = app.memory.leaving.take(owner, bytes).map_err(too_many)?;
        let (sender, pieces) = Self::new();
        Ok((sender, Self { _memory: Some(memory), ..pieces }))
    }
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.receiver.poll_recv(context).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

/// The file as a download.
pub fn file(
    app: &App,
    owner: &Owner,
    request: &HeaderMap,
    (stored, content): (&StoredFile, File),
) -> Result<Response, Failure> {
    let etag = format!("\"{}\"", stored.sha256);
    let is_known = request.get(header::IF_NONE_MATCH).is_some_and(|tags| {
        tags.to_str().is_ok_and(|tags| tags.split(',').any(|tag| tag.trim().trim_start_matches("W/") == etag))
    });
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else if stored.size <= PIECE as u64 {
        let mut bytes = Vec::with_capacity(usize::try_from(stored.size).unwrap_or(0));
        content.take(stored.size).read_to_end(&mut bytes).map_err(|error| Failure::internal(&error))?;
        Body::from(bytes).into_response()
    } else {
        let (sender, pieces) = Pieces::counted(app, owner, DOWNLOAD_BYTES)?;
        tokio::spawn(send(content, stored.size, sender));
        let mut response = Body::new(pieces).into_response();
        response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(stored.size));
        response
    };
    let headers = response.headers_mut();
    let set = |headers: &mut HeaderMap, name, value: &str| {
        headers.insert(name, HeaderValue::from_str(value).unwrap_or(HeaderValue::from_static("")));
    };
    set(headers, header::CONTENT_TYPE, &stored.content_type);
    set(headers, header::ETAG, &etag);
    set(headers, header::CONTENT_DISPOSITION, &attachment(stored.name.base()));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    Ok(response)
}

/// Sends a file's bytes, and ends the answer if it can't.
async fn send(content: File, size: u64, sender: Sender<io::Result<Bytes>>) {
    if let Err(error) = send_pieces(content, size, &sender, |_| {}).await {
        let _ = sender.send(Err(error)).await;
    }
}

/// Sends a file's bytes, and shows them to somebody. A thread is taken only while it is read from: those who take it slowly
/// hold none.
pub async fn send_pieces(
    content: File,
    size: u64,
    sender: &Sender<io::Result<Bytes>>,
    mut seen: impl FnMut(&[u8]),
) -> io::Result<()> {
    let gone = || io::Error::new(io::ErrorKind::BrokenPipe, "the client has gone");
    let mut source = content.take(size);
    let mut sent = 0;
    loop {
        let read = tokio::task::spawn_blocking(move || {
            let mut piece = Vec::with_capacity(PIECE);
            let result = source.by_ref().take(PIECE as u64).read_to_end(&mut piece);
            (source, result.map(|_| piece))
        });
        let (rest, piece) = read.await.map_err(io::Error::other)?;
        source = rest;
        let piece = piece?;
        if piece.is_empty() {
            let is_whole = sent == size;
            return if is_whole { Ok(()) } else { Err(io::Error::other("the file is shorter than it was")) };
        }
        sent += piece.len() as u64;
        seen(&piece);
        sender.send(Ok(piece.into())).await.map_err(|_| gone())?;
    }
}

/// The header that makes a browser save it, under this name.
pub fn attachment(name: &str) -> String {
    let plain: String = name
        .chars()
        .map(|letter| {
            if letter.is_ascii_graphic() && !"\"\\%;".contains(letter) || letter == ' ' {
                letter
            } else {
                '_'
            }
        })
        .collect();
    let mut encoded = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            for digit in [byte >> 4, byte & 15] {
                encoded.push(char::from_digit(digit.into(), 16).unwrap_or('0').to_ascii_uppercase());
            }
        }
    }
    format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_gets_out_of_its_header() {
        assert_eq!(attachment("a b.csv"), "attachment; filename=\"a b.csv\"; filename*=UTF-8''a%20b.csv");
        let hostile = attachment("a\"; filename=evil.html\r\nX: y\u{202e}é");
        assert!(HeaderValue::from_str(&hostile).is_ok());
        assert_eq!(hostile.matches('"').count(), 2);
        assert!(!hostile.contains(['\r', '\n']));
    }
}
