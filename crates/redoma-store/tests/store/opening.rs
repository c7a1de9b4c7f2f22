use std::process::{Command, Stdio};

use redoma_store::{SessionQuery, new_execution_id, new_session_id};

use super::*;

fn version_of(folder: &Path) -> i64 {
    let connection = rusqlite::Connection::open(folder.join("redoma.db")).unwrap();
    connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

#[test]
fn a_store_that_is_opened_again_has_everything() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let session = session_of(&store, "ana");
    let file = put(&store, &session, "a", b"1");
    drop(store);
    let version = version_of(folder.path());
    assert!(version >= 1);
    for _ in 0..3 {
        let store = open(folder.path());
        assert_eq!(store.session(&session.id).unwrap().unwrap().files, 1);
        assert_eq!(content(&store, &file), b"1");
        drop(store);
        assert_eq!(version_of(folder.path()), version);
    }
}

#[test]
fn executions_of_an_older_database_are_kept_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let session = new_session_id().unwrap();
    let ids = [(); 3].map(|()| new_execution_id().unwrap());
    let connection = rusqlite::Connection::open(folder.path().join("redoma.db")).unwrap();
    connection.execute_batch(include_str!("../../migrations/001-sessions-files-keys.sql")).unwrap();
    connection.execute_batch(include_str!("../../migrations/002-key-profiles.sql")).unwrap();
    for (at, id) in (1..).zip(&ids) {
        let row = (id.as_str(), session.as_str(), at, "py", format!("{{\"at\":{at}}}"));
        connection.execute("INSERT INTO executions VALUES (?, ?, ?, ?, ?)", row).unwrap();
    }
    connection.pragma_update(None, "user_version", 2).unwrap();
    drop(connection);
    let store = open(folder.path());
    let found = store.executions(&session, 10).unwrap();
    assert_eq!(found.iter().map(|one| &one.id).collect::<Vec<_>>(), ids.iter().rev().collect::<Vec<_>>());
    assert_eq!(store.execution(&ids[1]).unwrap().unwrap().result, "{\"at\":2}");
    drop(store);
    assert!(version_of(folder.path()) > 2);
}

/// Only sessions with one run, without files, a name and a resource make room.
#[test]
fn single_runs_of_an_older_database_make_room() {
    let folder = tempfile::tempdir().unwrap();
    let connection = rusqlite::Connection::open(folder.path().join("redoma.db")).unwrap();
    for sql in [
        include_str!("../../migrations/001-sessions-files-keys.sql"),
        include_str!("../../migrations/002-key-profiles.sql"),
        include_str!("../../migrations/003-executions-in-a-row.sql"),
    ] {
        connection.execute_batch(sql).unwrap();
    }
    connection.pragma_update(None, "user_version", 3).unwrap();
    let session = |name: Option<&str>, resource: Option<&str>, files: u32, runs: u32| {
        let id = new_session_id().unwrap();
        let sql = "INSERT INTO sessions (id, client, user, name, profile, resource_kind, resource_id, created_at, used_at, \
                   files) VALUES (?, 'chat', 'ana', ?, 'default', ?, ?, 1, 1, ?)";
        connection.execute(sql, (id.as_str(), name, resource, resource, files)).unwrap();
        for at in 0..runs {
            let sql = "INSERT INTO executions (id, session, started_at, language, result) VALUES (?, ?, ?, 'py', '{}')";
            connection.execute(sql, (new_execution_id().unwrap().as_str(), id.as_str(), at)).unwrap();
        }
        id
    };
    let singles = [(); 3].map(|()| session(None, None, 0, 1));
    let others = [
        session(Some("mine"), None, 0, 1),
        session(None, Some("agent"), 0, 1),
        session(None, None, 1, 1),
        session(None, None, 0, 0),
        session(None, None, 0, 2),
    ];
    drop(connection);
    let store = Store::open(folder.path(), Quota { owner_sessions: 1, ..PLENTY }).unwrap();
    while singles.iter().any(|id| store.session(id).unwrap().is_some()) {
        let before = store.sessions(&SessionQuery { owner: None, after: None, limit: 10 }).unwrap().len();
        assert!(!store.make_room_for_session(&owner("ana"), std::collections::HashSet::new).unwrap());
        let after = store.sessions(&SessionQuery { owner: None, after: None, limit: 10 }).unwrap().len();
        assert!(after < before, "a session of a single run does not make room");
    }
    assert!(!store.make_room_for_session(&owner("ana"), std::collections::HashSet::new).unwrap());
    assert!(others.iter().all(|id| store.session(id).unwrap().is_some()));
}

