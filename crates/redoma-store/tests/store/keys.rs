use redoma_model::Role;
use redoma_store::{NewKey, Secret};

use super::*;

fn client(label: &str) -> NewKey {
    let owner = Owner { client: "chat".to_owned(), user: None };
    NewKey { role: Role::Client, owner, label: Some(label.parse().unwrap()), profile: None }
}

/// Whether any file below holds these bytes.
fn is_anywhere(folder: &Path, needle: &[u8]) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return is_anywhere(&path, needle);
        }
        std::fs::read(&path).unwrap().windows(needle.len()).any(|window| window == needle)
    })
}

#[test]
fn a_secret_is_nowhere_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let (record, secret) = store.add_key(client("a label that is easily found")).unwrap();
    assert_eq!(store.key(&secret).unwrap(), Some(record.clone()));
    let chosen = Secret::new("a-secret-that-the-operator-chose");
    store.add_key_with(client("chosen"), &chosen).unwrap();
    for is_open in [true, false] {
        assert!(is_anywhere(folder.path(), b"a label that is easily found"));
        for secret in [&secret, &chosen] {
            let shown = secret.reveal();
            assert!(!is_anywhere(folder.path(), shown.as_bytes()), "open: {is_open}");
            assert!(!is_anywhere(folder.path(), &shown.as_bytes()[4..]), "open: {is_open}");
        }
        if is_open {
            drop(open(folder.path()));
        }
    }
    let shown = format!("{record:?} {secret:?}");
    assert!(!shown.contains(secret.reveal()));
}

#[test]
fn secrets_are_long_and_never_the_same() {
    let secrets: std::collections::BTreeSet<_> =
        (0..100).map(|_| Secret::generate().unwrap().reveal().to_owned()).collect();
    assert_eq!(secrets.len(), 100);
    assert!(secrets.iter().all(|secret| secret.len() == 68 && secret.starts_with("rdm_")));
}

#[test]
fn a_revoked_key_is_refused_at_once_also_by_others_who_have_the_store_open() {
    let folder = tempfile::tempdir().unwrap();
    let (store, server) = (open(folder.path()), open(folder.path()));
    let (record, secret) = store.add_key(client("one")).unwrap();
    let (_, other) = store.add_key(client("two")).unwrap();
    assert!(server.key(&secret).unwrap().is_some());
    assert!(store.revoke_key(&record.id).unwrap());
    assert!(server.key(&secret).unwrap().is_none());
    assert!(store.key(&secret).unwrap().is_none());
    assert!(server.key(&other).unwrap().is_some());
    assert!(!store.revoke_key(&record.id).unwrap());
    let listed = store.keys().unwrap();
    assert_eq!(listed.len(), 2);
    assert!(listed.iter().find(|key| key.id == record.id).unwrap().revoked_at.is_some());
    drop((store, server));
    assert!(open(folder.path()).key(&secret).unwrap().is_none());
}

#[test]
fn only_the_very_secret_opens() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let (_, secret) = store.add_key(client("one")).unwrap();
    let shown = secret.reveal();
    for wrong in ["", " ", &shown[..67], &format!("{shown} "), &shown.to_uppercase(), "' OR 1=1 --", "%"] {
        assert!(store.key(&Secret::new(wrong)).unwrap().is_none(), "{wrong:?}");
    }
}

/// What `REDOMA_API_KEY` names is added at each start: it stays valid, also after it was revoked by mistake, and is there once.
#[test]
fn a_chosen_key_that_is_added_again_is_valid_again() {
    let folder = tempfile::tempdir().unwrap();
    let secret = Secret::new("a-secret-that-the-operator-chose");
    let admin = || NewKey { role: Role::Admin, ..client("REDOMA_API_KEY") };
    let store = open(folder.path());
    assert!(!store.has_admin().unwrap());
    for _ in 0..3 {
        let record = store.add_key_with(admin(), &secret).unwrap();
        assert!(store.has_admin().unwrap());
        assert_eq!(store.key(&secret).unwrap().unwrap().id, record.id);
        store.revoke_key(&record.id).unwrap();
        assert!(!store.has_admin().unwrap());
    }
    store.add_key_with(admin(), &secret).unwrap();
    assert_eq!(store.keys().unwrap().len(), 1);
    assert_eq!(store.key(&secret).unwrap().unwrap().role, Role::Admin);
}

#[test]
fn of_failed_logins_the_last_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    for number in 0..5 {
        store.note_failed_login("10.0.0.1".to_owned(), "key".to_owned(), format!("reason {number}")).unwrap();
    }
    let reasons: Vec<_> = store.failed_logins(3).unwrap().into_iter().map(|failed| failed.reason).collect();
    assert_eq!(reasons, ["reason 4", "reason 3", "reason 2"]);
}
