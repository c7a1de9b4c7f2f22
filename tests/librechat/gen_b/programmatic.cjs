// Python that calls the agent's tools: each call leaves the sandbox, is answered by the client, and the
// same process goes on.
'use strict';

const {
  BEARER, ID, assert, crypto, describe, eventually, get, post, postOk, recordTraffic, routes, sleep, test,
} = require('../support.cjs');
const { conversation, place, say, upload, whose } = require('./client.cjs');
const { innerTools, makeTools, runPython } = require('./inner_tools.cjs');

const definitions = (...toolNames) =>
  toolNames.map((name) => ({ name, description: name, parameters: innerTools[name].parameters }));

describe('programmatic Python');

test('a program awaits a tool and uses its answer', async () => {
  const answer = await runPython(['get_weather'], `
weather = await get_weather(city="SF")
print(weather["temp"] + 1, type(weather).__name__)`);
  assert.equal(answer.text, 'stdout:\n23 dict');
  assert.deepEqual(answer.calls, [{ name: 'get_weather', input: { city: 'SF' } }]);
});

test('answers arrive as what they are: numbers, text, nothing special', async () => {
  const answer = await runPython(['add', 'greet'], `
print(await add(a=2, b=0.5))
print(await greet(name="Zoë"))`);
  assert.equal(answer.text, 'stdout:\n2.5\nhello Zoë – 你好 "quoted"');
});

test('asyncio is at hand without an import, and three calls run together', async () => {
  await recordTraffic(async (baseUrl, seen) => {
    const answer = await runPython(['get_weather'], `
cities = ["SF", "NYC", "Lima"]
found = await asyncio.gather(*[get_weather(city=c) for c in cities])
print([f["city"] for f in found], [f["temp"] for f in found])`, { baseUrl });
    assert.equal(answer.text, "stdout:\n['SF', 'NYC', 'Lima'] [22, 23, 24]");
    assert.equal(answer.calls.length, 3);
    assert.equal(seen.length, 2, 'calls made together travel together: one round trip');
    const { tool_calls } = JSON.parse(seen[0].answer);
    assert.equal(new Set(tool_calls.map((call) => call.id)).size, 3, 'each call has its own id');
  });
});

test('thirty calls together stay within the twenty round trips that a client allows', async () => {
  const answer = await runPython(['add'], `
sums = await asyncio.gather(*[add(a=n, b=1) for n in range(30)])
print(sum(sums))`);
  assert.equal(answer.text, 'stdout:\n465');
  assert.equal(answer.calls.length, 30);
});

test('a loop may call ten times, one after the other', async () => {
  const answer = await runPython(['add'], `
total = 0
for n in range(10):
    total = await add(a=total, b=n)
print(total)`);
  assert.equal(answer.text, 'stdout:\n45');
  assert.equal(answer.calls.length, 10);
});

test('the program is not run again: what came before a call happened once', async () => {
  const answer = await runPython(['add'], `
import os, random, time
lucky, born, me = random.random(), time.time(), os.getpid()
print("before", lucky)
open("/mnt/data/log.txt", "a").write("once\\n")
await add(a=1, b=1)
open("/mnt/data/log.txt", "a").write("twice\\n")
await add(a=2, b=2)
print("after", lucky)
print(open("/mnt/data/log.txt").read().split(), me == os.getpid())`);
  const [, before, after, rest] = answer.text.match(/before (\S+)\nafter (\S+)\n(.*)/);
  assert.equal(before, after);
  assert.equal(rest, "['once', 'twice'] True");
  assert.equal(answer.text.match(/before/g).length, 1);
});

test("a tool's error can be caught", async () => {
  const answer = await runPython(['boom', 'add'], `
try:
    await boom()
except Exception as error:
    print("caught:", error)
print(await add(a=1, b=1))`);
  assert.match(answer.text, /^stdout:\ncaught: .*the database is on fire/);
  assert.match(answer.text, /\n2$/, 'and the program goes on');
});

test('an error that is not caught reaches the model', async () => {
  const answer = await runPython(['boom'], 'await boom()');
  assert.match(answer.text, /the database is on fire/);
});

