use super::read;
use crate::facts::{Fact, Language, Source, Value, What, Why};

/// Facts in short, one a line.
fn shown(code: &str, language: Language) -> String {
    let lines: Vec<String> = read(code, language).iter().map(show).collect();
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
    let shown = shown(code, Language::JavaScript);
    assert!(shown.lines().any(|line| line == expected), "{code}\nhas no {expected:?} but\n{shown}");
}

#[test]
fn calls_are_named_through_aliases() {
    for code in [
        "require('child_process').exec('id')",
        "const cp = require('node:child_process'); cp.exec('id')",
        "const { exec } = require('child_process'); exec('id')",
        "const { exec: e } = require('child_process'); e('id')",
        "import cp from 'node:child_process'; cp.exec('id')",
        "import * as cp from 'child_process'; cp.exec('id')",
        "import { exec as e } from 'child_process'; e('id')",
        "const cp = await import('child_process'); cp.exec('id')",
        "(await import('child_process')).exec('id')",
        "const e = require('child_process').exec; e('id')",
        "require('child_' + 'process')['ex' + 'ec']('id')",
        "let m = 'child_process'; require(m).exec('id')",
        "const run = util.promisify(require('child_process').exec); await run('id')",
        "process.mainModule.require('child_process').exec('id')",
        "const cp = require('child_process'); cp.exec.call(null, 'id')",
        "const cp = require('child_process'); cp.exec.apply(null, ['id'])",
        "const cp = require('child_process'); cp?.exec?.('id')",
        "const cp = require('child_process'); const f = () => cp.exec('id')",
        "class A { m() { require('child_process').exec('id') } }",
        "import { createRequire } from 'module'; const r = createRequire(import.meta.url); r('child_process').exec('id')",
        "(cp = require('child_process')), cp.exec('id')",
    ] {
        holds(code, "child_process.exec(id)");
        holds(code, "> $ id ");
    }
}

#[test]
fn imports_are_found_in_every_form() {
    holds("import 'fs'", "import fs");
    holds("import x from 'node:fs'", "import node:fs");
    holds("require('x')", "import x");
    holds("import('x' + y)", "import x…");
    holds("require(y)", "import …");
    let typed = shown("import type { A } from 'x'; import b = require('y');", Language::TypeScript);
    assert_eq!(typed, "import y");
}

#[test]
fn constant_texts_are_worked_out() {
    for text in [
        "'r' + 'm x'",
        "`rm ${'x'}`",
        "['rm', 'x'].join(' ')",
        "String.fromCharCode(114, 109, 32, 120)",
        "String.fromCharCode(...[114, 109, 32, 120])",
        "Buffer.from('cm0geA==', 'base64').toString()",
        "atob('cm0geA==')",
        "'x mr'.split('').reverse().join('')",
        "a + ' x'",
        "'rm y'.replace('y', 'x')",
        "l[1]",
        "unescape('rm%20x')",
        "''.concat('rm', ' x')",
        "Buffer.from('726d2078', 'hex').toString('utf8')",
    ] {
        let code =
            format!("const cp = require('child_process'), a = 'rm', l = ['', 'rm x']; cp.execSync({text})");
        holds(&code, "child_process.execSync(rm x)");
    }
}

#[test]
fn programs_that_are_run_become_commands() {
    let cp = |code: &str| format!("const cp = require('child_process'); {code}");
    holds(&cp("cp.spawn('rm', ['-rf', '/'])"), "> $ rm -rf /");
    holds(&cp("cp.spawnSync('rm', args)"), "> $ rm …");
    holds(&cp("cp.execFile('rm', ['-rf'], { cwd: '/' }, () => {})"), "> $ rm -rf");
    holds(&cp("cp.spawn('rm -rf /', { shell: true })"), "> $ rm -rf /");
    holds(&cp("cp.spawn('rm -rf /', { shell: true })"), "child_process.spawn(rm -rf /, shell=true)");
    holds(&cp("cp.exec(`rm ${x}`)"), "> Computed child_process.exec");
    holds("import { $ } from 'zx'; await $`rm -rf x`", "> $ rm -rf x");
    holds("Bun.spawn(['rm', 'x'])", "> $ rm x");
    holds("fs.rmSync('/', { recursive: true })", "fs.rmSync(/, recursive=true)");
    holds("import { rm } from 'node:fs/promises'; rm('/')", "fs.promises.rm(/)");
    holds("process.kill(1)", "process.kill(1)");
    holds("require('child_process').fork('x.js')", "> $ node x.js");
}

