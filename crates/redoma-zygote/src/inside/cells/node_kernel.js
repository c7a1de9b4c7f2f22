// The JavaScript of a session: one process that runs cell after cell in its main context.
//
// Started by redoma_node.py with three pipes: commands come in on the first, reports go out on the second, both as lines
// of JSON, and on the third comes a byte for each report that has to be shown before anything else is printed.
//
// A cell's code is read with the parser that Node has for its own prompt, and changed as little as possible and on the
// same lines: what is declared at its top level becomes a global variable, so that it is there for later cells and may
// be declared again. Code that imports or awaits becomes the body of an async function, the rest is run as it is.
'use strict';
const fs = require('fs');
const Module = require('module');
const net = require('net');
const os = require('os');
const path = require('path');
const url = require('url');
const util = require('util');
const vm = require('vm');

const { Buffer, process, setImmediate } = globalThis;
const [COMMANDS, REPORTS, TURNS] = [3, 4, 5];
const WORKSPACE = process.argv[2];
const LONGEST_TEXT = 64 << 10;
const LONGEST_DATA = 8 << 20;
const DISPLAY = Symbol.for('Jupyter.display');
const MIME = /^[a-z]+\/[-\w.+]+$/;
// As they are now, before any cell can change them.
const { parse, stringify } = JSON;
const { writeSync, readSync } = fs;
const { inspect } = util;
const reallyExit = process.reallyExit.bind(process);
const loader = vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER;

let acorn;
try {
  acorn = require('internal/deps/acorn/acorn/dist/acorn');
} catch {
  // A Node without it: cells run, but names are declared once only, and nothing is imported or awaited outside of
  // functions.
}
// Node's own watchdog for SIGINT. It runs for good: a signal ends the script that runs, and does nothing between scripts.
// Otherwise Node starts it before each script and stops it after, and a SIGINT right after the stop ends Node.
let watchdog;
let handle;
const warn = process.emitWarning;
try {
  process.emitWarning = () => {};
  const { internalBinding } = require('internal/test/binding');
  // While this handle is there, listeners that cells add and remove don't change what the process does with the signal.
  const { Signal } = internalBinding('signal_wrap');
  handle = new Signal();
  handle.unref();
  handle.onsignal = () => {};
  handle.start(os.constants.signals.SIGINT);
  watchdog = internalBinding('contextify');
  watchdog.startSigintWatchdog();
} catch {
  watchdog = undefined;
} finally {
  process.emitWarning = warn;
}
process.execArgv = process.execArgv.filter((word) => word !== '--expose-internals');

// The cell that runs now.
let cell = null;

// Thrown to leave a cell; nothing that went wrong.
class Leave {
  constructor(code) {
    this.code = code;
  }
}

function report(message) {
  const bytes = Buffer.from(`\n${stringify(message)}\n`);
  try {
    for (let start = 0; start < bytes.length; ) {
      start += writeSync(REPORTS, bytes, start);
    }
  } catch {
    // Nobody can hear this process any more.
    reallyExit(1);
  }
}

const PARSER = {
  ecmaVersion: 'latest',
  sourceType: 'script',
  allowHashBang: true,
  allowAwaitOutsideFunction: true,
  allowImportExportEverywhere: true,
  allowReturnOutsideFunction: true,
};

// Calls `visit` for a node and those below it. It says whether to go on below.
function walk(node, visit, parent = null) {
  if (!visit(node, parent)) {
    return;
  }
  for (const key of Object.keys(node)) {
    const below = node[key];
    for (const child of Array.isArray(below) ? below : [below]) {
      if (child !== null && typeof child === 'object' && typeof child.type === 'string') {
        walk(child, visit, node);
      }
    }
  }
}

// The names that a pattern binds.
function names(pattern, found = []) {
  switch (pattern?.type) {
    case 'Identifier':
      found.push(pattern.name);
      break;
    case 'ObjectPattern':
      pattern.properties.forEach((property) => names(property.value ?? property.argument, found));
      break;
    case 'ArrayPattern':
      pattern.elements.forEach((element) => names(element, found));
      break;
    case 'AssignmentPattern':
      names(pattern.left, found);
      break;
    case 'RestElement':
      names(pattern.argument, found);
      break;
  }
  return found;
}

const FUNCTIONS = ['FunctionDeclaration', 'FunctionExpression', 'ArrowFunctionExpression'];

