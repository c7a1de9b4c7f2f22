use std::collections::HashSet;

use redoma_store::{OwnerUsage, SessionChange, new_execution_id};

use super::*;

fn limited(folder: &Path, quota: Quota) -> Store {
    Store::open(folder, quota).unwrap()
}

#[test]
fn a_session_takes_exactly_what_its_quota_says() {
    let folder = tempfile::tempdir().unwrap();
    let store = limited(folder.path(), Quota { session_bytes: 100, ..PLENTY });
    let session = session_of(&store, "ana");
    put(&store, &session, "a", &[1; 99]);
    let refused = put_all(&store, &session, &[("b", &[2; 2])]).unwrap();
    assert!(refused.files.is_empty());
    assert_eq!(refused.refused[0].reason, "the session's quota is used up");
    // Exactly at the limit, and nothing for free beyond it but what is empty.
    put(&store, &session, "b", &[2; 1]);
    put(&store, &session, "empty", b"");
    assert!(put_all(&store, &session, &[("c", b"3")]).unwrap().files.is_empty());
    let now = store.session(&session.id).unwrap().unwrap();
    assert_eq!((now.bytes, now.files), (100, 3));
    // What was refused has left nothing.
    assert_eq!((blobs(folder.path()).len(), marks(folder.path())), (3, 0));
    assert_eq!(wrong(&store), Vec::<String>::new());
}

#[test]
fn one_that_has_no_room_does_not_keep_others_of_its_commit_out() {
    let folder = tempfile::tempdir().unwrap();
    let store = limited(folder.path(), Quota { session_bytes: 10, ..PLENTY });
    let session = session_of(&store, "ana");
    let added = put_all(&store, &session, &[("a", &[1; 6]), ("large", &[2; 6]), ("b", &[3; 4])]).unwrap();
    let names: Vec<_> = added.files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(added.refused[0].name.as_str(), "large");
    assert_eq!((blobs(folder.path()).len(), marks(folder.path())), (2, 0));
}

#[test]
fn files_are_counted_too() {
    let folder = tempfile::tempdir().unwrap();
    let store = limited(folder.path(), Quota { session_files: 2, ..PLENTY });
    let session = session_of(&store, "ana");
    // Versions count.
    put(&store, &session, "a", b"");
    let second = put(&store, &session, "a", b"");
    let refused = put_all(&store, &session, &[("b", b"")]).unwrap().refused;
    assert_eq!(refused[0].reason, "the session has too many files");
    store.remove_file(&second.id).unwrap().unwrap();
    put(&store, &session, "b", b"");
}

/// Empty files take no bytes, but each takes an inode of the host.
#[test]
fn an_owners_files_are_counted_over_all_their_sessions() {
    let folder = tempfile::tempdir().unwrap();
    let store = limited(folder.path(), Quota { owner_files: 3, ..PLENTY });
    let (one, two) = (session_of(&store, "ana"), session_of(&store, "ana"));
    put_all(&store, &one, &[("a", b""), ("b", b"")]).unwrap();
    let added = put_all(&store, &two, &[("c", b""), ("d", b"")]).unwrap();
    assert_eq!((added.files.len(), added.refused.len()), (1, 1));
    assert!(added.refused[0].reason.starts_with("the user has too many files"), "{:?}", added.refused);
    put(&store, &session_of(&store, "ben"), "a", b"");
    store.remove_session(&one.id).unwrap().unwrap();
    put_all(&store, &two, &[("d", b""), ("e", b"")]).unwrap();
    assert_eq!(wrong(&store), Vec::<String>::new());
}

