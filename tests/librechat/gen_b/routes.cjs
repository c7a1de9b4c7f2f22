// The file routes that LibreChat's host calls itself: uploads, freshness, lists, downloads, deletion.
'use strict';

const {
  BEARER, ID, assert, crypto, del, describe, get, post, postOk, routes, sendForm, test, unknownId,
} = require('../support.cjs');
const { client, place, upload, whose, settings } = require('./client.cjs');

const justNow = (date) => Math.abs(Date.now() - new Date(date).getTime()) < 60_000;

/** A file that an execution made. */
async function make(name, content = 'made') {
  const answer = await postOk('/exec', {
    lang: 'py', code: `open(${JSON.stringify(name)}, "w").write(${JSON.stringify(content)})`, user_id: 'u1',
  });
  return { ...answer.files[0], execution: answer.session_id };
}

describe('uploads');

test('a streamed form without length and with a raw UTF-8 name is taken', async () => {
  const answer = await sendForm('/upload', {
    fields: { kind: 'user', id: '66f0c0ffee0000000000user' },
    files: [{ name: 'Übersicht 数据.csv', content: 'a;b\n1;2\n', type: 'text/csv' }],
    headers: { ...BEARER, 'User-Id': '66f0c0ffee0000000000user', 'X-CodeAPI-Expected-Profile': 'default' },
  });
  assert.equal(answer.status, 200, answer.text);
  const body = answer.json();
  assert.equal(body.message, 'success');
  assert.match(body.storage_session_id, ID);
  assert.match(body.files[0].fileId, ID);
  assert.equal(body.files[0].filename, 'Übersicht 数据.csv');
});

test('a form with a length is taken as well', async () => {
  const form = new FormData();
  form.append('kind', 'user');
  form.append('id', 'u1');
  form.append('file', new Blob(['x']), 'in.txt');
  const headers = { ...BEARER, 'User-Id': 'u1' };
  const answer = await fetch(`${settings().baseUrl}/upload`, { method: 'POST', body: form, headers });
  assert.equal((await answer.json()).message, 'success');
});

test('an empty file is a file', async () => {
  const file = await upload('__init__.py', '');
  const answer = await get(routes.download(place(file), whose('u1')));
  assert.equal(answer.status, 200);
  assert.equal(answer.bytes.length, 0);
});

test('a form without a file is refused', async () => {
  const answer = await sendForm('/upload', { fields: { kind: 'user', id: 'u1' }, files: [] });
  assert.ok([400, 422].includes(answer.status), `${answer.status}`);
  const json = await post('/upload', { file: 'no form' });
  assert.ok([400, 415, 422].includes(json.status), `${json.status}`);
});

test('a batch keeps every path and counts', async () => {
  const files = {
    'skills/pptx/SKILL.md': '# s', 'skills/pptx/scripts/ä.py': 'print(1)', 'skills/pptx/__init__.py': '',
  };
  const answer = await sendForm('/upload/batch', {
    fields: { kind: 'skill', id: '66f0c0ffee000000000skill', version: 3, read_only: 'true' },
    files: Object.entries(files).map(([name, content]) => ({ name, content })),
    headers: { ...BEARER, 'User-Id': 'u1' },
  });
  assert.equal(answer.status, 200, answer.text);
  const body = answer.json();
  assert.equal(body.message, 'success');
  assert.match(body.storage_session_id, ID);
  assert.deepEqual(body.files.map((file) => file.filename), Object.keys(files), 'names exactly as sent, in order');
  for (const file of body.files) {
    assert.equal(file.status, 'success');
    assert.match(file.fileId, ID);
  }
  assert.deepEqual([body.succeeded, body.failed], [3, 0]);
});

test('a batch of seventy files, as a large skill has them, is taken', async () => {
  const answer = await sendForm('/upload/batch', {
    fields: { kind: 'skill', id: 'large-skill', version: 1, read_only: 'true' },
    files: Array.from({ length: 70 }, (_, n) => ({ name: `skills/large/part-${n}.xsd`, content: `${n}` })),
  });
  assert.equal(answer.status, 200, answer.text);
  assert.equal(answer.json().succeeded, 70);
});

test('a name that leaves the workspace fails alone in a batch', async () => {
  const answer = await sendForm('/upload/batch', {
    fields: { kind: 'skill', id: 'odd-skill', version: 1, read_only: 'true' },
    files: [{ name: '../../escape.py', content: 'x' }, { name: 'skills/s/good.py', content: 'y' }],
  });
  if (answer.status !== 200) return assert.ok([400, 422].includes(answer.status), `${answer.status}`);
  const body = answer.json();
  assert.equal(body.message, 'partial_success');
  assert.deepEqual(body.files.map((file) => file.status), ['error', 'success']);
  assert.deepEqual([body.succeeded, body.failed], [1, 1]);
});

describe('file routes');

test('freshness: the object says when it was written and what it was called', async () => {
  const file = await upload('data/in.csv', '12345');
  const answer = await get(routes.object(place(file), whose('u1')));
  assert.equal(answer.status, 200, answer.text);
  const body = answer.json();
  assert.ok(justNow(body.lastModified), `${body.lastModified}`);
  assert.equal(body.originalFilename, 'data/in.csv');
  assert.equal(body.size, 5);
});

test('freshness works for what an execution made', async () => {
  const file = await make('made.txt');
  const answer = await get(routes.object({ session: file.storage_session_id ?? file.execution, id: file.id }, whose('u1')));
  assert.ok(justNow(answer.json().lastModified));
});

