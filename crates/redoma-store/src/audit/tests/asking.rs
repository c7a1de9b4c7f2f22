//! Finding records again.

use std::time::Duration;

use redoma_model::{AuditKind, Retention, Span};

use super::*;

fn seqs(records: &[AuditRecord]) -> Vec<u64> {
    records.iter().map(|record| record.seq).collect()
}

#[test]
fn what_was_appended_is_found_at_once_and_after_a_restart() {
    let folder = folder();
    let audit = Audit::open(folder.path(), small_segments(4000)).unwrap();
    for number in 0..50 {
        let user = if number % 5 == 0 { "ben" } else { "ana" };
        audit.append(&started(&audit, user, number)).unwrap();
        audit.append(&ended(user, number)).unwrap();
        let query = AuditQuery { execution: Some(ExecutionId::from_random([number; 21])), ..all() };
        let found = audit.query(&query).unwrap();
        let kinds: Vec<_> = found.iter().map(|record| record.event.kind()).collect();
        assert_eq!(kinds, [AuditKind::ExecutionStarted, AuditKind::ExecutionEnded]);
    }
    let check = |ask: &dyn Fn(&AuditQuery) -> Vec<AuditRecord>| {
        let everything = ask(&all());
        assert!(everything.windows(2).all(|pair| pair[0].seq + 1 == pair[1].seq));
        let backwards = ask(&AuditQuery { newest_first: true, ..all() });
        assert!(backwards.iter().rev().eq(everything.iter()));
        for query in [
            AuditQuery { user: Some("ben".to_owned()), ..all() },
            AuditQuery { client: Some("chat".to_owned()), user: Some("ana".to_owned()), ..all() },
            AuditQuery { session: Some(SessionId::from_random([2; 21])), ..all() },
            AuditQuery { kinds: vec![AuditKind::Segment, AuditKind::ExecutionEnded], ..all() },
            AuditQuery { after: Some(50), limit: 10, ..all() },
            AuditQuery { after: Some(50), limit: 10, newest_first: true, ..all() },
            AuditQuery { user: Some("nobody".to_owned()), ..all() },
            AuditQuery { until: Some(0), ..all() },
            AuditQuery { since: Some(0), limit: 3, ..all() },
        ] {
            let mut expected: Vec<_> =
                everything.iter().filter(|record| query.matches(record)).cloned().collect();
            if query.newest_first {
                expected.reverse();
            }
            expected.truncate(query.limit);
            assert_eq!(seqs(&ask(&query)), seqs(&expected), "{query:?}");
        }
        everything.len()
    };
    let count = check(&|query| audit.query(query).unwrap());
    assert!(count > 100 && sound(folder.path()).records == count as u64);
    // Beside it, as `redoma audit` does.
    check(&|query| query_folder(folder.path(), query).unwrap());
    drop(audit);
    let audit = Audit::open(folder.path(), small_segments(4000)).unwrap();
    assert_eq!((check(&|query| audit.query(query).unwrap()), audit.lag()), (count, 0));
    // And without any index, or with damaged ones.
    for entry in fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "index") {
            fs::write(path, b"nonsense").unwrap();
        }
    }
    check(&|query| audit.query(query).unwrap());
}

#[test]
fn hostile_names_come_back_as_they_were_and_stay_on_one_line() {
    let folder = folder();
    let audit = Audit::open(folder.path(), AuditSettings::default()).unwrap();
    let names =
        ["a\nb", "\"},\"seq\":1,\"prev\":\"", "\u{202e}txt.exe", "\u{0}\u{7f}\u{2028}", "=cmd()", "\\", "é𝒳"];
    for name in names {
        audit.append(&admin(name, name)).unwrap();
    }
    for name in names {
        let found = audit.query(&AuditQuery { user: Some(name.to_owned()), ..all() }).unwrap();
        assert_eq!(found.len(), 1, "{name:?}");
        assert_eq!(found[0].event, admin(name, name));
    }
    drop(audit);
    let text = fs::read_to_string(segment::path(folder.path(), 1)).unwrap();
    assert_eq!(text.lines().count(), names.len() + 1);
    let records = query_folder(folder.path(), &all()).unwrap();
    assert!(text.lines().eq(records.iter().map(as_written)), "what is given out is what was written");
    sound(folder.path());
}

