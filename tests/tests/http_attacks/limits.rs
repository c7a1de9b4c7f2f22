//! Quotas, and what programs leave behind.

use std::path::PathBuf;

use redoma_tests::canary::Canary;
use redoma_tests::http::{chunked, exchange};
use redoma_tests::server::{ADMIN, Server};
use serde_json::{Value, json};

use crate::{World, download, is_refused, run, text, upload};

const SMALL: &str = "[uploads]\nmax_size = \"512KiB\"\n[storage]\nsession_quota = \"1MiB\"\nuser_quota = \"2MiB\"\nsession_files = 50\n";

/// Bytes in all files below the storage folder.
fn stored(world: &World) -> u64 {
    fn sum(folder: &std::path::Path) -> u64 {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries
            .map(|entry| match entry.metadata() {
                Ok(meta) if meta.is_dir() => sum(&entry.path()),
                Ok(meta) => meta.len(),
                Err(_) => 0,
            })
            .sum()
    }
    sum(&world.home.storage())
}

/// Without a length: what is too much is known only while it comes.
fn upload_in_pieces(server: &Server, path: &str, files: &[(&str, usize)]) -> u16 {
    let mut body = Vec::new();
    for (name, size) in files {
        let head =
            format!("--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n");
        body.extend_from_slice(head.as_bytes());
        body.resize(body.len() + size, b'x');
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--b--\r\n");
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nX-API-Key: {ADMIN}\r\nContent-Type: multipart/form-data; boundary=b\r\n\
         Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    );
    let bytes = [head.into_bytes(), chunked(&body, 10_000)].concat();
    exchange(server.address, &bytes).map_or(0, |answer| answer.status)
}

#[test]
fn what_is_too_much_is_refused_while_it_comes() {
    let world = World::with(SMALL, |command| command);
    let server = &world.server;
    let session = server.session(ADMIN);
    let path = format!("/api/v1/sessions/{session}/files");
    let kib = 1 << 10;
    assert_eq!(upload_in_pieces(server, &path, &[("a.txt", 600 * kib)]), 413);
    assert_eq!(
        upload_in_pieces(server, &path, &[("a.txt", 400 * kib), ("b.txt", 400 * kib), ("c.txt", 400 * kib)]),
        507
    );
    assert_eq!(upload_in_pieces(server, "/v1/upload", &[("a.txt", 400 * kib), ("b.txt", 5000 * kib)]), 413);
    assert_eq!(stored(&world), 0, "something is left of what was refused");
    let names: Vec<String> = (0..60).map(|number| format!("{number}.txt")).collect();
    let many: Vec<_> = names.iter().map(|name| (name.as_str(), 10)).collect();
    assert_eq!(upload_in_pieces(server, &path, &many), 507, "more files than a session may have");
    let listed = server.get(&path).key(ADMIN).send().json();
    assert_eq!(listed, json!({ "files": [] }), "all or none");
    assert_eq!(stored(&world), 0, "something is left of what was refused");
    // Just within.
    assert_eq!(upload_in_pieces(server, &path, &[("a.txt", 512 * kib), ("b.txt", 512 * kib)]), 201);
    assert_eq!(upload_in_pieces(server, &path, &[("c.txt", 1)]), 507);
    // Programs have the same quota.
    let ran = run(server, ADMIN, &session, "py", "open('d.txt', 'w').write('x' * 1000)");
    assert_eq!((&ran["files"], ran["exit_code"].as_i64()), (&json!([]), Some(0)), "{ran}");
    assert!(ran["refused_files"].to_string().contains("quota"), "{ran}");
    world.assert_sound();
}

