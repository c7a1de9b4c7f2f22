//! Names of files in a workspace: relative paths, such as `data/année 1.csv`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, de};

/// A relative path without surprises. What is one can be put below any folder without leaving it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct FileName(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadFileName {
    #[error("a file needs a name")]
    Empty,
    #[error("a file's name must be a relative path without `.` and `..`")]
    NotBeneath,
    #[error("a file's name may have no control characters")]
    Control,
    #[error("a file's name may have at most 1024 bytes, and 240 in each part")]
    TooLong,
    #[error("a file may lie at most 32 folders deep")]
    TooDeep,
}

impl FileName {
    /// The part after the last slash.
    pub fn base(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    /// The letters after the last dot, in lower case, where they look like an extension.
    pub fn extension(&self) -> Option<String> {
        let (stem, extension) = self.base().rsplit_once('.')?;
        let is_plain = !stem.is_empty()
            && (1..=10).contains(&extension.len())
            && extension.bytes().all(|byte| byte.is_ascii_alphanumeric());
        is_plain.then(|| extension.to_ascii_lowercase())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for FileName {
    type Err = BadFileName;

    fn from_str(text: &str) -> Result<Self, BadFileName> {
        if text.is_empty() {
            return Err(BadFileName::Empty);
        }
        if text.len() > 1024 || text.split('/').any(|part| part.len() > 240) {
            return Err(BadFileName::TooLong);
        }
        if text.chars().any(char::is_control) {
            return Err(BadFileName::Control);
        }
        if text.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(BadFileName::NotBeneath);
        }
        if text.split('/').count() > 32 {
            return Err(BadFileName::TooDeep);
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for FileName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_below_its_folder() {
        for good in ["a.csv", "skills/pptx/a.py", "données/Ärger 你好.txt", "..a", "a..", "-rf", "a\\b"] {
            assert_eq!(good.parse::<FileName>().unwrap().as_str(), good);
        }
        for bad in ["", "/etc/passwd", "../a", "a/../b", "a//b", "a/", "./a", "a\0b", "a\nb", "..", "\u{7f}"]
        {
            assert!(bad.parse::<FileName>().is_err(), "{bad:?}");
        }
        assert!("a".repeat(241).parse::<FileName>().is_err());
        assert!("a/".repeat(40).parse::<FileName>().is_err());
    }

    #[test]
    fn an_extension_is_short_and_plain() {
        let of = |name: &str| name.parse::<FileName>().unwrap().extension();
        assert_eq!(of("a/b.tar.GZ"), Some("gz".to_owned()));
        assert_eq!(of(".bashrc"), None);
        assert_eq!(of("a.b/c"), None);
        assert_eq!(of("a.ü"), None);
    }
}
