//! What is read out of scripts.

use crate::facts::{Command, Fact, Value, What, Why};

fn commands(code: &str) -> Vec<Command> {
    super::read(code).into_iter().filter_map(command).collect()
}

fn command(fact: Fact) -> Option<Command> {
    match fact.what {
        What::Command(command) => Some(*command),
        _ => None,
    }
}

/// Commands as a person would write them down.
fn shown(code: &str) -> Vec<String> {
    commands(code)
        .iter()
        .map(|command| {
            let words = [&command.program].into_iter().chain(&command.arguments);
            words.map(Value::shown).collect::<Vec<_>>().join(" ")
        })
        .collect()
}

fn unseen(code: &str) -> Vec<(String, Why)> {
    let opaque = |fact: Fact| match fact.what {
        What::Opaque(opaque) => Some((opaque.by, opaque.why)),
        _ => None,
    };
    super::read(code).into_iter().filter_map(opaque).collect()
}

#[test]
fn every_command_of_a_script_is_there_in_order() {
    let code = "a 1 && b || c; d | e &\nif f; then g; elif h; then i; else j; fi\nwhile k; do l; done\n\
                for x in 1; do m; done\ncase y in (p|q) n ;; *) o ;; esac\n( r ) ; { s; }\nfunction t { u; }";
    let names: String = commands(code).iter().filter_map(Command::name).filter(|name| *name != ":").collect();
    assert_eq!(names, "abcdefghijklmnorsu");
}

#[test]
fn wrappers_are_taken_off_and_are_there_themselves() {
    let found = commands("sudo -u root env -i X=1 timeout -k 3 5 rm -rf x");
    let names: Vec<_> = found.iter().filter_map(Command::name).collect();
    assert_eq!(names, ["sudo", "env", "timeout", "rm"]);
    assert_eq!(found[3].wrappers, ["sudo", "env", "timeout"]);
    assert_eq!(shown("find . -exec rm {} \\; -exec ls -l {} +").last().unwrap(), "ls -l ./…");
}

#[test]
fn pipes_tell_whose_output_is_read() {
    let found = commands("curl x | tee y | sh");
    assert_eq!(found[2].reads_from, ["curl", "tee"]);
    assert_eq!(
        commands("sh -c \"$(curl x)\"").iter().filter(|found| found.reads_from == ["curl"]).count(),
        1
    );
}

#[test]
fn redirects_tell_where_output_goes() {
    let found = commands("a > x 2>&1 <y >> z");
    let targets: Vec<_> =
        found[0].redirects.iter().map(|redirect| (redirect.is_write, redirect.to.shown())).collect();
    assert_eq!(targets, [(true, "x".into()), (false, "y".into()), (true, "z".into())]);
}

#[test]
fn words_are_what_the_shell_makes_of_them() {
    for (code, expected) in [
        ("echo 'a b' \"c $HOME\" d\\ e $'\\x41\\n'", "echo a b c /home/sandbox d e A\n"),
        ("x=1; y=$x$x; echo \"${y}2\" ${z:-3} ${y:0:1}", "echo 112 3 1"),
        ("echo {a,b{c,d}} {1..3} '{x,y}'", "echo a bc bd {1..3} {x,y}"),
        ("echo $(echo hi) `echo you`", "echo hi you"),
        ("echo $((1 + 2))", "echo …"),
        ("cat <<< ~/x", "cat"),
        ("[[ $a =~ ^(x|y)$ && b < c ]]", "[[ =~ ^(x|y)$ && b < c"),
    ] {
        let found = shown(code);
        assert!(found.iter().any(|command| command == expected), "{code}: {found:?}");
    }
}

#[test]
fn here_documents_are_given_to_whoever_reads_them() {
    let code = "cat <<'A' > x; bash <<-B\n$(not run)\nA\n\techo $HOME\n\tB\nafter";
    assert_eq!(shown(code), ["cat", "bash", "echo /home/sandbox", "after"]);
}

#[test]
fn what_can_not_be_seen_is_said() {
    assert_eq!(unseen("$CMD x"), [("…".to_owned(), Why::Computed)]);
    assert_eq!(unseen("base64 -d x | sh"), [("sh".to_owned(), Why::Decoded)]);
    assert_eq!(unseen("eval \"$X\""), [("eval".to_owned(), Why::Computed)]);
    assert_eq!(unseen("cat x | bash script.sh"), []);
    assert_eq!(unseen("ls -la; echo \"$X\""), []);
}

#[test]
fn what_makes_no_sense_is_said_and_the_rest_is_read() {
    assert_eq!(unseen("if [[ -n x ]]; then [[ a ]]|| b; fi; ([[ c ]])"), []);
    let code = "rm a\nfi\n) b\nls 'c";
    assert!(unseen(code).iter().all(|(_, why)| *why == Why::NotParsed));
    assert_eq!(shown(code), ["rm a", "b", "ls c"]);
}

#[test]
fn positions_count_lines_and_characters() {
    let facts = super::read("é; a\n  sh -c 'b'");
    let at: Vec<_> = facts.iter().map(|fact| (fact.at.line, fact.at.column, fact.depth)).collect();
    assert_eq!(at, [(1, 1, 0), (1, 4, 0), (2, 3, 0), (2, 3, 1)]);
}

#[test]
fn a_function_that_walks_folders_is_no_bomb() {
    let multiplies = |code: &str| super::read(code).iter().any(|fact| fact.what == What::Multiplies);
    assert!(multiplies(":(){ :|:& };:"));
    assert!(multiplies("f() { g; f & }"));
    assert!(multiplies("while :; do x & done"));
    assert!(!multiplies("f() { for x in *; do f $x; done; }; f"));
    assert!(!multiplies("while :; do x & wait; done"));
    assert!(!multiplies("for x in *; do gzip $x & done; wait"));
}