#[test]
fn a_quota_holds_for_many_at_once() {
    let world = World::with(SMALL, |command| command);
    let server = &world.server;
    let session = server.session(ADMIN);
    let path = format!("/api/v1/sessions/{session}/files");
    let content = vec![b'x'; 300 << 10];
    // Into one session: three fit.
    let taken = std::thread::scope(|scope| {
        let all: Vec<_> = (0..10)
            .map(|number| {
                let request =
                    server.post(&path).key(ADMIN).form(&[], &[(&format!("{number}.txt"), &content)]);
                scope.spawn(move || request.send())
            })
            .collect();
        let answers: Vec<_> = all.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(answers.iter().all(|answer| matches!(answer.status, 201 | 507)), "{answers:?}");
        answers.iter().filter(|answer| answer.status == 201).count()
    });
    assert_eq!(taken, 3);
    assert_eq!(stored(&world), 3 * content.len() as u64);
    let shown = server.get(&format!("/api/v1/sessions/{session}")).key(ADMIN).send().json();
    assert_eq!(shown["bytes"].as_u64(), Some(stored(&world)));
    // Into a session each: the user has a quota too, and programs' files count.
    std::thread::scope(|scope| {
        for number in 0..12 {
            let content = &content;
            scope.spawn(move || {
                if number % 2 == 0 {
                    server.post("/v1/upload").key(ADMIN).form(&[], &[("a.txt", content)]).send();
                } else {
                    let code = "open('a.txt', 'w').write('x' * 300 * 1024)";
                    server.exec(ADMIN, &json!({ "lang": "py", "code": code }));
                }
            });
        }
    });
    assert!(stored(&world) <= 2 << 20, "{} bytes are stored", stored(&world));
    assert!(stored(&world) > 3 << 19, "{} bytes are stored", stored(&world));
    // Others have a quota of their own.
    let ben = server.key("user", "ben");
    upload(server, &ben, &server.session(&ben), "a.txt", &content);
    world.assert_sound();
}

/// Either all files of an upload are there, or none: also where somebody else was quicker with the last of the quota.
#[test]
fn an_upload_that_is_refused_at_the_end_leaves_nothing() {
    let world = World::with(SMALL, |command| command);
    let server = &world.server;
    for _ in 0..5 {
        let session = server.session(ADMIN);
        let path = format!("/api/v1/sessions/{session}/files");
        let content = vec![b'x'; 200 << 10];
        let answers: Vec<_> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..4)
                .map(|number| {
                    let names = [format!("{number}-a.txt"), format!("{number}-b.txt")];
                    let files: Vec<_> =
                        names.iter().map(|name| (name.as_str(), content.as_slice())).collect();
                    let request = server.post(&path).key(ADMIN).form(&[], &files);
                    scope.spawn(move || request.send())
                })
                .collect();
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let told: usize = answers.iter().filter(|answer| answer.status == 201).count() * 2;
        let listed = server.get(&path).key(ADMIN).send().json();
        let there = listed["files"].as_array().unwrap().len();
        assert_eq!(there, told, "files of uploads that were refused are there: {listed}");
        server.request("DELETE", &format!("/api/v1/sessions/{session}")).key(ADMIN).send();
    }
}

#[test]
fn ten_thousand_files_of_one_program_are_kept_or_refused() {
    let world = World::new();
    let server = &world.server;
    let session = server.session(ADMIN);
    let code = "made = 0\nfor number in range(10_500):\n    try:\n        open(f'{number}.txt', 'w').write('x')\n        made += 1\n    except OSError: break\nprint(made)";
    let ran = run(server, ADMIN, &session, "py", code);
    let made: u64 = ran["stdout"]["text"].as_str().unwrap().trim().parse().unwrap();
    let count = |list: &str, more: &str| {
        ran[list].as_array().unwrap().len() as u64 + ran[more].as_u64().unwrap_or_default()
    };
    let (kept, refused) = (count("files", "more_files"), count("refused_files", "more_refused_files"));
    assert!(made > 9_000, "{made}");
    assert!(kept + refused >= made, "{made} were made, {kept} kept, {refused} refused");
    let listed = server.get(&format!("/api/v1/sessions/{session}/files")).key(ADMIN).send().json();
    assert_eq!(listed["files"].as_array().unwrap().len() as u64, kept);
    let shown = server.get(&format!("/api/v1/sessions/{session}")).key(ADMIN).send().json();
    assert!(shown["files"].as_u64().unwrap() <= 20_000, "{shown}");
    let executions =
        server.get(&format!("/api/v1/sessions/{session}/executions?limit=100")).key(ADMIN).send();
    assert_eq!(executions.status, 200);
    assert_eq!(
        server.request("DELETE", &format!("/api/v1/sessions/{session}")).key(ADMIN).send().status,
        204
    );
    world.assert_sound();
}

