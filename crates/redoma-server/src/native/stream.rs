//! Events while a program runs, as server-sent events or over a WebSocket. Both tell the same.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, State};
use axum::http::header;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use redoma_engine::Stream;
use redoma_engine::interpreter::{ExecutionRequest, Target};
use redoma_model::Principal;
use serde_json::{Value, json};
use tokio::sync::mpsc::{Sender, UnboundedReceiver, unbounded_channel};

use super::executions::{request, target};
use super::wire::{ExecutionBody, ExecutionView};
use crate::App;
use crate::admission::Turn;
use crate::auth::Caller;
use crate::body::{Weigh, no_room};
use crate::download::Pieces;
use crate::executing::{self, Event, RunningProgram};
use crate::failure::Failure;
use crate::memory::Share;
use crate::rates::Permit;
use crate::telemetry;
use crate::websocket::{self, READ_BUFFER, Socket};

/// So that nobody on the way takes a silent connection for a dead one.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// The WebSocket's.
const ROUTE: &str = "/api/v1/sessions/{session}/executions/ws";

/// How long a socket may stay open with nothing to do.
const IDLE: Duration = Duration::from_mins(10);

/// A program that runs, with what it says.
struct Watched {
    running: RunningProgram,
    events: UnboundedReceiver<Event>,
    _turn: Option<Turn>,
}

impl Watched {
    async fn start(
        app: &Arc<App>,
        principal: Principal,
        request: ExecutionRequest,
        permit: Permit,
    ) -> Result<Self, Failure> {
        let turn = executing::admit(app, &principal, &request).await?;
        let (sender, events) = unbounded_channel();
        let running = executing::start(app, principal, request, sender, permit)?;
        Ok(Self { running, events, _turn: turn })
    }

    async fn end(self) -> (&'static str, Value) {
        match self.running.finish().await {
            Ok(execution) => ("result", json!(ExecutionView::from(execution))),
            Err(failure) => error(&failure),
        }
    }
}

fn error(failure: &Failure) -> (&'static str, Value) {
    let status = failure.status.as_u16();
    ("error", json!({ "status": status, "code": failure.code, "detail": failure.detail }))
}

fn started(request: &ExecutionRequest) -> (&'static str, Value) {
    ("started", json!({ "id": request.id, "session_id": request.target.id() }))
}

fn told(event: Event) -> Option<(&'static str, Value)> {
    match event {
        Event::Output { stream: Stream::Stdout, text } => Some(("stdout", json!({ "text": text }))),
        Event::Output { stream: Stream::Stderr, text } => Some(("stderr", json!({ "text": text }))),
        Event::Shown(output) => Some(("output", json!(output))),
        Event::Call(_) => None,
    }
}

/// The answer as server-sent events.
pub(super) fn events(
    app: Arc<App>,
    principal: Principal,
    request: ExecutionRequest,
    permit: Permit,
) -> Response {
    let (sender, pieces) = Pieces::new();
    let trace = telemetry::current();
    tokio::spawn(telemetry::under(trace, async move {
        // Whoever does not listen any more ends it: all that is dropped then.
        let _ = send_events(&app, principal, request, permit, &sender).await;
    }));
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    (headers, Body::new(pieces)).into_response()
}

struct Gone;

async fn send_events(
    app: &Arc<App>,
    principal: Principal,
    request: ExecutionRequest,
    permit: Permit,
    sender: &Sender<io::Result<Bytes>>,
) -> Result<(), Gone> {
    let send = async |(name, data): (&'static str, Value)| {
        let text = format!("event: {name}\ndata: {data}\n\n");
        sender.send(Ok(text.into())).await.map_err(|_| Gone)
    };
    let begun = started(&request);
    let mut watched = match Watched::start(app, principal, request, permit).await {
        Ok(watched) => watched,
        Err(failure) => return send(error(&failure)).await,
    };
    send(begun).await?;
    loop {
        tokio::select! {
            () = sender.closed() => return Err(Gone),
            event = watched.events.recv() => match event {
                Some(event) => {
                    if let Some(told) = told(event) {
                        send(told).await?;
                    }
                }
                None => break,
            },
            () = tokio::time::sleep(HEARTBEAT) => {
                sender.send(Ok(Bytes::from_static(b": still running\n\n"))).await.map_err(|_| Gone)?;
            }
        }
    }
    send(watched.end().await).await
}

/// Run programs over a WebSocket.
///
/// Each text message is an execution as in `POST …/executions`; the answers are messages
/// `{"event": "started" | "stdout" | "stderr" | "result" | "error", "data": …}`. While a program runs,
/// `{"cancel": true}` ends it; closing the connection does too.
#[utoipa::path(get, path = "/api/v1/sessions/{session}/executions/ws", operation_id = "run_over_websocket", tag = "executions",
    params(("session" = String, Path)), responses((status = 101)))]
