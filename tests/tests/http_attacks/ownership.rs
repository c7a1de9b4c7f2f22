//! Somebody else's ids, in every route. What is not yours answers as what does not exist: same status, same headers, same
//! body.

use std::collections::BTreeSet;

use redoma_tests::http::{Answer, Request};
use redoma_tests::server::{ADMIN, Server};
use serde_json::{Value, json};

use crate::signer::Signer;
use crate::{World, text, upload};

/// Ids of the right shape that nobody has.
const NOWHERE: [&str; 3] = ["AAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBB", "CCCCCCCCCCCCCCCCCCCCC"];

/// Every route that names a session (`S`), a file (`F`) or an execution (`E`): method, path, body.
fn routes() -> Vec<(&'static str, &'static str, Option<Value>)> {
    let run = Some(json!({ "language": "py", "code": "print(1)" }));
    vec![
        ("GET", "/api/v1/sessions/{S}", None),
        ("PATCH", "/api/v1/sessions/{S}", Some(json!({ "name": "stolen" }))),
        ("GET", "/api/v1/sessions?after={S}", None),
        ("GET", "/api/v1/sessions/{S}/executions", None),
        ("POST", "/api/v1/sessions/{S}/executions", run),
        ("GET", "/api/v1/sessions/{S}/executions/ws", None),
        ("GET", "/api/v1/sessions/{S}/kernel", None),
        ("POST", "/api/v1/sessions/{S}/interrupt", Some(json!({}))),
        ("POST", "/api/v1/sessions/{S}/restart", Some(json!({}))),
        ("POST", "/api/v1/sessions/{S}/undo", Some(json!({}))),
        ("POST", "/api/v1/sessions/{S}/branch", Some(json!({}))),
        ("GET", "/api/v1/executions/{E}", None),
        ("GET", "/api/v1/executions/{E}/archive", None),
        ("POST", "/api/v1/executions/{E}/cancel", Some(json!({}))),
        ("POST", "/api/v1/sessions/{S}/files", None),
        ("GET", "/api/v1/sessions/{S}/files", None),
        ("GET", "/api/v1/sessions/{S}/files?all=true", None),
        ("GET", "/api/v1/sessions/{S}/files/{F}", None),
        ("GET", "/api/v1/sessions/{S}/files/{F}/content", None),
        ("DELETE", "/api/v1/sessions/{S}/files/{F}", None),
        ("GET", "/api/v1/sessions/{S}/artifacts", None),
        ("GET", "/api/v1/sessions/{S}/archive", None),
        ("GET", "/v1/sessions/{S}/objects/{F}", None),
        ("GET", "/v1/sessions/{S}/objects/{F}?kind=user&id=ana", None),
        ("GET", "/v1/sessions/{S}/objects/{F}?kind=agent&id=ana", None),
        ("DELETE", "/v1/sessions/{S}/objects/{F}", None),
        ("GET", "/v1/files/{S}", None),
        ("GET", "/v1/files/{S}?detail=summary", None),
        ("GET", "/v1/files/{S}?kind=user&id=ana", None),
        ("GET", "/v1/files/{S}?entity_id=ana", None),
        ("DELETE", "/v1/files/{S}/{F}", None),
        ("GET", "/v1/download/{S}/{F}", None),
        ("GET", "/v1/download/{S}/{F}?kind=user&id=ana", None),
        ("GET", "/v1/download/{S}/{F}.txt", None),
        ("DELETE", "/api/v1/sessions/{S}", None),
    ]
}

/// What Ana has.
struct Things {
    session: String,
    file: String,
    execution: String,
}

impl Things {
    fn path(&self, route: &str) -> String {
        route.replace("{S}", &self.session).replace("{F}", &self.file).replace("{E}", &self.execution)
    }
}

type Dress<'a> = Box<dyn Fn(Request) -> Request + 'a>;