#[test]
fn what_a_program_leaves_is_handed_out_only_if_it_is_a_plain_file() {
    let (canary, world) = (Canary::plant(), World::new());
    let server = &world.server;
    let session = server.session(ADMIN);
    let code = format!(
        r"
import os, socket
canary = {:?}
def attempt(action):
    try: action()
    except OSError as error: print(type(error).__name__, error)
open('good.txt', 'w').write('good')
open('line\nbreak.txt', 'w').write('x')
open(b'not-\xff-text.txt', 'wb').write(b'x')
open('\u202etxt.exe', 'w').write('x')
open('<img src=x onerror=alert(1)>.txt', 'w').write('x')
open('x' * 250, 'w').write('x')
for target in (canary, '/etc/passwd', '/proc/self/environ', '/dev/zero', '/mnt/data', '..', 'good.txt', 'loop'):
    attempt(lambda: os.symlink(target, 'link-' + target.replace('/', '-')))
attempt(lambda: os.symlink('loop', 'loop'))
attempt(lambda: os.symlink('/', 'root'))
attempt(lambda: os.link('good.txt', 'second-name.txt'))
attempt(lambda: os.link('/etc/passwd', 'hard-passwd'))
os.mkfifo('fifo.txt')
attempt(lambda: os.mknod('device.txt', 0o20666, os.makedev(1, 5)))
attempt(lambda: os.mknod('disk.txt', 0o60666, os.makedev(8, 0)))
attempt(lambda: socket.socket(socket.AF_UNIX).bind('socket.txt'))
os.makedirs('deep/' * 200)
open('deep/' * 200 + 'x.txt', 'w').write('x')
def sparse():
    with open('sparse.bin', 'w') as file: file.truncate(10 << 40)
attempt(sparse)
def less_sparse():
    with open('sparse-2.bin', 'w') as file: file.truncate(2 << 30)
attempt(less_sparse)
open('closed.txt', 'w').write('x'); os.chmod('closed.txt', 0)
os.mkdir('closed'); open('closed/x.txt', 'w').write('x'); os.chmod('closed', 0)
open('suid.txt', 'w').write('x'); attempt(lambda: os.chmod('suid.txt', 0o6777))
",
        canary.path().join("secret.txt").display().to_string()
    );
    let ran = run(server, ADMIN, &session, "py", &code);
    assert_eq!(ran["exit_code"], 0, "{ran}");
    let names: Vec<String> =
        ran["files"].as_array().unwrap().iter().map(|file| text(&file["name"])).collect();
    assert!(
        names.contains(&"good.txt".to_owned())
            || names.contains(&"second-name.txt".to_owned())
            || ran["refused_files"].to_string().contains("good.txt"),
        "{ran}"
    );
    for file in ran["files"].as_array().unwrap() {
        let name = text(&file["name"]);
        let is_special = ["link-", "fifo", "device", "disk", "socket", "loop", "root", "hard-passwd"]
            .iter()
            .any(|kind| name.starts_with(kind));
        assert!(!is_special, "{name} was handed out");
        assert!(!name.contains(['\n', '\0']) && name.split('/').count() <= 32, "{name:?} was handed out");
        let content = download(server, ADMIN, &session, &text(&file["id"]));
        assert_eq!(content.status, 200, "{name}");
        // What could not be made large is there, and empty.
        let is_right = matches!(content.text().as_str(), "x" | "good")
            || name.starts_with("sparse") && content.body.is_empty();
        assert!(is_right, "{name}: {} bytes", content.body.len());
    }
    let everything = ran.to_string()
        + &server.get(&format!("/api/v1/sessions/{session}/archive")).key(ADMIN).send().text();
    assert!(!everything.contains(canary.token()) && !everything.contains("root:x:0"));
    assert_eq!(canary.changes(), None);
    // The next program finds the good ones, and the session goes on.
    assert_eq!(run(server, ADMIN, &session, "py", "print(1)")["exit_code"], 0);
    world.assert_sound();
}

/// A file that is large only by its word costs a program nothing, but whoever stores it all of its bytes.
#[test]
fn files_that_are_mostly_holes_count_as_large_as_they_are() {
    let world = World::with(SMALL, |command| command);
    let server = &world.server;
    let session = server.session(ADMIN);
    let code =
        "for number in range(40):\n    with open(f'{number}.bin', 'w') as file: file.truncate(200 << 20)";
    let before = written(server);
    let ran = run(server, ADMIN, &session, "py", code);
    assert_eq!((ran["exit_code"].as_i64(), &ran["files"]), (Some(0), &json!([])), "{ran}");
    // Each smaller than the session's quota: the user's is used up all the same, and nothing is written to find that out.
    let code =
        "for number in range(10):\n    with open(f'{number}.bin', 'w') as file: file.truncate(100 << 10)";
    for _ in 0..10 {
        server.exec(ADMIN, &json!({ "lang": "py", "code": code }));
    }
    assert!(stored(&world) <= 2 << 20);
    let written = written(server) - before;
    assert!(written < 8 << 20, "{written} bytes were written for a quota of 2 MiB");
    world.assert_sound();
}

