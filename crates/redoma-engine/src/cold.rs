//! One run in a sandbox made for it, and gone with it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use redoma_jail::cgroup::{CgroupError, Entry, Group, GroupLimits, GroupUsage, Hierarchy};
use redoma_jail::host_uid::{HostUid, HostUidError};
use redoma_jail::janitor::{Janitor, Leftovers, OwnerTag};
use redoma_jail::{
    Event, Ids, JailError, Plan, PlanError, Program, SignalPipe, Starting, Stdio, TreeEntry, WORKSPACE,
    Weakening,
};
use redoma_model::{Ending, IsolationReport, Layer, LimitName, Limits, Profile, RunReport, Usage, UsedOf};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::capture::Stream;
use crate::harvest::{Harvest, HarvestError, harvest};
use crate::host::{Host, Refused, has_swap};
use crate::language::{Language, Stage};
use crate::runtime::{INSIDE, Runtime, RuntimeError};
use crate::staging::{Input, RunFolder, StagingError, check_names};
use crate::supervise::{Observer, Pipes, Stdin, Stop, Supervisor, Watched};

/// The program to run.
#[derive(Debug, Clone)]
pub struct Source {
    pub code: Vec<u8>,
    /// Its file name in the workspace; the language's own where the caller gives none.
    pub name: Option<String>,
}

/// Everything about one run.
#[derive(Debug)]
pub struct RunRequest<'a> {
    pub language: &'a Language,
    pub source: Source,
    pub arguments: Vec<String>,
    pub stdin: Stdin,
    pub inputs: Vec<Input>,
    pub profile: Profile,
    /// Layers that the operator lets be missing.
    pub waived: &'a [Layer],
    pub data_dir: &'a Path,
    /// Where results are copied to.
    pub out: Option<PathBuf>,
    /// Whether anybody wants to know which files the program made.
    pub list_files: bool,
    /// Whether the observer shows output as it comes: then only a short tail is held back.
    pub live: bool,
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
    #[error("could not prepare the run: {0}")]
    Prepare(#[from] io::Error),
    /// The program ran, and its results could not be kept.
    #[error("{error}")]
    Harvest { report: Box<RunReport>, error: HarvestError },
    #[error("the script's name `{0}` must be a plain file name")]
    ScriptName(String),
}

/// Where root keeps what concerns the whole host and must not outlive a boot.
const HOST_STATE: &str = "/run/redoma";

