//! Names that callers choose and that are stored and shown to others: of sessions, users, clients, agents; labels of keys.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, de};

/// The longest name, in bytes.
pub const MAX_NAME_BYTES: usize = 256;

/// A name without surprises: short, one line, nothing that a terminal obeys. Spaces around it are not part of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Name(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    #[error("a name may not be empty")]
    Empty,
    #[error("a name may have at most {MAX_NAME_BYTES} bytes")]
    TooLong,
    #[error("a name may have no control characters, such as a line end or an escape character")]
    Control,
}

impl Name {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn into_string(self) -> String {
        self.0
    }
}

impl FromStr for Name {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return Err(BadName::Empty);
        }
        if trimmed.len() > MAX_NAME_BYTES {
            return Err(BadName::TooLong);
        }
        // Also in what was trimmed: `ana\n` is not a name.
        let breaks_line = |letter: char| matches!(letter, '\u{2028}' | '\u{2029}');
        if text.chars().any(|letter| letter.is_control() || breaks_line(letter)) {
            return Err(BadName::Control);
        }
        Ok(Self(trimmed.to_owned()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Text that others wrote, for a record: on one line, without control characters, at most `max_bytes` long.
pub fn one_line(text: &str, max_bytes: usize) -> String {
    let mut line: String = text
        .chars()
        .take(max_bytes)
        .map(|letter| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter })
        .collect();
    line.truncate(line.floor_char_boundary(max_bytes));
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_on_one_line() {
        for good in ["ana", "Données 你好", "👩\u{200d}💻 notes", "a b", &"x".repeat(MAX_NAME_BYTES)] {
            assert_eq!(good.parse::<Name>().unwrap().as_str(), good);
        }
        assert_eq!("  ana ".parse::<Name>().unwrap().as_str(), "ana");
        for (bad, why) in [
            ("", BadName::Empty),
            (" ", BadName::Empty),
            ("a\nb", BadName::Control),
            ("ana\n", BadName::Control),
            ("\u{1b}[2J", BadName::Control),
            ("a\u{9b}31m", BadName::Control),
            ("a\0", BadName::Control),
            ("a\u{2028}b", BadName::Control),
            (&"x".repeat(MAX_NAME_BYTES + 1), BadName::TooLong),
            (&"x".repeat(1 << 20), BadName::TooLong),
        ] {
            assert_eq!(bad.parse::<Name>(), Err(why), "{bad:?}");
        }
    }

    #[test]
    fn a_record_gets_one_short_line() {
        assert_eq!(one_line("a\nb\u{1b}c", 100), "a\u{fffd}b\u{fffd}c");
        assert_eq!(one_line("äää", 3), "ä");
        assert_eq!(one_line(&"x".repeat(1 << 20), 200).len(), 200);
    }
}
