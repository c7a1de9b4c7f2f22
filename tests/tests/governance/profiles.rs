//! Profiles by key and user, libraries, and a configuration that can be changed while the server runs, never by mistake.

use std::time::{Duration, Instant};

use redoma_tests::server::{ADMIN, Home, Server};
use redoma_tests::{Mode, text_of};
use serde_json::{Value, json};

use crate::{QUICK, new_key, new_session, run, start, stderr};

#[test]
fn a_key_that_is_bound_to_a_profile_has_no_other() {
    let (home, server) = start("");
    let body = json!({ "role": "user", "client": "desk", "user": "ana", "profile": "strict" });
    let (id, ana) = new_key(&server, &body);

    let session = new_session(&server, &ana, &json!({})).json();
    assert_eq!(session["profile"], "strict");
    let other = new_session(&server, &ana, &json!({ "profile": "agent" }));
    assert_eq!((other.status, &other.json()["code"]), (403, &json!("forbidden")), "{}", other.text());
    let listed = server.get("/api/v1/profiles").key(&ana).send().json();
    let names: Vec<_> =
        listed["profiles"].as_array().unwrap().iter().map(|profile| &profile["name"]).collect();
    assert_eq!(names, ["strict"]);
    let libraries = listed["profiles"][0]["libraries"].as_array().unwrap();
    let version =
        libraries.iter().find(|library| library["name"] == "numpy").map(|library| &library["version"]);
    assert!(version.and_then(Value::as_str).is_some_and(|version| version.contains('.')), "{libraries:?}");
    // What is shipped names nothing that is not there.
    assert!(libraries.iter().all(|library| library["version"].is_string()), "{libraries:?}");

    // Its languages and libraries hold, also for chats that name no profile.
    let ran = run(&server, &ana, "bash", "echo hello");
    assert_eq!((&ran["ending"], &ran["exit_code"]), (&json!("denied"), &json!(126)), "{ran}");
    assert!(stderr(&ran).contains("runs py"), "{ran}");
    let ran = run(&server, &ana, "py", "print(1 + 1)");
    assert_eq!((&ran["stdout"]["text"], &ran["profile"]), (&json!("2\n"), &json!("strict")));
    let chat = json!({ "lang": "bash", "code": "echo hello" });
    let answer = server.post("/v1/exec").key(&ana).json(&chat).send();
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.json()["stderr"].as_str().unwrap().contains("runs py"), "{}", answer.text());

    // Anybody can see what holds for them, and an admin where it was said.
    let own = server.get("/api/v1/profile").key(&ana).send().json();
    assert_eq!((&own["profile"], &own["because"]), (&json!("strict"), &json!("key")));
    assert_eq!(own["values"]["limits.wall"], json!({ "value": "15s" }));
    let shown = server.get(&format!("/api/v1/keys/{id}/profile")).key(ADMIN).send().json();
    assert_eq!(shown["values"]["limits.wall"]["from"], "shipped with `strict`");
    assert_eq!(shown["values"]["limits.files"]["from"], "built in");
    assert_eq!(server.get(&format!("/api/v1/keys/{id}/profile")).key(&ana).send().status, 403);
    let (code, said, _) = text_of(&mut home.command(&["config", "show", "--key", &id, "--json"]));
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &said["profile"]), (0, &json!("strict")));
    assert!(said["values"]["preload"]["from"].as_str().unwrap().contains("[profiles.default] in "), "{said}");
}

#[test]
fn libraries_that_a_profile_does_not_name_can_not_be_imported() {
    let (_home, server) = start("[profiles.few]\nlibraries = [\"numpy\"]\n");
    let session = new_session(&server, ADMIN, &json!({ "profile": "few" })).json();
    let path = format!("/api/v1/sessions/{}/executions", session["id"].as_str().unwrap());
    for stateful in [true, false] {
        let run = |code: &str| {
            let body = json!({ "language": "py", "code": code, "stateful": stateful });
            let answer = server.post(&path).key(ADMIN).json(&body).send();
            assert_eq!(answer.status, 200, "{}", answer.text());
            answer.json()
        };
        let fine = run("import numpy.linalg, json, os.path\nprint(numpy.linalg.norm([3, 4]))");
        assert_eq!(fine["stdout"]["text"], "5.0\n", "{fine}");
        // Also where it is there already, and whichever way it is asked for.
        for code in [
            "import yaml",
            "from yaml import safe_load",
            "__import__('yaml')",
            "import importlib\nimportlib.import_module('yaml')",
            "exec('import yaml')",
        ] {
            let denied = run(code);
            assert_eq!(denied["exit_code"], 1, "{code}: {denied}");
            let said = denied.to_string();
            assert!(said.contains("not among the libraries of the profile `few`"), "{code}: {denied}");
            assert!(said.contains("Allowed are the standard library and numpy"), "{code}: {denied}");
        }
        // Honest programs have something else for this case; and their own files are their own.
        let fine = run("try:\n    import yaml\nexcept ImportError:\n    print('without')");
        assert_eq!(fine["stdout"]["text"], "without\n");
        let fine = run("open('mine.py', 'w').write('x = 5')\nimport mine\nprint(mine.x)");
        assert_eq!(fine["stdout"]["text"], "5\n", "{fine}");
    }
}

