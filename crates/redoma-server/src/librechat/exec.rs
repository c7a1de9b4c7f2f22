//! A program per call.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use redoma_engine::interpreter::{Execution, ExecutionRequest, FileReference, Variables, new_execution_id};
use redoma_model::{FileName, SessionId, StoredFile};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::{Claim, Error, outcome};
use crate::App;
use crate::auth::Caller;
use crate::body::{JsonBody, Weigh, no_room, short_list};
use crate::executing::{self, blocking};
use crate::failure::Failure;
use crate::listen::Line;

/// What both generations send. What is not known is ignored.
#[derive(Debug, Deserialize)]
pub(super) struct ExecBody {
    lang: String,
    code: String,
    #[serde(default)]
    args: Arguments,
    user_id: Option<String>,
    #[serde(default, deserialize_with = "short_list")]
    files: Vec<WireFile>,
    session_id: Option<String>,
    timeout: Option<f64>,
    /// What a conversation with live variables is called.
    runtime_session_hint: Option<String>,
}

/// A file that an earlier answer or an upload named.
#[derive(Debug, Deserialize)]
pub(super) struct WireFile {
    id: String,
    name: String,
    storage_session_id: Option<String>,
    session_id: Option<String>,
    kind: Option<String>,
    resource_id: Option<String>,
    /// Of a skill.
    version: Option<Version>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Version {
    Number(u64),
    Text(String),
}

impl Weigh for ExecBody {
    fn weight(&self) -> usize {
        let texts = [&self.user_id, &self.session_id, &self.runtime_session_hint];
        self.lang.weight()
            + self.code.weight()
            + self.args.0.weight()
            + self.files.weight()
            + texts.into_iter().map(Weigh::weight).sum::<usize>()
    }
}

impl Weigh for WireFile {
    fn weight(&self) -> usize {
        let version = match &self.version {
            Some(Version::Text(text)) => text.weight(),
            Some(Version::Number(_)) | None => 0,
        };
        let texts = [&self.storage_session_id, &self.session_id, &self.kind, &self.resource_id];
        self.id.weight() + self.name.weight() + version + texts.into_iter().map(Weigh::weight).sum::<usize>()
    }
}

/// One result in both generations' words.
#[derive(Debug, Serialize)]
pub(super) struct ResultFile {
    id: String,
    name: String,
    session_id: String,
    storage_session_id: String,
}

#[derive(Debug, Serialize)]
struct Delivery {
    code: &'static str,
    status: &'static str,
    attempted: usize,
    delivered: usize,
    failed: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct ExecAnswer {
    session_id: String,
    stdout: String,
    stderr: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    files: Vec<ResultFile>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    deleted_files: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    artifact_delivery: Option<Delivery>,
    code: Option<i32>,
    signal: Option<String>,
    message: Option<String>,
    status: Option<&'static str>,
    wall_time: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    runtime_session_id: Option<String>,
    /// `new` or `reused`: whether it found the variables of earlier calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    runtime_status: Option<&'static str>,
}

/// Names that its clients use for languages that others speak too.
fn language(name: &str) -> &str {
    match name {
        "python" => "py",
        "sh" => "bash",
        other => other,
    }
}

pub(super) fn timeout(ms: Option<f64>) -> Option<Duration> {
    let ms = ms.filter(|ms| ms.is_finite() && *ms > 0.0)?;
    Some(Duration::from_secs_f64((ms / 1000.0).min(86_400.0)))
}

/// Arguments as text, however they come: a list, one alone, none.
#[derive(Debug, Default)]
struct Arguments(Vec<String>);

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        let list = if raw.get().starts_with('[') {
            short_list::<_, &RawValue>(&mut serde_json::Deserializer::from_str(raw.get()))
        } else {
            Ok(if raw.get() == "null" { Vec::new() } else { vec![raw] })
        };
        let text = |value: &RawValue| {
            serde_json::from_str::<String>(value.get()).unwrap_or_else(|_| value.get().to_owned())
        };
        Ok(Self(list.map_err(D::Error::custom)?.into_iter().map(text).collect()))
    }
}

/// The files that can be what they are said to be, and the names of the others.
pub(super) fn references(files: Vec<WireFile>) -> (Vec<FileReference>, Vec<String>) {
    let (mut references, mut missing) = (Vec::new(), Vec::new());
    for file in files {
        let session = file.storage_session_id.as_deref().or(file.session_id.as_deref()).unwrap_or_default();
        let version = file.version.map(|version| match version {
            Version::Text(text) => text,
            Version::Number(number) => number.to_string(),
        });
        let claim = Claim { kind: file.kind, id: file.resource_id, version, entity_id: None };
        let parsed = (session.parse(), file.id.parse(), file.name.parse::<FileName>());
        match parsed {
            (Ok(session), Ok(id), Ok(name)) => {
                references.push(FileReference { session, id, name, claimed: claim.resource() });
            }
            _ => missing.push(file.name.chars().take(200).collect()),
        }
    }
    (references, missing)
}

