//! What is written down: everything, before it happens, and also if the server is killed meanwhile.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redoma_tests::server::{ADMIN, Home};
use redoma_tests::text_of;
use serde_json::{Value, json};

use crate::{new_key, new_session, run, start};

fn records(home: &Home, arguments: &[&str]) -> Vec<Value> {
    let all: Vec<_> = ["audit", "export", "--format", "jsonl"].iter().chain(arguments).copied().collect();
    let (code, out, errors) = text_of(&mut home.command(&all));
    assert_eq!(code, 0, "{errors}");
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn verify(home: &Home) {
    let (code, out, errors) = text_of(&mut home.command(&["audit", "verify"]));
    assert_eq!(code, 0, "{out}{errors}");
}

#[test]
fn everything_that_somebody_does_is_in_the_audit() {
    let settings = "[audit]\ncode = \"text\"\noutput = \"text\"\n[profiles.default.policy]\nmode = \"on\"\n";
    let (home, server) = start(settings);
    let (id, ana) = new_key(&server, &json!({ "role": "user", "client": "desk", "user": "ana" }));
    assert_eq!(server.get("/api/v1/sessions").key("wrong").send().status, 401);
    let session = new_session(&server, &ana, &json!({})).json();
    let session = session["id"].as_str().unwrap();
    let files = format!("/api/v1/sessions/{session}/files");
    let uploaded = server.post(&files).key(&ana).form(&[], &[("in.txt", b"hello")]).send().json();
    let file = uploaded["files"][0]["id"].as_str().unwrap();
    let code = "token = 'ghp_0123456789abcdefghijklmnopqrstuvwxyz'\nopen('out.txt', 'w').write('x' * 10)\nprint('done')";
    let path = format!("/api/v1/sessions/{session}/executions");
    let ran = server.post(&path).key(&ana).json(&json!({ "language": "py", "code": code })).send().json();
    let denied =
        server.post(&path).key(&ana).json(&json!({ "language": "bash", "code": "rm -rf /" })).send().json();
    assert_eq!(server.get(&format!("{files}/{file}/content")).key(&ana).send().text(), "hello");
    assert_eq!(server.request("DELETE", &format!("{files}/{file}")).key(&ana).send().status, 204);
    assert_eq!(server.request("DELETE", &format!("/api/v1/sessions/{session}")).key(&ana).send().status, 204);
    assert_eq!(server.request("DELETE", &format!("/api/v1/keys/{id}")).key(ADMIN).send().status, 204);
    assert_eq!(server.post("/api/v1/admin/reload").key(ADMIN).send().status, 200);

    let all = records(&home, &[]);
    let one = |kind: &str| {
        let mut found = all.iter().filter(|record| record["kind"] == kind);
        let first = found.next().unwrap_or_else(|| panic!("no {kind} in {all:#?}"));
        assert!(found.next().is_none(), "more than one {kind}");
        first
    };
    for kind in ["session_opened", "file_uploaded", "file_read", "file_deleted", "session_removed"] {
        let record = one(kind);
        assert_eq!(
            (&record["who"]["user"], &record["session"]),
            (&json!("ana"), &json!(session)),
            "{record}"
        );
        assert_eq!(
            (&record["who"]["key"], &record["who"]["address"]),
            (&json!(id), &json!("127.0.0.1")),
            "{record}"
        );
    }
    assert_eq!((&one("file_read")["name"], &one("file_uploaded")["size"]), (&json!("in.txt"), &json!(5)));
    for kind in ["key_created", "key_revoked"] {
        assert_eq!((&one(kind)["subject"], &one(kind)["who"]["role"]), (&json!(id), &json!("admin")));
    }
    assert_eq!(one("admin")["what"], "reload");
    assert_eq!(one("login_failed")["who"]["address"], "127.0.0.1");

    let (begun, ended) = (one("execution_started"), one("execution_ended"));
    assert_eq!((&begun["execution"], &ended["execution"]), (&ran["id"], &ran["id"]));
    assert!(begun["seq"].as_u64() < ended["seq"].as_u64());
    assert_eq!((&begun["profile"], &begun["language"]), (&json!("default"), &json!("py")));
    let text = begun["code"]["text"].as_str().unwrap();
    assert!(text.contains("print('done')") && !text.contains("abcdefghijklmnop"), "{text}");
    assert_eq!(begun["code"]["bytes"], code.len());
    assert_eq!((&ended["ending"], &ended["stdout"]), (&json!("exited"), &json!("done\n")));
    assert_eq!(
        (&ended["artifacts"][0]["name"], &ended["artifacts"][0]["size"]),
        (&json!("out.txt"), &json!(10))
    );
    assert_eq!(ended["isolation"]["engine"], "native");
    assert!(ended["usage"]["wall_ms"]["limit"].as_u64().unwrap() > 0, "{ended}");
    let refused = one("execution_denied");
    assert_eq!(
        (&refused["execution"], &refused["verdict"]["rules"][0]),
        (&denied["id"], &json!("remove-system"))
    );

    // The same by whom, over the API; and it verifies.
    let listed = server.get("/api/v1/audit?user=ana&kind=execution_denied").key(ADMIN).send();
    assert_eq!(listed.json()["records"].as_array().map(Vec::len), Some(1), "{}", listed.text());
    assert_eq!(server.get("/api/v1/audit").key(&ana).send().status, 401, "the key was revoked");
    verify(&home);
}

/// Kills the server while eight clients run programs, five times. Every program that has answered is in the audit with its
/// start, each start comes before its end, and the chain is whole.
#[test]
fn no_run_is_missing_after_a_kill_under_load() {
    let home = crate::home("");
    let mut answered = BTreeSet::new();
    for round in 0..5 {
        let mut server = home.serve();
        server.wait_until_ready();
        let (stop, ids) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(BTreeSet::new())));
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let (stop, ids) = (Arc::clone(&stop), Arc::clone(&ids));
                let request = server
                    .post("/api/v1/executions")
                    .key(ADMIN)
                    .json(&json!({ "language": "bash", "code": "echo here" }));
                std::thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let Ok(answer) = request.try_send() else { continue };
                        if answer.status == 200 {
                            let id = answer.json()["id"].as_str().unwrap().to_owned();
                            ids.lock().unwrap().insert(id);
                        }
                    }
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300 + round * 130));
        server.kill();
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().unwrap();
        }
        verify(&home);
        answered.append(&mut ids.lock().unwrap());
    }
    assert!(answered.len() > 20, "only {} programs ran", answered.len());
    let mut starts = BTreeSet::new();
    for record in records(&home, &[]) {
        let Some(id) = record["execution"].as_str() else { continue };
        if record["kind"] == "execution_started" {
            assert!(starts.insert(id.to_owned()), "{id} began twice");
        } else {
            assert!(starts.contains(id), "{id} ended before it began");
        }
    }
    let missing: Vec<_> = answered.iter().filter(|id| !starts.contains(*id)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// A small file system on the audit's folder, as long as this lives.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    /// Nothing, for those who may not mount.
    fn mount(path: std::path::PathBuf) -> Option<Self> {
        std::fs::create_dir_all(&path).unwrap();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=256k,mode=700", "audit"])
            .arg(&path)
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(path))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").args(["-l"]).arg(&self.0).status();
    }
}

