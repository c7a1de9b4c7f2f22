//! TypeScript in, Node's behaviour out: every program here is compiled and really run.
//!
//! Node is `$REDOMA_TEST_NODE`, or else `/usr/bin/node`, or else the one in the path.

use std::{
    env, fs,
    path::Path,
    process::{Command, Output},
};

use redoma_zygote::typescript::{CompileError, ModuleKind, compile};

/// What a program did.
struct Ran {
    kind: ModuleKind,
    stdout: String,
    stderr: String,
    succeeded: bool,
}

fn node() -> Command {
    let debian = "/usr/bin/node";
    let fallback = if Path::new(debian).exists() { debian } else { "node" };
    let mut node = Command::new(env::var_os("REDOMA_TEST_NODE").unwrap_or_else(|| fallback.into()));
    node.arg("--enable-source-maps");
    node
}

/// Compiles `source` and runs the result as the caller would: stored under another name in the
/// folder of the original, which shows up as `/mnt/data` in what this returns.
fn run_file(file_name: &str, source: &str) -> Ran {
    let folder = tempfile::tempdir().expect("a folder for the program");
    let javascript = match compile(source, file_name) {
        Ok(javascript) => javascript,
        Err(error) => panic!("{file_name} does not compile:\n{error}"),
    };
    let program = folder.path().join(format!(".redoma-main.{}", javascript.kind.extension()));
    fs::write(&program, javascript.code).expect("the program can be stored");
    let Output { status, stdout, stderr } =
        node().arg(program).current_dir(&folder).output().expect("Node is installed");

    let real_path = folder.path().canonicalize().expect("the folder exists");
    let text = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        text.replace(&format!("file://{}", real_path.display()), "/mnt/data")
            .replace(&real_path.display().to_string(), "/mnt/data")
    };
    Ran { kind: javascript.kind, stdout: text(&stdout), stderr: text(&stderr), succeeded: status.success() }
}

fn run(source: &str) -> Ran {
    run_file("main.ts", source)
}

#[track_caller]
fn assert_prints(source: &str, expected: &str) -> ModuleKind {
    let ran = run(source);
    assert_eq!(ran.stderr, "");
    assert_eq!(ran.stdout.trim_end(), expected);
    assert!(ran.succeeded);
    ran.kind
}

#[track_caller]
fn errors_of(source: &str) -> String {
    match compile(source, "main.ts") {
        Err(CompileError::Syntax(errors)) => errors.to_string(),
        other => panic!("expected syntax errors, got {other:?}"),
    }
}

// What TypeScript adds to JavaScript.

#[test]
fn types_are_removed() {
    assert_prints(
        r#"
        interface Point { x: number; y?: number }
        type Pair<T> = [T, T];
        declare const injected: string;
        declare function external(): void;
        function swap<T>([a, b]: Pair<T>): Pair<T> { return [b, a] as Pair<T>; }
        const p: Point = { x: 1 } satisfies Point;
        let sure!: number;
        sure = p!.x;
        const old = <number>sure;
        const literal = ["a", "b"] as const;
        function isPoint(value: unknown): value is Point { return typeof value === "object"; }
        const first = swap<number>([1, 2])[0];
        const make = swap<string>;
        console.log(first, old, literal.length, isPoint(p), make(["x", "y"]).join(""));
        "#,
        "2 1 2 true yx",
    );
}

#[test]
fn overloads_and_this_parameters_are_removed() {
    assert_prints(
        r"
        function f(x: string): string;
        function f(x: number): number;
        function f(x: any) { return x; }
        class A { m(): void; m(n?: number) { return n ?? 'none'; } }
        function hasThis(this: { n: number }, add: number) { return this.n + add; }
        console.log(f(3), new A().m(), hasThis.call({ n: 1 }, 2), hasThis.length);
        ",
        "3 none 3 1",
    );
}

#[test]
fn enums_are_objects_in_both_directions() {
    assert_prints(
        r#"
        enum Colour { Red, Green = 5, Blue, Name = "name", Sum = Green | 2, Len = "abc".length }
        console.log(Colour.Blue, Colour[5], Colour.Name, Colour.Sum, Colour.Len, Object.keys(Colour).length);
        "#,
        "6 Green name 7 3 11",
    );
}

#[test]
fn const_enums_have_values() {
    assert_prints(
        r#"
        const enum Size { Small = 1, Large = Small << 4 }
        export const enum Unit { Metre = "m" }
        console.log(Size.Large, Unit.Metre);
        "#,
        "16 m",
    );
}

