// Files over several turns, through the client's ToolNode: it remembers what came back and sends it again.
'use strict';

const { assert, crypto, describe, get, isPng, routes, sha256, test } = require('../support.cjs');
const { conversation, place, say, upload, uploadSkill, whose } = require('./client.cjs');

const names = (files) => files.map((file) => file.name).sort();

async function download(file, user = 'u1') {
  const answer = await get(routes.download(place(file), whose(user)));
  assert.equal(answer.status, 200, `${file.name}: ${answer.text.slice(0, 300)}`);
  return answer.bytes;
}

describe('files');

test('an upload is read, a file is made, and the next turn sees both', async () => {
  const talk = conversation({ files: [await upload('in.csv', 'n\n1\n2\n', { type: 'text/csv' })] });
  const first = await say.py(talk, `
rows = open("/mnt/data/in.csv").read().split()[1:]
open("/mnt/data/out.csv", "w").write(str(sum(map(int, rows))))
print(len(rows))`);
  assert.match(first.text, /^stdout:\n2\n/);
  assert.deepEqual(names(first.made), ['out.csv']);
  assert.match(first.text, /Session files: 1 persisted file\(s\)/, 'only what is new is counted');
  const second = await say.bash(talk, 'cat /mnt/data/in.csv /mnt/data/out.csv');
  assert.equal(second.text, 'stdout:\nn\n1\n2\n3');
  assert.equal((await download(talk.file('out.csv'))).toString(), '3');
});

test('a program starts in the workspace', async () => {
  const talk = conversation();
  const answer = await say.bash(talk, 'pwd; echo here > relative.txt');
  assert.match(answer.text, /^stdout:\n\/mnt\/data\n/);
  assert.deepEqual(names(answer.made), ['relative.txt']);
});

test('every language shares the files', async () => {
  const talk = conversation();
  await say.py(talk, 'open("word.txt", "w").write("py")');
  await talk.say('execute_code', {
    lang: 'js', code: 'const fs = require("fs"); fs.appendFileSync("/mnt/data/word.txt", " js")',
  });
  await talk.say('execute_code', {
    lang: 'ts', code: 'import * as fs from "node:fs"; fs.appendFileSync("/mnt/data/word.txt", " ts" as string)',
  });
  assert.equal((await say.bash(talk, 'cat word.txt')).text, 'stdout:\npy js ts');
});

test('of a changed file the newest wins', async () => {
  const talk = conversation({ files: [await upload('count.txt', '0')] });
  const uploaded = talk.file('count.txt');
  for (const expected of ['1', '2', '3']) {
    const answer = await say.py(talk, `
n = int(open("count.txt").read()) + 1
open("count.txt", "w").write(str(n))
print(n)`);
    assert.match(answer.text, new RegExp(`^stdout:\\n${expected}\\n`));
    assert.deepEqual(names(answer.made), ['count.txt']);
    assert.equal((await download(talk.file('count.txt'))).toString(), expected);
  }
  assert.equal(talk.session.files.length, 1);
  assert.equal((await download(uploaded)).toString(), '0', 'the upload itself is never changed');
});

test('a file that is written with the same size in the same second is still a change', async () => {
  const talk = conversation({ files: [await upload('same.txt', 'aaaa')] });
  const answer = await say.bash(talk, 'printf bbbb > same.txt');
  assert.deepEqual(names(answer.made), ['same.txt']);
  assert.equal((await say.bash(talk, 'cat same.txt')).text, 'stdout:\nbbbb');
});

test('an unchanged file is not presented as new', async () => {
  const talk = conversation({ files: [await upload('in.txt', 'same')] });
  const before = talk.file('in.txt');
  const answer = await say.bash(talk, 'cat in.txt; touch in.txt');
  assert.deepEqual(answer.made, []);
  assert.doesNotMatch(answer.text, /Generated files/);
  for (const echo of answer.artifact.files ?? []) {
    assert.equal(echo.inherited, true);
    assert.deepEqual([echo.id, echo.storage_session_id], [before.id, before.storage_session_id]);
  }
  const { id, storage_session_id, kind, resource_id } = talk.file('in.txt');
  assert.deepEqual([id, storage_session_id, kind, resource_id],
    [before.id, before.storage_session_id, 'user', 'u1'], 'the client still knows whose it is');
});