test('freshness of a skill names its version', async () => {
  const file = await upload('skills/s/a.py', 'x', { kind: 'skill', id: 'fresh-skill', version: 7 });
  const answer = await get(routes.object(place(file), '?kind=skill&id=fresh-skill&version=7'));
  assert.ok(justNow(answer.json().lastModified), answer.text);
});

test("the client's own list function understands the list", async () => {
  const file = await upload('list/ünï.csv', 'x');
  const listed = await client.fetchSessionFiles(
    settings().baseUrl, file.storage_session_id, { kind: 'user', id: 'u1' }, BEARER);
  assert.deepEqual(listed.map(({ id, name, storage_session_id }) => ({ id, name, storage_session_id })),
    [{ id: file.id, name: 'list/ünï.csv', storage_session_id: file.storage_session_id }]);
});

test('a list in full and in short names every file of a session', async () => {
  const file = await upload('in.csv', 'x');
  const full = (await get(routes.list(place(file), '?detail=full&kind=user&id=u1'))).json();
  assert.equal(full[0].metadata['original-filename'], 'in.csv');
  assert.ok(full[0].name.startsWith(`${file.storage_session_id}/${file.id}`), full[0].name);
  const summary = (await get(routes.list(place(file), '?detail=summary&kind=user&id=u1'))).json();
  assert.ok(summary[0].name.startsWith(`${file.storage_session_id}/${file.id}`), summary[0].name);
  assert.ok(justNow(summary[0].lastModified));
});

test('the outputs of an execution are listed under its session', async () => {
  const answer = await postOk('/exec', { lang: 'bash', code: 'echo 1 > a.txt; echo 2 > b.txt' });
  const listed = (await get(`/files/${answer.session_id}?detail=full`)).json();
  assert.deepEqual(listed.map((file) => file.metadata['original-filename']).sort(), ['a.txt', 'b.txt']);
  const none = await postOk('/exec', { lang: 'bash', code: 'true' });
  const empty = await get(`/files/${none.session_id}?detail=full`);
  if (empty.status !== 404) assert.deepEqual(empty.json(), []);
});

test('a download is the bytes, and nothing that a browser would run', async () => {
  const bytes = crypto.randomBytes(5000);
  const plain = await upload('raw.bin', bytes);
  const answer = await get(routes.download(place(plain), whose('u1')));
  assert.equal(answer.status, 200);
  assert.ok(answer.bytes.equals(bytes));
  assert.equal(answer.headers['x-content-type-options'], 'nosniff');
  const page = await upload('page.html', '<script>alert(1)</script>', { type: 'text/html' });
  const { headers } = await get(routes.download(place(page), whose('u1')));
  assert.ok(/attachment/.test(headers['content-disposition']) || /sandbox/.test(headers['content-security-policy']),
    JSON.stringify(headers));
});

test('a download works without saying whose it is', async () => {
  const file = await make('made.txt', 'bytes');
  const session = file.storage_session_id ?? file.execution;
  assert.equal((await get(routes.download({ session, id: file.id }))).text, 'bytes');
});

for (const [name, route] of [['sessions', routes.object], ['files', routes.file]]) {
  test(`deleting over /${name} removes the file, once`, async () => {
    const file = await upload('gone.txt', 'x');
    const answer = await del(route(place(file), whose('u1')));
    assert.ok(answer.status >= 200 && answer.status < 300, `${answer.status} ${answer.text}`);
    assert.equal((await get(routes.download(place(file), whose('u1')))).status, 404);
    assert.equal((await get(routes.object(place(file), whose('u1')))).status, 404);
    assert.equal((await del(route(place(file), whose('u1')))).status, 404);
  });
}

test('deleting what an execution made works too', async () => {
  const file = await make('made.txt');
  const where = { session: file.storage_session_id ?? file.execution, id: file.id };
  assert.ok((await del(routes.object(where, whose('u1')))).status < 300);
  assert.equal((await get(routes.download(where, whose('u1')))).status, 404);
});

test('a file that is gone does not come back in an execution', async () => {
  const file = await upload('gone.txt', 'secret bytes');
  await del(routes.object(place(file), whose('u1')));
  const answer = await post('/exec', { lang: 'bash', code: 'cat gone.txt', files: [file] });
  assert.doesNotMatch(answer.text, /secret bytes/);
  assert.ok(answer.status < 500, `${answer.status}`);
});

test('what does not exist is 404 everywhere', async () => {
  const nowhere = { session: unknownId(), id: unknownId() };
  assert.equal((await get(routes.object(nowhere, whose('u1')))).status, 404);
  assert.equal((await get(routes.download(nowhere, whose('u1')))).status, 404);
  assert.equal((await get(routes.list(nowhere, '?detail=full'))).status, 404);
  assert.equal((await del(routes.object(nowhere, whose('u1')))).status, 404);
  assert.equal((await del(routes.file(nowhere, whose('u1')))).status, 404);
  assert.equal((await get('/no-such-route')).status, 404);
});

test('a file is only found in its own session', async () => {
  const [one, other] = [await upload('one.txt', '1'), await upload('other.txt', '2')];
  const mixed = { session: other.storage_session_id, id: one.id };
  assert.equal((await get(routes.download(mixed, whose('u1')))).status, 404);
});

test('ids of another form are refused, whatever they say', async () => {
  for (const id of ['short', '..%2f..%2fetc%2fpasswd', `${'a'.repeat(20)}.`, "x'%20OR%201=1--", 'a'.repeat(300)]) {
    const { status } = await get(`/download/${unknownId()}/${id}`);
    assert.ok([400, 404, 414].includes(status), `${id} → ${status}`);
  }
});
