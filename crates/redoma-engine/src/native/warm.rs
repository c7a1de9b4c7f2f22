//! One run in a sandbox that waited.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;

use redoma_jail::cgroup::{Group, GroupLimits, GroupUsage};
use redoma_jail::janitor::OwnerTag;
use redoma_jail::nursery::{Assignment, ExecPayload, Reader, Work};
use redoma_jail::{PlanError, Sandbox, Weakening};
use redoma_model::{IsolationReport, Layer, Limits, RunReport};

use super::Shared;
use super::nursery::Nursery;
use super::pool::{Kind, Pool, Ready, Seal};
use crate::backend::Assigned;
use crate::base64::base64;
use crate::cold::add_group_layers;
use crate::identity::Identity;
use crate::outcome::{add_files, report};
use crate::program::Invocation;
use crate::request::{RunError, RunRequest};
use crate::staging::{RunFolder, check_names};
use crate::supervise::{Cancel, Haste, Interrupt, Observer, Supervisor};

/// A sandbox with a request's program in it.
#[derive(Debug)]
pub(crate) struct WarmRun<'a> {
    shared: &'a Shared,
    request: RunRequest<'a>,
    script: String,
    limits: Limits,
    layers: Vec<Layer>,
    /// Until it runs.
    prepared: Option<Prepared>,
    /// From then on.
    remains: Option<Remains>,
    run_folder: Option<RunFolder>,
    undertaker: SyncSender<Remains>,
    _running: Running<'a>,
}

/// A sandbox that has everything but the word to begin.
#[derive(Debug)]
struct Prepared {
    ready: Ready,
    assignment: Assignment,
    payload: Vec<u8>,
    reader: Reader,
    inputs: Option<OwnedFd>,
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
    _run_folder: Option<RunFolder>,
    nursery: Arc<Nursery>,
}

impl<'a> WarmRun<'a> {
    pub(crate) fn assign(
        shared: &'a Shared,
        request: RunRequest<'a>,
        undertaker: SyncSender<Remains>,
    ) -> Result<Self, RunError> {
        let script = request.script_name()?;
        check_names(&request.inputs, &script)?;
        let turn = Running::begin(shared);
        let (mut ready, pool) = shared.take(&request, &script)?;
        let limits = Weakening::from_environment().limits(&request.profile.limits);
        let mut run = Self {
            shared,
            script,
            layers: ready.nursery.layers.clone(),
            limits,
            prepared: None,
            remains: None,
            run_folder: None,
            undertaker,
            request,
            _running: turn,
        };
        let (payload, reader) = run.payload(pool, &ready)?;
        ready.pipes.expect(&run.request.stdin);
        let mut inputs = None;
        if !run.request.inputs.is_empty() {
            let tag = OwnerTag::new();
            let parent = shared.config.data_dir.join("run");
            let folder = RunFolder::make(&parent, tag.as_str(), Some(ready.identity.ids))?;
            folder.stage(&run.request.inputs, ready.identity.ids)?;
            inputs = Some(ready.nursery.keeper().open_inputs(tag.as_str())?);
            run.run_folder = Some(folder);
        }
        if run.limits != ready.limits
            && let Some(group) = &mut ready.group
        {
            let device = || ready.nursery.runtime().block_device();
            group.set_limits(&GroupLimits::from_limits(&run.limits, device))?;
        }
        add_group_layers(ready.group.as_deref(), &shared.config.waived, &mut run.layers)?;
        let assignment = ready.nursery.assignment(&run.limits, ready.group.is_some());
        run.prepared = Some(Prepared { ready, assignment, payload, reader, inputs });
        Ok(run)
    }

    /// What only the program's own process reads, and who that is.
    fn payload(&self, pool: &Pool, ready: &Ready) -> Result<(Vec<u8>, Reader), RunError> {
        let arguments = &self.request.arguments;
        match pool.kind() {
            Kind::Exec | Kind::Staged => {
                let program = Invocation::new(
                    ready.nursery.runtime(),
                    self.request.language,
                    &self.script,
                    arguments,
                    &self.request.profile.limits,
                )?;
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
                let words: Vec<_> = [&self.script].into_iter().chain(arguments).map(String::as_str).collect();
                match words.iter().find(|word| word.contains('\0')) {
                    Some(word) => Err(PlanError::NulByte((*word).to_owned()).into()),
                    None => Ok((words.join("\0").into_bytes(), Reader::Jail)),
                }
            }
        }
    }
}

impl Assigned for WarmRun<'_> {
    fn run(&mut self, observer: &mut dyn Observer, cancel: &Cancel) -> Result<RunReport, RunError> {
        let prepared = self.prepared.take().ok_or(RunError::ShuttingDown)?;
        let Prepared { ready, assignment, payload, reader, inputs } = prepared;
        let Ready { sandbox, pipes, group, identity, nursery, .. } = ready;
        let work = Work { name: &self.script, code: &self.request.source.code, payload: &payload, reader };
        let sandbox = sandbox.assign(&assignment, &work, inputs.as_ref().map(AsFd::as_fd))?;
        let run_folder = self.run_folder.take();
        let remains =
            self.remains.insert(Remains { sandbox, group, identity, _run_folder: run_folder, nursery });
        let limits = &self.limits;
        let half = limits.output.0 / 2;
        let mut watched = Supervisor {
            sandbox: &mut remains.sandbox,
            group: remains.group.as_deref(),
            limits,
            interrupt: Interrupt::Cancel(cancel),
            haste: Haste::AnswerFirst,
            observer,
            pipes,
            stdin: std::mem::take(&mut self.request.stdin),
            tail: if self.request.live { half.min(4096) } else { half },
        }
        .watch()?;
        watched.disk.files = watched.disk.files.saturating_sub(remains.nursery.own_inodes());
        let isolation = IsolationReport {
            engine: "native".to_owned(),
            mode: remains.identity.mode().to_owned(),
            layers: self.layers.clone(),
            missing: remains.nursery.missing.clone(),
            cgroup_version: remains.group.as_deref().map(Group::version),
            landlock_abi: self.shared.host.landlock_abi,
            host_uid: remains.identity.ids.host_uid,
        };
        let report = report(&self.request.language.id, &self.request.profile, watched, isolation, observer);
        let script = (self.script.as_str(), self.request.source.code.as_slice());
        add_files(report, remains.sandbox.workspace(), script, &self.request, limits)
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
}

impl Drop for WarmRun<'_> {
    fn drop(&mut self) {
        if let Some(remains) = self.remains.take() {
            // If there is no room, or nobody, it is done here: what comes back is dropped.
            let _ = self.undertaker.try_send(remains);
        }
    }
}
