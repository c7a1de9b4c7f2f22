//! What is asked for, and why it may not be had.

use std::io;

use redoma_jail::cgroup::CgroupError;
use redoma_jail::host_uid::HostUidError;
use redoma_jail::nursery::ChannelError;
use redoma_jail::{JailError, PlanError};
use redoma_model::{Libraries, Limits, Profile, RunReport};

use crate::harvest::HarvestError;
use crate::host::Refused;
use crate::language::Language;
use crate::outlet::Outlet;
use crate::pipes::Stdin;
use crate::runtime::RuntimeError;
use crate::staging::{Input, StagingError};
use crate::tools::Tools;

/// The program to run.
#[derive(Debug, Clone)]
pub struct Source {
    pub code: Vec<u8>,
    /// Its file name in the workspace; the language's own where the caller gives none.
    pub name: Option<String>,
}

/// What a run is held to, of its profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// The profile's name, for whoever looks at the result.
    pub profile: String,
    pub limits: Limits,
    pub libraries: Libraries,
}

impl From<&Profile> for Terms {
    fn from(profile: &Profile) -> Self {
        let Profile { name, limits, libraries, .. } = profile;
        Self { profile: name.clone(), limits: limits.clone(), libraries: libraries.clone() }
    }
}

/// Everything about one run.
#[derive(Debug)]
pub struct RunRequest<'a> {
    pub language: &'a Language,
    pub source: Source,
    pub arguments: Vec<String>,
    pub stdin: Stdin,
    pub inputs: Vec<Input>,
    pub terms: Terms,
    /// Where results go.
    pub out: Option<&'a mut dyn Outlet>,
    /// Whether anybody wants to know which files the program made.
    pub list_files: bool,
    /// Whether the observer shows output as it comes: then only a short tail is held back.
    pub live: bool,
    /// Whether the value of the script's last line is wanted. Python only, and in a sandbox that waited.
    pub last_value: bool,
    /// What the program may call. Python and bash only, and in a sandbox that waited.
    pub tools: Option<Tools>,
}

impl RunRequest<'_> {
    /// The script's name in the workspace.
    pub(crate) fn script_name(&self) -> Result<String, RunError> {
        let name = self.source.name.as_deref().unwrap_or(self.language.script);
        let is_plain = !name.is_empty() && !name.contains(['/', '\0']) && name != "." && name != "..";
        if is_plain { Ok(name.to_owned()) } else { Err(RunError::ScriptName(name.to_owned())) }
    }

    pub(crate) fn wants_files(&self) -> bool {
        self.list_files || self.out.is_some()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Staging(#[from] StagingError),
    #[error("the cgroup for the run could not be made: {0}; see `redoma doctor`")]
    Cgroup(#[from] CgroupError),
    #[error(transparent)]
    HostUid(#[from] HostUidError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Jail(#[from] JailError),
    /// Whoever makes sandboxes ahead of time can't.
    #[error(transparent)]
    Nursery(#[from] ChannelError),
    #[error("could not prepare the run: {0}")]
    Prepare(#[from] io::Error),
    /// The program ran, and its results could not be kept.
    #[error("{error}")]
    Harvest { report: Box<RunReport>, error: HarvestError },
    #[error("the script's name `{0}` must be a plain file name")]
    ScriptName(String),
    /// Everything that may run at once runs, and this has waited for its turn long enough.
    #[error("busy: {running} programs run and {waiting} wait; try again")]
    Busy { running: usize, waiting: usize },
    /// The host itself has no room: nothing is started until it has.
    #[error("overloaded: the server is short of memory or processes; try again in a moment")]
    Overloaded,
    #[error(
        "the arguments are too long for a sandbox that waits (about 24 KB in all always fit); pass them in a file"
    )]
    ArgumentsTooLong,
    #[error("programs in `{0}` can't call tools; use py or bash")]
    ToolsInLanguage(String),
    #[error("only an engine's runs can call tools")]
    ToolsWithoutEngine,
    #[error(
        "the session's variables are gone: its process ended; the next cell begins with none, and with all files"
    )]
    KernelLost,
    /// The owner's programs and live sessions hold as much memory for files as one owner may.
    #[error(
        "the files of your programs and live sessions hold as much of the server's memory as one user may; try again when some of \
         them have ended, or end a session"
    )]
    InputMemory,
    #[error(
        "the session's process is alive and has not answered in time; nothing is undone. Try again; if this goes on, restart the \
         session"
    )]
    KernelSlow,
    #[error(
        "the session's variables can't be copied now: pipes or sockets are open in it, or there is no memory for a copy"
    )]
    NoCheckpoint,
    #[error("programs can't be read before they run: {0}")]
    Reader(io::Error),
    #[error("cancelled before it began")]
    Cancelled,
    #[error("the engine is shutting down")]
    ShuttingDown,
}
