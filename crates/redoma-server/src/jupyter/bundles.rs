//! Values in several forms (by MIME type), made to fit into one message.
//!
//! A picture is made smaller, text is cut in the middle, anything else that is too large is left out. What had to be changed
//! is told, with the whole of it, so that it can be kept as a file.

use redoma_engine::base64;
use redoma_model::Bundle;
use serde_json::Value;

use super::limits::{self, MOST_CONTENT};
use super::picture;

/// Bytes that a bundle may take; the rest of a message's content is small.
const MOST_BUNDLE: usize = MOST_CONTENT - 100_000;
const MOST_METADATA: usize = 50_000;
/// A form that has to give way is left at least so many bytes, if it can be made smaller at all.
const LEAST: usize = 200_000;

/// A form that does not fit as it is.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLarge {
    pub kind: String,
    pub content: Vec<u8>,
    pub is_shown_smaller: bool,
}

impl TooLarge {
    /// What a file with it is called at its end.
    pub fn extension(&self) -> &'static str {
        match self.kind.as_str() {
            "image/png" => "png",
            "image/jpeg" => "jpg",
            "image/gif" => "gif",
            "image/webp" => "webp",
            "image/svg+xml" => "svg",
            "text/html" => "html",
            "text/markdown" => "md",
            "text/latex" => "tex",
            "application/pdf" => "pdf",
            "text/csv" => "csv",
            kind if kind.ends_with("json") => "json",
            _ => "txt",
        }
    }
}

/// Makes a bundle fit. Takes its time where a picture has to be made smaller.
pub fn fit(data: &mut Bundle, metadata: &mut Bundle) -> Vec<TooLarge> {
    for (kind, value) in data.iter_mut() {
        // Some clients look for the data behind `base64,` up to the end of the line.
        if let Value::String(text) = value
            && is_binary(kind)
            && text.contains(char::is_whitespace)
        {
            text.retain(|letter| !letter.is_whitespace());
        }
    }
    if limits::length(metadata) > MOST_METADATA {
        metadata.clear();
    }
    let mut too_large = Vec::new();
    loop {
        let total = limits::length(data);
        if total <= MOST_BUNDLE {
            return too_large;
        }
        let lengths = data.iter().map(|(kind, value)| (limits::length(value) + kind.len(), kind));
        let Some((length, kind)) = lengths.max().map(|(length, kind)| (length, kind.clone())) else {
            return too_large;
        };
        let room = MOST_BUNDLE.saturating_sub(total - length.min(total)).max(LEAST).min(length / 10 * 9);
        let Some(value) = data.remove(&kind) else { return too_large };
        let smaller = smaller(&kind, &value, room);
        let is_shown_smaller = smaller.is_some();
        if let Some(smaller) = smaller {
            data.insert(kind.clone(), smaller);
        }
        // One that was made smaller twice is kept as it was first.
        if !too_large.iter().any(|one: &TooLarge| one.kind == kind) {
            let content = content(&kind, value);
            too_large.push(TooLarge { kind, content, is_shown_smaller });
        }
    }
}

fn is_binary(kind: &str) -> bool {
    (kind.starts_with("image/") && kind != "image/svg+xml") || kind == "application/pdf"
}

fn smaller(kind: &str, value: &Value, room: usize) -> Option<Value> {
    let text = value.as_str()?;
    match kind {
        "image/png" => {
            let picture = picture::shrunk(&base64::decode(text)?, room / 4 * 3 - 64)?;
            Some(base64::base64(&picture).into())
        }
        "text/plain" => Some(limits::shortened(text, room).into()),
        _ => None,
    }
}

/// The form as a file has it.
fn content(kind: &str, value: Value) -> Vec<u8> {
    match value {
        Value::String(text) if is_binary(kind) => base64::decode(&text).unwrap_or_else(|| text.into_bytes()),
        Value::String(text) => text.into_bytes(),
        other => other.to_string().into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn bundle(entries: &[(&str, Value)]) -> Bundle {
        entries.iter().map(|(kind, value)| ((*kind).to_owned(), value.clone())).collect()
    }

    #[test]
    fn what_fits_stays_as_it_is() {
        let mut data = bundle(&[("text/plain", "1".into()), ("image/png", "aGk=\n".into())]);
        assert_eq!(fit(&mut data, &mut Bundle::new()), []);
        assert_eq!(data, bundle(&[("text/plain", "1".into()), ("image/png", "aGk=".into())]));
    }

    #[test]
    fn what_is_too_large_gives_way_and_is_told() {
        let html = "<p>".repeat(500_000);
        let plain = "\u{0}".repeat(400_000);
        let table = json!({ "data": vec![0.5; 300_000] });
        let mut data = bundle(&[
            ("text/html", html.clone().into()),
            ("text/plain", plain.clone().into()),
            ("application/json", table),
            ("text/latex", "$x$".into()),
        ]);
        let mut metadata = bundle(&[("x", "y".repeat(60_000).into())]);
        let told = fit(&mut data, &mut metadata);
        assert!(limits::length(&data) <= MOST_BUNDLE && metadata.is_empty());
        assert_eq!(data["text/latex"], "$x$");
        assert!(!data.contains_key("text/html"));
        assert!(data["text/plain"].as_str().is_some_and(|text| text.contains("are left out here")));
        let find = |kind: &str| told.iter().find(|one| one.kind == kind).unwrap();
        assert_eq!(find("text/html").content, html.into_bytes());
        assert_eq!((find("text/html").is_shown_smaller, find("text/html").extension()), (false, "html"));
        assert_eq!(
            (&find("text/plain").content, find("text/plain").is_shown_smaller),
            (&plain.into_bytes(), true)
        );
    }

    #[test]
    fn a_picture_that_is_none_is_left_out() {
        let mut data =
            bundle(&[("image/png", "A".repeat(2 << 20).into()), ("image/jpeg", "é".repeat(1 << 20).into())]);
        let told = fit(&mut data, &mut Bundle::new());
        assert!(data.is_empty());
        assert_eq!(told.len(), 2);
    }
}