class Rewriting {
  constructor(code) {
    this.code = code;
    this.tree = acorn.parse(code, PARSER);
    this.edits = [];
    this.declared = [];
    // What comes before the first line, on it.
    this.head = '';
    this.awaits = this.tree.body.some((node) => node.type === 'ImportDeclaration');
    this.look();
    this.statements();
  }

  insert(position, text) {
    this.edits.push([position, position, text]);
  }

  // Replaces text by other text that has as many lines.
  replace(start, end, text) {
    this.edits.push([start, end, text + this.code.slice(start, end).replace(/[^\n]+/g, '')]);
  }

  look() {
    let depth = 0;
    const visit = (node) => {
      if (node.type === 'ImportExpression' && loader === undefined) {
        this.replace(node.start, node.start + 'import'.length, '__redoma.import');
      } else if (node.type === 'MetaProperty' && node.meta.name === 'import') {
        this.replace(node.start, node.end, '__redoma.meta');
      }
      const inner = FUNCTIONS.includes(node.type) || node.type === 'PropertyDefinition' || node.type === 'StaticBlock';
      if (depth === 0 && !inner) {
        this.awaits ||=
          node.type === 'AwaitExpression' ||
          node.type === 'ReturnStatement' ||
          (node.type === 'ForOfStatement' && node.await) ||
          (node.type === 'VariableDeclaration' && node.kind === 'await using');
      }
      if (!inner) {
        return true;
      }
      depth += 1;
      for (const key of Object.keys(node)) {
        for (const child of [node[key]].flat()) {
          if (typeof child?.type === 'string') {
            walk(child, visit);
          }
        }
      }
      depth -= 1;
      return false;
    };
    walk(this.tree, visit);
  }

  statements() {
    const { body } = this.tree;
    // What says nothing may come after the last that does.
    const isNothing = (node) =>
      node.type === 'EmptyStatement' || (node.type === 'ExportNamedDeclaration' && node.declaration === null);
    const last = body.filter((node) => !isNothing(node)).at(-1);
    body.forEach((node) => this.statement(node, node === last));
    if (this.awaits) {
      this.nested();
    }
  }

  statement(node, isLast) {
    switch (node.type) {
      case 'ImportDeclaration':
        this.import(node);
        break;
      case 'ExportNamedDeclaration':
        if (node.source !== null) {
          throw new SyntaxError("a cell can't export what it does not have: import it instead");
        }
        this.replace(node.start, node.declaration?.start ?? node.end, '');
        if (node.declaration !== null) {
          this.statement(node.declaration, isLast);
        }
        break;
      case 'ExportDefaultDeclaration':
        this.replace(node.start, node.declaration.start, '');
        if (node.declaration.id) {
          this.statement(node.declaration, isLast);
        } else {
          this.insert(node.declaration.start, 'void (');
          this.insert(node.declaration.end, ');');
        }
        break;
      case 'ExportAllDeclaration':
        throw new SyntaxError("a cell can't export what it does not have: import it instead");
      case 'VariableDeclaration':
        this.variables(node);
        break;
      case 'ClassDeclaration':
        this.declared.push(node.id.name);
        this.insert(node.start, this.awaits ? `void (${node.id.name} = ` : `var ${node.id.name} = `);
        this.insert(node.end, this.awaits ? ');' : ';');
        break;
      case 'FunctionDeclaration':
        this.declared.push(node.id.name);
        if (this.awaits) {
          this.head += `globalThis.${node.id.name} = ${node.id.name};`;
        }
        break;
      case 'ExpressionStatement':
        this.shows ||= isLast;
        if (isLast && this.awaits) {
          this.insert(node.start, 'return [');
          this.insert(node.expression.end, this.closing(node));
        }
        break;
    }
  }

