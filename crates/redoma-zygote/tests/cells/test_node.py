"""Cells of JavaScript. NODE is the Node to test with."""

import os
import shutil
import signal
import time
import unittest

import redoma_node
from support import FOLDER, Workspace, interrupt_after

NODE = os.environ.get("NODE") or shutil.which("node") or "/usr/bin/node"


@unittest.skipUnless(os.access(NODE, os.X_OK), "there is no Node here")
class JavaScript(Workspace):
    options = {}

    def setUp(self):
        super().setUp()
        self.shown = []
        self.number = 0
        script = os.path.join(FOLDER, "node_kernel.js")
        self.node = redoma_node.Node(self.show, script, self.workspace, programs=(NODE,), **self.options)
        self.addCleanup(self.node.stop)

    def show(self, output):
        # As a supervisor sees it: within what is printed.
        os.write(1, b"<%s>" % next(iter(output)).encode())
        self.shown.append(output)

    def cell(self, code, **more):
        self.shown.clear()
        self.number += 1
        self.answer = self.node.run(code, self.number, **more)
        self.printed = self.output.new()
        return self.value()

    def value(self):
        return next((output["result"]["data"].get("text/plain") for output in self.shown if "result" in output), None)

    def error(self):
        return next((output["error"] for output in self.shown if "error" in output), None)

    def write(self, name, text):
        with open(os.path.join(self.workspace, name), "w") as file:
            file.write(text)

    def test_the_last_expression_is_shown(self):
        self.assertEqual(self.cell("1+1"), "2")
        self.assertEqual(self.answer, {"status": "ok", "notes": []})
        for code in ("undefined", "let a = 1", "if (true) { 5 }", "5; function f() {}", "console.log(1)"):
            self.assertIsNone(self.cell(code), code)
        self.assertEqual(self.cell("'text'"), "'text'")
        self.assertEqual(self.cell("({a: 1})"), "{ a: 1 }")
        self.assertEqual(self.cell("await 1; (({a: 1}))"), "{ a: 1 }")
        self.assertEqual(self.cell("await 1; (1, 2) /* c ) */ ;"), "2")
        self.assertEqual(self.cell("return 42"), "42")
        self.assertLess(len(self.cell("'x'.repeat(1e6)")), 70000)

    def test_all_declarations_live_on_and_may_be_made_again(self):
        first = "let a = 1; const b = 2; var c = 3; class D { x() { return a } }; function e() { return a + b }"
        self.cell(first)
        self.assertEqual(self.cell("[a, b, c, new D().x(), e()]"), "[ 1, 2, 3, 1, 3 ]")
        self.cell(first)
        self.assertEqual(self.answer["status"], "ok")
        self.cell("let a = 10, u; const { b, ...rest } = { b: 20, q: 1 }, [h = 5] = []; class D {}; a++")
        self.assertEqual(self.cell("[a, b, e(), rest, h, u]"), "[ 11, 20, 31, { q: 1 }, 5, undefined ]")

    def test_declarations_around_await_live_on(self):
        self.cell(
            "const { x, y: [z = await Promise.resolve(4)] } = { x: 1, y: [] }\n"
            "for (var i = 0, n; i < 2; i++) { var inner = await i }\n"
            "for (var k of [7]) {}\nfor (var key in {p: 1}) {}\n"
            "function f() { return inner + g() }\nclass C {}\nlet late\nconst g = () => x\nasync function h() { "
                "return await 8 }\n"
            "await (async () => { var own = 1; let hidden = 2 })()"
        )
        self.assertIsNone(self.error())
        seen = self.cell("[x, z, i, n, inner, k, key, f(), typeof C, late, await h(), typeof own, typeof hidden]")
        self.assertEqual(" ".join(seen.split()), "[ 1, 4, 2, undefined, 1, 7, 'p', 2, 'function', undefined, 8, "
            "'undefined', 'undefined' ]")

    def test_names_that_node_has_may_be_declared(self):
        self.assertEqual(self.cell("const crypto = require('crypto'), { performance } = require('perf_hooks'); "
            "crypto.randomUUID().length"), "36")
        self.assertEqual(self.cell("const fetch = 1, navigator = 2, URL = 3, process = require('process'); [fetch, "
            "navigator, URL]"), "[ 1, 2, 3 ]")
        self.assertEqual(self.cell("1 + 1"), "2")

    def test_imports_become_what_they_say(self):
        self.write("mod.mjs", "export default 7; export const x = 8; const s = 9; export { s as 'odd name' }")
        self.write("common.cjs", "const hidden = {late: 5}; module.exports = Object.assign({}, hidden)")
        self.write("data.json", '{"k": 1}')
        self.assertEqual(
            self.cell("import d, { x as renamed } from './mod.mjs'\nimport * as all from './mod.mjs'; import "
                "'fs'\n[d, renamed, all.x]"),
            "[ 7, 8, 8 ]",
        )
        self.assertEqual(self.cell("import fs, { readFileSync } from 'fs'; import path from 'node:path'; import { "
            "late } from './common.cjs'\nd + late"), "12")
        self.assertEqual(self.cell("[typeof readFileSync, typeof fs.statSync, path.join('a', 'b')]"),
            "[ 'function', 'function', 'a/b' ]")
        self.assertEqual(self.cell("(await import('./mod.mjs')).x + require('./data.json').k"), "9")
        self.assertEqual(self.cell("used(); function used() { return 1 }\nimport { x } from './mod.mjs'; x"), "8")
        self.cell("import { nope } from 'fs'")
        self.assertIn("does not provide an export named 'nope'", self.error()["value"])
        self.cell("import x from './missing.mjs'")
        self.assertIn("missing.mjs", self.error()["value"])
        self.cell("import x from 'no-such-package'")
        self.assertIn("no-such-package", self.error()["value"])

    def test_what_only_looks_like_an_import_is_left_alone(self):
        code = (
            "let s = `\nimport a from 'b'\n${'await 1'}`; // import c from 'd'\nconst r = /import e from 'f'/g; "
            "/*\nimport g from 'h' */ s.length + r.source.length"
        )
        self.assertEqual(self.cell(code), str(len("\nimport a from 'b'\nawait 1") + len("import e from 'f'")))
        self.assertEqual(self.cell("const o = { import: 1, await: 2, export: 3 }; o.import + o.await + o.export"), "6")
        self.assertEqual(self.cell("let div = 4 / 2 / 1; div"), "2")

    def test_exports_are_dropped(self):
        self.cell("export const a = 1; export default function f() { return 2 }\nexport { a as b }; export class C "
            "{}\nexport let d = await 3")
        self.assertEqual(self.cell("[a, f(), typeof C, d]"), "[ 1, 2, 'function', 3 ]")
        self.cell("export * from 'fs'")
        self.assertEqual(self.error()["name"], "SyntaxError")

    def test_common_js_names_are_there(self):
        self.write("lib.js", "exports.up = require('path').basename(__dirname)")
        self.assertEqual(self.cell("[__dirname, process.cwd()].every(f => f === require('fs').realpathSync('.'))"),
            "true")
        self.assertEqual(self.cell("require.main === module && typeof exports"), "'object'")
        self.assertEqual(self.cell("require('./lib').up"), f"'{os.path.basename(self.workspace)}'")
        self.assertEqual(self.cell("import.meta.url"), f"'file://{self.workspace}/cell.js'")
        self.assertEqual(self.cell("[] instanceof Array && new Error instanceof Error && Buffer.from('a') "
            "instanceof Uint8Array"), "true")

    def test_errors_name_the_cell_and_the_line(self):
        self.cell("1")
        self.cell("function f() {\n  null.x\n}\n\n  f()")
        self.assertEqual(self.error()["name"], "TypeError")
        self.assertEqual(self.error()["traceback"][1:], ["    at f (<cell 2>:2:8)", "    at <cell 2>:5:3"])
        self.cell("const a = 1; await 1; f()")
        self.assertEqual(self.error()["traceback"][1], "    at f (<cell 2>:2:8)")
        self.assertRegex(self.error()["traceback"][2], r"at (async )?<cell 3>:1:\d+")
        self.cell("throw 'text'")
        self.assertEqual(self.error(), {"name": "Uncaught", "value": "'text'", "traceback": ["Uncaught 'text'"]})
        self.cell("console.error(new Error('x'))")
        self.assertEqual(self.printed, "Error: x\n    at <cell 5>:1:15\n")
        self.cell("throw Object.create(null)")
        self.assertEqual(self.answer["status"], "error")
        self.cell("throw new Proxy({}, { get() { throw 1 } })")
        self.assertEqual(self.answer["status"], "error")

    def test_syntax_errors_show_the_place(self):
        for code in ("1\nlet b = ;", "await 1\nlet b = ;", "import 'fs'\nlet b = ;"):
            self.cell(code)
            error = self.error()
            self.assertEqual(error["name"], "SyntaxError")
            self.assertEqual(error["traceback"][:3], [f"<cell {self.number}>:2", "let b = ;", "        ^"])
        self.cell("let x = 1; let x = 2")
        self.assertIn("already been declared", self.error()["value"])

    def test_what_goes_wrong_later_does_not_end_it(self):
        self.cell("let a = 1; Promise.reject(new RangeError('lost')); 5")
        self.assertEqual(self.error()["name"], "RangeError")
        self.cell("setTimeout(() => { throw new Error('late') }, 30)")
        self.cell("await new Promise((done) => setTimeout(done, 500)); 1")
        self.assertEqual(self.error()["value"], "late")
        self.cell("setTimeout(() => { throw new Error('between') }, 1); undefined")
        time.sleep(0.1)
        self.assertEqual(self.cell("a"), "1")

    def test_timers_go_on_between_cells(self):
        self.cell("let n = 0; setInterval(() => n++, 5); undefined")
        time.sleep(0.2)
        self.assertEqual(self.cell("n > 5"), "true")

    def test_order_is_kept(self):
        self.cell("console.log('a'); display(1); console.log('b'); display({'text/html': '<i>'}); "
            "console.error('c'); 5")
        self.assertEqual(self.printed, "a\n<display>b\n<display>c\n<result>")
        self.cell("for (let i = 0; i < 3000; i++) console.log('x'.repeat(99)); 1")
        self.assertEqual(len(self.printed), 300000 + len("<result>"))

    def test_rich_values_are_shown_as_such(self):
        self.cell("({'text/html': '<b>', 'application/json': {a: [1]}})")
        self.assertEqual(self.shown[0]["result"]["data"], {"text/html": "<b>", "application/json": {"a": [1]}})
        self.cell("({ [Symbol.for('Jupyter.display')]: async () => ({ 'image/png': Buffer.from('x') }), a: 1 })")
        self.assertEqual(self.shown[0]["result"]["data"]["image/png"], "eA==")
        self.assertIn("a: 1", self.value())
        self.cell("({ toHTML() { return '<p>' } })")
        self.assertEqual(self.shown[0]["result"]["data"]["text/html"], "<p>")
        self.cell("({ toHTML() { throw 1 } })")
        self.assertIn("toHTML", self.value())
        self.cell("display([1, 2]); await display({ toHTML: () => '<q>' })")
        self.assertEqual(self.shown[0]["display"], {"data": {"text/plain": "[ 1, 2 ]"}, "metadata": {}, "id": None,
            "update": False})
        self.assertEqual(self.shown[1]["display"]["data"]["text/html"], "<q>")

    def test_promises_are_shown_unless_awaited(self):
        self.assertEqual(self.cell("Promise.resolve(1)"), "Promise { 1 }")
        self.node.await_promises = True
        self.assertEqual(self.cell("(async () => { await null; console.log('in'); return 5 })()"), "5")
        self.assertEqual(self.printed, "in\n<result>")

    def test_exit_ends_the_cell_only(self):
        self.cell("let a = 1; process.exit(3)")
        self.assertEqual(self.answer["status"], "error")
        self.cell("a++; await 1; process.exit()")
        self.assertEqual(self.answer["status"], "ok")
        self.cell("setTimeout(() => process.exit(1), 10); await new Promise(() => {})")
        self.assertEqual(self.answer["status"], "error")
        self.assertEqual(self.cell("a"), "2")

    def test_its_end_is_said_and_it_starts_anew(self):
        for code in ("process.kill(process.pid, 'SIGKILL'); await new Promise(() => {})", "process.abort()",
            "process.reallyExit(4)"):
            self.cell("var a = 1")
            self.cell(code)
            self.assertEqual(self.answer["status"], "error")
            self.assertIn("JavaScript's variables are gone", self.answer["notes"][0])
            self.assertEqual(self.cell("typeof a"), "'undefined'")
            self.assertTrue(self.answer["restarted"])
            self.cell("1")
            self.assertNotIn("restarted", self.answer)

    def test_its_end_between_cells_is_noticed(self):
        self.cell("setTimeout(() => process.reallyExit(0), 1); 1")
        time.sleep(0.2)
        self.assertEqual(self.cell("2"), "2")
        self.assertTrue(self.answer["restarted"])

    def test_closed_pipes_do_not_hang_it(self):
        for number in (4, 5):
            self.cell(f"require('fs').closeSync({number}); display(1)")
            self.assertEqual(self.answer["status"], "error")
        self.assertEqual(self.cell("2"), "2")
        for end, _ in self.node.pipes:
            os.close(end)
        self.cell("2")
        self.assertEqual(self.cell("3"), "3")

    def test_a_loop_is_interrupted_and_variables_stay(self):
        self.cell("var a = 1")
        for code in ("while (true) {}", "await new Promise(() => {})",
            "await null; require('child_process').execSync('sleep 20')"):
            began = time.monotonic()
            interrupt_after(0.3)
            self.cell(code)
            self.assertEqual(self.answer["status"], "error", code)
            self.assertLess(time.monotonic() - began, 2)
            self.assertEqual(self.answer["notes"], ["The cell was interrupted."])
            self.assertEqual(self.cell("a"), "1", code)

    def test_what_can_not_be_interrupted_is_ended(self):
        self.cell("var a = 1")
        interrupt_after(0.3)
        self.cell("await null; while (true) {}")
        self.assertIn("JavaScript's variables are gone", self.answer["notes"][1])
        self.assertEqual(self.cell("2"), "2")
        self.assertTrue(self.answer["restarted"])

    def test_another_copy_may_have_left_it_busy(self):
        self.cell("var a = 1")
        pid = os.fork()
        if pid == 0:
            try:
                null = os.open("/dev/null", os.O_WRONLY)
                os.dup2(null, 1)
                self.node.run("display(1); while (true) {}", 9)
            finally:
                os._exit(0)
        time.sleep(0.5)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self.assertEqual(self.cell("a"), "1")
        self.assertEqual(self.answer, {"status": "ok", "notes": []})

    def test_memory_has_a_limit(self):
        self.node.memory_mb = 64
        self.cell("const all = []; while (true) all.push(new Array(1000).fill({}))")
        self.assertEqual(self.answer["status"], "error")
        self.assertIn("variables are gone", self.answer["notes"][0])

    def test_children_get_none_of_its_pipes(self):
        before = set(os.listdir("/proc/self/fd"))
        seen = self.cell("require('child_process').execSync('ls /proc/self/fd').toString().trim().split('\\n').length")
        self.assertLessEqual(int(seen), len(before) + 1)
        self.assertEqual(self.cell("process.stdin.read()"), "null")

    def test_stdout_stays_as_it_was(self):
        reader, writer = os.pipe()
        saved = os.dup(1)
        os.dup2(writer, 1)
        try:
            self.node.run("console.log(1)", 1)
            self.assertTrue(os.get_blocking(1))
        finally:
            os.dup2(saved, 1)
            for descriptor in (saved, reader, writer):
                os.close(descriptor)

    def test_strange_code_is_just_code(self):
        self.assertIsNone(self.cell(""))
        self.assertIsNone(self.cell("// nothing"))
        self.assertEqual(self.cell("#!/usr/bin/env node\n1"), "1")
        self.assertEqual(self.cell("#!/usr/bin/env node\nawait 1"), "1")
        self.assertEqual(self.cell("'\ud800'.length"), "1")
        self.assertEqual(self.cell("await 1 // end"), "1")
        self.assertEqual(self.cell("a = 1\n\n;[1, 2].length"), "2")
        self.assertEqual(self.cell("with ({ y: 3 }) { var got = y }\ngot"), "3")
        self.assertEqual(self.cell("'use strict'; (function () { return this })()"), None)
        self.assertEqual(self.cell("/*" + "x" * 2000000 + "*/ 5"), "5")
        self.assertEqual(self.cell("process.removeAllListeners(); 1"), "1")
        self.assertEqual(self.cell("JSON.stringify = null; globalThis.Buffer = null; 1"), "1")
        self.assertEqual(self.cell("2"), "2")

    def test_no_node_is_said(self):
        self.node.programs = ("/nonexistent/node",)
        self.cell("1")
        self.assertEqual(self.answer, {"status": "error", "notes": ["There is no Node to run JavaScript with."]})
