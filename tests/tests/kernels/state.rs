//! What lives on from one cell to the next: variables and files, whoever asks.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use redoma_tests::http::read_answer;
use redoma_tests::wait_until;
use serde_json::{Value, json};

use crate::World;
use crate::session::Session;

fn names(files: &Value) -> Vec<&str> {
    files.as_array().unwrap().iter().map(|file| file["name"].as_str().unwrap()).collect()
}

#[test]
fn variables_imports_functions_folders_and_open_files_live_on() {
    let world = World::new();
    let session = Session::new(&world.server);
    session.cell("import os, math as m\nx = [1]\ndef add(n): x.append(n)\nlog = open('log.txt', 'w'); os.makedirs('below'); os.chdir('below')");
    session.cell(
        "class Point:\n    def __init__(self, n): self.n = n\np = Point(3); add(2); log.write('one\\n')",
    );
    let code = "add(p.n); log.write('two\\n'); log.flush(); print(x, m.floor(2.5), os.getcwd(), Point(4).n, _1 if '_1' in globals() else None)";
    assert_eq!(session.printed(code), "[1, 2, 3] 2 /mnt/data/below 4 None");
    assert_eq!(session.content_of("log.txt"), "one\ntwo\n");

    session.cell_in("bash", "A=1; declare -A M=([k]=v); export E=exported; f() { echo \"f$1\"; }; alias a='echo aliased'; shopt -s expand_aliases; cd below; set -u");
    let code = "echo $A ${M[k]} $E $PWD; f 2; a; bash -c 'echo $E'; [[ $- == *u* ]] && echo strict";
    assert_eq!(
        session.printed_in("bash", code),
        "1 v exported /mnt/data/below\nf2\naliased\nexported\nstrict"
    );

    session.cell_in("js", "let n = 1; const list = [1]; function twice(m) { return m * 2 }; class Q { q = 3 }; const fs = require('fs'); process.chdir('below')");
    let code =
        "n += 1; list.push(twice(n)); console.log(n, list, new Q().q, process.cwd(), typeof fs.readFileSync)";
    assert_eq!(session.printed_in("js", code), "2 [ 1, 4 ] 3 /mnt/data/below function");
    assert_eq!(
        session.printed("print(x, os.getcwd())"),
        "[1, 2, 3] /mnt/data/below",
        "each language has its own"
    );

    // A program beside the session has its files, and nothing else.
    let done = session.run(&json!({ "language": "py", "code": "import os; print('x' in globals(), os.path.exists('log.txt'))", "stateful": false }));
    assert_eq!((done.stdout(), &done.answer["cell"]), ("False True\n", &Value::Null));
    world.assert_sound();
}

#[test]
fn typescript_is_javascript_with_types_and_shares_its_variables() {
    let world = World::new();
    let session = Session::new(&world.server);
    let first = session.cell_in(
        "ts",
        "import fs from 'fs';\ninterface P { x: number }\nenum E { A = 3 }\nconst p: P = { x: E.A }",
    );
    assert_eq!(
        (&first.answer["exit_code"], first.answer["language"].as_str()),
        (&json!(0), Some("ts")),
        "{first}"
    );
    // What one cell imports, another uses.
    assert_eq!(session.printed_in("ts", "console.log(p.x as number, typeof fs.readFileSync)"), "3 function");
    assert_eq!(session.printed_in("js", "p.x += 1; console.log(p)"), "{ x: 4 }");
    let wrong = session.cell_in("ts", "let q: = 5");
    assert_eq!(wrong.answer["exit_code"], 1, "{wrong}");
    let error = &wrong.answer["cell"]["outputs"][0];
    assert_eq!(error["name"], "SyntaxError", "{wrong}");
    assert!(error["value"].as_str().unwrap().contains("cell.mts:1:8"), "{wrong}");
    assert_eq!(session.printed_in("ts", "console.log(p.x)"), "4", "a mistake costs nothing");
    // The compiler is in a sandbox of its own, not in this one.
    assert_eq!(session.printed("import os; print(os.path.exists('/.redoma'))"), "False");
    world.assert_sound();
}