  // The expression may be in parentheses, which are no part of it.
  closing(node) {
    const rest = this.code.slice(node.expression.end, node.end);
    if (!/^\s*\)/.test(rest)) {
      return ']';
    }
    const end = node.end - (rest.endsWith(';') ? 1 : 0);
    this.insert(end, ']');
    return '';
  }

  variables(node) {
    if (node.kind.endsWith('using')) {
      return;
    }
    this.declared.push(...node.declarations.flatMap((declaration) => names(declaration.id)));
    if (this.awaits) {
      this.assign(node);
      return;
    }
    this.replace(node.start, node.start + node.kind.length, 'var');
    for (const declaration of node.declarations) {
      if (declaration.init === null && node.kind === 'let') {
        this.insert(declaration.id.end, ' = undefined');
      }
    }
  }

  // A declaration inside of the async function: its names are global, so only the values are left.
  assign(node) {
    this.replace(node.start, node.start + node.kind.length, 'void (');
    for (const declaration of node.declarations) {
      if (declaration.init === null) {
        this.insert(declaration.id.end, node.kind === 'let' ? ' = undefined' : ` = ${declaration.id.name}`);
      }
    }
    const end = node.declarations.at(-1).end;
    this.insert(end, this.code[node.end - 1] === ';' && node.end > end ? ')' : ');');
  }

  // A `var` in a block or a loop is one of the whole cell. And what the cell returns is its value.
  nested() {
    const top = new Set(this.tree.body.flatMap((node) => [node, node.declaration]));
    walk(this.tree, (node, parent) => {
      if (FUNCTIONS.includes(node.type) || node.type === 'ClassBody') {
        return false;
      }
      if (node.type === 'ReturnStatement') {
        this.shows = true;
        if (node.argument !== null) {
          this.insert(node.argument.start, '[');
          this.insert(node.argument.end, ']');
        }
      }
      if (node.type !== 'VariableDeclaration' || node.kind !== 'var' || top.has(node)) {
        return true;
      }
      this.declared.push(...node.declarations.flatMap((declaration) => names(declaration.id)));
      if (/^For(In|Of)Statement$/.test(parent.type) && parent.left === node) {
        this.replace(node.start, node.start + 'var'.length, '');
      } else if (parent.type === 'ForStatement' && parent.init === node) {
        this.replace(node.start, node.start + 'var'.length, 'void (');
        for (const declaration of node.declarations) {
          if (declaration.init === null) {
            this.insert(declaration.id.end, ` = ${declaration.id.name}`);
          }
        }
        this.insert(node.end, ')');
      } else {
        this.assign(node);
      }
      return true;
    });
  }

  import(node) {
    const wanted = [];
    const targets = [];
    let whole = '';
    for (const specifier of node.specifiers) {
      const local = specifier.local.name;
      this.declared.push(local);
      if (specifier.type === 'ImportNamespaceSpecifier') {
        whole = local;
      } else {
        const { imported } = specifier;
        const name = imported === undefined ? 'default' : (imported.name ?? imported.value);
        wanted.push(name);
        targets.push(`${stringify(name)}: ${local}`);
      }
    }
    const list = node.attributes ?? node.assertions ?? [];
    const attributes = list.map(({ key, value }) => `${stringify(key.name ?? key.value)}: ${stringify(value.value)}`);
    const options = attributes.length > 0 ? `{with: {${attributes}}}` : 'undefined';
    const target = whole ? `${whole} = ` : '';
    const call = `${target}await __redoma.take(${stringify(node.source.value)}, ${stringify(wanted)}, ${options})`;
    this.head += targets.length > 0 ? `void ({${targets}} = ${call});` : `void (${call});`;
    this.replace(node.start, node.end, ';');
  }

  // The code to run, and how much longer its first line has become.
  result() {
    let text = '';
    let position = 0;
    const edits = this.edits.map((edit, index) => [...edit, index]).sort((a, b) => a[0] - b[0] || a[3] - b[3]);
    for (const [start, end, words] of edits) {
      if (start < position) {
        continue;
      }
      text += this.code.slice(position, start) + words;
      position = end;
    }
    text += this.code.slice(position);
    if (!this.awaits) {
      return { text, offset: 0 };
    }
    const strict = this.tree.body.some((node) => node.directive === 'use strict') ? '"use strict";' : '';
    const head = `(async () => {${strict}${this.head}`;
    // A first line that is none of the language's.
    return { text: `${head}${text.replace(/^#!/, '//')}\n})()`, offset: -head.length };
  }
}

// What is declared as a global variable is one that can be set, whatever Node has under that name.
function makeRoom(declared) {
  const put = (name, value) =>
    Object.defineProperty(globalThis, name, { value, writable: true, enumerable: true, configurable: true });
  for (const name of declared) {
    const there = Object.getOwnPropertyDescriptor(globalThis, name);
    if (there === undefined) {
      put(name, undefined);
    } else if (there.configurable && !there.writable) {
      put(name, globalThis[name]);
    }
  }
}

