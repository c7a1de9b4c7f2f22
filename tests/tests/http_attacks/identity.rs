//! Those who are not who they say.

use std::time::{Duration, Instant};

use redoma_tests::http::{Answer, Request};
use redoma_tests::server::{ADMIN, Server};
use redoma_tests::text_of;
use serde_json::{Value, json};

use crate::{World, text};

/// All at once: those who fail wait longer each time.
pub fn send_all(requests: Vec<(String, Request)>) -> Vec<(String, Answer)> {
    let sending: Vec<_> = requests
        .into_iter()
        .map(|(what, request)| std::thread::spawn(move || (what, request.send())))
        .collect();
    sending.into_iter().map(|thread| thread.join().unwrap()).collect()
}

fn base64(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::new();
    for piece in text.as_bytes().chunks(3) {
        let bits =
            piece.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - piece.len()));
        for place in 0..4 {
            let letter = char::from(LETTERS[(bits >> (18 - 6 * place) & 63) as usize]);
            encoded.push(if place <= piece.len() { letter } else { '=' });
        }
    }
    encoded
}

#[test]
fn nobody_comes_in_without_a_key_that_counts() {
    let world = World::new();
    let server = &world.server;
    let good = server.key("client", "chat");
    let revoked = server.key("client", "gone");
    let keys = server.get("/api/v1/keys").key(ADMIN).send().json();
    let gone = keys["keys"].as_array().unwrap().iter().find(|key| key["client"] == "gone").unwrap();
    let path = format!("/api/v1/keys/{}", text(&gone["id"]));
    assert_eq!(server.get("/api/v1/sessions").key(&revoked).send().status, 200);
    assert_eq!(server.request("DELETE", &path).key(ADMIN).send().status, 204);

    let get = || server.get("/api/v1/sessions");
    let authorization = |value: &str| get().header("Authorization", value);
    let mut bad: Vec<(String, Request)> = vec![
        ("no key".into(), get()),
        ("an empty key".into(), get().key("")),
        (
            "a wrong key".into(),
            get().key("rdm_0000000000000000000000000000000000000000000000000000000000000000"),
        ),
        ("a revoked key".into(), get().key(&revoked)),
        ("a key in another case".into(), get().key(&good.to_uppercase())),
        ("a part of a key".into(), get().key(&good[..good.len() - 1])),
        ("a longer key".into(), get().key(&format!("{good}0"))),
        ("a hash of a key".into(), get().key(&"0".repeat(64))),
        ("two keys in one header".into(), get().key(&format!("{good}, {ADMIN}"))),
        (
            "a key in the query".into(),
            server.get(&format!("/api/v1/sessions?api_key={good}&key={good}&token={good}")),
        ),
        ("a cookie".into(), get().header("Cookie", &format!("key={good}; X-API-Key={good}"))),
        ("no scheme".into(), authorization(&good)),
        ("another scheme".into(), authorization(&format!("Digest {good}"))),
        ("bearer of nothing".into(), authorization("Bearer ")),
        ("basic without a colon".into(), authorization(&format!("Basic {}", base64(&good)))),
        (
            "basic with the key as the user".into(),
            authorization(&format!("Basic {}", base64(&format!("{good}:")))),
        ),
        ("basic that is not base64".into(), authorization("Basic %%%")),
        ("basic that is not text".into(), authorization("Basic /////w==")),
        ("a wildcard".into(), get().key("%")),
        ("SQL".into(), get().key("' OR '1'='1")),
        ("a wrong key in the path".into(), server.get("/k/wrong/api/v1/sessions")),
        ("an empty key in the path".into(), server.get("/k//api/v1/sessions")),
        (
            "a revoked key in the path, before a good one".into(),
            server.get(&format!("/k/{revoked}/api/v1/sessions")).key(&good),
        ),
        (
            "a revoked key before a good one".into(),
            get().key(&revoked).header("Authorization", &format!("Bearer {good}")),
        ),
        (
            "a token where none are taken".into(),
            authorization("Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbmEifQ."),
        ),
    ];
    // Nothing but health and reference is open.
    let document = server.get("/openapi.json").send().json();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let path = path.replace(['{', '}'], "");
            bad.push((format!("{method} {path}"), server.request(&method.to_uppercase(), &path)));
        }
    }
    for path in [
        "/v1/exec",
        "/v1/exec/programmatic",
        "/v1/exec/programmatic/cancel",
        "/v1/upload",
        "/v1/upload/batch",
    ] {
        bad.push((path.into(), server.post(path).json(&json!({}))));
    }
    for path in ["/v1/files/a", "/v1/sessions/a/objects/b", "/v1/download/a/b"] {
        bad.push((path.into(), server.get(path)));
    }
    for (what, answer) in send_all(bad) {
        assert_eq!(answer.status, 401, "{what}: {}", answer.text());
        assert!(answer.header("www-authenticate").is_some(), "{what}");
    }
    for (what, request) in [
        ("x-api-key", get().key(&good)),
        ("bearer", authorization(&format!("Bearer {good}"))),
        ("lower case", authorization(&format!("bearer {good}"))),
        ("upper case", authorization(&format!("BEARER {good}"))),
        ("basic", authorization(&format!("basic {}", base64(&format!("any:{good}"))))),
        ("path", server.get(&format!("/k/{good}/api/v1/sessions"))),
    ] {
        assert_eq!(request.send().status, 200, "{what}");
    }
    let huge = authorization(&format!("Bearer {}", "a".repeat(1 << 20))).try_send();
    assert!(huge.is_err() || huge.is_ok_and(|answer| answer.status == 431));
    world.assert_sound();
}

