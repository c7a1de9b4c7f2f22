//! How large a message may get. Open WebUI's client closes the connection at the first one over 1 MiB and forgets all that
//! came before it, so none may be: long text goes out in pieces, and what cannot be cut in pieces is made smaller.
//!
//! What counts is the message as it is sent, as JSON: a control character takes six bytes there.

use std::borrow::Cow;
use std::io;

use serde::Serialize;

/// The most bytes of a message's content as JSON. With the parent's header ([`super::messages::MOST_HEADER`]), metadata and
/// a header of its own, a message stays below 1,000,000 bytes.
pub const MOST_CONTENT: usize = 940_000;
/// The most bytes of a message's metadata.
pub const MOST_METADATA: usize = 32 << 10;

/// Bytes of a letter in a JSON string, as `serde_json` writes it.
fn letter_length(letter: char) -> usize {
    match letter {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        letter if letter < ' ' => 6,
        letter => letter.len_utf8(),
    }
}

/// Bytes of a text in a JSON string, without the quotes.
pub fn text_length(text: &str) -> usize {
    text.chars().map(letter_length).sum()
}

/// Bytes of a value as JSON.
pub fn length(value: &impl Serialize) -> usize {
    struct Count(usize);

    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut count = Count(0);
    // What can't be written is not sent either.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// Where the first `most` bytes of a text as JSON end: never within a letter.
fn end_of_piece(text: &str, most: usize) -> usize {
    let mut length = 0;
    text.char_indices()
        .find(|(_, letter)| {
            length += letter_length(*letter);
            length > most
        })
        .map_or(text.len(), |(at, _)| at)
}

/// The text in pieces that have at most `most` bytes each as JSON.
pub fn pieces(mut text: &str, most: usize) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let (first, last) = text.split_at(end_of_piece(text, most.max(6)));
        text = last;
        (!first.is_empty()).then_some(first)
    })
}

/// The text with at most `most` bytes as JSON: of a longer one, beginning and end.
pub fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    if text_length(text) <= most {
        return Cow::Borrowed(text);
    }
    let half = most.saturating_sub(100) / 2;
    let head = &text[..end_of_piece(text, half)];
    let mut length = 0;
    let tail = text.char_indices().rev().find(|(_, letter)| {
        length += letter_length(*letter);
        length > half
    });
    let tail = tail.map_or(text, |(at, letter)| &text[at + letter.len_utf8()..]);
    let left_out = text.len().saturating_sub(head.len() + tail.len());
    Cow::Owned(format!("{head}\n… [{left_out} bytes are left out here] …\n{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hostile() -> String {
        "\u{0}\u{1f}\u{7f}\"\\\n\r\té你🦀\u{2028}x".repeat(5000)
    }

    #[test]
    fn lengths_are_those_of_the_json() {
        for text in ["", "abc", "\u{0}\u{8}\u{c}\u{1f}\u{7f}", "\"\\/\n", "é你🦀\u{2028}", &hostile()] {
            assert_eq!(text_length(text) + 2, serde_json::to_string(text).unwrap().len());
            assert_eq!(length(&text), text_length(text) + 2);
        }
    }

    #[test]
    fn pieces_are_small_enough_and_nothing_is_lost() {
        let text = hostile();
        for most in [0, 6, 7, 100, 4096, 1 << 30] {
            let parts: Vec<_> = pieces(&text, most).collect();
            assert!(parts.iter().all(|part| text_length(part) <= most.max(6) && !part.is_empty()));
            assert_eq!(parts.concat(), text);
        }
        assert_eq!(pieces("", 10).count(), 0);
    }

    #[test]
    fn a_shortened_text_has_its_beginning_and_end() {
        let text = format!("begin {} end", hostile());
        for most in [200, 1000, 50_000] {
            let short = shortened(&text, most);
            assert!(text_length(&short) <= most, "{most}");
            assert!(short.starts_with("begin") && short.ends_with("end"), "{most}");
        }
        assert_eq!(shortened("abc", 3), "abc");
        assert!(text_length(&shortened(&"🦀".repeat(100), 0)) < 100);
    }
}
