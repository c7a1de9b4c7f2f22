//! The process tree in which sandboxes are made: see `redoma_jail::nursery` for what it is and what keeps it in.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use redoma_jail::cgroup::{Group, GroupLimits, Hierarchy};
use redoma_jail::janitor::OwnerTag;
use redoma_jail::nursery::{
    Assignment, BLUEPRINT, Blueprint, Channel, FOLDER, Hurry, Order, ProgramAhead, SandboxFor,
};
use redoma_jail::{
    Plan, Program, Rlimits, Sandbox, Starting, Stdio, TreeEntry, Weakening, above_stdio, own_inodes,
};
use redoma_model::{ByteSize, Cores, Layer, Limits, Span};
use rustix::pipe::PipeFlags;

use super::Shared;
use super::pool::{Ready, Seal};
use crate::cold::add_group_layers;
use crate::identity::Identity;
use crate::language::Warm;
use crate::pipes::Pipes;
use crate::program::Invocation;
use crate::request::RunError;
use crate::runtime::{INSIDE, Runtime};

/// The library and the scripts of Python zygotes, below the nursery's own folder.
const LIBRARY: &str = ".redoma/zygote.so";
const ZYGOTE: &str = ".redoma/zygote.py";
const TOOLS: &str = ".redoma/redoma_tools.py";
/// What a Node that is started ahead of time runs first, in its sandbox's home. It removes itself.
const PREWARM: &str = ".prewarm.js";
/// The variant of sandboxes that have this program inside.
pub(crate) const STAGED: &str = "staged";

/// What the nursery itself may use. Its sandboxes are in groups of their own.
fn own_limits() -> Limits {
    Limits {
        memory: ByteSize::mib(4096),
        pids: 4096,
        cpus: Cores(64_000),
        disk: ByteSize::mib(64),
        wall: Span(std::time::Duration::MAX),
        ..Limits::default()
    }
}

/// A live nursery. Dropping the last of it ends everything in it.
#[derive(Debug)]
pub(crate) struct Nursery {
    keeper: Channel,
    sandbox: Sandbox,
    /// What its own processes print, which nobody asked for.
    said: OwnedFd,
    _group: Option<Box<dyn Group>>,
    _identity: Identity,
    /// Locked while it is in use.
    runtime: Runtime,
    pub(crate) layers: Vec<Layer>,
    pub(crate) missing: Vec<Layer>,
    plan_inodes: u64,
}

impl Nursery {
    pub(crate) fn start(shared: &Shared) -> Result<Self, RunError> {
        let config = &shared.config;
        let runtime = Runtime::find(&config.profile.runtime, &config.data_dir)?;
        let (mut layers, missing) = shared.host.layers_or_refuse(&config.waived)?;
        let identity = shared.identities.take()?;
        let weakening = Weakening::from_environment();
        let limits = weakening.limits(&config.profile.limits);

        // What its sandboxes will see.
        let mut tree = runtime.tree()?;
        tree.extend(weakening.extra_binds()?);
        let home = runtime.home()?;
        let invalid = || io::Error::other("the runtime has a name in it that is not UTF-8");
        let mut blueprint =
            Blueprint::new(&tree, &home, &layers, identity.ids.by_root, &limits).ok_or_else(invalid)?;
        // This program, which is the keeper, and in some sandboxes a stage before a language's own program.
        let own_program = [TreeEntry::folder(FOLDER)?, TreeEntry::bind_file(&config.inside.program, INSIDE)?];
        if !blueprint.add_variant(STAGED, &own_program, &[], None) {
            return Err(invalid().into());
        }
        for language in shared.languages.all() {
            let program =
                Invocation::new(&runtime, language, language.script, &[], &config.profile.limits).ok();
            match (language.warm, program) {
                (Some(Warm::Zygote), Some(program)) => blueprint.set_zygote(as_zygote(program)),
                (Some(Warm::Ahead), Some(program)) => {
                    let prewarm = [TreeEntry::file(PREWARM, config.inside.prewarm)?];
                    blueprint.add_variant(language.id, &[], &prewarm, Some(ahead(program)));
                }
                _ => {}
            }
        }
        let plan_inodes = own_inodes(&home);

        // What it sees itself: the same, and its own things.
        tree.extend(own_program);
        tree.push(TreeEntry::file(BLUEPRINT, blueprint.to_bytes())?);
        tree.push(TreeEntry::file(LIBRARY, config.inside.python_library)?);
        tree.push(TreeEntry::file(ZYGOTE, config.inside.zygote)?);
        tree.push(TreeEntry::file(TOOLS, config.inside.tools)?);
        for (name, content) in config.inside.kernel {
            tree.push(TreeEntry::file(format!("{FOLDER}/{name}"), *content)?);
        }
        let inside = format!("/{INSIDE}");
        let program = Program::new(&inside, &[inside.as_str(), "nursery"], &weakening_environment())?;
        let mut plan = Plan::for_nursery(identity.ids, &own_limits(), &layers, tree, program)?;
        plan.set_script(".nursery", Vec::new())?;

        let (keeper, theirs) = Channel::new("nursery's keeper")?;
        // A pipe, as programs will have one: interpreters look at what their output is when they start.
        let (said, says) =
            rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(io::Error::from)?;
        let says = above_stdio(says).map_err(io::Error::from)?;
        let stdio = Stdio { stdin: theirs.as_fd(), stdout: says.as_fd(), stderr: says.as_fd() };
        let group_limits = GroupLimits::from_limits(&own_limits(), || None);
        let hierarchy = shared.host.hierarchy.as_ref().ok();
        let group = hierarchy.map(|place| place.create(&OwnerTag::new(), &group_limits)).transpose()?;
        add_group_layers(group.as_deref(), &config.waived, &mut layers)?;
        let into = match group.as_deref().map(Group::entry) {
            Some(redoma_jail::cgroup::Entry::CloneInto(folder)) => Some(folder),
            _ => None,
        };
        let sandbox = Starting::begin(&plan, stdio, into)?.finish(group.as_deref())?;
        Ok(Self {
            said,
            keeper,
            sandbox,
            _group: group,
            _identity: identity,
            runtime,
            layers,
            missing,
            plan_inodes,
        })
    }

