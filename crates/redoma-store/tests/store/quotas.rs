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
    assert_eq!(store.owner_bytes(&owner("ana")).unwrap(), 4);
    put(&store, &one, "a", &[1; 6]);
    store.remove_session(&one.id).unwrap().unwrap();
    assert_eq!(store.owner_bytes(&owner("ana")).unwrap(), 4);
    put(&store, &two, "c", &[3; 6]);
    store.remove_session(&two.id).unwrap().unwrap();
    assert_eq!(store.owner_bytes(&owner("ana")).unwrap(), 0);
    assert_eq!(wrong(&store), Vec::<String>::new());
}

#[test]
fn commits_at_the_same_time_do_not_get_past_a_quota() {
    let folder = tempfile::tempdir().unwrap();
    let quota = Quota { session_bytes: 100, owner_bytes: 150, session_files: 1000 };
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
    assert_eq!(store.owner_bytes(&owner("ana")).unwrap(), 147);
    assert_eq!(blobs(folder.path()).len(), 21);
    assert_eq!(wrong(&store), Vec::<String>::new());
}
