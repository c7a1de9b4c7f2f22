// The API reference: reads openapi.json and draws it. What comes from the document or from an answer becomes text, never markup.
// The key stays in its field. Addresses are relative, so that a path prefix does no harm.

const base = new URL('..', import.meta.url).href.slice(0, -1);
const source = `${base}/openapi.json`;
const METHODS = ['get', 'post', 'put', 'patch', 'delete'];
const KEY = 'X-API-Key';
const SHOWN = 200_000; // characters of an answer
const $ = (id) => document.getElementById(id);
let api;

/** An element, as in `h('p.note', { title }, children)`. Functions become listeners, strings text, falsy children nothing. */
function h(selector, ...children) {
  const [name, kind = ''] = selector.split('.');
  const element = Object.assign(document.createElement(name), { className: kind });
  if (children[0]?.constructor === Object) {
    for (const [attribute, value] of Object.entries(children.shift())) {
      if (typeof value === 'function') element.addEventListener(attribute, value);
      else if (value || value === '') element.setAttribute(attribute, value);
    }
  }
  element.append(...children.flat(9).filter(Boolean));
  return element;
}

/** Something to open. Its content is made when it first is: schemas may contain themselves. */
function fold(kind, summary, content, open) {
  const element = h(`details.${kind}`, h('summary', summary));
  element.addEventListener('toggle', () => element.append(h('div', content())), { once: true });
  element.open = open;
  return element;
}

