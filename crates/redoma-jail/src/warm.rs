//! The inside of a sandbox that is made ahead of its use and waits.
//!
//! Up to its cgroup it is built like any other (`enter.rs`). Then it forks, *before* it is known what it will be used for:
//! the child is the program's process, which goes behind every wall at once and waits there; init keeps the namespace's
//! rights for as long as nobody has been let in. It does what only an assignment can say (the limits, room for inputs), gives up
//! its own rights for good, and only then passes the word on. Where the limits are known when the sandbox is made, and
//! there are no inputs, it does so at once, and the word goes straight to the program's process later. There is no moment
//! in which foreign code runs beside an init that has rights left, as in a sandbox that is made on the spot.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::process::Pid;

use crate::enter::{
    AsSeen, At, Built, Failure, Maker, Prepared, build, gain_no_capabilities, give_up_capabilities,
    go_behind_landlock, landlock_of, settle,
};
use crate::kernel::KernelLine;
use crate::network::Entered;
use crate::nursery::{Assignment, ExecPayload, Reader, Received, ReceivedWork, SandboxFor, Work};
use crate::plan::{Plan, Program, Rlimits};
use crate::spawn::{Report, receive};
use crate::step::Step;
use crate::sys::{self, StringPointers};
use crate::{credentials, init, mounts, seccomp};

/// Where a program that is started ahead of time finds its assignment.
pub(crate) const ASSIGNMENT_FD: RawFd = 3;

/// What becomes of the program's process.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Becomes<'a> {
    /// It is a copy of a zygote, and goes on as that.
    Resumes,
    /// It executes what the assignment names.
    Execs,
    /// It executes this at once, which then waits for the assignment by itself, at [`ASSIGNMENT_FD`].
    ExecsAhead(&'a Program),
}

/// The life of a sandbox's processes. Comes back in one case only: in a process that [resumes](Becomes::Resumes).
/// `line` is both ends of the talk between init and the program's process.
pub(crate) fn run(prepared: &Prepared<'_>, becomes: Becomes<'_>, line: (OwnedFd, OwnedFd)) -> Resumed {
    let talk = sys::borrow(&prepared.talk);
    let fail = |failure: Failure| -> ! {
        Report::Failed(failure).send(talk);
        sys::exit_now(125)
    };
    match split(prepared, becomes, line) {
        Ok(Side::Init(waiting)) => match waiting.be_assigned(prepared.plan, becomes, talk) {
            Ok(program) => {
                if let Some(footprint) = prepared.footprint.filter(|_| program.is_kernel) {
                    footprint.keep_only();
                }
                init::reap(&program, talk)
            }
            Err(failure) => fail(failure),
        },
        Ok(Side::Program(line, _)) => continue_as_program(prepared, becomes, line),
        Err(failure) => fail(failure),
    }
}

enum Side {
    Init(Waiting),
    /// With this end of the talk with init.
    Program(OwnedFd, Entered),
}

/// Builds everything and forks.
fn split(
    prepared: &Prepared<'_>,
    becomes: Becomes<'_>,
    (line, inner_line): (OwnedFd, OwnedFd),
) -> Result<Side, Failure> {
    // Who made this process does not wait for its children; init does.
    sys::reap_children(sys::Reaping::ByWaiting).at(Step::Fork)?;
    let Built { oom_score, root, network } = build(prepared, Maker::Nursery)?;
    let entered = network.enter()?;
    // As in `enter.rs`: the child is the first to go when memory runs out.
    rustix::io::write(&oom_score, b"1000").at(Step::OomScore)?;
    let forked = match becomes {
        Becomes::Resumes => sys::fork_with_handlers(),
        Becomes::Execs | Becomes::ExecsAhead(_) => sys::fork(),
    };
    let Some(program) = forked.at(Step::Fork)? else { return Ok(Side::Program(inner_line, entered)) };
    let _ = rustix::io::pwrite(&oom_score, b"0", 0);
    let _ = rustix::thread::set_name(c"redoma-init");
    // The kernel keeps signals from a PID 1 that has no handlers; its maker's are none of its own.
    sys::reset_signals().at(Step::Init)?;
    // Stdio and the runtime's mounts belong to the program alone.
    for fd in [0, 1, 2] {
        sys::close_number(fd);
    }
    let mut keep = [prepared.talk, line.as_raw_fd(), root.scratch.as_raw_fd()];
    keep.sort_unstable();
    sys::close_all_but(&keep).at(Step::Init)?;
    std::mem::forget((inner_line, oom_score, root.workspace, root.beside, root.locks));
    Ok(Side::Init(Waiting { program, line, scratch: root.scratch }))
}

/// Init, with a program's process that waits.
struct Waiting {
    program: Pid,
    /// The talk with the program's process.
    line: OwnedFd,
    scratch: OwnedFd,
}

