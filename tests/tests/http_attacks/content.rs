//! Files that would like to run in a browser, and files that are not what their names say.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use redoma_tests::http::Answer;
use redoma_tests::server::{ADMIN, Server};
use serde_json::json;

use crate::{World, download, run, text, upload};

const SCRIPT: &str = "fetch('/ran-here'); new Image().src = '/ran-here'; document.title = 'ran-here';";

/// Everything that browsers run, by name.
fn active() -> Vec<(&'static str, String)> {
    let html = format!(
        "<!DOCTYPE html><html><body><script>{SCRIPT}</script><img src=x onerror=\"{SCRIPT}\"></body></html>"
    );
    vec![
        ("page.html", html.clone()),
        ("page.htm", html.clone()),
        ("page.txt", html.clone()),
        ("page.csv", html.clone()),
        ("page", html.clone()),
        (
            "picture.svg",
            format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" onload=\"{SCRIPT}\"><script>{SCRIPT}</script></svg>"
            ),
        ),
        (
            "data.xml",
            format!(
                "<?xml version=\"1.0\"?><x><h:script xmlns:h=\"http://www.w3.org/1999/xhtml\">{SCRIPT}</h:script></x>"
            ),
        ),
        ("code.js", SCRIPT.to_owned()),
        ("code.mjs", SCRIPT.to_owned()),
        (
            "report.pdf",
            format!(
                "%PDF-1.4\n1 0 obj<</OpenAction<</S/JavaScript/JS({SCRIPT})>>>>endobj\ntrailer<</Root 1 0 R>>"
            ),
        ),
    ]
}

fn assert_is_a_mere_download(what: &str, answer: &Answer) {
    assert_eq!(answer.status, 200, "{what}: {}", answer.text());
    let header = |name: &str| answer.header(name).unwrap_or_else(|| panic!("{what}: no {name}")).to_owned();
    assert!(header("content-disposition").starts_with("attachment; "), "{what}");
    assert_eq!(header("x-content-type-options"), "nosniff", "{what}");
    let policy = header("content-security-policy");
    assert!(policy.contains("sandbox") && policy.contains("default-src 'none'"), "{what}: {policy}");
    assert!(!policy.contains("allow-") && !policy.contains("unsafe"), "{what}: {policy}");
    assert_eq!(header("cross-origin-resource-policy"), "same-origin", "{what}");
    assert_eq!(header("referrer-policy"), "no-referrer", "{what}");
    assert!(answer.headers.iter().all(|(name, _)| !name.starts_with("access-control-")), "{what}");
    for once in ["content-disposition", "content-type", "x-content-type-options", "content-security-policy"] {
        assert_eq!(answer.headers.iter().filter(|(name, _)| name == once).count(), 1, "{what}: {once}");
    }
}

/// Uploads it with a type of the attacker's choice; where it can be downloaded.
fn stored(server: &Server, name: &str, content: &[u8], kind: &str) -> [String; 2] {
    let mut body = format!(
        "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\nContent-Type: {kind}\r\n\r\n"
    )
    .into_bytes();
    body.extend_from_slice(content);
    body.extend_from_slice(b"\r\n--b--\r\n");
    let answer = server.post("/v1/upload").key(ADMIN).body("multipart/form-data; boundary=b", body).send();
    assert_eq!(answer.status, 200, "{name}: {}", answer.text());
    let (session, file) = (text(&answer.json()["session_id"]), text(&answer.json()["files"][0]["fileId"]));
    [format!("/v1/download/{session}/{file}"), format!("/api/v1/sessions/{session}/files/{file}/content")]
}

