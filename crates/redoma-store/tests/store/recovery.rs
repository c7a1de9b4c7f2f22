//! After each crash the same holds: what was acknowledged is there, and nothing else is.

use super::*;

/// Leaves a mark as a crash would: with the name that the store gives it.
fn leave(folder: &Path, name: &str, content: &[u8]) {
    std::fs::write(incoming(folder).join(name), content).unwrap();
}

fn mark_of(blob: &str) -> String {
    blob.replace('/', "~")
}

#[test]
fn each_stage_of_a_crashed_commit_is_put_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let session = session_of(&store, "ana");
    let known = put(&store, &session, "known", b"known");
    let known_blob = blobs(folder.path())[0].to_str().unwrap().to_owned();
    let storage = folder.path().join("storage");
    let place = |name: &str| format!("ana/{}/{name}", session.id);

    // Written only.
    leave(folder.path(), &mark_of(&place("11111111-1111-4111-8111-111111111111.csv")), b"half");
    // Written and placed, in a session that there is and in one that there is not.
    let other = redoma_store::new_session_id().unwrap();
    for placed in [place("22222222-2222-4222-8222-222222222222.bin"), format!("_nobody/{other}/3333.bin")] {
        leave(folder.path(), &mark_of(&placed), b"placed");
        std::fs::create_dir_all(storage.join(&placed).parent().unwrap()).unwrap();
        std::fs::hard_link(incoming(folder.path()).join(mark_of(&placed)), storage.join(&placed)).unwrap();
    }
    // Written, placed and known: only the mark is too much.
    std::fs::hard_link(storage.join(&known_blob), incoming(folder.path()).join(mark_of(&known_blob)))
        .unwrap();

    drop(store);
    let store = open(folder.path());
    assert_eq!(store.recover().unwrap(), 3);
    assert_eq!(marks(folder.path()), 0);
    assert_eq!(blobs(folder.path()), [Path::new(&known_blob)]);
    assert!(!storage.join("_nobody").exists());
    assert_eq!(content(&store, &known), b"known");
    assert_eq!(wrong(&store), Vec::<String>::new());
    assert_eq!(store.recover().unwrap(), 0);
}

#[test]
fn marks_of_earlier_versions_are_put_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let session = session_of(&store, "ana");
    let mark = format!("ana~{}~11111111-1111-4111-8111-111111111111.csv", session.id);
    std::fs::write(folder.path().join("storage/.incoming").join(mark), "half").unwrap();
    assert_eq!((store.recover().unwrap(), marks(folder.path())), (1, 0));
}

#[test]
fn each_stage_of_a_crashed_removal_is_put_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let storage = folder.path().join("storage");
    let (kept, gone) = (session_of(&store, "ana"), redoma_store::new_session_id().unwrap());
    let known = put(&store, &kept, "known", b"known");
    let known_blob = blobs(folder.path())[0].to_str().unwrap().to_owned();

    // Marked, but the metadata had not forgotten them.
    leave(folder.path(), &format!("~{}", mark_of(&known_blob)), b"");
    leave(folder.path(), &format!("~ana~{}", kept.id), b"");
    // Forgotten, and the bytes still there.
    let forgotten = format!("ana/{}/4444.txt", kept.id);
    std::fs::write(storage.join(&forgotten), "forgotten").unwrap();
    leave(folder.path(), &format!("~{}", mark_of(&forgotten)), b"");
    let folder_of_gone = storage.join("ana").join(gone.as_str());
    std::fs::create_dir_all(&folder_of_gone).unwrap();
    std::fs::write(folder_of_gone.join("5555.txt"), "forgotten").unwrap();
    leave(folder.path(), &format!("~ana~{gone}"), b"");
    // Forgotten, and the bytes gone.
    leave(folder.path(), &format!("~ana~{}~6666.txt", kept.id), b"");
    leave(folder.path(), &format!("~ben~{}", redoma_store::new_session_id().unwrap()), b"");

    assert_eq!(store.recover().unwrap(), 4);
    assert_eq!(marks(folder.path()), 0);
    assert_eq!(blobs(folder.path()), [Path::new(&known_blob)]);
    assert!(!folder_of_gone.exists());
    assert_eq!(content(&store, &known), b"known");
    assert_eq!(wrong(&store), Vec::<String>::new());
}

