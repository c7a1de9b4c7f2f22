//! How much somebody may ask for: executions and uploads in a stretch of time, programs at once, processor time and bytes in
//! a day. The same words for a user, for a key and for an address; the tightest of the three counts.
//!
//! What is not named is not limited, but for new sessions of a user. Each type reads what it prints, as in `units.rs`.

use std::fmt;
use std::num::{NonZeroU32, NonZeroUsize};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::units::{ByteSize, Span};

/// Why a rate could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    #[error("`{0}` is not a rate; write a number and a stretch of time, such as 5/s, 60/m, 500/h or 1000/d")]
    Form(String),
    #[error("`{0}` lets nothing through; the least is 1/d")]
    Nothing(String),
}

/// A stretch of time that a rate counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Period {
    Second,
    Minute,
    Hour,
    Day,
}

impl Period {
    pub const fn duration(self) -> Duration {
        Duration::from_secs(match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3600,
            Self::Day => 86_400,
        })
    }

    const fn letter(self) -> &'static str {
        match self {
            Self::Second => "s",
            Self::Minute => "m",
            Self::Hour => "h",
            Self::Day => "d",
        }
    }
}

/// So many in such a time: `60/m`. All of them may come at once; then they come back evenly, here one each second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    pub count: NonZeroU32,
    pub per: Period,
}

impl Rate {
    /// The time in which one comes back.
    pub fn interval(self) -> Duration {
        self.per.duration() / self.count.get()
    }
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let bad = || RateError::Form(text.to_owned());
        let (count, per) = text.split_once('/').ok_or_else(bad)?;
        let per = match per.trim().to_ascii_lowercase().as_str() {
            "s" | "sec" | "second" => Period::Second,
            "m" | "min" | "minute" => Period::Minute,
            "h" | "hour" => Period::Hour,
            "d" | "day" => Period::Day,
            _ => return Err(bad()),
        };
        let count: u32 = count.trim().parse().map_err(|_| bad())?;
        let count = NonZeroU32::new(count).ok_or_else(|| RateError::Nothing(text.to_owned()))?;
        Ok(Self { count, per })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, self.per.letter())
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What one of them may use. What is absent is not limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Allowance {
    #[serde(serialize_with = "or_unlimited")]
    pub executions: Option<Rate>,
    #[serde(serialize_with = "or_unlimited")]
    pub uploads: Option<Rate>,
    /// Sessions that are opened or branched off; not those that runs begin.
    #[serde(serialize_with = "or_unlimited")]
    pub sessions: Option<Rate>,
    /// Programs at the same time, those that wait for their turn included.
    #[serde(serialize_with = "or_unlimited")]
    pub concurrency: Option<NonZeroUsize>,
    /// Processor time of all programs of a day (UTC).
    #[serde(serialize_with = "or_unlimited")]
    pub cpu_per_day: Option<Span>,
    /// Bytes that are uploaded, and bytes of files that programs leave, in a day (UTC).
    #[serde(serialize_with = "or_unlimited")]
    pub bytes_per_day: Option<ByteSize>,
}

/// What everybody may use who comes with a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Rates {
    /// Each user of a client, and whoever has a key of their own.
    pub user: Allowance,
    /// Each key, whoever it acts for.
    pub key: Allowance,
    /// Each address; of version 6, each network of 64 bits.
    pub address: Allowance,
}

/// New sessions of a user, where nothing else is said. A session takes a row in the database and a record in the audit, and no
/// program has to run for it.
const DEFAULT_SESSIONS: Rate = Rate { count: NonZeroU32::new(600).unwrap(), per: Period::Minute };

impl Default for Rates {
    fn default() -> Self {
        let user = Allowance { sessions: Some(DEFAULT_SESSIONS), ..Allowance::default() };
        Self { user, key: Allowance::default(), address: Allowance::default() }
    }
}

/// A limit as written: a value, or the word that takes one away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound<T> {
    Unlimited,
    At(T),
}

const UNLIMITED: &str = "unlimited";

impl<T> Bound<T> {
    fn over(self, base: Option<T>) -> Option<T> {
        match self {
            Self::Unlimited => None,
            Self::At(value) => Some(value).or(base),
        }
    }
}

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Bound<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<T>(std::marker::PhantomData<T>);
        impl<T: FromStr<Err: fmt::Display>> de::Visitor<'_> for Visitor<T> {
            type Value = Bound<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a limit, or \"unlimited\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Bound<T>, E> {
                if text == UNLIMITED {
                    return Ok(Bound::Unlimited);
                }
                let value = text.parse().map_err(|error| {
                    E::custom(format_args!("{error}; `{UNLIMITED}` takes the limit away"))
                })?;
                Ok(Bound::At(value))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Bound<T>, E> {
                self.visit_str(&number.to_string())
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Bound<T>, E> {
                self.visit_str(&number.to_string())
            }
        }
        deserializer.deserialize_any(Visitor(std::marker::PhantomData))
    }
}

