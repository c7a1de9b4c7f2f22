//! Nobody changes what was written without `verify` telling.

use std::collections::BTreeSet;

use redoma_model::Retention;
use redoma_model::Span;

use super::*;

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| {
        let is_segment = path.extension().is_some_and(|extension| extension == "jsonl");
        is_segment || path.ends_with("head") || path.ends_with("pruned")
    });
    files.sort();
    files
}

fn segments(folder: &Path) -> Vec<PathBuf> {
    files(folder).into_iter().filter(|path| path.extension().is_some()).collect()
}

fn lines(path: &Path) -> Vec<Vec<u8>> {
    fs::read(path).unwrap().split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

/// An audit some of whose segments were removed for their age.
fn pruned() -> TempDir {
    let folder = folder();
    let keep = AuditSettings { retention: Retention::For(Span::millis(1)), ..small_segments(1500) };
    let audit = Audit::open(folder.path(), keep).unwrap();
    for number in 1..=8 {
        audit.append(&ended("ana", number)).unwrap();
    }
    std::thread::sleep(Duration::from_millis(5));
    // It may have been done already, by itself.
    audit.prune().unwrap();
    assert!(!segment::path(folder.path(), 2).exists());
    audit.append(&admin("ana", "last")).unwrap();
    drop(audit);
    assert!(folder.path().join("pruned").exists());
    folder
}

#[test]
fn a_whole_audit_is_sound_with_the_key_and_without() {
    for original in [example(), pruned()] {
        let found = sound(original.path());
        assert!(found.is_keyed && found.segments >= 2 && found.records >= 3, "{found:?}");
        fs::remove_file(original.path().join("key")).unwrap();
        assert_eq!(sound(original.path()), Sound { is_keyed: false, ..found });
    }
}

/// One bit of every byte of every file: the lowest, or the one that turns small letters into capitals. Without the key
/// every seventh, and `seal.rs` tries every bit of a line.
#[test]
fn every_changed_byte_is_found() {
    for (original, keyed, step) in [(example(), true, 1), (pruned(), true, 3), (pruned(), false, 7)] {
        let copy = copy(original.path());
        if !keyed {
            fs::remove_file(copy.path().join("key")).unwrap();
        }
        sound(copy.path());
        for path in files(copy.path()) {
            let whole = fs::read(&path).unwrap();
            let is_note = path.extension().is_none();
            for at in (0..whole.len()).step_by(if is_note { 1 } else { step }) {
                let mut changed = whole.clone();
                changed[at] ^= if at % 2 == 0 { 0x01 } else { 0x20 };
                fs::write(&path, &changed).unwrap();
                assert!(!flaws(copy.path()).is_empty(), "{} byte {at}, keyed {keyed}", path.display());
            }
            fs::write(&path, whole).unwrap();
        }
        sound(copy.path());
    }
}

#[test]
fn a_changed_byte_is_found_where_it_is() {
    let original = example();
    let path = segments(original.path())[1].clone();
    let mut bytes = fs::read(&path).unwrap();
    let second_line = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    bytes[second_line + 40] ^= 1;
    fs::write(&path, bytes).unwrap();
    let found = flaws(original.path());
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].file, "000000000002.jsonl");
    assert_eq!((found[0].line, found[0].offset), (Some(2), Some(second_line as u64)));
    assert!(found[0].seq.is_some());
    assert_eq!(found[0].wrong, Wrong::Edited);
}

#[test]
fn every_cut_of_the_tail_is_found() {
    let original = example();
    let copy = copy(original.path());
    let last = segments(copy.path()).pop().unwrap();
    let whole = fs::read(&last).unwrap();
    for length in 0..whole.len() {
        fs::write(&last, &whole[..length]).unwrap();
        assert!(!flaws(copy.path()).is_empty(), "cut to {length} bytes");
    }
    fs::remove_file(&last).unwrap();
    assert!(!flaws(copy.path()).is_empty(), "without the last segment");
}

