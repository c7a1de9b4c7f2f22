// What both suites share: a runner, the way to LibreChat's real client code, and the requests that
// LibreChat's host makes itself (its file routes are not in npm, so they are written out here from
// the wire contract).
'use strict';

// LibreChat runs on Node 20, which has this; Debian's Node 18 has it under another name.
globalThis.crypto ??= require('crypto').webcrypto;

const assert = require('node:assert/strict');
const crypto = require('node:crypto');
const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');

function setting(name) {
  const value = process.env[name];
  if (!value) {
    console.error(`${name} is not set; install.sh says how these suites are run`);
    process.exit(2);
  }
  return value;
}

const BASE = setting('REDOMA_BASE').replace(/\/+$/, '');
const KEY = setting('REDOMA_KEY');
const CLIENTS = path.resolve(setting('REDOMA_CLIENTS'));
const V1 = `${BASE}/v1`;
const BEARER = { Authorization: `Bearer ${KEY}` };

/** What the clients accept as a session or file id. */
const ID = /^[A-Za-z0-9_-]{21}$/;

// ---------------------------------------------------------------------------------------------
// The runner: tests in order, one line each, a deadline for each, a failing exit code.

const tests = [];
let section = '';

function describe(name) {
  section = name;
}

function test(promise, body, { seconds = 15 } = {}) {
  tests.push({ section, promise, body, seconds });
}

/** The clients report to the console; that is shown only where a test fails. */
function captureConsole() {
  const lines = [];
  const original = {};
  for (const level of ['log', 'debug', 'warn', 'error']) {
    original[level] = console[level];
    console[level] = (...words) =>
      lines.push(words.map((word) => (typeof word === 'string' ? word : JSON.stringify(word))).join(' '));
  }
  return { lines, restore: () => Object.assign(console, original) };
}

