// LibreChat up to v0.8.5 (@librechat/agents 3.1.63) against a running Redoma. See install.sh.
//
// This generation sends its key as X-API-Key, knows one session id per file, and stamps the id of an
// execution on every file that the execution returns. Downloads name no user.
'use strict';

const {
  Conversation, ID, KEY, V1, assert, callTool, crypto, del, describe, get, isPng, loadClient, post, request, routes, run,
  sendForm, sha256, test, unknownId,
} = require('./support.cjs');

// The client reads these when it is loaded.
process.env.LIBRECHAT_CODE_BASEURL = V1;
process.env.LIBRECHAT_CODE_API_KEY = KEY;
const client = loadClient('gen_a');

const API_KEY = { 'X-API-Key': KEY };
const EMPTY = "stdout: Empty. Ensure you're writing output explicitly.";

// LibreChat passes its key on as a parameter, so it also arrives inside the body.
const codeTool = (more) =>
  client.createCodeExecutionTool({ user_id: 'u1', LIBRECHAT_CODE_API_KEY: KEY, ...more });
const runCode = (lang, code, { args, ...more } = {}) =>
  callTool(codeTool(more), { lang, code, ...(args ? { args } : {}) });

/** Uploads one file and answers with the reference that this generation sends to `/exec`. */
async function upload(name, content, { entity, user = 'u1', headers = API_KEY } = {}) {
  const answer = await sendForm('/upload', {
    fields: entity ? { entity_id: entity } : {},
    files: [{ name, content }],
    headers: { 'User-Id': user, ...headers },
  });
  assert.equal(answer.status, 200, answer.text);
  const body = answer.json();
  assert.equal(body.message, 'success');
  assert.match(body.session_id, ID);
  assert.match(body.files[0].fileId, ID);
  assert.equal(body.files[0].filename, name);
  return { id: body.files[0].fileId, session_id: body.session_id, name };
}

const place = (file) => ({ session: file.session_id, id: file.id });

async function download(file) {
  const answer = await get(routes.download(place(file)), API_KEY);
  assert.equal(answer.status, 200, `${file.name}: ${answer.text.slice(0, 300)}`);
  return answer.bytes;
}

/** This generation seeds uploads as the tool's `files`; its ToolNode then adds what comes back. */
function conversation({ files, tools = [] } = {}) {
  const registry = new Map(
    tools.map(({ name, definition }) => [name, { ...definition, allowed_callers: ['code_execution'] }]));
  return new Conversation(
    client,
    [codeTool(), client.createProgrammaticToolCallingTool(), ...tools.map(({ tool }) => tool)],
    { files, registry },
  );
}

const say = (talk, code, lang = 'py') => talk.say('execute_code', { lang, code });
const names = (files) => (files ?? []).map((file) => file.name).sort();

// ---------------------------------------------------------------------------------------------
describe('languages');

test('Python, JavaScript, TypeScript and bash run', async () => {
  assert.equal((await runCode('py', 'print("py")')).text, 'stdout:\npy');
  assert.equal((await runCode('js', 'console.log("js")')).text, 'stdout:\njs');
  assert.equal((await runCode('ts', 'const word: string = "ts"; console.log(word)')).text, 'stdout:\nts');
  assert.equal((await runCode('bash', 'echo bash')).text, 'stdout:\nbash');
});

test('an unsupported language gives an answer that the model can use', async () => {
  const { text } = await runCode('rs', 'fn main() {}');
  assert.match(text, /\b(rs|rust)\b/i);
  assert.match(text, /\b(py|python)\b/i);
});

test('arguments reach the program', async () => {
  const answer = await runCode('py', 'import sys\nprint(sys.argv[1:])', { args: ['a b', 'ü'] });
  assert.equal(answer.text, "stdout:\n['a b', 'ü']");
});

test('the value of a last expression is shown when nothing was printed', async () => {
  assert.equal((await runCode('py', '1+1')).text, 'stdout:\n2');
  assert.equal((await runCode('py', 'x = 1')).text, EMPTY);
});

test('a program that fails shows what it printed and its traceback', async () => {
  const { text } = await runCode('py', 'print("before")\nraise ValueError("boom")');
  assert.match(text, /^stdout:\nbefore\n[^]*stderr:\n[^]*ValueError: boom/);
});

test('a program that takes too long is stopped, and the model is told', async () => {
  const { text } = await runCode('py', 'import time\nprint("started", flush=True)\ntime.sleep(60)', { timeout: 1500 });
  assert.match(text, /^stdout:\nstarted\n[^]*stderr:\n[^]*(time limit|timed out|too long)/i);
});

