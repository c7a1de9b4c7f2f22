//! Programs that call the chat's tools. The program runs once and really waits for each answer; between two requests it is
//! alive in its sandbox, and does not keep a turn from others.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use redoma_engine::interpreter::{Execution, ExecutionRequest, Variables, new_execution_id};
use redoma_engine::{AnswerError, Answers, ToolAnswer, ToolFunction, Tools};
use redoma_model::Principal;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::exec::{WireFile, references, result_files, timeout};
use super::function_names::function_name;
use super::programs::{PATIENCE, Program, request_name};
use super::{Error, outcome};
use crate::App;
use crate::auth::Caller;
use crate::body::{JsonBody, Weigh, no_room, short_list};
use crate::executing::{self, Event};
use crate::failure::Failure;
use crate::rates::Permit;

/// How long a program may go on making calls before the first of them are passed on: those of one `gather` go together.
const TOGETHER: Duration = Duration::from_millis(5);

/// The first request, or one that brings answers.
#[derive(Debug, Deserialize)]
pub(super) struct Body {
    code: Option<String>,
    #[serde(default, deserialize_with = "short_list")]
    tools: Vec<Tool>,
    lang: Option<String>,
    session_id: Option<String>,
    user_id: Option<String>,
    timeout: Option<f64>,
    #[serde(default, deserialize_with = "short_list")]
    files: Vec<WireFile>,
    continuation_token: Option<String>,
    #[serde(default, deserialize_with = "short_list")]
    tool_results: Vec<ToolResult>,
}

#[derive(Debug, Deserialize)]
struct Tool {
    name: String,
}

#[derive(Debug, Deserialize)]
struct ToolResult {
    call_id: String,
    /// As it came: its values are the program's to make.
    result: Option<Box<RawValue>>,
    #[serde(default)]
    is_error: bool,
    error_message: Option<String>,
}

impl Weigh for Body {
    fn weight(&self) -> usize {
        let texts = [&self.code, &self.lang, &self.session_id, &self.user_id, &self.continuation_token];
        self.tools.weight()
            + self.files.weight()
            + self.tool_results.weight()
            + texts.into_iter().map(Weigh::weight).sum::<usize>()
    }
}

impl Weigh for Tool {
    fn weight(&self) -> usize {
        self.name.weight()
    }
}

impl Weigh for ToolResult {
    fn weight(&self) -> usize {
        let result = self.result.as_ref().map_or(0, |result| result.get().len());
        self.call_id.weight() + self.error_message.weight() + result
    }
}

pub(super) async fn programmatic(
    State(app): State<Arc<App>>,
    caller: Caller,
    headers: HeaderMap,
    JsonBody(body, room): JsonBody<Body>,
) -> Result<Response, Error> {
    let principal = caller.or_named(body.user_id.as_deref())?;
    let room = room.moved_to(&principal.owner).map_err(|_| no_room())?;
    // One that goes on was permitted when it began.
    let (permit, _room) = match body.continuation_token {
        Some(_) => (None, Some(room)),
        None => (Some(executing::permit(&app, &principal)?.holding(room)), None),
    };
    let turn = app.queued(app.admission.enter(&principal.owner)).await?;
    let mut program = match (&body.continuation_token, permit) {
        (None, Some(permit)) => begin(&app, principal.clone(), body, permit)?,
        (token, _) => resume(&app, &principal, token.as_deref().unwrap_or_default(), body.tool_results)?,
    };
    program.request = request_name(&headers);
    let _cancellable = app.programs.register(&principal, &headers, program.running.canceller());
    let answer = advance(&app, program).await?;
    drop(turn);
    Ok(answer)
}

/// Gives a program the answers that it waits for: all of them, since what it does then can't be taken back.
fn resume(
    app: &App,
    principal: &Principal,
    token: &str,
    results: Vec<ToolResult>,
) -> Result<Program, Failure> {
    let gone = || Failure::not_found("program that waits; start it again");
    let mut program = app.programs.take(token, principal).ok_or_else(gone)?;
    let is_answered = |id: &String| results.iter().any(|result| result.call_id == *id);
    if let Some(missing) = program.unanswered.iter().find(|id| !is_answered(id)) {
        let failure = Failure::bad_request(format!("`tool_results` has no answer to {missing}"));
        app.programs.put(token.to_owned(), program);
        return Err(failure);
    }
    for result in results {
        let id = result.call_id.clone();
        if let Err(failure) = answer(&program.answers, result) {
            app.programs.put(token.to_owned(), program);
            return Err(failure);
        }
        program.unanswered.retain(|unanswered| *unanswered != id);
    }
    Ok(program)
}

