// Who may come in, and whose files are whose.
'use strict';

const {
  BASE, BEARER, KEY, V1, assert, bearer, callTool, crypto, del, describe, get, mintToken, post, recordTraffic, request,
  routes, sendForm, signingKey, test,
} = require('../support.cjs');
const { client, codeTool, conversation, place, runCode, say, settings, upload, uploadSkill, whose } = require('./client.cjs');
const { runPython } = require('./inner_tools.cjs');

const NOT_AUTHORIZED = 'Execution error:\n\nCode execution is not authorized. Verify access before trying again.';
const WORKS = 'stdout:\n42';

const calculate = (params) => callTool(client.createCodeExecutionTool(params), { lang: 'py', code: 'print(6 * 7)' });

/** The refusal as the model sees it and on the wire. */
async function isRefused(headers) {
  const shown = await recordTraffic((baseUrl) => calculate({ baseUrl, authHeaders: headers }));
  assert.equal(shown.text, NOT_AUTHORIZED);
  const form = { fields: { kind: 'user', id: 'u' }, files: [{ name: 'a', content: 'b' }], headers };
  assert.equal((await post('/exec', { lang: 'py', code: '1' }, headers)).status, 401);
  assert.equal((await sendForm('/upload', form)).status, 401);
  assert.equal((await get('/files/aaaaaaaaaaaaaaaaaaaaa', headers)).status, 401);
}

describe('keys');

test('a Bearer key comes in', async () => {
  assert.equal((await calculate({ baseUrl: V1, authHeaders: BEARER })).text, WORKS);
});

test('X-API-Key comes in', async () => {
  assert.equal((await calculate({ baseUrl: V1, authHeaders: { 'X-API-Key': KEY } })).text, WORKS);
});

test('a key in the base URL comes in: the client sends it as Basic', async () => {
  const base = new URL(V1);
  base.username = 'lc';
  base.password = KEY;
  assert.equal((await calculate({ baseUrl: base.href })).text, WORKS);
});

test('a key in the path comes in', async () => {
  assert.equal((await calculate({ baseUrl: `${BASE}/k/${KEY}/v1` })).text, WORKS);
});

test('the base URL may come from the environment and end in a slash', async () => {
  process.env.LIBRECHAT_CODE_BASEURL = `${BASE}/k/${KEY}/v1/`;
  assert.equal((await calculate({})).text, WORKS);
  delete process.env.LIBRECHAT_CODE_BASEURL;
});

test('uploads and downloads work with the key in the path', async () => {
  const root = `${BASE}/k/${KEY}/v1`;
  const file = await upload('in.txt', 'by path');
  const answer = await request('GET', `${root}${routes.download(place(file), whose('u1'))}`);
  assert.equal(answer.text, 'by path');
});

test('no credential is refused', async () => {
  await isRefused({});
});

test('wrong credentials are refused in every form', async () => {
  const wrong = 'rk_wrong_0123456789abcdefghijklmnopqrst';
  await isRefused(bearer(wrong));
  await isRefused({ 'X-API-Key': wrong });
  await isRefused({ Authorization: `Basic ${Buffer.from(`lc:${wrong}`).toString('base64')}` });
  await isRefused({ Authorization: 'Bearer' });
  await isRefused({ Authorization: 'Negotiate abc' });
  const byPath = await recordTraffic((baseUrl) => calculate({ baseUrl: baseUrl.replace('/v1', `/k/${wrong}/v1`) }));
  assert.equal(byPath.text, NOT_AUTHORIZED);
});

test('a refusal does not repeat the credential', async () => {
  const answer = await post('/exec', { lang: 'py', code: '1' }, bearer('rk_not_to_be_echoed_1234567890'));
  assert.doesNotMatch(answer.text + JSON.stringify(answer.headers), /not_to_be_echoed/);
});

describe('tokens');

test('EdDSA comes in', async () => {
  assert.equal((await calculate({ baseUrl: V1, authHeaders: bearer(mintToken()) })).text, WORKS);
});

test('RS256 comes in', async () => {
  assert.equal((await calculate({ baseUrl: V1, authHeaders: bearer(mintToken({ alg: 'RS256' })) })).text, WORKS);
});

test('a fresh token for each request, as LibreChat mints them, keeps one user', async () => {
  const headers = async () => bearer(mintToken({ user: 'user-fresh' }));
  const talk = conversation({ headers });
  await say.bash(talk, 'echo kept > a.txt');
  assert.equal((await say.bash(talk, 'cat a.txt')).text, 'stdout:\nkept');
});