test('a flood of output is cut, and the model is told', async () => {
  const { text } = await runCode('bash', 'yes flood', { timeout: 8000 });
  assert.ok(text.length < 16 * 1024 * 1024);
  assert.match(text.slice(-2000), /stderr:\n[^]*(output|truncated)/i);
}, { seconds: 30 });

test('running out of memory is told as that', async () => {
  const { text } = await runCode('py', 'hoard = []\nwhile True: hoard.append(bytearray(b"x" * (64 << 20)))');
  assert.match(text, /stderr:\n[^]*memory/i);
}, { seconds: 30 });

// ---------------------------------------------------------------------------------------------
describe('keys');

test('a wrong key is refused, and the model reads the status', async () => {
  const answer = await runCode('py', '1', { LIBRECHAT_CODE_API_KEY: 'rk_wrong_0123456789abcdefghijklmnopqrst' });
  assert.equal(answer.text, 'Execution error:\n\nHTTP error! status: 401');
});

test('every route asks for the key', async () => {
  const file = await upload('in.txt', 'x');
  for (const headers of [{}, { 'X-API-Key': '' }, { 'X-API-Key': 'wrong' }]) {
    assert.equal((await get(routes.download(place(file)), headers)).status, 401);
    assert.equal((await get(routes.list(place(file), '?detail=summary'), headers)).status, 401);
    assert.equal((await del(routes.file(place(file)), headers)).status, 401);
    assert.equal((await post('/exec', { lang: 'py', code: '1' }, headers)).status, 401);
    assert.equal((await post('/exec/programmatic', { code: '1', tools: [] }, headers)).status, 401);
    assert.equal((await sendForm('/upload', { files: [{ name: 'a', content: 'b' }], headers })).status, 401);
  }
});

test('the answer never repeats the key', async () => {
  const answer = await post('/exec', { lang: 'bash', code: 'env; cat /proc/self/environ', LIBRECHAT_CODE_API_KEY: KEY }, API_KEY);
  assert.ok(!answer.text.includes(KEY));
});

// ---------------------------------------------------------------------------------------------
describe('files');

test('files of the tool are there', async () => {
  const file = await upload('in.csv', 'n\n1\n2\n');
  const answer = await runCode('py', 'print(open("/mnt/data/in.csv").read().split())', { files: [file] });
  assert.equal(answer.text, "stdout:\n['n', '1', '2']");
  assert.deepEqual(names(answer.artifact.files), [], 'an unchanged input is not echoed');
});

test('a file is made, and the next turn sees it beside the upload', async () => {
  const talk = conversation({ files: [await upload('in.csv', '1 2')] });
  const first = await say(talk, `
numbers = map(int, open("/mnt/data/in.csv").read().split())
open("/mnt/data/out.csv", "w").write(str(sum(numbers)))`);
  assert.match(first.text, /Generated files:\n- \/mnt\/data\/out\.csv \| File is already downloaded by the user/);
  assert.deepEqual(names(first.artifact.files), ['out.csv']);
  assert.equal((await say(talk, 'cat in.csv out.csv', 'bash')).text, 'stdout:\n1 23');
});

test('outputs live under the id of the execution that made them', async () => {
  const answer = await runCode('bash', 'echo one > a.txt; echo two > b.txt');
  assert.equal(answer.artifact.files.length, 2);
  for (const file of answer.artifact.files) {
    const stamped = { ...file, session_id: answer.artifact.session_id };
    assert.equal((await download(stamped)).toString(), file.name === 'a.txt' ? 'one\n' : 'two\n');
  }
});

test('of a changed file the newest wins, wherever it came from', async () => {
  const talk = conversation({ files: [await upload('count.txt', '0')] });
  for (const expected of ['1', '2', '3']) {
    const answer = await say(talk, 'n = int(open("count.txt").read()) + 1\nopen("count.txt", "w").write(str(n))\nprint(n)');
    assert.match(answer.text, new RegExp(`^stdout:\\n${expected}\\n`));
    assert.equal((await download(talk.file('count.txt'))).toString(), expected);
  }
  assert.equal(talk.session.files.length, 1);
});

test('what is unchanged keeps its place over many turns', async () => {
  const upload1 = await upload('keep.txt', 'kept');
  const talk = conversation({ files: [upload1] });
  for (const turn of [1, 2, 3]) {
    const answer = await say(talk, `cat keep.txt; echo ${turn} > turn-${turn}.txt`, 'bash');
    assert.match(answer.text, /^stdout:\nkept/);
    assert.deepEqual(names(answer.artifact.files), [`turn-${turn}.txt`]);
  }
  assert.equal(talk.file('keep.txt').session_id, upload1.session_id);
  assert.equal((await say(talk, 'cat turn-*.txt | tr -d "\\n"', 'bash')).text, 'stdout:\n123');
});

