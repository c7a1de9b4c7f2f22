//! As much of a WebSocket client as tests need.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use crate::http::Request;

#[derive(Debug)]
pub struct WebSocket(TcpStream);

impl WebSocket {
    /// Opens one; panics if the server does not.
    pub fn open(request: Request) -> Self {
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
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        Self(stream)
    }

    pub fn say(&mut self, message: &Value) {
        let text = message.to_string().into_bytes();
        let mut frame = vec![0x81];
        match u16::try_from(text.len()) {
            Ok(length) if length < 126 => frame.push(0x80 | text.len().to_le_bytes()[0]),
            Ok(length) => {
                frame.push(0xfe);
                frame.extend_from_slice(&length.to_be_bytes());
            }
            Err(_) => {
                frame.push(0xff);
                frame.extend_from_slice(&(text.len() as u64).to_be_bytes());
            }
        }
        // A mask of zeros leaves everything as it is.
        frame.extend_from_slice(&[0; 4]);
        frame.extend_from_slice(&text);
        self.0.write_all(&frame).expect("the server reads");
    }

    /// The next message; what is no text is passed over.
    pub fn hear(&mut self) -> Value {
        loop {
            let mut head = [0; 2];
            self.0.read_exact(&mut head).expect("the server says something");
            let length = match head[1] {
                126 => {
                    let mut length = [0; 2];
                    self.0.read_exact(&mut length).expect("a length");
                    u64::from(u16::from_be_bytes(length))
                }
                127 => {
                    let mut length = [0; 8];
                    self.0.read_exact(&mut length).expect("a length");
                    u64::from_be_bytes(length)
                }
                short => short.into(),
            };
            let mut payload = vec![0; usize::try_from(length).expect("it fits")];
            self.0.read_exact(&mut payload).expect("the whole message");
            if head[0] & 15 == 1 {
                return serde_json::from_slice(&payload).expect("JSON");
            }
        }
    }
}