#[test]
fn lines_can_not_be_dropped_repeated_or_swapped() {
    let original = example();
    for (number, path) in segments(original.path()).iter().enumerate() {
        let all = lines(path);
        let mut tries = Vec::new();
        for at in 0..all.len() {
            let mut dropped = all.clone();
            dropped.remove(at);
            let mut repeated = all.clone();
            repeated.insert(at, all[at].clone());
            tries.extend([("dropped", at, dropped), ("repeated", at, repeated)]);
            for other in at + 1..all.len() {
                let mut swapped = all.clone();
                swapped.swap(at, other);
                tries.push(("swapped", at, swapped));
            }
        }
        let copy = copy(original.path());
        let path = segments(copy.path())[number].clone();
        for (what, at, lines) in tries {
            fs::write(&path, lines.concat()).unwrap();
            assert!(!flaws(copy.path()).is_empty(), "{what} line {at} of {}", path.display());
        }
    }
}

#[test]
fn segments_can_not_be_dropped_swapped_joined_or_split() {
    let original = example();
    let all = segments(original.path());
    assert!(all.len() >= 3);
    for (at, path) in all.iter().enumerate() {
        let copy_of = copy(original.path());
        fs::remove_file(copy_of.path().join(path.file_name().unwrap())).unwrap();
        assert!(!flaws(copy_of.path()).is_empty(), "without segment {}", at + 1);
        for other in &all[at + 1..] {
            let copy_of = copy(original.path());
            fs::copy(path, copy_of.path().join(other.file_name().unwrap())).unwrap();
            fs::copy(other, copy_of.path().join(path.file_name().unwrap())).unwrap();
            assert!(!flaws(copy_of.path()).is_empty(), "segments swapped");
        }
    }
    // The last two as one.
    let copy_of = copy(original.path());
    let (last, before) = (&all[all.len() - 1], &all[all.len() - 2]);
    let joined = [fs::read(before).unwrap(), fs::read(last).unwrap()].concat();
    fs::write(copy_of.path().join(before.file_name().unwrap()), joined).unwrap();
    fs::remove_file(copy_of.path().join(last.file_name().unwrap())).unwrap();
    assert!(!flaws(copy_of.path()).is_empty());
    // The last one as two.
    let copy_of = copy(original.path());
    let parts = lines(last);
    fs::write(copy_of.path().join(last.file_name().unwrap()), &parts[0]).unwrap();
    fs::write(segment::path(copy_of.path(), all.len() as u64 + 1), parts[1..].concat()).unwrap();
    assert!(!flaws(copy_of.path()).is_empty());
    // One more, which nobody wrote.
    let copy_of = copy(original.path());
    fs::copy(last, segment::path(copy_of.path(), all.len() as u64 + 1)).unwrap();
    assert!(!flaws(copy_of.path()).is_empty());
}

/// All lines from a place on with hashes made anew, as somebody does who can write and hash, and has another key.
fn rebuild(folder: &Path, change: impl Fn(u64, String) -> Option<String>) {
    let key = AuditKey::make(self::folder().path()).unwrap();
    let mut tip = Tip::BEGINNING;
    for path in segments(folder) {
        let mut out = Vec::new();
        for line in lines(&path) {
            let record: AuditRecord = serde_json::from_slice(&line).unwrap();
            let event = serde_json::to_string(&record.event).unwrap();
            let Some(event) = change(record.seq, event) else { continue };
            let event: AuditEvent = serde_json::from_str(&event).unwrap();
            let place = seal::Place { at: record.at, seq: tip.seq + 1, prev: tip.hash };
            let hash = Body::new(&event).unwrap().place(&place, &key, &mut out);
            tip = Tip { seq: tip.seq + 1, hash };
        }
        fs::write(&path, out).unwrap();
    }
    let head::Found::Here(mut head) = head::Head::read(folder, None).unwrap() else { panic!("no head") };
    (head.tip, head.synced) = (tip, tip);
    fs::write(folder.join("head"), head.bytes(&key).unwrap()).unwrap();
}

