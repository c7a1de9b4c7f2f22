use redoma_model::{ByteSize, Span};

use super::*;

const NOON: i64 = 20_000 * DAY + DAY / 2;

fn at(seconds: u64) -> Now {
    Now { running: Duration::from_secs(seconds), unix: NOON + i64::try_from(seconds).unwrap() }
}

fn user(name: &str) -> Who {
    Who::User(Owner { client: "chat".to_owned(), user: Some(name.to_owned()) })
}

fn executions(rate: &str) -> Allowance {
    Allowance { executions: Some(rate.parse().unwrap()), ..Allowance::default() }
}

fn count(ledger: &mut Ledger, claims: &[(Who, Allowance)], now: Now) -> usize {
    (0..1000).take_while(|_| ledger.take(claims, Wanted::Execution, now).is_ok()).count()
}

#[test]
fn the_tightest_of_all_counts_and_a_refusal_takes_nothing() {
    let mut ledger = Ledger::new(100, at(0));
    let address = Who::Address(Network::of_one([10, 0, 0, 1].into()));
    let claims = [(user("a"), executions("3/m")), (address.clone(), executions("5/m"))];
    assert_eq!(count(&mut ledger, &claims, at(0)), 3);
    let (refused, standing) = ledger.take(&claims, Wanted::Execution, at(0)).unwrap_err();
    assert_eq!((refused.kind, refused.retry_in), ("user", Duration::from_secs(20)));
    assert_eq!(standing.unwrap(), Standing { limit: 3, left: 0, reset: 60 });
    let other = [(user("b"), executions("3/m")), (address, executions("5/m"))];
    assert_eq!(count(&mut ledger, &other, at(0)), 2, "what was refused did not count for the address");
    let (refused, _) = ledger.take(&other, Wanted::Execution, at(0)).unwrap_err();
    assert_eq!(refused.kind, "address");
}

#[test]
fn what_is_over_makes_room_for_the_next() {
    let mut ledger = Ledger::new(100, at(0));
    let claims =
        [(user("a"), Allowance { concurrency: std::num::NonZeroUsize::new(2), ..Allowance::default() })];
    assert_eq!(count(&mut ledger, &claims, at(0)), 2);
    ledger.end(&claims, Wanted::Execution);
    assert_eq!(count(&mut ledger, &claims, at(0)), 1);
    assert!(ledger.take(&claims, Wanted::Upload, at(0)).is_ok(), "an upload is no program");
}

#[test]
fn a_days_worth_is_used_up_until_midnight() {
    let mut ledger = Ledger::new(100, at(0));
    let allowance = Allowance {
        cpu_per_day: Some(Span::secs(60)),
        bytes_per_day: Some(ByteSize::kib(1)),
        ..Allowance::default()
    };
    let claims = [(user("a"), allowance)];
    ledger.take(&claims, Wanted::Execution, at(0)).unwrap();
    ledger.charge(&claims, Duration::from_secs(61), 10, at(1));
    let (refused, _) = ledger.take(&claims, Wanted::Execution, at(1)).unwrap_err();
    assert_eq!(refused.limit, Limit::CpuPerDay(Span::secs(60)));
    assert_eq!(refused.retry_in, Duration::from_secs(86_400 / 2 - 1));
    assert!(ledger.take(&claims, Wanted::Upload, at(1)).is_ok());
    ledger.charge(&claims, Duration::ZERO, 1014, at(1));
    assert!(ledger.beyond_bytes(&claims, at(1)).is_none(), "just as much as it may");
    assert!(ledger.take(&claims, Wanted::Upload, at(1)).is_err());
    ledger.charge(&claims, Duration::ZERO, 1, at(1));
    assert!(ledger.beyond_bytes(&claims, at(1)).is_some());
    assert!(ledger.take(&claims, Wanted::Execution, at(86_400 / 2 + 1)).is_ok(), "it is tomorrow");
}

