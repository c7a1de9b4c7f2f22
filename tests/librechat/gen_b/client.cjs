// The tools of @librechat/agents 3.9.2, pointed at the server under test.
'use strict';

const { BEARER, Conversation, ID, V1, assert, callTool, loadClient, sendForm } = require('../support.cjs');

const client = loadClient('gen_b');

/** What LibreChat's host gives to every code tool. */
const settings = (more = {}) => ({ baseUrl: V1, authHeaders: BEARER, executionProfile: 'default', ...more });

const codeTool = (more) => client.createCodeExecutionTool(settings(more));
const bashTool = (more) => client.createBashExecutionTool(settings(more));

const runCode = (lang, code, { args, ...more } = {}) =>
  callTool(codeTool({ user_id: 'u1', ...more }), { lang, code, ...(args ? { args } : {}) });

const runBash = (command, { args, ...more } = {}) =>
  callTool(bashTool(more), { command, ...(args ? { args } : {}) });

/** A conversation with both code tools, and the programmatic ones where inner tools are given. */
function conversation({ files, tools = [], headers = BEARER } = {}) {
  const more = { authHeaders: headers };
  const registry = new Map(
    tools.map(({ name, definition }) => [name, { ...definition, allowed_callers: ['code_execution'] }]),
  );
  return new Conversation(
    client,
    [
      codeTool(more),
      bashTool(more),
      client.createProgrammaticToolCallingTool(settings(more)),
      client.createBashProgrammaticToolCallingTool(settings(more)),
      ...tools.map(({ tool }) => tool),
    ],
    { files, registry },
  );
}

const say = {
  py: (talk, code) => talk.say('execute_code', { lang: 'py', code }),
  bash: (talk, command) => talk.say('bash_tool', { command }),
};

/** Uploads one file and answers with the reference that LibreChat would send to `/exec`. */
async function upload(name, content, { user = 'u1', headers = BEARER, kind = 'user', id = user, version, type } = {}) {
  const answer = await sendForm('/upload', {
    fields: { kind, id, ...(version === undefined ? {} : { version }) },
    files: [{ name, content, type }],
    headers: { 'User-Id': user, ...headers },
  });
  assert.equal(answer.status, 200, answer.text);
  const body = answer.json();
  assert.equal(body.message, 'success');
  assert.equal(body.files[0].filename, name);
  return reference(body.storage_session_id, body.files[0].fileId, name, { kind, id, version });
}

/** Uploads read-only skill files in one request, as LibreChat does before an agent's first call. */
async function uploadSkill(files, { skill, version = 1, user = 'u1', headers = BEARER }) {
  const answer = await sendForm('/upload/batch', {
    fields: { kind: 'skill', id: skill, version, read_only: 'true' },
    files: Object.entries(files).map(([name, content]) => ({ name, content })),
    headers: { 'User-Id': user, ...headers },
  });
  assert.equal(answer.status, 200, answer.text);
  const body = answer.json();
  return body.files.map((file) =>
    reference(body.storage_session_id, file.fileId, file.filename, { kind: 'skill', id: skill, version }));
}

function reference(session, id, name, { kind, id: resource, version }) {
  assert.match(session, ID);
  assert.match(id, ID);
  return {
    id,
    resource_id: resource,
    name,
    storage_session_id: session,
    kind,
    ...(version === undefined ? {} : { version }),
  };
}

/** The two ids of a file, wherever it came from. */
const place = (file) => ({ session: file.storage_session_id, id: file.id });

const whose = (user) => `?kind=user&id=${encodeURIComponent(user)}`;

module.exports = {
  bashTool, callTool, client, codeTool, conversation, place, runBash, runCode, say, settings, upload, uploadSkill, whose,
};
