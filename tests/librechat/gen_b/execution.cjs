// One call at a time: languages, arguments, failures, limits, and LibreChat's own file tools.
'use strict';

const { assert, describe, postOk, request, BEARER, V1, test } = require('../support.cjs');
const { runBash, runCode, upload } = require('./client.cjs');

const EMPTY = "stdout: Empty. Ensure you're writing output explicitly.";

describe('languages');

test('Python runs', async () => {
  const answer = await runCode('py', 'import sys\nprint("hello", sys.version_info.major)');
  assert.equal(answer.text, 'stdout:\nhello 3');
});

test('JavaScript runs', async () => {
  const answer = await runCode('js', 'console.log([1, 2, 3].map((n) => n * 2).join(","))');
  assert.equal(answer.text, 'stdout:\n2,4,6');
});

test('JavaScript may wait at the top and import Node modules', async () => {
  const answer = await runCode('js', 'const os = await import("node:os");\nconsole.log(typeof os.EOL)');
  assert.equal(answer.text, 'stdout:\nstring');
});

test('TypeScript runs with its types', async () => {
  const answer = await runCode('ts', `
interface Point { x: number; y: number }
enum Axis { X = 'x', Y = 'y' }
const point: Point = { x: 3, y: 4 };
console.log(Math.hypot(point[Axis.X], point[Axis.Y]) as number);`);
  assert.equal(answer.text, 'stdout:\n5');
});

test('bash runs through execute_code and through bash_tool', async () => {
  const script = 'set -euo pipefail; a=(x y z); echo "${#a[@]} ${BASH_VERSION%%.*}"';
  const asCode = await runCode('bash', script);
  const asBash = await runBash(script);
  assert.match(asCode.text, /^stdout:\n3 \d+$/);
  assert.equal(asBash.text, asCode.text);
});

test('bash has python3, node and jq, as the tool descriptions promise the model', async () => {
  const answer = await runBash('python3 -c "print(6*7)"; node -p "6*7"; echo \'{"n":42}\' | jq -r .n');
  assert.equal(answer.text, 'stdout:\n42\n42\n42');
});

test('an unsupported language gives an answer that the model can use', async () => {
  const answer = await runCode('rs', 'fn main() { println!("hi"); }');
  assert.match(answer.text, /\b(rs|rust)\b/i);
  assert.match(answer.text, /\b(py|python)\b/i, 'it names what there is instead');
  assert.match(answer.text, /\bbash\b/i);
});

test('arguments reach the program', async () => {
  const args = ['a b', '--flag', 'ü'];
  const python = await runCode('py', 'import sys, json\nprint(json.dumps(sys.argv[1:], ensure_ascii=False))', { args });
  const node = await runCode('js', 'console.log(JSON.stringify(process.argv.slice(2)))', { args });
  const bash = await runBash('printf "<%s>" "$#" "$@"', { args });
  assert.equal(python.text, 'stdout:\n["a b", "--flag", "ü"]');
  assert.equal(node.text, 'stdout:\n["a b","--flag","ü"]');
  assert.equal(bash.text, 'stdout:\n<3><a b><--flag><ü>');
});

test('text of every script survives both ways', async () => {
  const text = 'naïve — 数据 — 🧪 — עברית';
  const answer = await runCode('py', `text = ${JSON.stringify(text)}\nprint(text, len(text))`);
  assert.equal(answer.text, `stdout:\n${text} ${[...text].length}`);
});

test('bytes that are not UTF-8 do not break the answer', async () => {
  const answer = await runBash("printf 'a\\xff\\xfeb\\n'");
  assert.equal(answer.threw, false, answer.text);
  assert.match(answer.text, /^stdout:\na.+b$/);
});

test('the value of a last expression is shown when nothing was printed', async () => {
  assert.equal((await runCode('py', '1+1')).text, 'stdout:\n2');
  assert.equal((await runCode('py', 'words = ["a", "b"]\nwords')).text, "stdout:\n['a', 'b']");
});

test('a program without output and value says so', async () => {
  assert.equal((await runCode('py', 'x = 1')).text, EMPTY);
  assert.equal((await runCode('py', 'None')).text, EMPTY);
  assert.equal((await runBash('true')).text, EMPTY);
});

test('a Python program is __main__', async () => {
  const answer = await runCode('py', 'def main():\n    print("main ran")\n\nif __name__ == "__main__":\n    main()');
  assert.equal(answer.text, 'stdout:\nmain ran');
});

test('fields that the server does not know are no mistake', async () => {
  const answer = await runCode('py', 'print("fine")', { plan: 'x', LIBRECHAT_CODE_API_KEY: 'echoed by old hosts' });
  assert.equal(answer.text, 'stdout:\nfine');
});

