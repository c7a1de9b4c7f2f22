//! `redoma run`: one isolated run, no server.

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

use anyhow::{Context, bail};
use redoma_engine::{
    Cancel, Concurrency, Engine, FolderOutlet, Host, Input, Language, Languages, Observer, Outlet, Place,
    RunError, RunRequest, Runtime, Source, Stdin, Stream, Supply, Terms,
};
use redoma_jail::SignalPipe;
use redoma_model::{ByteSize, Ending, LimitName, Limits, Profile, RunReport};
use redoma_policy::Policy;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::cli::{Global, RunArguments};
use crate::config::{Config, data_dir};
use crate::{OWN_FAILURE, engine, systemd_scope, terminal};

/// Source larger than this is a slip, such as a data file in the wrong place.
const MAX_SOURCE: ByteSize = ByteSize::mib(16);

pub fn run(global: &Global, mut arguments: Box<RunArguments>) -> anyhow::Result<ExitCode> {
    let data_dir = data_dir(global)?;
    let config = Config::load(global, &data_dir)?;
    let host = Host::detect();
    let waived = config.waived()?;
    if host.hierarchy.is_err() && !waived.contains(&redoma_model::Layer::Cgroup) {
        // Before anything is read from standard input: this starts the program anew.
        systemd_scope::try_to_enter();
    }
    let mut profile = config.profile(arguments.profile.as_deref())?;
    profile.limits = profile.limits.with(&arguments.limits.patch())?;
    if let Some(runtime) = arguments.runtime.take() {
        profile.runtime = runtime;
    }
    let languages = Languages::built_in();
    // A program that comes from standard input leaves nothing of it for itself.
    let stdin_is_taken = arguments.code.is_none() && arguments.file.as_deref() == Some(OsStr::new("-"));
    let (language, source, arguments_left) = program(&languages, &mut arguments)?;
    // A person's own programs are not judged, unless by a profile that they name.
    if arguments.profile.is_some()
        && let Some(text) = denied(&profile, language, &source, &arguments)?
    {
        terminal::error(text.trim_end());
        return Ok(ExitCode::from(CAN_NOT_EXECUTE));
    }
    let inputs = arguments.inputs.iter().cloned().map(Input::new).collect::<Result<Vec<_>, _>>()?;
    if let Some(out) = &arguments.out
        && out.exists()
        && !out.is_dir()
    {
        bail!("--out {} is a file; name a folder", out.display());
    }
    let limits = profile.limits.clone();
    let mut outlet = arguments.out.clone().map(FolderOutlet::new);
    let request = RunRequest {
        language,
        stdin: if stdin_is_taken { Stdin::Empty } else { stdin() },
        source,
        arguments: arguments_left,
        inputs,
        terms: Terms::from(&profile),
        out: outlet.as_mut().map(|outlet| outlet as &mut dyn Outlet),
        list_files: arguments.json || !arguments.quiet,
        live: !arguments.json,
        last_value: false,
        tools: None,
    };
    let mut shown = Shown { silent: arguments.json, writer: None };
    let ran = if arguments.warm {
        warm(&config, &data_dir, &profile, request, &mut shown)?
    } else {
        let runtime = Runtime::find(&profile.runtime, &data_dir)?;
        // A report may have to wait for its reader; the sandbox should not be there as long.
        let is_last = !arguments.json;
        let place = Place { host: &host, data_dir: &data_dir, is_last, waived: &waived };
        redoma_engine::run(place, &runtime, request, &mut shown)
    };
    let (report, failed) = match ran {
        Ok(report) => (report, None),
        Err(RunError::Harvest { report, error }) => (*report, Some(error)),
        Err(error) => return Err(error.into()),
    };
    shown.finish();
    if arguments.json {
        print_json(&report)?;
    } else if !arguments.quiet {
        tell(&report, &limits, arguments.out.as_deref());
    }
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(exit_code(&report)),
    }
}

/// What shells say of a program that is there and must not be run.
const CAN_NOT_EXECUTE: u8 = 126;

/// Why the profile does not let this program run, if it does not.
fn denied(
    profile: &Profile,
    language: &Language,
    source: &Source,
    arguments: &RunArguments,
) -> anyhow::Result<Option<String>> {
    if !profile.languages.iter().any(|id| id == language.id) {
        let languages = profile.languages.join(", ");
        return Ok(Some(format!("the profile `{}` runs {languages} only", profile.name)));
    }
    let Some(known) = redoma_policy::language_named(language.id) else { return Ok(None) };
    let policy = Policy::compile(&profile.policy, profile.libraries.listed())?;
    let is_own = |module: &str| {
        arguments.inputs.iter().any(|path| path.file_stem().is_some_and(|stem| stem == module))
    };
    let verdict = policy.check_beside(known, &String::from_utf8_lossy(&source.code), is_own);
    Ok(verdict.is_denied().then(|| verdict.message()))
}

