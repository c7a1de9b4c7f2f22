//! Jupyter's messages: of those that come in, as much as is read of them; and those that go out.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::{now, random};

/// The version of the protocol between kernels and their clients.
pub const PROTOCOL: &str = "5.3";
/// The most bytes of a request's header. Every answer carries it, so it counts against the size of each.
pub const MOST_HEADER: usize = 16 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    Shell,
    Control,
    Iopub,
    Stdin,
}

impl Channel {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shell => "shell",
            Self::Control => "control",
            Self::Iopub => "iopub",
            Self::Stdin => "stdin",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        [Self::Shell, Self::Control, Self::Iopub, Self::Stdin]
            .into_iter()
            .find(|channel| channel.name() == name)
    }
}

/// Why something that came in is no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("it is not JSON: {0}")]
    Json(String),
    #[error("there is no channel `{0}`")]
    Channel(String),
    #[error("its header has more than {MOST_HEADER} bytes")]
    Header,
    #[error("its parts are not where its offsets say")]
    Offsets,
}

impl From<serde_json::Error> for Malformed {
    fn from(error: serde_json::Error) -> Self {
        Self::Json(error.to_string())
    }
}

/// A message from a client.
#[derive(Debug)]
pub struct Request {
    pub channel: Channel,
    pub kind: String,
    /// As it came: the answers carry it, and clients know them by it.
    pub header: Parent,
    content: Box<RawValue>,
}

#[derive(Debug, Deserialize)]
struct Head {
    msg_type: String,
}

impl Request {
    pub fn new(channel: &str, header: &RawValue, content: Option<&RawValue>) -> Result<Self, Malformed> {
        if header.get().len() > MOST_HEADER {
            return Err(Malformed::Header);
        }
        let Head { msg_type: kind } = serde_json::from_str(header.get())?;
        let channel = Channel::named(channel)
            .ok_or_else(|| Malformed::Channel(channel.chars().take(40).collect::<String>()))?;
        let content = content.map_or_else(|| RawValue::NULL.to_owned(), ToOwned::to_owned);
        Ok(Self { channel, kind, header: Parent(Arc::from(header.to_owned())), content })
    }

    /// What it says, as far as `T` is interested.
    pub fn content<'a, T: Deserialize<'a> + Default>(&'a self) -> Result<T, Malformed> {
        let content: Option<T> = serde_json::from_str(self.content.get())?;
        Ok(content.unwrap_or_default())
    }

    /// About how much memory it takes.
    pub fn size(&self) -> usize {
        self.header.0.get().len() + self.content.get().len()
    }
}

/// The header of the request that a message answers.
#[derive(Debug, Clone)]
pub struct Parent(Arc<RawValue>);

impl Parent {
    /// Of what no request has caused.
    pub fn none() -> Self {
        Self(Arc::from(empty()))
    }
}

fn empty() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// A message to clients.
#[derive(Debug)]
pub struct Outgoing {
    pub channel: Channel,
    kind: Cow<'static, str>,
    id: String,
    header: Box<RawValue>,
    parent: Parent,
    metadata: Box<RawValue>,
    content: Box<RawValue>,
}

#[derive(Debug, Serialize)]
struct Header<'a> {
    msg_id: &'a str,
    msg_type: &'a str,
    username: &'a str,
    session: &'a str,
    date: String,
    version: &'a str,
}

#[derive(Debug, Serialize)]
struct TextFrame<'a> {
    header: &'a RawValue,
    /// Also here: Open WebUI looks for it nowhere else.
    msg_id: &'a str,
    msg_type: &'a str,
    parent_header: &'a RawValue,
    metadata: &'a RawValue,
    content: &'a RawValue,
    buffers: [(); 0],
    channel: &'static str,
}

impl Outgoing {
    #[must_use]
    pub fn with_metadata(mut self, metadata: &impl Serialize) -> Self {
        self.metadata = to_raw_value(metadata).unwrap_or_else(|_| empty());
        self
    }

    /// As one JSON object.
    pub fn text(&self) -> String {
        let frame = TextFrame {
            header: &self.header,
            msg_id: &self.id,
            msg_type: &self.kind,
            parent_header: &self.parent.0,
            metadata: &self.metadata,
            content: &self.content,
            buffers: [],
            channel: self.channel.name(),
        };
        serde_json::to_string(&frame).unwrap_or_default()
    }

    /// Header, parent's header, metadata and content.
    pub fn parts(&self) -> [&str; 4] {
        [self.header.get(), self.parent.0.get(), self.metadata.get(), self.content.get()]
    }
}

/// Whoever sends messages: a kernel has a session of its own in Jupyter's sense.
#[derive(Debug)]
pub struct Sender {
    session: String,
    count: AtomicU64,
}

impl Sender {
    pub fn new() -> Result<Self, std::io::Error> {
        Ok(Self { session: random::uuid()?, count: AtomicU64::new(0) })
    }

    pub fn message(
        &self,
        channel: Channel,
        kind: impl Into<Cow<'static, str>>,
        parent: &Parent,
        content: &impl Serialize,
    ) -> Outgoing {
        let kind = kind.into();
        let id = format!("{}_{}", self.session, self.count.fetch_add(1, Ordering::Relaxed));
        let header = Header {
            msg_id: &id,
            msg_type: &kind,
            username: "redoma",
            session: &self.session,
            date: now(),
            version: PROTOCOL,
        };
        let header = to_raw_value(&header).unwrap_or_else(|_| empty());
        let content = to_raw_value(content).unwrap_or_else(|_| empty());
        Outgoing { channel, kind, id, header, parent: parent.clone(), metadata: empty(), content }
    }
}