/// Runs a program to its end. The calling process must have a single thread.
pub fn run(
    host: &Host,
    runtime: &Runtime,
    request: RunRequest<'_>,
    observer: &mut dyn Observer,
) -> Result<RunReport, RunError> {
    debug_assert!(redoma_jail::is_single_threaded(), "a clone would lose the other threads' locks");
    let (mut layers, missing) = host.layers_or_refuse(request.waived)?;
    let weakening = Weakening::from_environment();
    let limits = &weakening.limits(&request.profile.limits);
    let script = script_name(&request)?;
    check_names(&request.inputs, &script)?;
    let program = program(runtime, &request, &script)?;

    let run_parent = request.data_dir.join("run");
    let tag = OwnerTag::new();
    let (ids, host_uid) = take_ids()?;
    let signals = SignalPipe::block().map_err(io::Error::from)?;
    // Nothing is made on the host that the janitor does not know of already. Without inputs that is first the cgroup, and
    // the janitor can be started beside the sandbox.
    let leftovers = Leftovers {
        cgroup_folders: host.hierarchy.iter().flat_map(|hierarchy| hierarchy.folders(tag.as_str())).collect(),
        run_folder: (!request.inputs.is_empty()).then(|| run_parent.join(tag.as_str())),
        cgroup_parents: host.hierarchy.iter().flat_map(Hierarchy::parents).collect(),
        run_parent: run_parent.clone(),
    };
    let start_janitor = || Janitor::start(&leftovers, host_uid.as_ref());
    let early_janitor = (!request.inputs.is_empty()).then(start_janitor).transpose()?;
    let mut tree = runtime.tree()?;
    if request.language.stage.is_some() {
        tree.push(TreeEntry::folder(".redoma")?);
        // By its path: /proc/self/exe leads to a mount of the host's namespace, which can't be copied from inside.
        tree.push(TreeEntry::bind_file(&std::env::current_exe()?, INSIDE)?);
    }
    tree.extend(weakening.extra_binds()?);
    let mut plan = Plan::new(ids, limits, &layers, tree, runtime.home()?, program)?;
    plan.set_script(&script, request.source.code.clone())?;
    let run_folder =
        (!request.inputs.is_empty()).then(|| RunFolder::make(&run_parent, tag.as_str())).transpose()?;
    if let Some(folder) = &run_folder {
        plan.set_inputs(&folder.stage(&request.inputs, ids)?)?;
    }

    let (pipes, theirs) = Pipes::new(&request.stdin)?;
    if ids.by_root {
        give_pipes_to(&theirs, ids)?;
    }
    let stdio =
        Stdio { stdin: theirs.stdin.as_fd(), stdout: theirs.stdout.as_fd(), stderr: theirs.stderr.as_fd() };
    let limits_of_group = GroupLimits::from_limits(limits, || runtime.block_device());
    let make_group = |hierarchy: &Hierarchy| hierarchy.create(tag.as_str(), &limits_of_group);
    let (mut janitor, group, starting) = begin(host, &plan, stdio, early_janitor, start_janitor, make_group)?;
    add_group_layers(group.as_deref(), request.waived, &mut layers)?;
    let mut sandbox = starting.finish(group.as_deref())?;
    drop(theirs);
    let half = limits.output.0 / 2;
    let mut watched = Supervisor {
        sandbox: &mut sandbox,
        group: group.as_deref(),
        limits,
        signals: &signals,
        observer,
        pipes,
        stdin: request.stdin,
        tail: if request.live { half.min(4096) } else { half },
    }
    .watch()?;

    watched.disk.files = watched.disk.files.saturating_sub(plan.own_inodes());
    let used = watched.used;
    let cgroup_version = group.as_deref().map(Group::version);
    // Nothing runs any more: the group and the staged inputs can go, and with them the janitor's reason to watch.
    if watched.abandoned {
        std::mem::forget(group);
    } else {
        drop(group);
    }
    drop(run_folder);
    janitor.dismiss();

    let isolation = IsolationReport {
        engine: "native".to_owned(),
        mode: if ids.by_root { "root" } else { "rootless" }.to_owned(),
        layers,
        missing,
        cgroup_version,
        landlock_abi: host.landlock_abi,
        host_uid: ids.host_uid,
    };
    let mut report = report(&request.language.id, &request.profile, watched, used, isolation, observer);
    let script = (script.as_str(), request.source.code.as_slice());
    let wants_files = request.list_files || request.out.is_some();
    let harvested = if wants_files {
        harvest(sandbox.workspace(), script, limits.disk.0, request.out.as_deref())
    } else {
        Ok(Harvest::default())
    };
    match harvested {
        Ok(harvest) => {
            report.files = harvest.files;
            report.skipped_files = harvest.skipped;
            report.unlisted_files = harvest.unlisted;
            Ok(report)
        }
        Err(error) => Err(RunError::Harvest { report: Box::new(report), error }),
    }
}

/// A sandbox on its way, and what goes with it.
type Begun<'a> = (Janitor, Option<Box<dyn Group>>, Starting<'a>);

/// Clones the sandbox and makes what goes with it.
///
/// On version 2 a process is born in its group. On version 1 it enters it later, so that the janitor can be started and
/// the group be made while the sandbox's file system is being built, on another core.
fn begin<'a>(
    host: &Host,
    plan: &'a Plan,
    stdio: Stdio<BorrowedFd<'_>>,
    janitor: Option<Janitor>,
    start_janitor: impl FnOnce() -> io::Result<Janitor>,
    make_group: impl FnOnce(&Hierarchy) -> Result<Box<dyn Group>, CgroupError>,
) -> Result<Begun<'a>, RunError> {
    let janitor_now = |janitor: Option<Janitor>| janitor.map_or_else(start_janitor, Ok);
    let hierarchy = match &host.hierarchy {
        Ok(hierarchy) if hierarchy.version() == 2 => {
            let janitor = janitor_now(janitor)?;
            let group = make_group(hierarchy)?;
            let into = match group.entry() {
                Entry::CloneInto(folder) => Some(folder),
                Entry::WriteSelf(_) => None,
            };
            let starting = Starting::begin(plan, stdio, into)?;
            return Ok((janitor, Some(group), starting));
        }
        other => other.as_ref().ok(),
    };
    let starting = Starting::begin(plan, stdio, None)?;
    let janitor = janitor_now(janitor)?;
    let group = hierarchy.map(make_group).transpose()?;
    Ok((janitor, group, starting))
}