/// The run through an engine of its own, which makes one sandbox ahead and waits for it.
fn warm(
    config: &Config,
    data_dir: &Path,
    profile: &Profile,
    request: RunRequest<'_>,
    observer: &mut dyn Observer,
) -> anyhow::Result<Result<RunReport, RunError>> {
    // Just the one that fits: for a single run, libraries are as fast to load when they are needed.
    let supply = Supply { floor: 1, ceiling: 1, ..Supply::default() };
    let profile = Profile { preload: Vec::new(), ..profile.clone() };
    let signals = SignalPipe::block().context("signals")?;
    let native = engine::native(config, data_dir, &profile, supply, &[request.language.id])?;
    let engine = Engine::new(Box::new(native), Concurrency::default());
    engine.prepare()?;
    let cancel = Cancel::new()?;
    // Somebody has to hear a signal while this thread watches the program.
    Ok(std::thread::scope(|scope| {
        let (done, is_done) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map(|(reader, writer)| (writer, reader))
            .map_err(std::io::Error::from)?;
        let (cancel, signals) = (&cancel, &signals);
        let listener = scope.spawn(move || {
            let mut polled = [PollFd::new(signals, PollFlags::IN), PollFd::new(&is_done, PollFlags::IN)];
            while let Err(rustix::io::Errno::INTR) = poll(&mut polled, None) {}
            let signal = signals.take();
            if signal.is_some() {
                cancel.cancel();
            }
            signal
        });
        let mut result = engine.execute(request, observer, cancel);
        drop(done);
        if let (Ok(Some(signal)), Ok(report)) = (listener.join(), &mut result) {
            report.signal_number = Some(signal);
        }
        result
    }))
}

/// The language, the source, and what is left of the arguments for the program.
fn program<'a>(
    languages: &'a Languages,
    arguments: &mut RunArguments,
) -> anyhow::Result<(&'a Language, Source, Vec<String>)> {
    let by_flag = arguments.lang.as_deref().map(|name| languages.by_name(name)).transpose()?;
    let mut left = std::mem::take(&mut arguments.arguments);
    let (language, source) = match (arguments.code.take(), arguments.file.take()) {
        (Some(code), file) => {
            // With -c the first word is an argument already.
            left.splice(0..0, file);
            let language = by_flag.map_or_else(|| languages.by_name("py"), Ok)?;
            (language, Source { code: code.into_bytes(), name: None })
        }
        (None, Some(file)) if file == "-" => {
            let language = by_flag.map_or_else(|| languages.by_name("py"), Ok)?;
            let code = read_source(std::io::stdin().lock(), "standard input")?;
            (language, Source { code, name: None })
        }
        (None, Some(file)) => {
            let path = Path::new(&file);
            let shown = path.display().to_string();
            let opened = std::fs::File::open(path).with_context(|| format!("can't read {shown}"))?;
            if opened.metadata().is_ok_and(|meta| meta.is_dir()) {
                bail!("{shown} is a folder; name the program's file");
            }
            let language = by_flag.map_or_else(|| languages.by_file(path), Ok)?;
            let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
            (language, Source { code: read_source(opened, &shown)?, name })
        }
        (None, None) => bail!("name a file, or pass the program with -c"),
    };
    let left = left
        .into_iter()
        .map(OsString::into_string)
        .collect::<Result<_, _>>()
        .map_err(|argument| anyhow::anyhow!("the argument {} is not UTF-8", argument.display()))?;
    Ok((language, source, left))
}

fn read_source(reader: impl Read, shown: &str) -> anyhow::Result<Vec<u8>> {
    let mut code = Vec::new();
    reader.take(MAX_SOURCE.0 + 1).read_to_end(&mut code).with_context(|| format!("can't read {shown}"))?;
    if code.len() as u64 > MAX_SOURCE.0 {
        bail!("{shown} is larger than {MAX_SOURCE}; pass data with --in");
    }
    Ok(code)
}

/// Our own standard input, unless a person sits at it.
fn stdin() -> Stdin {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Stdin::Empty;
    }
    match rustix::io::fcntl_dupfd_cloexec(&stdin, 3) {
        Ok(fd) => Stdin::From(fd),
        Err(_) => Stdin::Empty,
    }
}

/// Output as it comes. Whoever reads it slowly must not keep the supervisor from its clock: what can't be written at
/// once goes to a thread. What waits is bounded by the output limit.
struct Shown {
    silent: bool,
    writer: Option<(Sender<Piece>, JoinHandle<()>)>,
}

type Piece = (Stream, Vec<u8>);

impl Observer for Shown {
    fn output(&mut self, stream: Stream, bytes: &[u8]) {
        if self.silent {
            return;
        }
        let rest = if self.writer.is_some() { bytes } else { write_what_fits(stream, bytes) };
        if rest.is_empty() {
            return;
        }
        // By the first output everything that must be cloned from a single thread has been.
        let (sender, _) = self.writer.get_or_insert_with(|| {
            let (sender, pieces) = std::sync::mpsc::channel::<Piece>();
            let writer = std::thread::spawn(move || {
                for (stream, bytes) in pieces {
                    write_all(stream, &bytes);
                }
            });
            (sender, writer)
        });
        let _ = sender.send((stream, rest.to_vec()));
    }

