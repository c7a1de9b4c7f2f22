//! Serving requests: the part of those who make sandboxes, the keeper and the zygotes. Each is a single thread that takes
//! one request at a time.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags};

use super::blueprint::PlanAhead;
use super::message::{self, Answer, Hurry, Request, WarmUp};
use super::{BLUEPRINT, Blueprint};
use crate::credentials;
use crate::enter::{self, At, Failure, Prepared};
use crate::footprint::Footprint;
use crate::network::MadeBy;
use crate::plan::{Ids, Program, Role};
use crate::spawn::{Stdio, write_id_maps};
use crate::step::{JailError, Step};
use crate::sys::{self, Cloned, Reaping, StringPointers};
use crate::warm::{self, Becomes, Resumed};
use crate::weakening::Weakening;

/// Who is serving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Keeper,
    Zygote,
}

/// A process that makes sandboxes. Its channel is its standard input.
#[derive(Debug)]
pub struct Server {
    kind: Kind,
    /// By variant.
    plans: BTreeMap<String, PlanAhead>,
    zygote: Option<Program>,
    /// Of a zygote: what the inits of kernels need of its memory.
    footprint: Option<Footprint>,
}

/// Why [`Server::serve`] came back.
#[derive(Debug)]
pub enum Served {
    /// In a new process: it is a sandbox's program now.
    Program(Resumed, Hurry),
    /// In a new process: it is another zygote, and is to import these.
    Zygote(Vec<String>),
    /// Nobody asks any more.
    Closed,
}

const CHANNEL: RawFd = 0;

impl Server {
    /// The keeper, in the program that the nursery was started with.
    pub fn keeper() -> std::io::Result<Self> {
        Self::new(Kind::Keeper)
    }

    /// A zygote, in an interpreter that the keeper started.
    pub fn zygote() -> std::io::Result<Self> {
        Self::new(Kind::Zygote)
    }

    fn new(kind: Kind) -> std::io::Result<Self> {
        let blueprint = std::fs::read(Path::new("/").join(BLUEPRINT))?;
        let blueprint = Blueprint::from_bytes(&blueprint)?;
        let invalid = std::io::Error::other;
        let server = Self {
            kind,
            plans: blueprint.plans().map_err(invalid)?,
            zygote: blueprint.zygote().map(super::ProgramAhead::program).transpose().map_err(invalid)?,
            footprint: None,
        };
        // What it starts ends by itself; those outside see it by their own means.
        sys::reap_children(Reaping::AtOnce)?;
        Ok(server)
    }

    /// Serves until there is nobody to serve, or until this is another process.
    pub fn serve(&mut self) -> Served {
        if self.kind == Kind::Zygote {
            // It has imported what it will.
            self.footprint = Footprint::of_this_process();
        }
        loop {
            let Ok(Some((request, fds))) = message::receive::<Request>(sys::borrow(&CHANNEL)) else {
                return Served::Closed;
            };
            let done = match request {
                Request::Spawn { id, variant, hurry } => self.spawn(id, &variant, hurry, fds),
                Request::Branch { imports } if self.kind == Kind::Zygote => branch(&imports, fds),
                Request::StartZygote { imports } if self.kind == Kind::Keeper => {
                    self.start_zygote(&imports, &fds)
                }
                _ => Err(Failure { step: Step::Init, errno: Errno::OPNOTSUPP, entry: u16::MAX }),
            };
            let sent = match done {
                Ok(Done::Became(served)) => return served,
                Ok(Done::Started(pidfd)) => answer(&Answer::Started, Some(&pidfd)),
                Err(failure) => answer(&Answer::failed(failure), None),
            };
            if sent.is_err() {
                return Served::Closed;
            }
        }
    }

