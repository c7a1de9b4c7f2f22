//! What a cell shows, as messages that are small enough. What had to be made smaller or left out is kept as a file of the
//! session, and the output says where.

use std::sync::Arc;

use redoma_engine::Stream;
use redoma_engine::interpreter::Execution;
use redoma_model::{Bundle, FileName, Output, Owner, StoredFile};
use serde_json::{Value, json};

use super::bundles::{self, TooLarge};
use super::kernel::{Kernel, Work};
use super::limits::{self, MOST_CONTENT};
use super::messages::Parent;
use super::outcome::Problem;
use crate::App;
use crate::executing::{Event, blocking};
use crate::failure::Failure;

/// Bytes of a piece of text, as JSON.
const MOST_TEXT: usize = MOST_CONTENT - 1000;
/// So many files are kept of one cell.
const MOST_KEPT: usize = 20;

pub struct Outputs<'a> {
    app: &'a Arc<App>,
    kernel: &'a Kernel,
    work: &'a Work,
    parent: &'a Parent,
    /// The cell's number.
    number: u64,
    /// Whether the value of the last line is left out.
    is_silent: bool,
    has_stdout: bool,
    has_result: bool,
    kept: usize,
    /// The error that the program has shown.
    pub seen_error: Option<Problem>,
}

impl<'a> Outputs<'a> {
    pub fn new(app: &'a Arc<App>, kernel: &'a Kernel, work: &'a Work, number: u64, is_silent: bool) -> Self {
        Self {
            app,
            kernel,
            work,
            parent: &work.request.header,
            number,
            is_silent,
            has_stdout: false,
            has_result: false,
            kept: 0,
            seen_error: None,
        }
    }

    pub async fn show(&mut self, event: Event) {
        match event {
            Event::Output { stream: Stream::Stdout, text } => self.text("stdout", &text).await,
            Event::Output { stream: Stream::Stderr, text } => self.text("stderr", &text).await,
            Event::Shown(output) => self.output(output).await,
            // Nobody here has tools to call.
            Event::Call(_) => {}
        }
    }

    async fn output(&mut self, output: Output) {
        match output {
            Output::Stdout { text } => self.text("stdout", &text).await,
            Output::Stderr { text } => self.text("stderr", &text).await,
            Output::Display { data, metadata, id, update } => {
                let id = id.map(|id| limits::shortened(&id, 1000).into_owned());
                let transient = id.map_or_else(|| json!({}), |id| json!({ "display_id": id }));
                let kind = if update { "update_display_data" } else { "display_data" };
                self.bundle(
                    kind,
                    data,
                    metadata,
                    |data, metadata| json!({ "data": data, "metadata": metadata, "transient": transient }),
                )
                .await;
            }
            Output::Result { data, metadata } => {
                self.has_result = true;
                if !self.is_silent {
                    let number = self.number;
                    self.bundle("execute_result", data, metadata, |data, metadata| {
                        json!({ "data": data, "metadata": metadata, "execution_count": number })
                    })
                    .await;
                }
            }
            Output::Error { name, value, traceback } => {
                let problem = Problem::new(&name, &value, traceback);
                self.error(&problem).await;
                self.seen_error = Some(problem);
            }
            Output::Clear { wait } => {
                self.kernel.publish(self.parent, "clear_output", &json!({ "wait": wait })).await;
            }
        }
    }

    async fn text(&mut self, name: &'static str, text: &str) {
        self.has_stdout |= name == "stdout";
        for piece in limits::pieces(text, MOST_TEXT) {
            self.kernel.publish(self.parent, "stream", &json!({ "name": name, "text": piece })).await;
        }
    }

    /// Something that the server has to say.
    pub async fn note(&mut self, note: &str) {
        self.text("stderr", &format!("[redoma] {note}\n")).await;
    }

    pub async fn error(&mut self, problem: &Problem) {
        self.kernel.publish(self.parent, "error", &problem.content()).await;
    }

    /// The value of the last line, where the run was a plain one that tells it in place of its output.
    pub async fn result_of_plain_run(&mut self, execution: &Execution) {
        let text = &execution.report.stdout.text;
        if execution.cell.is_none() && !self.has_stdout && !self.has_result && !text.is_empty() {
            let text = text.strip_suffix('\n').unwrap_or(text);
            let data = Bundle::from_iter([("text/plain".to_owned(), text.into())]);
            self.output(Output::Result { data, metadata: Bundle::new() }).await;
        }
    }

    async fn bundle(
        &mut self,
        kind: &'static str,
        data: Bundle,
        metadata: Bundle,
        content: impl FnOnce(&Bundle, &Bundle) -> Value,
    ) {
        let (mut data, metadata, too_large) = fitted(self.app, &self.kernel.owner, data, metadata).await;
        let mut notes = Vec::new();
        for one in too_large {
            notes.push(self.keep(one).await);
        }
        // A client that knows none of the other forms would show nothing at all.
        if !notes.is_empty() && !data.contains_key("text/plain") && !data.contains_key("image/png") {
            data.insert("text/plain".to_owned(), std::mem::take(&mut notes).join("\n").into());
        }
        self.kernel.publish(self.parent, kind, &content(&data, &metadata)).await;
        for note in notes {
            self.note(&note).await;
        }
    }

    /// Keeps the whole of it as a file; says so.
    async fn keep(&mut self, one: TooLarge) -> String {
        let kind = limits::shortened(&one.kind, 100).into_owned();
        let size = one.content.len();
        let what = if one.is_shown_smaller { "is shown smaller" } else { "is not shown" };
        let told = format!("A value of type {kind} is too large for one message ({size} bytes) and {what};");
        if self.kept >= MOST_KEPT {
            return format!("{told} the cell has had too many of those for all to be kept.");
        }
        self.kept += 1;
        let name = format!("output-{}-{}.{}", self.number, self.kept, one.extension());
        match self.store(&name, one.content).await {
            Ok(file) => {
                let StoredFile { session, id, .. } = file;
                let path = format!("/api/v1/sessions/{session}/files/{id}/content");
                format!("{told} all of it is in the file `{name}`: GET {path}")
            }
            Err(failure) => format!("{told} it could not be kept as a file: {}", failure.detail),
        }
    }

    async fn store(&self, name: &str, content: Vec<u8>) -> Result<StoredFile, Failure> {
        let name: FileName = name.parse().map_err(|error| Failure::internal(&error))?;
        let (app, principal) = (Arc::clone(self.app), self.work.principal.clone());
        let session = self.kernel.session();
        blocking(move || app.interpreter.attach(&principal, &session, name, &content)).await
    }
}

async fn fitted(
    app: &App,
    owner: &Owner,
    mut data: Bundle,
    mut metadata: Bundle,
) -> (Bundle, Bundle, Vec<TooLarge>) {
    if limits::length(&data) < MOST_CONTENT / 2 {
        let too_large = bundles::fit(&mut data, &mut metadata);
        return (data, metadata, too_large);
    }
    let _turn = app.jupyter.shrinking.enter(owner).await.ok();
    let work = tokio::task::spawn_blocking(move || {
        let too_large = bundles::fit(&mut data, &mut metadata);
        (data, metadata, too_large)
    });
    work.await.unwrap_or_default()
}
