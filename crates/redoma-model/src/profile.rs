//! A profile: everything an operator decides about a kind of run, by name.

use serde::{Deserialize, Serialize};

use crate::limits::{LimitError, Limits, LimitsPatch};
use crate::policy::{PolicyPatch, PolicySettings};
use crate::rates::{Rates, RatesPatch};
use crate::units::Span;

/// A complete profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Profile {
    pub name: String,
    /// What it is for, in a sentence.
    pub description: String,
    /// Whether somebody with a user's key may choose it for a session.
    pub for_users: bool,
    /// A prepared runtime's name (`base`), or the path of a folder that holds a root file system.
    pub runtime: String,
    /// The languages that programs may be in, by their short names.
    pub languages: Vec<String>,
    /// What Python programs may import beside the standard library and their own files.
    pub libraries: Libraries,
    pub network: Network,
    /// What a model is told about working here, beyond what holds for all profiles.
    pub prompt: Option<String>,
    pub limits: Limits,
    /// How much somebody may ask for.
    pub rates: Rates,
    /// What is looked for in programs before they run.
    pub policy: PolicySettings,
    /// Python modules that are loaded before anybody needs them: each list is an interpreter that waits with them, beside
    /// one with the standard library only.
    pub preload: Vec<Vec<String>>,
    /// Whether the value of a Python program's last expression is its output, if it prints nothing.
    pub last_value: bool,
    /// How long a session lives after it was last used.
    pub retention: Retention,
    /// After so long without a cell, a session's processes stand still.
    pub freeze_after: Span,
    /// After so long they give back what memory can be: cells can't be undone any more.
    pub reclaim_after: Span,
    /// And after so long they go: variables are then gone, and files are not.
    pub drop_after: Span,
    /// Whether variables survive a cell that has to be ended.
    pub checkpoints: bool,
    /// So many cells can be undone.
    pub undo: usize,
}

/// What may be imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Libraries {
    /// Whatever the runtime has.
    All,
    /// These, and what they need themselves.
    Only(Vec<String>),
}

impl Libraries {
    pub fn listed(&self) -> Option<&[String]> {
        match self {
            Self::All => None,
            Self::Only(names) => Some(names),
        }
    }
}

impl Serialize for Libraries {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All => serializer.serialize_str("all"),
            Self::Only(names) => names.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Libraries {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Word(String),
            Names(Vec<String>),
        }
        let wrong = "libraries are \"all\" or a list of import names, such as [\"numpy\", \"pandas\"]";
        match Written::deserialize(deserializer).map_err(|_| serde::de::Error::custom(wrong))? {
            Written::Word(word) if word == "all" => Ok(Self::All),
            Written::Names(names) if names.iter().map(String::len).sum::<usize>() > LONGEST_LIST => {
                Err(serde::de::Error::custom("the list of libraries is too long (8 KB)"))
            }
            Written::Names(names) if names.iter().all(|name| is_import_name(name)) => Ok(Self::Only(names)),
            _ => Err(serde::de::Error::custom(wrong)),
        }
    }
}

/// Bytes of all names that may be imported: they are told to each sandbox.
const LONGEST_LIST: usize = 8 << 10;

fn is_import_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|letter| letter.is_alphanumeric() || letter == '_')
}

/// What programs may reach. There is one choice so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    None,
}

/// How long something is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    Forever,
    For(Span),
}

impl Retention {
    /// In milliseconds; nothing is for ever.
    pub fn millis(self) -> Option<i64> {
        match self {
            Self::Forever => None,
            Self::For(span) => Some(i64::try_from(span.0.as_millis()).unwrap_or(i64::MAX)),
        }
    }
}