#[test]
fn who_watches_sees_what_comes_and_is_told_what_they_missed() {
    let folder = folder();
    let audit = Audit::open(folder.path(), AuditSettings::default()).unwrap();
    audit.append(&admin("ana", "before")).unwrap();
    while audit.lag() > 0 {
        std::thread::yield_now();
    }
    let watching = audit.subscribe(AuditQuery { user: Some("ana".to_owned()), ..AuditQuery::default() });
    audit.append(&admin("ben", "not theirs")).unwrap();
    audit.append(&admin("ana", "theirs")).unwrap();
    match watching.next(Duration::from_secs(5)) {
        Ok(Some(AuditNews::Record(record))) => assert_eq!(record.event, admin("ana", "theirs")),
        other => panic!("{other:?}"),
    }
    assert_eq!(watching.next(Duration::from_millis(1)), Ok(None));
    // Too much for somebody who does not look.
    for _ in 0..6000 {
        audit.append(&admin("ana", "flood")).unwrap();
    }
    while audit.lag() > 0 {
        std::thread::yield_now();
    }
    let mut seen = 0;
    while let Ok(Some(AuditNews::Record(_))) = watching.next(Duration::from_millis(100)) {
        seen += 1;
    }
    audit.append(&admin("ana", "again")).unwrap();
    assert_eq!(watching.next(Duration::from_secs(5)), Ok(Some(AuditNews::Missed(6000 - seen))));
    assert!(matches!(watching.next(Duration::from_secs(5)), Ok(Some(AuditNews::Record(_)))));
    drop(audit);
    assert_eq!(watching.next(Duration::from_secs(5)), Err(AuditClosed));
}

#[test]
fn a_follower_beside_the_server_sees_every_record_once() {
    let folder = folder();
    let audit = Audit::open(folder.path(), small_segments(3000)).unwrap();
    for number in 0..10 {
        audit.append(&ended("ana", number)).unwrap();
    }
    let head = audit.head().seq;
    let mut follower = AuditFollower::after(folder.path(), head).unwrap();
    assert_eq!(follower.new_records().unwrap(), []);
    let mut seen = Vec::new();
    for number in 0..40 {
        audit.append(&ended("ana", number)).unwrap();
        if number % 7 == 0 {
            seen.extend(follower.new_records().unwrap());
        }
    }
    seen.extend(follower.new_records().unwrap());
    assert_eq!(seqs(&seen), (head + 1..=audit.head().seq).collect::<Vec<_>>());
}

#[test]
fn old_records_go_and_new_ones_stay() {
    let folder = folder();
    let keep = |retention| AuditSettings { retention, ..small_segments(2000) };
    let audit = Audit::open(folder.path(), keep(Retention::For(Span::secs(3600)))).unwrap();
    for number in 0..20 {
        audit.append(&ended("ana", number)).unwrap();
    }
    assert_eq!(audit.prune().unwrap(), 0, "they are minutes old at most");
    drop(audit);
    let audit = Audit::open(folder.path(), keep(Retention::Forever)).unwrap();
    assert_eq!(audit.prune().unwrap(), 0);
    drop(audit);
    let before = sound(folder.path());
    std::thread::sleep(Duration::from_millis(5));
    // By itself, at the start.
    let audit = Audit::open(folder.path(), keep(Retention::For(Span::millis(1)))).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while segment::path(folder.path(), 1).exists() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
    let left = audit.query(&all()).unwrap();
    assert!((left.len() as u64) < before.records);
    assert!(left.iter().any(|record| record.event.kind() == AuditKind::Pruned));
    drop(audit);
    sound(folder.path());
}

#[test]
fn code_is_kept_as_the_settings_say() {
    let folder = folder();
    let open = |settings| Audit::open(folder.path(), settings).unwrap();
    let text = "password = 'hunter22'\nprint('é')";
    let hashed = open(AuditSettings::default());
    let code = hashed.code(text);
    assert_eq!((code.text, code.bytes, code.sha256.len()), (None, text.len() as u64, 64));
    assert_eq!(hashed.output(text), None);
    drop(hashed);
    let settings =
        AuditSettings { code: KeptCode::Text, output: KeptOutput::Text, ..AuditSettings::default() };
    let kept = open(AuditSettings { code_limit: ByteSize(12), ..settings.clone() });
    assert_eq!(kept.code(text).text.as_deref(), Some("password = '"));
    assert!(kept.code(text).cut);
    assert_eq!(kept.output(text).as_deref(), Some("password = '[masked]'\nprint('é')"));
    drop(kept);
    assert_eq!(open(AuditSettings { mask: false, ..settings }).code(text).text.as_deref(), Some(text));
}