#[test]
fn active_content_is_handed_out_as_a_mere_download() {
    let world = World::new();
    let server = &world.server;
    for (name, content) in active() {
        for path in stored(server, name, content.as_bytes(), "text/html") {
            let answer = server.get(&path).key(ADMIN).header("Origin", "http://evil.example").send();
            assert_is_a_mere_download(name, &answer);
            assert_eq!(answer.text(), content);
            // The type is the name's, never the uploader's.
            let is_html = answer.header("content-type").unwrap().contains("html");
            assert_eq!(is_html, ["page.html", "page.htm"].contains(&name), "{name}: {answer:?}");
            let etag = answer.header("etag").unwrap();
            let again = server.get(&path).key(ADMIN).header("If-None-Match", etag).send();
            assert_eq!(again.status, 304, "{name}");
            assert_eq!(again.header("x-content-type-options"), Some("nosniff"));
        }
    }
    // The same from a program.
    let session = server.session(ADMIN);
    for (name, content) in active() {
        let made =
            run(server, ADMIN, &session, "py", &format!("open('made-{name}', 'w').write({content:?})"));
        let file = text(&made["files"][0]["id"]);
        assert_is_a_mere_download(name, &download(server, ADMIN, &session, &file));
        let path = format!("/v1/download/{session}/{file}");
        assert_is_a_mere_download(name, &server.get(&path).key(ADMIN).send());
    }
    let archive = server.get(&format!("/api/v1/sessions/{session}/archive")).key(ADMIN).send();
    assert_is_a_mere_download("archive", &archive);
    // What else is served: answers and failures are no pages either.
    for path in [
        "/api/v1/sessions",
        "/v1/files/%3Cscript%3E",
        "/%3Cscript%3E",
        "/healthz",
        "/api/v1/sessions?limit=%3Cscript%3E",
    ] {
        let answer = server.get(path).key(ADMIN).send();
        assert!(!answer.header("content-type").unwrap_or_default().contains("html"), "{path}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
    }
    world.assert_sound();
}

#[test]
fn a_name_stays_in_its_header() {
    let world = World::new();
    let server = &world.server;
    for name in [
        "a\\\".html",
        "a;b.txt",
        "a\u{202e}gpj.txt",
        "a%0d%0aX-Evil: yes.txt",
        "a%22; filename=evil.html.txt",
        "ünï.txt",
        "a'b''c.txt",
        "a, b.txt",
        " a.txt",
        "🦀.txt",
        "a\u{a0}b.txt",
        "a\u{2028}b.txt",
        "x\u{feff}.txt",
    ] {
        for path in stored(server, name, b"content", "text/html; x=y") {
            let answer = server.get(&path).key(ADMIN).send();
            assert_is_a_mere_download(name, &answer);
            assert!(answer.header("x-evil").is_none(), "{name}");
            let disposition = answer.header("content-disposition").unwrap();
            assert_eq!(disposition.matches('"').count(), 2, "{name}: {disposition}");
            let quoted = disposition.split('"').nth(1).unwrap();
            assert!(disposition.is_ascii() && !quoted.contains([';', '\\', '%']), "{name}: {disposition}");
        }
    }
}

#[test]
fn an_archive_has_no_name_that_leads_out_of_where_it_is_unpacked() {
    let world = World::new();
    let server = &world.server;
    let session = server.session(ADMIN);
    upload(server, ADMIN, &session, "plain.txt", b"plain");
    for name in ["..\\\\..\\\\evil.txt", "C:\\\\evil.txt", "a\\\\..\\\\b.txt"] {
        // Taken or not.
        let form = server.post(&format!("/api/v1/sessions/{session}/files")).key(ADMIN);
        form.form(&[], &[(name, b"evil")]).send();
    }
    let code = "for name in ['..\\\\..\\\\made.txt', 'C:\\\\made.txt', '\\\\\\\\host\\\\made.txt']: open(name, 'w').write('evil')";
    run(server, ADMIN, &session, "py", code);
    let archive = server.get(&format!("/api/v1/sessions/{session}/archive")).key(ADMIN).send();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.zip");
    std::fs::write(&path, &archive.body).unwrap();
    let look = "import sys, zipfile\nfor name in zipfile.ZipFile(sys.argv[1]).namelist(): print(name)";
    let listed = Command::new("python3").args(["-c", look]).arg(&path).output().unwrap();
    let names = String::from_utf8(listed.stdout).unwrap();
    assert!(names.contains("plain.txt"), "{names}");
    for name in names.lines() {
        let climbs = name.split(['/', '\\']).any(|part| part == "..")
            || name.starts_with(['/', '\\'])
            || name.contains(':');
        assert!(
            !climbs,
            "on a system where \\ separates folders, {name:?} leads out of where it is unpacked"
        );
    }
}

/// How long a browser may take to start and load a page, on a machine that is busy with other tests.
const BROWSER_TIMEOUT: Duration = Duration::from_mins(2);

/// Runs a browser on this page until something has happened.
fn browse(browser: &Path, url: &str, mut is_done: impl FnMut() -> bool) {
    let profile = tempfile::tempdir().unwrap();
    let mut child = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--mute-audio",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-pings",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        // With this it stays until it is killed, whatever becomes of the page.
        .args(["--remote-debugging-port=0", url])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + BROWSER_TIMEOUT;
    while !is_done() && Instant::now() < deadline && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Whether something is so, and has been for a time.
fn has_been(mut is_so: impl FnMut() -> bool, time: Duration) -> impl FnMut() -> bool {
    let mut since = None;
    move || is_so() && since.get_or_insert_with(Instant::now).elapsed() >= time
}

/// A server as one should not be: hands out what it has as what it is called. Gives the paths that were asked for.
fn careless(
    pages: Vec<(&'static str, &'static str, String)>,
) -> (u16, std::sync::Arc<std::sync::Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let keep = std::sync::Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (pages, keep) = (pages.clone(), std::sync::Arc::clone(&keep));
            std::thread::spawn(move || {
                let mut stream = stream;
                let mut head = [0; 4096];
                let count = stream.read(&mut head).unwrap_or(0);
                let head = String::from_utf8_lossy(&head[..count]).into_owned();
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                let page = pages.iter().find(|(known, ..)| *known == path);
                let (kind, body) = page.map_or(("text/plain", ""), |(_, kind, body)| (*kind, body.as_str()));
                keep.lock().unwrap().push(path);
                let _ = write!(
                    stream,
                    "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
            });
        }
    });
    (port, asked)
}

