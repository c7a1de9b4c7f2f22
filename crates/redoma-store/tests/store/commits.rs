use std::os::unix::fs::PermissionsExt;

use redoma_store::{NewExecution, Outcome, new_execution_id, new_session_id};

use super::*;

#[test]
fn a_commit_into_a_session_that_is_not_there_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let draft = store.draft_session(new_session(owner("ana"), Retention::Forever)).unwrap();
    let error = put_all(&store, &draft, &[("a", b"1"), ("b", b"2")]).unwrap_err();
    assert!(matches!(error, StoreError::NoSuchSession), "{error}");
    // No blob, no mark, not even an empty folder.
    assert_eq!(stored(folder.path()), [Path::new(".incoming")]);
    assert_eq!(store.owner_usage(&owner("ana")).unwrap().total(), 0);
}

#[test]
fn what_is_written_and_not_committed_was_never_there() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let session = session_of(&store, "ana");
    drop(write(&store, &session, "a", b"1"));
    let mut incoming = store.begin_file(&session, &name("b")).unwrap();
    incoming.write_all(b"half").unwrap();
    drop(incoming);
    assert_eq!(stored(folder.path()), [Path::new(".incoming")]);
}

#[test]
fn a_commit_of_which_one_file_has_no_place_leaves_none() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let session = session_of(&store, "ana");
    let kept = put(&store, &session, "kept", b"kept");
    let files = vec![write(&store, &session, "a", b"1"), write(&store, &session, "b", b"2")];
    // The second one's place is taken, by something that can't be.
    let taken = folder.path().join("storage").join(files[1].1.blob.to_string());
    std::fs::write(&taken, "taken").unwrap();
    let error = store.commit(&session, Outcome { files, ..Outcome::default() }).unwrap_err();
    assert!(matches!(error, StoreError::Files { .. }), "{error}");
    assert_eq!((blobs(folder.path()).len(), marks(folder.path())), (1, 0));
    assert_eq!(content(&store, &kept), b"kept");
    assert_eq!(store.session(&session.id).unwrap().unwrap().files, 1);
    assert_eq!(wrong(&store), Vec::<String>::new());
}

/// Many commits wait for the disk together. Those that fail do so alone.
#[test]
fn a_failing_commit_does_not_hurt_others_of_its_batch() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let session = session_of(&store, "ana");
    let missing = store.draft_session(new_session(owner("ana"), Retention::Forever)).unwrap();
    let twice = new_execution_id().unwrap();
    let run = |bad: bool| NewExecution {
        id: if bad { twice.clone() } else { new_execution_id().unwrap() },
        started_at: 1,
        language: "py".to_owned(),
        result: Box::new(|_| "{}".to_owned()),
    };
    store.commit(&session, Outcome { execution: Some(run(true)), ..Outcome::default() }).unwrap();
    let (good, bad): (usize, usize) = std::thread::scope(|scope| {
        let (store, session, missing, run) = (&store, &session, &missing, &run);
        let writers: Vec<_> = (0..24)
            .map(|number: usize| {
                scope.spawn(move || {
                    let (target, is_twice) =
                        (if number % 4 == 1 { missing } else { session }, number % 4 == 3);
                    let files = vec![write(store, target, &format!("{number}"), b"bytes")];
                    // Fails after its file is in the table already: that one must go too.
                    let outcome = Outcome { files, execution: Some(run(is_twice)), ..Outcome::default() };
                    let result = store.commit(target, outcome);
                    assert_eq!(result.is_ok(), number.is_multiple_of(2), "{number}: {result:?}");
                    result.is_ok()
                })
            })
            .collect();
        let done: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        (done.iter().filter(|is_good| **is_good).count(), done.iter().filter(|is_good| !**is_good).count())
    });
    assert_eq!((good, bad), (12, 12));
    let names: Vec<_> =
        store.all_files(&session.id).unwrap().into_iter().map(|file| file.name.as_str().to_owned()).collect();
    assert_eq!(names.len(), 12);
    assert!(names.iter().all(|name| name.parse::<usize>().unwrap() % 2 == 0), "{names:?}");
    assert_eq!((blobs(folder.path()).len(), marks(folder.path())), (12, 0));
    let now = store.session(&session.id).unwrap().unwrap();
    assert_eq!((now.files, now.bytes), (12, 60));
    assert_eq!(wrong(&store), Vec::<String>::new());
}

