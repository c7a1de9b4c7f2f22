//! Ids and names that climb out of their folder. Two canaries: one beside the storage, one elsewhere on the host.

use redoma_tests::canary::Canary;
use redoma_tests::server::ADMIN;
use serde_json::json;

use crate::{World, is_refused, text};

/// As they are written into a path: each is at most one segment for a server that does not decode before it splits.
fn in_a_path(canary: &Canary) -> Vec<String> {
    let outside = canary.path().join("secret.txt").display().to_string();
    let climb = "../".repeat(12) + outside.trim_start_matches('/');
    let mut all: Vec<String> = [
        "..",
        ".",
        "../..",
        "..%2f..%2fsecret.txt",
        "%2e%2e",
        "%2e%2e%2f%2e%2e%2fsecret.txt",
        "%2E%2E%2F",
        "%252e%252e%252fsecret.txt",
        "%25252e%25252e",
        "%c0%ae%c0%ae%c0%af",
        "..%c0%afsecret.txt",
        "%e0%80%ae%e0%80%ae",
        "%f0%80%80%ae",
        "..%5c..%5csecret.txt",
        "..\\..\\secret.txt",
        "....//....//secret.txt",
        "..;/secret.txt",
        "%00",
        "a%00.txt",
        "aaaaaaaaaaaaaaaaaaaaa%00",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "//etc/passwd",
        "%ef%bc%8e%ef%bc%8e%ef%bc%8fsecret.txt",
        "%e2%80%a5%e2%88%95secret.txt",
        "%e2%80%ae%e2%80%ae",
        "\u{ff0e}\u{ff0e}\u{ff0f}x",
        "%0d%0aX-Evil:%20yes",
        "%0aX-Evil:%20yes",
        "~root",
        ".incoming",
        "_nobody",
        "admin.key",
        "redoma.db",
        "%u002e%u002e%u002f",
        "%%32%65%%32%65",
        "%",
        "%zz",
        "C:%5cwindows",
        "file:%2f%2f%2fetc%2fpasswd",
        "*",
        "%3f",
        "%23",
        "'%20OR%201=1--",
        "%27%3b%20DROP%20TABLE%20sessions%3b--",
    ]
    .map(ToOwned::to_owned)
    .into();
    all.push(climb.replace('/', "%2f"));
    all.push(climb.replace('/', "%252f"));
    all.push(climb);
    all.push("a".repeat(5000));
    all.push("..%2f".repeat(2000));
    all
}

/// Every route with a parameter in its path.
const ROUTES: [(&str, &str); 26] = [
    ("GET", "/api/v1/sessions/{}"),
    ("PATCH", "/api/v1/sessions/{}"),
    ("DELETE", "/api/v1/sessions/{}"),
    ("GET", "/api/v1/sessions/{}/executions"),
    ("POST", "/api/v1/sessions/{}/executions"),
    ("GET", "/api/v1/sessions/{}/executions/ws"),
    ("GET", "/api/v1/sessions/{}/files"),
    ("POST", "/api/v1/sessions/{}/files"),
    ("GET", "/api/v1/sessions/{}/files/FILE/content"),
    ("GET", "/api/v1/sessions/SESSION/files/{}"),
    ("GET", "/api/v1/sessions/SESSION/files/{}/content"),
    ("DELETE", "/api/v1/sessions/SESSION/files/{}"),
    ("GET", "/api/v1/sessions/{}/artifacts"),
    ("GET", "/api/v1/sessions/{}/archive"),
    ("GET", "/api/v1/executions/{}"),
    ("POST", "/api/v1/executions/{}/cancel"),
    ("DELETE", "/api/v1/keys/{}"),
    ("GET", "/v1/sessions/{}/objects/FILE"),
    ("GET", "/v1/sessions/SESSION/objects/{}"),
    ("DELETE", "/v1/sessions/SESSION/objects/{}"),
    ("GET", "/v1/files/{}"),
    ("DELETE", "/v1/files/SESSION/{}"),
    ("GET", "/v1/download/{}/FILE"),
    ("GET", "/v1/download/SESSION/{}"),
    ("GET", "/v1/download/SESSION/FILE/{}"),
    ("GET", "/docs/{}"),
];

