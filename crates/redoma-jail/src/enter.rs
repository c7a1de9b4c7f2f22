//! The way into the jail, in order. This is the whole of it; read it top to bottom.
//!
//! Runs in the freshly cloned process, PID 1 of its own namespaces, which is a copy of the supervisor. Until the
//! program is started it makes system calls on what the [`Plan`] holds and does nothing else: no allocation, no
//! locks, no panics. The order matters:
//!
//! 1. Let go of every descriptor that the sandbox must not have, and ask to die with the supervisor.
//! 2. The host name. A network of its own, which is made while the next steps go on (`network.rs`).
//! 3. Open the runtime's folders *as the supervisor's uid*, read-only from the first moment; then wait for the
//!    supervisor's go (the uid map is written) and become the sandbox's uid. From here on the host's files are out of reach but for those descriptors.
//! 4. Build the root beside the old one, change into it, and cover what `/proc` should not tell.
//! 5. Enter the cgroup, which the supervisor has made meanwhile, and a namespace that hides where it is. Nothing before
//!    this uses memory that the code has a say in.
//! 6. Go into the network, set the limits, give up all capabilities for good, install the system call filter, then fork.
//!    The parent goes on as init (`init.rs`); the child goes under Landlock, and execs.
//!
//! A sandbox that is made ahead of its use goes the same way to the end of step 5, and then waits: `warm.rs`. A nursery,
//! which runs nothing but our own code, keeps some rights in step 6 and has neither filter nor Landlock: `nursery/`.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::footprint::Footprint;
use crate::landlock::Ruleset;
use crate::network::{Entered, MadeBy, Network};
use crate::plan::{Plan, Role};
use crate::spawn::{Report, Stdio};
use crate::step::Step;
use crate::sys::{self, Stack, StringPointers};
use crate::{credentials, init, mounts};

/// A failed step: which, why, and which entry of the plan it was about (`u16::MAX` for none).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failure {
    pub(crate) step: Step,
    pub(crate) errno: Errno,
    pub(crate) entry: u16,
}

/// Names the step that an error belongs to.
pub(crate) trait At<T> {
    fn at(self, step: Step) -> Result<T, Failure>;
    fn at_entry(self, step: Step, entry: usize) -> Result<T, Failure>;
}

impl<T> At<T> for Result<T, Errno> {
    fn at(self, step: Step) -> Result<T, Failure> {
        self.map_err(|errno| Failure { step, errno, entry: u16::MAX })
    }
    fn at_entry(self, step: Step, entry: usize) -> Result<T, Failure> {
        self.map_err(|errno| Failure { step, errno, entry: u16::try_from(entry).unwrap_or(u16::MAX) })
    }
}

/// What the child needs beside the plan; all made before the clone.
#[derive(Debug)]
pub(crate) struct Prepared<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) argv: StringPointers<'a>,
    pub(crate) envp: StringPointers<'a>,
    pub(crate) stdio: Stdio<RawFd>,
    /// This end of the talk with the supervisor.
    pub(crate) talk: RawFd,
    /// All of these descriptors, and what else is needed, sorted.
    pub(crate) keep: Vec<RawFd>,
    /// For the program's process, until it is the program; none where that is forked.
    pub(crate) stack: Option<Stack>,
    /// Another, where somebody waits for the sandbox.
    pub(crate) network: MadeBy,
    /// What init keeps of the memory of who it is a copy of, if it is to live long.
    pub(crate) footprint: Option<Footprint>,
}

/// The namespaces to clone into. The network's comes while others are furnished, the cgroup's from within the cgroup.
pub(crate) fn namespaces(plan: &Plan) -> c_int {
    let mut flags = libc::CLONE_NEWUSER | libc::CLONE_NEWPID | libc::CLONE_NEWNS;
    if !plan.weakening.has("uts_namespace") {
        flags |= libc::CLONE_NEWUTS;
    }
    if !plan.weakening.has("ipc_namespace") {
        flags |= libc::CLONE_NEWIPC;
    }
    if plan.time_namespace {
        flags |= 0x80; // CLONE_NEWTIME; clone3 takes it, clone can't
    }
    flags
}

/// The life of the cloned process. Never returns.
pub(crate) fn run(prepared: &Prepared<'_>) -> ! {
    let talk = sys::borrow(&prepared.talk);
    match enter(prepared) {
        Ok(program) => init::run(&program, talk),
        Err(failure) => {
            Report::Failed(failure).send(talk);
            sys::exit_now(125)
        }
    }
}

/// Who cloned this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Maker {
    /// The supervisor itself; the sandbox ends with it.
    Supervisor,
    /// A process of a nursery, which may end before its sandboxes do. They end with the nursery.
    Nursery,
}

