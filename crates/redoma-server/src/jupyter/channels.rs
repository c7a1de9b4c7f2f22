//! The WebSocket of a kernel: requests in, messages out. It may be closed and opened again at any time; cells go on.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, Query, State};
use axum::http::request::Parts;
use axum::response::Response;
use serde::Deserialize;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use super::Error;
use super::access::Visitor;
use super::framing::{Framing, V1, parse_text};
use super::kernel::Kernel;
use super::messages::Channel;
use super::outbox::{End, Outbox, Queued};
use crate::App;
use crate::failure::Failure;
use crate::websocket::{READ_BUFFER, Socket, close, code, wait_for_end};

/// How often a silent client is asked whether it is still there, and after how long without an answer it is not.
const PING: Duration = Duration::from_secs(20);
const DEAD: Duration = Duration::from_mins(2);
/// How long a client may take to read what is left for it when the conversation ends.
const GOODBYE: Duration = Duration::from_secs(2);
/// Most bytes of a message from a client: a cell's code and what is around it.
const MOST_INCOMING: usize = 8 << 20;

#[derive(Debug, Default, Deserialize)]
struct Named {
    session_id: Option<String>,
}

pub async fn connect(
    State(app): State<Arc<App>>,
    Visitor(principal): Visitor,
    Path(id): Path<String>,
    parts: Parts,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Error> {
    let kernel = app.jupyter.registry.find(&principal, &id)?;
    let upgrade = upgrade.map_err(|_| Failure::bad_request("this is for WebSockets"))?;
    let place = app.sockets.admit(&app, &principal.owner, &parts)?;
    let most = app.config.most_json.min(MOST_INCOMING);
    let upgrade = upgrade
        .protocols([V1])
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(16 << 10)
        .max_message_size(most)
        .max_frame_size(most);
    let framing = if upgrade.selected_protocol().is_some() { Framing::V1 } else { Framing::Default };
    let named = Query::<Named>::try_from_uri(&parts.uri).ok();
    let name = named.and_then(|Query(named)| named.session_id).filter(|name| (1..=128).contains(&name.len()));
    Ok(upgrade.on_upgrade(move |socket| async move {
        let (outbox, queued) = Outbox::new(framing, name, (Arc::clone(&app.memory.leaving), principal.owner));
        // `parts` holds the connection's place, as long as this goes on.
        let conversation = Conversation { app, kernel, parts, framing, outbox, queued, socket, place };
        conversation.hold().await;
    }))
}

struct Conversation {
    app: Arc<App>,
    kernel: Arc<Kernel>,
    parts: Parts,
    framing: Framing,
    outbox: Arc<Outbox>,
    queued: UnboundedReceiver<Queued>,
    socket: WebSocket,
    place: Socket,
}

/// How a conversation ends.
enum Over {
    /// From this side, with a number and a reason.
    Closing(u16, &'static str),
    /// The client has said so.
    Closed,
    /// It is not there any more.
    Lost,
}

impl Conversation {
    async fn hold(mut self) {
        let Some(connected) = self.kernel.connect(&self.outbox) else {
            let reason = "too many connections to this kernel";
            return close(self.socket, code::TRY_AGAIN, reason).await;
        };
        let over = self.talk().await;
        // From here on nobody waits for this client, and it counts no more.
        drop(connected);
        match over {
            Over::Closing(code, reason) => close(self.socket, code, reason).await,
            // Asking for more is what sends the answer to the client's goodbye.
            Over::Closed => wait_for_end(self.socket).await,
            Over::Lost => {}
        }
    }

    async fn talk(&mut self) -> Over {
        let (app, kernel) = (Arc::clone(&self.app), Arc::clone(&self.kernel));
        let mut stopping = std::pin::pin!(stopped(&app, &kernel));
        let outbox = Arc::clone(&self.outbox);
        let mut ended = std::pin::pin!(outbox.ended());
        let mut heard = Instant::now();
        let mut next_ping = heard + PING;
        loop {
            tokio::select! {
                message = self.place.receive(&mut self.socket) => {
                    heard = Instant::now();
                    let over = match message {
                        Ok(Some(Ok(message))) => self.hear(&message),
                        // One that is too large can't be passed over.
                        Ok(Some(Err(error))) if is_too_large(&error) => {
                            Some(Over::Closing(code::TOO_BIG, "the message is too large"))
                        }
                        Ok(Some(Err(_)) | None) => Some(Over::Lost),
                        Err(trouble) => {
                            let (code, reason) = trouble.close_code();
                            Some(Over::Closing(code, reason))
                        }
                    };
                    if let Some(over) = over {
                        return over;
                    }
                }
                Some(queued) = self.queued.recv() => {
                    let sent = tokio::select! {
                        sent = self.socket.send(queued.frame) => sent,
                        why = &mut ended => return Over::from(why),
                    };
                    if sent.is_err() {
                        return Over::Lost;
                    }
                    next_ping = Instant::now() + PING;
                }
                why = &mut ended => return self.say_the_rest(Over::from(why)).await,
                () = &mut stopping => {
                    return self.say_the_rest(Over::Closing(code::GOING_AWAY, "the server is shutting down")).await;
                }
                () = tokio::time::sleep_until(next_ping) => {
                    next_ping = Instant::now() + PING;
                    let is_dead = heard.elapsed() > DEAD;
                    if is_dead || self.socket.send(Message::Ping(Bytes::new())).await.is_err() {
                        return Over::Lost;
                    }
                }
            }
        }
    }

    /// Sends what is left, to a client that reads it.
    async fn say_the_rest(&mut self, over: Over) -> Over {
        let rest = async {
            while let Ok(queued) = self.queued.try_recv() {
                if self.socket.send(queued.frame).await.is_err() {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(GOODBYE, rest).await;
        over
    }

    /// Takes a message; whether that is the end of it.
    fn hear(&self, message: &Message) -> Option<Over> {
        let request = match message {
            Message::Text(text) => parse_text(text),
            Message::Binary(bytes) => self.framing.parse_binary(bytes),
            Message::Ping(_) | Message::Pong(_) => return None,
            Message::Close(_) => return Some(Over::Closed),
        };
        let request = match request {
            Ok(request) if matches!(request.channel, Channel::Shell | Channel::Control) => request,
            // Answers to questions that are never asked.
            Ok(_) => return None,
            Err(why) => {
                tracing::debug!(%why, "a message from a Jupyter client is not understood");
                return None;
            }
        };
        // Each time anew: a key may have been revoked.
        let principal = match self.app.auth.still_valid(&self.app.interpreter, &self.parts) {
            Ok(principal) if principal.owner == self.kernel.owner => principal,
            _ => return Some(Over::Closing(code::POLICY, "the key is not valid any more")),
        };
        let has_room = self.kernel.enqueue(&self.app.memory.waiting, request, principal, &self.outbox);
        (!has_room).then_some(Over::Closing(code::TRY_AGAIN, "too many requests wait already"))
    }
}

impl From<End> for Over {
    fn from(why: End) -> Self {
        match why {
            End::Slow => Self::Closing(code::POLICY, "the client does not read what is sent to it"),
            End::Replaced => Self::Closing(code::NORMAL, "the same client has connected again"),
            End::Gone => Self::Closing(code::NORMAL, "the kernel has been shut down"),
        }
    }
}

/// Comes back when the server ends and no cell of this kernel runs any more.
async fn stopped(app: &App, kernel: &Kernel) {
    let mut stopping = app.stopping.subscribe();
    let _ = stopping.wait_for(|is_stopping| *is_stopping).await;
    while kernel.is_busy() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    if kernel.number() > 0 {
        // The last words of a cell that has just ended.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn is_too_large(error: &axum::Error) -> bool {
    error.to_string().contains("too long") || error.to_string().contains("too large")
}