/// Bytes that the server has written to files and connections.
fn written(server: &Server) -> u64 {
    let counts = std::fs::read_to_string(format!("/proc/{}/io", server.pid())).unwrap();
    let count = counts.lines().find_map(|line| line.strip_prefix("wchar: "));
    count.and_then(|count| count.parse().ok()).expect("the kernel counts")
}

#[test]
fn no_program_changes_what_was_uploaded() {
    let world = World::new();
    let server = &world.server;
    let session = server.session(ADMIN);
    let names = [
        "write", "append", "truncate", "delete", "rename", "chmod", "mmap", "link", "replace", "sparse",
        "same",
    ];
    let original = |name: &str| format!("{name}: as it was uploaded\n").repeat(3000).into_bytes();
    let ids: Vec<String> = names
        .iter()
        .map(|name| upload(server, ADMIN, &session, &format!("{name}.txt"), &original(name)))
        .collect();
    let before = blobs(&world);
    let code = r"
import mmap, os
def attempt(action):
    try: action()
    except OSError as error: print(type(error).__name__, error)
attempt(lambda: open('write.txt', 'r+').write('EVIL'))
attempt(lambda: open('append.txt', 'a').write('EVIL'))
attempt(lambda: os.truncate('truncate.txt', 3))
attempt(lambda: os.remove('delete.txt'))
attempt(lambda: os.rename('rename.txt', 'renamed.txt'))
attempt(lambda: os.chmod('chmod.txt', 0o777))
attempt(lambda: open('chmod.txt', 'w').write('EVIL'))
def through_memory():
    with open('mmap.txt', 'r+b') as file:
        with mmap.mmap(file.fileno(), 0) as memory:
            memory[:4] = b'EVIL'
            memory.flush()
attempt(through_memory)
attempt(lambda: os.link('link.txt', 'linked.txt'))
attempt(lambda: open('linked.txt', 'r+').write('EVIL'))
def replaced():
    open('new', 'w').write('EVIL')
    os.replace('new', 'replace.txt')
attempt(replaced)
def punched():
    fd = os.open('sparse.txt', os.O_RDWR)
    os.ftruncate(fd, 0); os.ftruncate(fd, 100)
attempt(punched)
data = open('same.txt').read(); open('same.txt', 'w').write(data); os.utime('same.txt')
";
    let ran = run(server, ADMIN, &session, "py", code);
    assert_eq!(ran["exit_code"], 0, "{ran}");
    assert_eq!(
        blobs(&world).iter().filter(|blob| before.contains(blob)).count(),
        before.len(),
        "a stored file was changed"
    );
    for (name, id) in names.iter().zip(&ids) {
        for content in [
            download(server, ADMIN, &session, id),
            server.get(&format!("/v1/download/{session}/{id}")).key(ADMIN).send(),
        ] {
            assert_eq!(content.status, 200, "{name}");
            assert!(content.body == original(name), "{name}: the upload is not what it was");
        }
    }
    let made: Vec<(String, String)> = ran["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| (text(&file["name"]), text(&file["id"])))
        .collect();
    for name in
        ["write.txt", "append.txt", "truncate.txt", "chmod.txt", "mmap.txt", "replace.txt", "renamed.txt"]
    {
        let (_, id) = made
            .iter()
            .find(|(known, _)| known == name)
            .unwrap_or_else(|| panic!("{name} is no result: {ran}"));
        assert!(!ids.contains(id), "{name} has the upload's id");
        let content = download(server, ADMIN, &session, id).text();
        assert!(name == "renamed.txt" || name == "truncate.txt" || content.contains("EVIL"), "{name}");
    }
    assert!(made.iter().all(|(name, _)| name != "same.txt"), "what was only touched is a result: {ran}");
    world.assert_sound();
}

/// Path, length and bytes of every stored file.
fn blobs(world: &World) -> Vec<(PathBuf, Vec<u8>)> {
    fn walk(folder: &std::path::Path, all: &mut Vec<(PathBuf, Vec<u8>)>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                walk(&entry.path(), all);
            } else {
                all.push((entry.path(), std::fs::read(entry.path()).unwrap()));
            }
        }
    }
    let mut all = Vec::new();
    walk(&world.home.storage(), &mut all);
    all
}

