//! Programs that call tools: functions which somebody outside of the sandbox answers while they run.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::time::{Duration, Instant};

use redoma_tests::Mode;
use redoma_tests::engine::Engine;
use serde_json::{Value, json};

/// `add` adds up its arguments, `fail` answers with an error, `silent` never answers, `long` answers with 400 KB.
fn answer(call: &Value) -> Option<Value> {
    match call["tool"].as_str().unwrap() {
        "Add numbers!" => {
            let sum: i64 = call["input"].as_object().unwrap().values().filter_map(Value::as_i64).sum();
            Some(json!({ "result": { "sum": sum, "text": "ü\n\"\\" } }))
        }
        "fail" => Some(json!({ "error": "no luck" })),
        "long" => Some(json!({ "result": "x".repeat(400_000) })),
        _ => None,
    }
}

/// Runs a program with all four; its report, the calls, and how many answers were refused.
fn run_with(engine: &mut Engine, language: &str, code: &str, more: &Value) -> (Value, Vec<Value>, usize) {
    let tools = json!({ "add": "Add numbers!", "fail": "fail", "silent": "silent", "long": "long" });
    let mut request = json!({ "op": "run", "lang": language, "code": code, "tools": tools });
    for (key, value) in more.as_object().into_iter().flatten() {
        request[key] = value.clone();
    }
    let run = engine.send(request);
    let (mut calls, mut refused) = (Vec::new(), 0);
    loop {
        let said = engine.answer();
        if said["call"].is_object() {
            let call = said["call"].clone();
            if let Some(mut reply) = answer(&call) {
                reply["op"] = "answer".into();
                reply["run"] = run.into();
                reply["call_id"] = call["id"].clone();
                engine.send(reply);
            }
            calls.push(call);
        } else if said["id"] == run {
            return (said, calls, refused);
        } else if said["ok"] == false {
            refused += 1;
        }
    }
}

fn run(engine: &mut Engine, language: &str, code: &str) -> (Value, Vec<Value>) {
    let (report, calls, _) = run_with(engine, language, code, &json!({}));
    (report, calls)
}

fn ids(calls: &[Value]) -> Vec<&str> {
    calls.iter().map(|call| call["id"].as_str().unwrap()).collect()
}

#[test]
fn python_awaits_tools_at_the_top_level() {
    for mode in Mode::available() {
        let mut engine = Engine::start(mode);
        let code = "print('before')\nanswer = await add(a=1, b=2)\nprint(answer)\nanswer['sum']";
        let (report, calls, _) = run_with(&mut engine, "py", code, &json!({ "last_value": true }));
        assert_eq!(report["stdout"], "before\n{'sum': 3, 'text': 'ü\\n\"\\\\'}\n", "{report}");
        assert_eq!(report["value"], "3");
        assert_eq!(calls, [json!({ "id": "call_001", "tool": "Add numbers!", "input": { "a": 1, "b": 2 } })]);
    }
}

#[test]
fn python_calls_several_tools_at_once_and_from_loops_of_its_own() {
    let mut engine = Engine::start(Mode::available()[0]);
    let gather =
        "import asyncio\nprint(sum(a['sum'] for a in await asyncio.gather(*(add(a=i) for i in range(200)))))";
    let (report, calls) = run(&mut engine, "py", gather);
    assert_eq!((report["stdout"].as_str(), calls.len()), (Some("19900\n"), 200), "{report}");
    assert_eq!(ids(&calls)[..3], ["call_001", "call_002", "call_003"]);
    let own_loop = "\
import asyncio, threading
async def main(n): print((await add(n=n))['sum'])
asyncio.run(main(1))
thread = threading.Thread(target=lambda: asyncio.run(main(2)))
thread.start(); thread.join()
import sys; print(repr(sys.stdin.read()))";
    let (report, _) = run(&mut engine, "py", own_loop);
    assert_eq!(report["stdout"], "1\n2\n''\n", "{report}");
    // All are sent before any is waited for.
    let at_once = "import asyncio\nasync def main():\n    first = asyncio.ensure_future(silent())\n    print(await asyncio.gather(add(a=1), add(a=2)))\nasyncio.run(main())";
    let (report, calls) = run(&mut engine, "py", at_once);
    assert_eq!((report["exit_code"].as_i64(), calls.len()), (Some(0), 3), "{report}");
}