test('the session argument brings the files of an execution', async () => {
  const first = await runCode('bash', 'mkdir -p sub; echo "from before" > "sub/ü ber.txt"; echo x > plain');
  const second = await callTool(codeTool(), { lang: 'bash', code: 'cat "sub/ü ber.txt" plain' },
    { session_id: first.artifact.session_id });
  assert.equal(second.text, 'stdout:\nfrom before\nx');
});

test('the session argument of an execution without files is no error', async () => {
  const first = await runCode('py', 'print(1)');
  const second = await callTool(codeTool(), { lang: 'py', code: 'print(2)' }, { session_id: first.artifact.session_id });
  assert.equal(second.text, 'stdout:\n2');
});

test('the session argument of nobody is no error', async () => {
  const answer = await callTool(codeTool(), { lang: 'py', code: 'print(2)' }, { session_id: unknownId() });
  assert.equal(answer.text, 'stdout:\n2');
});

test("the client's own list function understands the list", async () => {
  const made = await runCode('bash', 'mkdir d; echo x > d/ünï.csv; echo y > Makefile');
  const listed = await client.fetchSessionFiles(V1, KEY, made.artifact.session_id);
  const expected = made.artifact.files.map(({ id, name }) => ({ session_id: made.artifact.session_id, id, name }));
  const byName = (a, b) => (a.name < b.name ? -1 : 1);
  assert.deepEqual(listed.sort(byName), expected.sort(byName));
});

test('names of every script survive', async () => {
  const talk = conversation({ files: [await upload('отчёт 数据.csv', 'in')] });
  await say(talk, 'open("é – ñ.txt", "w").write(open("отчёт 数据.csv").read() + " out")');
  assert.equal((await download(talk.file('é – ñ.txt'))).toString(), 'in out');
});

test('plt.show() without savefig, and savefig, give images', async () => {
  const talk = conversation();
  const shown = await say(talk, 'import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()');
  assert.equal(shown.artifact.files.length, 1);
  assert.match(shown.text, /\.png \| Image is already displayed to the user/);
  assert.ok(isPng(await download(talk.file(shown.artifact.files[0].name))));
  const saved = await say(talk, 'import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.savefig("chart.png")');
  assert.deepEqual(names(saved.artifact.files), ['chart.png']);
}, { seconds: 30 });

test('20 MiB go up, are read, and come down unharmed', async () => {
  const bytes = crypto.randomBytes(20 * 1024 * 1024);
  const file = await upload('big.bin', bytes);
  const code = 'import hashlib\nprint(hashlib.sha256(open("big.bin", "rb").read()).hexdigest())';
  const answer = await runCode('py', code, { files: [file] });
  assert.equal(answer.text, `stdout:\n${sha256(bytes)}`);
  assert.equal(sha256(await download(file)), sha256(bytes));
}, { seconds: 40 });

// ---------------------------------------------------------------------------------------------
describe('file routes');

test('an upload for an agent is found with its entity', async () => {
  const file = await upload('in.csv', 'agent data', { entity: 'agent_abc123' });
  const listed = (await get(routes.list(place(file), '?detail=summary&entity_id=agent_abc123'), API_KEY)).json();
  assert.ok(listed.some((one) => one.name.startsWith(`${file.session_id}/${file.id}`)));
  const answer = await runCode('bash', 'cat in.csv', { files: [file] });
  assert.equal(answer.text, 'stdout:\nagent data');
  const bytes = await get(routes.download(place(file), '?entity_id=agent_abc123'), API_KEY);
  assert.equal(bytes.text, 'agent data');
});

test('freshness: the summary names the file by its ids and says when it was written', async () => {
  const file = await upload('data/in.csv', 'x');
  const listed = (await get(routes.list(place(file), '?detail=summary'), API_KEY)).json();
  const found = listed.find((one) => one.name.startsWith(`${file.session_id}/${file.id}`));
  assert.ok(found, JSON.stringify(listed));
  assert.ok(Math.abs(Date.now() - new Date(found.lastModified).getTime()) < 60_000, found.lastModified);
});

test('freshness: an output is found under the execution', async () => {
  const { artifact } = await runCode('bash', 'echo x > out.txt');
  const listed = (await get(`/files/${artifact.session_id}?detail=summary`, API_KEY)).json();
  assert.ok(listed.some((one) => one.name.startsWith(`${artifact.session_id}/${artifact.files[0].id}`)));
});