#[test]
fn an_owners_quota_is_over_all_their_sessions_and_nobody_elses() {
    let folder = tempfile::tempdir().unwrap();
    let store = limited(folder.path(), Quota { owner_bytes: 10, ..PLENTY });
    let (one, two) = (session_of(&store, "ana"), session_of(&store, "ana"));
    let file = put(&store, &one, "a", &[1; 6]);
    put(&store, &two, "b", &[2; 4]);
    let refused = put_all(&store, &two, &[("c", b"3")]).unwrap().refused;
    assert_eq!(refused[0].reason, "the user's quota is used up");
    // Another user of the client, nobody in particular, and the same user of another client.
    put(&store, &session_of(&store, "ben"), "a", &[1; 10]);
    for other in [Owner { user: None, ..owner("") }, Owner { client: "other".to_owned(), ..owner("ana") }] {
        let session = store.open_session(new_session(other, Retention::Forever)).unwrap();
        put(&store, &session, "a", &[1; 10]);
    }
    // A removed file and a removed session make room.
    store.remove_file(&file.id).unwrap().unwrap();
    assert_eq!(store.owner_usage(&owner("ana")).unwrap().total(), 4);
    put(&store, &one, "a", &[1; 6]);
    store.remove_session(&one.id).unwrap().unwrap();
    assert_eq!(store.owner_usage(&owner("ana")).unwrap().total(), 4);
    put(&store, &two, "c", &[3; 6]);
    store.remove_session(&two.id).unwrap().unwrap();
    assert_eq!(store.owner_usage(&owner("ana")).unwrap().total(), 0);
    assert_eq!(wrong(&store), Vec::<String>::new());
}

