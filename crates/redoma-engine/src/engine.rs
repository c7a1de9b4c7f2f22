//! The engine: many executions at once, under a limit, each in a sandbox of its own.

use std::sync::Arc;
use std::time::Instant;

use redoma_jail::cgroup::Weight;
use redoma_model::{Owner, RunReport};

use crate::backend::{Backend, Status};
use crate::kernel::{Kernel, KernelRequest};
use crate::meter::{Meter, Phase, Took};
use crate::pressure::{Level, Pressure};
use crate::request::{RunError, RunRequest};
use crate::supervise::{Cancel, Observer};
use crate::turns::{Concurrency, Sharing, Turn, Turns, nobody};
use crate::weights::{Weighed, Weights};

/// So many wait for a turn on threads of their own.
const MOST_WAITING: usize = 256;

/// Runs programs. Shared between threads; each call runs on its caller's.
#[derive(Debug)]
pub struct Engine {
    backend: Box<dyn Backend>,
    turns: Turns,
    meter: Arc<Meter>,
    weights: Weights,
}

impl Engine {
    pub fn new(backend: Box<dyn Backend>, concurrency: Concurrency) -> Self {
        let waiting = match concurrency.sharing {
            // Each that waits here takes a thread, which others need too.
            Sharing::Fair => concurrency.waiting.min(MOST_WAITING),
            Sharing::FirstCome => concurrency.waiting,
        };
        let weights = Weights::new();
        if concurrency.sharing == Sharing::Fair {
            // Without the thread, shares still change when programs begin and end.
            let _ = weights.start();
        }
        Self {
            backend,
            turns: Turns::new(Concurrency { waiting, ..concurrency }),
            meter: Meter::new(),
            weights,
        }
    }

    /// Comes back when sandboxes wait for the first requests.
    pub fn prepare(&self) -> Result<(), RunError> {
        self.backend.prepare()
    }

    pub fn status(&self) -> Status {
        self.backend.status()
    }

    /// What is counted of all that runs here.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// How many wait for their turn.
    pub(crate) fn waiting(&self) -> usize {
        self.turns.waiting()
    }

    /// How hard it is for the host, where somebody looks.
    pub fn pressure(&self) -> Option<&Arc<Pressure>> {
        self.backend.pressure()
    }

    /// What can only be put right by starting anew.
    pub fn stuck(&self) -> Option<String> {
        self.backend.stuck()
    }

    /// Whether live sessions that nobody uses should give their memory to others.
    pub(crate) fn memory_is_scarce(&self) -> bool {
        self.pressure().is_some_and(|pressure| pressure.memory_is_scarce())
    }

    fn refuse_if_critical(&self) -> Result<(), RunError> {
        match self.pressure().map(|pressure| pressure.level()) {
            Some(Level::Critical) => Err(RunError::Overloaded),
            _ => Ok(()),
        }
    }

    /// Runs a program to its end, after waiting for its turn if it must.
    pub fn execute(
        &self,
        request: RunRequest<'_>,
        observer: &mut dyn Observer,
        cancel: &Cancel,
    ) -> Result<RunReport, RunError> {
        self.execute_for(&nobody(), request, observer, cancel)
    }

    /// The same for somebody: turns are shared fairly between owners.
    pub fn execute_for(
        &self,
        owner: &Owner,
        request: RunRequest<'_>,
        observer: &mut dyn Observer,
        cancel: &Cancel,
    ) -> Result<RunReport, RunError> {
        // One that calls tools mostly waits for others; it would keep a turn from those who run.
        let _turn = if request.tools.is_some() { None } else { Some(self.turns.wait(owner, cancel)?) };
        self.refuse_if_critical()?;
        let language = request.language;
        let begun = Instant::now();
        let mut took = Took::default();
        let result = self.backend.assign(request).and_then(|mut sandbox| {
            let assign = begun.elapsed();
            let _weighed = self.weigh(owner, sandbox.weight());
            let result = sandbox.run(observer, cancel);
            took = sandbox.took();
            took.assign += assign;
            result
        });
        self.meter.result(language.id, &result, took);
        if !took.assign.is_zero() {
            observer.phase(Phase::Assign, begun, took.assign);
        }
        result
    }

    /// Runs a program for somebody who has a turn.
    pub(crate) fn execute_within(
        &self,
        request: RunRequest<'_>,
        cancel: &Cancel,
    ) -> Result<RunReport, RunError> {
        self.backend.assign(request)?.run(&mut (), cancel)
    }

    /// A sandbox of this owner's runs, as long as what comes back: it shares the processor with those that do too.
    pub(crate) fn weigh(&self, owner: &Owner, weight: Option<Weight>) -> Option<Weighed<'_>> {
        weight.map(|weight| self.weights.add(owner, weight))
    }

    /// For a cell, which its caller runs.
    pub(crate) fn turn(
        &self,
        owner: &Owner,
        observer: &mut dyn Observer,
        cancel: &Cancel,
    ) -> Result<Turn<'_>, RunError> {
        self.refuse_if_critical()?;
        let begun = Instant::now();
        let turn = self.turns.wait(owner, cancel);
        self.note(Phase::Queue, begun, observer);
        turn
    }

    pub(crate) fn start_kernel(
        &self,
        request: &KernelRequest<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Box<dyn Kernel>, RunError> {
        let begun = Instant::now();
        let kernel = self.backend.start_kernel(request);
        self.note(Phase::Assign, begun, observer);
        kernel
    }

    /// A part of somebody's way ends now.
    pub(crate) fn note(&self, phase: Phase, begun: Instant, observer: &mut dyn Observer) {
        let time = begun.elapsed();
        self.meter.phase(phase, time);
        observer.phase(phase, begun, time);
    }
}