pub(super) async fn exec(
    State(app): State<Arc<App>>,
    caller: Caller,
    headers: HeaderMap,
    line: Line,
    JsonBody(body, room): JsonBody<ExecBody>,
) -> Result<Json<ExecAnswer>, Error> {
    let principal = caller.or_named(body.user_id.as_deref())?;
    let room = room.moved_to(&principal.owner).map_err(|_| no_room())?;
    let session = body.session_id.as_deref().and_then(|id| id.parse::<SessionId>().ok());
    let language = language(&body.lang);
    if let Err(unknown) = app.interpreter.languages().by_name(language) {
        let target = app.interpreter.new_target(&principal, session)?;
        return Ok(Json(ExecAnswer::not_run(target.id(), unknown.to_string())));
    }
    let (files, missing) = references(body.files);
    let permit = executing::permit(&app, &principal)?.holding(room);
    // After all checks: a new conversation opens a session.
    let hint = body.runtime_session_hint.filter(|hint| !hint.is_empty());
    let target = match &hint {
        Some(hint) => {
            let (app, principal, hint) = (Arc::clone(&app), principal.clone(), hint.clone());
            blocking(move || app.conversations.target(&app.interpreter, &principal, &hint)).await?
        }
        None => app.interpreter.new_target(&principal, session)?,
    };
    let request = ExecutionRequest {
        id: new_execution_id().map_err(|error| Failure::internal(&error))?,
        target,
        language: language.to_owned(),
        code: body.code.into_bytes(),
        arguments: body.args.0,
        files,
        timeout: timeout(body.timeout),
        tools: None,
        live: false,
        variables: if hint.is_some() { Variables::Kept } else { Variables::Fresh },
        pictures: true,
    };
    let turn = executing::admit(&app, &principal, &request).await?;
    let program = executing::Program::new(&app, principal.clone(), request, permit, &line)?;
    let _cancellable = app.programs.register(&principal, &headers, program.canceller());
    let mut execution = program.run().await?;
    drop(turn);
    execution.missing.extend(missing);
    Ok(Json(ExecAnswer::of(&execution)))
}

impl ExecAnswer {
    fn of(execution: &Execution) -> Self {
        let report = &execution.report;
        Self {
            session_id: execution.session.to_string(),
            stdout: outcome::stdout(execution),
            stderr: outcome::stderr(execution),
            files: result_files(execution),
            deleted_files: report.deleted_files.clone(),
            artifact_delivery: delivery(execution),
            code: report.exit_code,
            signal: report.signal.clone(),
            message: outcome::explanation(report),
            status: outcome::status(report),
            wall_time: report.usage.wall_ms.used,
            runtime_session_id: execution.cell.as_ref().map(|_| execution.session.to_string()),
            runtime_status: execution
                .cell
                .as_ref()
                .map(|cell| if cell.number > 1 { "reused" } else { "new" }),
        }
    }

    /// A program that there is nobody to run. The model reads why, and what it can do.
    fn not_run(session: &SessionId, why: String) -> Self {
        Self {
            session_id: session.to_string(),
            stdout: String::new(),
            stderr: format!("{why}\n"),
            files: Vec::new(),
            deleted_files: Vec::new(),
            artifact_delivery: None,
            code: Some(1),
            signal: None,
            message: Some(why),
            status: Some("RE"),
            wall_time: 0,
            runtime_session_id: None,
            runtime_status: None,
        }
    }
}

pub(super) fn result_files(execution: &Execution) -> Vec<ResultFile> {
    let wire = |file: &StoredFile| ResultFile {
        id: file.id.to_string(),
        name: file.name.as_str().to_owned(),
        session_id: file.session.to_string(),
        storage_session_id: file.session.to_string(),
    };
    execution.files.iter().map(wire).collect()
}

/// Says so if not everything could be kept.
fn delivery(execution: &Execution) -> Option<Delivery> {
    let (delivered, failed) = (execution.files.len(), execution.refused.len());
    (failed > 0).then(|| Delivery {
        code: "artifact_delivery_failed",
        status: if delivered == 0 { "failed" } else { "partial" },
        attempted: delivered + failed,
        delivered,
        failed,
    })
}