test('one program may go on with another token of the same user', async () => {
  const authHeaders = async () => bearer(mintToken({ user: 'user-fresh' }));
  assert.equal((await runPython(['add'], 'print(await add(a=1, b=1))', { authHeaders })).text, 'stdout:\n2');
});

const seconds = () => Math.floor(Date.now() / 1000);
const refusals = {
  'an expired token': () => ({ claims: { iat: seconds() - 600, nbf: seconds() - 600, exp: seconds() - 300 } }),
  'a token for later': () => ({ claims: { iat: seconds() + 600, nbf: seconds() + 600, exp: seconds() + 900 } }),
  'a token without an end': () => ({ claims: { exp: undefined } }),
  'a token for another audience': () => ({ claims: { aud: 'someone-else' } }),
  'a token of another issuer': () => ({ claims: { iss: 'evil' } }),
  'a token without a user': () => ({ claims: { sub: '' } }),
  'a token without an algorithm': () => ({ header: { alg: 'none' }, sign: () => '' }),
  'a token that calls itself unsigned but is signed': () => ({ header: { alg: 'none' } }),
  'a token of another key': () => {
    const { privateKey } = crypto.generateKeyPairSync('ed25519');
    return { sign: (input) => crypto.sign(null, Buffer.from(input), privateKey) };
  },
  'an RS256 token of another key': () => {
    const { privateKey } = crypto.generateKeyPairSync('rsa', { modulusLength: 2048 });
    return { alg: 'RS256', sign: (input) => crypto.sign('RSA-SHA256', Buffer.from(input), privateKey) };
  },
  'a token whose key comes with it': () => {
    const { privateKey, publicKey } = crypto.generateKeyPairSync('ed25519');
    return {
      header: { jwk: publicKey.export({ format: 'jwk' }) },
      sign: (input) => crypto.sign(null, Buffer.from(input), privateKey),
    };
  },
};
for (const [variable, kind] of [['REDOMA_JWT_ED25519_PRIVATE', 'Ed25519'], ['REDOMA_JWT_RSA_PRIVATE', 'RSA']]) {
  refusals[`an HS256 token signed with the public ${kind} key`] = () => ({
    header: { alg: 'HS256' },
    sign: (input) => {
      const publicPem = crypto.createPublicKey(signingKey(variable)).export({ type: 'spki', format: 'pem' });
      return crypto.createHmac('sha256', publicPem).update(input).digest();
    },
  });
}
for (const [name, forge] of Object.entries(refusals)) {
  test(`${name} is refused`, () => isRefused(bearer(mintToken(forge()))));
}

test('a token that was changed is refused', async () => {
  const [header, , signature] = mintToken({ user: 'user-a' }).split('.');
  const other = mintToken({ user: 'user-b' }).split('.')[1];
  await isRefused(bearer(`${header}.${other}.${signature}`));
});

describe('profiles');

test('the default profile is served, with or without its name', async () => {
  assert.equal((await calculate({ ...settings(), executionProfile: 'default' })).text, WORKS);
  assert.equal((await calculate({ ...settings(), executionProfile: undefined })).text, WORKS);
});

test('the stateful profile is served too', async () => {
  const headers = { ...BEARER, 'X-CodeAPI-Expected-Profile': 'stateful' };
  assert.equal((await post('/exec', { lang: 'py', code: 'print(1)' }, headers)).json().stdout, '1\n');
  const file = await upload('in.txt', 'x');
  assert.equal((await get(routes.download(place(file), whose('u1')), headers)).status, 200, 'on every route');
});

test('a profile that nobody knows is refused', async () => {
  const { status } = await post('/exec', { lang: 'py', code: '1' }, { ...BEARER, 'X-CodeAPI-Expected-Profile': 'turbo' });
  assert.ok([400, 409].includes(status), `${status}`);
});

describe('users');

const alice = () => bearer(mintToken({ user: 'alice' }));
const bob = () => bearer(mintToken({ user: 'bob' }));

test("another user's token finds nothing", async () => {
  const file = await upload('private.txt', 'private words', { user: 'alice', headers: alice() });
  assert.equal((await get(routes.download(place(file), whose('alice')), alice())).text, 'private words');
  for (const query of [whose('bob'), whose('alice'), '', '?kind=skill&id=alice&version=1', '?kind=agent&id=alice']) {
    for (const route of [routes.object, routes.download]) {
      assert.equal((await get(route(place(file), query), bob())).status, 404, `${route(place(file), query)}`);
    }
    assert.equal((await get(routes.list(place(file), `?detail=full${query.replace('?', '&')}`), bob())).status, 404);
    assert.equal((await del(routes.object(place(file), query), bob())).status, 404);
    assert.equal((await del(routes.file(place(file), query), bob())).status, 404);
  }
  assert.equal((await get(routes.download(place(file), whose('alice')), alice())).text, 'private words');
});

