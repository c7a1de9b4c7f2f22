//! Running a cell: a turn, a run in the kernel's session, its output as it comes, and a word now and then when there is
//! none, so that clients that give up on silence keep waiting. Whatever happens, the request ends with a reply and `idle`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redoma_engine::interpreter::{Execution, ExecutionRequest, Target, Variables, new_execution_id};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::expressions::{self, Seen};
use super::kernel::{Kernel, Work};
use super::limits::{self, MOST_CONTENT, MOST_METADATA};
use super::messages::Parent;
use super::outcome::{self, Problem};
use super::outputs::Outputs;
use crate::App;
use crate::admission::Turn;
use crate::executing::{self, Event};
use crate::failure::Failure;
use crate::telemetry;

/// Open WebUI's limit is on the time between two messages, and may be as small as a few seconds.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// How long more text is waited for, within a line and behind one, and how many bytes are sent together.
const WITHIN_LINE: Duration = Duration::from_millis(30);
const BEHIND_LINE: Duration = Duration::from_millis(2);
const LONGEST_JOINED: usize = 64 << 10;

/// What a cell means for those that wait behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Well,
    /// They are not to run.
    Badly,
}

/// What a client asks for. Each field may be missing or null.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Asked<'a> {
    code: Option<String>,
    silent: Option<bool>,
    store_history: Option<bool>,
    stop_on_error: Option<bool>,
    #[serde(borrow)]
    user_expressions: Option<BTreeMap<String, &'a RawValue>>,
}

pub async fn run(app: &Arc<App>, kernel: &Arc<Kernel>, work: &Work) -> Ended {
    let parent = &work.request.header;
    kernel.become_busy(parent, true).await;
    let asked = work.request.content::<Asked<'_>>();
    let (asked, malformed) = match asked {
        Ok(asked) => (asked, None),
        Err(why) => (Asked::default(), Some(Problem::malformed(&why.to_string()))),
    };
    let run = Run { app, kernel, work, parent };
    let is_silent = asked.silent.unwrap_or(false);
    let code = asked.code.unwrap_or_default();
    let is_counted = !is_silent && asked.store_history.unwrap_or(true) && !code.trim().is_empty();
    let number = kernel.next_number(is_counted);
    if !is_silent {
        let shown = limits::shortened(&code, MOST_CONTENT - 1000);
        kernel.publish(parent, "execute_input", &json!({ "code": shown, "execution_count": number })).await;
    }
    let (problem, metadata) = match malformed {
        Some(problem) => {
            kernel.publish(parent, "error", &problem.content()).await;
            (Some(problem), json!({}))
        }
        None if code.trim().is_empty() => (None, json!({})),
        None => run.to_its_end(code, number, is_silent).await,
    };
    let expressions = asked.user_expressions.filter(|_| problem.is_none()).unwrap_or_default();
    let values = expressions::values(&run, expressions).await;

    let mut content = match &problem {
        None => json!({ "status": "ok" }),
        Some(problem) => problem.content(),
    };
    if let Value::Object(content) = &mut content {
        content.entry("status").or_insert("error".into());
        content.insert("execution_count".to_owned(), number.into());
        content.insert("user_expressions".to_owned(), values.into());
        content.insert("payload".to_owned(), json!([]));
    }
    let reply = kernel.message(work.request.channel, "execute_reply", parent, &content);
    kernel.reply(&work.asker, &reply.with_metadata(&metadata)).await;
    kernel.become_busy(parent, false).await;
    let stops = !is_silent && asked.stop_on_error.unwrap_or(true);
    if problem.is_some() && stops { Ended::Badly } else { Ended::Well }
}

/// Who sees what a cell shows.
pub enum Audience<'a, 'b> {
    /// Everybody who is connected.
    Clients(&'a mut Outputs<'b>),
    /// Nobody: only its value counts, or its error.
    Asker(&'a mut Seen),
}

impl Audience<'_, '_> {
    async fn show(&mut self, event: Event) {
        match self {
            Self::Clients(outputs) => outputs.show(event).await,
            Self::Asker(seen) => seen.show(event),
        }
    }
}

pub struct Run<'a> {
    app: &'a Arc<App>,
    kernel: &'a Arc<Kernel>,
    work: &'a Work,
    parent: &'a Parent,
}

