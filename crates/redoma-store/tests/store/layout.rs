use std::os::unix::fs::PermissionsExt;

use super::*;

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_file_is_at_user_session_uuid_and_nobody_else_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("new/data");
    let store = open(&data);
    let session = session_of(&store, "ana");
    put(&store, &session, "my/Secret Plans.PDF", b"1");
    put(&store, &session, "no extension", b"2");
    let found = blobs(&data);
    assert_eq!(found.len(), 2);
    for blob in &found {
        let parts: Vec<_> = blob.iter().map(|part| part.to_str().unwrap()).collect();
        assert_eq!(parts[..2], ["ana", session.id.as_str()]);
        let (uuid, extension) = parts[2].split_once('.').unwrap();
        assert!(matches!(extension, "pdf" | "bin"), "{extension}");
        let lengths: Vec<_> = uuid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert!(uuid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-'));
        assert_eq!(uuid.as_bytes()[14], b'4');
        assert_eq!(mode(&data.join("storage").join(blob)), 0o600);
    }
    for private in ["", "storage", "storage/.incoming", "storage/ana"] {
        assert_eq!(mode(&data.join(private)), 0o700, "{private}");
    }
    assert_eq!(mode(&data.join("storage/ana").join(session.id.as_str())), 0o700);
    for database in ["redoma.db", "redoma.db-wal", "redoma.db-shm"] {
        assert_eq!(mode(&data.join(database)), 0o600, "{database}");
    }
    // What is being written is as private.
    let incoming_file = store.begin_file(&session, &name("a")).unwrap();
    let written = written(&data);
    assert_eq!(mode(&data.join("storage").join(&written)), 0o600);
    assert_eq!(mode(data.join("storage").join(&written).parent().unwrap()), 0o700);
    drop(incoming_file);
}

#[test]
fn no_user_gets_out_of_their_folder_or_into_anothers() {
    let long = "a".repeat(1000);
    let just_fits = "b".repeat(64);
    let users = [
        "../..",
        "..",
        ".",
        ".incoming",
        "",
        "/",
        "/etc",
        "a/b",
        "a\0b",
        "_x",
        "_nobody",
        "Ünïcode 你好 🦀",
        "~",
        "a~b",
        "a b",
        "-rf",
        "con",
        "lost+found",
        &long,
        &just_fits,
        "ana",
        "ANA",
    ];
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let mut sessions = Vec::new();
    for user in users {
        let session = session_of(&store, user);
        let file = put(&store, &session, "a", user.as_bytes());
        let (_, path) = store.file_with_path(&file.id).unwrap().unwrap();
        let inside: Vec<_> = path.strip_prefix(folder.path().join("storage")).unwrap().iter().collect();
        let home = inside[0].to_str().unwrap().to_owned();
        assert_eq!(inside.len(), 3, "{user:?}: {}", path.display());
        assert!(!home.starts_with('.') && !home.contains("..") && home.len() <= 64, "{user:?}: {home}");
        assert_eq!(home.as_str() == user, matches!(user, "-rf" | "con" | "ana" | "ANA") || user == just_fits);
        sessions.push((session, file, home));
    }
    let nobody =
        store.open_session(new_session(Owner { user: None, ..owner("") }, Retention::Forever)).unwrap();
    let nobodys = put(&store, &nobody, "a", b"nobody");
    assert!(folder.path().join("storage/_nobody").is_dir());
    for (number, (_, _, home)) in sessions.iter().enumerate() {
        assert_eq!(home == "_nobody", users[number].is_empty());
        assert!(sessions[..number].iter().all(|(_, _, other)| other != home), "{home} is of two");
    }
    assert_eq!(wrong(&store), Vec::<String>::new());
    // Each goes by itself, and wholly.
    for (number, (session, file, _)) in sessions.iter().enumerate() {
        assert_eq!(content(&store, file), users[number].as_bytes());
        assert!(store.remove_session(&session.id).unwrap().is_some());
    }
    assert_eq!(content(&store, &nobodys), b"nobody");
    assert_eq!(blobs(folder.path()).len(), 1);
}

/// Somebody who could write into storage could otherwise have any file of the host handed out.
#[test]
fn a_blob_that_became_a_link_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let session = session_of(&store, "ana");
    let file = put(&store, &session, "a", b"1");
    let (_, path) = store.file_with_path(&file.id).unwrap().unwrap();
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
    assert!(store.open_file(&file.id).is_err());
    assert_eq!(wrong(&store).len(), 1);
}

/// A folder has one lock, and ext4 makes new files near it: one user's thousands of files must not slow down others.
#[test]
fn files_of_different_users_are_written_into_different_folders() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let mut folders = std::collections::HashSet::new();
    for number in 0..100 {
        let session = session_of(&store, &format!("user{number}"));
        let incoming_file = store.begin_file(&session, &name("a")).unwrap();
        folders.insert(written(folder.path()).parent().unwrap().to_owned());
        drop(incoming_file);
    }
    assert!(folders.len() > 40, "{}", folders.len());
}

/// The one file that is being written, relative to storage.
fn written(data: &Path) -> PathBuf {
    let is_written = |path: &PathBuf| path.starts_with(".incoming") && path.components().count() == 3;
    let found: Vec<_> = stored(data).into_iter().filter(is_written).collect();
    let [one] = &*found else { panic!("{found:?}") };
    one.clone()
}