#[test]
fn a_read_only_file_stays_what_it_is_for_the_next_program() {
    let world = World::new();
    let server = &world.server;
    let form = server
        .post("/v1/upload")
        .key(ADMIN)
        .form(&[("read_only", "true")], &[("a.txt", b"original")])
        .send()
        .json();
    let (session, file) = (text(&form["session_id"]), text(&form["files"][0]["fileId"]));
    let reference = json!([{ "id": file, "storage_session_id": session, "name": "a.txt" }]);
    for code in [
        "open('a.txt', 'w').write('EVIL')",
        "import os\nos.remove('a.txt')",
        "import os\nos.rename('a.txt', 'b.txt')",
    ] {
        // Neither is what a program did to it a result, nor is it gone.
        for place in [json!({ "files": reference }), json!({ "session_id": session })] {
            let mut body = json!({ "lang": "py", "code": code });
            body.as_object_mut().unwrap().extend(place.as_object().unwrap().clone());
            let answer = server.exec(ADMIN, &body).json();
            let results = format!("{}{}", answer["files"], answer["deleted_files"]);
            assert!(!results.contains("a.txt"), "{code}: {answer}");
        }
        let seen = server.exec(
            ADMIN,
            &json!({ "lang": "py", "code": "print(open('a.txt').read())", "session_id": session }),
        );
        assert_eq!(seen.json()["stdout"], "original\n", "{code}");
        let content = server.get(&format!("/v1/download/{session}/{file}")).key(ADMIN).send();
        assert_eq!(content.text(), "original", "{code}");
    }
}

#[test]
fn uploads_of_one_name_at_once_are_all_there() {
    let world = World::new();
    let server = &world.server;
    let session = server.session(ADMIN);
    let path = format!("/api/v1/sessions/{session}/files");
    let content = |number: usize| format!("content {number}").repeat(5000).into_bytes();
    let answers: Vec<(usize, Value)> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..12)
            .map(|number| {
                let request = server.post(&path).key(ADMIN).form(&[], &[("same.txt", &content(number))]);
                scope.spawn(move || (number, request.send().json()))
            })
            .collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut versions = Vec::new();
    for (number, answer) in &answers {
        let file = &answer["files"][0];
        versions.push(file["version"].as_u64().unwrap());
        assert!(download(server, ADMIN, &session, &text(&file["id"])).body == content(*number), "{number}");
    }
    versions.sort_unstable();
    assert_eq!(versions, (1..=12).collect::<Vec<_>>());
    let listed = server.get(&path).key(ADMIN).send().json();
    assert_eq!(listed["files"].as_array().unwrap().len(), 1);
    // Programs at once on one session: no result is lost, whoever was last.
    let codes: Vec<Value> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..6)
            .map(|number| {
                let session = &session;
                scope.spawn(move || {
                    run(
                        server,
                        ADMIN,
                        session,
                        "py",
                        &format!("open('same.txt', 'w').write('program {number}')"),
                    )
                })
            })
            .collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (number, ran) in codes.iter().enumerate() {
        let id = text(&ran["files"][0]["id"]);
        assert_eq!(download(server, ADMIN, &session, &id).text(), format!("program {number}"));
    }
    assert!(is_refused(&server.get(&format!("{path}/{session}")).key(ADMIN).send()));
    world.assert_sound();
}

const FEW: &str = "[storage]\nsession_quota = \"7MiB\"\nuser_quota = \"8MiB\"\nuser_sessions = 20\n\
                   [profiles.default.rates.user]\nsessions = \"40/h\"\n";

