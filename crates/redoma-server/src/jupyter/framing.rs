//! The two ways in which messages go over a WebSocket.
//!
//! | framing | subprotocol | a message is |
//! |---|---|---|
//! | default | none | a text frame with one JSON object; one with buffers comes as a binary frame: how many parts (u32, big endian), their offsets, the JSON, the buffers |
//! | v1 | `v1.kernel.websocket.jupyter.org` | a binary frame: how many offsets (u64, little endian), the offsets, the channel's name, header, parent's header, metadata, content, buffers |

use axum::body::Bytes;
use axum::extract::ws::{Message, Utf8Bytes};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::messages::{Malformed, Outgoing, Request};

/// The name of the second framing.
pub const V1: &str = "v1.kernel.websocket.jupyter.org";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    Default,
    V1,
}

/// A message in both framings, each made when the first client needs it.
#[derive(Debug)]
pub struct Encoded<'a> {
    message: &'a Outgoing,
    text: Option<Utf8Bytes>,
    binary: Option<Bytes>,
}

impl<'a> Encoded<'a> {
    pub fn new(message: &'a Outgoing) -> Self {
        Self { message, text: None, binary: None }
    }

    pub fn frame(&mut self, framing: Framing) -> Message {
        match framing {
            Framing::Default => {
                let text = self.text.get_or_insert_with(|| self.message.text().into());
                Message::Text(text.clone())
            }
            Framing::V1 => {
                let binary = self.binary.get_or_insert_with(|| pack(self.message).into());
                Message::Binary(binary.clone())
            }
        }
    }
}

#[derive(Debug, Deserialize)]
struct Frame<'a> {
    #[serde(borrow)]
    header: &'a RawValue,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    channel: Option<String>,
}

/// A text frame, which is in the default framing whatever else the client speaks.
pub fn parse_text(text: &str) -> Result<Request, Malformed> {
    let frame: Frame<'_> = serde_json::from_str(text)?;
    Request::new(frame.channel.as_deref().unwrap_or("shell"), frame.header, frame.content)
}

impl Framing {
    pub fn parse_binary(self, bytes: &[u8]) -> Result<Request, Malformed> {
        match self {
            Self::Default => {
                let json = first_part(bytes).ok_or(Malformed::Offsets)?;
                parse_text(std::str::from_utf8(json).map_err(|_| Malformed::Offsets)?)
            }
            Self::V1 => {
                let [channel, header, content] = unpack(bytes).ok_or(Malformed::Offsets)?;
                let channel = std::str::from_utf8(channel).map_err(|_| Malformed::Offsets)?;
                Request::new(channel, serde_json::from_slice(header)?, Some(serde_json::from_slice(content)?))
            }
        }
    }
}

fn pack(message: &Outgoing) -> Vec<u8> {
    let channel = message.channel.name();
    let parts = message.parts();
    let count = parts.len() + 2;
    let mut at = 8 * (count + 1);
    let mut bytes =
        Vec::with_capacity(at + channel.len() + parts.iter().map(|part| part.len()).sum::<usize>());
    bytes.extend_from_slice(&(count as u64).to_le_bytes());
    bytes.extend_from_slice(&(at as u64).to_le_bytes());
    for part in std::iter::once(channel).chain(parts) {
        at += part.len();
        bytes.extend_from_slice(&(at as u64).to_le_bytes());
    }
    for part in std::iter::once(channel).chain(parts) {
        bytes.extend_from_slice(part.as_bytes());
    }
    bytes
}

/// Channel, header and content of a message in the second framing.
fn unpack(bytes: &[u8]) -> Option<[&[u8]; 3]> {
    let number = |place: usize| {
        let eight = bytes.get(place * 8..place * 8 + 8)?.try_into().ok()?;
        usize::try_from(u64::from_le_bytes(eight)).ok()
    };
    // Channel and four parts need six; what comes behind are buffers, which nothing here reads.
    if number(0)? < 6 {
        return None;
    }
    let part = |place: usize| bytes.get(number(place + 1)?..number(place + 2)?);
    Some([part(0)?, part(1)?, part(4)?])
}

