use super::read;
use crate::facts::{Fact, Source, Value, What, Why};

/// Facts in short, one a line.
fn shown(code: &str) -> String {
    let lines: Vec<String> = read(code).iter().map(show).collect();
    lines.join("\n")
}

fn show(fact: &Fact) -> String {
    let depth = "> ".repeat(usize::from(fact.depth));
    let text = match &fact.what {
        What::Command(command) => {
            let words: Vec<_> = command.arguments.iter().map(Value::shown).collect();
            format!("$ {} {}", command.program.shown(), words.join(" "))
        }
        What::Call(call) => {
            let arguments = call.arguments.iter().map(|argument| match &argument.name {
                Some(name) => format!("{name}={}", source(&argument.value)),
                None => source(&argument.value),
            });
            format!("{}({})", call.name, arguments.collect::<Vec<_>>().join(", "))
        }
        What::Import(import) => format!("import {}", import.module.shown()),
        What::Multiplies => "multiplies".to_owned(),
        What::Opaque(opaque) => format!("{:?} {}", opaque.why, opaque.by),
    };
    format!("{depth}{text}")
}

fn source(value: &Value) -> String {
    match value {
        Value::Unknown(source) | Value::Begins(_, source) if *source != Source::Variable => {
            format!("{}{source:?}", value.shown())
        }
        _ => value.shown().into_owned(),
    }
}

#[track_caller]
fn holds(code: &str, expected: &str) {
    let shown = shown(code);
    assert!(shown.lines().any(|line| line == expected), "{code}\nhas no {expected:?} but\n{shown}");
}

#[test]
fn imports_are_found_in_every_form() {
    holds("import os.path as p, sys", "import os.path");
    holds("import os.path as p, sys", "import sys");
    holds("from a.b import c as d", "import a.b");
    holds("from . import c", "import .");
    holds("__import__('so'[::-1])", "import os");
    holds("import importlib as i; i.import_module('x' + 'y')", "import xy");
    holds("m = input(); __import__(m)", "import …");
}

#[test]
fn calls_are_named_through_aliases() {
    for code in [
        "import os; os.system('id')",
        "import os as o; o.system('id')",
        "from os import system as s; s('id')",
        "from os import *; system('id')",
        "import os; f = os.system; f('id')",
        "import os; g = f = os.system; h = g; h('id')",
        "import os; getattr(os, 'sys' + 'tem')('id')",
        "n = 'system'; import os; getattr(os, n)('id')",
        "__import__('os').system('id')",
        "import importlib; o = importlib.import_module('os'); o.system('id')",
        "import sys; sys.modules['os'].system('id')",
        "import os; os.__dict__['system']('id')",
        "import os; vars(os)['system']('id')",
        "import posix; posix.system('id')",
        "import functools, os; functools.partial(os.system)('id')",
        "os.system('id')",
        "def f():\n  import os\n  def g():\n    os.system('id')",
        "import os\nclass A:\n  def f(self): return os.system('id')",
        "import os\nx = [os.system('id') for y in z]",
        "import os\nlambda: os.system('id')",
    ] {
        holds(code, "os.system(id)");
        holds(code, "> $ id ");
    }
    holds("__builtins__['eval']('f(1)')", "> f(1)");
    holds("globals()['eval']('f(1)')", "> f(1)");
    holds("import builtins; builtins.exec('f(1)')", "> f(1)");
}

#[test]
fn a_name_that_was_taken_is_not_the_module() {
    assert_eq!(shown("def eval(x): pass\neval('a(1)')"), "");
    holds("os = make(); os.system('id')", ".system(id)");
    holds("class A:\n  def f(self): self.eval('1')", ".eval(1)");
}

#[test]
fn constant_texts_are_worked_out() {
    for text in [
        "'r' + 'm' ' x'",
        "'%s %s' % ('rm', 'x')",
        "'{} {}'.format('rm', 'x')",
        "f'{\"rm\"} x'",
        "' '.join(['rm', 'x'])",
        "''.join(chr(c) for c in [114, 109, 32, 120])",
        "''.join(map(chr, [114,109,32,120]))",
        "b'rm x'.decode()",
        "base64.b64decode('cm0geA==').decode()",
        "bytes.fromhex('726d2078').decode()",
        "codecs.decode('ez k', 'rot13')",
        "'x mr'[::-1]",
        "bytes([114, 109, 32, 120]).decode('utf8')",
        "a + ' x'",
        "('rm y').replace('y', 'x')",
        "'RM X'.lower()",
        "l[1]",
    ] {
        holds(
            &format!("import os, base64, codecs\na = 'rm'\nl = ['', 'rm x']\nos.system({text})"),
            "os.system(rm x)",
        );
    }
}