function compile(code, filename) {
  const script = (text, offset) =>
    new vm.Script(text, { filename, columnOffset: offset, importModuleDynamically: loader });
  let rewriting;
  try {
    rewriting = new Rewriting(code);
  } catch (error) {
    return { script: whatIsWrong(code, filename, script, error), awaits: false, shows: true, declared: [] };
  }
  const { text, offset } = rewriting.result();
  const { awaits, shows, declared } = rewriting;
  return { script: script(text, offset), awaits, shows, declared };
}

// The parser does not like the code. V8 may; otherwise it says best what is wrong, unless that is just where a cell
// may do more than a script.
function whatIsWrong(code, filename, script, error) {
  try {
    return script(code, 0);
  } catch (fromScript) {
    if (error.loc === undefined || !/import|export|await|return/.test(fromScript.message)) {
      throw error.loc === undefined && acorn !== undefined ? error : fromScript;
    }
  }
  try {
    const head = '(async () => {';
    script(`${head}${code}\n})`, -head.length);
  } catch (fromFunction) {
    if (!/import|export/.test(fromFunction.message)) {
      throw fromFunction;
    }
  }
  const { line, column } = error.loc;
  const wrong = new SyntaxError(error.message.replace(/ \(\d+:\d+\)$/, ''));
  const source = code.split('\n')[line - 1] ?? '';
  wrong.stack = `${filename}:${line}\n${source}\n${' '.repeat(column)}^\n\nSyntaxError: ${wrong.message}`;
  throw wrong;
}

const filename = path.join(WORKSPACE, 'cell.js');
const main = new Module('.', null);
main.filename = filename;
main.paths = Module._nodeModulePaths(WORKSPACE);
main.loaded = true;
const ownRequire = Module.createRequire(filename);
ownRequire.main = main;
main.require = ownRequire;
process.mainModule = main;
process.argv.splice(1, process.argv.length, filename);

// Node says once that this may change. Nobody who reads a cell's output can do anything about it.
const { emitWarning } = process;
process.emitWarning = (warning, ...rest) => {
  if (`${warning}`.includes('USE_MAIN_CONTEXT_DEFAULT_LOADER')) {
    process.emitWarning = emitWarning;
  } else {
    emitWarning.call(process, warning, ...rest);
  }
};

const importFrom =
  loader !== undefined
    ? new vm.Script('(specifier, options) => import(specifier, options)', {
        filename,
        importModuleDynamically: loader,
      }).runInThisContext()
    : (specifier, options) => import(located(`${specifier}`), options);

// Where a module is, for those who would look for it beside this file.
function located(specifier) {
  if (/^(node|file|data|https?):/.test(specifier) || Module.builtinModules.includes(specifier)) {
    return specifier;
  }
  if (/^\.{0,2}\//.test(specifier)) {
    return url.pathToFileURL(path.resolve(WORKSPACE, specifier)).href;
  }
  return url.pathToFileURL(ownRequire.resolve(specifier)).href;
}

const inside = {
  import: importFrom,
  meta: Object.freeze({
    url: url.pathToFileURL(filename).href,
    filename,
    dirname: WORKSPACE,
    resolve: (specifier) => located(specifier),
  }),
  // A module with names that it must have.
  async take(specifier, wanted, options) {
    const module = await importFrom(specifier, options);
    const missing = wanted.filter((name) => !(name in module));
    if (missing.length === 0) {
      return module;
    }
    // Of a CommonJS module not all names can be known beforehand.
    const whole = module.default;
    const rest = missing.filter((name) => whole === null || whole === undefined || !(name in Object(whole)));
    if (rest.length > 0) {
      throw new SyntaxError(`The requested module '${specifier}' does not provide an export named '${rest[0]}'`);
    }
    return { ...module, ...Object.fromEntries(missing.map((name) => [name, whole[name]])) };
  },
};

function cut(text) {
  return text.length > LONGEST_TEXT ? `${text.slice(0, LONGEST_TEXT)}…` : text;
}

function asText(value) {
  try {
    return cut(inspect(value, { depth: 4, maxStringLength: LONGEST_TEXT, maxArrayLength: 200, breakLength: 100 }));
  } catch (error) {
    return `[a value that can't be shown: ${error?.message}]`;
  }
}

function isBundle(value) {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) {
    return false;
  }
  const prototype = Object.getPrototypeOf(value);
  const keys = Object.keys(value);
  const isPlain = prototype === null || prototype === Object.prototype;
  return isPlain && keys.length > 0 && keys.every((key) => MIME.test(key));
}

