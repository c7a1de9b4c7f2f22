//! Who is asking. A key in a header, in Basic credentials or in the path, or a token that LibreChat signed; or, where the
//! operator said so and only this host can reach the server, nobody in particular.
//!
//! | file | subject |
//! |---|---|
//! | `mod.rs` | from a request to a principal |
//! | `credential.rs` | what a request brings |
//! | `jwt.rs` | LibreChat's tokens |
//! | `slowdown.rs` | those who guess |

mod credential;
mod jwt;
mod slowdown;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use redoma_engine::interpreter::{Interpreter, Secret};
use redoma_model::{Name, Owner, Principal, Role};

use crate::App;
use crate::connections::{Busy, TooMany};
use crate::failure::Failure;
use crate::telemetry;
use credential::Credential;
pub use credential::{GivenKey, PathKey, has_credential};
pub use jwt::{Jwt, JwtError};
use slowdown::Slowdown;

#[derive(Debug)]
pub struct Auth {
    /// Everybody is let in. Only for a server that nobody else can reach.
    is_open: bool,
    jwt: Option<Jwt>,
    slowdown: Slowdown,
}

impl Auth {
    pub fn new(is_open: bool, jwt_key: Option<PathBuf>) -> Result<Self, JwtError> {
        Ok(Self { is_open, jwt: jwt_key.map(Jwt::open).transpose()?, slowdown: Slowdown::default() })
    }

    /// Who it is that made a request some time ago, if that still counts.
    pub fn still_valid(&self, interpreter: &Interpreter, parts: &Parts) -> Result<Principal, Failure> {
        self.identify(interpreter, parts).map_err(|refusal| match refusal {
            Refusal::Other(failure) => failure,
            Refusal::Login { .. } => unauthorized(),
        })
    }

    fn identify(&self, interpreter: &Interpreter, parts: &Parts) -> Result<Principal, Refusal> {
        let principal = self.identify_by_credential(interpreter, parts)?;
        Ok(Principal { address: parts.extensions.get::<Peer>().map(|peer| peer.0.ip()), ..principal })
    }

    fn identify_by_credential(&self, interpreter: &Interpreter, parts: &Parts) -> Result<Principal, Refusal> {
        if self.is_open {
            let owner = Owner { client: "local".to_owned(), user: named_user(parts)? };
            return Ok(Principal::without_key(Role::Admin, owner, false));
        }
        let credential = Credential::of(parts).ok_or(Refusal::new("none", "no credential was given"))?;
        let way = credential.way();
        match (credential, &self.jwt) {
            (Credential::Token(token), Some(jwt)) if jwt::looks_like_one(&token) => {
                jwt.verify(&token).map_err(|why| Refusal::new(way, &why))
            }
            (Credential::Token(secret) | Credential::Key { secret, .. }, _) => {
                by_key(interpreter, secret, way, parts)
            }
        }
    }
}

fn by_key(
    interpreter: &Interpreter,
    secret: String,
    way: &'static str,
    parts: &Parts,
) -> Result<Principal, Refusal> {
    let record =
        interpreter.key(&Secret::new(secret)).map_err(|error| Refusal::Other(Failure::internal(&error)))?;
    let record = record.ok_or(Refusal::new(way, "the key is not known"))?;
    let mut owner = record.owner;
    let is_proven = record.role == Role::User;
    if !is_proven {
        owner.user = named_user(parts)?;
    }
    let key = Some(record.id);
    Ok(Principal { key, profile: record.profile, ..Principal::without_key(record.role, owner, is_proven) })
}

/// The headers in which chat front ends name the user that they act for.
const USER_HEADERS: [&str; 3] = ["user-id", "x-user-id", "x-openwebui-user-id"];

/// The user that a client names. A name that can't be one is refused: as nobody, its owner would see more than as somebody.
fn named_user(parts: &Parts) -> Result<Option<String>, BadUser> {
    for name in USER_HEADERS {
        if let Some(value) = parts.headers.get(name) {
            let text = std::str::from_utf8(value.as_bytes()).map_err(|_| BadUser)?;
            return checked_user(text).map(Some);
        }
    }
    let query = Query::<HashMap<String, String>>::try_from_uri(&parts.uri).map_err(|_| BadUser)?.0;
    let is_user = query.get("kind").is_some_and(|kind| kind == "user");
    query.get("id").filter(|_| is_user).map(|user| checked_user(user)).transpose()
}

/// What is given as a user can't be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BadUser;

impl From<BadUser> for Failure {
    fn from(_: BadUser) -> Self {
        Self::bad_request("a user's id has 1 to 256 bytes and no control characters")
    }
}

/// A user's id as it may be.
fn checked_user(user: &str) -> Result<String, BadUser> {
    user.parse().map(Name::into_string).map_err(|_| BadUser)
}

/// An id of a user, an agent, a client, …, if it can be one.
pub fn valid_user(user: &str) -> Option<String> {
    checked_user(user).ok()
}