#[test]
fn programs_that_are_run_become_commands() {
    holds("import subprocess as s; s.run(['rm', '-rf', '/'])", "> $ rm -rf /");
    holds("import subprocess as s; s.run(args=['rm', x])", "> $ rm …");
    holds("import subprocess as s; s.Popen('rm -rf /', shell=True)", "> $ rm -rf /");
    holds("import os; os.execv('/bin/rm', ['rm', '-rf', '/'])", "> $ /bin/rm -rf /");
    holds("import os; os.execlp('rm', 'rm', '-rf', '/')", "> $ rm -rf /");
    holds("import os; os.spawnl(os.P_WAIT, '/bin/rm', 'rm', '/')", "> $ /bin/rm /");
    holds("import asyncio; await asyncio.create_subprocess_exec('rm', '-rf')", "> $ rm -rf");
    holds("import asyncio; await asyncio.create_subprocess_shell('rm -rf')", "> $ rm -rf");
    holds("import pty; pty.spawn('/bin/bash')", "> $ /bin/bash ");
    holds("import subprocess as s; c = ['rm']; s.run(c + ['x'])", "> $ rm x");
    holds("import subprocess as s, shlex; s.run(shlex.split('rm x'))", "> $ rm x");
    holds("import os\nos.system(cmd)", "> Computed os.system");
    holds("import subprocess as s; s.run([tool, 'x'])", "> Computed subprocess.run");
}

#[test]
fn sources_follow_variables_in_a_function() {
    holds("import os\ndef f(p):\n  c = 'ls ' + p\n  os.system(c)", "os.system(ls …Parameter)");
    holds("import os, sys\nos.system(sys.argv[1])", "os.system(…Input)");
    holds("import os\nos.system('x' + input())", "os.system(x…Input)");
    holds("import os\nwith open('f') as f: c = f.read()\nos.system(c)", "os.system(…Input)");
    holds("import os, requests\nr = requests.get(u)\nos.system(r.text)", "os.system(…Input)");
    holds("import os\na = parser.parse_args()\nos.system(a.cmd)", "os.system(…Input)");
    holds("import os\nfrom flask import request\nos.system(request.args['c'])", "os.system(…Input)");
    holds("import os\nc = 'a'\nif x: c = input()\nos.system(c)", "os.system(…Input)");
    holds("import os\nc = 'a'\nc = 'b'\nos.system(c)", "os.system(b)");
    holds("import os\nos.system(os.environ['X'])", "os.system(…Input)");
}

#[test]
fn a_list_that_is_changed_is_not_what_was_assigned() {
    let run = |code: &str| format!("import subprocess as s\nl = ['rm']\n{code}\ns.run(l)");
    holds(&run("l.append('x')"), "> $ rm x");
    holds(&run("l.extend(['x', 'y'])"), "> $ rm x y");
    holds(&run("if a: l.append(input())"), "subprocess.run(rm …)");
    holds("l = []\nfor x in y: l.append(x)\nexec(''.join(l))", "Computed exec");
    holds("l = []\ndef f(x):\n  l.append(x)\nf(1)\nexec(''.join(l))", "Computed exec");
}

#[test]
fn code_in_code_is_read_and_what_is_hidden_is_said() {
    holds("eval('f(1)')", "> f(1)");
    holds("exec(compile('f(1)', 'x', 'exec'))", "> f(1)");
    holds("exec('eval(\"f(1)\")')", "> > f(1)");
    holds("import base64\nexec(base64.b64decode('ZigxKQ=='))", "> f(1)");
    holds("import base64\nexec(base64.b64decode(x))", "Decoded exec");
    holds("import zlib\nc = zlib.decompress(x)\nexec(c)", "Decoded exec");
    holds("exec(x)", "Computed exec");
    holds("list(map(eval, x))", "Computed eval");
    let nested = (0..9).fold("f(1)".to_owned(), |code, _| format!("eval({code:?})"));
    assert!(read(&nested).iter().any(|fact| matches!(&fact.what, What::Opaque(o) if o.why == Why::TooDeep)));
}