#[test]
fn a_user_s_profile_can_be_said_in_the_configuration() {
    let settings = "[profiles.tiny.limits]\nwall = \"3s\"\n[[assign]]\nuser = \"bo\"\nprofile = \"tiny\"\n\
                    [[assign]]\nclient = \"desk\"\nprofile = \"data\"\n";
    let (home, server) = start(settings);
    let (_, desk) = new_key(&server, &json!({ "role": "client", "client": "desk" }));
    let of = |user: &str| {
        let answer = server.get("/api/v1/profile").key(&desk).header("user-id", user).send().json();
        answer["profile"].as_str().unwrap().to_owned()
    };
    assert_eq!((of("bo").as_str(), of("cy").as_str()), ("tiny", "data"));
    // Sessions that they have opened before are no way around it.
    home.configure(&format!("{QUICK}[profiles.tiny.limits]\nwall = \"3s\"\n"));
    assert_eq!(server.post("/api/v1/admin/reload").key(ADMIN).send().status, 200);
    let session =
        server.post("/api/v1/sessions").key(&desk).header("user-id", "bo").json(&json!({})).send().json();
    assert_eq!(session["profile"], "default");
    home.configure(&format!("{QUICK}{settings}"));
    assert_eq!(server.post("/api/v1/admin/reload").key(ADMIN).send().status, 200);
    let path = format!("/api/v1/sessions/{}/executions", session["id"].as_str().unwrap());
    let body = json!({ "language": "py", "code": "1", "stateful": false });
    let ran = server.post(&path).key(&desk).header("user-id", "bo").json(&body).send().json();
    assert_eq!(ran["profile"], "tiny", "{ran}");
}