impl Waiting {
    /// Waits to be needed, and lets the program go; or seals itself and leaves that to the supervisor.
    fn be_assigned(
        self,
        plan: &Plan,
        becomes: Becomes<'_>,
        talk: BorrowedFd<'_>,
    ) -> Result<init::Started, Failure> {
        let Self { program, line, scratch } = self;
        let listener = hear_from_program(&line)?;
        Report::Waiting.send(talk);
        let mut packet = vec![0u8; Assignment::MOST_BYTES];
        let mut received = Assignment::receive(talk, &mut packet).at(Step::WaitForAssignment)?;
        make_room(plan, &scratch, &received.assignment)?;
        let mut next_packet = Vec::new();
        if received.assignment.kind == SandboxFor::Files {
            // The supervisor puts them there now that there is room, and before there is any code.
            Report::Waiting.send(talk);
            next_packet.resize(Assignment::MOST_BYTES, 0);
            received = Assignment::receive(talk, &mut next_packet).at(Step::WaitForAssignment)?;
        }
        let Received { assignment, script, payload } = received;
        if let Some((name, content)) = &script {
            mounts::copy_script(&scratch, name, content).at(Step::WriteScript)?;
        }
        drop(scratch);
        if !plan.weakening.has("rlimits") {
            credentials::set_rlimits(Some(program), assignment.rlimits).at(Step::Rlimits)?;
            // Init has no use for many descriptors. But it is still to send one, and the kernel counts those that are on their way for
            // all processes of a user together, against the sender's limit.
            let own = Rlimits { nofile: u64::MAX, ..assignment.rlimits };
            credentials::set_rlimits(None, own).at(Step::Rlimits)?;
        }
        gain_no_capabilities(plan)?;
        give_up_capabilities(plan, AsSeen::ByNobody)?;
        if plan.weakening.has("init") {
            credentials::be_dumpable().at(Step::Init)?;
        }
        if !plan.weakening.has("seccomp") {
            let filter = plan.seccomp_ahead.as_ref().map_or(&plan.seccomp, |filters| &filters.init);
            sys::install_seccomp(filter.program()).at(Step::Seccomp)?;
        }

        if script.is_some() {
            // Nobody listens: it will end as any process does.
            drop(listener);
            let reader = match becomes {
                Becomes::ExecsAhead(_) => Reader::Program,
                Becomes::Resumes | Becomes::Execs => Reader::Jail,
            };
            let passed_on = Work { name: "", code: b"", payload, reader }.send(line.as_fd());
            // If it failed, that says more than the broken pipe.
            hear_from_program(&line)?;
            passed_on.at(Step::Exec)?;
        } else {
            let fds: Vec<_> =
                [Some(&line), listener.as_ref()].into_iter().flatten().map(AsFd::as_fd).collect();
            Report::Sealed.send_with_fds(talk, &fds).at(Step::WaitForAssignment)?;
            drop(listener);
        }
        drop((line, packet, next_packet));
        Ok(init::Started {
            pid: program,
            stays: plan.weakening.has("kill"),
            is_kernel: assignment.kind == SandboxFor::Kernel,
        })
    }
}

/// Waits for the program's process to say that it waits, or to close its end: then it is the program.
/// What it sends along is where its leave is heard.
fn hear_from_program(line: &OwnedFd) -> Result<Option<OwnedFd>, Failure> {
    match receive(line).at(Step::Init)? {
        Some((Report::Failed(failure), _)) => Err(failure),
        Some((_, fds)) => Ok(fds.into_iter().next()),
        None => Ok(None),
    }
}

/// Gives the scratch the size that an assignment asks for.
fn make_room(plan: &Plan, scratch: &OwnedFd, assignment: &Assignment) -> Result<(), Failure> {
    let (size, inodes) = (decimal(assignment.disk), decimal(assignment.inodes));
    if size == plan.scratch.size && inodes == plan.scratch.inodes {
        return Ok(());
    }
    mounts::resize_scratch(scratch, &size, &inodes).at(Step::MountScratch)
}

fn decimal(number: u64) -> CString {
    CString::new(number.to_string()).unwrap_or_default()
}

/// A process behind its walls that will go on as what it is. It can still do something for itself before it
/// [waits](Resumed::wait).
#[derive(Debug)]
pub struct Resumed {
    line: OwnedFd,
    /// Where its leave is heard; for the supervisor, and not for any code that runs here.
    listener: Option<OwnedFd>,
}

impl Resumed {
    /// Ends the process, and lets the supervisor see that before it has.
    pub fn leave(code: u8) -> ! {
        seccomp::leave(code)
    }