fn anas_things(server: &Server, ana: &Dress<'_>) -> Things {
    let made = ana(server.post("/api/v1/sessions")).json(&json!({ "name": "Ana's" })).send().json();
    let session = text(&made["id"]);
    let files = ana(server.post(&format!("/api/v1/sessions/{session}/files")))
        .form(&[], &[("a.txt", b"Ana's secret")]);
    let file = text(&files.send().json()["files"][0]["id"]);
    let body = json!({ "language": "py", "code": "open('made.txt', 'w').write('by Ana')" });
    let ran = ana(server.post(&format!("/api/v1/sessions/{session}/executions"))).json(&body).send().json();
    Things { session, file, execution: text(&ran["id"]) }
}

fn ask(server: &Server, who: &Dress<'_>, route: (&str, &str, Option<Value>), things: &Things) -> Answer {
    let (method, path, body) = route;
    let request = who(server.request(method, &things.path(path)));
    let request = match body {
        Some(body) => request.json(&body),
        None if method == "POST" => request.form(&[], &[("evil.txt", b"evil")]),
        None if path.ends_with("/ws") => request.websocket(),
        None => request,
    };
    request.send()
}

/// All that somebody could tell two answers apart by.
fn seen(answer: &Answer) -> (u16, Vec<(String, String)>, String) {
    let mut headers = answer.headers.clone();
    // The caller's own rates count down with each of its requests.
    headers.retain(|(name, _)| name != "date" && name != "x-request-id" && !name.contains("ratelimit-"));
    (answer.status, headers, answer.text())
}

fn assert_nothing_is_seen(
    server: &Server,
    who: &str,
    stranger: &Dress<'_>,
    ana: &Dress<'_>,
    things: &Things,
) {
    let nowhere =
        Things { session: NOWHERE[0].into(), file: NOWHERE[1].into(), execution: NOWHERE[2].into() };
    for route in routes() {
        let theirs = ask(server, stranger, route.clone(), things);
        let nothing = ask(server, stranger, route.clone(), &nowhere);
        assert_eq!(theirs.status, 404, "{who}: {} {}: {}", route.0, route.1, theirs.text());
        assert_eq!(seen(&theirs), seen(&nothing), "{who}: {} {}", route.0, route.1);
    }
    // A file of hers in a session of one's own, and the other way round.
    let own = stranger(server.post("/api/v1/sessions")).json(&json!({})).send();
    assert_eq!(own.status, 201, "{who}: {}", own.text());
    let own_session = text(&own.json()["id"]);
    let form = stranger(server.post(&format!("/api/v1/sessions/{own_session}/files")))
        .form(&[], &[("b.txt", b"own")]);
    let own_file = text(&form.send().json()["files"][0]["id"]);
    for (session, file) in [(&own_session, &things.file), (&things.session, &own_file)] {
        for path in [
            format!("/api/v1/sessions/{session}/files/{file}"),
            format!("/api/v1/sessions/{session}/files/{file}/content"),
            format!("/v1/download/{session}/{file}"),
            format!("/v1/sessions/{session}/objects/{file}"),
        ] {
            assert_eq!(stranger(server.get(&path)).send().status, 404, "{who}: {path}");
        }
    }
    // What programs are given.
    let code = "import os\nprint(sorted(os.listdir('.')))";
    let reference = |session: &str, file: &str| json!({ "id": file, "storage_session_id": session, "name": "stolen.txt" });
    for (what, session_id, file) in [
        ("session", Some(&things.session), None),
        ("file", None, Some(reference(&things.session, &things.file))),
        ("file in an own session", None, Some(reference(&own_session, &things.file))),
    ] {
        let mut claimed = file.clone().unwrap_or_default();
        claimed["kind"] = "agent".into();
        claimed["resource_id"] = "ana".into();
        for file in file
            .iter()
            .chain(file.is_some().then_some(&claimed))
            .map(Some)
            .chain(file.is_none().then_some(None))
        {
            let body = json!({ "lang": "py", "code": code, "session_id": session_id, "files": file.map(|file| [file]) });
            let answer = stranger(server.post("/v1/exec")).json(&body).send();
            assert_eq!(answer.status, 200, "{who}: {what}: {}", answer.text());
            let stdout = text(&answer.json()["stdout"]);
            assert!(!stdout.contains(".txt"), "{who}: a program saw a {what} of another's: {stdout}");
        }
    }
    let listed = stranger(server.get("/api/v1/sessions")).send();
    assert!(!listed.text().contains(&things.session), "{who}");
    // All of it is as it was.
    let session = ana(server.get(&things.path("/api/v1/sessions/{S}"))).send().json();
    assert_eq!(
        (session["name"].as_str(), session["files"].as_u64()),
        (Some("Ana's"), Some(2)),
        "{who}: {session}"
    );
    let content = ana(server.get(&things.path("/v1/download/{S}/{F}"))).send();
    assert_eq!(content.text(), "Ana's secret", "{who}");
}

