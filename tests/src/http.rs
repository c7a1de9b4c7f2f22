//! A small HTTP client that can also misbehave: it sends what it is told to, byte by byte.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// An answer, read to its end.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {} {}", self.status, self.text()))
    }
}

/// A request under construction.
#[derive(Debug, Clone)]
pub struct Request {
    address: SocketAddr,
    head: String,
    body: Vec<u8>,
}

impl Request {
    /// The path goes out as it is, valid or not.
    pub fn new(address: SocketAddr, method: &str, path: &str) -> Self {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
        Self { address, head, body: Vec::new() }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let _ = write!(self.head, "{name}: {value}\r\n");
        self
    }

    #[must_use]
    pub fn key(self, key: &str) -> Self {
        self.header("X-API-Key", key)
    }

    #[must_use]
    pub fn body(mut self, kind: &str, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        let length = self.body.len().to_string();
        self.header("Content-Type", kind).header("Content-Length", &length)
    }

    #[must_use]
    pub fn json(self, body: &Value) -> Self {
        self.body("application/json", body.to_string())
    }

    /// Asks for a WebSocket.
    #[must_use]
    pub fn websocket(mut self) -> Self {
        self.head = self.head.replace("Connection: close\r\n", "");
        self.header("Connection", "Upgrade")
            .header("Upgrade", "websocket")
            .header("Sec-WebSocket-Version", "13")
            .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
    }

    /// A multipart form: text fields, then files.
    #[must_use]
    pub fn form(self, fields: &[(&str, &str)], files: &[(&str, &[u8])]) -> Self {
        const BOUNDARY: &str = "redoma-test-boundary-1b2f";
        let mut body = Vec::new();
        for (name, value) in fields {
            let part =
                format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
            body.extend_from_slice(part.as_bytes());
        }
        for (name, content) in files {
            let part = format!(
                "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
                 Content-Type: application/octet-stream\r\n\r\n"
            );
            body.extend_from_slice(part.as_bytes());
            body.extend_from_slice(content);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
        self.body(&format!("multipart/form-data; boundary={BOUNDARY}"), body)
    }

    /// Everything that would be sent.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{}\r\n", self.head).into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// Sends it and reads the answer; panics if there is none.
    pub fn send(&self) -> Answer {
        self.try_send().unwrap_or_else(|error| panic!("{error}: {}", self.head))
    }

    pub fn try_send(&self) -> std::io::Result<Answer> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(Duration::from_mins(2)))?;
        // A server that has answered already may not take the rest.
        let sent = stream.write_all(&self.bytes());
        match read_answer(&mut stream) {
            Ok(answer) => Ok(answer),
            Err(error) => sent.and(Err(error)),
        }
    }
}

/// Sends these bytes, whatever they are, and reads the answer.
pub fn exchange(address: SocketAddr, bytes: &[u8]) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_mins(1)))?;
    stream.set_write_timeout(Some(Duration::from_mins(1)))?;
    // A server that has answered already may not take the rest.
    let sent = stream.write_all(bytes);
    match read_answer(&mut stream) {
        Ok(answer) => Ok(answer),
        Err(error) => sent.and(Err(error)),
    }
}

/// These bytes as pieces of a body without a length.
pub fn chunked(bytes: &[u8], piece: usize) -> Vec<u8> {
    let mut whole = Vec::with_capacity(bytes.len() + bytes.len() / piece.max(1) * 12 + 16);
    for piece in bytes.chunks(piece) {
        whole.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        whole.extend_from_slice(piece);
        whole.extend_from_slice(b"\r\n");
    }
    whole.extend_from_slice(b"0\r\n\r\n");
    whole
}

/// Reads one answer to its end.
pub fn read_answer(stream: &mut TcpStream) -> std::io::Result<Answer> {
    let invalid = |why: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, why.to_owned());
    let mut bytes = Vec::new();
    let mut piece = vec![0; 64 << 10];
    let end_of_head = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        match stream.read(&mut piece)? {
            0 => return Err(invalid("the connection ended before an answer")),
            count => bytes.extend_from_slice(&piece[..count]),
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end_of_head]).into_owned();
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let status = status.ok_or_else(|| invalid("no status"))?;
    let headers: Vec<_> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let mut answer = Answer { status, headers, body: bytes[end_of_head + 4..].to_vec() };
    let length: Option<usize> = answer.header("content-length").and_then(|length| length.parse().ok());
    let is_chunked = answer.header("transfer-encoding") == Some("chunked");
    while length.is_none_or(|length| answer.body.len() < length) && status != 304 && status != 204 {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => answer.body.extend_from_slice(&piece[..count]),
            Err(error) if length.is_some() => return Err(error),
            Err(_) => break,
        }
    }
    if length.is_some_and(|length| answer.body.len() < length) {
        return Err(invalid("the answer was cut short"));
    }
    if is_chunked {
        answer.body = unchunked(&answer.body).ok_or_else(|| invalid("the answer was cut short"))?;
    }
    Ok(answer)
}

fn unchunked(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    loop {
        let line = bytes.windows(2).position(|window| window == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..line]).ok()?.trim(), 16).ok()?;
        bytes = &bytes[line + 2..];
        if size == 0 {
            return Some(whole);
        }
        whole.extend_from_slice(bytes.get(..size)?);
        bytes = bytes.get(size + 2..)?;
    }
}
