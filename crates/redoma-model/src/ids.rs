//! Ids that can't be guessed: 21 letters of 6 bits each, the shape that LibreChat's client insists on.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// What is given is not an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an id: ids are 21 letters, digits, `-` or `_`")]
pub struct NotAnId;

const LENGTH: usize = 21;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// None begins with a dash: `redoma keys revoke -…` would be an option.
fn from_random(bytes: [u8; LENGTH]) -> String {
    let letters = bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte & 63)]));
    letters
        .enumerate()
        .map(|(place, letter)| if place == 0 && letter == '-' { '_' } else { letter })
        .collect()
}

fn check(text: &str) -> Result<(), NotAnId> {
    let is_id = text.len() == LENGTH && text.bytes().all(|byte| ALPHABET.contains(&byte));
    if is_id { Ok(()) } else { Err(NotAnId) }
}

macro_rules! id {
    ($(#[$about:meta])* $name:ident) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// How many random bytes an id is made of.
            pub const RANDOM: usize = LENGTH;

            pub fn from_random(bytes: [u8; LENGTH]) -> Self {
                Self(from_random(bytes))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NotAnId;

            fn from_str(text: &str) -> Result<Self, NotAnId> {
                check(text).map(|()| Self(text.to_owned()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }
    };
}

id!(
    /// A conversation's: its files, and what runs on them.
    SessionId
);
id!(
    /// One version of one file.
    FileId
);
id!(
    /// One run of a program.
    ExecutionId
);
id!(
    /// A key's name, which is no secret.
    KeyId
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_21_letters_and_nothing_else() {
        let id = SessionId::from_random([255; 21]);
        assert_eq!(id.as_str(), "_____________________");
        assert_eq!(id.as_str().parse(), Ok(id));
        let dash = ALPHABET.iter().position(|letter| *letter == b'-').unwrap();
        let id = SessionId::from_random([u8::try_from(dash).unwrap(); 21]);
        assert_eq!(id.as_str(), "_--------------------");
        for bad in [
            "",
            "a",
            "../../../../etc/passwd",
            "aaaaaaaaaaaaaaaaaaaa",
            "aaaaaaaaaaaaaaaaaaaaaa",
            "aaaaaaaaaaaaaaaaaaaa/",
        ] {
            assert_eq!(bad.parse::<SessionId>(), Err(NotAnId), "{bad}");
        }
    }
}
