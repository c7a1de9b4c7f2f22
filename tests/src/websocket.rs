//! As much of a WebSocket client as tests need.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use crate::http::Request;

#[derive(Debug)]
pub struct WebSocket(TcpStream);

/// A frame's opcode.
pub mod opcode {
    pub const TEXT: u8 = 1;
    pub const BINARY: u8 = 2;
    pub const CLOSE: u8 = 8;
    pub const PING: u8 = 9;
    pub const PONG: u8 = 10;
}

impl WebSocket {
    /// Opens one; panics if the server does not.
    pub fn open(request: Request) -> Self {
        Self::try_open(request).unwrap_or_else(|head| panic!("{head}"))
    }

    /// Opens one, or gives the head of the answer.
    pub fn try_open(request: Request) -> Result<Self, String> {
        let address = request.address();
        let bytes = request
            .header("Upgrade", "websocket")
            .header("Sec-WebSocket-Version", "13")
            .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
            .bytes();
        let text = String::from_utf8(bytes)
            .expect("a head is text")
            .replace("Connection: close", "Connection: Upgrade");
        let mut stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_mins(1))).expect("a socket has timeouts");
        stream.write_all(text.as_bytes()).expect("it takes the head");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("it answers");
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        if head.starts_with("HTTP/1.1 101") { Ok(Self(stream)) } else { Err(head) }
    }

    pub fn say(&mut self, message: &Value) {
        self.send(opcode::TEXT, message.to_string().as_bytes());
    }

    /// One frame, whatever it is.
    pub fn send(&mut self, opcode: u8, payload: &[u8]) {
        let mut frame = vec![0x80 | opcode];
        match u16::try_from(payload.len()) {
            Ok(length) if length < 126 => frame.push(0x80 | payload.len().to_le_bytes()[0]),
            Ok(length) => {
                frame.push(0xfe);
                frame.extend_from_slice(&length.to_be_bytes());
            }
            Err(_) => {
                frame.push(0xff);
                frame.extend_from_slice(&(payload.len() as u64).to_be_bytes());
            }
        }
        // A mask of zeros leaves everything as it is.
        frame.extend_from_slice(&[0; 4]);
        frame.extend_from_slice(payload);
        // A server that has closed the connection may not take all of it.
        let _ = self.0.write_all(&frame);
    }

    /// These bytes, whether they are a frame or not.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.0.set_write_timeout(Some(Duration::from_secs(5))).expect("a socket has timeouts");
        // A server that takes no more may not take all of it.
        let _ = self.0.write_all(bytes);
    }

    /// The next message; what is no text is passed over.
    pub fn hear(&mut self) -> Value {
        loop {
            let (kind, payload) = self.frame().expect("the server says something");
            if kind == opcode::TEXT {
                return serde_json::from_slice(&payload).expect("JSON");
            }
        }
    }

    /// The next frame: its opcode and what is in it. None when the connection has ended.
    pub fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut head = [0; 2];
        self.0.read_exact(&mut head).ok()?;
        let length = match head[1] {
            126 => {
                let mut length = [0; 2];
                self.0.read_exact(&mut length).ok()?;
                u64::from(u16::from_be_bytes(length))
            }
            127 => {
                let mut length = [0; 8];
                self.0.read_exact(&mut length).ok()?;
                u64::from_be_bytes(length)
            }
            short => short.into(),
        };
        let mut payload = vec![0; usize::try_from(length).expect("it fits")];
        self.0.read_exact(&mut payload).ok()?;
        Some((head[0] & 15, payload))
    }

    /// The number and reason with which the server closes; what comes before is passed over.
    pub fn closing(&mut self) -> Option<(u16, String)> {
        loop {
            let (kind, payload) = self.frame()?;
            if kind == opcode::CLOSE {
                let (number, reason) = payload.split_first_chunk::<2>()?;
                return Some((u16::from_be_bytes(*number), String::from_utf8_lossy(reason).into_owned()));
            }
        }
    }

    /// How long reading may take.
    pub fn set_patience(&self, patience: Duration) {
        self.0.set_read_timeout(Some(patience)).expect("a socket has timeouts");
    }
}
