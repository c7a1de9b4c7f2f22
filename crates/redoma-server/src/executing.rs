//! Running a program for a request: wait for a turn, run it on a thread of its own, and end it if nobody waits any more.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use redoma_engine::interpreter::{Execution, ExecutionRequest, Variables};
use redoma_engine::meter::Phase;
use redoma_engine::{Cancel, Level, Observer, RunError, Stream, ToolCall};
use redoma_model::{Output, Principal};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::mpsc::UnboundedSender;

use crate::App;
use crate::admission::Turn;
use crate::failure::Failure;
use crate::listen::Line;
use crate::rates::{Permit, Wanted};
use crate::telemetry::{self, Trace};

/// Work that may wait for the disk, off the threads that serve connections.
pub async fn blocking<T: Send + 'static, E: Into<Failure> + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(Into::into),
        Err(error) => Err(Failure::internal(&error)),
    }
}

/// What happens while a program runs.
#[derive(Debug)]
pub enum Event {
    Output {
        stream: Stream,
        text: String,
    },
    Call(ToolCall),
    /// A cell has shown something.
    Shown(Output),
}

/// Runs a program to its end, for whoever waits at the other end of the line.
pub async fn execute(
    app: &Arc<App>,
    principal: Principal,
    request: ExecutionRequest,
    permit: Permit,
    line: &Line,
) -> Result<Execution, Failure> {
    let turn = admit(app, &principal, &request).await?;
    let execution = Program::new(app, principal, request, permit, line)?.run().await;
    drop(turn);
    execution
}

/// Whether they may run one more program. Asked for first: whoever may not is told at once, and so are all when the host has
/// no room.
pub fn permit(app: &Arc<App>, principal: &Principal) -> Result<Permit, Failure> {
    if app.interpreter.pressure().is_some_and(|pressure| pressure.level() == Level::Critical) {
        return Err(RunError::Overloaded.into());
    }
    app.permit(principal, Wanted::Execution)
}

/// Whose turn it is, as long as what comes back. A cell waits for those before it in its session first, and that must not
/// keep others from running: its turn is the engine's affair.
pub async fn admit(
    app: &Arc<App>,
    principal: &Principal,
    request: &ExecutionRequest,
) -> Result<Option<Turn>, Failure> {
    match request.variables {
        Variables::Fresh => app.queued(app.admission.enter(&principal.owner)).await.map(Some),
        Variables::Kept => Ok(None),
    }
}

/// Starts a program without waiting for a turn. What it prints goes to `watcher` as it comes: at most what the output limit
/// keeps, so that a watcher that does not listen costs no more than that.
pub fn start(
    app: &Arc<App>,
    principal: Principal,
    request: ExecutionRequest,
    watcher: UnboundedSender<Event>,
    permit: Permit,
) -> Result<RunningProgram, Failure> {
    Ok(Program::new(app, principal, request, permit, &Line::default())?.start(Some(watcher)))
}

/// A program that is about to run. What it uses is counted on the permit, whether anybody waits for its end or not.
pub struct Program {
    cancel: Arc<Cancel>,
    work: Work,
    is_heard_of: bool,
}

struct Work {
    app: Arc<App>,
    principal: Principal,
    request: ExecutionRequest,
    permit: Permit,
    trace: Option<Trace>,
}

impl Program {
    pub fn new(
        app: &Arc<App>,
        principal: Principal,
        request: ExecutionRequest,
        permit: Permit,
        line: &Line,
    ) -> Result<Self, Failure> {
        let line = line.0.upgrade();
        let is_heard_of = line.is_some();
        let cancel = line.map_or_else(Cancel::new, |line| Cancel::with_line(line));
        let cancel = Arc::new(cancel.map_err(|error| Failure::internal(&error))?);
        let work = Work { app: Arc::clone(app), principal, request, permit, trace: telemetry::current() };
        Ok(Self { cancel, work, is_heard_of })
    }

    /// For somebody else to end it with.
    pub fn canceller(&self) -> Arc<Cancel> {
        Arc::clone(&self.cancel)
    }

    /// On a thread of its own.
    fn start(self, watcher: Option<UnboundedSender<Event>>) -> RunningProgram {
        let Self { cancel, work, .. } = self;
        let seen_by_run = Arc::clone(&cancel);
        let task = tokio::task::spawn_blocking(move || work.run(watcher, &seen_by_run));
        RunningProgram { cancel: CancelOnDrop(cancel), task }
    }

    /// To its end. On this very thread, whose other work goes to another, if it is known without this thread whether
    /// whoever asked still waits: on the way to another thread and back two have to be woken, which takes as long as a short
    /// program itself.
    pub async fn run(self) -> Result<Execution, Failure> {
        let is_possible = Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
        let place = InPlace::take().filter(|_| is_possible && self.is_heard_of);
        let Some(_place) = place else { return self.start(None).finish().await };
        let Self { cancel, work, .. } = self;
        let run = AssertUnwindSafe(|| work.run(None, &cancel));
        let result = tokio::task::block_in_place(|| std::panic::catch_unwind(run));
        result.unwrap_or_else(|_| Err(Failure::internal(&"a run panicked")))
    }
}

