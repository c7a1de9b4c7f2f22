//! What was said about a program before it ran.

use serde::{Deserialize, Serialize};

use crate::audit::Decision;

/// The decision about a program, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    pub decision: Decision,
    /// The worst first.
    pub findings: Vec<Finding>,
}

/// Something in a program that a rule is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The rule's id.
    pub rule: String,
    /// What kind of thing it is: `destructive`, `network`, `language`, …
    pub class: String,
    pub decision: Decision,
    /// Where it stands, if it stands anywhere: both count from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// What was found, on one line.
    pub excerpt: String,
    pub reason: String,
    /// What to do instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}
