// Agents whose variables live on: the client's own tools with the stateful profile.
'use strict';

const { BEARER, assert, callTool, crypto, describe, post, test } = require('../support.cjs');
const { bashTool, codeTool } = require('./client.cjs');

/** What LibreChat calls a conversation. */
const hint = () => `v2:user:${crypto.randomBytes(16).toString('hex')}`;

const stateful = (runtimeSessionHint) => ({ executionProfile: 'stateful', statefulSessions: true, runtimeSessionHint });
const python = (name, code) => callTool(codeTool(stateful(name)), { lang: 'py', code });
const bash = (name, command) => callTool(bashTool(stateful(name)), { command });

describe('live variables');

test('variables live on in a conversation, and in no other', async () => {
  const [one, other] = [hint(), hint()];
  await python(one, 'x = 41');
  assert.match((await python(one, 'print(x + 1)')).text, /stdout:\n42/);
  assert.match((await python(other, 'print(x)')).text, /NameError: name 'x' is not defined/);
});

test('bash keeps its folder and its variables, and sees the files of Python', async () => {
  const name = hint();
  await bash(name, 'mkdir -p work && cd work && export WHO=world');
  assert.match((await bash(name, 'echo "hello $WHO from $PWD"')).text, /hello world from \/mnt\/data\/work/);
  await python(name, "open('/mnt/data/made.txt', 'w').write('by python')");
  assert.match((await bash(name, 'cat /mnt/data/made.txt')).text, /by python/);
});

test('a killed call loses nothing, and says what happened', async () => {
  const name = hint();
  await python(name, 'x = 41');
  const killed = await python(name, 'import os; x = 0; os._exit(3)');
  assert.match(killed.text, /variables are as they were before it/);
  assert.match((await python(name, 'print(x + 1)')).text, /stdout:\n42/);
});

test('figures come as files', async () => {
  const shown = await python(hint(), 'import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()');
  assert.match(JSON.stringify(shown), /figure-1\.png/);
});

test('the answer says whether variables were there', async () => {
  const request = { lang: 'py', code: '1 + 1', runtime_session_hint: hint() };
  const headers = { ...BEARER, 'X-CodeAPI-Expected-Profile': 'stateful' };
  const first = (await post('/exec', request, headers)).json();
  const second = (await post('/exec', request, headers)).json();
  assert.deepEqual([first.runtime_status, second.runtime_status], ['new', 'reused']);
  assert.equal(first.runtime_session_id, second.runtime_session_id);
  assert.equal(second.stdout, '2\n');
  const warmed = await post('/exec', { lang: 'bash', code: 'true', runtime_session_hint: hint() }, headers);
  assert.equal(warmed.json().runtime_status, 'new', 'as LibreChat warms a conversation up');
});
