//! Whom a request belongs to: W3C Trace Context, as far as a server needs it.
//!
//! `traceparent: 00-<trace, 32>-<span, 16>-<flags, 2>`, all in lower-case hexadecimal. Anybody can send anything there, so it is
//! read strictly: what is not exactly right counts as not sent, and the request begins a trace of its own.

use std::fmt;

use axum::http::HeaderMap;
use rustix::rand::{GetRandomFlags, getrandom};

const HEADER: &str = "traceparent";
const SAMPLED: u8 = 1;

/// Names a trace everywhere. Never all zero.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TraceId([u8; 16]);

/// Names a span within it. Never all zero.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SpanId([u8; 8]);

/// What the caller says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parent {
    pub trace: TraceId,
    pub span: SpanId,
    /// Whether the caller keeps what it notes of this trace.
    pub is_sampled: bool,
}

impl TraceId {
    pub fn random() -> Option<Self> {
        random().map(Self)
    }

    /// Whether this is one of the share (0 to 1) of traces that are kept. Its end is what is random in all traces.
    pub fn is_within(self, share: f64) -> bool {
        let [.., a, b, c, d] = self.0;
        f64::from(u32::from_be_bytes([a, b, c, d])) < share * 2f64.powi(32)
    }
}

impl SpanId {
    pub fn random() -> Option<Self> {
        random().map(Self)
    }
}

impl Parent {
    /// Sent twice, it says nothing.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut sent = headers.get_all(HEADER).iter();
        let only = sent.next().filter(|_| sent.next().is_none())?;
        Self::parse(only.as_bytes())
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let (known, more) = text.split_at_checked(55)?;
        if [known[2], known[35], known[52]] != [b'-'; 3] {
            return None;
        }
        let [version] = bytes(&known[..2])?;
        // Later versions may say more, after another dash.
        let has_its_length = match version {
            0 => more.is_empty(),
            0xff => false,
            _ => more.is_empty() || more[0] == b'-',
        };
        let trace = bytes(&known[3..35]).filter(is_not_zero)?;
        let span = bytes(&known[36..52]).filter(is_not_zero)?;
        let [flags] = bytes(&known[53..])?;
        let is_sampled = flags & SAMPLED != 0;
        has_its_length.then_some(Self { trace: TraceId(trace), span: SpanId(span), is_sampled })
    }
}

fn is_not_zero<const COUNT: usize>(bytes: &[u8; COUNT]) -> bool {
    bytes.iter().any(|byte| *byte != 0)
}

fn bytes<const COUNT: usize>(text: &[u8]) -> Option<[u8; COUNT]> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; COUNT];
    if text.len() != 2 * COUNT {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(bytes)
}

/// None from a kernel that gives none: then there is no trace, which is nothing that a request should fail for.
fn random<const COUNT: usize>() -> Option<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    let count = getrandom(&mut bytes, GetRandomFlags::empty()).ok()?;
    (count == COUNT && is_not_zero(&bytes)).then_some(bytes)
}

fn write(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(&self.0, f)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(&self.0, f)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(&self.0, f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    fn parse(text: &str) -> Option<Parent> {
        Parent::parse(text.as_bytes())
    }

    #[test]
    fn what_is_sent_is_what_is_read() {
        for (flags, is_sampled) in [("01", true), ("00", false), ("03", true), ("ff", true), ("fe", false)] {
            let parent = parse(&format!("00-{TRACE}-{SPAN}-{flags}")).unwrap();
            assert_eq!((parent.trace.to_string(), parent.span.to_string()), (TRACE.into(), SPAN.into()));
            assert_eq!(parent.is_sampled, is_sampled, "{flags}");
        }
        assert!(parse(&format!("01-{TRACE}-{SPAN}-01")).is_some());
        assert!(parse(&format!("cc-{TRACE}-{SPAN}-01-what-the-future-will-bring")).is_some());
    }

    #[test]
    fn what_is_not_exactly_right_is_not_believed() {
        let zeros = "0".repeat(32);
        let hostile = [
            String::new(),
            "00".to_owned(),
            "-".repeat(55),
            "0".repeat(55),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("ff-{TRACE}-{SPAN}-01-more"),
            format!("FF-{TRACE}-{SPAN}-01"),
            format!("0-{TRACE}-{SPAN}-01"),
            format!("000-{TRACE}-{SPAN}-1"),
            format!("0g-{TRACE}-{SPAN}-01"),
            format!("00-{zeros}-{SPAN}-01"),
            format!("00-{TRACE}-{}-01", &zeros[..16]),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-{}-01", SPAN.to_uppercase()),
            format!("00-{TRACE}-{SPAN}-0A"),
            format!("00-{TRACE}-{SPAN}-1"),
            format!("00-{TRACE}-{SPAN}-001"),
            format!("00-{TRACE}-{SPAN}-01-"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("00-{TRACE}-{SPAN}-01 "),
            format!(" 00-{TRACE}-{SPAN}-01"),
            format!("01-{TRACE}-{SPAN}-01more"),
            format!("00-{}-{SPAN}-01", &TRACE[1..]),
            format!("00-{TRACE}0-{SPAN}-01"),
            format!("00-{TRACE}-{}-01", &SPAN[1..]),
            format!("00_{TRACE}_{SPAN}_01"),
            format!("00-{TRACE}-{SPAN}-+1"),
            format!("00-{}-{SPAN}-01", TRACE.replace('4', "é")),
            format!("00-{TRACE}-{SPAN}-01\u{0}"),
            format!("00-{TRACE}-{SPAN}-01,00-{TRACE}-{SPAN}-01"),
            "0".repeat(1 << 16),
        ];
        for text in hostile {
            assert_eq!(parse(&text), None, "{text}");
        }
        // Any single letter changed to what is no digit makes it invalid.
        let sound = format!("00-{TRACE}-{SPAN}-01");
        for index in 0..sound.len() {
            for letter in [b'g', b'-', b'F', b'+', b' ', 0x00, 0x80, 0xff] {
                let mut bytes = sound.clone().into_bytes();
                if std::mem::replace(&mut bytes[index], letter) != letter {
                    assert_eq!(Parent::parse(&bytes), None, "{letter} at {index}");
                }
            }
            assert_eq!(parse(&sound[..index]), None, "cut at {index}");
        }
    }

    #[test]
    fn two_of_them_are_none() {
        let value = format!("00-{TRACE}-{SPAN}-01");
        let mut headers = HeaderMap::new();
        assert_eq!(Parent::of(&headers), None);
        headers.append(HEADER, value.parse().unwrap());
        assert!(Parent::of(&headers).is_some());
        headers.append(HEADER, value.parse().unwrap());
        assert_eq!(Parent::of(&headers), None);
    }

    #[test]
    fn a_share_of_traces_is_about_that_share() {
        let ids: Vec<_> = (0..4000).map(|_| TraceId::random().unwrap()).collect();
        let within = |share| ids.iter().filter(|id| id.is_within(share)).count();
        assert_eq!((within(0.0), within(1.0)), (0, 4000));
        // Ten times what chance makes of it.
        assert!((700..1300).contains(&within(0.25)), "{}", within(0.25));
        assert!(TraceId([0xff; 16]).is_within(1.0));
    }
}
