//! One run in a sandbox made for it, and gone with it.

use std::cell::LazyCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use redoma_jail::cgroup::{CgroupError, Entry, Group, GroupLimits, Hierarchy};
use redoma_jail::janitor::{Janitor, Leftovers, Made, OwnerTag};
use redoma_jail::{Plan, Sandbox, SignalPipe, Starting, Stdio, TreeEntry, Weakening};
use redoma_model::{IsolationReport, Layer, RunReport};

use crate::host::{Host, Refused, has_swap};
use crate::identity::{Identities, Identity};
use crate::outcome::{add_files, report};
use crate::pipes::Pipes;
use crate::program::Invocation;
use crate::request::{RunError, RunRequest};
use crate::runtime::{INSIDE, Runtime};
use crate::staging::check_names;
use crate::supervise::{Interrupt, Observer, Supervisor};
use crate::workspace::{Room, WorkspaceFiles};

/// Where runs take place.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    pub host: &'a Host,
    pub data_dir: &'a Path,
    /// Whether the calling process ends at once after this run: then what is left of the sandbox goes with it, and that takes less
    /// time than to end it first.
    pub is_last: bool,
    /// Layers that the operator lets be missing.
    pub waived: &'a [Layer],
}

/// Runs a program to its end. The calling process must have a single thread.
pub fn run(
    place: Place<'_>,
    runtime: &Runtime,
    mut request: RunRequest<'_>,
    observer: &mut dyn Observer,
) -> Result<RunReport, RunError> {
    let Place { host, data_dir, is_last, waived } = place;
    if request.tools.is_some() {
        return Err(RunError::ToolsWithoutEngine);
    }
    debug_assert!(redoma_jail::is_single_threaded(), "a clone would lose the other threads' locks");
    let (mut layers, missing) = host.layers_or_refuse(waived)?;
    let weakening = Weakening::from_environment();
    let limits_of_request = &request.terms.limits;
    let limits = &weakening.limits(limits_of_request);
    let script = request.script_name()?;
    check_names(&request.inputs, &script)?;
    let program = Invocation::new(runtime, request.language, &script, &request.arguments, limits_of_request)?
        .program()?;

    let run_parent = data_dir.join("run");
    // Found out when something is to be made by that name: mostly while the sandbox is on its way already.
    let tag = LazyCell::new(OwnerTag::new);
    let identities = Identities::find()?;
    let identity = identities.take()?;
    let ids = identity.ids;
    let signals = SignalPipe::block().map_err(io::Error::from)?;
    // Nothing is made on the host that the janitor does not know of already. That is first the cgroup, and the janitor can be
    // started beside the sandbox.
    let leftovers = LazyCell::new(|| Leftovers {
        made: Made::OneRun {
            cgroup_folders: host
                .hierarchy
                .iter()
                .flat_map(|hierarchy| hierarchy.folders(tag.as_str()))
                .collect(),
        },
        cgroup_parents: host.hierarchy.iter().flat_map(Hierarchy::parents).collect(),
        run_parent: run_parent.clone(),
    });
    let start_janitor = || Janitor::start(&leftovers, identities.uids());
    let mut tree = runtime.tree()?;
    if request.language.stage.is_some() {
        tree.push(TreeEntry::folder(".redoma")?);
        // By its path: /proc/self/exe leads to a mount of the host's namespace, which can't be copied from inside.
        tree.push(TreeEntry::bind_file(&std::env::current_exe()?, INSIDE)?);
    }
    tree.extend(weakening.extra_binds()?);
    let mut plan = Plan::new(ids, limits, &layers, tree, runtime.home()?, program)?;
    plan.set_script(&script, request.source.code.clone())?;
    let room = Room::of(&request.inputs)?;
    plan.add_room(limits, room.bytes, room.inodes)?;

    let (mut pipes, theirs) = Pipes::new()?;
    pipes.expect(&request.stdin);
    identity.own_pipes(&theirs)?;
    let stdio =
        Stdio { stdin: theirs.stdin.as_fd(), stdout: theirs.stdout.as_fd(), stderr: theirs.stderr.as_fd() };
    let limits_of_group = GroupLimits::from_limits(limits, || runtime.block_device());
    let make_group = |hierarchy: &Hierarchy| hierarchy.create(&tag, &limits_of_group);
    let (janitor, group, mut starting) = begin(host, &plan, stdio, start_janitor, make_group)?;
    add_group_layers(group.as_deref(), waived, &mut layers)?;
    let mut files = WorkspaceFiles::new(ids);
    if !request.inputs.is_empty() {
        files.put(starting.workspace()?, &request.inputs)?;
    }
    let mut sandbox = starting.finish(group.as_deref())?;
    drop(theirs);
    let half = limits.output.0 / 2;
    let mut watched = Supervisor {
        sandbox: &mut sandbox,
        group: group.as_deref(),
        limits,
        interrupt: Interrupt::Signals(&signals),
        observer,
        pipes,
        stdin: std::mem::take(&mut request.stdin),
        tail: if request.live { half.min(4096) } else { half },
        aside: None,
    }
    .watch()?;

    watched.disk.leave_out(plan.own_inodes(), room);
    let cgroup_version = group.as_deref().map(Group::version);
    let abandoned = watched.abandoned;
    let isolation = IsolationReport {
        engine: "native".to_owned(),
        mode: identity.mode().to_owned(),
        layers,
        missing,
        cgroup_version,
        landlock_abi: host.landlock_abi,
        host_uid: ids.host_uid,
    };
    let report = report(request.language.id, &request.terms, watched, isolation, observer);
    let code = std::mem::take(&mut request.source.code);
    let report = add_files(report, sandbox.workspace(), &mut files, (&script, &code), &mut request, limits);
    let ends_now = is_last && !observer.is_behind();
    Remains { sandbox, group, identity, janitor }.leave(abandoned, ends_now);
    report
}