fn with_key<'a>(key: &'a str, user: Option<&'a str>) -> Dress<'a> {
    Box::new(move |request| {
        let request = request.key(key);
        match user {
            Some(user) => request.header("User-Id", user),
            None => request,
        }
    })
}

fn user_key(server: &Server, client: &str, user: &str) -> String {
    let body = json!({ "role": "user", "client": client, "user": user });
    text(&server.post("/api/v1/keys").key(ADMIN).json(&body).send().json()["secret"])
}

#[test]
fn what_is_anothers_answers_as_what_does_not_exist() {
    let world = World::new();
    let server = &world.server;
    let chat = server.key("client", "chat");
    let other = server.key("client", "other");
    let (ana_direct, ben_direct) = (server.key("user", "ana"), server.key("user", "ben"));
    let ben_of_chat = user_key(server, "chat", "ben");
    let ana = with_key(&chat, Some("ana"));
    let things = anas_things(server, &ana);
    let strangers = [
        ("another client", with_key(&other, None)),
        ("another client that names the same user", with_key(&other, Some("ana"))),
        ("an admin, who is a client of their own", with_key(ADMIN, None)),
        ("an admin that names the same user", with_key(ADMIN, Some("ana"))),
        ("another user of the same client", with_key(&chat, Some("ben"))),
        ("a user's key of the same client", with_key(&ben_of_chat, None)),
        ("a user's key that names the owner", with_key(&ben_of_chat, Some("ana"))),
        ("a user of the same name elsewhere", with_key(&ana_direct, None)),
        ("somebody else", with_key(&ben_direct, Some("ana"))),
    ];
    for (who, stranger) in &strangers {
        assert_nothing_is_seen(server, who, stranger, &ana, &things);
    }
    // The client that names nobody has all of its own; that is what tells that the routes above do find things.
    let chat_itself = with_key(&chat, None);
    for route in routes().into_iter().filter(|route| route.0 == "GET" && !route.1.ends_with("/ws")) {
        let (_, path, _) = route.clone();
        let answer = ask(server, &chat_itself, route, &things);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    }
    let documented: BTreeSet<String> =
        server.get("/openapi.json").send().json()["paths"].as_object().unwrap().keys().cloned().collect();
    let tried: BTreeSet<String> = routes()
        .iter()
        .map(|(_, path, _)| {
            path.replace("{S}", "{session}").replace("{F}", "{file}").replace("{E}", "{execution}")
        })
        .collect();
    let missed: Vec<_> = documented
        .iter()
        .filter(|path| path.contains('{') && !path.contains("/keys/") && !tried.contains(*path))
        .collect();
    assert!(missed.is_empty(), "routes that this test does not try: {missed:?}");
    world.assert_sound();
}

