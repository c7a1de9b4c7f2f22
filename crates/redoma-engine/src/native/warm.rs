//! One run in a sandbox that waited.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::Instant;

use redoma_jail::cgroup::{Group, GroupLimits, GroupUsage, Weight};
use redoma_jail::nursery::{Assignment, ExecPayload, Reader, Work};
use redoma_jail::{PlanError, Sandbox, Weakening};
use redoma_model::{IsolationReport, Layer, Libraries, Limits, RunReport};

use super::Shared;
use super::nursery::Nursery;
use super::pool::{Kind, Pool, Ready, Seal};
use crate::aside::Aside;
use crate::backend::Assigned;
use crate::base64::base64;
use crate::bash_tools;
use crate::cold::add_group_layers;
use crate::identity::Identity;
use crate::meter::{Phase, Took};
use crate::outcome::{add_files, report};
use crate::program::Invocation;
use crate::request::{RunError, RunRequest, Terms};
use crate::staging::check_names;
use crate::supervise::{Cancel, Interrupt, Observer, Supervisor};
use crate::tools::Tools;
use crate::workspace::{Room, WorkspaceFiles};

/// A sandbox with a request's program in it.
#[derive(Debug)]
pub(crate) struct WarmRun<'a, 'r> {
    shared: &'a Shared,
    request: RunRequest<'r>,
    script: String,
    limits: Limits,
    layers: Vec<Layer>,
    /// Until it runs.
    prepared: Option<Prepared>,
    /// From then on.
    remains: Option<Remains>,
    /// What was put into the workspace, and what that takes.
    files: WorkspaceFiles,
    room: Room,
    /// For a program that speaks in frames.
    aside: Option<Aside>,
    undertaker: SyncSender<Remains>,
    took: Took,
    _running: Running<'a>,
}

/// A sandbox that has everything but the word to begin.
#[derive(Debug)]
struct Prepared {
    ready: Ready,
    assignment: Assignment,
    payload: Vec<u8>,
    reader: Reader,
}

/// Counts a run as going on, until this is dropped.
#[derive(Debug)]
struct Running<'a>(&'a Shared);

