//! The life of an execution: from a request to a report.
//!
//! | file | subject |
//! |---|---|
//! | `runtime.rs` | what is inside sandboxes: a prepared runtime, or any root file system folder |
//! | `language.rs` | the table of languages |
//! | `host.rs` | which layers this host gives, and whether that is enough |
//! | `staging.rs` | the files that go in |
//! | `cold.rs` | one run in a sandbox made for it |
//! | `supervise.rs` | watching it: output, input, deadlines, limits |
//! | `capture.rs` | keeping the head and the tail of an output stream |
//! | `harvest.rs` | the files that come out |

mod capture;
mod cold;
mod harvest;
pub mod host;
pub mod language;
pub mod runtime;
mod staging;
mod supervise;

pub use capture::Stream;
pub use cold::{RunError, RunRequest, Source, run};
pub use host::{Host, Refused};
pub use language::{Language, Languages, UnknownLanguage};
pub use runtime::{Manifest, Runtime, RuntimeError};
pub use staging::{Input, StagingError};
pub use supervise::{Observer, Stdin};