#[test]
fn a_chain_that_was_made_anew_is_found_by_whoever_has_the_key_or_a_head() {
    let original = example();
    let head = sound(original.path()).head;
    let forge = |seq, event: String| Some(if seq == 5 { event.replace("ana", "eve") } else { event });
    let with_key = copy(original.path());
    rebuild(with_key.path(), forge);
    assert!(flaws(with_key.path()).iter().any(|flaw| flaw.wrong == Wrong::Forged));
    // Without the key it looks right: that is what the key is for.
    fs::remove_file(with_key.path().join("key")).unwrap();
    let forged = sound(with_key.path());
    assert!(!forged.is_keyed && forged.records == head.seq);
    // And a head that was written down elsewhere tells too.
    let options = || VerifyOptions { head: Some(head), ..VerifyOptions::default() };
    let Err(Unsound::Flaws(found)) = verify(with_key.path(), options()) else { panic!("not found") };
    assert_eq!(found[0].wrong, Wrong::OtherRecord(head.seq));
    verify(original.path(), options()).unwrap();
}

#[test]
fn a_head_or_an_anchor_by_somebody_without_the_key_is_found() {
    let original = example();
    let other = AuditKey::make(folder().path()).unwrap();
    let head::Found::Here(head) = head::Head::read(original.path(), None).unwrap() else { panic!("no head") };
    fs::write(original.path().join("head"), head.bytes(&other).unwrap()).unwrap();
    assert_eq!(flaws(original.path()), [Flaw::of("head", Wrong::ForgedNote)]);
    fs::remove_file(original.path().join("head")).unwrap();
    assert_eq!(flaws(original.path()), [Flaw::of("head", Wrong::NoHead)]);

    // Removing old segments and saying that it was their time takes the key.
    let original = example();
    let first = segments(original.path()).remove(0);
    let last: AuditRecord = serde_json::from_slice(lines(&first).last().unwrap()).unwrap();
    fs::remove_file(first).unwrap();
    let tip = format!("{}:{}", last.seq, last.hash).parse().unwrap();
    head::Anchor { segment: 1, tip }.write(original.path(), &other).unwrap();
    assert!(flaws(original.path()).contains(&Flaw::of("pruned", Wrong::ForgedNote)));
}

#[test]
fn what_was_removed_for_its_age_is_accepted_and_nothing_else() {
    let original = pruned();
    let found = sound(original.path());
    assert!(found.pruned_to.is_some_and(|seq| seq > 1));
    let next = segments(original.path()).remove(0);
    fs::remove_file(next).unwrap();
    assert!(!flaws(original.path()).is_empty());

    let original = pruned();
    fs::remove_file(original.path().join("pruned")).unwrap();
    assert!(
        flaws(original.path())
            .iter()
            .any(|flaw| matches!(flaw.wrong, Wrong::MissingSegments { first: 1, .. }))
    );
}

/// A crash between the note and the removal, or in the middle of it.
#[test]
fn a_removal_that_was_interrupted_is_sound_and_finished_by_the_next_start() {
    let before = example();
    let audit = Audit::open(before.path(), small_segments(1500)).unwrap();
    let key = AuditKey::read(&AuditKey::file(before.path())).unwrap().unwrap();
    let second: Vec<_> = lines(&segments(before.path())[1]);
    let last: AuditRecord = serde_json::from_slice(second.last().unwrap()).unwrap();
    let tip = format!("{}:{}", last.seq, last.hash).parse().unwrap();
    head::Anchor { segment: 2, tip }.write(before.path(), &key).unwrap();
    drop(audit);
    sound(before.path());
    fs::remove_file(&segments(before.path())[0]).unwrap();
    sound(before.path());
    drop(Audit::open(before.path(), small_segments(1500)).unwrap());
    assert!(!segment::path(before.path(), 2).exists());
    assert_eq!(sound(before.path()).pruned_to, Some(last.seq));
}

