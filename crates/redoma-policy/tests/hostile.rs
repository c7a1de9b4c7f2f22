//! Text that was written to break a reader: nothing panics, overflows the stack, or takes long.
//!
//! Time is bounded generously, since tests run beside others and without optimisation: what these find is growth that is
//! worse than linear, which turns these sizes into minutes.

#![expect(clippy::unwrap_used, reason = "tests end where something is not as expected")]

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use redoma_model::policy::PolicySettings;
use redoma_policy::Policy;
use redoma_policy::facts::Language;

const LANGUAGES: [Language; 4] =
    [Language::Bash, Language::Python, Language::JavaScript, Language::TypeScript];
const LONGEST: Duration = Duration::from_mins(1);

/// Checks a text on a thread with little stack, and waits for it no longer than it may take.
fn survive(what: &str, language: Language, code: String) {
    let (done, waiting) = mpsc::channel();
    let start = Instant::now();
    let thread = thread::Builder::new()
        .stack_size(512 << 10)
        .spawn(move || {
            let policy = Policy::compile(&PolicySettings::default(), None).unwrap();
            let verdict = policy.check(language, &code);
            assert!(verdict.findings.len() <= 50);
            let _ = verdict.message();
            done.send(()).unwrap();
        })
        .unwrap();
    let result = waiting.recv_timeout(LONGEST);
    assert!(result.is_ok(), "{what} in {language:?}: {:?} after {:?}", result, start.elapsed());
    thread.join().unwrap();
}

#[test]
fn deep_nesting_ends() {
    const DEPTH: usize = 100_000;
    let pieces = [
        "(",
        "((",
        "{ ",
        "[",
        "[[",
        "$(",
        "`",
        "\"",
        "'",
        "${x:-",
        "${",
        "$((",
        "<(",
        "<<A\n",
        "if ",
        "while ",
        "case x in ",
        "f() ",
        "\\",
        "\"$(",
        "$'",
        "a[",
        "!",
        "! ",
        "time ",
        "sudo ",
        "eval ",
        "{a,",
        "{{",
        "function f ",
        "&&",
        "|",
        ";",
        "coproc ",
        "x=(",
        "not ",
        "lambda: ",
        "-",
        "~",
        "f'{",
        "a.b",
        "a(",
        "a if b else ",
        "x = ",
        "await ",
        "a?",
        "a=>",
        "<a>",
        "`${",
        "/",
        "async ",
        "new ",
        "typeof ",
        "class A extends ",
        "import(",
        "1+",
        "1**",
        "a,",
        "a and ",
        "else if(1)",
        "elif x:\n",
        "@",
        "a<b<",
        "\u{0}",
    ];
    for piece in pieces {
        let code = piece.repeat(DEPTH / piece.len().max(1));
        for language in LANGUAGES {
            survive(piece, language, code.clone());
        }
    }
}

#[test]
fn nested_and_closed_ends() {
    const DEPTH: usize = 20_000;
    for (open, close) in
        [("(", ")"), ("{ ", "; }"), ("$(", ")"), ("[", "]"), ("\"$(", ")\""), ("${x:-", "}"), ("`${", "}`")]
    {
        let code = format!("{}a{}", open.repeat(DEPTH), close.repeat(DEPTH));
        for language in LANGUAGES {
            survive(open, language, code.clone());
        }
    }
}

#[test]
fn much_of_the_same_ends() {
    const SIZE: usize = 100_000;
    for piece in [
        "rm -rf /\n",
        "a; ",
        "a && ",
        "a | ",
        "a &\n",
        "$((a \"((((\" ) )\n",
        "@(a)",
        "a[1]=b ",
        "x=$x$x\n",
        "{1,2}",
        "<<E ",
        "cat <<E\nE\n",
        "$x",
        "\\\n",
        "#\n",
        "sh -c 'sh -c a'\n",
        "eval a\n",
        "a b ",
        "\"a\" ",
        "`a` ",
        "<(a) ",
        "> a ",
        "f() { a; }\n",
        "for x in a; do b; done\n",
        "x = 1\n",
        "x(1)\n",
        "import a\n",
        "os.system('a')\n",
        "x += x\n",
        "a.b.c()\n",
        "require('a');\n",
        "eval('1');\n",
        "\r",
        "\t",
        "é",
    ] {
        let code = piece.repeat(SIZE / piece.len());
        for language in LANGUAGES {
            survive(piece, language, code.clone());
        }
    }
}