fn script_name(request: &RunRequest<'_>) -> Result<String, RunError> {
    let name = request.source.name.as_deref().unwrap_or(&request.language.script);
    let is_plain = !name.is_empty() && !name.contains(['/', '\0']) && name != "." && name != "..";
    if is_plain { Ok(name.to_owned()) } else { Err(RunError::ScriptName(name.to_owned())) }
}

fn program(runtime: &Runtime, request: &RunRequest<'_>, script: &str) -> Result<Program, RunError> {
    let language = request.language;
    let path = runtime.program(language)?;
    let mut argv = vec![path.to_owned()];
    argv.extend(language.arguments.iter().map(|argument| argument.replace("{script}", script)));
    argv.extend(request.arguments.iter().cloned());
    let mut environment = vec![
        ("PATH", "/opt/python/bin:/usr/local/bin:/usr/bin:/bin".to_owned()),
        ("HOME", "/home/sandbox".to_owned()),
        ("USER", "sandbox".to_owned()),
        ("LOGNAME", "sandbox".to_owned()),
        ("PWD", WORKSPACE.to_owned()),
        ("TMPDIR", "/tmp".to_owned()),
        ("LANG", "C.UTF-8".to_owned()),
        ("TZ", "UTC".to_owned()),
        ("TERM", "dumb".to_owned()),
        // Numeric libraries start a thread per core of the host, unless told how many they may use.
        ("OMP_NUM_THREADS", threads(&request.profile.limits)),
        ("OPENBLAS_NUM_THREADS", threads(&request.profile.limits)),
    ];
    if Weakening::from_environment().has("environment") {
        for (key, value) in std::env::vars() {
            environment.push((Box::leak(key.into_boxed_str()), value));
        }
    }
    environment.extend(language.environment.iter().map(|(key, value)| (key.as_str(), value.clone())));
    match language.stage {
        None => Ok(Program::new(path, &argv, &environment)?),
        Some(Stage::Typescript) => {
            // inside typescript SCRIPT PROGRAM ARGUMENTS…: compiles, then becomes the program.
            let inside = format!("/{INSIDE}");
            let mut staged = vec![inside.clone(), "typescript".to_owned(), script.to_owned()];
            staged.extend(argv);
            Ok(Program::new(inside, &staged, &environment)?)
        }
    }
}

fn threads(limits: &Limits) -> String {
    (limits.cpus.0.div_ceil(1000)).max(1).to_string()
}

/// Programs open `/dev/stdout` and `/dev/stderr` by name, for which the pipes must be their own.
fn give_pipes_to(stdio: &Stdio<OwnedFd>, ids: Ids) -> io::Result<()> {
    for pipe in [&stdio.stdin, &stdio.stdout, &stdio.stderr] {
        std::os::unix::fs::fchown(pipe, Some(ids.host_uid), Some(ids.host_gid))?;
    }
    Ok(())
}

/// Root gives each sandbox a uid of its own; anybody else has only theirs to give.
fn take_ids() -> Result<(Ids, Option<HostUid>), HostUidError> {
    let uid = rustix::process::geteuid().as_raw();
    if uid != 0 {
        let gid = rustix::process::getegid().as_raw();
        return Ok((Ids { host_uid: uid, host_gid: gid, by_root: false }, None));
    }
    let host_uid = HostUid::take(Path::new(HOST_STATE))?;
    Ok((Ids { host_uid: host_uid.uid(), host_gid: host_uid.uid(), by_root: true }, Some(host_uid)))
}

/// Swap needs limiting only where there is any; reads from disk are limited where the device can be.
fn add_group_layers(
    group: Option<&dyn Group>,
    waived: &[Layer],
    layers: &mut Vec<Layer>,
) -> Result<(), Refused> {
    let given = group.map(Group::layers).unwrap_or_default();
    if given.contains(&Layer::Swap) || !has_swap() {
        layers.push(Layer::Swap);
    } else if !waived.contains(&Layer::Swap) {
        let reason =
            "the host swaps and its kernel does not limit that per group (boot it with swapaccount=1)";
        return Err(Refused { layer: Layer::Swap, reason: reason.to_owned() });
    }
    if given.contains(&Layer::Io) {
        layers.push(Layer::Io);
    }
    Ok(())
}