#[test]
fn a_clock_that_is_set_neither_forgets_nor_locks_out() {
    let claims = [(user("a"), Allowance { cpu_per_day: Some(Span::secs(60)), ..executions("2/m") })];
    let mut ledger = Ledger::new(100, at(0));
    assert_eq!(count(&mut ledger, &claims, at(0)), 2);
    ledger.charge(&claims, Duration::from_secs(61), 0, at(0));
    let shown = |running: u64, unix: i64| Now { running: Duration::from_secs(running), unix };
    // Set back by two days: what was used is still used, and no later than at the next midnight that it shows it is not.
    let back = NOON - 2 * DAY;
    assert!(ledger.take(&claims, Wanted::Execution, shown(60, back)).is_err());
    assert!(ledger.take(&claims, Wanted::Execution, shown(60, back + DAY)).is_ok());
    // Buckets don't look at it at all.
    assert_eq!(count(&mut ledger, &claims, shown(60, back + 3 * DAY)), 1);
    assert_eq!(count(&mut ledger, &claims, shown(61, back + 900 * DAY)), 0);
    assert_eq!(count(&mut ledger, &claims, shown(200, back - 900 * DAY)), 2);
}

#[test]
fn nobody_gets_rid_of_what_they_used_by_making_up_others() {
    let mut ledger = Ledger::new(50, at(0));
    let own = [(user("a"), executions("2/h"))];
    assert_eq!(count(&mut ledger, &own, at(0)), 2);
    let mut taken = Vec::new();
    for number in 0..1000 {
        let claims = [(user(&format!("made-up-{number}")), executions("2/h"))];
        taken.extend(ledger.take(&claims, Wanted::Execution, at(1)).map(|(resolved, _)| resolved));
    }
    assert_eq!(taken.len(), 49 + 2, "those for whom there is no room share one account");
    assert!(ledger.len() <= 51, "{}", ledger.len());
    assert!(ledger.take(&own, Wanted::Execution, at(1)).is_err());
    // Those of another client are not counted with them.
    let other = Who::User(Owner { client: "other".to_owned(), user: Some("z".to_owned()) });
    assert!(ledger.take(&[(other, executions("2/h"))], Wanted::Execution, at(2)).is_ok());
    // And when all of them are over, there is room again.
    let own = [(user("new"), executions("2/h"))];
    for claims in &taken {
        ledger.end(claims, Wanted::Execution);
    }
    for _ in 0..2 {
        ledger.end(&[(user("a"), Allowance::default())], Wanted::Execution);
    }
    assert_eq!(count(&mut ledger, &own, at(7300)), 2);
    assert!(ledger.len() < 10, "{}", ledger.len());
}

#[test]
fn what_was_used_survives_a_restart() {
    let allowance = Allowance { cpu_per_day: Some(Span::secs(60)), ..executions("10/d") };
    let claims = [(user("a"), allowance), (Who::Address("10.0.0.1".parse().unwrap()), executions("5/s"))];
    let mut ledger = Ledger::new(100, at(0));
    for _ in 0..5 {
        ledger.take(&claims, Wanted::Execution, at(0)).unwrap();
    }
    ledger.charge(&claims[..1], Duration::from_secs(50), 7, at(0));
    let text = serde_json::to_string(&ledger.save(at(0))).unwrap();
    let restarted = Now { running: Duration::ZERO, unix: NOON + 60 };
    let mut ledger = Ledger::new(100, restarted);
    ledger.load(serde_json::from_str(&text).unwrap(), restarted);
    ledger.charge(&claims[..1], Duration::from_secs(9), 0, restarted);
    assert_eq!(count(&mut ledger, &claims[..1], restarted), 5);
    ledger.charge(&claims[..1], Duration::from_secs(1), 0, restarted);
    let (refused, _) = ledger.take(&claims[..1], Wanted::Execution, restarted).unwrap_err();
    assert!(matches!(refused.limit, Limit::CpuPerDay(_)), "{refused:?}");
    assert_eq!(count(&mut ledger, &claims[1..], restarted), 5, "what has come back meanwhile is not missing");
    let tomorrow = Now { running: Duration::ZERO, unix: NOON + DAY };
    let mut ledger = Ledger::new(100, tomorrow);
    ledger.load(serde_json::from_str(&text).unwrap(), tomorrow);
    assert!(ledger.take(&claims, Wanted::Execution, tomorrow).is_ok());
}
