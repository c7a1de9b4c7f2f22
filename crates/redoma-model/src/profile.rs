//! A profile: everything an operator decides about a kind of run, by name.

use serde::{Deserialize, Serialize};

use crate::limits::{LimitError, Limits, LimitsPatch};

/// A complete profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Profile {
    pub name: String,
    /// A prepared runtime's name (`base`), or the path of a folder that holds a root file system.
    pub runtime: String,
    pub limits: Limits,
}

impl Default for Profile {
    fn default() -> Self {
        Self { name: "default".to_owned(), runtime: "base".to_owned(), limits: Limits::default() }
    }
}

/// A profile as written: what it leaves out comes from the default profile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfilePatch {
    pub runtime: Option<String>,
    #[serde(default)]
    pub limits: LimitsPatch,
}

impl Profile {
    pub fn with(&self, name: &str, patch: &ProfilePatch) -> Result<Self, LimitError> {
        Ok(Self {
            name: name.to_owned(),
            runtime: patch.runtime.clone().unwrap_or_else(|| self.runtime.clone()),
            limits: self.limits.with(&patch.limits)?,
        })
    }
}