/// One of the programs that run on the threads of their requests. Not too many: each of these threads needs another in its place,
/// and where there is none nobody would be served any more.
struct InPlace;

static IN_PLACE: AtomicUsize = AtomicUsize::new(0);
const MOST_IN_PLACE: usize = 64;

impl InPlace {
    fn take() -> Option<Self> {
        let place = Self;
        let before = IN_PLACE.fetch_add(1, Ordering::Relaxed);
        (before < MOST_IN_PLACE).then_some(place)
    }
}

impl Drop for InPlace {
    fn drop(&mut self) {
        IN_PLACE.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Work {
    fn run(
        self,
        watcher: Option<UnboundedSender<Event>>,
        cancel: &Arc<Cancel>,
    ) -> Result<Execution, Failure> {
        let Self { app, principal, request, permit, trace } = self;
        let mut observer = Watch { watcher, stdout: Text::default(), stderr: Text::default(), trace };
        let result = app.interpreter.execute(&principal, request, &mut observer, cancel);
        observer.finish();
        if let Ok(execution) = &result {
            let cpu = Duration::from_millis(execution.report.usage.cpu_ms.used);
            permit.charge(cpu, execution.stored_bytes);
        }
        drop(permit);
        let result = result.map_err(Failure::from);
        observer.trace(&result);
        result
    }
}

/// A program that runs. Dropping this ends it.
#[derive(Debug)]
pub struct RunningProgram {
    cancel: CancelOnDrop,
    task: tokio::task::JoinHandle<Result<Execution, Failure>>,
}

impl RunningProgram {
    pub fn cancel(&self) {
        self.cancel.0.cancel();
    }

    /// For somebody else to end it with.
    pub fn canceller(&self) -> Arc<Cancel> {
        Arc::clone(&self.cancel.0)
    }

    pub async fn finish(self) -> Result<Execution, Failure> {
        let Self { cancel, task } = self;
        let result = task.await.unwrap_or_else(|error| Err(Failure::internal(&error)));
        drop(cancel);
        result
    }
}

/// Whoever asked has gone: nobody would get the answer.
#[derive(Debug)]
struct CancelOnDrop(Arc<Cancel>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

struct Watch {
    watcher: Option<UnboundedSender<Event>>,
    stdout: Text,
    stderr: Text,
    trace: Option<Trace>,
}

impl Watch {
    fn finish(&mut self) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let rest = self.text(stream).rest();
            self.send(stream, rest);
        }
    }

    fn trace(&self, result: &Result<Execution, Failure>) {
        match (&self.trace, result) {
            (Some(trace), Ok(execution)) => trace.ran(&execution.report),
            (Some(trace), Err(failure)) => trace.failed(failure),
            (None, _) => {}
        }
    }

    fn text(&mut self, stream: Stream) -> &mut Text {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    fn send(&self, stream: Stream, text: String) {
        if let Some(watcher) = &self.watcher
            && !text.is_empty()
        {
            let _ = watcher.send(Event::Output { stream, text });
        }
    }
}

impl Observer for Watch {
    fn output(&mut self, stream: Stream, bytes: &[u8]) {
        if self.watcher.is_some() {
            let text = self.text(stream).push(bytes);
            self.send(stream, text);
        }
    }

    fn tool_call(&mut self, call: ToolCall) {
        if let Some(watcher) = &self.watcher {
            let _ = watcher.send(Event::Call(call));
        }
    }

    fn shown(&mut self, output: &Output) {
        if let Some(watcher) = &self.watcher {
            let _ = watcher.send(Event::Shown(output.clone()));
        }
    }

    fn phase(&mut self, phase: Phase, begun: Instant, time: Duration) {
        if let Some(trace) = &self.trace {
            trace.phase(phase, begun, time);
        }
    }
}

/// Bytes as text, also where a letter comes in two pieces.
#[derive(Debug, Default)]
struct Text {
    begun: Vec<u8>,
}

impl Text {
    fn push(&mut self, bytes: &[u8]) -> String {
        self.begun.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.begun) {
            // Something that could still become a letter waits for the rest of it.
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.begun.len() - incomplete_end(&self.begun),
        };
        let rest = self.begun.split_off(whole);
        String::from_utf8_lossy(&std::mem::replace(&mut self.begun, rest)).into_owned()
    }

    fn rest(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.begun)).into_owned()
    }
}

/// How many bytes at the end begin a letter whose rest is missing.
fn incomplete_end(bytes: &[u8]) -> usize {
    (1..=3.min(bytes.len()))
        .find(|count| {
            let end = &bytes[bytes.len() - count..];
            std::str::from_utf8(end)
                .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_in_two_pieces_are_whole() {
        let text = "aé你🦀".as_bytes();
        for cut in 0..text.len() {
            let mut pieces = Text::default();
            let seen = pieces.push(&text[..cut]) + &pieces.push(&text[cut..]) + &pieces.rest();
            assert_eq!(seen, "aé你🦀", "{cut}");
        }
        let mut pieces = Text::default();
        assert_eq!(pieces.push(b"a\xffb\xe4") + &pieces.push(b"\xbd") + &pieces.rest(), "a\u{fffd}b\u{fffd}");
    }
}