    /// Waits to be needed; what comes back is the assignment, and the line on which a kernel goes on to listen. Ends the process if
    /// there will be none.
    pub fn wait(self) -> (Vec<u8>, KernelLine) {
        let Self { line, listener } = self;
        match listener {
            Some(listener) => {
                let sent = Report::Waiting.send_with_fd(line.as_fd(), listener.as_fd());
                if let Err(failure) = sent.at(Step::WaitForAssignment) {
                    give_up(&line, failure)
                }
            }
            None => Report::Waiting.send(line.as_fd()),
        }
        let payload = receive_payload(&line).unwrap_or_else(|failure| give_up(&line, failure));
        (payload, KernelLine::new(line))
    }
}

/// The program's process: goes behind the walls, waits, and becomes the program.
fn continue_as_program(prepared: &Prepared<'_>, becomes: Becomes<'_>, line: OwnedFd) -> Resumed {
    let listener = match seal(prepared, becomes, line.as_fd()) {
        Ok(listener) => listener,
        Err(failure) => give_up(&line, failure),
    };
    match becomes {
        Becomes::Resumes => Resumed { line, listener },
        Becomes::ExecsAhead(program) => {
            Report::Waiting.send(line.as_fd());
            give_up(&line, exec_ahead(program, line.as_raw_fd()))
        }
        Becomes::Execs => {
            Report::Waiting.send(line.as_fd());
            match receive_payload(&line) {
                Ok(payload) => give_up(&line, exec(&payload)),
                Err(failure) => give_up(&line, failure),
            }
        }
    }
}

fn give_up(line: &OwnedFd, failure: Failure) -> ! {
    Report::Failed(failure).send(line.as_fd());
    sys::exit_now(125)
}

/// Every wall that the program will be behind; only the limits come with the assignment. If it is to take its leave, what
/// comes back is where that is heard.
fn seal(
    prepared: &Prepared<'_>,
    becomes: Becomes<'_>,
    line: BorrowedFd<'_>,
) -> Result<Option<OwnedFd>, Failure> {
    let plan = prepared.plan;
    settle(prepared.stdio)?;
    match becomes {
        // The interpreter has set up its signals as it wants them.
        Becomes::Resumes => {}
        Becomes::Execs | Becomes::ExecsAhead(_) => sys::reset_signals().at(Step::Session)?,
    }
    if !plan.weakening.has("close_fds") {
        sys::close_all_but(&[line.as_raw_fd()]).at(Step::Stdio)?;
    }
    // It may go through no exec, after which its own /proc/self would be its own.
    gain_no_capabilities(plan)?;
    give_up_capabilities(plan, AsSeen::ByItsUser)?;
    let listener = if plan.weakening.has("seccomp") { None } else { install_filter(plan, becomes)? };
    go_behind_landlock(landlock_of(plan)?.as_ref())?;
    Ok(listener)
}

fn install_filter(plan: &Plan, becomes: Becomes<'_>) -> Result<Option<OwnedFd>, Failure> {
    if let (Becomes::Resumes, Some(filters)) = (becomes, &plan.seccomp_ahead) {
        match sys::install_seccomp_with_listener(filters.with_leave.program()) {
            Ok(listener) => return Ok(Some(listener)),
            // A kernel that can't hold a call safely: then it ends as any process does.
            Err(Errno::INVAL) => {}
            Err(errno) => return Err(errno).at(Step::Seccomp),
        }
    }
    sys::install_seccomp(plan.seccomp.program()).at(Step::Seccomp)?;
    Ok(None)
}

/// The assignment for a process that waits for it itself. Puts the script into its place, if that is still to be done.
fn receive_payload(line: &OwnedFd) -> Result<Vec<u8>, Failure> {
    let work = ReceivedWork::receive(line.as_fd()).at(Step::WaitForAssignment)?;
    if !work.name.is_empty() {
        mounts::make_file(rustix::fs::CWD, &work.name, &work.code, 0o644).at(Step::WriteScript)?;
    }
    Ok(work.payload)
}

/// Only comes back with a failure.
fn exec_ahead(program: &Program, line: RawFd) -> Failure {
    if let Err(failure) = sys::place_fd(line, ASSIGNMENT_FD).at(Step::Stdio) {
        return failure;
    }
    exec_strings(&program.path, &program.argv, &program.env)
}

/// Only comes back with a failure.
fn exec(payload: &[u8]) -> Failure {
    match ExecPayload::decode(payload) {
        Some(program) => exec_strings(&program.path, &program.argv, &program.env),
        None => Failure { step: Step::WaitForAssignment, errno: Errno::INVAL, entry: u16::MAX },
    }
}

fn exec_strings(path: &CString, argv: &[CString], env: &[CString]) -> Failure {
    let argv = StringPointers::new(argv.iter().map(CString::as_c_str));
    let env = StringPointers::new(env.iter().map(CString::as_c_str));
    let errno = sys::exec(path, &argv, &env);
    Failure { step: Step::Exec, errno, entry: u16::MAX }
}