test('arguments that do not fit are an error that the program sees', async () => {
  const answer = await runPython(['get_weather'], `
try:
    await get_weather(city=7)
except Exception as error:
    print("caught", type(error).__name__)`);
  assert.match(answer.text, /^stdout:\ncaught/);
});

test('an argument that is None counts as left out', async () => {
  const answer = await runPython(['get_weather'], 'print((await get_weather(city="SF", units=None))["city"])');
  assert.equal(answer.text, 'stdout:\nSF');
  assert.deepEqual(answer.calls[0].input, { city: 'SF' });
});

test('names that Python cannot have are adapted', async () => {
  const answer = await runPython(['get-stock.price', 'class', '2fast'], `
print((await get_stockprice(symbol="X"))["price"], await class_tool(), await _2fast())`);
  assert.equal(answer.text, 'stdout:\n7 a keyword a digit');
  assert.deepEqual(answer.calls.map((call) => call.name), ['get-stock.price', 'class', '2fast']);
});

test('tools work inside functions and in tasks', async () => {
  const answer = await runPython(['add'], `
import json
async def double(n):
    return await add(a=n, b=n)
task = asyncio.create_task(double(21))
print(json.dumps({"answer": await task}))`);
  assert.equal(answer.text, 'stdout:\n{"answer": 42}');
});

test('a program may end early with return', async () => {
  const answer = await runPython(['add'], `
if await add(a=1, b=1) == 2:
    print("enough")
    return
print("never")`);
  assert.equal(answer.text, 'stdout:\nenough');
});

test('a megabyte goes out and comes in', async () => {
  const answer = await runPython(['large', 'greet'], `
big = await large(size=1_000_000)
echo = await greet(name=big)
print(len(big), len(echo) > 1_000_000)`);
  assert.equal(answer.text, 'stdout:\n1000000 True');
});

test('a program that fails shows its traceback', async () => {
  const answer = await runPython(['add'], 'print("before")\nawait add(a=1, b=1)\nraise ValueError("boom")');
  assert.match(answer.text, /ValueError: boom/);
});

test('a program that does not parse shows why', async () => {
  assert.match((await runPython(['add'], 'x = = 1')).text, /SyntaxError/);
});

test('the time that a tool takes is not the time of the program', async () => {
  const answer = await runPython(['slow'], 'print(await slow(ms=2500))', { timeout: 1000 });
  assert.equal(answer.text, 'stdout:\nat last');
});

test('a program that takes too long is stopped, and the model is told', async () => {
  const started = Date.now();
  const answer = await runPython(['add'], 'import time\nawait add(a=1, b=1)\ntime.sleep(60)', { timeout: 1500 });
  assert.ok(Date.now() - started < 10_000);
  assert.match(answer.text, /Execution exceeded the time limit/);
});

test('a flood of output is cut, and the model is told', async () => {
  const answer = await runPython(['add'], 'while True: print("x" * 1000)', { timeout: 8000 });
  assert.match(answer.text.slice(-3000), /size limit|output|truncated/i);
}, { seconds: 30 });

test('running out of memory is told as that', async () => {
  const answer = await runPython(['add'], 'hoard = []\nwhile True: hoard.append(bytearray(b"x" * (64 << 20)))');
  assert.match(answer.text, /memory/i);
}, { seconds: 30 });

test('a program without tools runs as an ordinary one', async () => {
  const { tools } = makeTools(['add']);
  const talk = conversation({ tools });
  const answer = await talk.say('run_tools_with_code', { code: 'print(await asyncio.sleep(0, "plain"))', tool_manifest: [] });
  assert.equal(answer.text, 'stdout:\nplain', 'the client wraps it itself and sends it to /exec');
});

test('files of the conversation are there, and new ones are kept for it', async () => {
  const { tools } = makeTools(['add']);
  const talk = conversation({ tools, files: [await upload('numbers.txt', '40 2')] });
  const answer = await talk.say('run_tools_with_code', { code: `
a, b = map(int, open("/mnt/data/numbers.txt").read().split())
total = await add(a=a, b=b)
open("/mnt/data/sum.txt", "w").write(str(total))
print(total)` });
  assert.match(answer.text, /^stdout:\n42\n/);
  assert.deepEqual(answer.made.map((file) => file.name), ['sum.txt']);
  assert.equal((await say.bash(talk, 'cat sum.txt numbers.txt')).text, 'stdout:\n4240 2');
  const bytes = (await get(routes.download(place(talk.file('sum.txt')), whose('u1')))).text;
  assert.equal(bytes, '42');
});