#[test]
fn a_tools_error_is_an_exception_with_the_scripts_own_lines_only() {
    let mut engine = Engine::start(Mode::available()[0]);
    let (report, _) = run(
        &mut engine,
        "py",
        "try:\n    await fail()\nexcept ToolError as error:\n    print(error)\nawait fail(x=1)",
    );
    assert_eq!((report["exit_code"].as_i64(), report["stdout"].as_str()), (Some(1), Some("no luck\n")));
    let expected = "Traceback (most recent call last):\n  File \"/mnt/data/main.py\", line 5, in <module>\n    await fail(x=1)\nToolError: no luck\n";
    assert_eq!(report["stderr"], expected);
    let (report, calls) = run(&mut engine, "py", "await add(1)");
    let stderr = report["stderr"].as_str().unwrap();
    assert!(stderr.contains("TypeError: add() takes keyword arguments only") && calls.is_empty(), "{stderr}");
    for code in ["await add(a=float('nan'))", "await add(a='\\ud800')", "await add(a=open)"] {
        let (report, calls) = run(&mut engine, "py", code);
        assert!(report["exit_code"] == 1 && calls.is_empty(), "{code}: {report}");
    }
    let (report, _) = run(&mut engine, "py", "import sys\nsys.exit((await add(a=3))['sum'])");
    assert_eq!((report["exit_code"].as_i64(), report["stderr"].as_str()), (Some(3), Some("")));
}

#[test]
fn bash_calls_tools_in_substitutions_pipes_and_the_background() {
    for mode in Mode::available() {
        let mut engine = Engine::start(mode);
        let code = r#"#!/bin/bash
set -eu
x=$(add '{"a": 1, "b": 2}'); echo "$x"
add '{"a": 5}' | tr a-z A-Z; echo
add '{"a":1}' >one & add '{"a":2}' >two & wait
cat one two | grep -o 'sum":.' | sort
fail || echo "failed with $?"
add '{bad' || echo "bad: $?"
add a b || echo "two: $?"
bash -c 'add "{\"a\": 9}"; echo'
timeout 0.3 bash -c silent || echo "gave up: $?"
add '{
  "a": 7 }'; echo
cat; echo "$LINENO $0 $#"
"#;
        let (report, calls) = run(&mut engine, "bash", code);
        let expected = r#"{"sum":3,"text":"ü\n\"\\"}
{"SUM":5,"TEXT":"ü\N\"\\"}
sum":1
sum":2
failed with 1
bad: 2
two: 2
{"sum":9,"text":"ü\n\"\\"}
gave up: 124
{"sum":7,"text":"ü\n\"\\"}
14 main.sh 0
"#;
        assert_eq!(report["stdout"], expected, "{report}");
        let stderr = "no luck\nadd: the argument is not a JSON object\nadd: takes one argument, a JSON object; put it into quotes\n";
        assert_eq!(report["stderr"], stderr);
        let count = calls.len();
        assert_eq!(ids(&calls)[count - 1], format!("call_{count:03}"));
        let (report, _) = run(&mut engine, "bash", "long | wc -c\necho )");
        assert_eq!(report["stdout"], "400002\n", "{report}");
        assert_eq!(report["stderr"].as_str().unwrap().lines().last().unwrap(), "main.sh: line 2: `echo )'");
    }
}

#[test]
fn languages_without_tools_say_so() {
    let mut engine = Engine::start(Mode::available()[0]);
    for language in ["js", "ts"] {
        let (report, _) = run(&mut engine, language, "1");
        assert!(report["error"].as_str().unwrap().contains("can't call tools"), "{report}");
    }
}

#[test]
fn the_clock_stands_still_while_a_call_waits_but_not_for_ever() {
    let mut engine = Engine::start(Mode::available()[0]);
    let start = Instant::now();
    let run = engine.send(json!({
        "op": "run", "lang": "py", "code": "print(await add(a=1))", "tools": { "add": "add" }, "limits": { "wall": "400ms" },
    }));
    let call = engine.answer();
    assert_eq!(call["run"], run);
    std::thread::sleep(Duration::from_secs(1));
    engine.send(json!({ "op": "answer", "run": run, "call_id": "call_001", "result": 5 }));
    // In either order: the program may have ended before it is told that it got its answer.
    let (one, other) = (engine.answer(), engine.answer());
    let (taken, report) = if one["id"] == run { (other, one) } else { (one, other) };
    assert_eq!(taken["ok"], true);
    assert_eq!(
        (report["stdout"].as_str(), report["ending"].as_str()),
        (Some("5\n"), Some("exited")),
        "{report}"
    );
    assert!(start.elapsed() > Duration::from_secs(1) && report["wall_ms"].as_u64().unwrap() < 400);

    let (report, _, _) = run_with(&mut engine, "py", "await silent()", &json!({ "patience_ms": 300 }));
    assert_eq!((&report["ending"], &report["tool_wait_exceeded"]), (&json!("cancelled"), &json!(true)));
    // Answered, it goes on; and CPU time always counts.
    let busy = "import asyncio\nasync def main():\n    asyncio.ensure_future(silent())\n    await asyncio.sleep(0)\n    while True: pass\nasyncio.run(main())";
    let (report, _, _) = run_with(&mut engine, "py", busy, &json!({ "limits": { "cpu_time": "300ms" } }));
    assert_eq!(report["limit"], "cpu_time", "{report}");
    let (report, _, _) = run_with(
        &mut engine,
        "py",
        "await add(a=1)\nwhile True: pass",
        &json!({ "limits": { "wall": "300ms" } }),
    );
    assert_eq!(report["limit"], "wall", "{report}");
}

