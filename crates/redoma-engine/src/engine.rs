//! The engine: many executions at once, under a limit, each in a sandbox of its own.

use redoma_model::RunReport;

use crate::backend::{Backend, Status};
use crate::kernel::{Kernel, KernelRequest};
use crate::request::{RunError, RunRequest};
use crate::supervise::{Cancel, Observer};
use crate::turns::{Concurrency, Turn, Turns};

/// Runs programs. Shared between threads; each call runs on its caller's.
#[derive(Debug)]
pub struct Engine {
    backend: Box<dyn Backend>,
    turns: Turns,
}

impl Engine {
    pub fn new(backend: Box<dyn Backend>, concurrency: Concurrency) -> Self {
        Self { backend, turns: Turns::new(concurrency) }
    }

    /// Comes back when sandboxes wait for the first requests.
    pub fn prepare(&self) -> Result<(), RunError> {
        self.backend.prepare()
    }

    pub fn status(&self) -> Status {
        self.backend.status()
    }

    /// Runs a program to its end, after waiting for its turn if it must.
    pub fn execute(
        &self,
        request: RunRequest<'_>,
        observer: &mut dyn Observer,
        cancel: &Cancel,
    ) -> Result<RunReport, RunError> {
        // One that calls tools mostly waits for others; it would keep a turn from those who run.
        let _turn = if request.tools.is_some() { None } else { Some(self.turn(cancel)?) };
        self.backend.assign(request)?.run(observer, cancel)
    }

    /// Runs a program for somebody who has a turn.
    pub(crate) fn execute_within(
        &self,
        request: RunRequest<'_>,
        cancel: &Cancel,
    ) -> Result<RunReport, RunError> {
        self.backend.assign(request)?.run(&mut (), cancel)
    }

    /// For a cell, which its caller runs.
    pub(crate) fn turn(&self, cancel: &Cancel) -> Result<Turn<'_>, RunError> {
        self.turns.wait(cancel)
    }

    pub(crate) fn start_kernel(&self, request: &KernelRequest<'_>) -> Result<Box<dyn Kernel>, RunError> {
        self.backend.start_kernel(request)
    }
}