#[test]
fn nothing_runs_that_can_not_be_written_down() {
    let home = crate::home("");
    let Some(disk) = SmallDisk::mount(home.path().join("audit")) else {
        eprintln!("skipped: it takes root to mount a small disk");
        return;
    };
    let mut server = home.serve();
    server.wait_until_ready();
    assert_eq!(run(&server, ADMIN, "py", "print(1)")["stdout"]["text"], "1\n");
    let filler = disk.0.join("filler");
    let _ = std::fs::write(&filler, vec![0u8; 1 << 20]);
    let request =
        server.post("/api/v1/executions").key(ADMIN).json(&json!({ "language": "py", "code": "print(2)" }));
    // What is left of the last page is used up first.
    let answers: Vec<_> = (0..50).map(|_| request.send()).collect();
    let refused = answers.iter().filter(|answer| answer.status == 503).count();
    assert!(refused > 10, "{refused}");
    let last = answers.last().unwrap();
    assert_eq!((last.status, &last.json()["code"]), (503, &json!("audit_unavailable")), "{}", last.text());

    // With room, it goes on by itself, and all that is there is whole.
    std::fs::remove_file(&filler).unwrap();
    assert_eq!(request.send().json()["stdout"]["text"], "2\n");
    assert_eq!(server.stop(), Some(0), "{}", server.log());
    verify(&home);
    let ran = answers.iter().filter(|answer| answer.status == 200).count();
    let begun = records(&home, &[]).iter().filter(|record| record["kind"] == "execution_started").count();
    assert!(begun >= ran + 2, "{begun} of {ran}");
}