test("another user's file cannot be brought into an execution", async () => {
  const file = await upload('private.txt', 'private words', { user: 'alice', headers: alice() });
  for (const claim of [file, { ...file, resource_id: 'bob' }, { ...file, kind: 'agent' }, { ...file, kind: 'skill', version: 1 },
    { id: file.id, session_id: file.storage_session_id, name: file.name }]) {
    const answer = await post('/exec', { lang: 'bash', code: 'cat private.txt', files: [claim] }, bob());
    assert.doesNotMatch(answer.text, /private words/);
    assert.ok(answer.status < 500, `${answer.status}`);
  }
  const byName = await post('/exec',
    { lang: 'bash', code: 'ls -A; cat private.txt', session_id: file.storage_session_id, user_id: 'alice' }, bob());
  assert.doesNotMatch(byName.text, /private words/);
});

test("another user's outputs are as hidden as uploads", async () => {
  const talk = conversation({ headers: alice });
  await say.bash(talk, 'echo private > out.txt');
  const made = place(talk.file('out.txt'));
  assert.equal((await get(routes.download(made, whose('alice')), alice())).status, 200);
  assert.equal((await get(routes.download(made, whose('bob')), bob())).status, 404);
  assert.equal((await get(routes.list({ session: talk.session.session_id }, '?detail=full'), bob())).status, 404);
});

test("another user cannot answer for someone's waiting program", async () => {
  const tools = [{ name: 'add', parameters: { type: 'object', properties: {} } }];
  const waiting = (await post('/exec/programmatic', { code: 'print(await add())', tools, timeout: 5000 }, alice())).json();
  const results = {
    continuation_token: waiting.continuation_token,
    tool_results: [{ call_id: waiting.tool_calls[0].id, result: 1, is_error: false }],
  };
  assert.ok([403, 404].includes((await post('/exec/programmatic', results, bob())).status));
  assert.equal((await post('/exec/programmatic', results, alice())).json().stdout, '1\n');
});

test('a skill that one user brought serves the others, if they name it', async () => {
  const [file] = await uploadSkill(
    { 'skills/shared/a.py': 'print("shared")' },
    { skill: 'skill-shared', user: 'alice', headers: alice() },
  );
  const named = '?kind=skill&id=skill-shared&version=1';
  assert.equal((await get(routes.object(place(file), named), bob())).status, 200);
  const talk = conversation({ files: [file], headers: bob });
  assert.equal((await say.bash(talk, 'python3 skills/shared/a.py')).text, 'stdout:\nshared');
  for (const query of ['?kind=skill&id=skill-other&version=1', '?kind=skill&id=skill-shared&version=2', whose('bob')]) {
    assert.equal((await get(routes.object(place(file), query), bob())).status, 404, query);
  }
});

test('a skill stays in its tenant', async () => {
  const [file] = await uploadSkill({ 'skills/t/a.py': 'x' }, { skill: 'skill-tenant', user: 'alice', headers: alice() });
  const elsewhere = bearer(mintToken({ user: 'carol', claims: { tenant_id: 'another' } }));
  assert.equal((await get(routes.object(place(file), '?kind=skill&id=skill-tenant&version=1'), elsewhere)).status, 404);
});

test('with a key, bash_tool names no user, and the files still fit together', async () => {
  const talk = conversation({ files: [await upload('in.txt', 'from u1', { user: 'u1' })] });
  await say.bash(talk, 'cp in.txt out.txt');
  assert.equal((await get(routes.download(place(talk.file('out.txt')), whose('u1')))).text, 'from u1');
  const named = await runCode('py', 'print(open("out.txt").read())', {
    user_id: 'u1', files: [{ ...talk.file('out.txt'), kind: 'user', resource_id: 'u1' }],
  });
  assert.equal(named.text, 'stdout:\nfrom u1');
});

test('with a key, a file of one named user is not there for another', async () => {
  const file = await upload('in.txt', 'of u1', { user: 'u1' });
  assert.equal((await get(routes.download(place(file), whose('u2')))).status, 404);
  assert.equal((await del(routes.object(place(file), whose('u2')))).status, 404);
  assert.equal((await get(routes.download(place(file), whose('u1')))).status, 200);
});
