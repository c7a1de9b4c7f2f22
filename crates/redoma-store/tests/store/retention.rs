use std::time::Duration;

use redoma_model::Span;
use redoma_store::{SessionChange, SessionQuery, Swept};

use super::*;

const SHORT: Retention = Retention::For(Span::millis(100));

fn after_short() {
    std::thread::sleep(Duration::from_millis(120));
}

fn short_session(store: &Store) -> Session {
    store.open_session(new_session(owner("ana"), SHORT)).unwrap()
}

#[test]
fn a_session_goes_when_its_time_is_over_and_one_for_ever_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let (short, long) = (short_session(&store), session_of(&store, "ana"));
    let file = put(&store, &short, "a", b"12345");
    put(&store, &long, "b", b"1");
    after_short();
    assert_eq!(store.sweep().unwrap(), Swept { sessions: 1, bytes: 5 });
    assert!(store.session(&short.id).unwrap().is_none());
    assert!(store.file(&file.id).unwrap().is_none());
    assert!(store.session(&long.id).unwrap().unwrap().expires_at.is_none());
    assert_eq!(blobs(folder.path()).len(), 1);
    assert!(!folder.path().join("storage/ana").join(short.id.as_str()).exists());
    assert_eq!(store.owner_usage(&owner("ana")).unwrap().total(), 1);
    assert_eq!(wrong(&store), Vec::<String>::new());
}

#[test]
fn how_long_a_session_lives_can_be_changed() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let (kept, shortened) = (short_session(&store), session_of(&store, "ana"));
    let ttl = |ttl| SessionChange { name: None, ttl: Some(ttl) };
    assert!(store.change_session(&kept.id, ttl(None)).unwrap());
    assert!(store.change_session(&shortened.id, ttl(Some(1))).unwrap());
    after_short();
    assert_eq!(store.sweep().unwrap().sessions, 1);
    assert!(store.session(&kept.id).unwrap().is_some());
    assert!(!store.change_session(&shortened.id, ttl(None)).unwrap());
}

/// More than a number of the database: such a session could never be used again.
#[test]
fn an_absurdly_long_life_is_just_long() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let absurd = Retention::For(Span::millis(u64::MAX));
    let session = store.open_session(new_session(owner("ana"), absurd)).unwrap();
    std::thread::sleep(Duration::from_millis(5));
    store.touch_session(&session.id).unwrap();
    put(&store, &session, "a", b"1");
    let change = SessionChange { name: None, ttl: Some(Some(i64::MAX)) };
    assert!(store.change_session(&session.id, change).unwrap());
    std::thread::sleep(Duration::from_millis(5));
    store.touch_session(&session.id).unwrap();
    assert_eq!(store.sweep().unwrap(), Swept::default());
}

#[test]
fn nothing_of_a_session_in_use_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let session = short_session(&store);
    let file = put(&store, &session, "a", b"1");
    let (first, second) = (store.hold(&session.id), store.hold(&session.id));
    after_short();
    for held in [first, second] {
        assert_eq!(store.sweep().unwrap(), Swept::default());
        assert!(store.remove_session(&session.id).unwrap().is_none());
        assert!(store.is_in_use(&session.id));
        assert_eq!(content(&store, &file), b"1");
        drop(held);
    }
    assert!(!store.is_in_use(&session.id));
    assert_eq!(store.sweep().unwrap().sessions, 1);
    assert_eq!(stored(folder.path()), [Path::new(".incoming")]);
}

/// A sweep looks at a hundred at a time: those in use must not hide the others.
#[test]
fn many_sessions_in_use_do_not_keep_others() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let brief = || store.open_session(new_session(owner("ana"), Retention::For(Span::millis(1)))).unwrap();
    let held: Vec<_> = (0..120).map(|_| store.hold(&brief().id)).collect();
    std::thread::sleep(Duration::from_millis(5));
    (0..130).for_each(|_| drop(brief()));
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(store.sweep().unwrap().sessions, 130);
    drop(held);
    assert_eq!(store.sweep().unwrap().sessions, 120);
}

#[test]
fn sessions_are_listed_page_by_page_and_only_their_owners() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let ana: Vec<_> = (0..7).map(|_| session_of(&store, "ana").id).collect();
    session_of(&store, "ben");
    let mut query = SessionQuery { owner: Some(owner("ana")), after: None, limit: 3 };
    let mut seen = Vec::new();
    loop {
        let page = store.sessions(&query).unwrap();
        let Some(last) = page.last() else { break };
        assert!(page.len() <= 3);
        query.after = Some((last.created_at, last.id.clone()));
        seen.extend(page.into_iter().map(|session| session.id));
    }
    seen.sort();
    let mut expected = ana;
    expected.sort();
    assert_eq!(seen, expected);
    assert_eq!(store.sessions(&SessionQuery { owner: None, after: None, limit: 100 }).unwrap().len(), 8);
}