describe('failures');

test('a program that fails shows what it printed and its traceback', async () => {
  const answer = await runCode('py', 'print("before")\nraise ValueError("boom")');
  assert.equal(answer.threw, false, 'a failing program is an answer, not a failed service');
  assert.match(answer.text, /^stdout:\nbefore\n/);
  assert.match(answer.text, /stderr:\n[^]*Traceback[^]*ValueError: boom/);
});

test('a traceback points at the line that the model wrote', async () => {
  const answer = await runCode('py', 'a = 1\nb = 2\nc = a / (b - 2)\n');
  assert.match(answer.text, /line 3\b/);
  assert.match(answer.text, /ZeroDivisionError/);
});

test('a program that does not parse is an answer', async () => {
  assert.match((await runCode('py', 'def broken(:\n  pass')).text, /stderr:\n[^]*SyntaxError/);
  assert.match((await runCode('js', 'const = 1')).text, /stderr:\n[^]*SyntaxError/);
  assert.match((await runBash('if true; then echo x')).text, /stderr:\n[^]*syntax error/);
});

test('failing JavaScript and bash show their errors', async () => {
  assert.match((await runCode('js', 'console.log("before"); throw new TypeError("boom")')).text,
    /^stdout:\nbefore\n[^]*stderr:\n[^]*TypeError: boom/);
  assert.match((await runBash('echo before; no_such_command; exit 3')).text,
    /^stdout:\nbefore\n[^]*stderr:\n[^]*no_such_command/);
});

test('leaving with an exit code is an answer', async () => {
  const answer = await runCode('py', 'import sys\nprint("half", flush=True)\nsys.exit(4)');
  assert.equal(answer.threw, false);
  assert.match(answer.text, /^stdout:\nhalf/);
});

test('warnings on stderr come with the output', async () => {
  const answer = await runCode('py', 'import sys\nprint("out")\nprint("careful", file=sys.stderr)');
  assert.equal(answer.text, 'stdout:\nout\n\nstderr:\ncareful');
});

test('a program that reads its input finds none, and goes on', async () => {
  assert.match((await runCode('py', 'input("name? ")')).text, /EOFError/);
  assert.equal((await runBash('cat; echo done')).text, 'stdout:\ndone');
});

describe('limits');

test('a program that takes too long is stopped, and the model is told', async () => {
  const started = Date.now();
  const answer = await runCode('py', 'import time\nprint("started", flush=True)\ntime.sleep(60)', { timeout: 1500 });
  assert.ok(Date.now() - started < 10_000, 'it is stopped when the time is over');
  assert.equal(answer.threw, false, answer.text);
  assert.match(answer.text, /^stdout:\nstarted\n/, 'what was printed before is kept');
  assert.match(answer.text, /stderr:\n[^]*(time limit|timed out|too long)/i);
});

test('a busy loop in bash is stopped as well', async () => {
  const answer = await runBash('echo started; while :; do :; done', { timeout: 1500 });
  assert.match(answer.text, /^stdout:\nstarted\n[^]*stderr:\n[^]*(time limit|timed out|too long)/i);
});

test('a flood of output is cut, marked and answered', async () => {
  const answer = await postOk('/exec', { lang: 'py', code: 'while True:\n    print("x" * 1000)', timeout: 8000 });
  assert.equal(answer.status, 'OL', 'the host reads this status');
  assert.ok(answer.stdout.startsWith('xxx'), 'the beginning is kept');
  assert.ok(answer.stdout.length < 16 * 1024 * 1024, `${answer.stdout.length} characters`);
  const shown = await runBash('yes flood', { timeout: 8000 });
  assert.equal(shown.threw, false, shown.text.slice(0, 200));
  assert.match(shown.text.slice(-2000), /stderr:\n[^]*(output|truncated)/i, 'the model is told');
}, { seconds: 30 });

test('64 KiB of output come whole, for images that LibreChat reads in pieces', async () => {
  const answer = await postOk('/exec', { lang: 'py', code: 'print("y" * 65535)' });
  assert.equal(answer.stdout, `${'y'.repeat(65535)}\n`);
  assert.notEqual(answer.status, 'OL');
});

test('a program that runs out of memory is told so', async () => {
  const answer = await runCode('py', `
print("started", flush=True)
hoard = []
while True:
    hoard.append(bytearray(b"x" * (64 * 1024 * 1024)))`);
  assert.equal(answer.threw, false, answer.text);
  assert.match(answer.text, /stderr:\n[^]*memory/i);
}, { seconds: 30 });

test('the next call is fine after all of that', async () => {
  assert.equal((await runCode('py', 'print("fine")')).text, 'stdout:\nfine');
});