#[test]
fn a_newer_database_is_refused_and_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    let connection = rusqlite::Connection::open(folder.path().join("redoma.db")).unwrap();
    connection.pragma_update(None, "user_version", 999).unwrap();
    drop(connection);
    let error = Store::open(folder.path(), PLENTY).unwrap_err();
    let said = error.to_string();
    assert!(matches!(error, StoreError::Newer { found: 999, .. }), "{said}");
    assert!(said.contains("redoma.db") && said.contains("newer redoma") && said.contains("999"), "{said}");
    assert_eq!(version_of(folder.path()), 999);
}

const TO_OPEN: &str = "REDOMA_TEST_STORE_TO_OPEN";

/// Not a test by itself: the other process of the next one.
#[test]
fn another_process() {
    if let Some(folder) = std::env::var_os(TO_OPEN) {
        let store = open(Path::new(&folder));
        session_of(&store, "other");
    }
}

#[test]
fn processes_that_open_a_new_store_at_once_all_can() {
    for _ in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let program = std::env::current_exe().unwrap();
        let others: Vec<_> = (0..6)
            .map(|_| {
                Command::new(&program)
                    .args(["--exact", "opening::another_process"])
                    .env(TO_OPEN, folder.path())
                    .stdout(Stdio::null())
                    .stderr(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        for other in others {
            let output = other.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        let store = open(folder.path());
        assert_eq!(store.sessions(&SessionQuery { owner: None, after: None, limit: 10 }).unwrap().len(), 6);
        assert_eq!(wrong(&store), Vec::<String>::new());
    }
}

/// Who comes while another is at work in a new database, which nobody has switched to a log yet.
#[test]
fn a_new_store_in_which_somebody_writes_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let other = rusqlite::Connection::open(folder.path().join("redoma.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE; CREATE TABLE other (number INTEGER)").unwrap();
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| drop(open(folder.path())));
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(!opening.is_finished(), "it did not wait");
        other.execute_batch("COMMIT").unwrap();
        opening.join().unwrap();
    });
}

#[test]
fn threads_that_open_a_new_store_at_once_all_can() {
    for _ in 0..40 {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| session_of(&open(folder.path()), "ana"));
            }
        });
    }
}

/// Sessions with files and runs, enough for the tables to have several pages.
fn filled(folder: &Path) {
    let store = open(folder);
    for _ in 0..40 {
        let session = session_of(&store, "ana");
        put_all(&store, &session, &[("a", b"1"), ("b", b"2"), ("c", b"3"), ("d", b"4")]).unwrap();
    }
}

#[test]
fn bytes_that_flipped_in_the_database_are_found() {
    let folder = tempfile::tempdir().unwrap();
    filled(folder.path());
    let path = folder.path().join("redoma.db");
    let sound = std::fs::read(&path).unwrap();
    assert_eq!(wrong(&open(folder.path())), Vec::<String>::new());
    let page = usize::from(u16::from_be_bytes([sound[16], sound[17]]));
    // The header of each page behind the first says what is in it: no page can do without.
    for at in (page..sound.len()).step_by(page * 3) {
        let mut broken = sound.clone();
        broken[at..at + 8].iter_mut().for_each(|byte| *byte ^= 0x55);
        std::fs::write(&path, &broken).unwrap();
        let found = match Store::open(folder.path(), PLENTY) {
            Ok(store) => wrong(&store),
            Err(error) => vec![error.to_string()],
        };
        assert!(!found.is_empty(), "page {} of {}", at / page, sound.len() / page);
        for rest in ["redoma.db-wal", "redoma.db-shm"] {
            let _ = std::fs::remove_file(folder.path().join(rest));
        }
    }
    std::fs::write(&path, &sound).unwrap();
    assert_eq!(wrong(&open(folder.path())), Vec::<String>::new());
}