fn wait_for(server: &Server, message: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !server.log().contains(message) {
        assert!(Instant::now() < deadline, "{}", server.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_bad_file_never_replaces_a_good_one() {
    let (home, server) = start("[profiles.mine.limits]\nwall = \"4s\"\n");
    let wall = || {
        let listed = server.get("/api/v1/profiles").key(ADMIN).send().json();
        let profiles = listed["profiles"].as_array().unwrap();
        let mine = profiles.iter().find(|profile| profile["name"] == "mine");
        mine.map(|mine| mine["limits"]["wall"].as_str().unwrap().to_owned())
    };
    assert_eq!(wall().as_deref(), Some("4s"));
    for (bad, why) in [
        ("[profiles.mine.limits]\nwal = \"5s\"\n", "did you mean `wall`"),
        ("[profiles.mine.limits]\nwall = \"0s\"\n", "out of range"),
        ("[profiles.mine]\nlanguages = [\"cobol\"]\n", "`cobol` is none"),
        ("[profiles.mine]\nruntime = \"other\"\n", "one for all"),
        ("[[assign]]\nuser = \"a\"\nprofile = \"nothing\"\n", "no profile `nothing`"),
        ("[[assign]]\nprofile = \"mine\"\n", "neither a client nor a user"),
        ("[profiles.mine\n", "redoma.toml:"),
    ] {
        home.configure(&format!("{QUICK}{bad}"));
        let answer = server.post("/api/v1/admin/reload").key(ADMIN).send();
        assert_eq!((answer.status, &answer.json()["code"]), (422, &json!("bad_configuration")));
        assert!(answer.text().contains(why), "{why}: {}", answer.text());
        assert_eq!(wall().as_deref(), Some("4s"), "{bad}");
        let (code, _, said) = text_of(&mut home.command(&["config", "check"]));
        assert_eq!(code, 1, "{bad}: {said}");
        assert!(said.contains(why), "{why}: {said}");
    }
    // Nor does one that is away for a moment, not written yet, or no file at all.
    let path = home.path().join("redoma.toml");
    std::fs::remove_file(&path).unwrap();
    let refused = |what: &str| {
        let answer = server.post("/api/v1/admin/reload").key(ADMIN).send();
        assert_eq!(answer.status, 422, "{what}: {}", answer.text());
        assert_eq!(wall().as_deref(), Some("4s"), "{what}");
    };
    refused("away");
    std::fs::write(&path, "").unwrap();
    refused("empty");
    std::fs::remove_file(&path).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    refused("a pipe");
    std::fs::remove_file(&path).unwrap();
    home.configure(&format!("{QUICK}[profiles.mine.limits]\nwall = \"6s\"\n[storage]\nsession_files = 7\n"));
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(i32::try_from(server.pid()).unwrap()).unwrap(),
        rustix::process::Signal::HUP,
    )
    .unwrap();
    wait_for(&server, "configuration reloaded");
    assert_eq!(wall().as_deref(), Some("6s"));
    let answer = server.post("/api/v1/admin/reload").key(ADMIN).send().json();
    assert_eq!(answer["needs_restart"], json!(["storage"]), "{answer}");
    assert_eq!(run(&server, ADMIN, "py", "print(3)")["stdout"]["text"], "3\n");
    let (_, user) = new_key(&server, &json!({ "role": "client", "client": "desk" }));
    assert_eq!(server.post("/api/v1/admin/reload").key(&user).send().status, 403);
}

#[test]
fn the_file_that_init_writes_is_taken_as_it_is_and_never_overwritten() {
    let home = Home::new(Mode::available()[0]);
    let path = home.path().join("redoma.toml");
    let _ = std::fs::remove_file(&path);
    let (code, _, said) = text_of(&mut home.command(&["config", "init"]));
    assert_eq!(code, 0, "{said}");
    let (code, _, said) = text_of(&mut home.command(&["config", "check"]));
    assert_eq!(code, 0, "{said}");
    std::fs::write(&path, "# mine\n").unwrap();
    let (code, _, said) = text_of(&mut home.command(&["config", "init"]));
    assert_eq!(code, 125, "{said}");
    assert!(said.contains("is there already"), "{said}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "# mine\n");
}

#[test]
fn a_module_that_a_program_writes_itself_is_its_own() {
    let (_home, server) = start("[profiles.few]\nlibraries = []\n[profiles.few.policy]\nmode = \"on\"\n");
    let (_, key) = new_key(&server, &json!({ "role": "client", "client": "desk", "profile": "few" }));
    let ran = run(&server, &key, "py", "open('mine.py', 'w').write('x = 5')\nimport mine\nprint(mine.x)");
    assert_eq!(ran["stdout"]["text"], "5\n", "{ran}");
    assert_eq!(run(&server, &key, "py", "import numpy")["ending"], "denied");
}

/// A session's process was made under the profile of whoever began; somebody who is bound to another does not run in it.
#[test]
fn who_is_bound_does_not_run_under_another_s_terms() {
    let (_home, server) = start("[profiles.few]\nlibraries = []\nretention = \"2h\"\n");
    let key = |profile: Option<&str>| {
        new_key(&server, &json!({ "role": "user", "client": "desk", "user": "ana", "profile": profile })).1
    };
    let (free, bound) = (key(None), key(Some("few")));
    let session = new_session(&server, &free, &json!({})).json();
    let path = format!("/api/v1/sessions/{}", session["id"].as_str().unwrap());
    let cell = |key: &str, code: &str| {
        let body = json!({ "language": "py", "code": code });
        server.post(&format!("{path}/executions")).key(key).json(&body).send().json()
    };
    assert_eq!(cell(&free, "import numpy; x = 1")["exit_code"], 0);
    let denied = cell(&bound, "__import__('num' + 'py')");
    assert_eq!((&denied["exit_code"], &denied["cell"]["restarted"]), (&json!(1), &json!(true)), "{denied}");
    assert!(denied.to_string().contains("not among the libraries of the profile `few`"), "{denied}");
    // Nor does it keep anything longer than its profile says.
    let change =
        |key: &str| server.request("PATCH", &path).key(key).json(&json!({ "retention": "forever" })).send();
    assert!(change(&bound).json()["expires_at"].is_string());
    assert!(change(&free).json()["expires_at"].is_null());
}
