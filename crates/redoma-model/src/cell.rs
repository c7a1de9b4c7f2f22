//! What a cell of a live session gives back, beyond what any program does.

use serde::{Deserialize, Serialize};

/// A value in several forms, by MIME type: text, base64 for what is binary, or JSON.
pub type Bundle = serde_json::Map<String, serde_json::Value>;

/// One thing that a cell showed. In order, they are what a notebook has below the cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Output {
    Stdout {
        text: String,
    },
    Stderr {
        text: String,
    },
    /// Shown on purpose: by `display`, or a figure.
    Display {
        data: Bundle,
        #[serde(default, skip_serializing_if = "Bundle::is_empty")]
        metadata: Bundle,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// In place of what was shown under this id before.
        #[serde(default, skip_serializing_if = "crate::report::is_false")]
        update: bool,
    },
    /// The value of the last line.
    Result {
        data: Bundle,
        #[serde(default, skip_serializing_if = "Bundle::is_empty")]
        metadata: Bundle,
    },
    Error {
        name: String,
        value: String,
        traceback: Vec<String>,
    },
    /// What was shown so far is to go; with `wait`, only when something else comes.
    Clear {
        #[serde(default)]
        wait: bool,
    },
}

/// What became of a cell and of the session's variables.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CellReport {
    /// Counts the cells of this kernel, from 1.
    pub number: u64,
    /// Everything that it showed, in order.
    pub outputs: Vec<Output>,
    /// Variables of earlier cells were gone before this one: the kernel had to be started anew.
    pub restarted: bool,
    /// It had to be ended, or ended its process: variables are as they were before it.
    pub restored: bool,
    /// It had to be ended, or ended its process, and variables are gone with it.
    pub lost: bool,
    /// What else there is to know about the session's state.
    pub notes: Vec<String>,
}

/// What a session's kernel is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelState {
    /// There is none: the next cell starts one.
    None,
    Idle,
    Busy,
    /// It stands still, and goes on with the next cell.
    Frozen,
}

/// A session's kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelStatus {
    pub state: KernelState,
    /// Cells that it has run.
    pub cells: u64,
    /// How many of them can be undone.
    pub undoable: u64,
    /// Cells that wait for their turn.
    pub waiting: u64,
    pub memory_bytes: Option<u64>,
}