/// What steps 1 to 5 leave in hand.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) oom_score: OwnedFd,
    pub(crate) root: mounts::Sealed,
    /// To go into, while there are rights left to do that.
    pub(crate) network: Network,
}

/// Steps 1 to 5.
pub(crate) fn build(prepared: &Prepared<'_>, maker: Maker) -> Result<Built, Failure> {
    let plan = prepared.plan;
    let talk = sys::borrow(&prepared.talk);
    let may_outlive = plan.weakening.has("kill") || maker == Maker::Nursery;

    if !plan.weakening.has("close_fds") {
        sys::close_all_but(&prepared.keep).at(Step::WaitForGo)?;
    }
    die_with_supervisor(talk, may_outlive)?;
    // While this process is still its own: later it is not dumpable, and its /proc/self belongs to nobody.
    let oom_score = credentials::open_oom_score().at(Step::OomScore)?;

    if !plan.weakening.has("uts_namespace") {
        rustix::system::sethostname(b"redoma").at(Step::Hostname)?;
        rustix::system::setdomainname(b"(none)").at(Step::Hostname)?;
    }
    let is_without = plan.weakening.has("net_namespace");
    let network = if is_without { Network::none() } else { Network::begin(prepared.network)? };

    sys::make_mounts_private().at(Step::DetachMounts)?;
    mounts::open_sources(plan)?;
    // Nothing so far needed the uid map, which the supervisor has written meanwhile.
    Report::wait_for_go(talk, |_| Ok(())).at(Step::WaitForGo)?;
    credentials::become_sandbox_user(plan.ids).at(Step::BecomeUser)?;
    // Changing the uid has cleared the wish to die with the supervisor.
    die_with_supervisor(talk, may_outlive)?;

    let root = mounts::build_root(plan)?;
    let root = mounts::change_root(plan, root)?;
    let folders = [root.workspace.as_fd(), root.beside.as_fd(), root.locks.as_fd()];
    Report::Ready.send_with_fds(talk, &folders).at(Step::OpenWorkspace)?;

    // By now the supervisor has made the cgroup. On version 1 the `tasks` files come along, to write oneself into.
    Report::wait_for_go(talk, |tasks| rustix::io::write(tasks, b"0").map(drop)).at(Step::JoinCgroup)?;
    if plan.cgroup_namespace {
        sys::unshare(libc::CLONE_NEWCGROUP).at(Step::CgroupNamespace)?;
    }
    Ok(Built { oom_score, root, network })
}

/// All steps; what comes back is the child for init to wait for.
fn enter(prepared: &Prepared<'_>) -> Result<init::Started, Failure> {
    let plan = prepared.plan;
    let Built { oom_score, root, network } = build(prepared, Maker::Supervisor)?;
    mounts::write_script(plan, &root.workspace).at(Step::WriteScript)?;
    drop(root);
    let ruleset = landlock_of(plan)?;

    // Before the fork, so that there is no moment in which the program runs beside an init that still has rights.
    let entered = match plan.role {
        Role::Code => {
            gain_no_capabilities(plan)?;
            // The last that needs rights. It was made meanwhile, and takes longest.
            let entered = network.enter()?;
            // And the last that needs a descriptor, of which a program may have few.
            if !plan.weakening.has("rlimits") {
                credentials::set_rlimits(None, plan.rlimits).at(Step::Rlimits)?;
            }
            give_up_capabilities(plan, AsSeen::ByNobody)?;
            if !plan.weakening.has("seccomp") {
                sys::install_seccomp(plan.seccomp.program()).at(Step::Seccomp)?;
            }
            entered
        }
        Role::Nursery => {
            let entered = network.enter()?;
            // The other limits are its sandboxes' own: what is lowered here could not be raised there.
            if !plan.weakening.has("rlimits") {
                credentials::dump_no_core(None).at(Step::Rlimits)?;
            }
            if !plan.weakening.has("capabilities") {
                credentials::gain_no_privileges().at(Step::Capabilities)?;
            }
            credentials::keep_capabilities(credentials::for_nursery()).at(Step::Capabilities)?;
            entered
        }
    };
    // The child is the first to go when memory runs out, so that init outlives it and can tell what happened. It
    // inherits the score; init takes its own back.
    rustix::io::write(&oom_score, b"1000").at(Step::OomScore)?;
    let mut start = ProgramStart { prepared, ruleset: ruleset.as_ref(), _entered: entered, failure: None };
    let stack = prepared.stack.as_ref().ok_or(Errno::NOMEM).at(Step::Fork)?;
    let pid = sys::spawn_borrowing(stack, become_program, &mut start).at(Step::Fork)?;
    let _ = rustix::io::pwrite(&oom_score, b"0", 0);
    if let Some(failure) = start.failure {
        return Err(failure);
    }
    if plan.weakening.has("init") {
        credentials::be_dumpable().at(Step::Init)?;
    }
    Ok(init::Started { pid, stays: plan.weakening.has("kill"), is_kernel: false })
}

