//! The life of an execution: from a request to a report.
//!
//! | file | subject |
//! |---|---|
//! | `runtime.rs` | what is inside sandboxes: a prepared runtime, or any root file system folder |
//! | `libraries.rs` | which libraries a runtime has, in which versions |
//! | `language.rs` | the table of languages |
//! | `host.rs` | which layers this host gives, and whether that is enough |
//! | `staging.rs` | the files that go in |
//! | `request.rs` | what is asked for, and why it may not be had |
//! | `interpreter/` | executions in sessions, with files that last: what the server calls |
//! | `engine.rs` | many runs at once, under a limit |
//! | `turns.rs` | whose turn it is |
//! | `backend.rs` | what is needed of whoever provides sandboxes |
//! | `native/` | the native backend: sandboxes made ahead of time |
//! | `cold.rs` | one run in a sandbox made for it, without an engine |
//! | `kernel.rs` | what is needed of whoever keeps a session's variables |
//! | `transcript.rs` | everything that a cell showed, in order |
//! | `identity.rs` | who a sandbox is on the host |
//! | `program.rs` | path, arguments and environment of a program inside |
//! | `base64.rs` | bytes as text |
//! | `imports.rs` | which modules a Python program names |
//! | `supervise.rs` | watching it: output, input, deadlines, limits |
//! | `pipes.rs` | reading what it prints, writing what it reads |
//! | `wall_clock.rs` | the clock of a run, which can stand still |
//! | `frames.rs` | telling output from what a program says beside it |
//! | `aside.rs` | hearing that, and saying something back |
//! | `tools.rs` | functions that a program calls and somebody outside answers |
//! | `bash_tools.rs` | such functions in bash |
//! | `outcome.rs` | from what was seen to a report |
//! | `capture.rs` | keeping the head and the tail of an output stream |
//! | `harvest.rs`, `workspace.rs` | the files that come out, and those that are known |
//! | `outlet.rs` | where they go |
//! | `readers/` | reading programs before they run, where that can do no harm |
//! | `fair_queue.rs`, `weights.rs`, `pressure.rs` | fair turns, fair shares, how hard it is for the host |
//! | `meter/` | what is counted, and how it is shown |

mod aside;
pub mod backend;
pub mod base64;
mod bash_tools;
mod capture;
mod cold;
mod engine;
pub mod fair_queue;
mod frames;
mod harvest;
pub mod host;
mod identity;
mod imports;
pub mod interpreter;
mod kernel;
pub mod language;
mod libraries;
pub mod meter;
mod native;
mod outcome;
mod outlet;
mod pipes;
pub mod pressure;
mod program;
pub mod readers;
mod request;
pub mod runtime;
mod staging;
mod supervise;
mod tools;
mod transcript;
mod turns;
mod uncounted;
mod wall_clock;
mod weights;
mod workspace;

pub use backend::{Assigned, Backend};
pub use capture::Stream;
pub use cold::{Place, run};
pub use engine::Engine;
pub use host::{Host, Refused};
pub use kernel::{Cell, CellEnd, Kernel, KernelHandle, KernelRequest};
pub use language::{Language, Languages, UnknownLanguage};
pub use libraries::libraries;
pub use native::{InsideFiles, Native, NativeConfig, Supply};
pub use outlet::{FolderOutlet, Outlet, Put};
pub use pipes::Stdin;
pub use pressure::{Level, Pressure, PressureLimits};
pub use request::{RunError, RunRequest, Source, Terms};
pub use runtime::{Manifest, Runtime, RuntimeError};
pub use staging::{Input, StagingError};
pub use supervise::{Cancel, Line, Observer};
pub use tools::{AnswerError, Answers, ToolAnswer, ToolCall, ToolFunction, Tools};
pub use turns::{Concurrency, Sharing};