#[test]
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn nothing_that_was_stored_runs_in_a_browser() {
    let browser =
        std::env::var_os("REDOMA_TEST_BROWSER").map_or_else(|| "/usr/bin/chromium".into(), PathBuf::from);
    let browser = browser.as_path();
    if !browser.exists() {
        eprintln!("skipped: chromium is not installed");
        return;
    }
    let active = active();
    let of = |name: &str| active.iter().find(|(known, _)| *known == name).unwrap().1.clone();
    // First that the same files do run where nobody takes care.
    let (port, asked) = careless(vec![
        ("/page", "text/html", of("page.html")),
        ("/picture", "image/svg+xml", of("picture.svg")),
    ]);
    let was_asked = |path: &str| asked.lock().unwrap().iter().any(|known| known == path);
    // How long they need for it here and now.
    let mut needed = Duration::ZERO;
    for page in ["/page", "/picture"] {
        asked.lock().unwrap().clear();
        let mut loaded = None;
        browse(browser, &format!("http://127.0.0.1:{port}{page}"), || {
            if was_asked(page) {
                loaded.get_or_insert_with(Instant::now);
            }
            was_asked("/ran-here")
        });
        assert!(was_asked("/ran-here"), "{page} does nothing anyway");
        needed = needed.max(loaded.map(|loaded| loaded.elapsed()).unwrap_or_default());
    }
    let long_enough = needed * 5 + Duration::from_secs(1);
    let world = World::new();
    let server = &world.server;
    let base = format!("http://{}/k/{ADMIN}", server.address);
    let mut frames = String::new();
    let (mut direct, mut embedded) = (Vec::new(), Vec::new());
    for name in ["page.html", "picture.svg", "data.xml"] {
        let [librechat, native] = stored(server, name, of(name).as_bytes(), "text/html");
        for path in [&librechat, &native] {
            for (tag, source) in [("iframe", "src"), ("embed", "src"), ("object", "data")] {
                let _ = write!(frames, "<{tag} {source}=\"{base}{path}\"></{tag}>");
            }
        }
        direct.push(librechat);
        embedded.push(native);
    }
    // A page of somebody else's that has all of them in frames, and the script as a script of its own.
    let [script, _] = stored(server, "code.js", of("code.js").as_bytes(), "text/javascript");
    let page = format!("<!DOCTYPE html><body>{frames}<script src=\"{base}{script}\"></script></body>");
    embedded.push(script.clone());
    let (port, asked) = careless(vec![("/", "text/html", page)]);
    // Each until the browser has got what it asked for, and has had the time to run it.
    let was_served = |path: &str| {
        let log = server.log();
        log.lines().any(|line| line.contains(path) && line.contains("\"GET\"") && line.contains("200"))
    };
    for path in &direct {
        browse(browser, &format!("{base}{path}"), has_been(|| was_served(path), long_enough));
        assert!(was_served(path), "the browser has not been there: {}", server.log());
    }
    let all_served = || embedded.iter().all(|path| was_served(path));
    browse(browser, &format!("http://127.0.0.1:{port}/"), has_been(all_served, long_enough));
    assert!(all_served(), "the browser has not loaded all frames: {}", server.log());
    let log = server.log();
    assert!(!log.contains("/ran-here"), "a stored file ran in our origin");
    assert!(
        !asked.lock().unwrap().iter().any(|path| path == "/ran-here"),
        "another origin could load a stored script"
    );
}