    /// Clones this process into a sandbox's namespaces.
    fn spawn(&mut self, id: u32, variant: &str, hurry: Hurry, fds: Vec<OwnedFd>) -> Result<Done, Failure> {
        let [talk, input, output, errors] = <[OwnedFd; 4]>::try_from(fds).map_err(|_| Failure {
            step: Step::Stdio,
            errno: Errno::INVAL,
            entry: u16::MAX,
        })?;
        let PlanAhead { plan, program } = self.plans.get_mut(variant).ok_or(Errno::NOENT).at(Step::Exec)?;
        let becomes = match (self.kind, program) {
            (Kind::Zygote, _) => Becomes::Resumes,
            (Kind::Keeper, None) => Becomes::Execs,
            (Kind::Keeper, Some(program)) => Becomes::ExecsAhead(program),
        };
        plan.ids = Ids { host_uid: id, host_gid: id, ..plan.ids };
        let plan = &*plan;
        let stdio =
            Stdio { stdin: input.as_raw_fd(), stdout: output.as_raw_fd(), stderr: errors.as_raw_fd() };
        // Made here, and not in the sandbox, whose network namespace would list it.
        let line =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .at(Step::Fork)?;
        let prepared = Prepared {
            plan,
            argv: StringPointers::new(std::iter::empty()),
            envp: StringPointers::new(std::iter::empty()),
            stdio,
            talk: talk.as_raw_fd(),
            keep: Prepared::keep_list(stdio, &[&talk, &line.0, &line.1]),
            stack: None,
            network: MadeBy::This,
            footprint: self.footprint,
        };
        match sys::clone_into(enter::namespaces(plan), None).at(Step::Clone)? {
            Cloned::Child => {
                let resumed = warm::run(&prepared, becomes, line);
                // Closed long ago, in this process; the numbers may be somebody else's by now.
                for fd in [talk, input, output, errors] {
                    let _ = fd.into_raw_fd();
                }
                Ok(Done::Became(Served::Program(resumed, hurry)))
            }
            Cloned::Parent { pid, pidfd } => {
                write_id_maps(pid, plan.ids, Role::Code).map_err(|error| {
                    let _ = rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::KILL);
                    match error {
                        JailError::Step { step, errno, .. } => Failure { step, errno, entry: u16::MAX },
                        _ => Failure { step: Step::MapIds, errno: Errno::IO, entry: u16::MAX },
                    }
                })?;
                Ok(Done::Started(pidfd))
            }
        }
    }

    /// Starts the interpreter that is the first zygote, with its end of a channel as standard input.
    fn start_zygote(&self, imports: &[String], fds: &[OwnedFd]) -> Result<Done, Failure> {
        let program = self.zygote.as_ref().ok_or(Errno::NOENT).at(Step::Exec)?;
        let channel = fds.first().ok_or(Errno::INVAL).at(Step::Stdio)?;
        let imports = imports.iter().filter_map(|module| CString::new(module.as_str()).ok());
        let argv: Vec<CString> = program.argv.iter().cloned().chain(imports).collect();
        if let Some(pid) = sys::fork().at(Step::Fork)? {
            return Ok(Done::Started(open_pid(pid)?));
        }
        let weakening = Weakening::from_environment();
        let ready = sys::place_fd(channel.as_raw_fd(), CHANNEL)
            .and_then(|()| sys::reset_signals())
            .and_then(|()| if weakening.has("close_fds") { Ok(()) } else { sys::close_all_on_exec() })
            .and_then(|()| credentials::keep_capabilities(credentials::for_zygotes()));
        if ready.is_ok() {
            let env = StringPointers::new(program.env.iter().map(CString::as_c_str));
            sys::exec(&program.path, &StringPointers::new(argv.iter().map(CString::as_c_str)), &env);
        }
        sys::exit_now(125)
    }
}

/// What came of a request.
enum Done {
    Started(OwnedFd),
    Became(Served),
}

fn answer(answer: &Answer, fd: Option<&OwnedFd>) -> Result<(), Errno> {
    let fds: Vec<_> = fd.into_iter().map(AsFd::as_fd).collect();
    message::send(sys::borrow(&CHANNEL), answer, &fds)
}

fn open_pid(pid: Pid) -> Result<OwnedFd, Failure> {
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).at(Step::Fork)
}

/// Makes another zygote of this one.
fn branch(imports: &[String], fds: Vec<OwnedFd>) -> Result<Done, Failure> {
    let channel = fds.into_iter().next().ok_or(Errno::INVAL).at(Step::Stdio)?;
    if let Some(pid) = sys::fork_with_handlers().at(Step::Fork)? {
        return Ok(Done::Started(open_pid(pid)?));
    }
    if sys::place_fd(channel.as_raw_fd(), CHANNEL).is_err() {
        sys::exit_now(125)
    }
    drop(channel);
    Ok(Done::Became(Served::Zygote(imports.to_vec())))
}

/// A zygote's word that it is ready, or why not, as it comes from the interpreter.
pub fn send_warm_up(warm_up: &[u8]) -> bool {
    let is_sound = serde_json::from_slice::<WarmUp>(warm_up).is_ok();
    is_sound && message::send_bytes(sys::borrow(&CHANNEL), warm_up, &[]).is_ok()
}