#[test]
fn those_who_guess_wait_and_are_written_down() {
    let world = World::new();
    let server = &world.server;
    let guess = |number: u32| {
        let start = Instant::now();
        assert_eq!(server.get("/api/v1/sessions").key(&format!("guess-{number}")).send().status, 401);
        start.elapsed()
    };
    let times: Vec<_> = (0..6).map(guess).collect();
    assert!(times[5] > Duration::from_secs(1), "{times:?}");
    // Whoever has a key does not wait for those who have not, wherever they come from.
    let start = Instant::now();
    assert_eq!(server.get("/api/v1/sessions").key(ADMIN).send().status, 200);
    assert!(start.elapsed() < Duration::from_secs(1));
    let failed = server.log().lines().filter(|line| line.contains("a login failed")).count();
    assert_eq!(failed, 6);
    let database = everything_below(world.home.path());
    assert!(database.contains("the key is not known"), "failed logins are not recorded");
}

/// The bytes of all files of the data folder, but for the runtime.
fn everything_below(folder: &std::path::Path) -> String {
    let mut all = String::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() && entry.file_name() != "run" {
            all.push_str(&everything_below(&entry.path()));
        } else if kind.is_file() && entry.file_name() != "admin.key" {
            all.push_str(&String::from_utf8_lossy(&std::fs::read(entry.path()).unwrap_or_default()));
        }
    }
    all
}