/// The JSON of a message with buffers in the default framing.
fn first_part(bytes: &[u8]) -> Option<&[u8]> {
    let number = |place: usize| {
        let four = bytes.get(place * 4..place * 4 + 4)?.try_into().ok()?;
        usize::try_from(u32::from_be_bytes(four)).ok()
    };
    match number(0)? {
        0 => None,
        1 => bytes.get(number(1)?..),
        _ => bytes.get(number(1)?..number(2)?),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::messages::{Channel, Parent, Sender};
    use super::*;

    fn outgoing() -> Outgoing {
        let content = json!({ "name": "stdout", "text": "é🦀\n" });
        Sender::new().unwrap().message(Channel::Iopub, "stream", &Parent::none(), &content)
    }

    /// A message as a client packs it.
    fn packed(parts: &[&[u8]]) -> Vec<u8> {
        let mut at = 8 * (parts.len() + 2);
        let mut bytes = ((parts.len() + 1) as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(&(at as u64).to_le_bytes());
        for part in parts {
            at += part.len();
            bytes.extend_from_slice(&(at as u64).to_le_bytes());
        }
        for part in parts {
            bytes.extend_from_slice(part);
        }
        bytes
    }

    #[test]
    fn a_text_frame_has_what_clients_look_for() {
        let message = outgoing();
        let frame: Value = serde_json::from_str(&message.text()).unwrap();
        assert_eq!(frame["msg_type"], "stream");
        assert_eq!(frame["header"]["msg_type"], "stream");
        assert_eq!(frame["msg_id"], frame["header"]["msg_id"]);
        assert_eq!(frame["channel"], "iopub");
        assert_eq!(frame["buffers"], json!([]));
        assert_eq!((&frame["parent_header"], &frame["metadata"]), (&json!({}), &json!({})));
        assert_eq!(frame["content"]["text"], "é🦀\n");
    }

    #[test]
    fn the_second_framing_has_its_parts_where_the_offsets_say() {
        let bytes = pack(&outgoing());
        let number = |place: usize| {
            usize::try_from(u64::from_le_bytes(bytes[place * 8..place * 8 + 8].try_into().unwrap())).unwrap()
        };
        assert_eq!((number(0), number(1), number(6)), (6, 56, bytes.len()));
        let part = |place: usize| &bytes[number(place + 1)..number(place + 2)];
        assert_eq!(part(0), b"iopub");
        let content: Value = serde_json::from_slice(part(4)).unwrap();
        assert_eq!(content["text"], "é🦀\n");
    }

    #[test]
    fn both_framings_are_read() {
        let text = r#"{"header": {"msg_type": "execute_request", "msg_id": "1"}, "content": {"code": "1"}}"#;
        let request = parse_text(text).unwrap();
        assert_eq!((request.channel, request.kind.as_str()), (Channel::Shell, "execute_request"));

        let mut with_buffers = 2u32.to_be_bytes().to_vec();
        with_buffers.extend_from_slice(&12u32.to_be_bytes());
        with_buffers.extend_from_slice(&u32::try_from(12 + text.len()).unwrap().to_be_bytes());
        with_buffers.extend_from_slice(text.as_bytes());
        with_buffers.extend_from_slice(b"buffer");
        assert_eq!(Framing::Default.parse_binary(&with_buffers).unwrap().kind, "execute_request");

        let v1 =
            packed(&[b"control", br#"{"msg_type": "interrupt_request"}"#, b"{}", b"{}", b"{}", b"buffer"]);
        let request = Framing::V1.parse_binary(&v1).unwrap();
        assert_eq!((request.channel, request.kind.as_str()), (Channel::Control, "interrupt_request"));
    }

    #[test]
    fn what_is_cut_or_wrong_is_no_message() {
        let whole = packed(&[b"shell", br#"{"msg_type": "a"}"#, b"{}", b"{}", br#"{"code": ""}"#]);
        assert!(Framing::V1.parse_binary(&whole).is_ok());
        for end in 0..whole.len() {
            assert!(Framing::V1.parse_binary(&whole[..end]).is_err(), "{end}");
            let _ = Framing::Default.parse_binary(&whole[..end]);
        }
        for place in 0..7 {
            for value in [0, 1, 55, u64::MAX / 2, u64::MAX] {
                let mut broken = whole.clone();
                broken[place * 8..place * 8 + 8].copy_from_slice(&value.to_le_bytes());
                let _ = Framing::V1.parse_binary(&broken);
            }
        }
        for text in ["", "x", "[]", "{}", "null", r#"{"header": 1}"#, r#"{"header": {"msg_type": 1}}"#] {
            assert!(parse_text(text).is_err(), "{text}");
        }
        let channel = r#"{"header": {"msg_type": "a"}, "channel": "elsewhere"}"#;
        assert_eq!(parse_text(channel).unwrap_err(), Malformed::Channel("elsewhere".into()));
        let long = format!(r#"{{"header": {{"msg_type": "a", "x": "{}"}}}}"#, "y".repeat(20_000));
        assert_eq!(parse_text(&long).unwrap_err(), Malformed::Header);
    }
}