async function runOne({ body, seconds }) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done after ${seconds} s`)), seconds * 1000);
  });
  try {
    await Promise.race([body(), late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Runs every test whose name holds the words of the command line. */
async function run() {
  const words = process.argv.slice(2).join(' ').toLowerCase();
  const chosen = tests.filter((one) => `${one.section}: ${one.promise}`.toLowerCase().includes(words));
  const begin = Date.now();
  let failed = 0;
  for (const one of chosen) {
    const started = Date.now();
    const captured = captureConsole();
    let failure;
    try {
      await runOne(one);
    } catch (error) {
      failure = error;
    }
    captured.restore();
    const took = `${Date.now() - started} ms`.padStart(9);
    console.log(`${failure ? 'FAIL' : 'ok  '} ${took}  ${one.section}: ${one.promise}`);
    if (failure) {
      failed += 1;
      const stack = String(failure.stack ?? failure).split('\n').filter((line) => !/node:internal/.test(line));
      for (const line of [...stack.slice(0, 25), ...captured.lines.slice(-5).map((said) => `client: ${said}`)]) {
        console.log(`       ${line.slice(0, 2000)}`);
      }
    }
  }
  console.log(`${chosen.length - failed} of ${chosen.length} passed in ${((Date.now() - begin) / 1000).toFixed(1)} s`);
  process.exit(failed || chosen.length === 0 ? 1 : 0);
}

// ---------------------------------------------------------------------------------------------
// LibreChat's client code, unmodified.

function loadClient(generation) {
  const folder = path.join(CLIENTS, generation);
  if (!fs.existsSync(path.join(folder, '.installed'))) {
    console.error(`${folder} is not installed; run ${path.join(__dirname, 'install.sh')} ${CLIENTS}`);
    process.exit(2);
  }
  const modules = path.join(folder, 'node_modules');
  const tools = path.join(modules, '@librechat', 'agents', 'dist', 'cjs', 'tools');
  const has = (name) => fs.existsSync(path.join(tools, `${name}.cjs`));
  const load = (name) => (has(name) ? require(path.join(tools, `${name}.cjs`)) : {});
  const fromClient = (name) => require(require.resolve(name, { paths: [modules] }));
  return {
    ...load('CodeExecutor'),
    ...load('BashExecutor'),
    ...load('ProgrammaticToolCalling'),
    ...load('BashProgrammaticToolCalling'),
    ToolNode: load('ToolNode').ToolNode,
    tool: fromClient('@langchain/core/tools').tool,
    AIMessage: fromClient('@langchain/core/messages').AIMessage,
  };
}

let callNumber = 0;

/**
 * Calls one of the client's tools as its graph does. `extra` is what ToolNode would add to the call.
 * The answer's `text` is what the model reads, whether the tool answered or threw.
 */
async function callTool(tool, args, extra = {}, config = {}) {
  callNumber += 1;
  try {
    const message = await tool.invoke(
      { type: 'tool_call', id: `call-${callNumber}`, name: tool.name, args, ...extra },
      config,
    );
    if (message.artifact) checkArtifact(message.artifact);
    return { text: message.content, artifact: message.artifact, threw: false };
  } catch (error) {
    return { text: error.message, artifact: undefined, threw: true };
  }
}

function checkArtifact({ session_id, files = [] }) {
  assert.match(session_id, ID, 'session_id of an execution');
  for (const file of files) {
    assert.match(file.id, ID, `id of ${file.name}`);
    if (file.storage_session_id !== undefined) assert.match(file.storage_session_id, ID);
  }
}

/** A conversation: the client's ToolNode with its own memory of sessions and files. */
class Conversation {
  constructor(client, tools, { registry, files } = {}) {
    this.client = client;
    this.sessions = new Map();
    if (files) this.attach(files);
    this.node = new client.ToolNode({ tools, sessions: this.sessions, toolRegistry: registry });
  }

  /** Seeds files as LibreChat's host does: the first file's session stands in for an execution. */
  attach(files) {
    const known = this.sessions.get('execute_code');
    this.sessions.set('execute_code', {
      session_id: known?.session_id ?? files[0].storage_session_id ?? files[0].session_id,
      files: [...(known?.files ?? []), ...files],
      lastUpdated: Date.now(),
    });
  }

  async say(name, args) {
    callNumber += 1;
    const call = { type: 'tool_call', id: `call-${callNumber}`, name, args };
    const { messages } = await this.node.invoke({
      messages: [new this.client.AIMessage({ content: '', tool_calls: [call] })],
    });
    const message = messages[0];
    if (message.artifact) checkArtifact(message.artifact);
    return {
      text: message.content,
      artifact: message.artifact ?? {},
      made: (message.artifact?.files ?? []).filter((file) => file.inherited !== true),
      threw: message.status === 'error',
    };
  }

  get session() {
    return this.sessions.get('execute_code');
  }

  /** The reference that the client would send for a file on the next call. */
  file(name) {
    return this.session.files.find((file) => file.name === name);
  }
}

// ---------------------------------------------------------------------------------------------
// Plain HTTP, for what LibreChat's host sends itself.

const isLoopback = new URL(BASE).hostname === '127.0.0.1';

/** A server lets an address wait longer after each failed login, so requests come from many of them. */
function newAddress() {
  return isLoopback ? `127.${crypto.randomInt(1, 255)}.${crypto.randomInt(255)}.${crypto.randomInt(1, 255)}` : undefined;
}

function request(method, url, { headers = {}, body, chunks } = {}) {
  return new Promise((resolve, reject) => {
    const outgoing = http.request(
      url,
      { method, agent: false, localAddress: newAddress(), headers: { 'User-Agent': 'LibreChat/1.0', ...headers } },
      (incoming) => {
        const parts = [];
        incoming.on('data', (part) => parts.push(part));
        incoming.on('error', reject);
        incoming.on('end', () => {
          const bytes = Buffer.concat(parts);
          resolve({
            status: incoming.statusCode,
            headers: incoming.headers,
            bytes,
            text: bytes.toString('utf8'),
            json: () => JSON.parse(bytes.toString('utf8')),
          });
        });
      },
    );
    outgoing.on('error', reject);
    // A body in chunks carries no Content-Length, like the streamed forms of LibreChat.
    for (const chunk of chunks ?? []) outgoing.write(chunk);
    outgoing.end(body);
  });
}

const get = (route, headers = BEARER) => request('GET', `${V1}${route}`, { headers });
const del = (route, headers = BEARER) => request('DELETE', `${V1}${route}`, { headers });

function post(route, body, headers = BEARER) {
  return request('POST', `${V1}${route}`, {
    headers: { 'Content-Type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
}

async function postOk(route, body, headers = BEARER) {
  const answer = await post(route, body, headers);
  assert.equal(answer.status, 200, `POST ${route}: ${answer.text.slice(0, 500)}`);
  return answer.json();
}

/** The routes on which an execution's file, or an upload, can be asked for. */
const routes = {
  object: (ref, query = '') => `/sessions/${ref.session}/objects/${ref.id}${query}`,
  download: (ref, query = '') => `/download/${ref.session}/${ref.id}${query}`,
  list: (ref, query = '') => `/files/${ref.session}${query}`,
  file: (ref, query = '') => `/files/${ref.session}/${ref.id}${query}`,
};

/** A streamed multipart form: fields first, then the files, names as raw UTF-8. */
function sendForm(route, { fields = {}, files, headers = BEARER }) {
  const boundary = `--------------------------${crypto.randomBytes(12).toString('hex')}`;
  const chunks = [];
  for (const [name, value] of Object.entries(fields)) {
    chunks.push(`--${boundary}\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`);
  }
  for (const { name, content, type = 'application/octet-stream' } of files) {
    chunks.push(
      `--${boundary}\r\nContent-Disposition: form-data; name="file"; filename="${name}"\r\nContent-Type: ${type}\r\n\r\n`,
    );
    const bytes = Buffer.from(content);
    for (let at = 0; at < bytes.length; at += 65536) chunks.push(bytes.subarray(at, at + 65536));
    chunks.push('\r\n');
  }
  chunks.push(`--${boundary}--\r\n`);
  return request('POST', `${V1}${route}`, {
    headers: { 'Content-Type': `multipart/form-data; boundary=${boundary}`, ...headers },
    chunks,
  });
}

// ---------------------------------------------------------------------------------------------
// LibreChat's tokens.

function signingKey(variable) {
  return crypto.createPrivateKey(fs.readFileSync(setting(variable)));
}

const base64url = (value) => Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64url');

/** A token with the claims that LibreChat mints; `claims` and `header` replace some of them. */
function mintToken({ alg = 'EdDSA', user = 'user-a', claims = {}, header = {}, sign } = {}) {
  const now = Math.floor(Date.now() / 1000);
  const allClaims = {
    iss: 'librechat',
    aud: 'codeapi',
    sub: user,
    iat: now,
    nbf: now,
    exp: now + 300,
    jti: crypto.randomUUID(),
    tenant_id: 'legacy',
    role: 'USER',
    principal_source: 'librechat_jwt',
    auth_context_hash: crypto.createHash('sha256').update(user).digest('hex'),
    ...claims,
  };
  const input = `${base64url({ alg, typ: 'JWT', kid: 'lc-codeapi-2026-05', ...header })}.${base64url(allClaims)}`;
  const signature = sign
    ? sign(input)
    : alg === 'RS256'
      ? crypto.sign('RSA-SHA256', Buffer.from(input), signingKey('REDOMA_JWT_RSA_PRIVATE'))
      : crypto.sign(null, Buffer.from(input), signingKey('REDOMA_JWT_ED25519_PRIVATE'));
  return `${input}.${Buffer.from(signature).toString('base64url')}`;
}

const bearer = (token) => ({ Authorization: `Bearer ${token}` });

// ---------------------------------------------------------------------------------------------
// A go-between that passes everything on and remembers it: what the client really sent.

async function recordTraffic(body) {
  const seen = [];
  const server = http.createServer((incoming, outgoing) => {
    const parts = [];
    incoming.on('data', (part) => parts.push(part));
    incoming.on('end', () => {
      const sent = Buffer.concat(parts);
      const record = { method: incoming.method, path: incoming.url, headers: incoming.headers, body: sent.toString('utf8') };
      seen.push(record);
      const onward = http.request(
        `${BASE}${incoming.url}`,
        {
          method: incoming.method,
          agent: false,
          localAddress: newAddress(),
          headers: { ...incoming.headers, host: new URL(BASE).host },
        },
        (answer) => {
          record.status = answer.statusCode;
          const answered = [];
          answer.on('data', (part) => answered.push(part));
          answer.on('end', () => {
            record.answer = Buffer.concat(answered).toString('utf8');
            outgoing.writeHead(answer.statusCode, answer.headers);
            outgoing.end(record.answer);
          });
        },
      );
      onward.on('error', () => outgoing.destroy());
      outgoing.on('close', () => onward.destroy());
      onward.end(sent);
    });
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  try {
    return await body(`http://127.0.0.1:${server.address().port}/v1`, seen);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Asks until the answer is there; the clients' own calls have no such patience. */
async function eventually(question, seconds = 5) {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const answer = await question();
    if (answer || Date.now() > end) return answer;
    await sleep(50);
  }
}

const isPng = (bytes) => bytes.subarray(0, 8).equals(Buffer.from('89504e470d0a1a0a', 'hex'));
const sha256 = (bytes) => crypto.createHash('sha256').update(bytes).digest('hex');
const unknownId = () => crypto.randomBytes(16).toString('base64url').slice(0, 21);

module.exports = {
  BASE, BEARER, Conversation, ID, KEY, V1,
  assert, bearer, callTool, crypto, del, describe, eventually, get, isPng, loadClient, mintToken,
  post, postOk, recordTraffic, request, routes, run, sendForm, setting, sha256, signingKey, sleep, test, unknownId,
};