#[expect(clippy::ref_option, reason = "serde calls it with a reference to the field")]
fn or_unlimited<T: fmt::Display, S: Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_str(UNLIMITED),
    }
}

/// Some limits, to lay over others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllowancePatch {
    pub executions: Option<Bound<Rate>>,
    pub uploads: Option<Bound<Rate>>,
    pub sessions: Option<Bound<Rate>>,
    pub concurrency: Option<Bound<NonZeroUsize>>,
    pub cpu_per_day: Option<Bound<Span>>,
    pub bytes_per_day: Option<Bound<ByteSize>>,
}

/// The same for all three.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RatesPatch {
    #[serde(default)]
    pub user: AllowancePatch,
    #[serde(default)]
    pub key: AllowancePatch,
    #[serde(default)]
    pub address: AllowancePatch,
}

impl Allowance {
    #[must_use]
    pub fn with(&self, patch: &AllowancePatch) -> Self {
        fn laid_over<T: Copy>(base: Option<T>, bound: Option<Bound<T>>) -> Option<T> {
            bound.map_or(base, |bound| bound.over(base))
        }
        Self {
            executions: laid_over(self.executions, patch.executions),
            uploads: laid_over(self.uploads, patch.uploads),
            sessions: laid_over(self.sessions, patch.sessions),
            concurrency: laid_over(self.concurrency, patch.concurrency),
            cpu_per_day: laid_over(self.cpu_per_day, patch.cpu_per_day),
            bytes_per_day: laid_over(self.bytes_per_day, patch.bytes_per_day),
        }
    }

    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }
}

impl Rates {
    /// These with `patch` laid over them.
    #[must_use]
    pub fn with(&self, patch: &RatesPatch) -> Self {
        Self {
            user: self.user.with(&patch.user),
            key: self.key.with(&patch.key),
            address: self.address.with(&patch.address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_read_back_what_they_print() {
        for text in ["5/s", "60/m", "500/h", "1000/d", "1/d", "4294967295/s"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        assert_eq!(" 60 / min ".parse::<Rate>().unwrap().to_string(), "60/m");
        assert_eq!("60/m".parse::<Rate>().unwrap().interval(), Duration::from_secs(1));
    }

    #[test]
    fn what_is_no_rate_is_refused_with_examples() {
        for text in ["", "60", "/m", "60/", "60/y", "-1/s", "1.5/s", "60/m/s", "4294967296/s"] {
            let error = text.parse::<Rate>().unwrap_err();
            assert!(error.to_string().contains("such as 5/s"), "{text:?}: {error}");
        }
        assert_eq!("0/m".parse::<Rate>(), Err(RateError::Nothing("0/m".to_owned())));
    }

    #[test]
    fn a_patch_changes_only_what_it_names_and_can_take_limits_away() {
        let first: RatesPatch = toml::from_str(
            "[user]\nexecutions = \"60/m\"\nconcurrency = 4\ncpu_per_day = \"2h\"\n[address]\nuploads = \"10/s\"\n",
        )
        .unwrap();
        let base = Rates::default().with(&first);
        assert_eq!(base.user.executions.unwrap().to_string(), "60/m");
        assert_eq!(base.user.concurrency.unwrap().get(), 4);
        assert!(base.key.is_unlimited());
        let second: RatesPatch =
            toml::from_str("[user]\nexecutions = \"unlimited\"\nbytes_per_day = \"1GiB\"\n").unwrap();
        let both = base.with(&second);
        assert_eq!(both.user.executions, None);
        assert_eq!(both.user.cpu_per_day, Some(Span::secs(7200)));
        assert_eq!(both.user.bytes_per_day, Some(ByteSize::gib(1)));
        assert_eq!(both.address, base.address);
    }

    #[test]
    fn what_is_written_wrongly_is_told() {
        let error = |text: &str| toml::from_str::<RatesPatch>(text).unwrap_err().to_string();
        assert!(error("[user]\nexecutions = \"many\"").contains("not a rate"));
        assert!(error("[user]\nexecutions = \"many\"").contains("`unlimited` takes the limit away"));
        assert!(error("[user]\nconcurrency = 0").contains("zero"));
        assert!(error("[user]\nexecutoins = \"1/s\"").contains("unknown field"));
        assert!(error("[users]\n").contains("unknown field"));
    }

    #[test]
    fn it_is_shown_as_it_is_written() {
        let rates: RatesPatch = toml::from_str("[key]\nexecutions = \"5/s\"\n").unwrap();
        let shown = serde_json::to_value(Rates::default().with(&rates)).unwrap();
        assert_eq!(shown["key"]["executions"], "5/s");
        assert_eq!(shown["user"]["concurrency"], "unlimited");
    }
}