#[test]
fn what_unfolds_does_not_unfold_for_ever() {
    let doubled = (0..60).map(|n| format!("a{}=$a{n}$a{n}", n + 1)).collect::<Vec<_>>().join("\n");
    survive("doubling", Language::Bash, format!("a0=xxxxxxxx\n{doubled}\neval $a60; $a60"));
    survive("braces", Language::Bash, format!("echo {}", "{a,b}".repeat(40)));
    survive(
        "a long list, often",
        Language::Bash,
        format!("x=\"{}\"\n{}", "a ".repeat(20_000), "rm $x\n".repeat(20_000)),
    );
    survive(
        "a long program, often",
        Language::Bash,
        format!("x='{}'\n{}", "a;".repeat(20_000), "eval \"$x\"\n".repeat(20_000)),
    );
    survive(
        "a quine",
        Language::Bash,
        "x='x=\"$x\"; eval \"$x\"; eval \"$x\"'; eval \"x='$x'; $x\"; sh -c \"$x\"".to_owned(),
    );
    let nested = (0..14).fold("rm -rf /".to_owned(), |code, _| format!("sh -c {}", quoted(&code)));
    survive("shells in shells", Language::Bash, nested);
    survive(
        "loops in loops",
        Language::Bash,
        format!("{}$a{}", "for a in a b c d e f g h; do ".repeat(30), "; done".repeat(30)),
    );
    let doubled = (0..60).map(|n| format!("a{} = a{n} + a{n}", n + 1)).collect::<Vec<_>>().join("\n");
    survive(
        "doubling",
        Language::Python,
        format!("import os\na0 = 'x' * 8\n{doubled}\nos.system(a60)\nexec(a60)"),
    );
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[test]
fn bytes_that_are_no_text_are_read_all_the_same() {
    let mut numbers = Numbers(7);
    for _ in 0..200 {
        let bytes: Vec<u8> = (0..400).map(|_| numbers.next_byte()).collect();
        for language in LANGUAGES {
            let policy = Policy::compile(&PolicySettings::default(), None).unwrap();
            policy.check(language, &String::from_utf8_lossy(&bytes));
        }
    }
}

/// What makes trouble in the middle of something.
const SPICES: [&str; 24] = [
    "$(", ")", "`", "\"", "'", "${", "}", "<<E\n", "\n", "\\", "((", "))", "{", "&", "|", ";", "\u{0}", "é",
    "𝄞", "[[", "]]", "case", "esac", "=(",
];

/// Programs that are cut, doubled, mixed and written over, always in the same way.
#[test]
fn changed_programs_are_read_all_the_same() {
    #[derive(serde::Deserialize)]
    struct Programs {
        #[serde(alias = "evasion")]
        program: Vec<Program>,
    }
    #[derive(serde::Deserialize)]
    struct Program {
        code: String,
    }
    let mut seeds: Vec<String> = Vec::new();
    for text in [include_str!("honest.toml"), include_str!("evasions.toml")] {
        let programs: Programs = toml::from_str(text).unwrap();
        seeds.extend(programs.program.into_iter().map(|program| program.code));
    }
    let mut numbers = Numbers(42);
    let policy = Policy::compile(&PolicySettings::default(), None).unwrap();
    for round in 0..6000 {
        let mut code = seeds[numbers.below(seeds.len())].clone();
        for _ in 0..=numbers.below(4) {
            let at = code.floor_char_boundary(numbers.below(code.len() + 1));
            match numbers.below(5) {
                0 => code.truncate(at),
                1 => code.insert_str(at, SPICES[numbers.below(SPICES.len())]),
                2 => code.insert_str(at, &seeds[numbers.below(seeds.len())]),
                3 => {
                    let end = code.floor_char_boundary((at + numbers.below(12)).min(code.len()));
                    code.replace_range(at..end, "");
                }
                _ => code = code[at..].repeat(1 + numbers.below(3)),
            }
        }
        policy.check(LANGUAGES[round % LANGUAGES.len()], &code);
    }
}

/// A small generator: the same numbers every time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).unwrap()
    }

    fn next_byte(&mut self) -> u8 {
        self.next().to_le_bytes()[3]
    }
}

/// Texts that somebody found who wanted the server's end.
#[test]
fn what_once_overflowed_the_stack_does_not() {
    let texts = [
        (Language::Python, format!(";{}1", "-".repeat(50_000))),
        (Language::Python, format!("exec(';{}1')", "-".repeat(20_000))),
        (Language::Python, format!("/{}", "t'{f'{a:{{**".repeat(2000))),
        (Language::JavaScript, "class extends a,".repeat(6000)),
        (Language::TypeScript, "class extends a,".repeat(6000)),
        (Language::Python, "lambda\n\u{a0}?a\n".to_owned()),
        (Language::Python, "lambda\n\u{feff}?a\n".to_owned()),
    ];
    for (language, text) in texts {
        let reader = thread::Builder::new().stack_size(512 << 10);
        reader.spawn(move || redoma_policy::read(language, &text)).unwrap().join().unwrap();
    }
}