impl Run<'_> {
    /// Why it failed, if it did, and what the reply says beside that.
    async fn to_its_end(&self, code: String, number: u64, is_silent: bool) -> (Option<Problem>, Value) {
        let mut outputs = Outputs::new(self.app, self.kernel, self.work, number, is_silent);
        let execution = match self.execute(code, Audience::Clients(&mut outputs)).await {
            Ok(execution) => execution,
            Err(problem) => {
                outputs.error(&problem).await;
                return (Some(problem), json!({}));
            }
        };
        let problem = if let Some(seen) = outputs.seen_error.take() {
            Some(seen)
        } else {
            let problem = outcome::problem(&execution);
            if let Some(problem) = &problem {
                outputs.error(problem).await;
            }
            problem
        };
        outputs.result_of_plain_run(&execution).await;
        for note in outcome::notes(&execution, problem.is_some()) {
            outputs.note(&note).await;
        }
        (problem, metadata(&execution))
    }

    pub async fn execute(&self, code: String, audience: Audience<'_, '_>) -> Result<Execution, Problem> {
        let trace = telemetry::of_message(self.app, "/jupyter/api/kernels/{kernel}/channels", None);
        telemetry::under(trace, self.execute_for(code, audience)).await
    }

    async fn execute_for(&self, code: String, mut audience: Audience<'_, '_>) -> Result<Execution, Problem> {
        let failed = |failure: Failure| Problem::from(&failure);
        let permit = executing::permit(self.app, &self.work.principal).map_err(failed)?;
        let _turn = self.turn().await?;
        let internal = |error| Problem::from(&Failure::internal(&error));
        let request = ExecutionRequest {
            id: new_execution_id().map_err(internal)?,
            target: Target::Session(self.kernel.session()),
            language: self.kernel.spec.language.to_owned(),
            code: code.into_bytes(),
            arguments: Vec::new(),
            files: Vec::new(),
            timeout: None,
            tools: None,
            live: true,
            variables: Variables::Kept,
            pictures: false,
        };
        let (sender, mut events) = unbounded_channel();
        let running = executing::start(self.app, self.work.principal.clone(), request, sender, permit);
        let running = running.map_err(failed)?;
        self.kernel.set_current(Some(running.canceller()));
        if self.work.epoch != self.kernel.epoch.load(Ordering::SeqCst) || self.kernel.is_gone() {
            running.cancel();
        }
        let mut next = None;
        loop {
            let event = if next.is_some() { next.take() } else { self.kept_alive(events.recv()).await };
            let Some(event) = event else { break };
            let event = joined(event, &mut events, &mut next).await;
            audience.show(event).await;
        }
        let execution = self.kept_alive(running.finish()).await;
        self.kernel.set_current(None);
        execution.map_err(failed)
    }

    /// Waits for its turn among all programs that run here.
    async fn turn(&self) -> Result<Turn, Problem> {
        let interrupted = self.kernel.interrupted.notified();
        tokio::select! {
            biased;
            turn = self.kept_alive(self.app.queued(self.app.admission.enter(&self.work.principal.owner))) => turn.map_err(|failure| Problem::from(&failure)),
            () = interrupted => Err(Problem::interrupted()),
        }
    }

    /// Waits for something, and says now and then that it still does.
    async fn kept_alive<T>(&self, something: impl Future<Output = T>) -> T {
        let mut something = std::pin::pin!(something);
        loop {
            match tokio::time::timeout(HEARTBEAT, &mut something).await {
                Ok(done) => return done,
                Err(_) => self.kernel.publish_status(self.parent, "busy").await,
            }
        }
    }
}

/// A piece of text together with what comes right behind it: a line is often written in several pieces, and each would be a
/// message. What ends it and is something else is left in `next`.
async fn joined(event: Event, events: &mut UnboundedReceiver<Event>, next: &mut Option<Event>) -> Event {
    let Event::Output { stream, mut text } = event else { return event };
    while text.len() < LONGEST_JOINED {
        let patience = if text.ends_with('\n') { BEHIND_LINE } else { WITHIN_LINE };
        match tokio::time::timeout(patience, events.recv()).await {
            Ok(Some(Event::Output { stream: same, text: more })) if same == stream => text.push_str(&more),
            Ok(other) => {
                *next = other;
                break;
            }
            Err(_) => break,
        }
    }
    Event::Output { stream, text }
}

/// Where the session and the files are that the cell made, for clients that know of it.
fn metadata(execution: &Execution) -> Value {
    let mut files = Vec::new();
    let mut length = 0;
    for file in &execution.files {
        let path = format!("/api/v1/sessions/{}/files/{}/content", execution.session, file.id);
        let entry = json!({ "name": file.name, "size": file.size, "path": path });
        length += limits::length(&entry) + 1;
        if length > MOST_METADATA - 1000 {
            break;
        }
        files.push(entry);
    }
    let more = execution.more_files + (execution.files.len() - files.len()) as u64;
    let mut redoma = json!({ "session_id": execution.session, "execution_id": execution.id, "files": files });
    if more > 0 {
        redoma["more_files"] = more.into();
        redoma["archive"] = format!("/api/v1/executions/{}/archive", execution.id).into();
    }
    json!({ "redoma": redoma })
}
