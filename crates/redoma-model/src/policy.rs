//! What an operator writes about code that may not run: settings of a profile, and rules.
//!
//! These are the words only, so that a profile can hold them; `redoma-policy` reads code and decides. A rule that is written
//! here has not been checked yet: that happens where it is compiled, against the examples that it must carry.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// What a rule is about. The order is the one in which findings are told: the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    ForkBomb,
    Destructive,
    DownloadAndRun,
    Mining,
    Privilege,
    Persistence,
    PackageInstall,
    Library,
    Network,
    ProcessControl,
    Opaque,
}

impl Class {
    pub const ALL: [Self; 11] = [
        Self::ForkBomb,
        Self::Destructive,
        Self::DownloadAndRun,
        Self::Mining,
        Self::Privilege,
        Self::Persistence,
        Self::PackageInstall,
        Self::Library,
        Self::Network,
        Self::ProcessControl,
        Self::Opaque,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::ForkBomb => "fork_bomb",
            Self::Destructive => "destructive",
            Self::DownloadAndRun => "download_and_run",
            Self::Mining => "mining",
            Self::Privilege => "privilege",
            Self::Persistence => "persistence",
            Self::PackageInstall => "package_install",
            Self::Library => "library",
            Self::Network => "network",
            Self::ProcessControl => "process_control",
            Self::Opaque => "opaque",
        }
    }

    /// What is done about it where nobody said otherwise.
    ///
    /// Denied is what an honest program of a model has no use for in a sandbox, or what it would better be told about before
    /// it runs. Where there is no network a request only fails, with an error that the program may well handle; ending
    /// one's own processes and computing code are things that honest programs do: these are noted.
    pub fn default_action(self) -> Action {
        match self {
            Self::Network | Self::ProcessControl | Self::Opaque => Action::Flag,
            _ => Action::Deny,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// What is done about a finding; the later, the stricter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It runs and nothing is said.
    #[default]
    Allow,
    /// It runs, and the finding is in the audit.
    Flag,
    /// It does not run.
    Deny,
}

impl fmt::Display for Action {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Allow => "allow",
            Self::Flag => "flag",
            Self::Deny => "deny",
        })
    }
}

/// Whether code is read at all before it runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyMode {
    Off,
    #[default]
    On,
}

/// A profile's policy: what it leaves out is as shipped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicySettings {
    pub mode: PolicyMode,
    /// What is done about whole classes.
    pub classes: BTreeMap<Class, Action>,
    /// What is done about single rules, by id; goes before the class.
    pub rules: BTreeMap<String, Action>,
    /// Short for `classes.opaque`; goes before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opaque: Option<Action>,
    /// The operator's own rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rule: Vec<Rule>,
}

/// A part of a policy, to lay over another: what it names goes before, what it does not stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyPatch {
    pub mode: Option<PolicyMode>,
    #[serde(default)]
    pub classes: BTreeMap<Class, Action>,
    #[serde(default)]
    pub rules: BTreeMap<String, Action>,
    pub opaque: Option<Action>,
    #[serde(default)]
    pub rule: Vec<Rule>,
}

impl PolicySettings {
    /// These with `patch` laid over them. A rule of the same id takes the other's place.
    #[must_use]
    pub fn with(&self, patch: &PolicyPatch) -> Self {
        let mut policy = self.clone();
        policy.mode = patch.mode.unwrap_or(policy.mode);
        policy.classes.extend(&patch.classes);
        policy.rules.extend(patch.rules.iter().map(|(id, action)| (id.clone(), *action)));
        // What a layer says of the class goes before what one below it says in short.
        let below = policy.opaque.filter(|_| !patch.classes.contains_key(&Class::Opaque));
        policy.opaque = patch.opaque.or(below);
        policy.rule.retain(|rule| patch.rule.iter().all(|other| other.id != rule.id));
        policy.rule.extend(patch.rule.iter().cloned());
        policy
    }
}

/// A rule as written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub id: String,
    pub class: Class,
    /// The class's own if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// What is wrong with it, for people and models.
    pub reason: String,
    /// What to do instead, for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// It matches if one of these does.
    #[serde(rename = "match")]
    pub conditions: Vec<Condition>,
    pub examples: Examples,
}

/// Programs that show what a rule means. They are tried when it is compiled.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Examples {
    #[serde(rename = "match")]
    pub matching: Vec<Example>,
    #[serde(default)]
    pub not_match: Vec<Example>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Example {
    pub language: ExampleLanguage,
    pub code: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExampleLanguage {
    #[serde(alias = "py")]
    Python,
    #[serde(alias = "js")]
    JavaScript,
    #[serde(alias = "ts")]
    TypeScript,
    #[serde(alias = "sh")]
    Bash,
}

/// One thing that code does. Everything that is said must hold; a list holds if one of its texts does. Texts may have
/// `*` for any characters and `?` for one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Condition {
    /// A program is run, by this name (its folder does not matter).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub program: Vec<String>,
    /// Each of these options is there, in any order and grouping; `-r|--recursive` are two ways to write one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// The first argument that is not an option.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub first: Vec<String>,
    /// Its output is read through a pipe.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reads_from: Vec<String>,
    /// It is run by this other program (`sudo`, `xargs`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wrapper: Vec<String>,
    /// A file that output is redirected to: a place, or a path.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<String>,
    /// A function is called, by its full name: `os.system`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub call: Vec<String>,
    /// A keyword argument or option of a call: `recursive=true`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub named: Vec<String>,
    /// An argument of a program or a call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub argument: Vec<String>,
    /// No argument is like this.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unless_argument: Vec<String>,
    /// An argument of a program or a call is a path in this place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<Place>,
    /// The last argument of a program is a path in this place: where `cp` and `mv` write to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub destination: Vec<Place>,
    /// A module is loaded: it, or one below it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub import: Vec<String>,
    /// Something starts copies of itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub multiplies: bool,
    /// Something can't be seen, for this reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub opaque: Vec<Unseen>,
    /// What runs that which can't be seen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<String>,
    /// Only in these languages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub language: Vec<ExampleLanguage>,
}

/// Where a path leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// `/`, or everything in it.
    Root,
    /// A folder of the system (`/etc`, `/usr`, `/var`, …), or something in one.
    System,
    /// The home folder as a whole.
    Home,
    /// The workspace as a whole, or everything in it: `/mnt/data`, `.`, `*`.
    Workspace,
    /// Out of the workspace by `..`.
    Above,
    /// A disk, memory or another device that is not one of the harmless (`/dev/null`, `/dev/stdout`, …).
    Device,
}

/// Why something can't be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unseen {
    Computed,
    Decoded,
    NotParsed,
    TooDeep,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_is_refused() {
        let error = toml::from_str::<PolicySettings>("clases = {}").unwrap_err();
        assert!(error.to_string().contains("clases"), "{error}");
    }

    #[test]
    fn settings_say_what_is_done_about_classes_and_rules() {
        let settings: PolicySettings =
            toml::from_str("opaque = 'deny'\n[classes]\nnetwork = 'deny'\n[rules]\nremove-root = 'allow'")
                .unwrap();
        assert_eq!(settings.classes[&Class::Network], Action::Deny);
        assert_eq!(settings.rules["remove-root"], Action::Allow);
        assert_eq!(settings.opaque, Some(Action::Deny));
        assert_eq!(settings.mode, PolicyMode::On);
    }

    #[test]
    fn the_name_of_a_class_is_how_it_is_written() {
        for class in Class::ALL {
            assert_eq!(serde_json::to_value(class).unwrap(), class.name());
        }
    }
}
