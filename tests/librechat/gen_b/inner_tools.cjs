// Tools that a program may call, as an agent of LibreChat would have them, and a log of their calls.
'use strict';

const { callTool, client, settings } = require('./client.cjs');
const { sleep } = require('../support.cjs');

const text = { type: 'string' };
const number = { type: 'number' };

const innerTools = {
  get_weather: {
    parameters: { type: 'object', properties: { city: text, units: text }, required: ['city'] },
    answer: ({ city }) => ({ city, temp: 20 + city.length }),
  },
  add: {
    parameters: { type: 'object', properties: { a: number, b: number }, required: ['a', 'b'] },
    answer: ({ a, b }) => a + b,
  },
  greet: {
    parameters: { type: 'object', properties: { name: text } },
    answer: ({ name }) => `hello ${name ?? 'nobody'} – 你好 "quoted"`,
  },
  slow: {
    parameters: { type: 'object', properties: { ms: number }, required: ['ms'] },
    answer: async ({ ms }) => { await sleep(ms); return 'at last'; },
  },
  large: {
    parameters: { type: 'object', properties: { size: number }, required: ['size'] },
    answer: ({ size }) => 'z'.repeat(size),
  },
  boom: {
    parameters: { type: 'object', properties: {} },
    answer: () => { throw new Error('the database is on fire'); },
  },
  'get-stock.price': {
    parameters: { type: 'object', properties: { symbol: text } },
    answer: ({ symbol }) => ({ symbol, price: 7 }),
  },
  class: { parameters: { type: 'object', properties: {} }, answer: () => 'a keyword' },
  '2fast': { parameters: { type: 'object', properties: {} }, answer: () => 'a digit' },
  done: { parameters: { type: 'object', properties: {} }, answer: () => 'a reserved word' },
};

/** Builds the named tools; `calls` collects every call that really reached one. */
function makeTools(toolNames) {
  const calls = [];
  const tools = toolNames.map((name) => {
    const { parameters, answer } = innerTools[name];
    return {
      name,
      definition: { name, description: `The tool ${name}`, parameters },
      tool: client.tool(async (input) => {
        calls.push({ name, input });
        return answer(input);
      }, { name, description: `The tool ${name}`, schema: parameters }),
    };
  });
  return { tools, calls };
}

/** Runs a program that may call the named tools; answers with what the model reads and with the calls. */
async function runWith(factory, toolNames, code, { timeout, config, extra, ...more } = {}) {
  const { tools, calls } = makeTools(toolNames);
  const answer = await callTool(
    factory(settings(more)),
    { code, ...(timeout ? { timeout } : {}) },
    {
      toolMap: new Map(tools.map(({ name, tool }) => [name, tool])),
      toolDefs: tools.map(({ definition }) => ({ ...definition, allowed_callers: ['code_execution'] })),
      ...extra,
    },
    config,
  );
  return { ...answer, calls };
}

const runPython = (toolNames, code, options) =>
  runWith(client.createProgrammaticToolCallingTool, toolNames, code, options);
const runBashWith = (toolNames, code, options) =>
  runWith(client.createBashProgrammaticToolCallingTool, toolNames, code, options);

module.exports = { innerTools, makeTools, runBashWith, runPython };