#[test]
fn sources_follow_variables_in_a_function() {
    holds("function f(p) { const c = 'ls ' + p; cp.exec(c) }", "cp.exec(ls …Parameter)");
    holds("cp.exec(process.argv[2])", "cp.exec(…Input)");
    holds("const [, , c] = process.argv; cp.exec(c)", "cp.exec(…Input)");
    holds("app.get('/', (req, res) => cp.exec(req.query.c))", "cp.exec(…Input)");
    holds("app.get('/', (req, res) => { const { c } = req.body; cp.exec(`ls ${c}`) })", "cp.exec(ls …Input)");
    holds("const t = fs.readFileSync('x', 'utf8'); eval(t)", "eval(…Input)");
    holds("let c = 'a'; if (x) c = process.env.X; cp.exec(c)", "cp.exec(…Input)");
}

#[test]
fn code_in_code_is_read_and_what_is_hidden_is_said() {
    for code in [
        "eval('f(1)')",
        "(0, eval)('f(1)')",
        "globalThis.eval('f(1)')",
        "const e = eval; e('f(1)')",
        "new Function('f(1)')()",
        "Function('a', 'f(1)')",
        "vm.runInNewContext('f(1)')",
        "new vm.Script('f(1)')",
        "setTimeout('f(1)', 10)",
        "[].constructor.constructor('f(1)')()",
        "(() => {}).constructor('f(1)')()",
        "eval(atob('ZigxKQ=='))",
        "window['ev' + 'al']('f(1)')",
        "import { Worker } from 'worker_threads'; new Worker('f(1)', { eval: true })",
    ] {
        holds(code, "> f(1)");
    }
    holds("eval(x)", "Computed eval");
    holds("eval(atob(x))", "Decoded eval");
    holds("const c = Buffer.from(x, 'base64').toString(); eval(c)", "Decoded eval");
    holds("setTimeout('f(' + x + ')', 1)", "Computed setTimeout");
    assert!(!shown("setTimeout(f, 1); setTimeout(() => 1, 1)", Language::JavaScript).contains("Computed"));
    assert!(!shown("function eval2() {} eval2('f(1)')", Language::JavaScript).contains("f(1)"));
}

#[test]
fn each_grammar_is_tried() {
    for (code, language) in [
        ("await f(1)", Language::JavaScript),
        ("return f(1)", Language::JavaScript),
        ("var await = 1; with (x) f(1)", Language::JavaScript),
        ("export const x: number = f(1)", Language::JavaScript),
        ("const x = <T,>(a: T): a is string => f(1) as any", Language::TypeScript),
        ("enum A { B } namespace C { f(1) } @d class E {}", Language::TypeScript),
        ("const x = <div>it's {f(1)}</div>", Language::JavaScript),
        ("#!/usr/bin/env node\nf(1)", Language::JavaScript),
    ] {
        let shown = shown(code, language);
        assert!(shown.lines().any(|line| line == "f(1)"), "{code}: {shown}");
    }
    assert_eq!(shown("const = 1", Language::JavaScript), "NotParsed javascript");
}

#[test]
fn places_are_those_of_the_text() {
    let facts = read("// é\n  eval(x)", Language::JavaScript);
    let places: Vec<_> = facts.iter().map(|fact| (fact.at.line, fact.at.column)).collect();
    assert_eq!(places, [(2, 3), (2, 3)]);
}