#[test]
fn no_id_in_a_path_leads_out_of_the_storage() {
    let (canary, world) = (Canary::plant(), World::new());
    let server = &world.server;
    let beside = world.home.path().join("secret.txt");
    std::fs::write(&beside, canary.token()).unwrap();
    let session = server.session(ADMIN);
    let file = crate::upload(server, ADMIN, &session, "mine.txt", b"mine");
    let hostile = in_a_path(&canary);
    let run = json!({ "language": "py", "code": "print(1)" });
    for (method, route) in ROUTES {
        let route = route.replace("SESSION", &session).replace("FILE", &file);
        for id in &hostile {
            let path = route.replace("{}", id);
            let mut request = server.request(method, &path).key(ADMIN);
            request = match (method, route.ends_with("/files")) {
                ("POST", true) => request.form(&[], &[("evil.txt", b"evil")]),
                ("POST" | "PATCH", _) => request.json(&run),
                _ => request,
            };
            let answer = request.send();
            // `/docs/.` and its like are no ids, but what is not there.
            assert!(is_refused(&answer), "{method} {path}: {} {}", answer.status, answer.text());
            assert!(!answer.text().contains(canary.token()), "{method} {path}");
            assert!(answer.header("x-evil").is_none(), "{method} {path}");
        }
    }
    for id in &hostile {
        for path in [
            format!("/k/{id}/v1/files/{session}"),
            format!("/k/{ADMIN}/{id}"),
            format!("/k/{ADMIN}/v1/files/{id}"),
            format!("/k/{ADMIN}/k/{id}/v1/files/{session}"),
        ] {
            if path.starts_with(&format!("/k/{ADMIN}/")) {
                let answer = server.get(&path).send();
                assert!(is_refused(&answer), "{path}: {} {}", answer.status, answer.text());
                assert!(!answer.text().contains(canary.token()), "{path}");
            }
        }
        for query in [
            "after",
            "limit",
            "all",
            "detail",
            "kind",
            "entity_id",
            "kind=user&id",
            "kind=agent&id",
            "version",
        ] {
            for path in [
                "/api/v1/sessions",
                &format!("/api/v1/sessions/{session}/files"),
                &format!("/v1/files/{session}"),
            ] {
                let path = format!("{path}?{query}={}", id.replace('#', "%23"));
                let answer = server.get(&path).key(ADMIN).send();
                assert!(answer.status < 500, "{path}: {} {}", answer.status, answer.text());
                assert!(!answer.text().contains(canary.token()), "{path}");
                assert!(answer.header("x-evil").is_none(), "{path}");
            }
        }
    }
    assert_eq!(canary.changes(), None);
    assert_eq!(std::fs::read_to_string(beside).unwrap(), canary.token());
    assert_eq!(crate::download(server, ADMIN, &session, &file).text(), "mine");
    world.assert_sound();
}

/// As they are, in JSON or in a form. The canary's own folder is among them.
fn as_names(canary: &Canary) -> Vec<String> {
    let outside = canary.path().join("victim.txt").display().to_string();
    let mut all: Vec<String> = [
        "../evil.txt",
        "../../evil.txt",
        "a/../../evil.txt",
        "/evil.txt",
        "//evil.txt",
        "./evil.txt",
        "a/./b.txt",
        "..",
        ".",
        "a//b.txt",
        "a/",
        "..\\..\\evil.txt",
        "C:\\evil.txt",
        "%2e%2e%2fevil.txt",
        "%2e%2e/evil.txt",
        "..%2fevil.txt",
        "%252e%252e%252fevil.txt",
        "evil.txt\0.png",
        "\0",
        "evil\r\nX-Evil: yes.txt",
        "evil\nname.txt",
        "\u{7f}.txt",
        "\u{ff0e}\u{ff0e}\u{ff0f}evil.txt",
        "\u{2025}/evil.txt",
        "\u{202e}txt.exe.txt",
        "CON.txt",
        "-rf.txt",
        "$(touch evil).txt",
        "`id`.txt",
        "evil.txt;id",
        "~/evil.txt",
        "~root/evil.txt",
        ".incoming/evil.txt",
        "\"; filename=\"other.txt",
        "",
        " ",
        "evil.txt ",
        ".bashrc",
        "__pycache__/evil.txt",
    ]
    .map(ToOwned::to_owned)
    .into();
    all.push("../".repeat(12) + outside.trim_start_matches('/'));
    all.push(outside);
    all.push("a".repeat(3000) + ".txt");
    all.push("a/".repeat(600) + "b.txt");
    all.push("é".repeat(150) + ".txt");
    all
}