/// What is stored beside files has an owner and an end too: records of runs, sessions, lists in answers.
#[test]
fn records_sessions_and_lists_of_one_user_have_an_end() {
    let world = World::with(FEW, |command| command);
    let server = &world.server;
    server.wait_until_ready();
    let (ana, ben) = (server.key("user", "ana"), server.key("user", "ben"));
    let once = |code: &str| {
        let body = json!({ "language": "py", "code": code });
        server.post("/api/v1/executions").key(&ana).json(&body).send()
    };
    let record =
        |answer: &Value| server.get(&format!("/api/v1/executions/{}", text(&answer["id"]))).key(&ana).send();

    // More artifacts than an answer lists.
    let many = "for n in range(2500): open(f'{n}', 'w').write('x')";
    let answer = once(many).json();
    assert_eq!(answer["files"].as_array().unwrap().len(), 1000);
    assert_eq!(answer["more_files"], 1500);
    let archive = text(&answer["archive"]);
    assert_eq!(archive, format!("/api/v1/executions/{}/archive", text(&answer["id"])));
    let zip = server.get(&archive).key(&ana).send();
    let entries = zip.body.windows(4).filter(|bytes| bytes == b"PK\x01\x02").count();
    assert_eq!((zip.status, entries), (200, 2500));
    assert_eq!(server.get(&archive).key(&ben).send().status, 404);
    let kept = record(&answer);
    assert!(kept.body.len() < 300 << 10, "{} bytes", kept.body.len());
    let (listed, more) = (kept.json()["files"].as_array().unwrap().len(), &kept.json()["more_files"]);
    assert_eq!(listed as u64 + more.as_u64().unwrap(), 2500);
    let chat = server.exec(&ana, &json!({ "lang": "py", "code": many })).json();
    assert_eq!(chat["files"].as_array().unwrap().len(), 1000);
    assert!(text(&chat["stderr"]).contains("1500 more are not"), "{}", chat["stderr"]);

    // Names that make a record long.
    let links = "import os\nfor n in range(4000): os.symlink('x', f'{n:04}' + 'n' * 230)";
    let answer = once(links).json();
    let refused = answer["refused_files"].as_array().unwrap().len() as u64;
    assert!(refused <= 1000 && refused + answer["more_refused_files"].as_u64().unwrap() >= 4000, "{refused}");
    let kept = record(&answer);
    assert!(kept.body.len() < 64 << 10, "{} bytes", kept.body.len());
    assert_eq!(kept.json()["is_shortened"], true);

    // Runs go on however many there are; sessions that are opened don't.
    for number in 0..30 {
        assert_eq!(once(&format!("print({number})")).json()["stdout"]["text"], format!("{number}\n"));
    }
    let open = |key: &str| server.post("/api/v1/sessions").key(key).json(&json!({})).send();
    let answers: Vec<_> = (0..45).map(|_| open(&ana)).collect();
    let count = |status: u16| answers.iter().filter(|answer| answer.status == status).count();
    assert_eq!(count(429), 5, "the rate");
    assert_eq!(count(201) + count(409), 40);
    assert_eq!(count(201), 18, "two of the twenty have the files of runs");
    let refused = answers.iter().find(|answer| answer.status == 409).unwrap();
    assert_eq!(refused.json()["code"], "too_many_sessions");
    assert!(refused.text().contains("storage.user_sessions"), "{}", refused.text());
    let late = answers.last().unwrap();
    assert!(
        late.header("retry-after").is_some() && late.text().contains("40/h new sessions"),
        "{}",
        late.text()
    );
    assert_eq!(once("print(1)").status, 409);
    // Nobody else notices, and what is removed makes room.
    assert_eq!(open(&ben).status, 201);
    let path = format!("/api/v1/sessions/{}", text(&answers[0].json()["id"]));
    assert_eq!(server.request("DELETE", &path).key(&ana).send().status, 204);
    assert_eq!(once("print(1)").status, 200);
}

/// A branch has a copy of each file: whether there is room is known before the first byte is copied.
#[test]
fn a_branch_without_room_copies_nothing() {
    let world = World::with(FEW, |command| command);
    let server = &world.server;
    let ana = server.key("user", "ana");
    let session = server.session(&ana);
    let large = vec![b'x'; 3 << 20];
    let files: [(&str, &[u8]); 2] = [("a.txt", &large), ("b.txt", &large)];
    let uploaded =
        server.post(&format!("/api/v1/sessions/{session}/files")).key(&ana).form(&[], &files).send();
    assert_eq!(uploaded.status, 201, "{}", uploaded.text());
    let changed = |folder: &PathBuf| folder.metadata().unwrap().modified().unwrap();
    let incoming = || world.home.incoming_folders().iter().map(changed).max();
    let before = incoming();
    let branch = server.post(&format!("/api/v1/sessions/{session}/branch")).key(&ana).json(&json!({})).send();
    assert_eq!((branch.status, &branch.json()["code"]), (507, &json!("quota")), "{}", branch.text());
    assert_eq!(incoming(), before, "files were copied for a branch that there is no room for");
}