test('calls at the same time keep apart', async () => {
  const answers = await Promise.all(Array.from({ length: 8 }, (_, n) =>
    runBash(`echo ${n} > mine.txt; sleep 0.3; echo "$(ls *.txt) $(cat mine.txt)"`)));
  answers.forEach((answer, n) => assert.match(answer.text, new RegExp(`^stdout:\\nmine.txt ${n}\\n`)));
  assert.equal(new Set(answers.map((answer) => answer.artifact.session_id)).size, 8);
});

describe('requests');

test('what is not a request is refused with 400 or 422', async () => {
  for (const body of ['{"lang":', '[]', '{}', '{"lang":"py"}', '{"lang":"py","code":7}']) {
    const { status } = await request('POST', `${V1}/exec`,
      { headers: { ...BEARER, 'Content-Type': 'application/json' }, body });
    assert.ok([400, 422].includes(status), `${body} → ${status}`);
  }
});

test('a file name that leaves the workspace is refused or stays inside', async () => {
  const file = await upload('plain.txt', 'harmless');
  for (const name of ['../escape.txt', '/etc/escape.txt', 'a/../../escape.txt', 'nul\0.txt']) {
    const { status, text } = await request('POST', `${V1}/exec`, {
      headers: { ...BEARER, 'Content-Type': 'application/json' },
      body: JSON.stringify({ lang: 'bash', code: 'ls /mnt /etc | grep escape', files: [{ ...file, name }] }),
    });
    if (status === 200) assert.equal(JSON.parse(text).stdout, '', name);
    else assert.ok([400, 422].includes(status), `${name} → ${status}`);
  }
});

describe("LibreChat's file tools");

/** The program with which LibreChat's create_file and edit_file write a file. */
function writeProgram(path, content) {
  const payload = Buffer.from(JSON.stringify({
    file_path: path,
    content_b64: Buffer.from(content).toString('base64'),
  })).toString('base64');
  return [
    "python3 - <<'PY'",
    'import base64, json, os',
    `data = json.loads(base64.b64decode("${payload}").decode('utf-8'))`,
    "path = data['file_path']",
    "content = base64.b64decode(data['content_b64'])",
    'os.makedirs(os.path.dirname(path), exist_ok=True)',
    "with open(path, 'wb') as f:",
    '    f.write(content)',
    'print(f"WROTE {len(content)} bytes to {path}")',
    'PY',
  ].join('\n');
}

/** Returned files as the host sends them back. */
const sentBack = (files) => files.map(({ id, name, storage_session_id }) =>
  ({ id, resource_id: id, name, storage_session_id, kind: 'user' }));

test('create_file writes, read_file reads what was written', async () => {
  const path = "/mnt/data/notes/it's – mine.md";
  const created = await postOk('/exec', { lang: 'bash', code: writeProgram(path, '# Größe\n') });
  assert.equal(created.stdout, `WROTE 10 bytes to ${path}\n`);
  assert.equal(created.stderr, '');
  assert.deepEqual(created.files.map((file) => file.name), ["notes/it's – mine.md"]);
  const read = await postOk('/exec', {
    lang: 'bash',
    code: `cat '${path.replaceAll("'", "'\\''")}'`,
    session_id: created.session_id,
    files: sentBack(created.files),
  });
  assert.equal(read.stdout, '# Größe\n');
});

test('edit_file replaces a file, and only the new text comes back', async () => {
  const created = await postOk('/exec', { lang: 'bash', code: writeProgram('/mnt/data/a.py', 'print(1)\n') });
  const edited = await postOk('/exec', {
    lang: 'bash',
    code: writeProgram('/mnt/data/a.py', 'print(2)\n'),
    session_id: created.session_id,
    files: sentBack(created.files),
  });
  const changed = edited.files.filter((file) => file.inherited !== true);
  assert.deepEqual(changed.map((file) => file.name), ['a.py']);
  const ran = await postOk('/exec', {
    lang: 'bash', code: 'python3 a.py', session_id: edited.session_id, files: sentBack(changed),
  });
  assert.equal(ran.stdout, '2\n');
});

test('reading a file that is not there leaves stdout empty and says why', async () => {
  const read = await postOk('/exec', { lang: 'bash', code: "cat '/mnt/data/missing.txt'" });
  assert.equal(read.stdout, '');
  assert.match(read.stderr, /missing\.txt/);
});

test('the warm-up call of stateful agents is a call like any other', async () => {
  const hint = `v2:user:${'0'.repeat(32)}`;
  const answer = await postOk('/exec', { lang: 'bash', code: 'true', runtime_session_hint: hint });
  assert.equal(answer.stdout, '');
});