#[test]
fn commits_at_the_same_time_do_not_get_past_a_quota() {
    let folder = tempfile::tempdir().unwrap();
    let quota = Quota { session_bytes: 100, owner_bytes: 150, session_files: 1000, ..PLENTY };
    let store = limited(folder.path(), quota);
    let sessions = [session_of(&store, "ana"), session_of(&store, "ana"), session_of(&store, "ana")];
    let kept: usize = std::thread::scope(|scope| {
        let store = &store;
        let writers: Vec<_> = (0..9)
            .map(|number| {
                let session = &sessions[number % 3];
                let put = move |_| put_all(store, session, &[("same", &[7; 7])]).unwrap().files.len();
                scope.spawn(move || (0..10).map(put).sum::<usize>())
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    // 21 of 7 bytes fit into 150; no more than 14 of them into one session.
    assert_eq!(kept, 21);
    for session in &sessions {
        assert!(store.session(&session.id).unwrap().unwrap().bytes <= 100);
    }
    assert_eq!(store.owner_usage(&owner("ana")).unwrap().total(), 147);
    assert_eq!(blobs(folder.path()).len(), 21);
    assert_eq!(wrong(&store), Vec::<String>::new());
}

fn run(number: u64, bytes: usize) -> NewExecution {
    let id = format!("{number:021}").parse().unwrap();
    let result = Box::new(move |_: &Added| "x".repeat(bytes));
    let started_at = i64::try_from(number).unwrap();
    NewExecution { id, started_at, language: "py".to_owned(), result }
}

fn run_in(store: &Store, session: &Session, number: u64, bytes: usize) {
    store.commit(session, Outcome { execution: Some(run(number, bytes)), ..Outcome::default() }).unwrap();
}

/// A session that a single run begins, as `POST /api/v1/executions` does.
fn single_run(store: &Store, user: &str, number: u64, bytes: usize) -> Session {
    assert!(store.make_room_for_session(&owner(user), HashSet::new).unwrap());
    let session = store.draft_session(new_session(owner(user), Retention::Forever)).unwrap();
    let execution = Some(run(number, bytes));
    let outcome = Outcome { begins: true, is_single_run: true, execution, ..Outcome::default() };
    store.commit(&session, outcome).unwrap();
    session
}

#[test]
fn records_of_executions_count_and_the_oldest_go_first() {
    for has_journal in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let store = limited(folder.path(), Quota { owner_bytes: 100_000, ..PLENTY });
        if has_journal {
            store.recover().unwrap();
        }
        let (old, new, bens) =
            (session_of(&store, "ana"), session_of(&store, "ana"), session_of(&store, "ben"));
        put(&store, &old, "a", &vec![1; 50_000]);
        run_in(&store, &bens, 900, 60_000);
        for number in 0..3 {
            run_in(&store, &old, number, 10_000);
        }
        store.flush().unwrap();
        let used = store.owner_usage(&owner("ana")).unwrap().total();
        assert!((80_000..82_000).contains(&used), "{used}");
        for number in 10..30 {
            run_in(&store, &new, number, 10_000);
            store.flush().unwrap();
            assert!(store.owner_usage(&owner("ana")).unwrap().total() <= 100_000);
        }
        assert_eq!(store.executions(&old.id, 100).unwrap().len(), 0);
        let left: Vec<_> = store.executions(&new.id, 100).unwrap().iter().map(|run| run.started_at).collect();
        assert_eq!(left, [29, 28, 27, 26]);
        // Nobody else's go, and neither do files.
        assert_eq!(store.executions(&bens.id, 100).unwrap().len(), 1);
        assert_eq!(store.current_files(&old.id).unwrap().len(), 1);
        store.remove_session(&new.id).unwrap().unwrap();
        assert_eq!(store.owner_usage(&owner("ana")).unwrap().total(), 50_000);
        assert_eq!(wrong(&store), Vec::<String>::new());
    }
}

#[test]
fn records_make_room_for_files_and_never_refuse_one() {
    const QUOTA: u64 = 1_000_000;
    let folder = tempfile::tempdir().unwrap();
    let store = limited(folder.path(), Quota { owner_bytes: QUOTA, ..PLENTY });
    store.recover().unwrap();
    let bens = session_of(&store, "ben");
    run_in(&store, &bens, 1, 900_000);
    // More records than one transaction removes.
    for _ in 0..30 {
        let session = session_of(&store, "ana");
        (10..110).for_each(|number| {
            let id = new_execution_id().unwrap();
            let execution = Some(NewExecution { id, ..run(number, 100) });
            store.commit(&session, Outcome { execution, ..Outcome::default() }).unwrap();
        });
    }
    store.flush().unwrap();
    let before = store.owner_usage(&owner("ana")).unwrap();
    assert!(before.record_bytes > QUOTA * 9 / 10 && before.file_bytes == 0, "{before:?}");
    assert_eq!(store.room_for_files(&owner("ana")).unwrap(), QUOTA);
    let session = session_of(&store, "ana");
    let size = usize::try_from(QUOTA).unwrap();
    put(&store, &session, "large", &vec![1; size - 1000]);
    let after = store.owner_usage(&owner("ana")).unwrap();
    assert!(after.total() <= QUOTA && after.record_bytes > 0, "{after:?}");
    // Files alone use the quota up.
    put(&store, &session, "rest", &[1; 1000]);
    assert_eq!(
        store.owner_usage(&owner("ana")).unwrap(),
        OwnerUsage { file_bytes: QUOTA, record_bytes: 0, files: 2 }
    );
    let refused = put_all(&store, &session, &[("more", b"1")]).unwrap().refused;
    assert_eq!(refused[0].reason, "the user's quota is used up");
    assert_eq!(store.room_for_files(&owner("ana")).unwrap(), 0);
    assert_eq!(store.executions(&bens.id, 10).unwrap().len(), 1);
    assert_eq!(wrong(&store), Vec::<String>::new());
}

#[test]
fn a_record_does_not_go_with_the_commit_that_brings_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = limited(folder.path(), Quota { owner_bytes: 100_000, ..PLENTY });
    let (first, second) = (session_of(&store, "ana"), session_of(&store, "ana"));
    put(&store, &first, "a", &vec![1; 100_000]);
    let listed = |session: &Session| -> Vec<_> {
        store.executions(&session.id, 100).unwrap().iter().map(|run| run.started_at).collect()
    };
    // Without any room for records, the last one stays until another comes, even if that began earlier.
    for number in [5, 4, 6] {
        run_in(&store, &first, number, 1000);
        assert_eq!(listed(&first), [i64::try_from(number).unwrap()]);
    }
    run_in(&store, &second, 7, 1000);
    assert_eq!((listed(&first), listed(&second)), (vec![], vec![7]));
    // The session that was used last is not the one whose run ends last.
    store.touch_session(&first.id).unwrap();
    run_in(&store, &second, 8, 1000);
    assert_eq!(listed(&second), [8]);
    assert_eq!(store.current_files(&first.id).unwrap().len(), 1);
    assert_eq!(wrong(&store), Vec::<String>::new());
}

#[test]
fn a_wrong_sum_does_not_keep_records_from_making_room() {
    let folder = tempfile::tempdir().unwrap();
    let quota = Quota { owner_bytes: 100_000, ..PLENTY };
    let store = limited(folder.path(), quota);
    let sessions = [(); 3].map(|()| session_of(&store, "ana"));
    for (number, session) in (1..).zip(&sessions) {
        run_in(&store, session, number, 10_000);
    }
    drop(store);
    let connection = rusqlite::Connection::open(folder.path().join("redoma.db")).unwrap();
    connection.execute("DELETE FROM executions WHERE session = ?", [sessions[0].id.as_str()]).unwrap();
    for (at, session) in (1..).zip(&sessions) {
        connection
            .execute("UPDATE sessions SET used_at = ? WHERE id = ?", (at, session.id.as_str()))
            .unwrap();
    }
    drop(connection);
    let store = limited(folder.path(), quota);
    assert_eq!(wrong(&store).len(), 1);
    run_in(&store, &sessions[2], 10, 85_000);
    // The sum of the first one was corrected, and the record of the second one went.
    let count = |session: &Session| store.executions(&session.id, 100).unwrap().len();
    assert_eq!(sessions.each_ref().map(count), [0, 0, 2]);
    assert!(store.owner_usage(&owner("ana")).unwrap().total() <= 100_000);
    assert_eq!(wrong(&store), Vec::<String>::new());
}

#[test]
fn single_runs_without_files_make_room_and_nothing_else_does() {
    let folder = tempfile::tempdir().unwrap();
    let store = limited(folder.path(), Quota { owner_sessions: 10, ..PLENTY });
    let kept = session_of(&store, "ana");
    let with_file = single_run(&store, "ana", 1, 100);
    put(&store, &with_file, "a", b"a");
    let held = single_run(&store, "ana", 2, 100);
    let _held = store.hold(&held.id);
    let others = single_run(&store, "ben", 3, 100);
    let runs: Vec<_> = (10..200).map(|number| single_run(&store, "ana", number, 100)).collect();
    let is_there = |session: &Session| store.session(&session.id).unwrap().is_some();
    assert!([&kept, &with_file, &held, &others].into_iter().all(is_there));
    assert!(is_there(runs.last().unwrap()) && !is_there(&runs[0]));
    let query = redoma_store::SessionQuery { owner: Some(owner("ana")), after: None, limit: 1000 };
    assert!(store.sessions(&query).unwrap().len() <= 10);
    assert_eq!(wrong(&store), Vec::<String>::new());
    // With nothing to make room for it, there is no further session, until one is removed.
    for session in store.sessions(&query).unwrap() {
        put(&store, &session, "a", b"a");
    }
    while store.make_room_for_session(&owner("ana"), HashSet::new).unwrap() {
        store.open_session(new_session(owner("ana"), Retention::Forever)).unwrap();
    }
    assert_eq!(store.sessions(&query).unwrap().len(), 10);
    assert!(store.make_room_for_session(&owner("ben"), HashSet::new).unwrap());
    store.remove_session(&kept.id).unwrap().unwrap();
    assert!(store.make_room_for_session(&owner("ana"), HashSet::new).unwrap());
    assert_eq!(wrong(&store), Vec::<String>::new());
}

/// As a conversation begins: the session is there before its first run.
fn conversation(store: &Store, user: &str) -> Session {
    let session = store.draft_session(new_session(owner(user), Retention::Forever)).unwrap();
    let outcome = Outcome { begins: true, is_single_run: true, ..Outcome::default() };
    store.commit(&session, outcome).unwrap();
    session
}

#[test]
fn a_session_that_was_just_opened_does_not_make_room() {
    let folder = tempfile::tempdir().unwrap();
    let store = limited(folder.path(), Quota { owner_sessions: 2, ..PLENTY });
    let (opened, run) = (conversation(&store, "ana"), single_run(&store, "ana", 1, 100));
    assert!(store.make_room_for_session(&owner("ana"), HashSet::new).unwrap());
    assert!(store.session(&opened.id).unwrap().is_some());
    assert!(store.session(&run.id).unwrap().is_none());
    let other = conversation(&store, "ana");
    assert!(!store.make_room_for_session(&owner("ana"), HashSet::new).unwrap());
    // A minute later.
    let connection = rusqlite::Connection::open(folder.path().join("redoma.db")).unwrap();
    let sql = "UPDATE sessions SET created_at = created_at - 61000 WHERE id = ?";
    connection.execute(sql, [opened.id.as_str()]).unwrap();
    assert!(store.make_room_for_session(&owner("ana"), HashSet::new).unwrap());
    assert!(store.session(&opened.id).unwrap().is_none());
    assert!(store.session(&other.id).unwrap().is_some());
}

#[test]
fn many_sessions_in_use_do_not_keep_others_from_making_room() {
    const HELD: u64 = 600;
    let folder = tempfile::tempdir().unwrap();
    let store = limited(folder.path(), Quota { owner_sessions: HELD + 2, ..PLENTY });
    let runs: Vec<_> = (0..HELD + 2).map(|number| single_run(&store, "ana", number, 100)).collect();
    let connection = rusqlite::Connection::open(folder.path().join("redoma.db")).unwrap();
    // Many were used in the same millisecond.
    for (number, session) in (0..).zip(&runs) {
        let sql = "UPDATE sessions SET used_at = ? WHERE id = ?";
        connection.execute(sql, (number / 300, session.id.as_str())).unwrap();
    }
    let (held, free) = runs.split_at(usize::try_from(HELD).unwrap());
    let live: HashSet<_> = held.iter().map(|session| session.id.clone()).collect();
    assert!(store.make_room_for_session(&owner("ana"), || live).unwrap());
    assert!(held.iter().all(|session| store.session(&session.id).unwrap().is_some()));
    assert!(free.iter().all(|session| store.session(&session.id).unwrap().is_none()));
    assert_eq!(wrong(&store), Vec::<String>::new());
}

/// As a Jupyter kernel begins it: with a name that no caller gave it.
#[test]
fn a_session_of_a_kernel_makes_room_when_the_kernel_is_gone_unless_it_was_named() {
    let folder = tempfile::tempdir().unwrap();
    let store = limited(folder.path(), Quota { owner_sessions: 2, ..PLENTY });
    let begin = |name: &str| {
        let new = NewSession { name: name.parse().ok(), ..new_session(owner("ana"), Retention::Forever) };
        let session = store.draft_session(new).unwrap();
        let execution = Some(NewExecution { id: new_execution_id().unwrap(), ..run(1, 10) });
        let outcome = Outcome { begins: true, is_single_run: true, execution, ..Outcome::default() };
        store.commit(&session, outcome).unwrap();
        session
    };
    let (kernel, named) = (begin("jupyter"), begin("jupyter"));
    let spared = store.spare(&kernel.id);
    let change = SessionChange { name: Some("mine".parse().ok()), ttl: None };
    assert!(store.change_session(&named.id, change).unwrap());
    assert!(!store.make_room_for_session(&owner("ana"), HashSet::new).unwrap());
    drop(spared);
    assert!(store.make_room_for_session(&owner("ana"), HashSet::new).unwrap());
    assert!(store.session(&kernel.id).unwrap().is_none());
    assert_eq!(store.session(&named.id).unwrap().unwrap().name.as_deref(), Some("mine"));
    // One that is spared can be removed by its owner.
    let kernel = begin("jupyter");
    let _spared = store.spare(&kernel.id);
    assert!(store.remove_session(&kernel.id).unwrap().is_some());
}

#[test]
fn a_session_with_live_variables_does_not_make_room() {
    let folder = tempfile::tempdir().unwrap();
    let store = limited(folder.path(), Quota { owner_sessions: 2, ..PLENTY });
    let (one, two) = (single_run(&store, "ana", 1, 100), single_run(&store, "ana", 2, 100));
    let both = HashSet::from([one.id.clone(), two.id.clone()]);
    assert!(!store.make_room_for_session(&owner("ana"), || both).unwrap());
    let first = HashSet::from([one.id.clone()]);
    assert!(store.make_room_for_session(&owner("ana"), || first).unwrap());
    assert!(store.session(&one.id).unwrap().is_some());
    assert!(store.session(&two.id).unwrap().is_none());
}