#[test]
fn files_go_in_and_out_between_cells() {
    let world = World::new();
    let session = Session::new(&world.server);
    session.cell("import os; x = 1");
    let uploaded = session.upload("in/data.csv", b"a,b\n1,2\n");
    assert_eq!(session.printed("print(open('in/data.csv').read(), end='')"), "a,b\n1,2");

    // What a cell makes can be had, what it changes is another version, what it leaves alone is not.
    let made = session.cell("open('out.txt', 'w').write('one'); open('same.txt', 'w').write('same')");
    assert_eq!(names(&made.answer["files"]), ["out.txt", "same.txt"], "{made}");
    assert_eq!(session.content_of("out.txt"), "one");
    let changed =
        session.cell("open('out.txt', 'w').write('two!'); open('same.txt').read(); os.stat('in/data.csv')");
    assert_eq!(names(&changed.answer["files"]), ["out.txt"], "{changed}");
    assert_eq!(changed.answer["files"][0]["version"], 2, "{changed}");
    assert_eq!(session.content_of("out.txt"), "two!");
    assert_eq!(session.content(&made.answer["files"][0]).text(), "one", "the first is still there");
    for nothing in ["x = 2", "1 / 0", "open('out.txt').read()"] {
        assert_eq!(session.cell(nothing).answer["files"], json!([]));
    }
    // Of the same size, within the same moment.
    let changed = session.cell("open('out.txt', 'w').write('tw0!')");
    assert_eq!(changed.answer["files"][0]["version"], 3, "{changed}");

    // Two languages see the same files.
    session.cell_in("bash", "echo from bash > bash.txt; mkdir -p deep/er; echo 1 > deep/er/née.txt");
    session.cell_in(
        "js",
        "require('fs').writeFileSync('js.txt', require('fs').readFileSync('bash.txt') + 'and js')",
    );
    assert_eq!(
        session.printed("print(open('js.txt').read(), os.listdir('deep/er'))"),
        "from bash\nand js ['née.txt']"
    );
    assert_eq!(session.content_of("js.txt"), "from bash\nand js");
    assert_eq!(session.content_of("deep/er/née.txt"), "1\n");

    // Replaced and deleted from outside.
    session.upload("out.txt", b"from outside");
    assert_eq!(session.printed("print(open('out.txt').read())"), "from outside");
    session.remove_file(&uploaded);
    assert_eq!(session.printed("print(os.path.exists('in/data.csv'))"), "False");
    // Deleted by a cell.
    let deleted = session.cell("os.remove('same.txt')");
    assert_eq!(deleted.answer["deleted_files"], json!(["same.txt"]));
    assert!(!session.files("").iter().any(|file| file["name"] == "same.txt"));
    // A file that is made and deleted again is nobody's business, and one that is made again is new.
    assert_eq!(session.cell("open('t', 'w').write('t'); os.remove('t')").answer["files"], json!([]));
    assert_eq!(names(&session.cell("open('same.txt', 'w').write('same')").answer["files"]), ["same.txt"]);
    world.assert_sound();
}

/// A killed cell's variables are gone; files that it had written are files that it made, as with any program.
#[test]
fn files_of_a_killed_cell_are_told_and_are_what_the_next_one_sees() {
    let world = World::new();
    let session = Session::new(&world.server);
    session.cell("import os; open('a.txt', 'w').write('before')");
    let killed =
        session.cell("open('a.txt', 'w').write('meanwhile'); open('b.txt', 'w').write('b'); os._exit(1)");
    assert!(killed.is("restored"));
    let seen = session.printed("print(open('a.txt').read(), os.path.exists('b.txt'))");
    assert_eq!(
        seen,
        format!(
            "{} {}",
            session.content_of("a.txt"),
            if session.files("").len() == 2 { "True" } else { "False" }
        )
    );
    assert_eq!(session.cell("1").answer["files"], json!([]), "nothing has changed since");
    world.assert_sound();
}

#[test]
fn several_clients_take_turns_in_the_order_in_which_they_came() {
    let world = World::new();
    let session = Session::new(&world.server);
    session.cell("import time; order = []");
    let mut clients = Vec::new();
    for number in 0..5u64 {
        let code = format!("time.sleep({}); order.append({number})", if number == 0 { 1.0 } else { 0.05 });
        let request = session.request(&json!({ "language": "py", "code": code }));
        let mut stream = TcpStream::connect(request.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        stream.write_all(&request.bytes()).unwrap();
        clients.push(stream);
        wait_until("it waits for its turn", || {
            let kernel = session.kernel();
            kernel["state"] == "busy" && kernel["waiting"] == number
        });
    }
    for (number, mut client) in clients.into_iter().enumerate() {
        let answer = read_answer(&mut client).unwrap().json();
        assert_eq!(answer["cell"]["number"], number + 2, "{answer}");
    }
    assert_eq!(session.printed("print(order)"), "[0, 1, 2, 3, 4]");

    // Whoever leaves while waiting is passed over.
    let mut first =
        session.stream(&json!({ "language": "py", "code": "print('on', flush=True); time.sleep(1)" }));
    first.wait_for("on");
    let mut leaves = session.stream(&json!({ "language": "py", "code": "order.append('gone')" }));
    leaves.id();
    wait_until("it waits", || session.kernel()["waiting"] == 1);
    drop(leaves);
    wait_until("it does not wait any more", || session.kernel()["waiting"] == 0);
    assert_eq!(session.printed("print(order)"), "[0, 1, 2, 3, 4]");
    world.assert_sound();
}

/// What is shown comes as it is shown.
#[test]
fn events_of_a_cell_come_as_they_happen_and_in_order() {
    let world = World::new();
    let session = Session::new(&world.server);
    let code = "import sys, time\nprint('first', flush=True)\ndisplay({'text/plain': 'shown'}, raw=True)\nprint('second', file=sys.stderr, flush=True)\ntime.sleep(0.3)\n6 * 7";
    let events: Vec<_> = session.stream(&json!({ "language": "py", "code": code })).collect();
    let kinds: Vec<_> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((kinds[0], kinds[kinds.len() - 1]), ("started", "result"), "{kinds:?}");
    let result = &events.last().unwrap().1;
    let outputs = result["cell"]["outputs"].as_array().unwrap();
    assert!(
        outputs.iter().any(|output| output["type"] == "result" && output["data"]["text/plain"] == "42"),
        "{result}"
    );
    assert!(
        outputs.iter().any(|output| output["type"] == "display" && output["data"]["text/plain"] == "shown"),
        "{result}"
    );
    assert!(kinds.contains(&"output"), "{kinds:?}");
    assert_eq!(result["stdout"]["text"], "first\n");
}