test('a deleted file is reported and gone in the next turn', async () => {
  const talk = conversation({ files: [await upload('keep.txt', 'k'), await upload('drop.txt', 'd')] });
  await say.bash(talk, 'echo made > made.txt');
  const answer = await say.bash(talk, 'rm drop.txt made.txt');
  assert.deepEqual([...answer.artifact.deleted_files].sort(), ['drop.txt', 'made.txt']);
  assert.deepEqual(names(talk.session.files), ['keep.txt']);
  assert.equal((await say.bash(talk, 'ls *.txt')).text, 'stdout:\nkeep.txt');
});

test('a renamed file is one deleted and one made', async () => {
  const talk = conversation({ files: [await upload('old.txt', 'text')] });
  const answer = await say.bash(talk, 'mv old.txt new.txt');
  assert.deepEqual(answer.artifact.deleted_files, ['old.txt']);
  assert.deepEqual(names(answer.made), ['new.txt']);
  assert.equal((await say.bash(talk, 'ls *.txt; cat new.txt')).text, 'stdout:\nnew.txt\ntext');
});

test('nothing is called deleted that was never there', async () => {
  const talk = conversation();
  const answer = await say.bash(talk, 'echo x > brief.txt; rm brief.txt; echo y > stays.txt');
  assert.deepEqual(answer.artifact.deleted_files ?? [], []);
  assert.deepEqual(names(answer.made), ['stays.txt']);
});

test('folders keep their shape', async () => {
  const talk = conversation({ files: [await upload('data/2026/in.csv', 'x')] });
  await say.bash(talk, 'mkdir -p reports/q1 && cp data/2026/in.csv reports/q1/out.csv');
  assert.deepEqual(names(talk.session.files), ['data/2026/in.csv', 'reports/q1/out.csv']);
  const answer = await say.bash(talk, 'find . -name "*.csv" | sort');
  assert.equal(answer.text, 'stdout:\n./data/2026/in.csv\n./reports/q1/out.csv');
});

test('names of every script, with spaces and quotes, survive', async () => {
  const uploaded = 'отчёт 数据 é 🧪.csv';
  const made = `it's "done" – ñ.txt`;
  const talk = conversation({ files: [await upload(uploaded, 'in')] });
  const answer = await say.py(talk, `
text = open(${JSON.stringify(uploaded)}).read()
open(${JSON.stringify(made)}, "w").write(text + " out")`);
  assert.deepEqual(names(answer.made), [made]);
  assert.equal((await download(talk.file(made))).toString(), 'in out');
  assert.equal((await say.py(talk, `print(open(${JSON.stringify(made)}).read())`)).text, 'stdout:\nin out');
});

test('files without an extension, empty ones and hidden ones are kept', async () => {
  const talk = conversation({ files: [await upload('pkg/__init__.py', '')] });
  await say.bash(talk, 'printf "all:\\n" > Makefile; : > empty.dat; echo K=1 > .env');
  assert.equal((await say.bash(talk, 'find . -type f ! -name "main.*" -printf "%p %s\\n" | sort')).text,
    'stdout:\n./.env 4\n./Makefile 5\n./empty.dat 0\n./pkg/__init__.py 0');
});

test("a file may have the name that a program's own source would have", async () => {
  const sources = ['main.py', 'main.js', 'main.ts', 'main.sh', 'main.bash', 'script.py'];
  const talk = conversation({ files: await Promise.all(sources.map((name) => upload(name, `text of ${name}`))) });
  const python = await say.py(talk, `for name in ${JSON.stringify(sources)}: print(open(name).read())`);
  const bash = await say.bash(talk, `for name in ${sources.join(' ')}; do cat $name; echo; done`);
  const expected = `stdout:\n${sources.map((name) => `text of ${name}`).join('\n')}`;
  assert.deepEqual([python.text, bash.text], [expected, expected]);
  assert.deepEqual([...python.made, ...bash.made], [], 'and no source is returned as a file');
});

test('links, pipes and files outside the workspace are not returned', async () => {
  const talk = conversation();
  const answer = await say.bash(talk,
    'ln -s /etc/passwd link.txt; mkfifo pipe; echo t > /tmp/t.txt; echo real > real.txt');
  assert.deepEqual(names(answer.made), ['real.txt']);
});

test('a failing program may leave files behind', async () => {
  const talk = conversation();
  const answer = await say.py(talk, 'open("half.txt", "w").write("half")\nraise SystemExit(1)');
  assert.equal(answer.threw, false, answer.text);
  assert.deepEqual(names(answer.made), ['half.txt']);
});