pub async fn websocket(
    State(app): State<Arc<App>>,
    Caller(principal): Caller,
    Path(session): Path<String>,
    parts: Parts,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Failure> {
    let target = target(&app, &principal, &session)?;
    let place = app.sockets.admit(&app, &principal.owner, &parts)?;
    let most = app.config.most_json;
    let upgrade = upgrade.read_buffer_size(READ_BUFFER).max_message_size(most).max_frame_size(most);
    Ok(upgrade.on_upgrade(move |mut socket| async move {
        // `parts` holds the connection's place, as long as this goes on. Whoever has gone is not told anything.
        if let Err(End::Trouble(trouble)) = converse(&app, &parts, &target, &place, &mut socket).await {
            let (code, reason) = trouble.close_code();
            websocket::close(socket, code, reason).await;
        }
    }))
}

/// Why a conversation ends early.
enum End {
    Gone,
    Trouble(websocket::Trouble),
}

impl From<Gone> for End {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

impl From<websocket::Trouble> for End {
    fn from(trouble: websocket::Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

async fn converse(
    app: &Arc<App>,
    parts: &Parts,
    target: &Target,
    place: &Socket,
    socket: &mut WebSocket,
) -> Result<(), End> {
    let mut stopping = app.stopping.subscribe();
    loop {
        place.resume();
        let message = tokio::select! {
            message = tokio::time::timeout(IDLE, place.receive(socket)) => message,
            _ = stopping.wait_for(|is_stopping| *is_stopping) => return Ok(()),
        };
        let Ok(message) = message else { return Ok(()) };
        let Some(Ok(message)) = message? else { return Ok(()) };
        let Message::Text(text) = message else { continue };
        // Each time anew: a key may have been revoked, a token may be over.
        let principal = match app.auth.still_valid(&app.interpreter, parts) {
            Ok(principal) => principal,
            Err(failure) => return Ok(say(socket, error(&failure)).await?),
        };
        let parsed = parse(app, &principal, target, &text);
        drop(text);
        match parsed {
            Ok((request, room)) => {
                let trace = telemetry::of_message(app, ROUTE, Some(&parts.headers));
                telemetry::under(trace, run(app, principal, request, room, (place, &mut *socket))).await?;
            }
            Err(failure) => say(socket, error(&failure)).await?,
        }
    }
}

/// What a message asks for, with the memory that it takes.
fn parse(
    app: &App,
    principal: &Principal,
    target: &Target,
    text: &str,
) -> Result<(ExecutionRequest, Share), Failure> {
    let body: ExecutionBody = serde_json::from_str(text)
        .map_err(|error| Failure::bad_request(format!("not an execution: {error}")))?;
    let room = app.memory.waiting.share(&principal.owner);
    room.try_grow_to(body.weight()).map_err(|_| no_room())?;
    Ok((request(app, target.clone(), body, true)?, room))
}

async fn say(socket: &mut WebSocket, (event, data): (&'static str, Value)) -> Result<(), Gone> {
    let text = json!({ "event": event, "data": data }).to_string();
    socket.send(Message::Text(text.into())).await.map_err(|_| Gone)
}

async fn run(
    app: &Arc<App>,
    principal: Principal,
    request: ExecutionRequest,
    room: Share,
    (place, socket): (&Socket, &mut WebSocket),
) -> Result<(), End> {
    let begun = started(&request);
    let permit = match executing::permit(app, &principal) {
        Ok(permit) => permit.holding(room),
        Err(failure) => return Ok(say(socket, error(&failure)).await?),
    };
    let mut watched = match Watched::start(app, principal, request, permit).await {
        Ok(watched) => watched,
        Err(failure) => return Ok(say(socket, error(&failure)).await?),
    };
    say(socket, begun).await?;
    place.resume();
    loop {
        tokio::select! {
            event = watched.events.recv() => match event {
                Some(event) => {
                    if let Some(told) = told(event) {
                        say(socket, told).await?;
                    }
                }
                None => break,
            },
            message = place.receive(socket) => match message? {
                Some(Ok(Message::Text(text))) if is_cancel(&text) => watched.running.cancel(),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(End::Gone),
                Some(Ok(_)) => {}
            },
            () = tokio::time::sleep(HEARTBEAT) => {
                socket.send(Message::Ping(Bytes::new())).await.map_err(|_| Gone)?;
            }
        }
    }
    Ok(say(socket, watched.end().await).await?)
}

fn is_cancel(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|message| message["cancel"] == true)
}
