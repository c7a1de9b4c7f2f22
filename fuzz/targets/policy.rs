//! Programs in all languages, through their readers and the shipped rules. The first byte says which language.

#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use redoma_model::PolicySettings;
use redoma_policy::facts::Language;
use redoma_policy::{Policy, javascript, python, shell};

fn policy() -> &'static Policy {
    static POLICY: OnceLock<Policy> = OnceLock::new();
    POLICY.get_or_init(|| {
        // A panic that a reader catches is none; one that comes out of it ends the fuzzer.
        std::panic::set_hook(Box::new(|_| {}));
        let libraries = ["numpy".to_owned()];
        Policy::compile(&PolicySettings::default(), Some(&libraries)).expect("what is shipped compiles")
    })
}

fuzz_target!(|data: &[u8]| {
    let policy = policy();
    let Some((language, code)) = data.split_first() else { return };
    let code = String::from_utf8_lossy(code);
    // Not through `redoma_policy::read`, which would hide a panic.
    let facts = match language % 4 {
        0 => python::read(&code),
        1 => javascript::read(&code, Language::JavaScript),
        2 => javascript::read(&code, Language::TypeScript),
        _ => shell::read(&code),
    };
    let verdict = policy.judge(&facts, &code, |_| false);
    let _ = verdict.message();
});
