//! What an execution needs of whoever provides sandboxes. The native backend is the first; container engines and virtual
//! machines come as others, and each says on every result which isolation it gave.

use std::fmt::Debug;
use std::sync::Arc;

use redoma_jail::cgroup::{GroupUsage, Weight};
use redoma_model::RunReport;

use crate::kernel::{Kernel, KernelRequest};
use crate::meter::Took;
use crate::pressure::Pressure;
use crate::request::{RunError, RunRequest};
use crate::supervise::{Cancel, Observer};

/// A provider of sandboxes. Called from many threads at once.
pub trait Backend: Debug + Send + Sync {
    /// Comes back when the first requests will find sandboxes waiting, or why there will be none. Not needed: without it
    /// they are made as requests come.
    fn prepare(&self) -> Result<(), RunError>;

    /// A sandbox for this request and for nothing else, with everything in it. The program does not run yet.
    fn assign<'a, 'r: 'a>(&'a self, request: RunRequest<'r>) -> Result<Box<dyn Assigned + 'a>, RunError>;

    /// A process for a session, in which cells run one after the other.
    fn start_kernel(&self, request: &KernelRequest<'_>) -> Result<Box<dyn Kernel>, RunError>;

    /// What is waiting, and who provides it.
    fn status(&self) -> Status;

    /// How hard it is for the host, where somebody looks.
    fn pressure(&self) -> Option<&Arc<Pressure>> {
        None
    }

    /// What does not work that can only be put right by starting anew: a thread that has not moved for too long.
    fn stuck(&self) -> Option<String> {
        None
    }
}

/// A sandbox with a program in it. Dropping it ends it.
pub trait Assigned: Debug {
    /// Runs the program to its end. What it prints goes to the observer as it comes. Only once.
    fn run(&mut self, observer: &mut dyn Observer, cancel: &Cancel) -> Result<RunReport, RunError>;

    /// Of a run that is over: where its time went.
    fn took(&self) -> Took;

    /// Ends everything in it, at once.
    fn kill(&mut self);

    /// What it has used so far.
    fn usage(&self) -> GroupUsage;

    /// How much of the processor it gets, where that can be set.
    fn weight(&self) -> Option<Weight> {
        None
    }
}

/// What a backend has at hand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    pub pools: Vec<PoolStatus>,
    /// Modules that could not be loaded ahead of time, and why.
    pub left_out: Vec<(String, String)>,
    /// Processes of the backend's own.
    pub pids: Vec<u32>,
    pub restarts: Restarts,
    pub kernel_words: KernelWords,
}

/// How often an interpreter with libraries loaded was replaced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Restarts {
    /// It ended, or could not make sandboxes any more.
    pub died: u64,
    /// It had made as many as one may, or was old.
    pub worn: u64,
    /// All of them at once, with the process tree that they were in.
    pub nursery: u64,
}

/// What the kernel itself has told of sandboxes of this backend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KernelWords {
    /// Whether anybody listens.
    pub is_heard: bool,
    /// Processes that their filter killed.
    pub seccomp: u64,
    /// Times that more was told than could be listened to.
    pub overruns: u64,
}

/// One kind of waiting sandboxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolStatus {
    pub name: String,
    pub idle: usize,
    pub wanted: usize,
    pub floor: usize,
    /// The first process of each idle sandbox.
    pub pids: Vec<u32>,
    /// How often a sandbox was there when it was needed, and how often not.
    pub hits: u64,
    pub misses: u64,
}
