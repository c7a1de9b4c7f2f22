//! Requests that run nothing: what a kernel is, and what it can't do (completions, history, widgets, debugging), answered in
//! the way that front ends understand.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::kernel::{Kernel, Work};
use super::lifecycle;
use super::messages::{PROTOCOL, Request};
use super::specs::Spec;
use crate::{App, Versions};

/// Answers with a reply where there is one, between `busy` and `idle`.
pub async fn answer(app: &Arc<App>, kernel: &Arc<Kernel>, work: &Work) {
    let (request, parent) = (&work.request, &work.request.header);
    kernel.publish_status(parent, "busy").await;
    let mut ends = None;
    let reply = match request.kind.as_str() {
        "interrupt_request" => {
            let result = lifecycle::interrupt(app, work.principal.clone(), kernel).await;
            let failed = |detail: String| json!({ "status": "error", "ename": "InterruptError", "evalue": detail, "traceback": [] });
            let content =
                result.map_or_else(|failure| failed(failure.detail), |()| json!({ "status": "ok" }));
            Some(("interrupt_reply", content))
        }
        "shutdown_request" => {
            let Shutdown { restart } = request.content().unwrap_or_default();
            let restarts = restart.unwrap_or_default();
            ends = Some(restarts);
            Some(("shutdown_reply", json!({ "status": "ok", "restart": restarts })))
        }
        _ => reply(kernel.spec, request, &app.config.versions),
    };
    if let Some((kind, content)) = reply {
        let message = kernel.message(request.channel, kind, parent, &content);
        kernel.reply(&work.asker, &message).await;
    }
    kernel.publish_status(parent, "idle").await;
    if let Some(restarts) = ends {
        let (app, kernel, principal) = (Arc::clone(app), Arc::clone(kernel), work.principal.clone());
        // Not awaited: it waits for the queue that this may be in.
        tokio::spawn(async move {
            if restarts {
                let _ = lifecycle::restart(&app, principal, &kernel).await;
            } else {
                let _ = lifecycle::end(&app, &kernel).await;
            }
        });
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Shutdown {
    restart: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Completion {
    cursor_pos: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Debugging {
    seq: Option<i64>,
    command: Option<String>,
}

fn reply(spec: &Spec, request: &Request, versions: &Versions) -> Option<(&'static str, Value)> {
    Some(match request.kind.as_str() {
        "kernel_info_request" => ("kernel_info_reply", kernel_info(spec, versions)),
        "complete_request" => {
            let at = request.content::<Completion>().unwrap_or_default().cursor_pos.unwrap_or(0);
            let content = json!({ "status": "ok", "matches": [], "cursor_start": at, "cursor_end": at, "metadata": {} });
            ("complete_reply", content)
        }
        "inspect_request" => {
            ("inspect_reply", json!({ "status": "ok", "found": false, "data": {}, "metadata": {} }))
        }
        "is_complete_request" => ("is_complete_reply", json!({ "status": "unknown" })),
        "history_request" => ("history_reply", json!({ "status": "ok", "history": [] })),
        "comm_info_request" => ("comm_info_reply", json!({ "status": "ok", "comms": {} })),
        "debug_request" => {
            let Debugging { seq, command } = request.content().unwrap_or_default();
            let command: String = command.unwrap_or_default().chars().take(100).collect();
            let content = json!({
                "type": "response",
                "request_seq": seq.unwrap_or(0),
                "success": false,
                "command": command,
                "message": "this kernel has no debugger",
            });
            ("debug_reply", content)
        }
        // Widgets have nobody to talk to here, and what is not known has no reply.
        _ => return None,
    })
}

fn kernel_info(spec: &Spec, versions: &Versions) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    json!({
        "status": "ok",
        "protocol_version": PROTOCOL,
        "implementation": "redoma",
        "implementation_version": version,
        "language_info": spec.language_info(versions),
        "banner": format!("Redoma {version}: what runs here is in a sandbox; files in /mnt/data are kept"),
        "help_links": [],
        "debugger": false,
        "supported_features": [],
    })
}