/** The Markdown that doc comments use: paragraphs, lists, code blocks, `code`, **bold**, links. */
const prose = (text) => (text || '').trim().split(/\n\s*\n/).filter(Boolean).map((block) => {
  if (block.startsWith('```')) return h('pre', block.replace(/^.*\n|\n```.*$/g, ''));
  if (/^[-*] /.test(block)) return h('ul', block.slice(2).split(/\n[-*] /).map((item) => h('li', inline(item))));
  return h('p', inline(block));
});

const inline = (text) => text.split(/(`[^`]+`|\*\*[^*]+\*\*|\[[^\]]+\]\([^)\s]+\))/).map((part) => {
  if (part.startsWith('`')) return h('code', part.slice(1, -1));
  if (part.startsWith('**')) return h('strong', part.slice(2, -2));
  const [, label, href] = part.match(/^\[(.+)\]\(((?:https?:|[/.#]).*)\)$/) ?? [];
  return label ? h('a', { href }, label) : part;
});

/** Copies by selecting: plain http, where Redoma often lives, has no clipboard interface. */
function codeBox(text) {
  const shown = h('pre', { tabindex: '0' }, text);
  const button = h('button', { type: 'button', 'aria-live': 'polite', click() {
    getSelection().selectAllChildren(shown);
    button.textContent = document.execCommand('copy') ? 'Copied' : 'Selected';
    setTimeout(() => { button.textContent = 'Copy'; }, 2000);
  } }, 'Copy');
  return h('div.code', shown, button);
}

const entries = (object) => Object.entries(object ?? {});
const json = (value) => JSON.stringify(value, null, 2);
const refName = (ref) => ref.split('/').pop();
const keyHeader = () => [[KEY, $('key').value.trim()]].filter(([, key]) => key);
const isBinary = (type) => !/^$|^text\/|json|xml|form/.test(type);

/** Follows `$ref`. What leads nowhere, or in circles, is an empty object. */
function deref(value = {}) {
  for (let hops = 0; value.$ref && hops < 9; hops += 1) {
    const { $ref, ...own } = value;
    value = { ...$ref.split('/').slice(1).reduce((at, part) => at?.[part], api), ...own };
  }
  return value.$ref ? {} : value;
}

/** The schema with `$ref` followed and `allOf` merged. */
function flat(schema, depth = 0) {
  const { allOf = [], ...whole } = deref(schema);
  return depth > 9 ? {} : allOf.map((part) => flat(part, depth + 1)).reduce((sum, part) => ({
    ...part, ...sum, properties: { ...part.properties, ...sum.properties }, required: [...part.required ?? [], ...sum.required ?? []],
  }), whole);
}

const fieldsOf = (schema) => entries(schema.properties);
const choices = (schema) => (schema.oneOf ?? schema.anyOf ?? []).filter((way) => deref(way).type !== 'null');

/** What a list, a map or something nullable is made of, and the names passed on the way there. */
function kernel(schema, names = []) {
  for (let depth = 0; ; depth += 1) {
    if (schema.$ref) names = [...names, refName(schema.$ref)];
    const at = flat(schema);
    const ways = choices(at);
    const inner = ways.length === 1 ? ways[0] : at.items || (!at.properties && at.additionalProperties);
    if (!inner || inner === true || depth > 9) return { at, ways, names };
    schema = inner;
  }
}

function typeName({ $ref, type = 'any', format, items, additionalProperties: values, allOf, oneOf, anyOf = oneOf ?? allOf }) {
  if ($ref) return refName($ref);
  const names = anyOf?.map(typeName) ?? [type].flat().map((one) => {
    if (one === 'array' && items) return `list of ${typeName(items)}`;
    if (one === 'object' && values && values !== true) return `map of ${typeName(values)}`;
    return one + (format && one !== 'null' ? ` (${format})` : '');
  });
  return names.join(allOf ? ' and ' : ' or ').replace(/^null or (.*)/, '$1 or null');
}

const BOUNDS = ['default', 'const', 'minimum', 'maximum', 'minLength', 'maxLength', 'pattern'];

function bounds(schema) {
  const own = flat(schema);
  const fact = (label, value) => h('span', label, ' ', h('code', `${value}`));
  return h('p.bounds', kernel(schema).at.enum?.map((value, index) => fact(!index && 'one of', value)),
    BOUNDS.filter((name) => name in own).map((name) => fact(name, own[name])));
}

/** One named thing: a field, a parameter, an alternative. */
function row(name, schema = {}, { required, note, description, passed } = {}) {
  const { at, ways, names } = kernel(schema, passed);
  const again = names.find((one, index) => names.indexOf(one) < index);
  return h('li',
    h('div.name', h('code', `${name}`), h('span', typeName(schema)), note && h('span', note), required && h('b', 'required'),
      schema.deprecated && h('b', 'deprecated')),
    prose(description ?? flat(schema).description), bounds(schema),
    (ways[1] || fieldsOf(at)[0]) && (again ? h('p.bounds', `${again}, as above`)
      : fold('nested', names.at(-1) ?? 'Fields', () => schemaView(schema, passed))));
}

/** The fields of a schema, and its alternatives. */
function schemaView(schema, before) {
  const { at, ways, names: passed } = kernel(schema, before);
  return h('ul.rows',
    fieldsOf(at).map(([name, field]) => row(name, field, { required: at.required?.includes(name), passed })),
    ways[1] && ways.map((way) => {
      const { type, title = typeName(way), enum: values, description, ...one } = flat(way);
      const [tag, fixed] = fieldsOf(one).find(([, field]) => field.const ?? field.enum?.length === 1) ?? [];
      return row(values ?? (tag ? `${tag}: ${fixed.const ?? fixed.enum}` : title), values ? { type } : way, { description, passed });
    }));
}

/** A value of the schema; `whole`: with what may be left out. Undefined inside of itself. */
function sample(schema, whole, passed = []) {
  if (passed.includes(schema.$ref)) return undefined;
  const at = flat(schema);
  const inside = (one) => one && sample(one, whole, schema.$ref ? [...passed, schema.$ref] : passed);
  const given = at.example ?? at.examples?.[0] ?? at.const ?? at.default ?? at.enum?.[0];
  if (given !== undefined) return given;
  const chosen = inside(choices(at)[0]);
  if (at.properties) {
    const wanted = fieldsOf(at).filter(([name, field]) => whole || at.required?.includes(name) || flat(field).example);
    return { ...Object.fromEntries(wanted.map(([name, field]) => [name, inside(field)])), ...chosen };
  }
  return chosen ?? { array: [inside(at.items)].filter((one) => one !== undefined), object: {}, string: at.format ?? 'string', boolean: false,
    integer: at.minimum ?? 0, number: at.minimum ?? 0 }[[at.type].flat().find((type) => type !== 'null')];
}

const exampleOf = (media, whole) => media.example ?? deref(Object.values(media.examples ?? {})[0]).value ?? sample(media.schema ?? {}, whole);

function mediaView([type, media], whole) {
  const { schema = {} } = media;
  const example = /json|event/.test(type) ? exampleOf(media, whole) : media.example;
  if (isBinary(type)) return h('p.bounds', h('code', type));
  return [h('p.bounds', h('code', type), h('span', typeName(schema))), prose(schema.$ref && deref(schema).description), schemaView(schema),
    example !== undefined && [h('h5', 'Example'), codeBox(typeof example === 'string' ? example : json(example))]];
}

function operationsOf() {
  return Object.entries(api.paths).flatMap(([path, item]) => METHODS.filter((method) => item[method]).map((method) => {
    const own = item[method];
    const content = entries(deref(own.requestBody).content);
    const security = own.security ?? api.security;
    return { ...own, path, method, content,
      id: `op-${own.operationId ?? method + path}`,
      title: own.summary ?? path,
      tag: own.tags?.[0] ?? 'Other',
      parameters: [...item.parameters ?? [], ...own.parameters ?? []].map(deref),
      responses: entries(own.responses).map(([status, response]) => [status, deref(response)]),
      main: content.find(([type]) => type.includes('json')) ?? content[0] ?? [],
      // An empty list or alternative opens it. A document that says nothing is taken as locked.
      locked: !security || (security.length > 0 && security.every((way) => entries(way)[0])) };
  }));
}

/** Address and headers for what was filled in; for the command, what is missing gets a placeholder. */
function wire({ path, parameters }, value) {
  const query = new URLSearchParams();
  const headers = [];
  for (const parameter of parameters) {
    const { name, in: place, required, schema } = parameter;
    const text = value(parameter) || (required ? name.toUpperCase() : '');
    if (place === 'path') path = path.replace(`{${name}}`, () => encodeURIComponent(text));
    else if (text && place === 'header') headers.push([name, text]);
    else if (text && place === 'query') for (const one of flat(schema).type === 'array' ? text.split(',') : [text]) query.append(name, one);
  }
  return { url: `${base}${path}?${query}`.replace(/\?$/, ''), headers };
}

const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function curl(op, value, body) {
  const { url, headers } = wire(op, value);
  const [type, media] = op.main;
  const words = [`curl ${quote(url)}`];
  if (op.method !== (type ? 'post' : 'get')) words.push(`-X ${op.method.toUpperCase()}`);
  if (op.locked) words.push(`-H "${KEY}: $REDOMA_API_KEY"`);
  words.push(...headers.map((header) => `-H ${quote(header.join(': '))}`));
  if (type?.startsWith('multipart')) {
    for (const [name, field] of fieldsOf(flat(media.schema))) {
      words.push(kernel(field).at.format === 'binary' ? `-F ${quote(`${name}=@FILE`)}` : `--form-string ${quote(`${name}=${sample(field) ?? ''}`)}`);
    }
  } else if (type) words.push(`-H ${quote(`Content-Type: ${type}`)}`, body ? `-d ${quote(body.value)}` : '--data-binary @FILE');
  return words.join(' \\\n  ');
}

/** The command, and a form to try the operation, which changes the command while it is filled in. */
function commandView(op) {
  const fields = new Map();
  const value = (parameter) => fields.get(parameter)?.value.trim();
  if (op.responses.some(([status]) => status === '101')) return [h('h4', 'WebSocket'), codeBox(wire(op, value).url.replace('http', 'ws'))];
  const [type, media] = op.main;
  const body = type?.includes('json') && h('textarea', { rows: 9, spellcheck: 'false' }, json(exampleOf(media) ?? {}));
  const box = codeBox(curl(op, value, body));
  const able = op.method === 'get' || (op.method === 'post' && (body || !type));
  return [h('h4', 'Command'), box, able && fold('try', 'Try it', () => {
    for (const parameter of op.parameters) fields.set(parameter, fieldFor(parameter));
    const answer = h('div', { role: 'status' });
    const send = h('button.send', 'Send');
    let running;
    const submit = async (event) => {
      event.preventDefault();
      if (running) return running.abort();
      const { signal } = running = new AbortController();
      const { url, headers } = wire(op, value);
      headers.push(...keyHeader());
      if (body) headers.push(['Content-Type', 'application/json']);
      send.textContent = 'Stop';
      answer.replaceChildren();
      try {
        if (body) JSON.parse(body.value);
        // Without credentials the key alone decides, as in the command, and a 401 opens no password window.
        await show(answer, await fetch(url, { method: op.method, headers, body: body?.value, signal, credentials: 'omit', cache: 'no-store' }));
      } catch (error) {
        answer.append(h('p.bad', signal.aborted ? 'Stopped.' : error.message));
      }
      send.textContent = 'Send';
      running = undefined;
    };
    return h('form', { submit, input() { box.firstChild.textContent = curl(op, value, body); } },
      [...fields].map(([{ name, required, in: place }, field]) => h('label', name, h('small', required ? 'required' : place), field)),
      body && h('label', 'Body', body), send, op.locked && h('small', 'with the API key above'), answer);
  })];
}

function fieldFor({ schema = {}, required, example }) {
  const { at } = kernel(schema);
  const values = at.enum ?? ([at.type].flat().includes('boolean') && [true, false]);
  return Object.assign(values ? h('select', ['', ...values].map((one) => h('option', `${one}`)))
    : h('input', { autocomplete: 'off', placeholder: example ?? at.example ?? at.default }), { required });
}

/** Shows an answer while it comes: events take their time. */
async function show(answer, response) {
  const type = response.headers.get('content-type') ?? '';
  const line = h('p', h(response.ok ? 'b.good' : 'b.bad', `${response.status} ${response.statusText}`), ` ${type}`);
  const shown = h('pre', { tabindex: '0' });
  const decoder = new TextDecoder();
  const reader = response.body?.getReader();
  let [size, text] = [0, ''];
  answer.replaceChildren(line, shown);
  for (let part; reader && !(part = await reader.read()).done;) {
    size += part.value.length;
    if (text.length < SHOWN && !isBinary(type)) shown.textContent = text += decoder.decode(part.value, { stream: true });
  }
  line.append(`, ${size} bytes`);
  if (type.includes('json') && text.length < SHOWN) shown.textContent = json(JSON.parse(text));
}

function operationView(op) {
  const { required, description } = deref(op.requestBody);
  return h('div.body', h('div',
    op.deprecated && h('p.bad', 'Deprecated.'), prose(op.description), !op.locked && h('p.faint', 'Needs no key.'),
    op.parameters[0] && [h('h4', 'Parameters'), h('ul.rows', op.parameters.map((one) => row(one.name, one.schema, { ...one, note: `in ${one.in}` })))],
    op.content[0] && [h('h4', 'Body', h('small', required ? 'required' : 'optional')), prose(description), op.content.map((one) => mediaView(one))],
    h('h4', 'Answers'), op.responses.map(([status, response], index) => {
      const head = [h(status < '4' ? 'b.good' : 'b.bad', status), inline(response.description)];
      return response.content ? fold('response', head, () => entries(response.content).map((one) => mediaView(one, true)), !index) : h('p.response', head);
    })), h('div.aside', commandView(op)));
}

function overview() {
  const { title, version, description } = api.info;
  const schemes = entries(api.components?.securitySchemes);
  return h('section', { id: 'overview' }, h('h1', title, h('small', version)), prose(description),
    h('p.faint', 'At ', h('code', base), ', described by ', h('a', { href: source }, 'openapi.json')),
    schemes[0] && [h('h2', 'Authentication'), h('ul.rows', schemes.map(([id, { in: place, scheme = place, name = id, ...one }]) =>
      row(name, { type: `${one.type} ${scheme}` }, one)))]);
}

function render() {
  const operations = operationsOf();
  const about = new Map(api.tags?.map((tag) => [tag.name, tag.description]));
  for (const one of operations) {
    const { id, method, path, title, description, tag } = one;
    const badge = () => h(`span.${method}`, method.toUpperCase());
    one.text = [method, path, title, description, tag].join(' ').toLowerCase();
    one.link = h('li', h('a', { href: `#${id}`, title: path }, badge(), title));
    one.card = fold('op', h('h3', badge(), h('code', path.split(/(?=\/)/).map((part) => [h('wbr'), part])), h('span', title)), () => operationView(one));
    one.card.id = id;
  }
  const parts = [...new Set([...about.keys(), ...operations.map((one) => one.tag)])].map((tag) => {
    const members = operations.filter((one) => one.tag === tag);
    const id = `tag-${tag}`;
    return { members, links: h('section', h('a', { href: `#${id}` }, tag), h('ul', members.map((one) => one.link))),
      cards: h('section', { id }, h('h2', tag), prose(about.get(tag)), members.map((one) => one.card)) };
  });
  const search = () => {
    const words = $('search').value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const one of operations) one.link.hidden = one.card.hidden = !words.every((word) => one.text.includes(word));
    for (const { members, links, cards } of parts) links.hidden = cards.hidden = members.every((one) => one.card.hidden);
    $('overview').hidden = words.length > 0;
    $('status').textContent = words[0] ? `${operations.filter((one) => !one.card.hidden).length} found` : '';
  };
  /** Opens and shows what the address names. */
  const follow = () => {
    const target = $(decodeURIComponent(location.hash.slice(1)));
    if (!target?.closest('#content')) return;
    if (target.closest('[hidden]')) $('search').value = '';
    search();
    menu(false);
    for (const { card, link } of operations) link.firstChild.ariaCurrent = card === target;
    target.open = true;
    target.dispatchEvent(new Event('toggle')); // its content now, not soon: there must be enough to scroll
    target.scrollIntoView();
    target.querySelector('summary')?.focus({ preventScroll: true });
  };
  $('navigation').replaceChildren(...parts.map((part) => part.links));
  $('content').replaceChildren(overview(), ...parts.map((part) => part.cards));
  $('search').oninput = search;
  onhashchange = follow;
  // A link to where the address already is: no change, but it may have been closed since.
  onclick = (event) => { if (event.target.closest('a[href^="#"]')?.hash === location.hash) follow(); };
  search();
  follow();
}

function menu(open) {
  $('navigation').classList.toggle('open', open);
  $('menu').ariaExpanded = open;
}

async function load() {
  try {
    const response = await fetch(source, { headers: keyHeader() });
    if (!response.ok) throw new Error(`the server answered ${response.status}`);
    api = await response.json();
    if (!api.paths) throw new Error('not an OpenAPI document');
    render();
  } catch (error) {
    $('status').textContent = '';
    $('content').replaceChildren(h('div', { role: 'alert' }, h('h1', 'The description of this API could not be loaded'),
      h('p', h('code', source), `: ${error.message}`),
      h('p', 'Is Redoma running? Does a proxy in between pass this address on? Does it want the API key?'),
      h('button.send', { click: load }, 'Try again')));
  }
}

$('menu').onclick = () => menu($('menu').ariaExpanded !== 'true');
load();