#[test]
fn what_is_no_database_is_refused_with_its_path() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("redoma.db"),
        "this is not a database at all, it is a text ".repeat(100),
    )
    .unwrap();
    let said = Store::open(folder.path(), PLENTY).unwrap_err().to_string();
    assert!(said.contains("redoma.db") && said.contains("not a database"), "{said}");
}

#[test]
fn bytes_that_are_not_what_was_stored_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let session = session_of(&store, "ana");
    let files: Vec<_> = ["flipped", "cut", "gone", "fine"]
        .iter()
        .map(|name| store.file_with_path(&put(&store, &session, name, b"content").id).unwrap().unwrap())
        .collect();
    std::fs::write(&files[0].1, "contenT").unwrap();
    std::fs::write(&files[1].1, "con").unwrap();
    std::fs::remove_file(&files[2].1).unwrap();
    let found = wrong(&store);
    assert_eq!(found.len(), 3, "{found:?}");
    for (file, _) in &files[..3] {
        assert!(found.iter().any(|line| line.contains(file.id.as_str())), "{found:?}");
    }
}

#[test]
fn files_that_nobody_knows_are_found_wherever_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let session = session_of(&store, "ana");
    put(&store, &session, "a", b"1");
    let storage = folder.path().join("storage");
    let strays = [
        storage.join("ana").join(session.id.as_str()).join("stray.bin"),
        // Of a session and of a user that there are not.
        storage.join("ana").join(new_session_id().unwrap().as_str()).join("stray.bin"),
        storage.join("ben").join(new_session_id().unwrap().as_str()).join("stray.bin"),
        storage.join("ana/stray"),
        storage.join("stray"),
    ];
    for stray in &strays {
        std::fs::create_dir_all(stray.parent().unwrap()).unwrap();
        std::fs::write(stray, "stray").unwrap();
    }
    let found = wrong(&store);
    assert_eq!(found.len(), strays.len(), "{found:?}");
    for stray in &strays {
        assert!(found.iter().any(|line| line.starts_with(stray.to_str().unwrap())), "{found:?}");
    }
}

#[test]
fn sums_that_are_wrong_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let session = session_of(&store, "ana");
    put(&store, &session, "a", b"1");
    drop(store);
    for sql in [
        "UPDATE sessions SET bytes = bytes + 1",
        "UPDATE sessions SET bytes = bytes - 1, files = files + 1",
        "UPDATE sessions SET files = files - 1; UPDATE usage SET bytes = bytes + 1",
        "UPDATE usage SET bytes = bytes - 1, files = files + 1",
        "DELETE FROM usage",
    ] {
        rusqlite::Connection::open(folder.path().join("redoma.db")).unwrap().execute_batch(sql).unwrap();
        assert!(!wrong(&open(folder.path())).is_empty(), "{sql}");
    }
}

/// `redoma sessions check` beside a server that works: what comes and goes meanwhile is not wrong.
#[test]
fn a_check_beside_a_busy_store_finds_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                    let session = session_of(&store, "ana");
                    let file = put(&store, &session, "a", b"1");
                    put(&store, &session, "b", b"1");
                    store.remove_file(&file.id).unwrap().unwrap();
                    store.remove_session(&session.id).unwrap().unwrap();
                }
            });
        }
        let other = open(folder.path());
        let found: Vec<_> = (0..40).flat_map(|_| wrong(&other)).collect();
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(found, Vec::<String>::new());
    });
}