// A value as what can be shown of it: by kind of content.
async function asData(value) {
  let bundle = value;
  let data = {};
  try {
    if (value !== null && (typeof value === 'object' || typeof value === 'function') && !util.types.isProxy(value)) {
      if (typeof value[DISPLAY] === 'function') {
        bundle = await value[DISPLAY]();
      } else if (typeof value.toHTML === 'function') {
        bundle = { 'text/html': `${await value.toHTML()}` };
      }
    }
    data = isBundle(bundle) ? plainData(bundle) : {};
  } catch {
    data = {};
  }
  if (Object.keys(data).length === 0 || (bundle !== value && data['text/plain'] === undefined)) {
    data['text/plain'] = asText(value);
  }
  return data;
}

function plainData(bundle) {
  const data = {};
  for (const [kind, value] of Object.entries(bundle)) {
    const plain = ArrayBuffer.isView(value)
      ? Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString('base64')
      : value;
    const size = (stringify(plain) ?? '').length;
    if (size > 0 && size <= LONGEST_DATA) {
      data[kind] = plain;
    }
  }
  return data;
}

function withoutWaiting(value) {
  return value === null || value === undefined || typeof value !== 'object' || typeof value[DISPLAY] !== 'function';
}

// Shows something before the code goes on; what has to be asked for its content first, when that is there.
function display(value) {
  const send = (data) => {
    if (cell === null) {
      process.stdout.write(`${data['text/plain'] ?? asText(value)}\n`);
      return;
    }
    report({ cell: cell.token, display: { data, metadata: {}, id: null, update: false } });
    // What is printed from now on comes after it.
    readSync(TURNS, Buffer.alloc(1), 0, 1, null);
  };
  if (isBundle(value)) {
    const data = plainData(value);
    send(Object.keys(data).length > 0 ? data : { 'text/plain': asText(value) });
    return undefined;
  }
  if (withoutWaiting(value) && typeof value?.toHTML !== 'function') {
    send({ 'text/plain': asText(value) });
    return undefined;
  }
  return asData(value).then(send);
}

const found = { require: ownRequire, module: main, exports: main.exports, __filename: filename, __dirname: WORKSPACE };
for (const [name, value] of Object.entries({ ...found, display, __redoma: inside })) {
  Object.defineProperty(globalThis, name, { value, writable: true, enumerable: false, configurable: true });
}

// Stacks have the user's lines only.
Error.prepareStackTrace = (error, frames) => {
  const shown = frames.filter((frame) => {
    const file = frame.getFileName() ?? '';
    // What stands before a cell's first line is ours, too.
    const isOurs = file === __filename || frame.getColumnNumber() < 1;
    return !isOurs && file !== 'node:vm' && !file.startsWith('node:internal/');
  });
  let head;
  try {
    head = Error.prototype.toString.call(error);
  } catch {
    head = 'Error';
  }
  return [head, ...shown.map((frame) => `    at ${frame}`)].join('\n');
};