#[test]
fn copies_of_itself_are_seen() {
    holds("import os\nwhile True: os.fork()", "multiplies");
    holds("import os\ndef f():\n  os.fork()\n  f()", "multiplies");
    holds("from multiprocessing import Process\ndef f():\n  Process(target=f).start()", "multiplies");
    assert!(!shown("import os\nos.fork()").contains("multiplies"));
}

#[test]
fn cells_may_hold_magics() {
    holds("!rm -rf x", "> $ rm -rf x");
    holds("x = !ls -l", "> $ ls -l");
    holds("%pip install x", "> $ pip install x");
    holds("%%bash\nrm x", "> $ rm x");
    holds("%%time\nimport os", "import os");
    assert_eq!(read("%%bash\nrm x")[0].at.line, 2);
    assert_eq!(shown("%matplotlib inline"), "");
}

#[test]
fn a_broken_text_is_read_where_it_can_be() {
    let code = "import os\nos.system('id')\nx = = 1\nos.remove('x')\n";
    holds(code, "os.system(id)");
    holds(code, "os.remove(x)");
    holds(code, "NotParsed python");
}

#[test]
fn places_are_those_of_the_text() {
    let facts = read("import os\n\nif x:\n  é = os.system('id')\n");
    let lines: Vec<_> = facts.iter().map(|fact| (fact.at.line, fact.at.column)).collect();
    assert_eq!(lines, [(1, 8), (4, 7), (4, 7)]);
}

#[test]
fn hostile_texts_neither_crash_nor_hang() {
    let many = 100_000;
    let mut texts: Vec<String> = [
        "(",
        "[",
        "{",
        "not ",
        "-",
        "~",
        "a.",
        "a[",
        "1+",
        "'a'+",
        "a if b else ",
        "lambda: ",
        "lambda a, b: ",
        "f'{",
        "f\"{",
        "{1: ",
        "x = ",
        "x: ",
        "if x: ",
        "async ",
        "await ",
        "*",
        "**",
        "a<",
        "a and ",
        "for x in ",
        "@",
        "yield ",
        "a := (",
        "%%time\n",
        "!(",
        "match x:\n case ",
        "case [",
        "try: ",
        "else: ",
        "with a as b, ",
        "class a(",
        "def f(",
        "import a.",
        "from .",
        "\"\"\"",
        "'",
        "\\\n",
        "\t",
        " ",
        "\u{feff}",
        "\0",
        "é",
        "eval(",
        "\u{2028}",
        "print(f'",
        "(\nif x,y:\n ",
        "if a,b: if a,b: ",
    ]
    .iter()
    .map(|piece| piece.repeat(many))
    .collect();
    texts.push(format!("x = {}1{}", "(".repeat(many), ")".repeat(many)));
    texts.push(format!("x = {}'a'", "'a'+".repeat(many)));
    texts.push(format!("x = {}{}", "f(".repeat(2900), ")".repeat(2900)));
    texts.push(format!("x = y{}", ".a".repeat(2900)));
    texts.push(format!("x = {}y", "not ".repeat(2900)));
    texts.push(format!("x = {}y", "lambda: ".repeat(2900)));
    texts.push(format!("x = f{}", "()".repeat(2900)));
    texts.push((0..2900).fold(String::new(), |text, level| text + &" ".repeat(level) + "if x:\n"));
    texts.push(format!(
        "(\n{}",
        (0..3000).fold(String::new(), |text, level| text + &" ".repeat(level) + "if x,y:\n")
    ));
    texts.push(format!("a = 'x' * 60000\n{}", "eval(a)\n".repeat(10_000)));
    texts.push(format!("a = ['x'] * 9\n{}", "a = [a, a, a, a, a, a]\nf(a, a, a, a)\n".repeat(5_000)));
    texts.push(format!("a = 'f(1);' * 9000\n{}", "eval(a)\n".repeat(10_000)));
    let worker = std::thread::Builder::new().stack_size(2 << 20).spawn(move || {
        for text in &texts {
            let start = std::time::Instant::now();
            drop(read(text));
            let took = start.elapsed();
            assert!(took.as_secs() < 10, "{:?} took {took:?}", &text[..text.floor_char_boundary(30)]);
        }
    });
    worker.unwrap().join().unwrap();
}