#[test]
fn who_looks_at_the_audit_and_who_takes_cells_back_is_in_it() {
    let (home, server) = start("");
    let session = server.session(ADMIN);
    let path = format!("/api/v1/sessions/{session}/executions");
    for code in ["x = 1", "x = 2"] {
        let answer = server.post(&path).key(ADMIN).json(&json!({ "language": "py", "code": code })).send();
        assert_eq!(answer.json()["exit_code"], 0, "{}", answer.text());
    }
    let undo =
        server.post(&format!("/api/v1/sessions/{session}/undo")).key(ADMIN).json(&json!({ "cells": 1 }));
    assert_eq!(undo.send().status, 200);
    for (method, path) in [
        ("GET", "/api/v1/audit?limit=1&user=ana"),
        ("GET", "/api/v1/audit?limit=1&user=ana&after=1"),
        ("GET", "/api/v1/audit/export?kind=admin"),
        ("POST", "/api/v1/audit/verify"),
    ] {
        assert_eq!(server.request(method, path).key(ADMIN).send().status, 200, "{path}");
    }
    let all = records(&home, &[]);
    let undone: Vec<_> = all.iter().filter(|record| record["kind"] == "session_undone").collect();
    assert_eq!(undone.len(), 1, "{all:#?}");
    assert_eq!((&undone[0]["session"], &undone[0]["note"]), (&json!(session), &json!("cells: 1")));
    let looked: Vec<_> =
        all.iter().filter(|record| record["kind"] == "admin").map(|record| &record["what"]).collect();
    assert_eq!(looked, ["read_audit", "export_audit", "verify_audit"]);
    assert!(
        all.iter().any(|record| record["what"] == "read_audit" && record["note"] == "user=ana"),
        "{all:#?}"
    );
    verify(&home);
}

#[test]
fn a_filter_with_a_slip_in_it_does_not_show_everything() {
    let (_home, server) = start("");
    for question in [
        "audit?usr=ana",
        "audit?user=ana&limits=3",
        "audit?limit=-1",
        "audit?order=backwards",
        "audit/export?format=xml",
        "audit/export?after=3",
        "audit/stream?befor=1",
        "sessions?limit=many",
        "sessions?user=ana",
    ] {
        let answer = server.get(&format!("/api/v1/{question}")).key(ADMIN).send();
        assert_eq!(answer.status, 400, "{question}: {}", answer.text());
        assert_eq!(answer.json()["code"], "bad_request", "{question}: {}", answer.text());
    }
    // Whatever is documented is known.
    let document = server.get("/openapi.json").send().json();
    let mut asked = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        if path.ends_with("/stream") {
            continue;
        }
        let Some(parameters) = operations["get"]["parameters"].as_array() else { continue };
        let names = parameters.iter().filter(|parameter| parameter["in"] == "query");
        for name in names.map(|parameter| parameter["name"].as_str().unwrap()) {
            let path = path.replace("{session}", "none").replace("{key}", "none");
            let answer = server.get(&format!("{path}?{name}=1")).key(ADMIN).send();
            assert!(!answer.text().contains("to ask for here"), "{path}?{name}: {}", answer.text());
            asked += 1;
        }
    }
    assert!(asked > 10, "{asked}");
}
