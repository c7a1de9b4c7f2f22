//! What becomes of each known way to write the forbidden things, exactly as the documentation says.

#![expect(clippy::unwrap_used, reason = "tests end where something is not as expected")]

use std::fmt::Write as _;

use redoma_model::policy::{Action, Class, ExampleLanguage, PolicySettings};
use redoma_policy::facts::Language;
use redoma_policy::{Policy, Verdict};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Evasions {
    evasion: Vec<Evasion>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Evasion {
    /// How it hides.
    how: String,
    language: ExampleLanguage,
    code: String,
    expect: Expected,
    class: Option<Class>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Expected {
    Caught,
    Opaque,
    Jail,
}

fn evasions() -> Vec<Evasion> {
    let file: Evasions = toml::from_str(include_str!("evasions.toml")).unwrap();
    file.evasion
}

fn language(language: ExampleLanguage) -> Language {
    match language {
        ExampleLanguage::Python => Language::Python,
        ExampleLanguage::JavaScript => Language::JavaScript,
        ExampleLanguage::TypeScript => Language::TypeScript,
        ExampleLanguage::Bash => Language::Bash,
    }
}

fn became(verdict: &Verdict) -> Expected {
    if verdict.action == Action::Deny {
        Expected::Caught
    } else if verdict.findings.iter().any(|finding| finding.class == Class::Opaque) {
        Expected::Opaque
    } else {
        Expected::Jail
    }
}

#[test]
fn each_evasion_is_caught_opaque_or_the_jails_as_it_is_written() {
    let policy = Policy::compile(&PolicySettings::default(), None).unwrap();
    let mut wrong = String::new();
    for evasion in evasions() {
        let verdict = policy.check(language(evasion.language), &evasion.code);
        let became = became(&verdict);
        let by_class = || {
            verdict
                .findings
                .iter()
                .any(|found| Some(found.class) == evasion.class && found.action == Action::Deny)
        };
        if became != evasion.expect || became == Expected::Caught && !by_class() {
            let rules: Vec<_> = verdict.findings.iter().map(|found| found.rule.as_str()).collect();
            let _ = writeln!(
                wrong,
                "{:?} {}: expected {:?} {:?}, became {became:?} {rules:?}\n    {:?}",
                evasion.language, evasion.how, evasion.expect, evasion.class, evasion.code
            );
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn there_are_enough_of_them() {
    assert!(evasions().len() >= 120, "{}", evasions().len());
}

const START: &str = "<!-- the table of evasions, written by tests/evasion.rs -->\n";
const END: &str = "<!-- end of the table -->\n";

/// Run with `REDOMA_UPDATE_GOLDEN=1` to write the table anew.
#[test]
fn the_documentation_shows_what_becomes_of_each() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/policy.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once(START).expect("the page has the start of the table");
    let (shown, after) = rest.split_once(END).expect("the page has the end of the table");
    let table = table(&evasions());
    if std::env::var_os("REDOMA_UPDATE_GOLDEN").is_some() {
        std::fs::write(path, format!("{before}{START}{table}{END}{after}")).unwrap();
    } else {
        assert!(
            shown == table,
            "docs/policy.md is not up to date; run this test with REDOMA_UPDATE_GOLDEN=1"
        );
    }
}

fn table(evasions: &[Evasion]) -> String {
    let count = |expected| evasions.iter().filter(|evasion| evasion.expect == expected).count();
    let mut text = format!(
        "\n{} ways: {} caught, {} noted as not readable, {} that only the jail stops.\n\n",
        evasions.len(),
        count(Expected::Caught),
        count(Expected::Opaque),
        count(Expected::Jail)
    );
    text.push_str("| language | how it hides | code | what becomes of it |\n|---|---|---|---|\n");
    for evasion in evasions {
        let became = match (evasion.expect, evasion.class) {
            (Expected::Caught, Some(class)) => format!("caught: {class}"),
            (Expected::Caught, None) => "caught".to_owned(),
            (Expected::Opaque, _) => "opaque".to_owned(),
            (Expected::Jail, _) => "**jail only**".to_owned(),
        };
        let language = format!("{:?}", evasion.language);
        let _ =
            writeln!(text, "| {language} | {} | {} | {became} |", escaped(&evasion.how), code(&evasion.code));
    }
    text.push('\n');
    text
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

/// Code on one line of a table.
fn code(code: &str) -> String {
    let mut line = escaped(&code.replace('\n', " ⏎ "));
    if line.chars().count() > 90 {
        line = line.chars().take(90).collect::<String>() + "…";
        // Not in the middle of an escape.
        line = line.replace("\\…", "…");
    }
    if line.contains('`') { format!("`` {line} ``") } else { format!("`{line}`") }
}