#[test]
fn no_key_is_ever_written_down() {
    // The server makes its own first key here.
    let mut world =
        World::with("", |command| command.env_remove("REDOMA_API_KEY").env("REDOMA_LOG", "trace"));
    let server = &world.server;
    let path = world.home.path().join("admin.key");
    let admin = std::fs::read_to_string(&path).unwrap().trim().to_owned();
    let permissions = std::os::unix::fs::MetadataExt::mode(&path.metadata().unwrap());
    assert_eq!(permissions & 0o777, 0o600);
    let made =
        server.post("/api/v1/keys").key(&admin).json(&json!({ "role": "client", "client": "chat" })).send();
    let key = text(&made.json()["secret"]);
    let unknown = "wrong_5f3c7d0e9b1a4c628d7e";
    let mut requests = Vec::new();
    for key in [key.as_str(), admin.as_str(), unknown] {
        for path in [
            format!("/k/{key}/api/v1/sessions"),
            format!("/k/{key}/v1/files/nothing"),
            format!("/k/{key}/nothing/at/all"),
            format!("/k/{key}/"),
            format!("/k/{key}//"),
            format!("/k/{key}"),
            format!("/k/{key}?a=b"),
            format!("/k/{key}/k/{key}/v1/files/x"),
            format!("//k/{key}/v1/files/x"),
            format!("/api/v1/sessions?key={key}"),
            format!("http://host/k/{key}/v1/files/x"),
        ] {
            requests.push((path.clone(), server.get(&path)));
            requests.push((path.clone(), server.request("BREW", &path)));
        }
        requests.push((
            "bearer".into(),
            server.get("/v1/files/x").header("Authorization", &format!("Bearer {key}")),
        ));
        requests.push(("bearer, no space".into(), server.get("/v1/files/x").header("Authorization", key)));
        requests
            .push(("as a request id".into(), server.post("/v1/exec").key(key).body("application/json", "{")));
    }
    for (what, answer) in send_all(requests) {
        assert!(answer.status != 500, "{what}: {}", answer.text());
        for secret in [&key, &admin] {
            let answered = answer.headers.iter().any(|(_, value)| value.contains(secret.as_str()));
            assert!(
                !answered && !answer.text().contains(secret.as_str()),
                "{what}: the answer shows the key"
            );
        }
    }
    let listed = text_of(&mut world.home.command(&["keys", "list"]));
    assert_eq!(world.server.stop(), Some(0));
    let (log, everything) = (world.server.log(), everything_below(world.home.path()));
    for secret in [&key, &admin] {
        assert!(!format!("{listed:?}").contains(secret.as_str()), "`keys list` shows a key");
        assert!(!everything.contains(secret.as_str()), "a key is in a file of the data folder");
        let line = log.lines().find(|line| line.contains(secret.as_str()));
        assert!(line.is_none(), "a key is in the log: {line:?}");
    }
    // What is wrong today may be a key with a slip of the finger in it.
    let line = log.lines().find(|line| line.contains(unknown));
    assert!(line.is_none(), "a mistyped key is in the log: {line:?}");
}

/// Somebody whose name can't be one must not be taken for a client that names nobody, which has what all its users have.
#[test]
fn a_user_that_cannot_be_named_is_not_everybody() {
    let world = World::new();
    let server = &world.server;
    let chat = server.key("client", "chat");
    let ana = |request: Request| request.key(&chat).header("User-Id", "ana");
    let session = text(&ana(server.post("/api/v1/sessions")).json(&json!({})).send().json()["id"]);
    let path = format!("/api/v1/sessions/{session}");
    assert_eq!(ana(server.get(&path)).send().status, 200);
    let long = "b".repeat(257);
    for (what, request) in [
        ("too long", server.get(&path).key(&chat).header("User-Id", &long)),
        ("a tab", server.get(&path).key(&chat).header("User-Id", "be\tn")),
        ("not ASCII", server.get(&path).key(&chat).header("User-Id", "bén")),
        ("too long, in another header", server.get(&path).key(&chat).header("X-OpenWebUI-User-Id", &long)),
        ("too long, in the query", server.get(&format!("{path}?kind=user&id={long}")).key(&chat)),
        ("a line break, in the query", server.get(&format!("{path}?kind=user&id=be%0an")).key(&chat)),
        ("empty, in the query", server.get(&format!("{path}?kind=user&id=")).key(&chat)),
    ] {
        let answer = request.send();
        assert!(matches!(answer.status, 400 | 404), "{what}: {} {}", answer.status, answer.text());
    }
}

#[test]
fn a_user_of_any_name_has_a_folder_of_their_own() {
    let world = World::new();
    let server = &world.server;
    let chat = server.key("client", "chat");
    let names = [
        "../../x",
        "..",
        ".",
        "/",
        "/etc",
        "_nobody",
        ".incoming",
        "a/b",
        "a\\b",
        "%2e%2e%2f",
        "CON",
        "$(id)",
        "a b",
        "'\"",
        "a~b~c",
        "-",
        "--help",
        "*",
        "{}",
    ];
    for user in names {
        for (what, request) in [
            (
                "header",
                server.post("/v1/upload").key(&chat).header("User-Id", user).form(&[], &[("a.txt", b"a")]),
            ),
            (
                "form",
                server
                    .post("/v1/upload")
                    .key(&chat)
                    .form(&[("kind", "user"), ("id", user)], &[("a.txt", b"a")]),
            ),
        ] {
            let answer = request.send();
            assert_eq!(answer.status, 200, "{what} {user}: {}", answer.text());
            let session = text(&answer.json()["session_id"]);
            let seen = server.get(&format!("/v1/files/{session}")).key(&chat).header("User-Id", user).send();
            assert_eq!(seen.status, 200, "{what} {user}");
            let other =
                server.get(&format!("/v1/files/{session}")).key(&chat).header("User-Id", "somebody").send();
            assert_eq!(other.status, 404, "{what} {user}");
        }
        let made = json!({ "lang": "py", "code": "open('b.txt', 'w').write('b')", "user_id": user });
        assert_eq!(server.exec(&chat, &made).status, 200, "{user}");
    }
    world.assert_sound();
}