    fn is_behind(&self) -> bool {
        self.writer.is_some()
    }
}

/// Writes as long as nobody has to be waited for; what is left. A pipe that can be written to takes at least a page.
fn write_what_fits(stream: Stream, mut bytes: &[u8]) -> &[u8] {
    const PAGE: usize = 4096;
    let (stdout, stderr) = (std::io::stdout(), std::io::stderr());
    let fd = match stream {
        Stream::Stdout => stdout.as_fd(),
        Stream::Stderr => stderr.as_fd(),
    };
    while !bytes.is_empty() {
        let mut ready = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        if !matches!(poll(&mut ready, Some(&at_once)), Ok(1)) {
            break;
        }
        let (now, later) = bytes.split_at(bytes.len().min(PAGE));
        write_all(stream, now);
        bytes = later;
    }
    bytes
}

/// If nobody reads us any more, the program may still finish its work.
fn write_all(stream: Stream, bytes: &[u8]) {
    let _ = match stream {
        Stream::Stdout => write_now(std::io::stdout().lock(), bytes),
        Stream::Stderr => write_now(std::io::stderr().lock(), bytes),
    };
}

impl Shown {
    /// Waits until all is written.
    fn finish(&mut self) {
        if let Some((sender, writer)) = self.writer.take() {
            drop(sender);
            let _ = writer.join();
        }
    }
}

fn write_now(mut writer: impl Write, bytes: &[u8]) -> std::io::Result<()> {
    writer.write_all(bytes)?;
    writer.flush()
}

fn print_json(report: &RunReport) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(report)?;
    if std::io::stdout().is_terminal() {
        text = terminal::harmless_json(&text);
    }
    text.push('\n');
    write_now(std::io::stdout().lock(), text.as_bytes()).context("can't write the report")
}

/// What a person should know beyond the output.
fn tell(report: &RunReport, limits: &Limits, out: Option<&Path>) {
    for limit in &report.limits_hit {
        let how = if report.limit == Some(*limit) { "ended the program" } else { "was reached" };
        terminal::note(&format!("the {} {how}{}", describe(*limit, limits), raise(*limit)));
    }
    if let Some(signal) = report.signal.as_ref().filter(|_| report.ending == Ending::Signaled) {
        terminal::note(&format!("the program was ended by {signal}"));
    }
    let names: Vec<_> =
        report.files.iter().take(8).map(|file| file.name.escape_debug().to_string()).collect();
    let more = report.files.len().saturating_sub(names.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    match (out, report.files.as_slice()) {
        (_, []) => {}
        (Some(out), _) => terminal::note(&format!("wrote {}{more} to {}", names.join(", "), out.display())),
        (None, _) => {
            terminal::note(&format!(
                "the program made {}{more}; keep files with --out DIR",
                names.join(", ")
            ));
        }
    }
    for skipped in report.skipped_files.iter().take(8) {
        terminal::note(&format!("left {} behind: {}", skipped.name.escape_debug(), skipped.reason));
    }
}

fn describe(limit: LimitName, limits: &Limits) -> String {
    match limit {
        LimitName::Wall => format!("time limit of {}", limits.wall),
        LimitName::CpuTime => format!("CPU time limit of {}", limits.cpu_time),
        LimitName::Cpus => format!("limit of {} cores", limits.cpus),
        LimitName::Memory => format!("memory limit of {}", limits.memory),
        LimitName::Swap => format!("swap limit of {}", limits.swap),
        LimitName::Pids => format!("limit of {} processes", limits.pids),
        LimitName::Disk => format!("disk limit of {}", limits.disk),
        LimitName::Files => format!("limit of {} files", limits.files),
        LimitName::Output => format!("output limit of {}", limits.output),
        // On one process it ends nothing; what ends a run is the one on all of them.
        LimitName::Nofile => {
            format!(
                "limit on open files, file locks and TCP connections of all processes (nofile is {})",
                limits.nofile
            )
        }
        LimitName::Io => format!("disk read limit of {}/s", limits.io.unwrap_or(ByteSize(0))),
    }
}

fn raise(limit: LimitName) -> String {
    format!(" (raise it with --{})", limit.name().replace('_', "-"))
}

fn exit_code(report: &RunReport) -> ExitCode {
    let by_signal =
        report.signal_number.and_then(|number| u8::try_from(128 + number).ok()).unwrap_or(OWN_FAILURE);
    ExitCode::from(match (report.ending, report.limit, report.exit_code) {
        (Ending::Limit, Some(LimitName::Wall | LimitName::CpuTime), _) => 124,
        (Ending::Limit, _, _) => 137,
        (Ending::Exited, _, Some(code)) => u8::try_from(code).unwrap_or(OWN_FAILURE),
        _ => by_signal,
    })
}