/// Why somebody is not let in.
#[derive(Debug)]
enum Refusal {
    /// They are not who they say, or don't say.
    Login { way: &'static str, reason: String },
    /// Something else is wrong, with the request or with us.
    Other(Failure),
}

impl Refusal {
    fn new(way: &'static str, reason: &str) -> Self {
        Self::Login { way, reason: reason.to_owned() }
    }
}

impl From<BadUser> for Refusal {
    fn from(bad: BadUser) -> Self {
        Self::Other(bad.into())
    }
}

/// The address of whoever is at the other end.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub SocketAddr);

/// The client's connection to a trusted proxy was encrypted.
#[derive(Debug, Clone, Copy)]
pub struct OverTls;

/// Whose request it is, for what else reads it.
#[derive(Debug, Clone)]
pub struct Identified(pub Owner);

/// Whoever is asking; a handler that takes one can't be reached without.
#[derive(Debug, Clone)]
pub struct Caller(pub Principal);

impl Caller {
    /// Acts for the user that the request's body names, if nothing better has.
    pub fn or_named(mut self, user: Option<&str>) -> Result<Principal, Failure> {
        if !self.0.is_proven && self.0.owner.user.is_none() {
            self.0.owner.user = user.map(checked_user).transpose()?;
        }
        Ok(self.0)
    }

    /// Whether they may decide who comes in. Where nobody has to say who they are, nobody may.
    pub fn require_admin(&self, app: &App) -> Result<(), Failure> {
        let detail = match self.0.role {
            Role::Admin if !app.auth.is_open => return Ok(()),
            Role::Admin => "this server runs without keys; use `redoma keys`",
            _ => "this takes an admin key",
        };
        Err(Failure::new(StatusCode::FORBIDDEN, "forbidden", detail))
    }
}

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Failure> {
        refuse_strangers(&app.auth, &parts.headers)?;
        let (way, reason) = match app.auth.identify(&app.interpreter, parts) {
            Ok(principal) => {
                if let Some(trace) = telemetry::current() {
                    trace.let_in();
                }
                parts.extensions.insert(Identified(principal.owner.clone()));
                claim_connection(parts, &principal)?;
                return Ok(Self(principal));
            }
            Err(Refusal::Other(failure)) => return Err(failure),
            Err(Refusal::Login { way, reason }) => (way, reason),
        };
        let address = parts.extensions.get::<Peer>().map_or(IpAddr::from([0; 4]), |peer| peer.0.ip());
        tracing::warn!(%address, way, reason, "a login failed");
        let pause = app.auth.slowdown.note(address);
        if pause.is_worth_a_record {
            let app = Arc::clone(app);
            let record = move || app.interpreter.note_failed_login(address, way, &reason);
            tokio::task::spawn_blocking(record);
        }
        // The few connections beyond the limit must not be held by logins that fail.
        if !parts.extensions.get::<Busy>().is_some_and(|busy| busy.0.is_reserved()) {
            tokio::time::sleep(pause.time).await;
        }
        Err(unauthorized())
    }
}

/// The connection counts as the caller's from now on.
fn claim_connection(parts: &Parts, principal: &Principal) -> Result<(), Failure> {
    let Some(Busy(connection)) = parts.extensions.get::<Busy>() else { return Ok(()) };
    if principal.role == Role::Admin {
        connection.belongs_to_admin(&principal.owner);
        return Ok(());
    }
    connection.belongs_to(&principal.owner).map_err(|TooMany| {
        Failure::busy("you have as many connections as one user may, and all are busy; try again")
    })
}

fn unauthorized() -> Failure {
    let detail = "a valid key or token is needed: X-API-Key, Bearer, Basic (key as password) or /k/KEY/…";
    Failure::new(StatusCode::UNAUTHORIZED, "unauthorized", detail)
}

/// Without keys, a web page that somebody on this host looks at could talk to the server as they can: neither through a
/// name that it makes point here, nor across origins.
fn refuse_strangers(auth: &Auth, headers: &HeaderMap) -> Result<(), Failure> {
    if !auth.is_open {
        return Ok(());
    }
    let is_local = |authority: &str| {
        let host = authority.rsplit_once(':').map_or(authority, |(host, port)| {
            if port.bytes().all(|byte| byte.is_ascii_digit()) { host } else { authority }
        });
        matches!(host, "localhost" | "127.0.0.1" | "[::1]" | "host.docker.internal")
    };
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let host_is_local = text("host").is_none_or(is_local);
    let origin_is_local =
        text("origin").is_none_or(|origin| origin.split_once("://").is_some_and(|(_, host)| is_local(host)));
    if host_is_local && origin_is_local {
        return Ok(());
    }
    let detail = "without keys, this server answers only to localhost; see `redoma serve --help`";
    Err(Failure::new(StatusCode::FORBIDDEN, "forbidden", detail))
}