describe('programmatic protocol');

test('what waits for a tool has a token, calls and a session', async () => {
  const first = await postOk('/exec/programmatic', {
    code: 'print("early")\nprint(await add(a=1, b=2))', tools: definitions('add'), timeout: 5000,
  });
  assert.equal(first.status, 'tool_call_required');
  assert.ok(typeof first.continuation_token === 'string' && first.continuation_token.length > 0);
  assert.match(first.session_id, ID);
  assert.deepEqual(first.tool_calls.map(({ name, input }) => ({ name, input })), [{ name: 'add', input: { a: 1, b: 2 } }]);
  const second = await postOk('/exec/programmatic', {
    continuation_token: first.continuation_token,
    tool_results: [{ call_id: first.tool_calls[0].id, result: 3, is_error: false }],
  });
  assert.equal(second.status, 'completed');
  assert.equal(second.stdout, 'early\n3\n');
  assert.equal(second.stderr, '');
  assert.match(second.session_id, ID);
});

test('a token is good for one program, and for nothing when that is over', async () => {
  const first = await postOk('/exec/programmatic', { code: 'await add(a=1, b=2)', tools: definitions('add'), timeout: 5000 });
  const results = [{ call_id: first.tool_calls[0].id, result: 3, is_error: false }];
  const go = (continuation_token) => post('/exec/programmatic', { continuation_token, tool_results: results });
  assert.equal((await go(first.continuation_token)).json().status, 'completed');
  assert.ok([400, 404, 409, 410].includes((await go(first.continuation_token)).status));
  assert.ok([400, 404].includes((await go('made-up')).status));
});

test('two programs wait side by side', async () => {
  const start = (name) => postOk('/exec/programmatic', {
    code: `print("${name}", await greet(name="${name}"))`, tools: definitions('greet'), timeout: 5000,
  });
  const [a, b] = await Promise.all([start('a'), start('b')]);
  const finish = (waiting, result) => postOk('/exec/programmatic', {
    continuation_token: waiting.continuation_token,
    tool_results: [{ call_id: waiting.tool_calls[0].id, result, is_error: false }],
  });
  assert.equal((await finish(b, 'B')).stdout, 'b B\n');
  assert.equal((await finish(a, 'A')).stdout, 'a A\n');
});

test('cancelling stops a program that runs', async () => {
  const requestId = crypto.randomUUID();
  const started = Date.now();
  const running = post('/exec/programmatic',
    { code: 'import time\ntime.sleep(60)', tools: definitions('add'), timeout: 60_000 },
    { ...BEARER, 'X-LibreChat-Code-Request-ID': requestId });
  await sleep(700);
  const cancelled = await post('/exec/programmatic/cancel', { request_id: requestId });
  assert.ok(cancelled.status >= 200 && cancelled.status < 300, `${cancelled.status} ${cancelled.text}`);
  const answer = await running;
  assert.ok(Date.now() - started < 8000, 'the request ends when it is cancelled');
  if (answer.status === 200) assert.equal(answer.json().status, 'error');
});

test('cancelling what is not there does no harm', async () => {
  const { status } = await post('/exec/programmatic/cancel', { request_id: crypto.randomUUID() });
  assert.ok(status < 500, `${status}`);
});

test("the client's stop button ends the call and tells the server", async () => {
  await recordTraffic(async (baseUrl, seen) => {
    const stop = new AbortController();
    setTimeout(() => stop.abort(), 700);
    const started = Date.now();
    await runPython(['add'], 'import time\ntime.sleep(60)', { baseUrl, config: { signal: stop.signal } });
    assert.ok(Date.now() - started < 5000);
    const cancel = await eventually(() => seen.find((one) => one.path.endsWith('/cancel') && one.status));
    assert.ok(cancel && cancel.status < 300, `cancel answered ${cancel?.status}`);
    assert.equal(JSON.parse(cancel.body).request_id, seen[0].headers['x-librechat-code-request-id']);
  });
});