#[test]
fn no_name_of_a_file_leads_out_of_its_session() {
    let (canary, world) = (Canary::plant(), World::new());
    let server = &world.server;
    let before: Vec<_> = list(world.home.path());
    let escaped = |name: &str| -> String {
        name.bytes().fold(String::new(), |text, byte| text + &format!("%{byte:02x}"))
    };
    for name in as_names(&canary) {
        let quoted = name.replace('\\', "\\\\").replace('"', "\\\"");
        for disposition in [
            format!("filename=\"{name}\""),
            format!("filename=\"{quoted}\""),
            format!("filename*=UTF-8''{}", escaped(&name)),
            format!("filename=\"plain.txt\"; filename*=UTF-8''{}", escaped(&name)),
        ] {
            let body = format!(
                "--b\r\nContent-Disposition: form-data; name=\"file\"; {disposition}\r\n\r\nevil\r\n--b--\r\n"
            );
            for route in ["/v1/upload", "/v1/upload/batch"] {
                let request =
                    server.post(route).key(ADMIN).body("multipart/form-data; boundary=b", body.as_str());
                let answer = request.send();
                assert!(answer.status < 500, "{disposition:?}: {} {}", answer.status, answer.text());
                assert!(answer.header("x-evil").is_none(), "{disposition:?}");
                if answer.status != 200 || route != "/v1/upload" {
                    continue;
                }
                // What was taken is taken under a name that stays below the session's folder.
                let stored = text(&answer.json()["files"][0]["filename"]);
                let climbs =
                    stored.starts_with('/') || stored.split('/').any(|part| matches!(part, "" | "." | ".."));
                assert!(!climbs && !stored.contains(['\0', '\r', '\n']), "{disposition:?} became {stored:?}");
                let (session, file) =
                    (text(&answer.json()["session_id"]), text(&answer.json()["files"][0]["fileId"]));
                let content = server.get(&format!("/v1/download/{session}/{file}")).key(ADMIN).send();
                assert_eq!(content.text(), "evil", "{disposition:?}");
                assert!(content.header("x-evil").is_none(), "{disposition:?}");
            }
        }
    }
    assert_eq!(canary.changes(), None);
    assert_eq!(list(world.home.path()), before);
    world.assert_sound();
}

#[test]
fn no_file_that_a_program_is_given_leads_out_of_its_workspace() {
    let (canary, world) = (Canary::plant(), World::new());
    let server = &world.server;
    let before: Vec<_> = list(world.home.path());
    let form = server.post("/v1/upload").key(ADMIN).form(&[], &[("a.txt", b"mine")]).send().json();
    let (session, file) = (text(&form["session_id"]), text(&form["files"][0]["fileId"]));
    let look = "import os\nprint([os.path.join(d, f) for d, _, fs in os.walk('/mnt') for f in fs])\n\
                print(sorted(os.listdir('/mnt')))";
    let mut ids = in_a_path(&canary);
    ids.extend(as_names(&canary));
    // In each place of a reference by itself, all hostile ones in one request.
    for field in ["id", "storage_session_id", "session_id", "name"] {
        let references: Vec<_> = ids
            .iter()
            .map(|hostile| {
                let mut reference = json!({ "id": file, "storage_session_id": session, "name": "a.txt" });
                if field == "session_id" {
                    reference.as_object_mut().unwrap().remove("storage_session_id");
                }
                reference[field] = hostile.as_str().into();
                reference
            })
            .collect();
        let answer = server.exec(ADMIN, &json!({ "lang": "py", "code": look, "files": references }));
        assert_eq!(answer.status, 200, "{field}: {}", answer.text());
        assert!(!answer.text().contains(canary.token()), "{field}");
        let stdout = text(&answer.json()["stdout"]);
        assert!(stdout.contains("['data']"), "{field}: {stdout}");
        if field != "name" {
            assert!(
                !stdout.contains("a.txt"),
                "{field}: a file came from a place that is no session: {stdout}"
            );
        }
    }
    for hostile in &ids {
        let body = json!({ "lang": "py", "code": "print(1)", "session_id": hostile, "user_id": hostile });
        let answer = server.exec(ADMIN, &body);
        assert!(answer.status < 500, "{hostile:?}: {} {}", answer.status, answer.text());
    }
    assert_eq!(canary.changes(), None);
    assert_eq!(list(world.home.path()), before);
    world.assert_sound();
}

/// The names in the data folder.
fn list(folder: &std::path::Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        // The database's own.
        .filter(|name| !name.starts_with("redoma.db"))
        .collect();
    names.sort();
    names
}