fn open_world() -> World {
    World::with("", |command| command.arg("--no-auth").env_remove("REDOMA_API_KEY"))
}

#[test]
fn a_server_without_keys_answers_to_this_host_only() {
    let world = open_world();
    for listen in ["0.0.0.0:0", "[::]:0", "[::ffff:127.0.0.1]:0", "10.0.0.1:0", "192.168.0.1:0"] {
        let mut command = world.home.command(&["serve", "--no-auth", "--listen", listen]);
        let (code, _, stderr) = text_of(&mut command);
        assert_ne!(code, 0, "{listen}");
        assert!(stderr.contains("without keys"), "{listen}: {stderr}");
    }
    let port = world.server.address.port();
    let ask = |server: &Server, more: &str, host: &str| {
        let body = "{\"lang\":\"py\",\"code\":\"print(1)\"}";
        let bytes = format!(
            "POST /v1/exec HTTP/1.1\r\nHost: {host}\r\n{more}Content-Type: text/plain\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        redoma_tests::http::exchange(server.address, bytes.as_bytes()).unwrap().status
    };
    let (local, server) = (format!("127.0.0.1:{port}"), &world.server);
    assert_eq!(ask(server, "", &local), 200);
    assert_eq!(ask(server, "", "localhost"), 200);
    for host in [
        "evil.example",
        "evil.example:80",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example:127.0.0.1",
        "localhost@evil.example",
        "127.0.0.1@evil.example:80",
        "0.0.0.0",
        "[::]",
        "169.254.169.254",
        "",
    ] {
        assert_eq!(ask(server, "", host), 403, "{host}");
    }
    for origin in [
        "http://evil.example",
        "null",
        "http://localhost.evil.example",
        "https://127.0.0.1.evil.example",
        "file://",
        "",
        "http://evil.example#localhost",
        "http://localhost@evil.example",
        "chrome-extension://abc",
    ] {
        assert_eq!(ask(server, &format!("Origin: {origin}\r\n"), &local), 403, "{origin}");
    }
    // A page elsewhere that asks first is told nothing that lets it go on.
    let preflight = server
        .request("OPTIONS", "/v1/exec")
        .header("Origin", "http://evil.example")
        .header("Access-Control-Request-Method", "POST")
        .send();
    assert!(preflight.headers.iter().all(|(name, _)| !name.starts_with("access-control-")), "{preflight:?}");
    let session = text(&server.post("/api/v1/sessions").json(&json!({})).send().json()["id"]);
    let socket = server.get(&format!("/api/v1/sessions/{session}/executions/ws")).websocket();
    assert_eq!(socket.clone().header("Origin", "http://evil.example").send().status, 403);
    world.assert_sound();
}

/// A page of a neighbouring host can set cookies for this one, but it does not know what belongs to a login.
#[test]
fn a_planted_xsrf_cookie_is_worth_nothing() {
    let world = World::with("[server]\ntrusted_proxies = [\"127.0.0.1\"]", |command| command);
    let server = &world.server;
    let key = server.key("user", "ana");
    let set = |answer: &Answer| answer.header("set-cookie").unwrap().to_owned();
    let pair = |cookie: &str| cookie.split(';').next().unwrap().to_owned();
    let planted = "a".repeat(64);
    let form = |cookie: &str| server.get("/jupyter/login").header("Cookie", cookie).send();
    let own = pair(&set(&form(&format!("_xsrf={planted}"))));
    assert_ne!(own, format!("_xsrf={planted}"), "a login would be made with a value that others know");
    let enter = |scheme: &str, cookie: &str| {
        let body = format!("{cookie}&password={key}");
        let request =
            server.post("/jupyter/login").header("Cookie", cookie).header("X-Forwarded-Proto", scheme);
        request.body("application/x-www-form-urlencoded", body).send()
    };
    let answer = enter("http", &own);
    assert_eq!(answer.status, 302, "{}", answer.text());
    assert!(!set(&answer).contains("Secure"), "{}", set(&answer));
    let login = pair(&set(&answer));
    let start = |xsrf: &str| {
        let (_, token) = xsrf.split_once('=').unwrap();
        let request = server.post("/jupyter/api/kernels").header("Cookie", &format!("{login}; {xsrf}"));
        request.header("X-XSRFToken", token).json(&json!({})).send().status
    };
    assert_eq!(start(&format!("_xsrf={planted}")), 403);
    // Another one that this server made, for another login.
    let other = pair(&set(&form("")));
    assert_eq!(enter("http", &other).status, 302);
    assert_eq!(start(&other), 403);
    let log_out = server.post("/jupyter/logout").header("Cookie", &format!("{login}; _xsrf={planted}"));
    assert_eq!(log_out.header("X-XSRFToken", &planted).send().status, 403);
    assert_eq!(start(&own), 201);
    // The value of a login that is there stays.
    assert_eq!(pair(&set(&form(&format!("{login}; {own}")))), own);
    // Behind TLS the cookies are for TLS only.
    let over_tls = server.get("/jupyter/login").header("X-Forwarded-Proto", "https").send();
    let answer = enter("https", &pair(&set(&over_tls)));
    for cookie in [set(&over_tls), set(&answer)] {
        assert!(cookie.contains("; Secure") && cookie.contains("SameSite=Lax"), "{cookie}");
        assert!(!cookie.contains("Path=/"), "it is sent to other façades: {cookie}");
    }
    assert!(set(&answer).contains("HttpOnly"));
    world.assert_sound();
}

/// Names that one user stores are read by the operator: in a terminal, where an escape sequence is a command.
#[test]
fn no_name_that_a_user_stores_acts_on_the_operators_terminal() {
    let world = World::new();
    let server = &world.server;
    let ana = server.key("client", "chat");
    let asked = |request: Request, body: &Value| request.key(&ana).json(body).send();
    let session = text(&asked(server.post("/api/v1/sessions"), &json!({})).json()["id"]);
    let path = format!("/api/v1/sessions/{session}");
    let hostile = ["a\u{1b}[2J", "a\nb", "a\u{9b}31m", "a\0", &"x".repeat(1 << 20)];
    for name in hostile {
        let body = json!({ "name": name });
        let shown: String = name.chars().take(20).collect();
        for (what, request) in [
            ("open", server.post("/api/v1/sessions")),
            ("branch", server.post(&format!("{path}/branch"))),
            ("change", server.request("PATCH", &path)),
        ] {
            let answer = asked(request, &body);
            assert_eq!(answer.status, 400, "{what} {shown:?}: {}", answer.text());
            assert!(answer.text().contains("a name may have"), "{what} {shown:?}: {}", answer.text());
        }
        let key = json!({ "role": "client", "client": "chat", "label": name });
        let answer = server.post("/api/v1/keys").key(ADMIN).json(&key).send();
        assert_eq!(answer.status, 400, "label {shown:?}: {}", answer.text());
    }
    // Not a control character, and still not for a terminal: what follows would be shown from right to left.
    let name = "total\u{202e}fdp.exe";
    let branch = asked(server.post(&format!("{path}/branch")), &json!({ "name": name }));
    assert_eq!(branch.status, 201, "{}", branch.text());
    let (_, listed, _) = text_of(&mut world.home.command(&["sessions", "list"]));
    assert!(listed.contains("total\\u{202e}fdp.exe"), "{listed:?}");
    let (_, listed, _) = text_of(&mut world.home.command(&["sessions", "list", "--json"]));
    assert!(listed.is_ascii(), "{listed:?}");
    let sessions: Value = serde_json::from_str(&listed).unwrap();
    assert!(sessions.as_array().unwrap().iter().any(|session| session["name"] == name), "{listed}");
}
