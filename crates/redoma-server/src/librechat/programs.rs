//! Programs of LibreChat's that are alive between two requests, and requests that can be cancelled by name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use redoma_engine::fair_queue::is_fair;
use redoma_engine::{Answers, Cancel};
use redoma_model::{Owner, Principal, SessionId};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::executing::{Event, RunningProgram};
use crate::failure::Failure;

/// How long a program waits for its tools' answers.
pub(super) const PATIENCE: Duration = Duration::from_mins(5);
/// Maximum number of programs at the same time, whether they run or wait. Each has a thread and a sandbox, and one that waits for
/// one tool may go on with something else, up to its limits. The places are shared as turns are: an owner gets a further one
/// while it then has at most three times what stays free. The first is always given.
const MAX_PROGRAMS: usize = 64;
/// Maximum number of programs of one owner.
const MAX_PER_OWNER: usize = 32;

/// What the façade remembers.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    /// Those that wait, by the token that continues them.
    waiting: Mutex<HashMap<String, Program>>,
    /// How many each owner has, running or waiting.
    alive: Arc<Mutex<HashMap<Owner, usize>>>,
    /// Requests that go on, by what their clients call them.
    requests: Mutex<HashMap<String, Vec<NamedRequest>>>,
}

/// One that runs or waits. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) owner: Owner,
    pub(super) session: SessionId,
    pub(super) answers: Answers,
    pub(super) events: UnboundedReceiver<Event>,
    pub(super) running: RunningProgram,
    /// Calls that were passed on and have no answer yet.
    pub(super) unanswered: Vec<String>,
    /// What the client called the last request about it.
    pub(super) request: Option<String>,
    /// Files that were named and can't be.
    pub(super) missing: Vec<String>,
    since: Instant,
    _place: Place,
}

/// The right to one more program.
#[derive(Debug)]
pub(super) struct Place {
    owner: Owner,
    alive: Arc<Mutex<HashMap<Owner, usize>>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut alive = self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = alive.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                alive.remove(&self.owner);
            }
        }
    }
}

impl Program {
    pub(super) fn new(
        session: SessionId,
        answers: Answers,
        events: UnboundedReceiver<Event>,
        running: RunningProgram,
        place: Place,
    ) -> Self {
        let (owner, since) = (place.owner.clone(), Instant::now());
        let (unanswered, request, missing) = (Vec::new(), None, Vec::new());
        Self { owner, session, answers, events, running, unanswered, request, missing, since, _place: place }
    }
}

impl Programs {
    fn waiting(&self) -> MutexGuard<'_, HashMap<String, Program>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for one more program of this owner's.
    pub(super) fn place(&self, owner: &Owner) -> Result<Place, Failure> {
        self.forget_old();
        let mut alive = self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = alive.values().sum();
        let own = alive.get(owner).copied().unwrap_or(0);
        if all >= MAX_PROGRAMS {
            return Err(Failure::busy("too many programs run or wait for their tools; try again"));
        }
        if own >= MAX_PER_OWNER || !is_fair(own, MAX_PROGRAMS - all) {
            return Err(Failure::busy("too many programs of yours run or wait for their tools; try again"));
        }
        alive.insert(owner.clone(), own + 1);
        Ok(Place { owner: owner.clone(), alive: Arc::clone(&self.alive) })
    }

    /// Those that nobody has asked for any more. They have ended by themselves by now.
    fn forget_old(&self) {
        let is_old = |program: &mut Program| program.since.elapsed() > PATIENCE + Duration::from_secs(10);
        let old: Vec<_> = self.waiting().extract_if(|_, program| is_old(program)).collect();
        drop(old);
    }

    pub(super) fn put(&self, token: String, mut program: Program) {
        program.since = Instant::now();
        self.waiting().insert(token, program);
    }

    /// The program that this token continues, if it is theirs.
    pub(super) fn take(&self, token: &str, principal: &Principal) -> Option<Program> {
        let mut waiting = self.waiting();
        if principal.may_act_for(&waiting.get(token)?.owner) { waiting.remove(token) } else { None }
    }

    fn requests(&self) -> MutexGuard<'_, HashMap<String, Vec<NamedRequest>>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the client cancel what goes on, if it has a name for it.
    pub(super) fn register(
        &self,
        principal: &Principal,
        headers: &HeaderMap,
        cancel: Arc<Cancel>,
    ) -> Cancellable<'_> {
        let name = request_name(headers);
        if let Some(name) = &name {
            let request = NamedRequest { owner: principal.owner.clone(), cancel: Arc::clone(&cancel) };
            self.requests().entry(name.clone()).or_default().push(request);
        }
        Cancellable { programs: self, name, cancel }
    }

    /// Ends what of theirs goes on under this name, or waits since; whether there was something.
    pub(super) fn cancel(&self, principal: &Principal, name: &str) -> bool {
        let is_it = |program: &Program| {
            program.request.as_deref() == Some(name) && principal.may_act_for(&program.owner)
        };
        let waiting: Vec<_> = self.waiting().extract_if(|_, program| is_it(program)).collect();
        let requests = self.requests();
        let of_this_name = requests.get(name).into_iter().flatten();
        let theirs = of_this_name.filter(|known| principal.may_act_for(&known.owner));
        theirs.inspect(|known| known.cancel.cancel()).count() + waiting.len() > 0
    }
}

/// What the client calls this request, if it has a name for it.
pub(super) fn request_name(headers: &HeaderMap) -> Option<String> {
    let name = headers.get("x-librechat-code-request-id")?.to_str().ok()?;
    (1..=200).contains(&name.len()).then(|| name.to_owned())
}

/// A request that its client has a name for.
#[derive(Debug)]
struct NamedRequest {
    owner: Owner,
    cancel: Arc<Cancel>,
}

/// While this lives, the request can be cancelled by its name.
#[derive(Debug)]
pub(super) struct Cancellable<'a> {
    programs: &'a Programs,
    name: Option<String>,
    cancel: Arc<Cancel>,
}

impl Drop for Cancellable<'_> {
    fn drop(&mut self) {
        let Some(name) = &self.name else { return };
        let mut requests = self.programs.requests();
        if let Some(of_this_name) = requests.get_mut(name) {
            // Others may have the same name.
            of_this_name.retain(|known| !Arc::ptr_eq(&known.cancel, &self.cancel));
            if of_this_name.is_empty() {
                requests.remove(name);
            }
        }
    }
}