function described(thrown) {
  try {
    if (thrown?.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED' || thrown === interrupted) {
      const value = 'the cell was interrupted';
      return { name: 'Interrupted', value, traceback: [`Interrupted: ${value}`] };
    }
    if (util.types.isNativeError(thrown) || thrown instanceof Error) {
      const lines = cut(thrown instanceof SyntaxError ? `${thrown.stack}` : inspect(thrown)).split('\n');
      const own = lines.filter((line) => !/^\s+at .*(node:internal\/|node:vm:|\(?node:internal)/.test(line));
      return { name: `${thrown.name}`, value: cut(`${thrown.message}`), traceback: own };
    }
  } catch {
    // One that does not want to be looked at.
  }
  const text = asText(thrown);
  return { name: 'Uncaught', value: text, traceback: [`Uncaught ${text}`] };
}

const interrupted = new Error('interrupted');

function outside(thrown) {
  if (cell !== null) {
    cell.fail(thrown);
  } else if (!(thrown instanceof Leave)) {
    process.stderr.write(`${described(thrown).traceback.join('\n')}\n`);
  }
}

function whenInterrupted() {
  cell?.fail(interrupted);
}

// Cells may take away whatever listens here.
function listen() {
  const listeners = { uncaughtException: outside, unhandledRejection: outside };
  if (watchdog === undefined) {
    listeners.SIGINT = whenInterrupted;
  }
  for (const [event, listener] of Object.entries(listeners)) {
    if (!process.listeners(event).includes(listener)) {
      process.on(event, listener);
    }
  }
  // It ends the cell, not what all cells share.
  process.exit = (code) => {
    throw new Leave(code === undefined ? (process.exitCode ?? 0) : code);
  };
}

async function evaluate(code, name, awaitsPromise) {
  const { script, awaits, shows, declared } = compile(code, name);
  makeRoom(declared);
  let value = script.runInThisContext({ breakOnSigint: true, displayErrors: false });
  if (awaits) {
    value = await value;
    // As it was put into a list, so that it is not waited for as well.
    value = Array.isArray(value) ? value[0] : undefined;
  }
  if (awaitsPromise && util.types.isPromise(value)) {
    value = await value;
  }
  return [shows ? value : undefined];
}

// Node keeps an interrupt that came in the very moment in which a script ended, and ends the next script with it. Here it
// ends one that does nothing.
const nothing = new vm.Script('Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 30)');
function settle() {
  for (let round = 0; round < 5; round++) {
    try {
      nothing.runInThisContext({ breakOnSigint: true, displayErrors: false });
      return;
    } catch (error) {
      if (error?.code !== 'ERR_SCRIPT_EXECUTION_INTERRUPTED') {
        return;
      }
    }
  }
}

async function run({ token, code, number, awaits }) {
  listen();
  cell?.fail(interrupted);
  const own = { token };
  const failed = new Promise((_, reject) => {
    own.fail = reject;
  });
  failed.catch(() => {});
  cell = own;
  report({ cell: token, started: true });
  let status = 'ok';
  try {
    const [value] = await Promise.race([evaluate(code, `<cell ${number}>`, awaits), failed]);
    // What went wrong in a promise that nobody waits for is known by now.
    await Promise.race([new Promise((resolve) => setImmediate(resolve)), failed]);
    if (value !== undefined) {
      const data = await Promise.race([asData(value), failed]);
      report({ cell: token, result: { data, metadata: {} } });
    }
  } catch (error) {
    if (error instanceof Leave) {
      status = Number(error.code) === 0 ? 'ok' : 'error';
    } else {
      status = 'error';
      report({ cell: token, error: described(error) });
    }
  }
  if (cell === own) {
    cell = null;
  }
  process.exitCode = undefined;
  report({ cell: token, end: status });
}

process.chdir(WORKSPACE);
// A pipe's writes wait until all is written, and leave it to others as they found it. They go around the stream itself, which
// would take no more once an interrupt has hit it in the middle of one.
const pause = new Int32Array(new SharedArrayBuffer(4));
for (const [stream, number] of [[process.stdout, 1], [process.stderr, 2]]) {
  stream._handle?.setBlocking?.(true);
  stream.on('error', () => {});
  stream.write = (chunk, encoding, callback) => {
    const done = typeof encoding === 'function' ? encoding : callback;
    const bytes = typeof chunk === 'string' ? Buffer.from(chunk, typeof encoding === 'string' ? encoding : 'utf8') : chunk;
    for (let start = 0; start < bytes.length; ) {
      try {
        start += writeSync(number, bytes, start);
      } catch (error) {
        if (error.code !== 'EAGAIN') {
          break;
        }
        Atomics.wait(pause, 0, 0, 1);
      }
    }
    if (done !== undefined) {
      process.nextTick(done);
    }
    return true;
  };
}
listen();
let unread = '';
const commands = new net.Socket({ fd: COMMANDS, readable: true, writable: false });
commands.setEncoding('utf8');
commands.on('data', (piece) => {
  const lines = (unread + piece).split('\n');
  unread = lines.pop();
  for (const line of lines) {
    let command;
    try {
      command = parse(line);
    } catch {
      continue;
    }
    if (command?.token !== undefined) {
      // Not from here, so that nothing of this is in a cell's stacks.
      setImmediate(() => run(command).catch(() => reallyExit(1)));
    } else if (command?.interrupt !== undefined) {
      // A cell that waits: what it waits for may never come. A script that runs is ended by SIGINT.
      setImmediate(() => {
        if (cell?.token === command.interrupt) {
          cell.fail(interrupted);
        } else {
          // It is over, or never began: who asks may have missed its end.
          report({ cell: command.interrupt, end: 'error' });
        }
      });
    } else if (command?.settle !== undefined) {
      // Signals that have come are looked at once per turn of the loop: all of them were, in the second.
      setImmediate(() => {
        settle();
        setImmediate(() => report({ settled: command.settle }));
      });
    }
  }
});
commands.on('close', () => reallyExit(0));
commands.on('error', () => reallyExit(1));
report({ ready: true });