impl<'a> Running<'a> {
    fn begin(shared: &'a Shared) -> Self {
        shared.running.fetch_add(1, Ordering::Relaxed);
        Self(shared)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What is left of a run: to be ended and removed, by somebody who has the time. The order is that in which they go.
#[derive(Debug)]
pub(crate) struct Remains {
    sandbox: Sandbox,
    group: Option<Box<dyn Group>>,
    identity: Identity,
    nursery: Arc<Nursery>,
}

impl<'a, 'r> WarmRun<'a, 'r> {
    pub(crate) fn assign(
        shared: &'a Shared,
        request: RunRequest<'r>,
        undertaker: SyncSender<Remains>,
    ) -> Result<Self, RunError> {
        let script = request.script_name()?;
        if request.tools.is_some() && !["py", "bash"].contains(&request.language.id) {
            return Err(RunError::ToolsInLanguage(request.language.id.to_owned()));
        }
        check_names(&request.inputs, &script)?;
        let turn = Running::begin(shared);
        let (mut ready, pool) = shared.take(&request, &script)?;
        let limits = Weakening::from_environment().limits(&request.terms.limits);
        let mut run = Self {
            shared,
            script,
            layers: ready.nursery.layers.clone(),
            limits,
            prepared: None,
            remains: None,
            files: WorkspaceFiles::new(ready.identity.ids),
            room: Room::default(),
            aside: None,
            undertaker,
            took: Took::default(),
            request,
            _running: turn,
        };
        let (payload, reader) = run.payload(pool, &ready)?;
        if run.aside.as_ref().is_none_or(|aside| aside.tools.is_none()) {
            ready.pipes.expect(&run.request.stdin);
        }
        if run.limits != ready.limits
            && let Some(group) = &mut ready.group
        {
            let device = || ready.nursery.runtime().block_device();
            group.set_limits(&GroupLimits::from_limits(&run.limits, device))?;
        }
        add_group_layers(ready.group.as_deref(), &shared.config.waived, &mut run.layers)?;
        let mut assignment = ready.nursery.assignment(&run.limits, ready.group.is_some());
        if !run.request.inputs.is_empty() {
            // They come on top of what the code may write.
            run.room = Room::of(&run.request.inputs)?;
            assignment.disk = assignment.disk.saturating_add(run.room.bytes);
            assignment.inodes += run.room.inodes;
            run.files.put(ready.sandbox.make_room(&assignment)?, &run.request.inputs)?;
        }
        run.prepared = Some(Prepared { ready, assignment, payload, reader });
        Ok(run)
    }

    /// What only the program's own process reads, and who that is.
    fn payload(&mut self, pool: &Pool, ready: &Ready) -> Result<(Vec<u8>, Reader), RunError> {
        let arguments = &self.request.arguments;
        match pool.kind() {
            Kind::Exec | Kind::Staged => {
                let mut program = Invocation::new(
                    ready.nursery.runtime(),
                    self.request.language,
                    &self.script,
                    arguments,
                    &self.request.terms.limits,
                )?;
                if let Some(tools) = self.request.tools.take() {
                    let nonce = nonce()?;
                    program = bash_tools::with_tools(program, &tools, &nonce);
                    self.aside = Some(Aside::new(&nonce, Some(tools)));
                }
                let payload = ExecPayload::encode(&program.path, &program.argv, &program.environment())?;
                Ok((payload, Reader::Jail))
            }
            Kind::Ahead(_) => {
                let mut payload = serde_json::json!({ "arguments": arguments, "script": self.script });
                if pool.seal() == Seal::Ahead {
                    payload["code"] = base64(&self.request.source.code).into();
                }
                Ok((payload.to_string().into_bytes(), Reader::Program))
            }
            Kind::Zygote { .. } => {
                let options = self.options()?;
                let arguments = &self.request.arguments;
                let words: Vec<_> =
                    [&options, &self.script].into_iter().chain(arguments).map(String::as_str).collect();
                match words.iter().find(|word| word.contains('\0')) {
                    Some(word) => Err(PlanError::NulByte((*word).to_owned()).into()),
                    None => Ok((words.join("\0").into_bytes(), Reader::Jail)),
                }
            }
        }
    }
}

impl WarmRun<'_, '_> {
    /// What a copy of a zygote is to do beyond running a script: JSON, or nothing.
    fn options(&mut self) -> io::Result<String> {
        let Self { request, script, aside, .. } = self;
        // A module beside the script goes before one that is loaded already; the script can be one too.
        let shadows = !request.inputs.is_empty() || *script != request.language.script;
        let speaks = request.last_value || request.tools.is_some();
        if !shadows && !speaks && request.terms.libraries == Libraries::All {
            return Ok(String::new());
        }
        let names: Vec<_> = request.tools.iter().flat_map(Tools::names).collect();
        let nonce = if speaks { nonce()? } else { String::new() };
        let mut options = serde_json::json!({
            "nonce": nonce, "value": request.last_value, "tools": names, "shadows": shadows,
        });
        name_libraries(&mut options, &request.terms);
        let options = options.to_string();
        if speaks {
            *aside = Some(Aside::new(&nonce, request.tools.take()));
        }
        Ok(options)
    }
}

/// Tells a copy of a zygote which libraries its program may import, if not all.
pub(super) fn name_libraries(options: &mut serde_json::Value, terms: &Terms) {
    if let Some(names) = terms.libraries.listed() {
        options["libraries"] = names.into();
        options["profile"] = terms.profile.as_str().into();
    }
}

/// What the frames of one run begin with.
pub(super) fn nonce() -> io::Result<String> {
    let mut bytes = [0u8; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

impl Assigned for WarmRun<'_, '_> {
    fn run(&mut self, observer: &mut dyn Observer, cancel: &Cancel) -> Result<RunReport, RunError> {
        let prepared = self.prepared.take().ok_or(RunError::ShuttingDown)?;
        let assigning = Instant::now();
        let Prepared { ready, assignment, payload, reader } = prepared;
        let Ready { sandbox, pipes, group, identity, nursery, .. } = ready;
        let work = Work { name: &self.script, code: &self.request.source.code, payload: &payload, reader };
        let sandbox = sandbox.assign(&assignment, &work)?;
        let remains = self.remains.insert(Remains { sandbox, group, identity, nursery });
        self.took.assign = assigning.elapsed();
        let running = Instant::now();
        let limits = &self.limits;
        let half = limits.output.0 / 2;
        let mut watched = Supervisor {
            sandbox: &mut remains.sandbox,
            group: remains.group.as_deref(),
            limits,
            interrupt: Interrupt::Cancel(cancel),
            observer,
            pipes,
            stdin: std::mem::take(&mut self.request.stdin),
            tail: if self.request.live { half.min(4096) } else { half },
            aside: self.aside.take(),
        }
        .watch()?;
        self.took.run = watched.wall;
        // All of it, also where it waited for tools and its clock stood still.
        observer.phase(Phase::Run, running, running.elapsed());
        watched.disk.leave_out(remains.nursery.own_inodes(), self.room);
        let isolation = IsolationReport {
            engine: "native".to_owned(),
            mode: remains.identity.mode().to_owned(),
            layers: self.layers.clone(),
            missing: remains.nursery.missing.clone(),
            cgroup_version: remains.group.as_deref().map(Group::version),
            landlock_abi: self.shared.host.landlock_abi,
            host_uid: remains.identity.ids.host_uid,
        };
        let report = report(self.request.language.id, &self.request.terms, watched, isolation, observer);
        let code = std::mem::take(&mut self.request.source.code);
        let harvesting = Instant::now();
        let (workspace, script) = (remains.sandbox.workspace(), (self.script.as_str(), code.as_slice()));
        let report = add_files(report, workspace, &mut self.files, script, &mut self.request, limits);
        self.took.harvest = harvesting.elapsed();
        observer.phase(Phase::Harvest, harvesting, self.took.harvest);
        report
    }

    fn took(&self) -> Took {
        self.took
    }

    fn kill(&mut self) {
        self.prepared = None;
        if let Some(remains) = &mut self.remains {
            remains.sandbox.kill_and_wait();
        }
    }

    fn usage(&self) -> GroupUsage {
        let group = self.remains.as_ref().and_then(|remains| remains.group.as_deref());
        group.map(Group::usage).unwrap_or_default()
    }

    fn weight(&self) -> Option<Weight> {
        let group = self.prepared.as_ref()?.ready.group.as_deref()?;
        Some(group.weight())
    }
}

impl Drop for WarmRun<'_, '_> {
    fn drop(&mut self) {
        if let Some(remains) = self.remains.take() {
            // If there is no room, or nobody, it is done here: what comes back is dropped.
            let _ = self.undertaker.try_send(remains);
        }
    }
}