test('many files come back together', async () => {
  const talk = conversation();
  const answer = await say.py(talk, 'for n in range(40): open(f"part-{n:02}.json", "w").write(str(n))');
  assert.equal(answer.made.length, 40);
  assert.equal((await say.bash(talk, 'cat part-*.json | tr -d "\\n"')).text,
    `stdout:\n${Array.from({ length: 40 }, (_, n) => n).join('')}`);
});

test('20 MiB go up, are read, and come down unharmed', async () => {
  const bytes = crypto.randomBytes(20 * 1024 * 1024);
  const talk = conversation({ files: [await upload('big.bin', bytes)] });
  const answer = await say.py(talk, `
import hashlib, shutil
print(hashlib.sha256(open("big.bin", "rb").read()).hexdigest())
shutil.copy("big.bin", "copy.bin")`);
  assert.match(answer.text, new RegExp(`^stdout:\\n${sha256(bytes)}\\n`));
  assert.equal(sha256(await download(talk.file('copy.bin'))), sha256(bytes));
}, { seconds: 40 });

describe('skills');

test('skill files are where their names say, and can be run', async () => {
  const files = await uploadSkill(
    { 'skills/pptx/SKILL.md': '# pptx', 'skills/pptx/scripts/a.py': 'print("from the skill")' },
    { skill: 'skill-run' },
  );
  const talk = conversation({ files });
  const answer = await say.bash(talk, 'python3 /mnt/data/skills/pptx/scripts/a.py && cat skills/pptx/SKILL.md');
  assert.equal(answer.text, 'stdout:\nfrom the skill\n# pptx');
});

test('what code does to a read-only file is not returned and does not last', async () => {
  const files = await uploadSkill({ 'skills/s/a.py': 'original' }, { skill: 'skill-read-only' });
  const talk = conversation({ files });
  const answer = await say.bash(talk, 'chmod u+w skills/s/a.py; echo changed > skills/s/a.py; echo x > mine.txt; true');
  assert.deepEqual(names(answer.made), ['mine.txt']);
  assert.deepEqual(talk.file('skills/s/a.py').id, files[0].id);
  assert.equal((await say.bash(talk, 'cat skills/s/a.py')).text, 'stdout:\noriginal');
});

describe('images');

test('plt.show() without savefig gives an image to download', async () => {
  const talk = conversation();
  const answer = await say.py(talk, `
import matplotlib.pyplot as plt
plt.plot([1, 2, 3])
plt.show()
print("drawn")`);
  assert.match(answer.text, /^stdout:\ndrawn\n/);
  assert.match(answer.text, /including 1 image\(s\)/);
  assert.equal(answer.made.length, 1);
  assert.match(answer.made[0].name, /\.png$/);
  assert.ok(isPng(await download(talk.file(answer.made[0].name))));
}, { seconds: 30 });

test('two shown figures are two images', async () => {
  const answer = await say.py(conversation(), `
import matplotlib.pyplot as plt
for n in (1, 2):
    plt.figure(); plt.plot([n, n]); plt.show()`);
  assert.equal(answer.made.filter((file) => file.name.endsWith('.png')).length, 2);
}, { seconds: 30 });

test('savefig gives the file that it names, and no second one', async () => {
  const talk = conversation();
  const answer = await say.py(talk, `
import matplotlib.pyplot as plt
plt.bar(["a", "b"], [1, 2])
plt.savefig("/mnt/data/chart.png")`);
  assert.deepEqual(names(answer.made), ['chart.png']);
  assert.ok(isPng(await download(talk.file('chart.png'))));
}, { seconds: 30 });

test('LibreChat can read an image back in pieces of 32 KiB', async () => {
  const talk = conversation();
  await say.py(talk, 'import os\nopen("noise.png", "wb").write(os.urandom(70_000))');
  const whole = await download(talk.file('noise.png'));
  const parts = [];
  for (let offset = 0; offset < whole.length; offset += 32768) {
    const answer = await say.bash(talk, `python3 - <<'PY'
import base64
f = open("/mnt/data/noise.png", "rb")
f.seek(${offset})
print(base64.b64encode(f.read(32768)).decode())
PY`);
    parts.push(Buffer.from(answer.text.replace(/^stdout:\n/, ''), 'base64'));
  }
  assert.equal(sha256(Buffer.concat(parts)), sha256(whole));
});