fn report(
    language: &str,
    profile: &Profile,
    mut watched: Watched,
    used: GroupUsage,
    isolation: IsolationReport,
    observer: &mut dyn Observer,
) -> RunReport {
    let limits = &profile.limits;
    let (ending, limit) = ending(&watched, used, limits);
    let limits_hit = limits_hit(&watched, used, limit);
    let (exit_code, signal) = match watched.event {
        Event::Exited(code) => (Some(code), None),
        Event::Signaled(signal) => (None, Some(signal)),
        Event::Gone => (None, Some(9)),
    };
    // Of a run that the caller ended, the signal that the caller sent is the one to tell.
    let signal = match watched.stop {
        Some(Stop::Signal(sent)) => Some(sent),
        _ => signal,
    };
    let of = |used: u64, limit: u64| UsedOf { used, limit };
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let usage = Usage {
        wall_ms: of(millis(watched.wall), millis(limits.wall.0)),
        cpu_ms: of(millis(used.cpu.unwrap_or_default()), millis(limits.cpu_time.0)),
        cpu_user_ms: used.cpu_user.map(millis),
        cpu_system_ms: used.cpu_system.map(millis),
        memory_peak_bytes: used.memory_peak.map(|peak| of(peak, limits.memory.0)),
        // The group counts the sandbox's init too; the limit does not.
        pids_peak: used
            .pids_peak
            .map(|peak| peak.saturating_sub(1))
            .or(used.pids_current.map(|_| watched.pids_seen))
            .map(|peak| of(peak, limits.pids)),
        disk_bytes: of(watched.disk.bytes, limits.disk.0),
        files: of(watched.disk.files, limits.files),
        stdout_bytes: of(watched.stdout.total(), limits.output.0),
        stderr_bytes: of(watched.stderr.total(), limits.output.0),
    };
    for (stream, capture) in [(Stream::Stdout, &mut watched.stdout), (Stream::Stderr, &mut watched.stderr)] {
        let ending = capture.ending();
        if !ending.is_empty() {
            observer.output(stream, &ending);
        }
    }
    RunReport {
        language: language.to_owned(),
        profile: profile.name.clone(),
        ending,
        exit_code,
        signal: signal.map(signal_name),
        signal_number: signal,
        limit,
        limits_hit,
        stdout: watched.stdout.finish(),
        stderr: watched.stderr.finish(),
        usage,
        files: Vec::new(),
        skipped_files: Vec::new(),
        unlisted_files: 0,
        isolation,
    }
}

fn ending(watched: &Watched, used: GroupUsage, limits: &Limits) -> (Ending, Option<LimitName>) {
    match (watched.stop, watched.event) {
        (Some(Stop::Limit(limit)), _) => (Ending::Limit, Some(limit)),
        (Some(Stop::Signal(_)), _) => (Ending::Cancelled, None),
        (None, Event::Exited(_)) => (Ending::Exited, None),
        (None, Event::Signaled(9) | Event::Gone) if used.oom_kills > 0 => {
            (Ending::Limit, Some(LimitName::Memory))
        }
        (None, Event::Signaled(SIGXCPU)) if used.cpu.is_none_or(|cpu| cpu >= limits.cpu_time.0) => {
            (Ending::Limit, Some(LimitName::CpuTime))
        }
        (None, Event::Signaled(SIGXFSZ)) => (Ending::Limit, Some(LimitName::Disk)),
        (None, Event::Signaled(_) | Event::Gone) => (Ending::Signaled, None),
    }
}

const SIGXCPU: i32 = 24;
const SIGXFSZ: i32 = 25;

fn limits_hit(watched: &Watched, used: GroupUsage, ended_by: Option<LimitName>) -> Vec<LimitName> {
    let mut hit: Vec<_> = ended_by.into_iter().collect();
    let mut add = |limit, is_hit: bool| {
        if is_hit && !hit.contains(&limit) {
            hit.push(limit);
        }
    };
    add(LimitName::Memory, used.oom_kills > 0);
    add(LimitName::Pids, used.forks_refused > 0);
    add(LimitName::Disk, watched.disk.was_full);
    add(LimitName::Files, watched.disk.was_out_of_files);
    add(LimitName::Output, watched.stdout.is_truncated() || watched.stderr.is_truncated());
    hit
}

fn signal_name(number: i32) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
        "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
        "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    usize::try_from(number - 1)
        .ok()
        .and_then(|index| NAMES.get(index))
        .map_or_else(|| format!("signal {number}"), |name| format!("SIG{name}"))
}