#[test]
fn namespaces_hold_values_and_merge() {
    assert_prints(
        r#"
        namespace Geometry {
            const hidden = 2;
            export const scale = 3;
            export interface Shape { area(): number }
            export function area(r: number) { return scale * r * hidden; }
            export namespace Deep { export class Box { size = scale } }
        }
        namespace Geometry { export const more = Geometry.scale + 1; }
        function tool() { return "tool"; }
        namespace tool { export const version = 7; }
        namespace OnlyTypes { export type T = string }
        console.log(Geometry.area(2), new Geometry.Deep.Box().size, Geometry.more, "hidden" in Geometry);
        console.log(tool(), tool.version);
        "#,
        "12 3 4 false\ntool 7",
    );
}

#[test]
fn parameter_properties_are_assigned_before_the_body_runs() {
    assert_prints(
        r"
        class Base { constructor(public readonly id: number) {} }
        class Account extends Base {
            constructor(private owner: string, protected balance = 10) { super(1); this.balance += 1; }
            show() { return `${this.id} ${this.owner} ${this.balance}`; }
        }
        console.log(new Account('ana').show());
        ",
        "1 ana 11",
    );
}

#[test]
fn abstract_classes_lose_only_what_is_abstract() {
    assert_prints(
        r"
        abstract class Shape {
            abstract readonly sides: number;
            abstract area(): number;
            private static count: number = 0;
            declare tag: string;
            optional?: number;
            describe(): string { Shape.count++; return `${this.sides} ${this.area()} ${Shape.count}`; }
        }
        class Square extends Shape implements Iterable<number> {
            override sides = 4;
            #side = 3;
            override area() { return this.#side ** 2; }
            *[Symbol.iterator](): Generator<number> { yield this.#side; }
        }
        const square = new Square();
        console.log(square.describe(), [...square], 'tag' in square, 'optional' in square);
        ",
        "4 9 1 [ 3 ] false true",
    );
}

#[test]
fn accessor_fields_work() {
    assert_prints("class A { accessor x: number = 1; }\nconst a = new A(); a.x++; console.log(a.x);", "2");
}

#[test]
fn decorators_of_the_older_kind_work_on_everything() {
    assert_prints(
        r#"
        const order: string[] = [];
        function sealed(constructor: Function) { order.push("class"); Object.seal(constructor); }
        function named(name: string) { return <T extends { new (...a: any[]): {} }>(base: T) => class extends base { name = name }; }
        function logged(_: any, key: string, descriptor: PropertyDescriptor) {
            const original = descriptor.value;
            descriptor.value = function (...values: unknown[]) { order.push(`call ${key}`); return original.apply(this, values); };
            return descriptor;
        }
        function parameter(_: any, key: string, index: number) { order.push(`${key}#${index}`); }
        function least(minimum: number) {
            return (target: any, key: string) => {
                const values = new WeakMap<object, number>();
                Object.defineProperty(target, key, {
                    get() { return values.get(this); },
                    set(value: number) { if (value < minimum) throw new RangeError(`${key} < ${minimum}`); values.set(this, value); },
                });
            };
        }
        @sealed
        @named("N")
        class Person {
            @least(18) age: number;
            double = this.years * 2;
            static made = 1;
            constructor(public years: number) { this.age = years; }
            @logged greet(@parameter who: string) { return `hi ${who}`; }
            @logged static create() { return new Person(30); }
            get plain() { return this.age; }
        }
        const person = Person.create();
        console.log(person.greet("bo"), person.plain, person.double, (person as any).name, Person.made);
        console.log(order.join(", "), Object.isSealed(Person));
        try { new Person(3); } catch (error) { console.log((error as Error).message); }
        "#,
        "hi bo 30 60 N 1\ngreet#0, class, call create, call greet true\nage < 18",
    );
}

#[test]
fn a_standard_decorator_is_refused_with_a_way_out() {
    assert_eq!(
        errors_of(
            "function logged(value: Function, context: ClassMethodDecoratorContext) {}\n\
             class A { @logged m() {} }"
        ),
        "main.ts:1:43: A standard decorator, which takes a context object, cannot be run\n\
         \x20 function logged(value: Function, context: ClassMethodDecoratorContext) {}\n\
         \x20                                           ^^^^^^^^^^^^^^^^^^^^^^^^^^^\n\
         \x20 help: Write it in the older form, `(target, propertyKey, descriptor)`, or call a function"
    );
}

#[test]
fn a_decorated_class_expression_is_refused_rather_than_left_to_node() {
    let errors = errors_of("const d = (t: any) => t;\nconst A = @d class {};");
    assert!(errors.starts_with("main.ts:2:11: A decorator cannot be run here\n"), "{errors}");
}

#[test]
fn a_variable_exported_from_a_namespace_is_refused_rather_than_miscompiled() {
    let errors = errors_of("namespace N { export let x = 1; export function inc() { x++; } }");
    assert!(
        errors.starts_with("main.ts:1:15: A namespace that exports a variable cannot be run\n"),
        "{errors}"
    );
}

#[test]
fn using_disposes_in_reverse_order_also_on_errors() {
    assert_prints(
        r"
        const open = (name: string) => ({ [Symbol.dispose]() { console.log('close', name); } });
        const broken = (name: string) => ({ [Symbol.dispose]() { throw new Error(name); } });
        function work() {
            using a = open('a');
            using nothing = null;
            using b = open('b');
            return 'worked';
        }
        console.log(work());
        try { using c = open('c'); throw new Error('inner'); } catch (error) { console.log((error as Error).message); }
        try { using d = broken('d'); throw new Error('body'); } catch (error) {
            const { name, error: last, suppressed } = error as any;
            console.log(name, last.message, suppressed.message);
        }
        try { using e = broken('e1'), f = broken('e2'); } catch (error) { console.log((error as any).suppressed.message); }
        try { using g = 5 as any; } catch (error) { console.log((error as Error).name); }
        for (using h of [open('h1'), open('h2')]) console.log('loop');
        ",
        "close b\nclose a\nworked\nclose c\ninner\nSuppressedError d body\ne2\nTypeError\nloop\nclose h1\nloop\nclose h2",
    );
}

#[test]
fn await_using_waits() {
    let kind = assert_prints(
        r"
        const open = (name: string) => ({ async [Symbol.asyncDispose]() { await null; console.log('close', name); } });
        { await using a = open('a'); await using b = open('b'); using c = { [Symbol.dispose]() { console.log('sync'); } }; console.log('body'); }
        async function fail() {
            await using x = open('x');
            await using y = { [Symbol.asyncDispose]: () => Promise.reject(new Error('late')) };
        }
        await fail().catch((error: Error) => console.log(error.message));
        console.log('after');
        ",
        "body\nsync\nclose b\nclose a\nclose x\nlate\nafter",
    );
    assert_eq!(kind, ModuleKind::Module);
}

#[test]
fn modern_javascript_is_left_as_it_is() {
    let source = "class A { #x = 1; static { A.y = this.#in({}); } static #in(o) { return #x in o; } }\n\
                  const z = a?.b ?? (c ||= 1n ** 2n);\nasync function* g() { for await (const { x, ...rest } of h) yield* rest; }\n";
    let code = compile(source, "main.ts").unwrap().code;
    for kept in
        ["#x = 1", "static {", "#x in o", "a?.b ?? (c ||= 1n ** 2n)", "for await (const { x, ...rest }"]
    {
        assert!(code.contains(kept), "{kept} is missing from:\n{code}");
    }
}

// JSX.

const TINY_JSX: &str = r#"
    const Fragment = "";
    function h(tag: any, props: any, ...children: any[]): string {
        if (typeof tag === "function") return tag({ ...props, children });
        const inner = children.flat().join("");
        return tag ? `<${tag}${Object.entries(props ?? {}).map(([k, v]) => ` ${k}=${v}`).join("")}>${inner}</${tag}>` : inner;
    }
    const Item = ({ n }: { n: number }) => <li>{n}</li>;
    const id = <T,>(value: T) => value;
    console.log(<><ul class="x">{[1, 2].map((n) => <Item n={n} />)}</ul>{id<string>("!")}</>);
"#;

#[test]
fn jsx_with_its_own_factory_needs_no_runtime() {
    let ran = run_file("main.tsx", &format!("/** @jsx h */ /** @jsxFrag Fragment */{TINY_JSX}"));
    assert_eq!((ran.stderr.as_str(), ran.stdout.trim_end()), ("", "<ul class=x><li>1</li><li>2</li></ul>!"));
}

#[test]
fn jsx_is_understood_in_a_file_that_is_not_called_tsx() {
    let ran = run_file("main.ts", &format!("/** @jsx h */ /** @jsxFrag Fragment */{TINY_JSX}"));
    assert_eq!((ran.stderr.as_str(), ran.stdout.trim_end()), ("", "<ul class=x><li>1</li><li>2</li></ul>!"));
}

#[test]
fn jsx_uses_the_react_that_the_program_has() {
    assert_prints(
        "const React = { createElement: (...parts: unknown[]) => parts };\nconsole.log(<b id=\"x\">y</b>);",
        "[ 'b', { id: 'x' }, 'y' ]",
    );
}

#[test]
fn jsx_without_react_says_what_is_missing() {
    let ran = run("console.log(<b>x</b>);");
    assert!(ran.stderr.contains("Cannot find module 'react/jsx-runtime'"), "{}", ran.stderr);
}

#[test]
fn old_style_casts_and_generic_arrows_are_not_taken_for_jsx() {
    assert_prints("const f = <T>(x: T) => <any>x;\nconsole.log(f<number>(1));", "1");
}

// ES modules and CommonJS.

#[test]
fn a_program_with_no_module_syntax_is_commonjs() {
    let kind = assert_prints(
        r#"
        const path = require("node:path");
        console.log(typeof module.exports, require.main === module, path.basename(__dirname) === path.basename(process.cwd()));
        if (true as boolean) return;
        console.log("not reached");
        "#,
        "object true true",
    );
    assert_eq!(kind, ModuleKind::CommonJs);
}

#[test]
fn what_makes_a_module() {
    let module = [
        "import fs from 'fs'; fs;",
        "import 'fs';",
        "import { type Stats, readFileSync } from 'fs';",
        "export const x = 1;",
        "export {};",
        "export default function () {}",
        "export enum E { A }",
        "console.log(import.meta.url);",
        "function f() { return import.meta; }",
        "await null;",
        "const x = await (async () => 1)();",
        "await [1];",
        "for await (const x of []) ;",
        "await using x = null;",
        "class A { [await 'x']() {} }",
    ];
    for source in module {
        assert_eq!(compile(source, "main.ts").unwrap().kind, ModuleKind::Module, "{source}");
    }
    let commonjs = [
        "",
        "// import x from 'x'; await y",
        "import type { Stats } from 'fs';",
        "import { type Stats } from 'fs';",
        "export type { Stats } from 'fs';",
        "export interface A {}",
        "export type A = 1;",
        "export declare const x: number;",
        "import fs = require('fs'); fs;",
        "async function f() { await null; for await (const x of []) ; }",
        "const f = async () => { await using x = null; };",
        "import('fs');",
        "namespace N { export const x = 1; }",
        "declare module 'x' { export const y: number; }",
        "declare global { interface Window {} }",
        "export = { a: 1 };",
    ];
    for source in commonjs {
        assert_eq!(compile(source, "main.ts").unwrap().kind, ModuleKind::CommonJs, "{source}");
    }
}

#[test]
fn type_imports_alone_leave_nothing_behind() {
    let kind = assert_prints(
        "import type { Stats } from './not-there';\nexport interface A { s: Stats }\nconsole.log(typeof require);",
        "function",
    );
    assert_eq!(kind, ModuleKind::CommonJs);
}

#[test]
fn imports_that_are_only_used_as_types_are_removed() {
    assert_prints(
        "import { Missing } from './not-there';\nimport { sep } from 'node:path';\nconst m: Missing = sep;\nconsole.log(m);",
        "/",
    );
}

#[test]
fn a_module_may_use_what_only_commonjs_has() {
    let kind = assert_prints(
        r#"
        import { sep } from "node:path";
        import os = require("node:os");
        const fs = require("node:fs");
        async function main() { console.log(sep, typeof os.EOL, typeof fs.readFileSync, __filename.startsWith(__dirname + sep), typeof exports); }
        if (require.main === module) await main();
        module.exports = { main };
        "#,
        "/ string function true object",
    );
    assert_eq!(kind, ModuleKind::Module);
}

#[test]
fn names_that_a_module_defines_itself_are_left_alone() {
    assert_prints(
        r#"
        import { createRequire } from "node:module";
        const require = createRequire(import.meta.url);
        function f(module: string) { return module; }
        console.log(typeof require("node:fs").readFileSync, f("m"));
        "#,
        "function m",
    );
}

#[test]
fn a_script_that_redeclares_what_node_declares_still_runs() {
    let kind = assert_prints(
        "const module = 'm', __dirname = 'd';\nconsole.log(module, __dirname, typeof require);",
        "m d function",
    );
    assert_eq!(kind, ModuleKind::Module);
}

#[test]
fn strictness_is_what_the_source_asks_for() {
    let this = "console.log((function () { return this === undefined; })());";
    assert_prints(this, "false");
    assert_prints(&format!("'use strict';\n{this}"), "true");
    // The helpers that `using` needs come before the directive.
    assert_prints(&format!("'use strict';\n{{ using x = null; }}\n{this}"), "true");
}

// Stack traces.

#[test]
fn an_uncaught_error_shows_the_line_and_column_of_the_original() {
    let ran = run("\
enum Level { Low, High }
interface Options<
  T extends object,
  U = keyof T,
> { value: T; key: U }

function check<T extends Options<object>>(
  options: T,
  level: Level = Level.High,
): asserts options is T {
      throw new Error(`level ${level as number}`);
}
check<Options<{ a: 1 }>>({ value: { a: 1 }, key: 'a' });
");
    assert!(!ran.succeeded);
    let stderr = ran.stderr;
    assert!(
        stderr.starts_with("/mnt/data/main.ts:11\n      throw new Error(`level ${level as number}`);\n"),
        "{stderr}"
    );
    assert!(
        stderr.contains(
            "Error: level 1\n    at check (/mnt/data/main.ts:11:13)\n    at Object.<anonymous> (/mnt/data/main.ts:13:1)\n"
        ),
        "{stderr}"
    );
    assert!(!stderr.contains(".redoma-main"), "{stderr}");
}

#[test]
fn a_caught_error_in_a_module_with_a_prelude_shows_the_original_too() {
    let ran = run("\
import { sep } from 'node:path'; const fs = require('fs');
@((c: any) => c) class Box<T> {
  constructor(private readonly value: T) {}
  open(): never { return (this.value as any).missing.property; }
}
async function later(): Promise<void> { await null; new Box<object>({ sep, fs }).open(); }
try { await later(); } catch (error: unknown) { console.log((error as Error).stack); }
");
    assert_eq!(ran.stderr, "");
    let frames: Vec<_> = ran.stdout.lines().take(3).collect();
    assert_eq!(frames[0], "TypeError: Cannot read properties of undefined (reading 'property')");
    assert_eq!(frames[1], "    at Box.open (/mnt/data/main.ts:4:54)");
    assert_eq!(frames[2], "    at later (/mnt/data/main.ts:6:82)");
    assert_eq!(ran.kind, ModuleKind::Module);
}

#[test]
fn lines_are_right_after_a_byte_order_mark_a_hash_bang_and_windows_line_ends() {
    let ran = run(
        "\u{feff}#!/usr/bin/env ts-node\r\ntype A = 1;\r\n{ using x = null; }\r\n  throw new Error('é' as string);\r\n",
    );
    assert!(ran.stderr.contains("at Object.<anonymous> (/mnt/data/main.ts:4:9)"), "{}", ran.stderr);
}

#[test]
fn columns_are_right_in_a_first_line_with_a_byte_order_mark_and_wide_characters() {
    let ran = run("\u{feff}const s: string = '😀é'; throw new Error(s);");
    assert!(ran.stderr.contains("main.ts:1:32)"), "{}", ran.stderr);
}

#[test]
fn a_file_name_with_odd_characters_is_shown_as_it_is() {
    let ran = run_file("ação #1 50%?.ts", "throw new Error('x');");
    assert!(ran.stderr.contains("(/mnt/data/ação #1 50%?.ts:1:7)"), "{}", ran.stderr);
    let ran = run_file("/elsewhere/a.ts", "throw new Error('x');");
    assert!(ran.stderr.contains("(/elsewhere/a.ts:1:7)"), "{}", ran.stderr);
}

#[test]
fn magic_comments_of_the_source_do_not_reach_node() {
    let source =
        "//# sourceURL=/etc/passwd\n/*# sourceMappingURL=x.map */ throw new Error('x');\n//# sourceURL=y";
    assert_eq!(compile(source, "main.ts").unwrap().code.matches("# source").count(), 1);
    let stderr = run(source).stderr;
    assert!(stderr.contains("(/mnt/data/main.ts:2:37)"), "{stderr}");
}

// What is wrong with a source.

#[test]
fn a_syntax_error_is_shown_in_its_line() {
    assert_eq!(
        errors_of("type A = 1;\nfunction f(a: A {\n\treturn a;\n}\n"),
        "main.ts:2:17: Expected `,` or `)` but found `{`\n\
         \x20 function f(a: A {\n\
         \x20                 ^\n\
         \x20 main.ts:2:11: Opened here"
    );
}

#[test]
fn all_errors_are_shown_in_the_order_of_the_source() {
    let errors =
        errors_of("break;\nlet a = 1;\nlet a = 2;\nconst b;\nconst r = /(/;\nimport('x', );\nnew.target;");
    let places: Vec<_> = errors.lines().filter(|line| line.starts_with("main.ts")).collect();
    assert_eq!(
        places,
        [
            "main.ts:1:1: Illegal break statement",
            "main.ts:3:5: Identifier `a` has already been declared",
            "main.ts:4:7: Missing initializer in const declaration",
            "main.ts:5:12: Invalid regular expression: Unterminated capturing group",
        ]
    );
    assert!(errors.contains("\n  main.ts:2:5: `a` has already been declared here\n"), "{errors}");
}

#[test]
fn the_error_is_the_one_that_the_writer_made() {
    for (source, error) in [
        // Legal in a module, so the reader must not complain about the `await`.
        ("const x = await f();\nlet y = ;", "main.ts:2:9: "),
        // Legal in CommonJS, so not about the `return`.
        ("return f();\nlet y = ;", "main.ts:2:9: "),
        // Legal with JSX, so not about the element.
        ("const x = <b>x</b>;\nlet y = ;", "main.ts:2:9: "),
        // Not legal with JSX, so not about the cast.
        ("const x = <any>y;\nlet x = 1;", "main.ts:2:5: "),
        // Legal in neither at once.
        ("import 'x';\nreturn;", "main.ts:2:1: A 'return' statement can only be used within a function body"),
        ("import 'x';\nlet y = await;", "main.ts:2:14: Unexpected token"),
        ("function f() { await g(); }", "main.ts:1:16: `await` is only allowed within async functions"),
        (
            "{ export default 1; }",
            "main.ts:1:3: `import` and `export` statements can only stand at the top level",
        ),
        (
            "function f() {\n  import fs from 'fs';\n}",
            "main.ts:2:3: `import` and `export` statements can only stand at the top level",
        ),
    ] {
        let errors = errors_of(source);
        assert!(errors.starts_with(error), "{source}\n{errors}");
    }
}

#[test]
fn no_input_makes_it_panic() {
    for (source, compiles) in [
        ("", true),
        ("\u{feff}", true),
        ("#!", true),
        ("\r\n\r\n", true),
        ("// ünï😀", true),
        ("'use strict'", true),
        ("\0", false),
        ("let a = '\0';", true),
        ("'unterminated", false),
        ("`unterminated ${", false),
        ("/* unterminated", false),
        ("/unterminated", false),
        ("\\u{110000}", false),
        ("<!DOCTYPE html><p>", false),
        ("@", false),
        ("enum", false),
        ("class A { constructor(private) {} }", false),
        ("import x = y.z.", false),
        ("<<<<<<< HEAD\na\n=======\nb\n>>>>>>> x", false),
    ] {
        match compile(source, "main.ts") {
            Ok(_) => assert!(compiles, "{source:?} compiles"),
            Err(CompileError::Syntax(errors)) => {
                assert!(!compiles && !errors.to_string().is_empty(), "{source:?}: {errors}");
            }
            Err(error) => panic!("{source:?}: {error}"),
        }
    }
}

#[test]
fn ten_megabytes_are_no_problem() {
    let one_token = format!("let s: string = '{}';", "x".repeat(10_000_000));
    assert!(compile(&one_token, "main.ts").is_ok());
    let one_bad_line = format!("{one_token} let = 1 1;");
    assert!(errors_of(&one_bad_line).len() < 1_000);
}

#[test]
fn deep_nesting_fits_the_stack() {
    let nested =
        |open: &str, close: &str, depth| format!("x = {}1{}", open.repeat(depth), close.repeat(depth));
    for (open, close) in
        [("(", ")"), ("[", "]"), ("f(", ")"), ("!", ""), ("() => ", ""), ("`${", "}`"), ("a ? b : ", "")]
    {
        assert!(compile(&nested(open, close, 20_000), "main.ts").is_ok(), "{open}");
    }
    assert!(errors_of(&"(".repeat(20_000)).starts_with("main.ts:1:"));
}