#[test]
fn a_tokens_user_has_only_what_is_theirs() {
    let Some(signer) = Signer::new() else { return };
    let world = World::with("", |command| command.arg("--librechat-jwt-key").arg(signer.public_key()));
    let server = &world.server;
    let bearer = |token: String| -> Dress<'static> {
        Box::new(move |request| request.header("Authorization", &format!("Bearer {token}")))
    };
    let ana = bearer(signer.token("ana", None));
    let things = anas_things(server, &ana);
    let naming_ana = signer.token("ben", None);
    let chat = server.key("client", "chat");
    let strangers = [
        ("another user's token", bearer(signer.token("ben", None))),
        (
            "another user's token that names the owner",
            Box::new(move |request: Request| {
                request
                    .header("Authorization", &format!("Bearer {naming_ana}"))
                    .header("User-Id", "ana")
                    .header("X-User-Id", "ana")
            }) as Dress<'_>,
        ),
        ("the same user of another tenant", bearer(signer.token("ana", Some("elsewhere")))),
        ("a client that names the same user", with_key(&chat, Some("ana"))),
    ];
    for (who, stranger) in &strangers {
        assert_nothing_is_seen(server, who, stranger, &ana, &things);
    }
    world.assert_sound();
}

#[test]
fn keys_are_for_admins_only() {
    let world = World::new();
    let server = &world.server;
    let (chat, ana) = (server.key("client", "chat"), server.key("user", "ana"));
    let all = server.get("/api/v1/keys").key(ADMIN).send().json();
    let id = text(&all["keys"][0]["id"]);
    let new = json!({ "role": "admin", "client": "admin" });
    for key in [&chat, &ana] {
        for id in [id.as_str(), NOWHERE[0], "..", "x"] {
            let answer = server
                .request("DELETE", &format!("/api/v1/keys/{id}"))
                .key(key)
                .header("User-Id", "admin")
                .send();
            assert_eq!(answer.status, 403, "{}", answer.text());
        }
        assert_eq!(server.get("/api/v1/keys").key(key).send().status, 403);
        assert_eq!(server.post("/api/v1/keys").key(key).json(&new).send().status, 403);
    }
    let after = server.get("/api/v1/keys").key(ADMIN).send();
    assert_eq!(after.json(), all);
    for secret in [ADMIN, &chat, &ana] {
        assert!(!after.text().contains(secret), "a list of keys shows one");
    }
}

#[test]
fn a_running_program_is_cancelled_only_by_its_own() {
    let world = World::new();
    let server = &world.server;
    let chat = server.key("client", "chat");
    let ben_of_chat = user_key(server, "chat", "ben");
    let ana = with_key(&chat, Some("ana"));
    let session = text(&ana(server.post("/api/v1/sessions")).json(&json!({})).send().json()["id"]);
    let body = json!({ "language": "py", "code": "import time\ntime.sleep(20)" });
    let request = ana(server.post(&format!("/api/v1/sessions/{session}/executions")))
        .header("Accept", "text/event-stream")
        .json(&body);
    let mut stream = std::net::TcpStream::connect(server.address).unwrap();
    std::io::Write::write_all(&mut stream, &request.bytes()).unwrap();
    let mut seen = String::new();
    let id = loop {
        let mut piece = [0; 4096];
        let count = std::io::Read::read(&mut stream, &mut piece).unwrap();
        seen.push_str(&String::from_utf8_lossy(&piece[..count]));
        let id = seen.split("\"id\":\"").nth(1).and_then(|rest| rest.get(..21));
        if let Some(id) = id {
            break id.to_owned();
        }
        assert!(count > 0, "{seen}");
    };
    std::thread::sleep(std::time::Duration::from_millis(300));
    let cancel =
        |who: &Dress<'_>, id: &str| who(server.post(&format!("/api/v1/executions/{id}/cancel"))).send();
    for stranger in [with_key(&chat, Some("ben")), with_key(&ben_of_chat, None), with_key(ADMIN, Some("ana"))]
    {
        let answer = cancel(&stranger, &id);
        assert_eq!(answer.status, 404, "{}", answer.text());
        assert_eq!(self::seen(&answer), self::seen(&cancel(&stranger, NOWHERE[0])));
    }
    assert_eq!(cancel(&ana, &id).status, 202);
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut stream, &mut rest).unwrap();
    assert!(rest.contains("\"ending\":\"cancelled\""), "{rest}");
}

