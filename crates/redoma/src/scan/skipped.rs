//! Files that were not read, or not to their end: a scan that leaves something out says so.

use std::collections::BTreeMap;

use redoma_policy::facts::Why;

use super::Outcome;

/// Why a file that looks like code was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Skipped {
    TooLarge,
    /// Its name says code, its content does not.
    NotText,
    Unreadable,
    /// A program made it of other code.
    Minified,
    /// Not valid in its language, or nested beyond what is looked into: read in part at most.
    NotParsed(Why),
}

impl Skipped {
    /// For programs.
    pub(super) fn id(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::NotText => "not_text",
            Self::Unreadable => "unreadable",
            Self::Minified => "minified",
            Self::NotParsed(_) => "not_parsed",
        }
    }

    /// For people.
    pub(super) fn why(self) -> &'static str {
        match self {
            Self::TooLarge => "larger than 2 MiB",
            Self::NotText => "not text",
            Self::Unreadable => "can't be read",
            Self::Minified => "minified",
            Self::NotParsed(Why::TooDeep) => "nested or large beyond what is looked into",
            Self::NotParsed(_) => "not valid in its language, at least in part",
        }
    }

    /// In a count.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::TooLarge => "too large",
            Self::NotText => "not text",
            Self::Unreadable => "unreadable",
            Self::Minified => "minified",
            Self::NotParsed(_) => "not parsed",
        }
    }
}

impl Outcome {
    /// How many files were skipped, by reason.
    pub(super) fn skipped_by(&self, name: fn(Skipped) -> &'static str) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for (_, why) in &self.skipped {
            *counts.entry(name(*why)).or_default() += 1;
        }
        counts
    }
}
