//! Who is asking, in the ways in which Jupyter's clients say it: `?token=`, `Authorization: token`, whatever the other
//! façades take, or a cookie from a login.
//!
//! A browser sends a cookie along with what other pages make it do. So a request that comes by cookie alone has to show that
//! it knows the `_xsrf` value of that login too if it changes anything, and a WebSocket has to come from a page of this host.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, header};
use redoma_model::Principal;
use serde::Deserialize;

use super::Error;
use super::login::COOKIE;
use crate::App;
use crate::auth::{Caller, GivenKey, has_credential};
use crate::failure::Failure;

/// The cookie whose value a request has to repeat.
pub const XSRF: &str = "_xsrf";
/// Maximum number of bytes of that value.
const MAX_XSRF: usize = 128;

/// Whoever is asking; a handler that takes one can't be reached without.
#[derive(Debug, Clone)]
pub(crate) struct Visitor(pub Principal);

impl FromRequestParts<Arc<App>> for Visitor {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Error> {
        if let Some(key) = given_key(parts, app)? {
            parts.extensions.insert(key);
        }
        let Caller(principal) = Caller::from_request_parts(parts, app).await?;
        Ok(Self(principal))
    }
}

#[derive(Debug, Default, Deserialize)]
struct Arguments {
    token: Option<String>,
    #[serde(rename = "_xsrf")]
    xsrf: Option<String>,
}

fn given_key(parts: &Parts, app: &App) -> Result<Option<GivenKey>, Failure> {
    let arguments =
        Query::<Arguments>::try_from_uri(&parts.uri).map_or_else(|_| Arguments::default(), |query| query.0);
    if let Some(secret) = arguments.token.filter(|token| !token.is_empty()) {
        return Ok(Some(GivenKey { secret, way: "token in the query" }));
    }
    let authorization = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if let Some((scheme, secret)) = authorization.and_then(|value| value.trim().split_once(' '))
        && scheme.eq_ignore_ascii_case("token")
    {
        return Ok(Some(GivenKey { secret: secret.trim().to_owned(), way: "token" }));
    }
    if has_credential(parts) {
        return Ok(None);
    }
    let logins = &app.jupyter.logins;
    let login = cookies(&parts.headers, COOKIE).find_map(|cookie| Some((cookie, logins.secret(cookie)?)));
    let Some((cookie, secret)) = login else { return Ok(None) };
    let xsrf = arguments.xsrf.as_deref();
    if ![Method::GET, Method::HEAD, Method::OPTIONS].contains(&parts.method)
        && !repeated_xsrf(&parts.headers, xsrf).any(|value| logins.is_bound_to(cookie, value))
    {
        return Err(forbidden("'_xsrf' argument missing: repeat the cookie's value as X-XSRFToken"));
    }
    if parts.headers.contains_key(header::UPGRADE) && !is_same_origin(&parts.headers) {
        return Err(forbidden("this page may not open a connection here"));
    }
    Ok(Some(GivenKey { secret, way: "login" }))
}

pub fn forbidden(detail: &str) -> Failure {
    Failure::new(StatusCode::FORBIDDEN, "forbidden", detail)
}

/// The values of the cookies of this name.
pub fn cookies<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(';'))
        .filter_map(|cookie| cookie.trim().split_once('='))
        .filter(move |(found, _)| *found == name)
        .map(|(_, value)| value.trim_matches('"'))
}

/// The values of the `_xsrf` cookie that a header or the argument has too.
pub fn repeated_xsrf<'a>(headers: &'a HeaderMap, argument: Option<&'a str>) -> impl Iterator<Item = &'a str> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let given = [header("x-xsrftoken"), header("x-csrftoken"), argument];
    cookies(headers, XSRF).filter(move |expected| {
        (16..=MAX_XSRF).contains(&expected.len()) && given.iter().flatten().any(|given| given == expected)
    })
}

/// Whether a browser has no page of another host open here. Others don't say where they come from.
fn is_same_origin(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else { return true };
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    origin.is_some_and(|origin| host.is_some_and(|host| origin.eq_ignore_ascii_case(host)))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        list.iter()
            .map(|(name, value)| ((*name).parse().unwrap(), HeaderValue::from_str(value).unwrap()))
            .collect()
    }

    fn repeats(headers: &HeaderMap, argument: Option<&str>) -> bool {
        repeated_xsrf(headers, argument).next().is_some()
    }

    #[test]
    fn a_cookie_alone_is_not_enough() {
        let token = "0123456789abcdef";
        let cookie = ("cookie", "a=b; _xsrf=0123456789abcdef; c=d");
        assert!(!repeats(&headers(&[cookie]), None));
        assert!(!repeats(&headers(&[cookie, ("x-xsrftoken", "0123456789abcdee")]), Some("x")));
        assert!(!repeats(&headers(&[("x-xsrftoken", token)]), Some(token)));
        assert!(!repeats(&headers(&[("cookie", "_xsrf="), ("x-xsrftoken", "")]), Some("")));
        assert!(repeats(&headers(&[cookie, ("x-xsrftoken", token)]), None));
        assert!(repeats(&headers(&[cookie]), Some(token)));
    }

    #[test]
    fn only_pages_of_this_host_may_connect() {
        for (origin, is_same) in [
            ("http://example.org:8000", true),
            ("https://Example.org:8000", true),
            ("http://example.org", false),
            ("http://evil.org", false),
            ("null", false),
        ] {
            let headers = headers(&[("host", "example.org:8000"), ("origin", origin)]);
            assert_eq!(is_same_origin(&headers), is_same, "{origin}");
        }
        assert!(is_same_origin(&headers(&[("host", "example.org")])));
    }
}
