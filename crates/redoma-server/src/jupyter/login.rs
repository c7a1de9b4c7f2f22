//! Logging in with a password, which is a key: `GET /login` gives the `_xsrf` cookie, `POST /login` takes it back together
//! with the key and gives another cookie, which stands for that key on this façade. The key itself is looked up at each use:
//! when it is revoked, its logins are worth nothing.
//!
//! A login is bound to the `_xsrf` value that it was made with, and no other value counts for it: a page of a neighbouring host
//! that plants a `_xsrf` cookie of its own gains nothing. The value is not derived from the login, since clients keep the
//! one from before it. Cookies have no `Path`: browsers then send them to this façade only, also below a proxy's prefix, and
//! Open WebUI's client finds them at IP addresses too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Extension;
use axum::body::to_bytes;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::access::{XSRF, cookies, forbidden, repeated_xsrf};
use super::{Error, random};
use crate::App;
use crate::auth::{Caller, GivenKey, OverTls};
use crate::failure::Failure;

/// The cookie of somebody who has logged in.
pub const COOKIE: &str = "redoma-jupyter";

/// Maximum number of logins: in all, and of one key. Open WebUI logs in anew for each program that it runs. One more evicts
/// the login that was not used for longest, of the key with the most.
const MAX_LOGINS: usize = 8192;
const MAX_PER_KEY: usize = 1024;
/// How long one is worth something after its last use, and at most.
const IDLE: Duration = Duration::from_hours(2);
const LONGEST: Duration = Duration::from_hours(24);
/// How long a form may take, and how many bytes it may have.
const PATIENCE: Duration = Duration::from_secs(10);
const MOST_FORM: usize = 16 << 10;

/// Those who have logged in.
#[derive(Debug, Default)]
pub struct Logins(Mutex<HashMap<String, Login>>);

struct Login {
    secret: String,
    /// Hash of the `_xsrf` value that belongs to it.
    xsrf: [u8; 32],
    begun: Instant,
    used: Instant,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login(…)")
    }
}

impl Login {
    fn is_over(&self, now: Instant) -> bool {
        now - self.used > IDLE || now - self.begun > LONGEST
    }
}

impl Logins {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Login>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this `_xsrf` value belongs to a login. Compared by hashes: the time that takes tells nothing of the value.
    pub fn is_bound_to(&self, cookie: &str, xsrf: &str) -> bool {
        self.all().get(cookie).is_some_and(|login| login.xsrf == hash(xsrf))
    }

    /// The key that a cookie stands for.
    pub fn secret(&self, cookie: &str) -> Option<String> {
        let now = Instant::now();
        let mut all = self.all();
        let login = all.get_mut(cookie).filter(|login| !login.is_over(now))?;
        login.used = now;
        Some(login.secret.clone())
    }

    /// Remembers one; the cookie for it.
    fn begin(&self, secret: String, xsrf: &str) -> std::io::Result<String> {
        let (cookie, now) = (random::token()?, Instant::now());
        let mut all = self.all();
        let of_key = all.values().filter(|login| login.secret == secret).count();
        if all.len() >= MAX_LOGINS || of_key >= MAX_PER_KEY {
            all.retain(|_, login| !login.is_over(now));
            let from = if of_key >= MAX_PER_KEY { Some(secret.clone()) } else { key_with_the_most(&all) };
            let of_that_key = all.iter().filter(|(_, login)| Some(&login.secret) == from.as_ref());
            let oldest = of_that_key.min_by_key(|(_, login)| login.used).map(|(cookie, _)| cookie.clone());
            if let Some(oldest) = oldest
                && (of_key >= MAX_PER_KEY || all.len() >= MAX_LOGINS)
            {
                all.remove(&oldest);
            }
        }
        all.insert(cookie.clone(), Login { secret, xsrf: hash(xsrf), begun: now, used: now });
        Ok(cookie)
    }

    fn end(&self, cookie: &str) {
        self.all().remove(cookie);
    }
}

fn key_with_the_most(all: &HashMap<String, Login>) -> Option<String> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for login in all.values() {
        *counts.entry(&login.secret).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(secret, _)| secret.to_owned())
}

fn hash(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}

/// Attributes of a cookie that came over TLS or did not.
fn secure(over_tls: Option<&OverTls>) -> &'static str {
    if over_tls.is_some() { "; Secure" } else { "" }
}

const PAGE: &str = "<!doctype html><meta charset=\"utf-8\"><title>Redoma</title>\
    <p>Redoma's Jupyter API. Programs log in here with a key as the password, or bring it as a token.</p>\n";

/// What is shown to somebody who looks.
pub async fn page() -> Html<&'static str> {
    Html(PAGE)
}

pub async fn form(
    State(app): State<Arc<App>>,
    over_tls: Option<Extension<OverTls>>,
    headers: HeaderMap,
) -> Result<Response, Error> {
    // The value of a login that the browser has already stays: another window may rely on it. Any other may be planted.
    let is_known =
        |value: &&str| cookies(&headers, COOKIE).any(|login| app.jupyter.logins.is_bound_to(login, value));
    let token = match cookies(&headers, XSRF).find(is_known) {
        Some(token) => token.to_owned(),
        None => random::token().map_err(|error| Failure::internal(&error))?,
    };
    let secure = secure(over_tls.as_deref());
    let cookie = format!("{XSRF}={token}; SameSite=Lax{secure}");
    Ok(([(header::SET_COOKIE, cookie)], Html(PAGE)).into_response())
}