#[test]
fn a_file_that_is_not_what_its_name_says_is_refused() {
    const ELF: &[u8] = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0";
    const EXE: &[u8] = b"MZ\x90\0\x03\0\0\0\x04\0\0\0\xff\xff\0\0\xb8\0\0\0";
    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0";
    const ZIP: &[u8] = b"PK\x03\x04\x14\0\0\0\x08\0aaaaaaaaaaaaaaaa";
    let world = World::new();
    let server = &world.server;
    let session = server.session(ADMIN);
    let route = format!("/api/v1/sessions/{session}/files");
    for (name, content) in [
        ("elf.png", ELF),
        ("elf.csv", ELF),
        ("elf.txt", ELF),
        ("elf.bin", ELF),
        ("elf", ELF),
        ("elf.py", ELF),
        ("elf.dat", ELF),
        ("exe.csv", EXE),
        ("exe.png", EXE),
        ("exe.pdf", EXE),
        ("exe.zip", EXE),
        ("exe.dat", EXE),
        ("exe.exe", EXE),
        ("text.png", b"hello"),
        ("html.png", b"<!DOCTYPE html><script>1</script>"),
        ("png.csv", PNG),
        ("png.pdf", PNG),
        ("png.jpg", PNG),
        ("zip.csv", ZIP),
        ("zip.pdf", ZIP),
        ("script.png", b"#!/bin/sh\nid"),
        ("a.exe", PNG),
        ("a.dll", b"\x01\0\x02"),
        ("a.so", ELF),
        ("a.png.exe", PNG),
        ("a.PNG.EXE", PNG),
        ("elf.gz", ELF),
        ("elf.unknown", ELF),
        ("zeros.csv", b"a,b\0\0"),
        ("wasm.txt", b"\0asm\x01\0\0\0"),
        ("class.txt", b"\xca\xfe\xba\xbe\0\0\0\x34"),
    ] {
        // In one piece, and a byte at a time at the beginning: what decides is what came, not how.
        let answer = server.post(&route).key(ADMIN).form(&[], &[(name, content)]).send();
        assert_eq!(answer.status, 415, "{name}: {}", answer.text());
        let long = [content, &vec![b'a'; 100_000]].concat();
        let answer = server.post(&route).key(ADMIN).form(&[], &[(name, &long)]).send();
        assert_eq!(answer.status, 415, "{name}, long: {}", answer.text());
    }
    let files = server.get(&route).key(ADMIN).send().json();
    assert_eq!(files, json!({ "files": [] }));
    // Fine: nothing, what is, and what is two things at once. A polyglot is handed out as what it is called, as a download.
    for (name, content) in [
        ("empty.png", &b""[..]),
        ("empty.pdf", b""),
        ("empty", b""),
        ("a.png", PNG),
        ("A.PNG", PNG),
        ("a.zip", ZIP),
        ("a.docx", ZIP),
        ("script.gif", b"GIF89a/*\0\0*/=1;fetch('/ran-here')//"),
        ("html.txt", b"<script>1</script>"),
        ("zip.pdf.txt", b"%PDF-1.4 text"),
    ] {
        let file = upload(server, ADMIN, &session, name, content);
        let answer = download(server, ADMIN, &session, &file);
        assert_is_a_mere_download(name, &answer);
        assert_eq!(answer.body, content, "{name}");
    }
    // In a batch, a bad one does not spoil the others, nor do they carry it in.
    let batch = [("good.csv", &b"a,b"[..]), ("elf.png", ELF), ("also.csv", b"c,d")];
    let answer = server.post("/v1/upload/batch").key(ADMIN).form(&[], &batch).send().json();
    assert_eq!((answer["succeeded"].as_u64(), answer["failed"].as_u64()), (Some(2), Some(1)), "{answer}");
    world.assert_sound();
}