/// A program that waits for a tool's answer: the token that continues it, and the call.
fn waiting_program(server: &Server, ana: &Dress<'_>) -> (String, String) {
    let body = json!({ "code": "print(await tool())", "tools": [{ "name": "tool" }], "lang": "py" });
    let answer = ana(server.post("/v1/exec/programmatic")).json(&body).send().json();
    assert_eq!(answer["status"], "tool_call_required", "{answer}");
    (text(&answer["continuation_token"]), text(&answer["tool_calls"][0]["id"]))
}

fn continue_program(server: &Server, who: &Dress<'_>, token: &str, call: &str) -> Answer {
    let results = json!([{ "call_id": call, "result": "answered", "is_error": false }]);
    who(server.post("/v1/exec/programmatic"))
        .json(&json!({ "continuation_token": token, "tool_results": results }))
        .send()
}

#[test]
fn a_waiting_program_is_continued_only_by_its_own() {
    let world = World::new();
    let server = &world.server;
    let (chat, other) = (server.key("client", "chat"), server.key("client", "other"));
    let ben_of_chat = user_key(server, "chat", "ben");
    let ana = with_key(&chat, Some("ana"));
    for (who, stranger) in [
        ("another client", with_key(&other, Some("ana"))),
        ("an admin", with_key(ADMIN, Some("ana"))),
        ("a user's key of the same client", with_key(&ben_of_chat, None)),
        ("another user of the same client", with_key(&chat, Some("ben"))),
    ] {
        let (token, call) = waiting_program(server, &ana);
        let theirs = continue_program(server, &stranger, &token, &call);
        let nothing = continue_program(server, &stranger, NOWHERE[0], &call);
        assert_eq!(seen(&theirs), seen(&nothing), "{who}");
        // It waits as before.
        let own = continue_program(server, &ana, &token, &call);
        assert_eq!(own.json()["stdout"], "answered\n", "{who} ended it: {}", own.text());
    }
}

#[test]
fn a_request_is_cancelled_by_name_only_by_its_own() {
    let world = World::new();
    let server = &world.server;
    let (chat, other) = (server.key("client", "chat"), server.key("client", "other"));
    let ben_of_chat = user_key(server, "chat", "ben");
    let ana = with_key(&chat, Some("ana"));
    let cancel = |who: &Dress<'_>| {
        who(server.post("/v1/exec/programmatic/cancel")).json(&json!({ "request_id": "r-1" })).send()
    };
    std::thread::scope(|scope| {
        let body = json!({ "lang": "py", "code": "import time\ntime.sleep(3)\nprint('whole')" });
        let request = ana(server.post("/v1/exec")).header("X-LibreChat-Code-Request-Id", "r-1").json(&body);
        let running = scope.spawn(move || request.send());
        std::thread::sleep(std::time::Duration::from_millis(700));
        for (who, stranger) in [
            ("another client", with_key(&other, Some("ana"))),
            ("a user's key of the same client", with_key(&ben_of_chat, None)),
            ("another user of the same client", with_key(&chat, Some("ben"))),
        ] {
            let answer = cancel(&stranger);
            assert_eq!(answer.json()["cancelled"], false, "{who}");
        }
        let answer = running.join().unwrap();
        assert_eq!(answer.json()["stdout"], "whole\n", "{}", answer.text());
    });
}

#[test]
fn a_session_of_ones_own_is_not_a_way_to_the_files_of_another() {
    // Same user, two sessions: both ids must be right together.
    let world = World::new();
    let server = &world.server;
    let (first, second) = (server.session(ADMIN), server.session(ADMIN));
    let file = upload(server, ADMIN, &first, "a.txt", b"first");
    for path in [
        format!("/api/v1/sessions/{second}/files/{file}/content"),
        format!("/v1/download/{second}/{file}"),
        format!("/v1/sessions/{second}/objects/{file}"),
    ] {
        assert_eq!(server.get(&path).key(ADMIN).send().status, 404, "{path}");
    }
    assert_eq!(server.request("DELETE", &format!("/v1/files/{second}/{file}")).key(ADMIN).send().status, 404);
    assert_eq!(crate::download(server, ADMIN, &first, &file).text(), "first");
}