#[test]
fn a_session_begins_with_what_is_first_committed_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let draft = store.draft_session(new_session(owner("ana"), Retention::Forever)).unwrap();
    assert!(store.session(&draft.id).unwrap().is_none());
    let files = vec![write(&store, &draft, "a", b"1")];
    store.commit(&draft, Outcome { begins: true, files, ..Outcome::default() }).unwrap();
    assert_eq!(store.session(&draft.id).unwrap().unwrap().files, 1);
    // Its id is taken now.
    let files = vec![write(&store, &draft, "b", b"2")];
    assert!(store.commit(&draft, Outcome { begins: true, files, ..Outcome::default() }).is_err());
    assert_eq!(store.current_files(&draft.id).unwrap().len(), 1);
    assert_eq!((blobs(folder.path()).len(), marks(folder.path())), (1, 0));
}

#[test]
fn many_files_in_one_commit_are_all_there() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let session = session_of(&store, "ana");
    let names: Vec<_> = (0..40).map(|number| format!("folder/{number}.txt")).collect();
    let files: Vec<_> = names.iter().map(|name| (name.as_str(), name.as_bytes())).collect();
    let added = put_all(&store, &session, &files).unwrap();
    for (file, name) in added.files.iter().zip(&names) {
        assert_eq!(content(&store, file), name.as_bytes());
    }
    assert_eq!((blobs(folder.path()).len(), marks(folder.path())), (40, 0));
}

/// A user's folder goes with their last session, also in the moment in which another of theirs gets its first file.
#[test]
fn a_session_that_goes_does_not_take_a_new_ones_folder() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let session = session_of(&store, "ana");
                    let file = put(&store, &session, "a", b"1");
                    assert_eq!(content(&store, &file), b"1");
                    assert!(store.remove_session(&session.id).unwrap().is_some());
                }
            });
        }
    });
    assert_eq!(stored(folder.path()), [Path::new(".incoming")]);
    assert_eq!(store.owner_usage(&owner("ana")).unwrap().total(), 0);
}

/// When it can't be told whether a commit took place, or bytes can't be removed, the next start puts it in order.
#[test]
fn what_can_not_be_removed_now_is_removed_by_the_next_start() {
    if !is_bound_by_modes() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let session = session_of(&store, "ana");
    let file = put(&store, &session, "a", b"1");
    let home = folder.path().join("storage/ana").join(session.id.as_str());
    std::fs::set_permissions(&home, PermissionsExt::from_mode(0o500)).unwrap();
    assert!(store.remove_file(&file.id).is_err());
    std::fs::set_permissions(&home, PermissionsExt::from_mode(0o700)).unwrap();
    assert!(store.file(&file.id).unwrap().is_none());
    assert_eq!(store.recover().unwrap(), 1);
    assert_eq!(stored(folder.path()), [Path::new(".incoming")]);
}

#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn is_bound_by_modes() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        eprintln!("skipped: root can remove what nobody else can");
    }
    !is_root
}

#[test]
fn an_execution_is_kept_with_the_ids_of_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let session = session_of(&store, "ana");
    let id = new_execution_id().unwrap();
    let execution = NewExecution {
        id: id.clone(),
        started_at: 7,
        language: "py".to_owned(),
        result: Box::new(|added| added.files[0].id.to_string()),
    };
    let files = vec![write(&store, &session, "plot.png", b"png")];
    let outcome = Outcome { files, execution: Some(execution), ..Outcome::default() };
    let added = store.commit(&session, outcome).unwrap();
    let kept = store.execution(&id).unwrap().unwrap();
    assert_eq!((kept.result, kept.started_at), (added.files[0].id.to_string(), 7));
    assert_eq!(store.executions(&session.id, 10).unwrap().len(), 1);
    assert_eq!(store.executions(&new_session_id().unwrap(), 10).unwrap().len(), 0);
    store.remove_session(&session.id).unwrap();
    assert!(store.execution(&id).unwrap().is_none());
}