/// What the program's process is told, and tells if it fails before it is the program.
struct ProgramStart<'a> {
    prepared: &'a Prepared<'a>,
    /// Landlock's.
    ruleset: Option<&'a Ruleset>,
    _entered: Entered,
    failure: Option<Failure>,
}

/// The last steps, in the process that becomes the program.
extern "C" fn become_program(argument: *mut c_void) -> c_int {
    let start: &mut ProgramStart<'_> = sys::borrowed_argument(argument);
    let prepared = start.prepared;
    start.failure = last_steps(prepared, start.ruleset).err().or_else(|| {
        // Comes back only if it failed.
        let errno = sys::exec(&prepared.plan.program.path, &prepared.argv, &prepared.envp);
        Some(Failure { step: Step::Exec, errno, entry: u16::MAX })
    });
    sys::exit_now(125)
}

/// Who may look into a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AsSeen {
    /// Init.
    ByNobody,
    /// A program, as after an exec: its own `/proc/self` belongs to it.
    ByItsUser,
}

/// From here on there is no way to get more of them than there are.
pub(crate) fn gain_no_capabilities(plan: &Plan) -> Result<(), Failure> {
    if plan.weakening.has("capabilities") {
        return Ok(());
    }
    credentials::gain_none().at(Step::Capabilities)
}

/// And from here on there are none.
pub(crate) fn give_up_capabilities(plan: &Plan, seen: AsSeen) -> Result<(), Failure> {
    if plan.weakening.has("capabilities") {
        credentials::keep_all_capabilities().at(Step::Capabilities)?;
    } else {
        credentials::have_none().at(Step::Capabilities)?;
    }
    if seen == AsSeen::ByItsUser {
        credentials::be_dumpable().at(Step::Capabilities)?;
    }
    Ok(())
}

/// What the program's process does before it is the program: a session of its own, its stdio, its working folder.
pub(crate) fn settle(stdio: Stdio<RawFd>) -> Result<(), Failure> {
    rustix::process::setsid().at(Step::Session)?;
    for (target, fd) in (0..).zip([stdio.stdin, stdio.stdout, stdio.stderr]) {
        sys::place_fd(fd, target).at(Step::Stdio)?;
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    rustix::process::chdir(c"/mnt/data").at(Step::WorkingFolder)
}

/// The wall that only the program's own process goes behind: init stays outside of it.
pub(crate) fn landlock_of(plan: &Plan) -> Result<Option<Ruleset>, Failure> {
    match &plan.landlock {
        Some(landlock) if !plan.weakening.has("landlock") => landlock.ruleset().at(Step::Landlock).map(Some),
        _ => Ok(None),
    }
}

pub(crate) fn go_behind_landlock(ruleset: Option<&Ruleset>) -> Result<(), Failure> {
    ruleset.map_or(Ok(()), Ruleset::restrict).at(Step::Landlock)
}

fn last_steps(prepared: &Prepared<'_>, ruleset: Option<&Ruleset>) -> Result<(), Failure> {
    settle(prepared.stdio)?;
    sys::reset_signals().at(Step::Session)?;
    go_behind_landlock(ruleset)?;
    // All of ours are close-on-exec, and all others were closed at the start: a second lock on the same door.
    if !prepared.plan.weakening.has("close_fds") {
        sys::close_all_on_exec().at(Step::Stdio)?;
    }
    Ok(())
}

/// Asks the kernel to kill this process when its parent ends (unless it `may_outlive` that), and makes sure that the
/// supervisor has not ended already.
fn die_with_supervisor(talk: BorrowedFd<'_>, may_outlive: bool) -> Result<(), Failure> {
    let signal = if may_outlive { None } else { Some(Signal::KILL) };
    set_parent_process_death_signal(signal).at(Step::WaitForGo)?;
    let mut peek = [0u8; 1];
    let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
    match rustix::net::recv(talk, &mut peek, flags) {
        // A sequenced-packet socket answers 0 when the other end is closed, and nobody sends empty packets.
        Ok((_, 0)) => Err(Failure { step: Step::WaitForGo, errno: Errno::PIPE, entry: u16::MAX }),
        Ok(_) | Err(Errno::AGAIN) => Ok(()),
        Err(errno) => Err(errno).at(Step::WaitForGo),
    }
}

impl Prepared<'_> {
    pub(crate) fn keep_list(stdio: Stdio<RawFd>, others: &[&OwnedFd]) -> Vec<RawFd> {
        let mut keep = vec![stdio.stdin, stdio.stdout, stdio.stderr];
        keep.extend(others.iter().map(|fd| fd.as_raw_fd()));
        keep.sort_unstable();
        keep
    }
}
