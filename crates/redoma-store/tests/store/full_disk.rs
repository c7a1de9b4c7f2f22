use std::process::Command;

use redoma_store::{NewExecution, Outcome};

use super::*;

/// A small file system in memory, gone when dropped.
struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    #[expect(clippy::print_stderr, reason = "a skipped test says so")]
    fn mount(size: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: mounting a small disk needs root");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size},mode=700"), "redoma-store-test"])
            .arg(folder.path())
            .output()
            .unwrap();
        if !mount.status.success() {
            eprintln!("skipped: can't mount: {}", String::from_utf8_lossy(&mount.stderr));
            return None;
        }
        Some(Self { folder })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }

    /// Takes all the room there is.
    fn fill(&self) {
        std::fs::File::create(self.ballast()).unwrap();
        self.fill_up();
    }

    /// The room that there is now, too.
    fn fill_up(&self) {
        let mut file = std::fs::File::options().append(true).open(self.ballast()).unwrap();
        while file.write(&[0; 4096]).is_ok_and(|count| count > 0) {}
    }

    fn make_room(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).status();
    }
}

/// Why a file could not be stored: while it was written, or when it was committed.
fn try_put(store: &Store, session: &Session, file: &str, bytes: &[u8]) -> Result<StoredFile, bool> {
    let is_full = |error: StoreError| error.is_full();
    let mut incoming = store.begin_file(session, &name(file)).map_err(is_full)?;
    incoming.write_all(bytes).map_err(|error| error.kind() == std::io::ErrorKind::StorageFull)?;
    let details = FileDetails {
        name: name(file),
        content_type: "text/plain".to_owned(),
        origin: Origin::Upload,
        read_only: false,
        execution: None,
    };
    let outcome = Outcome { files: vec![(details, incoming.finish())], ..Default::default() };
    let added = store.commit(session, outcome).map_err(is_full)?;
    Ok(added.files.into_iter().next().expect("the quota is large"))
}

#[test]
fn a_full_disk_is_said_to_be_full_and_loses_nothing() {
    let Some(disk) = SmallDisk::mount("4m") else { return };
    let store = open(disk.path());
    let session = session_of(&store, "ana");
    let mut kept = Vec::new();
    let is_full = loop {
        let bytes = vec![kept.len().to_le_bytes()[0]; 50_000];
        match try_put(&store, &session, &format!("{}", kept.len()), &bytes) {
            Ok(file) => kept.push((file, bytes)),
            Err(is_full) => break is_full,
        }
        assert!(kept.len() < 200);
    };
    assert!(is_full, "another error than that the disk is full");
    assert!(kept.len() > 20);
    for (file, bytes) in &kept {
        assert_eq!(&content(&store, file), bytes);
    }
    assert_eq!(marks(disk.path()), 0);
    assert_eq!(wrong(&store), Vec::<String>::new());
    // Files that are removed make room for another. The write-ahead log takes some of it for each change.
    for (file, _) in &kept[..5] {
        store.remove_file(&file.id).unwrap().unwrap();
    }
    try_put(&store, &session, "again", &vec![1; 40_000]).unwrap();
    assert_eq!(wrong(&store), Vec::<String>::new());
}

#[test]
fn a_database_without_room_says_so_loses_nothing_and_works_again() {
    let Some(disk) = SmallDisk::mount("4m") else { return };
    let store = open(disk.path());
    let session = session_of(&store, "ana");
    let file = put(&store, &session, "a", b"kept");
    disk.fill();
    // Until what the database had in reserve is used up, from several threads: they fail together.
    let acknowledged = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    match store.open_session(new_session(owner("ana"), Retention::Forever)) {
                        Ok(session) => acknowledged.lock().unwrap().push(session.id),
                        Err(error) => {
                            assert!(error.is_full(), "{error:?}");
                            return;
                        }
                    }
                }
                panic!("the disk never was full");
            });
        }
    });
    assert_eq!(content(&store, &file), b"kept");
    assert!(try_put(&store, &session, "b", b"1").unwrap_err(), "another error than that the disk is full");
    std::fs::remove_file(disk.ballast()).unwrap();
    let more = try_put(&store, &session, "b", b"more").unwrap();
    drop(store);
    let store = open(disk.path());
    assert_eq!(store.recover().unwrap(), 0);
    assert_eq!(content(&store, &more), b"more");
    for id in acknowledged.into_inner().unwrap() {
        assert!(store.session(&id).unwrap().is_some(), "acknowledged and lost");
    }
    assert_eq!(wrong(&store), Vec::<String>::new());
}