/// What a run leaves on the host. Nothing runs any more but perhaps the sandbox's own init, which is on its way out.
struct Remains {
    sandbox: Sandbox,
    group: Option<Box<dyn Group>>,
    identity: Identity,
    janitor: Janitor,
}

impl Remains {
    /// All that goes while the answer is read: the janitor sees to it, and keeps the uid meanwhile. In the attack suite's own
    /// build somebody looks at what is left right after this.
    fn leave(mut self, abandoned: bool, ends_now: bool) {
        if abandoned {
            std::mem::forget(self.group);
            self.janitor.dismiss();
        } else if Weakening::from_environment().has("kill") || !Janitor::outlives_us() {
            self.sandbox.kill_and_wait();
            drop(self.group);
            self.janitor.dismiss();
        } else if ends_now {
            // It all goes with this process.
            std::mem::forget(self);
        } else {
            self.sandbox.leave_to_its_end();
            std::mem::forget((self.group, self.identity));
            self.janitor.hand_over();
        }
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
    start_janitor: impl FnOnce() -> io::Result<Janitor>,
    make_group: impl FnOnce(&Hierarchy) -> Result<Box<dyn Group>, CgroupError>,
) -> Result<Begun<'a>, RunError> {
    let hierarchy = match &host.hierarchy {
        Ok(hierarchy) if hierarchy.version() == 2 => {
            let janitor = start_janitor()?;
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
    let janitor = start_janitor()?;
    let group = hierarchy.map(make_group).transpose()?;
    Ok((janitor, group, starting))
}

/// Swap needs limiting only where there is any; reads from disk are limited where the device can be.
pub(crate) fn add_group_layers(
    group: Option<&dyn Group>,
    waived: &[Layer],
    layers: &mut Vec<Layer>,
) -> Result<(), Refused> {
    let given = group.map(Group::layers).unwrap_or_default();
    // A nursery's sandboxes have these from the nursery's own group; what counts is theirs.
    layers.retain(|layer| !matches!(layer, Layer::Swap | Layer::Io));
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