impl Serialize for Retention {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Forever => serializer.serialize_str("forever"),
            Self::For(span) => span.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Retention {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.as_str() {
            "forever" => Ok(Self::Forever),
            _ => text.parse().map(Self::For).map_err(|_| {
                serde::de::Error::custom(format!("`{text}` is not a time; write 12h, 30d or forever"))
            }),
        }
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            name: "default".to_owned(),
            description: "everyday programs of chats: all languages and libraries, careful limits".to_owned(),
            for_users: true,
            runtime: "base".to_owned(),
            languages: ["bash", "js", "py", "ts"].map(ToOwned::to_owned).to_vec(),
            libraries: Libraries::All,
            network: Network::None,
            prompt: None,
            limits: Limits::default(),
            rates: Rates::default(),
            policy: PolicySettings::default(),
            preload: default_preload(),
            last_value: true,
            retention: Retention::For(Span::secs(30 * 86_400)),
            freeze_after: Span::secs(60),
            reclaim_after: Span::secs(300),
            drop_after: Span::secs(3600),
            checkpoints: true,
            undo: 5,
        }
    }
}

/// What programs of models use most, from less to more.
fn default_preload() -> Vec<Vec<String>> {
    const STANDARD: &str = "argparse asyncio calendar dataclasses decimal fractions glob hashlib html inspect io logging pathlib \
                            pickle platform pprint secrets shutil socket sqlite3 statistics subprocess tempfile threading \
                            typing urllib.parse uuid zipfile";
    let standard: Vec<_> = STANDARD.split_whitespace().collect();
    let steps: [&[&str]; 4] =
        [&standard, &["numpy", "pandas"], &["matplotlib.pyplot"], &["scipy.stats", "seaborn", "sklearn"]];
    (1..=steps.len())
        .map(|count| steps[..count].iter().copied().flatten().map(|module| (*module).to_owned()).collect())
        .collect()
}

/// Who has which profile, as the operator wrote it down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileAssignment {
    /// Only if they come through this client.
    pub client: Option<String>,
    /// Only this user.
    pub user: Option<String>,
    pub profile: String,
}

/// A profile as written: what it leaves out comes from the default profile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfilePatch {
    pub description: Option<String>,
    pub for_users: Option<bool>,
    pub runtime: Option<String>,
    pub languages: Option<Vec<String>>,
    pub libraries: Option<Libraries>,
    pub network: Option<Network>,
    pub prompt: Option<String>,
    #[serde(default)]
    pub limits: LimitsPatch,
    #[serde(default)]
    pub rates: RatesPatch,
    #[serde(default)]
    pub policy: PolicyPatch,
    pub preload: Option<Vec<Vec<String>>>,
    pub last_value: Option<bool>,
    pub retention: Option<Retention>,
    pub freeze_after: Option<Span>,
    pub reclaim_after: Option<Span>,
    pub drop_after: Option<Span>,
    pub checkpoints: Option<bool>,
    pub undo: Option<usize>,
}

impl Profile {
    pub fn with(&self, name: &str, patch: &ProfilePatch) -> Result<Self, LimitError> {
        Ok(Self {
            name: name.to_owned(),
            description: patch.description.clone().unwrap_or_else(|| self.description.clone()),
            for_users: patch.for_users.unwrap_or(self.for_users),
            languages: patch.languages.clone().unwrap_or_else(|| self.languages.clone()),
            libraries: patch.libraries.clone().unwrap_or_else(|| self.libraries.clone()),
            network: patch.network.unwrap_or(self.network),
            prompt: patch.prompt.clone().or_else(|| self.prompt.clone()),
            runtime: patch.runtime.clone().unwrap_or_else(|| self.runtime.clone()),
            limits: self.limits.with(&patch.limits)?,
            rates: self.rates.with(&patch.rates),
            policy: self.policy.with(&patch.policy),
            preload: patch.preload.clone().unwrap_or_else(|| self.preload.clone()),
            last_value: patch.last_value.unwrap_or(self.last_value),
            retention: patch.retention.unwrap_or(self.retention),
            freeze_after: patch.freeze_after.unwrap_or(self.freeze_after),
            reclaim_after: patch.reclaim_after.unwrap_or(self.reclaim_after),
            drop_after: patch.drop_after.unwrap_or(self.drop_after),
            checkpoints: patch.checkpoints.unwrap_or(self.checkpoints),
            undo: patch.undo.unwrap_or(self.undo),
        })
    }
}