/// Runs that are not in their table yet, of a server that serves: there is no room for them there.
#[test]
fn runs_that_wait_keep_nobody_from_making_room() {
    let Some(disk) = SmallDisk::mount("5m") else { return };
    let store = open(disk.path());
    store.recover().unwrap();
    let expiring = Retention::For(redoma_model::Span::millis(1));
    let (removed, session) = (session_of(&store, "ana"), session_of(&store, "ana"));
    let swept = store.open_session(new_session(owner("ana"), expiring)).unwrap();
    for session in [&removed, &swept] {
        put(&store, session, "large", &vec![1; 1 << 18]);
    }
    let mut ids = Vec::new();
    for session in [&removed, &session] {
        for _ in 0..20 {
            let id = redoma_store::new_execution_id().unwrap();
            let execution = NewExecution {
                id: id.clone(),
                started_at: 1,
                language: "py".to_owned(),
                result: Box::new(|_| "x".repeat(8 << 10)),
            };
            store.commit(session, Outcome { execution: Some(execution), ..Outcome::default() }).unwrap();
            ids.push(id);
        }
    }
    disk.fill();
    let _ = store.flush();
    assert!(store.session(&session.id).unwrap().is_some());
    store.execution(&ids[0]).expect("what is there can be read");
    assert!(store.remove_session(&removed.id).unwrap().is_some());
    disk.fill_up();
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(store.sweep().unwrap().sessions, 1);
    disk.fill_up();
    // It ends as it is, and the next one takes it so.
    drop(store);
    let store = open(disk.path());
    store.recover().unwrap();
    disk.make_room();
    store.flush().unwrap();
    for id in &ids[20..] {
        assert!(store.execution(id).unwrap().is_some());
    }
    assert!(store.execution(&ids[0]).unwrap().is_none(), "with its session");
}

#[test]
fn what_is_removed_from_a_full_disk_makes_room() {
    let Some(disk) = SmallDisk::mount("5m") else { return };
    let store = open(disk.path());
    let expiring = Retention::For(redoma_model::Span::millis(1));
    let (removed, session, swept) = (
        session_of(&store, "ana"),
        session_of(&store, "ana"),
        store.open_session(new_session(owner("ana"), expiring)).unwrap(),
    );
    put(&store, &removed, "large", &vec![1; 1 << 18]);
    let file = put(&store, &session, "large", &vec![1; 1 << 18]);
    put(&store, &swept, "large", &vec![1; 1 << 18]);
    disk.fill();
    assert!(store.open_session(new_session(owner("ana"), expiring)).unwrap_err().is_full());
    assert!(store.remove_session(&removed.id).unwrap().is_some());
    disk.fill_up();
    assert!(store.remove_file(&file.id).unwrap().is_some());
    disk.fill_up();
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(store.sweep().unwrap().sessions, 1);
    assert!(blobs(disk.path()).is_empty());
    put(&store, &session_of(&store, "ana"), "large", &vec![1; 1 << 17]);
    assert_eq!(wrong(&store), Vec::<String>::new());
    drop(store);
    // And the next start takes a full disk as it is.
    disk.fill_up();
    let store = open(disk.path());
    assert_eq!(store.recover().unwrap(), 0);
    assert!(store.session(&session.id).unwrap().is_some());
}