#[test]
fn hostile_texts_neither_crash_nor_hang() {
    let many = 60_000;
    let pieces = [
        "(",
        "[",
        "{",
        "!",
        "-",
        "- ",
        "typeof ",
        "new ",
        "await ",
        "a.",
        "a?.",
        "a[",
        "f(",
        "1+",
        "'a'+",
        "a ? b : ",
        "a ? ",
        "a => ",
        "async a => ",
        "(a) => ",
        "(a = ",
        "(a, ",
        "`${",
        "if (a) ",
        "if (a) b; else ",
        "if (a) {} else ",
        "do ",
        "for (;;) ",
        "while (a) ",
        "l: ",
        "a = ",
        "a ** ",
        "a ?? ",
        "{ a: ",
        "[a] = ",
        "...",
        "<a>",
        "<a><b>",
        "<A<x, y>>",
        "</a>",
        "A<",
        "A<x, ",
        "x as ",
        "keyof ",
        "(a: ",
        "a extends b ? c : ",
        "/[/",
        "/a/.b(",
        "/",
        "\"",
        "'",
        "`",
        "\\",
        "\\u{",
        "#",
        "@",
        "@a ",
        "@(",
        "class extends ",
        "class a { static { ",
        "function f() { ",
        "function* f() { yield ",
        "try { ",
        "switch (a) { case ",
        "import(",
        "import a from ",
        "export default ",
        "\u{2028}",
        "\0",
        "é",
        "<!--",
        "-->",
        "/*",
        "//",
        "return\u{a0}/`/ ((",
        "} /`/ (",
        "a\n++\n",
        "declare module ",
        "type A = ",
        "enum A { a = ",
        "a!",
        "a satisfies ",
        "of ",
        "let ",
        "yield ",
        "x = {} / 1 /",
        "$`${",
        "((a",
        "((a, b) => (",
        "a<b>(",
        "async (a, ",
        "async (",
        "<T>(a, ",
        "(a?: ",
        "a ? (b) : ",
        "a ? (b) => (c) : ",
        "({a: ",
        "({a = ",
        "([a, ",
    ];
    let mut texts: Vec<String> = Vec::new();
    for count in [20, 40, 150, 900, many] {
        texts.extend(pieces.iter().map(|piece| piece.repeat(count)));
    }
    for (open, close) in
        [("(", ")"), ("[", "]"), ("f(", ")"), ("{", "}"), ("`${", "}`"), ("a ? ", " : b"), ("(a, ", ")")]
    {
        for count in [40, 1400, many] {
            texts.push(format!("x = {}1{}", open.repeat(count), close.repeat(count)));
        }
    }
    texts.push(format!("x = {}'a'", "'a'+".repeat(many)));
    texts.push(format!("x = {}'a'", "'a'+".repeat(1900)));
    texts.push(format!("x = y{}", ".a".repeat(1900)));
    texts.push(format!("x = {}y", "!".repeat(1900)));
    texts.push(format!("{}b", "a => ".repeat(1900)));
    texts.push(format!(
        "const a = 'x'.repeat(1), b = '{}';\n{}",
        "f(1);".repeat(9000),
        "eval(b);\n".repeat(10_000)
    ));
    texts.push(format!("let a = ['x'];\n{}", "a = [a, a, a, a, a, a]; f(a, a, a);\n".repeat(5_000)));
    let worker = std::thread::Builder::new().stack_size(2 << 20).spawn(move || {
        for text in &texts {
            for language in [Language::JavaScript, Language::TypeScript] {
                let start = std::time::Instant::now();
                drop(read(text, language));
                let took = start.elapsed();
                let beginning = &text[..text.floor_char_boundary(30)];
                assert!(took.as_secs() < 8, "{beginning:?} of {} bytes took {took:?}", text.len());
            }
        }
    });
    worker.unwrap().join().unwrap();
    let deep = read(&"(".repeat(many), Language::JavaScript);
    assert!(matches!(&deep[0].what, What::Opaque(opaque) if opaque.why == Why::TooDeep));
}