fn answer(answers: &Answers, result: ToolResult) -> Result<(), Failure> {
    let json = result.result.as_deref().map_or("null", RawValue::get);
    let outcome = if result.is_error {
        // What the tool said, if it is text.
        let said = || serde_json::from_str::<String>(json).unwrap_or_else(|_| json.to_owned());
        Err(result.error_message.unwrap_or_else(|| match said().as_str() {
            "null" => "the tool failed".to_owned(),
            said => said.to_owned(),
        }))
    } else {
        Ok(json.to_owned())
    };
    match answers.send(&ToolAnswer { call_id: result.call_id, result: outcome }) {
        // Answers to what has been answered, or to a program that did not wait for them, are nobody's loss.
        Ok(()) | Err(AnswerError::NoSuchCall(_) | AnswerError::Over) => Ok(()),
        Err(error @ AnswerError::TooMuch(_)) => Err(Failure::too_large(error.to_string())),
    }
}

fn begin(app: &Arc<App>, principal: Principal, body: Body, permit: Permit) -> Result<Program, Failure> {
    let place = app.programs.place(&principal.owner)?;
    let code = body.code.ok_or_else(|| Failure::bad_request("`code` or `continuation_token` is needed"))?;
    let language = match body.lang.as_deref() {
        None | Some("py" | "python") => "py",
        Some("bash" | "sh") => "bash",
        Some(other) => {
            let detail = format!("`{}` can't call tools; use py or bash", other.escape_debug());
            return Err(Failure::bad_request(detail));
        }
    };
    let functions = body
        .tools
        .into_iter()
        .map(|tool| ToolFunction { function: function_name(&tool.name, language), tool: tool.name });
    let tools = Tools::new(functions.collect(), PATIENCE);
    let (tools, answers) = tools.map_err(|error| Failure::bad_request(format!("tools: {error}")))?;
    let session = body.session_id.as_deref().and_then(|id| id.parse().ok());
    let target = app.interpreter.new_target(&principal, session)?;
    let (files, missing) = references(body.files);
    let session = target.id().clone();
    let request = ExecutionRequest {
        id: new_execution_id().map_err(|error| Failure::internal(&error))?,
        target,
        language: language.to_owned(),
        code: code.into_bytes(),
        arguments: Vec::new(),
        files,
        timeout: timeout(body.timeout),
        tools: Some(tools),
        live: false,
        variables: Variables::Fresh,
        pictures: false,
    };
    let (sender, events) = unbounded_channel();
    let running = executing::start(app, principal, request, sender, permit)?;
    let mut program = Program::new(session, answers, events, running, place);
    program.missing = missing;
    Ok(program)
}

/// Waits for the program's next calls, or its end.
async fn advance(app: &App, mut program: Program) -> Result<Response, Failure> {
    let mut calls = Vec::new();
    while let Some(event) = next(&mut program.events, !calls.is_empty()).await {
        if let Event::Call(call) = event {
            calls.push(call);
        }
    }
    if calls.is_empty() {
        let mut execution = program.running.finish().await?;
        execution.missing.extend(program.missing);
        return Ok(Json(ended(&execution)).into_response());
    }
    let token = new_execution_id().map_err(|error| Failure::internal(&error))?.to_string();
    let answer = Waiting {
        status: "tool_call_required",
        continuation_token: &token,
        tool_calls: calls
            .iter()
            .map(|call| Call { id: &call.id, name: &call.tool, input: &call.input })
            .collect(),
        session_id: program.session.as_str(),
    };
    let answer = Json(answer).into_response();
    program.unanswered = calls.into_iter().map(|call| call.id).collect();
    app.programs.put(token, program);
    Ok(answer)
}

/// What the client does for a program that waits.
#[derive(Debug, Serialize)]
struct Waiting<'a> {
    status: &'static str,
    continuation_token: &'a str,
    tool_calls: Vec<Call<'a>>,
    session_id: &'a str,
}

#[derive(Debug, Serialize)]
struct Call<'a> {
    id: &'a str,
    name: &'a str,
    input: &'a RawValue,
}

/// The next thing that happens; if there is something to pass on already, only what happens at once. The program's end is
/// the end of its events.
async fn next(events: &mut UnboundedReceiver<Event>, has_calls: bool) -> Option<Event> {
    if has_calls { tokio::time::timeout(TOGETHER, events.recv()).await.ok()? } else { events.recv().await }
}

fn ended(execution: &Execution) -> Value {
    let report = &execution.report;
    let stderr = outcome::stderr(execution);
    let mut answer = json!({
        "status": "completed",
        "session_id": execution.session,
        "stdout": report.stdout.text,
        "stderr": stderr,
        "files": result_files(execution),
    });
    if let Some(error) = outcome::known_error(report) {
        answer["status"] = "error".into();
        answer["error"] = error.into();
    }
    answer
}

#[derive(Debug, Deserialize)]
pub(super) struct CancelBody {
    request_id: String,
}

impl Weigh for CancelBody {
    fn weight(&self) -> usize {
        self.request_id.weight()
    }
}

/// Ends what goes on under this name. Best effort: it may be over.
pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    Caller(principal): Caller,
    JsonBody(body, _room): JsonBody<CancelBody>,
) -> (StatusCode, Json<Value>) {
    let was_there = app.programs.cancel(&principal, &body.request_id);
    (StatusCode::ACCEPTED, Json(json!({ "cancelled": was_there })))
}