/// How hostile code finds what its frames begin with.
const FIND_NONCE: &str = "\
import gc, os, sys, time
start = next(o.start for o in gc.get_objects() if type(o).__name__ == 'Frames')
def say(text): os.write(1, start + text + b'\\n')
";

#[test]
fn forged_frames_are_harmless() {
    let mut engine = Engine::start(Mode::available()[0]);
    let forged = format!(
        "{FIND_NONCE}
for text in [b'', b'[]', b'null', b'{{', b'{{\"value\": 1}}', b'{{\"other\": 1}}', b'\\xff\\xfe', b'[' * 100000, b'{{\"call\": {{}}}}',
             b'{{\"call\": {{\"id\": \"x\", \"tool\": \"unknown\", \"input\": {{}}}}}}',
             b'{{\"call\": {{\"id\": \"a b\", \"tool\": \"add\", \"input\": {{}}}}}}']:
    say(text)
say(b'{{\"value\": \"forged\"}}')
for _ in range(3): say(b'{{\"call\": {{\"id\": \"same\", \"tool\": \"add\", \"input\": {{}}}}}}')
print('still here')
print((await add(a=1))['sum'])"
    );
    let (report, calls) = run(&mut engine, "py", &forged);
    assert_eq!(report["stdout"], "still here\n1\n", "{report}");
    assert_eq!(report["value"], "forged");
    assert_eq!(ids(&calls), ["call_001", "call_002", "call_003", "call_004"]);
    // Without having asked, such bytes are output.
    let plain = engine
        .run("py", "import sys; sys.stdout.buffer.write(b'\\x1e' + b'0' * 32 + b'{\"value\": \"x\"}\\n')");
    assert_eq!(plain["stdout"], format!("\u{1e}{}{{\"value\": \"x\"}}\n", "0".repeat(32)), "{plain}");
}

#[test]
fn who_floods_with_frames_or_calls_is_ended() {
    let mut engine = Engine::start(Mode::available()[0]);
    let endless = format!("{FIND_NONCE}\nos.write(1, start)\nwhile True: os.write(1, b'x' * 65536)");
    let (report, _) = run(&mut engine, "py", &endless);
    assert_eq!(report["limit"], "output", "{report}");
    let many = format!("{FIND_NONCE}\nwhile True: say(b'{{\"value\": \"' + b'x' * 500000 + b'\"}}')");
    let (report, _) = run(&mut engine, "py", &many);
    assert_eq!(report["limit"], "output", "{report}");
    let calls = format!(
        "{FIND_NONCE}\nfor _ in range(1000): say(b'{{\"call\": {{\"id\": \"x\", \"tool\": \"silent\", \"input\": {{}}}}}}')\ntime.sleep(5)"
    );
    let (report, calls) = run(&mut engine, "py", &calls);
    assert_eq!(
        (&report["ending"], &report["too_many_tool_calls"]),
        (&json!("cancelled"), &json!(true)),
        "{report}"
    );
    assert_eq!(calls.len(), 64);
    assert_eq!(engine.output("py", "print(1)"), "1\n");
}

#[test]
fn answers_that_nobody_reads_block_nobody() {
    let mut engine = Engine::start(Mode::available()[0]);
    // Who reads them gets them all, also if they are more than fit into the queue.
    let code =
        "import asyncio\nprint(sum(len(x) for x in await asyncio.gather(*(long() for _ in range(60)))))";
    let (report, _) = run(&mut engine, "py", code);
    assert_eq!(report["stdout"], "24000000\n", "{report}");
    let deaf = format!(
        "{FIND_NONCE}\nfor _ in range(50): say(b'{{\"call\": {{\"id\": \"x\", \"tool\": \"long\", \"input\": {{}}}}}}')\ntime.sleep(600)"
    );
    let limits = json!({ "wall": "600s" });
    let run = engine.send(
        json!({ "op": "run", "lang": "py", "code": deaf, "tools": { "long": "long" }, "limits": limits, "patience_ms": 600_000 }),
    );
    // 20 MB do not fit. Whoever answers is told at once, and others run meanwhile.
    let (mut answered, mut refused) = (0, 0);
    while answered + refused < 50 {
        let said = engine.answer();
        if said["call"].is_object() {
            let (call, text) = (&said["call"]["id"], "x".repeat(400_000));
            engine.send(json!({ "op": "answer", "run": run, "call_id": call, "result": text }));
        } else if said["ok"] == true {
            answered += 1;
        } else {
            assert!(said["error"].as_str().unwrap().contains("has not read"), "{said}");
            refused += 1;
        }
    }
    assert!((40..=42).contains(&answered), "{answered} answered, {refused} refused");
    assert_eq!(engine.output("py", "print(1)"), "1\n");
    engine.kill();
}