#[derive(Debug, Default, Deserialize)]
struct Form {
    #[serde(rename = "_xsrf")]
    xsrf: Option<String>,
    #[serde(default)]
    password: String,
}

pub async fn log_in(State(app): State<Arc<App>>, request: Request) -> Result<Response, Error> {
    let (mut parts, body) = request.into_parts();
    let bytes = tokio::time::timeout(PATIENCE, to_bytes(body, MOST_FORM)).await;
    let Ok(Ok(bytes)) = bytes else { return Err(Failure::bad_request("the form did not arrive").into()) };
    let form = parse(&bytes);
    let Some(xsrf) = repeated_xsrf(&parts.headers, form.xsrf.as_deref()).next().map(str::to_owned) else {
        return Err(forbidden("'_xsrf' argument missing from POST: get /login first, with cookies").into());
    };
    parts.extensions.insert(GivenKey { secret: form.password.clone(), way: "password" });
    let _known = Caller::from_request_parts(&mut parts, &app).await?;
    let cookie = app.jupyter.logins.begin(form.password, &xsrf).map_err(|error| Failure::internal(&error))?;
    let secure = secure(parts.extensions.get());
    let cookie = format!("{COOKIE}={cookie}; HttpOnly; SameSite=Lax{secure}");
    Ok((StatusCode::FOUND, [(header::SET_COOKIE, cookie.as_str()), (header::LOCATION, "./")]).into_response())
}

pub async fn log_out(
    State(app): State<Arc<App>>,
    over_tls: Option<Extension<OverTls>>,
    headers: HeaderMap,
) -> Result<Response, Error> {
    let logins = &app.jupyter.logins;
    let is_bound = |cookie: &&str| repeated_xsrf(&headers, None).any(|xsrf| logins.is_bound_to(cookie, xsrf));
    let theirs: Vec<_> = cookies(&headers, COOKIE).filter(is_bound).collect();
    if theirs.is_empty() {
        return Err(forbidden("'_xsrf' argument missing: repeat the cookie's value as X-XSRFToken").into());
    }
    for cookie in theirs {
        logins.end(cookie);
    }
    let secure = secure(over_tls.as_deref());
    let cookie = format!("{COOKIE}=; Max-Age=0; HttpOnly; SameSite=Lax{secure}");
    Ok(([(header::SET_COOKIE, cookie)], Html(PAGE)).into_response())
}

/// `application/x-www-form-urlencoded`, read as a query is.
fn parse(bytes: &[u8]) -> Form {
    let query = std::str::from_utf8(bytes).unwrap_or_default().trim();
    let uri = format!("/?{query}").parse().unwrap_or_default();
    axum::extract::Query::try_from_uri(&uri).map(|query| query.0).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_stands_for_its_key_and_there_are_not_too_many() {
        let logins = Logins::default();
        let cookie = logins.begin("one".to_owned(), "a").unwrap();
        assert!(logins.is_bound_to(&cookie, "a") && !logins.is_bound_to(&cookie, "b"));
        assert_eq!(logins.secret(&cookie).as_deref(), Some("one"));
        assert_eq!(logins.secret("0"), None);
        for _ in 0..MAX_PER_KEY + 10 {
            logins.begin("two".to_owned(), "b").unwrap();
        }
        assert_eq!(logins.all().len(), MAX_PER_KEY + 1);
        // More keys than there is room for: each evicts from the one with the most.
        for number in 0..MAX_LOGINS + 100 {
            logins.begin(format!("key {}", number % 9), "c").unwrap();
        }
        assert_eq!(logins.all().len(), MAX_LOGINS);
        assert_eq!(logins.secret(&cookie).as_deref(), Some("one"));
        logins.end(&cookie);
        assert_eq!(logins.secret(&cookie), None);
    }

    #[test]
    fn old_logins_are_worth_nothing() {
        let now = Instant::now();
        let begun = now.checked_sub(LONGEST + Duration::from_secs(1)).unwrap();
        assert!(Login { secret: String::new(), xsrf: [0; 32], begun, used: now }.is_over(now));
        let used = now.checked_sub(IDLE + Duration::from_secs(1)).unwrap();
        assert!(Login { secret: String::new(), xsrf: [0; 32], begun: used, used }.is_over(now));
        assert!(!Login { secret: String::new(), xsrf: [0; 32], begun: now, used: now }.is_over(now));
    }

    #[test]
    fn forms_are_read() {
        let form = parse(b"_xsrf=abc&password=rdm_a%2Bb+c");
        assert_eq!((form.xsrf.as_deref(), form.password.as_str()), (Some("abc"), "rdm_a+b c"));
        for bad in [&b""[..], b"\xff", b"password", b"a=1&&&", b"{\"password\": 1}"] {
            assert!(parse(bad).xsrf.is_none());
        }
    }
}