test('the full list has original names', async () => {
  const file = await upload('sub/in.csv', 'x');
  const listed = (await get(routes.list(place(file), '?detail=full'), API_KEY)).json();
  assert.equal(listed[0].metadata['original-filename'], 'sub/in.csv');
  assert.equal(listed[0].name.split('/')[1].split('.')[0], file.id, 'the id is read from the name');
});

test('a deleted file is gone', async () => {
  const file = await upload('gone.txt', 'x');
  assert.ok((await del(routes.file(place(file)), API_KEY)).status < 300);
  assert.equal((await get(routes.download(place(file)), API_KEY)).status, 404);
  const listed = await get(routes.list(place(file), '?detail=summary'), API_KEY);
  if (listed.status !== 404) assert.deepEqual(listed.json(), []);
});

test('what does not exist is 404 everywhere', async () => {
  const nowhere = { session: unknownId(), id: unknownId() };
  assert.equal((await get(routes.download(nowhere), API_KEY)).status, 404);
  assert.equal((await get(routes.list(nowhere, '?detail=summary'), API_KEY)).status, 404);
  assert.equal((await del(routes.file(nowhere), API_KEY)).status, 404);
  assert.equal((await request('GET', `${V1}/nothing`, { headers: API_KEY })).status, 404);
});

// ---------------------------------------------------------------------------------------------
describe('programmatic Python');

const inner = {
  add: { properties: { a: { type: 'number' }, b: { type: 'number' } }, answer: ({ a, b }) => a + b },
  get_weather: { properties: { city: { type: 'string' } }, answer: ({ city }) => ({ city, temp: 20 }) },
  'boom-now': { properties: {}, answer: () => { throw new Error('the database is on fire'); } },
};
const tools = Object.entries(inner).map(([name, { properties, answer }]) => {
  const parameters = { type: 'object', properties };
  return {
    name,
    definition: { name, description: name, parameters },
    tool: client.tool(async (input) => answer(input), { name, description: name, schema: parameters }),
  };
});

const program = (code, talk = conversation({ tools }), more = {}) => talk.say('run_tools_with_code', { code, ...more });

test('a program awaits tools, alone and together', async () => {
  const answer = await program(`
one = await get_weather(city="SF")
sums = await asyncio.gather(add(a=1, b=2), add(a=3, b=4), add(a=5, b=6))
print(one["temp"], sums)`);
  assert.equal(answer.text, 'stdout:\n20 [3, 7, 11]');
});

test('a loop may call ten times, and nothing is run again', async () => {
  const answer = await program(`
import random
lucky = random.random()
print("before", lucky)
total = 0
for n in range(10):
    total = await add(a=total, b=n)
print("after", lucky)
print(total)`);
  const [, before, after] = answer.text.match(/^stdout:\nbefore (\S+)\nafter (\S+)\n45$/);
  assert.equal(before, after);
});

test("a tool's error can be caught, and reaches the model if it is not", async () => {
  const caught = await program('try:\n    await boom_now()\nexcept Exception as e:\n    print("caught", e)');
  assert.match(caught.text, /^stdout:\ncaught .*the database is on fire/);
  assert.match((await program('await boom_now()')).text, /the database is on fire/);
});

test('a program that takes too long is stopped, and the model is told', async () => {
  const answer = await program('import time\nawait add(a=1, b=1)\ntime.sleep(60)', undefined, { timeout: 1500 });
  assert.match(answer.text, /Time limit exceeded/);
});

test('its files and those of the other tool are the same', async () => {
  const talk = conversation({ tools });
  await say(talk, 'open("numbers.txt", "w").write("40 2")');
  await program(`
a, b = map(int, open("/mnt/data/numbers.txt").read().split())
open("/mnt/data/sum.txt", "w").write(str(await add(a=a, b=b)))`, talk);
  assert.equal((await say(talk, 'cat sum.txt', 'bash')).text, 'stdout:\n42');
});

test('a refusal is told with its body', async () => {
  const refused = client.createProgrammaticToolCallingTool({ apiKey: 'rk_wrong_0123456789abcdefghijklmnopqrst' });
  const answer = await callTool(refused, { code: 'await add(a=1, b=2)' }, {
    toolMap: new Map(tools.map(({ name, tool }) => [name, tool])),
    toolDefs: tools.map(({ definition }) => definition),
  });
  assert.match(answer.text, /^Programmatic execution failed: HTTP error! status: 401, body: /);
});

run();
