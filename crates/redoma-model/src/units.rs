//! Sizes, durations and core counts as people write them: `256MiB`, `30s`, `1.5`.
//!
//! Each type parses what its `Display` prints, so that a value shown in an error or in `config show` can be pasted
//! back into a flag or a profile.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Why a size, duration or number could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    #[error("`{0}` is not a size; write a number and a unit, such as 512KiB, 256MiB or 1GiB")]
    Size(String),
    #[error("`{0}` is not a duration; write a number and a unit, such as 500ms, 30s or 2m")]
    Span(String),
    #[error("`{0}` is not a number of cores; write a number such as 1, 0.5 or 2")]
    Cores(String),
}

/// Splits `12.5MiB` into its number and its unit.
fn split_number(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse::<f64>().ok()?, unit.trim()))
}

/// A whole, finite, non-negative number below 2^63, or nothing.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range is checked just before"
)]
fn whole(value: f64) -> Option<u64> {
    (value.is_finite() && (0.0..9.2e18).contains(&value)).then_some(value.round() as u64)
}

/// A number of bytes. `1k` = `1KiB` = 1024: nobody who limits memory means 1000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

impl ByteSize {
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }
}

impl FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let bad = || UnitError::Size(text.to_owned());
        let (number, unit) = split_number(text).ok_or_else(bad)?;
        let shift = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(bad()),
        };
        #[expect(clippy::cast_precision_loss, reason = "1 << 40 is exact in an f64")]
        whole(number * (1u64 << shift) as f64).map(Self).ok_or_else(bad)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if self.0 >= 1 << shift && self.0.is_multiple_of(1 << shift) {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        write!(f, "{}B", self.0)
    }
}

/// A duration with millisecond precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub Duration);

impl Span {
    pub const fn secs(n: u64) -> Self {
        Self(Duration::from_secs(n))
    }
    pub const fn millis(n: u64) -> Self {
        Self(Duration::from_millis(n))
    }
}

impl FromStr for Span {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let bad = || UnitError::Span(text.to_owned());
        let (number, unit) = split_number(text).ok_or_else(bad)?;
        let millis = match unit.to_ascii_lowercase().as_str() {
            "ms" => 1.0,
            "" | "s" | "sec" => 1_000.0,
            "m" | "min" => 60_000.0,
            "h" => 3_600_000.0,
            "d" => 86_400_000.0,
            _ => return Err(bad()),
        };
        whole(number * millis).map(Self::millis).ok_or_else(bad)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        for (unit_millis, unit) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")] {
            if millis >= unit_millis && millis.is_multiple_of(unit_millis) {
                return write!(f, "{}{unit}", millis / unit_millis);
            }
        }
        write!(f, "{millis}ms")
    }
}

/// A share of the machine's cores, kept in thousandths so that it can be compared and hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cores(pub u32);

impl Cores {
    pub const fn whole(n: u32) -> Self {
        Self(n * 1000)
    }
}

impl FromStr for Cores {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let bad = || UnitError::Cores(text.to_owned());
        let number: f64 = text.trim().parse().map_err(|_| bad())?;
        whole(number * 1000.0).and_then(|n| u32::try_from(n).ok()).map(Self).ok_or_else(bad)
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f64::from(self.0) / 1000.0)
    }
}

/// Serde for the three types above: written as text, read from text or from a bare number.
macro_rules! serde_as_text {
    ($type:ty, $expecting:literal) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl de::Visitor<'_> for Visitor {
                    type Value = $type;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                    fn visit_i64<E: de::Error>(self, number: i64) -> Result<$type, E> {
                        number.to_string().parse().map_err(E::custom)
                    }
                    fn visit_u64<E: de::Error>(self, number: u64) -> Result<$type, E> {
                        number.to_string().parse().map_err(E::custom)
                    }
                    fn visit_f64<E: de::Error>(self, number: f64) -> Result<$type, E> {
                        number.to_string().parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_any(Visitor)
            }
        }
    };
}

serde_as_text!(ByteSize, "a size such as \"256MiB\"");
serde_as_text!(Span, "a duration such as \"30s\"");
serde_as_text!(Cores, "a number of cores such as 1.5");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("1k", 1024),
            ("1KiB", 1024),
            ("256MiB", 256 << 20),
            ("1.5g", 3 << 29),
            (" 2 GiB ", 2 << 30),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for text in ["", "MiB", "-1", "1x", "1e9", "nan", "99999999999999999999", "1..2"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text:?} was taken for a size");
        }
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, millis) in
            [("30", 30_000), ("500ms", 500), ("1.5s", 1500), ("2m", 120_000), ("1h", 3_600_000)]
        {
            assert_eq!(text.parse(), Ok(Span::millis(millis)), "{text}");
        }
        for text in ["", "s", "-5s", "5 years", "1s2s"] {
            assert!(text.parse::<Span>().is_err(), "{text:?} was taken for a duration");
        }
    }

    #[test]
    fn what_is_printed_reads_back_the_same() {
        for size in [0, 1, 1023, 1024, 1025, 256 << 20, 3 << 29, 1 << 40] {
            assert_eq!(ByteSize(size).to_string().parse(), Ok(ByteSize(size)));
        }
        for millis in [0, 1, 999, 1000, 1001, 60_000, 90_000, 86_400_000] {
            assert_eq!(Span::millis(millis).to_string().parse(), Ok(Span::millis(millis)));
        }
        for thousandths in [1, 500, 1000, 1500, 64_000] {
            assert_eq!(Cores(thousandths).to_string().parse(), Ok(Cores(thousandths)));
        }
    }
}
