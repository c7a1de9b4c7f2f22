//! What honest programs do is not denied.

use std::fmt::Write as _;

use redoma_model::policy::{Example, ExampleLanguage, PolicySettings};
use redoma_policy::Policy;
use redoma_policy::facts::Language;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Programs {
    program: Vec<Program>,
}

#[derive(Deserialize)]
struct Program {
    what: String,
    #[serde(flatten)]
    example: Example,
}

#[test]
fn honest_programs_are_not_denied() {
    let programs: Programs = toml::from_str(include_str!("honest.toml")).unwrap();
    assert!(programs.program.len() >= 60, "{}", programs.program.len());
    let policy = Policy::compile(&PolicySettings::default(), None).unwrap();
    let mut denied = String::new();
    for Program { what, example } in programs.program {
        let language = match example.language {
            ExampleLanguage::Python => Language::Python,
            ExampleLanguage::JavaScript => Language::JavaScript,
            ExampleLanguage::TypeScript => Language::TypeScript,
            ExampleLanguage::Bash => Language::Bash,
        };
        let verdict = policy.check(language, &example.code);
        if verdict.is_denied() || verdict.findings.iter().any(|finding| finding.rule == "not-readable") {
            let _ = writeln!(denied, "{what} ({language:?}): {:?}\n{}", verdict.findings, verdict.message());
        }
    }
    assert!(denied.is_empty(), "\n{denied}");
}
