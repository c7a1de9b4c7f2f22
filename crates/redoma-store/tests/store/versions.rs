use std::collections::BTreeSet;

use redoma_store::Outcome;

use super::*;

#[test]
fn the_newest_version_is_the_one_that_programs_see_and_all_stay() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let session = session_of(&store, "ana");
    let versions: Vec<_> =
        (0..5).map(|number| put(&store, &session, "data/a.csv", format!("{number}").as_bytes())).collect();
    let current = store.current_files(&session.id).unwrap();
    assert_eq!(current.len(), 1);
    assert_eq!(current[0].0.id, versions[4].id);
    assert_eq!(std::fs::read(&current[0].1).unwrap(), b"4");
    for (number, version) in versions.iter().enumerate() {
        assert_eq!(version.version, number as u64 + 1);
        assert_eq!(content(&store, version), format!("{number}").as_bytes());
        assert_eq!(store.file(&version.id).unwrap().unwrap().is_current, number == 4);
    }
    assert_eq!(store.all_files(&session.id).unwrap().len(), 5);
}

#[test]
fn a_name_that_is_gone_is_not_seen_and_its_versions_stay() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let session = session_of(&store, "ana");
    let file = put(&store, &session, "a", b"one");
    store.commit(&session, Outcome { gone: vec![file.id.clone()], ..Outcome::default() }).unwrap();
    assert!(store.current_files(&session.id).unwrap().is_empty());
    assert_eq!(content(&store, &file), b"one");
    let next = put(&store, &session, "a", b"two");
    assert_eq!(next.version, 2);
    assert_eq!(store.current_files(&session.id).unwrap()[0].0.id, next.id);
}

#[test]
fn one_version_can_be_removed_and_no_earlier_one_takes_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let session = session_of(&store, "ana");
    let (first, second) = (put(&store, &session, "a", b"one"), put(&store, &session, "a", b"two"));
    assert!(store.remove_file(&second.id).unwrap().is_some());
    assert!(store.remove_file(&second.id).unwrap().is_none());
    assert!(store.open_file(&second.id).unwrap().is_none());
    assert!(store.current_files(&session.id).unwrap().is_empty());
    assert_eq!(content(&store, &first), b"one");
    assert_eq!((blobs(folder.path()).len(), marks(folder.path())), (1, 0));
}

#[test]
fn many_who_write_one_name_at_once_never_destroy_each_others() {
    const WRITERS: usize = 8;
    const EACH: usize = 15;
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let session = session_of(&store, "ana");
    let all: Vec<_> = std::thread::scope(|scope| {
        let (store, session) = (&store, &session);
        let write = move |writer| {
            let number = move |turn| format!("{writer} {turn}").into_bytes();
            (0..EACH)
                .map(move |turn| (put(store, session, "same.txt", &number(turn)), number(turn)))
                .collect()
        };
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || -> Vec<_> { write(writer) })).collect();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    let numbers: BTreeSet<_> = all.iter().map(|(file, _)| file.version).collect();
    assert_eq!(numbers, (1..=(WRITERS * EACH) as u64).collect());
    for (file, bytes) in &all {
        assert_eq!(&content(&store, file), bytes);
    }
    let current = store.current_files(&session.id).unwrap();
    assert_eq!(current.len(), 1);
    assert_eq!(current[0].0.version, (WRITERS * EACH) as u64);
    assert_eq!(wrong(&store), Vec::<String>::new());
}
