//! Logging in with a password, which is a key: `GET /login` gives the `_xsrf` cookie, `POST /login` takes it back together
//! with the key and gives another cookie, which stands for that key on this façade. The key itself is looked up at each use:
//! when it is revoked, its logins are worth nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::to_bytes;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use serde::Deserialize;

use super::access::{XSRF, cookies, forbidden, repeats_xsrf};
use super::{Error, random};
use crate::App;
use crate::auth::{Caller, GivenKey};
use crate::failure::Failure;

/// The cookie of somebody who has logged in.
pub const COOKIE: &str = "redoma-jupyter";

/// Logins that are remembered: in all, and of one key. Open WebUI logs in anew for each program that it runs.
const MOST: usize = 8192;
const MOST_OF_KEY: usize = 1024;
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

    /// The key that a cookie stands for.
    pub fn secret(&self, cookie: &str) -> Option<String> {
        let now = Instant::now();
        let mut all = self.all();
        let login = all.get_mut(cookie).filter(|login| !login.is_over(now))?;
        login.used = now;
        Some(login.secret.clone())
    }

    /// Remembers one; the cookie for it.
    fn begin(&self, secret: String) -> std::io::Result<String> {
        let (cookie, now) = (random::token()?, Instant::now());
        let mut all = self.all();
        let is_full = all.len() >= MOST;
        let of_key = all.values().filter(|login| login.secret == secret).count();
        if is_full || of_key >= MOST_OF_KEY {
            all.retain(|_, login| !login.is_over(now));
            // Whoever has the most of them gives one up first.
            let only_own = of_key >= MOST_OF_KEY;
            let candidates = all.iter().filter(|(_, login)| !only_own || login.secret == secret);
            let oldest = candidates.min_by_key(|(_, login)| login.used).map(|(cookie, _)| cookie.clone());
            if let Some(oldest) = oldest
                && (only_own || all.len() >= MOST)
            {
                all.remove(&oldest);
            }
        }
        all.insert(cookie.clone(), Login { secret, begun: now, used: now });
        Ok(cookie)
    }

    fn end(&self, cookie: &str) {
        self.all().remove(cookie);
    }
}

const PAGE: &str = "<!doctype html><meta charset=\"utf-8\"><title>Redoma</title>\
    <p>Redoma's Jupyter API. Programs log in here with a key as the password, or bring it as a token.</p>\n";

/// What is shown to somebody who looks.
pub async fn page() -> Html<&'static str> {
    Html(PAGE)
}

pub async fn form(headers: HeaderMap) -> Result<Response, Error> {
    // One that the browser has already stays: another window may rely on it.
    let known = cookies(&headers, XSRF).find(|value| {
        (32..=128).contains(&value.len()) && value.bytes().all(|byte| byte.is_ascii_alphanumeric())
    });
    let token = match known {
        Some(token) => token.to_owned(),
        None => random::token().map_err(|error| Failure::internal(&error))?,
    };
    let cookie = format!("{XSRF}={token}; Path=/; SameSite=Lax");
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
    if !repeats_xsrf(&parts.headers, form.xsrf.as_deref()) {
        return Err(forbidden("'_xsrf' argument missing from POST: get /login first, with cookies").into());
    }
    parts.extensions.insert(GivenKey { secret: form.password.clone(), way: "password" });
    let _known = Caller::from_request_parts(&mut parts, &app).await?;
    let cookie = app.jupyter.logins.begin(form.password).map_err(|error| Failure::internal(&error))?;
    let cookie = format!("{COOKIE}={cookie}; Path=/; HttpOnly; SameSite=Lax");
    Ok((StatusCode::FOUND, [(header::SET_COOKIE, cookie.as_str()), (header::LOCATION, "./")]).into_response())
}

pub async fn log_out(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<Response, Error> {
    if !repeats_xsrf(&headers, None) {
        return Err(forbidden("'_xsrf' argument missing: repeat the cookie's value as X-XSRFToken").into());
    }
    cookies(&headers, COOKIE).for_each(|cookie| app.jupyter.logins.end(cookie));
    let cookie = format!("{COOKIE}=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax");
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
        let cookie = logins.begin("one".to_owned()).unwrap();
        assert_eq!(logins.secret(&cookie).as_deref(), Some("one"));
        assert_eq!(logins.secret("0"), None);
        for _ in 0..MOST_OF_KEY + 10 {
            logins.begin("two".to_owned()).unwrap();
        }
        assert_eq!(logins.all().len(), MOST_OF_KEY + 1);
        assert_eq!(logins.secret(&cookie).as_deref(), Some("one"));
        logins.end(&cookie);
        assert_eq!(logins.secret(&cookie), None);
    }

    #[test]
    fn old_logins_are_worth_nothing() {
        let now = Instant::now();
        let begun = now.checked_sub(LONGEST + Duration::from_secs(1)).unwrap();
        assert!(Login { secret: String::new(), begun, used: now }.is_over(now));
        let used = now.checked_sub(IDLE + Duration::from_secs(1)).unwrap();
        assert!(Login { secret: String::new(), begun: used, used }.is_over(now));
        assert!(!Login { secret: String::new(), begun: now, used: now }.is_over(now));
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