    pub(crate) fn keeper(&self) -> &Channel {
        &self.keeper
    }

    /// Makes room for more of what nobody asked for.
    pub(crate) fn ignore_output(&self) {
        let mut buffer = [0u8; 4096];
        while rustix::io::read(&self.said, &mut buffer).is_ok_and(|count| count > 0) {}
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Whether it lives, and holds what is on disk now.
    pub(crate) fn is_sound(&self) -> bool {
        self.keeper.is_open() && self.runtime.is_current()
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        u32::try_from(self.sandbox.pid().as_raw_nonzero().get()).into_iter().collect()
    }

    /// What a sandbox with these limits is told.
    pub(crate) fn assignment(&self, limits: &Limits, has_group: bool) -> Assignment {
        Assignment {
            rlimits: Rlimits::from_limits(limits, has_group),
            disk: limits.disk.0,
            inodes: limits.files + self.plan_inodes,
            kind: SandboxFor::Run,
        }
    }

    /// How many inodes of a sandbox's scratch are not the code's.
    pub(crate) fn own_inodes(&self) -> u64 {
        self.plan_inodes
    }

    /// Makes a sandbox: by the keeper or by one of its zygotes.
    pub(crate) fn make(
        self: &Arc<Self>,
        shared: &Shared,
        by: &Channel,
        variant: &str,
        seal: Seal,
        hurry: Hurry,
    ) -> Result<Ready, RunError> {
        let limits = Weakening::from_environment().limits(&shared.config.profile.limits);
        let identity = shared.identities.take()?;
        let (pipes, theirs) = Pipes::new()?;
        identity.own_pipes(&theirs)?;
        let group_limits = GroupLimits::from_limits(&limits, || self.runtime.block_device());
        let make_group = |place: &Hierarchy| place.create(&OwnerTag::new(), &group_limits);
        let group = shared.host.hierarchy.as_ref().ok().map(make_group).transpose()?;
        let stdio = Stdio {
            stdin: theirs.stdin.as_fd(),
            stdout: theirs.stdout.as_fd(),
            stderr: theirs.stderr.as_fd(),
        };
        let growing = by.spawn(&Order { id: identity.id_in_nursery, variant, stdio, hurry })?;
        drop(theirs);
        let assignment = self.assignment(&limits, group.is_some());
        let sealed_with = (seal == Seal::Ahead).then_some(&assignment);
        let sandbox = growing.finish(group.as_deref(), sealed_with)?;
        Ok(Ready { sandbox, pipes, group, identity, limits, nursery: Arc::clone(self) })
    }
}

/// The interpreter with the zygote's script in place of the program's.
fn as_zygote(program: Invocation) -> ProgramAhead {
    let argv = vec![program.path.clone(), format!("/{ZYGOTE}")];
    let mut env = program.environment;
    // A fork copies one thread: numeric libraries must start none of their own.
    for (_, value) in env.iter_mut().filter(|(key, _)| key.ends_with("_NUM_THREADS")) {
        "1".clone_into(value);
    }
    ProgramAhead { path: program.path, argv, env: with_weakening(env) }
}

/// Node with a script that waits in place of the program's.
fn ahead(program: Invocation) -> ProgramAhead {
    let argv = vec![program.path.clone(), format!("/home/sandbox/{PREWARM}")];
    ProgramAhead { path: program.path, argv, env: program.environment }
}

/// In the attack suite's own build those inside must know which walls to leave out.
fn weakening_environment() -> Vec<(&'static str, String)> {
    match std::env::var("REDOMA_WEAKEN") {
        Ok(walls) if cfg!(feature = "weaken") => vec![("REDOMA_WEAKEN", walls)],
        _ => Vec::new(),
    }
}

fn with_weakening(mut environment: Vec<(String, String)>) -> Vec<(String, String)> {
    environment.extend(weakening_environment().into_iter().map(|(key, value)| (key.to_owned(), value)));
    environment
}