#[test]
fn what_does_not_verify_is_left_as_it_is_and_the_chain_begins_anew() {
    let original = example();
    let last = segments(original.path()).pop().unwrap();
    let mut bytes = fs::read(&last).unwrap();
    bytes[30] ^= 1;
    fs::write(&last, &bytes).unwrap();
    let audit = Audit::open(original.path(), AuditSettings::default()).unwrap();
    let FoundAudit::Broken(why) = audit.found().clone() else { panic!("{:?}", audit.found()) };
    assert!(why.contains("line 1") && why.contains("changed"), "{why}");
    audit.append(&admin("ana", "after")).unwrap();
    drop(audit);
    assert_eq!(fs::read(&last).unwrap(), bytes);
    let found = flaws(original.path());
    assert!(found.iter().any(|flaw| flaw.wrong == Wrong::Edited));
    assert!(
        found.iter().any(|flaw| matches!(&flaw.wrong, Wrong::Broken(text) if *text == why)),
        "{found:#?}"
    );
    let files: BTreeSet<_> = found.iter().map(|flaw| flaw.file.as_str()).collect();
    assert_eq!(files.len(), 2, "only what was changed, and the new beginning: {found:#?}");
    // It goes on from there without another beginning.
    let audit = Audit::open(original.path(), AuditSettings::default()).unwrap();
    assert_eq!(*audit.found(), FoundAudit::Sound);
}

#[test]
fn a_cut_tail_is_told_when_the_server_starts() {
    let original = example();
    let last = segments(original.path()).pop().unwrap();
    let mut all = lines(&last);
    all.pop();
    fs::write(&last, all.concat()).unwrap();
    let audit = Audit::open(original.path(), AuditSettings::default()).unwrap();
    let FoundAudit::Broken(why) = audit.found() else { panic!("{:?}", audit.found()) };
    assert!(why.contains("cut"), "{why}");

    let original = example();
    for path in segments(original.path()) {
        fs::remove_file(path).unwrap();
    }
    let audit = Audit::open(original.path(), AuditSettings::default()).unwrap();
    assert!(matches!(audit.found(), FoundAudit::Broken(_)), "{:?}", audit.found());
    drop(audit);
    assert!(!flaws(original.path()).is_empty());
}

/// Two continuations of one audit, both made with its key: a line of one has its place in the other, and does not follow.
#[test]
fn a_line_of_another_chain_does_not_fit() {
    let original = folder();
    drop(Audit::open(original.path(), AuditSettings::default()).unwrap());
    let other = copy(original.path());
    for (folder, what) in [(original.path(), "one"), (other.path(), "two")] {
        let audit = Audit::open(folder, AuditSettings::default()).unwrap();
        audit.append(&admin("ana", what)).unwrap();
        audit.append(&admin("ana", "the same")).unwrap();
    }
    let path = segment::path(original.path(), 1);
    let mut mixed = lines(&path);
    mixed[1] = lines(&segment::path(other.path(), 1))[1].clone();
    fs::write(&path, mixed.concat()).unwrap();
    let found = flaws(original.path());
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!((found[0].line, &found[0].wrong), (Some(3), &Wrong::NotFollowing));
}

/// An index that knows of no terms hides its segment's records from whoever looks for them.
#[test]
fn an_index_that_leaves_records_out_is_found() {
    let original = example();
    let first = index::SegmentIndex::scan(original.path(), 1).unwrap();
    let mut doctored = index::SegmentIndex::new(1);
    doctored.add(1, 0, &Terms::default(), 0, first.end());
    doctored.save(original.path()).unwrap();
    assert_eq!(
        query_folder(
            original.path(),
            &AuditQuery { user: Some("ana".to_owned()), limit: 1, ..AuditQuery::default() }
        )
        .unwrap()
        .first()
        .map(|record| record.seq > 2),
        Some(true),
        "it does hide them"
    );
    let found = flaws(original.path());
    assert!(found.iter().any(|flaw| flaw.wrong == Wrong::OtherIndex), "{found:#?}");
    first.save(original.path()).unwrap();
    sound(original.path());
}