/// Names that would lead elsewhere, and things that nobody of ours has put there.
#[test]
fn rubbish_harms_nothing_and_stops_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let session = session_of(&store, "ana");
    let known = put(&store, &session, "known", b"known");
    let canary = folder.path().join("canary");
    std::fs::write(&canary, "canary").unwrap();
    let outside = folder.path().join("outside");
    std::fs::create_dir_all(outside.join(session.id.as_str())).unwrap();
    std::fs::write(outside.join(session.id.as_str()).join("x.bin"), "outside").unwrap();

    let id = &session.id;
    let long = "x".repeat(255);
    for hostile in [
        "rubbish",
        "~",
        "~~",
        "~~~",
        "~~~~",
        "a~b~c",
        "a~b~c~d",
        long.as_str(),
        "name with\nnewline",
        "ünïcode~你好~🦀",
        &format!("..~{id}~canary"),
        &format!("...~{id}~canary"),
        &format!("~..~{id}"),
        &format!("~.incoming~{id}"),
        &format!(".incoming~{id}~x"),
        &format!("~~{id}"),
        &format!("~{id}"),
        &format!("ana~{id}~.."),
        &format!("ana~{id}~."),
        &format!("ana~{id}~"),
        &format!("~ana~{id}~"),
        "ana~..~canary",
        "~ana~..",
        "~ana~.",
        "~ana~",
    ] {
        leave(folder.path(), hostile, b"rubbish");
    }
    let place = incoming(folder.path());
    let not_utf8: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"\xff~\xfe");
    std::fs::write(place.join(not_utf8), "rubbish").unwrap();
    std::os::unix::fs::symlink(&canary, place.join("link")).unwrap();
    std::os::unix::fs::symlink(&outside, place.join(format!("ben~{id}~link.bin"))).unwrap();
    std::fs::create_dir(place.join("a folder")).unwrap();
    std::fs::write(place.join("a folder/file"), "not ours").unwrap();
    std::fs::create_dir(place.join(format!("ana~{id}~folder.bin"))).unwrap();

    store.recover().unwrap();
    // Folders are never ours, and are left alone; everything else has gone.
    assert_eq!(marks(folder.path()), 2);
    assert_eq!(std::fs::read(&canary).unwrap(), b"canary");
    assert_eq!(std::fs::read(outside.join(id.as_str()).join("x.bin")).unwrap(), b"outside");
    assert!(place.is_dir());
    assert_eq!(content(&store, &known), b"known");
    assert_eq!(wrong(&store), Vec::<String>::new());
    put(&store, &session, "more", b"more");
}

/// A crash at any moment leaves a state that is one of the above; here are many real ones, made by leaving out the end.
#[test]
fn nothing_that_is_known_is_ever_removed() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let mut files = Vec::new();
    for user in ["ana", "_x", "", "../.."] {
        let session = session_of(&store, user);
        files.extend((0..5).map(|number| put(&store, &session, &format!("{number}"), user.as_bytes())));
    }
    for blob in blobs(folder.path()) {
        let mark = mark_of(blob.to_str().unwrap());
        let path = folder.path().join("storage").join(&blob);
        std::fs::hard_link(path, incoming(folder.path()).join(&mark)).unwrap();
        leave(folder.path(), &format!("~{mark}"), b"");
        let (session, _) = mark.rsplit_once('~').unwrap();
        leave(folder.path(), &format!("~{session}"), b"");
    }
    drop(store);
    let store = open(folder.path());
    assert_eq!(store.recover().unwrap(), 0);
    assert_eq!(marks(folder.path()), 0);
    assert_eq!(blobs(folder.path()).len(), files.len());
    for file in &files {
        drop(content(&store, file));
    }
    assert_eq!(wrong(&store), Vec::<String>::new());
}
