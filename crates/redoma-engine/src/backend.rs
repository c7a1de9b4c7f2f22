//! What an execution needs of whoever provides sandboxes. The native backend is the first; container engines and virtual
//! machines come as others, and each says on every result which isolation it gave.

use std::fmt::Debug;

use redoma_jail::cgroup::GroupUsage;
use redoma_model::RunReport;

use crate::kernel::{Kernel, KernelRequest};
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
}

/// A sandbox with a program in it. Dropping it ends it.
pub trait Assigned: Debug {
    /// Runs the program to its end. What it prints goes to the observer as it comes. Only once.
    fn run(&mut self, observer: &mut dyn Observer, cancel: &Cancel) -> Result<RunReport, RunError>;

    /// Ends everything in it, at once.
    fn kill(&mut self);

    /// What it has used so far.
    fn usage(&self) -> GroupUsage;
}

/// What a backend has at hand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    pub pools: Vec<PoolStatus>,
    /// Modules that could not be loaded ahead of time, and why.
    pub left_out: Vec<(String, String)>,
    /// Processes of the backend's own.
    pub pids: Vec<u32>,
}

/// One kind of waiting sandboxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolStatus {
    pub name: String,
    pub idle: usize,
    pub wanted: usize,
    /// The first process of each idle sandbox.
    pub pids: Vec<u32>,
    /// How often a sandbox was there when it was needed, and how often not.
    pub hits: u64,
    pub misses: u64,
}
