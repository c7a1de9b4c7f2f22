// Bash that calls the agent's tools, the form that LibreChat itself uses: a tool is a function that takes
// one JSON object and prints one JSON value.
'use strict';

const { assert, describe, recordTraffic, test } = require('../support.cjs');
const { conversation, say, upload } = require('./client.cjs');
const { makeTools, runBashWith } = require('./inner_tools.cjs');

describe('programmatic bash');

test('a tool is a command that prints compact JSON', async () => {
  const answer = await runBashWith(['get_weather'], `get_weather '{"city":"SF"}'`);
  assert.equal(answer.text, 'stdout:\n{"city":"SF","temp":22}');
  assert.deepEqual(answer.calls, [{ name: 'get_weather', input: { city: 'SF' } }]);
});

test('its answer can be kept in a variable', async () => {
  const answer = await runBashWith(['get_weather'], `
raw=$(get_weather '{"city": "Lima"}')
echo "it is $(printf '%s' "$raw" | jq -r .temp) degrees"`);
  assert.equal(answer.text, 'stdout:\nit is 24 degrees');
});

test('it can be piped and redirected', async () => {
  const answer = await runBashWith(['get_weather'], `
get_weather '{"city":"SF"}' | jq -r .city
get_weather '{"city":"NYC"}' > /mnt/data/nyc.json
jq -r .temp /mnt/data/nyc.json`);
  assert.match(answer.text, /^stdout:\nSF\n23\n/);
});

test('text arrives as a JSON string, numbers as numbers', async () => {
  const answer = await runBashWith(['greet', 'add'], `
greet '{"name":"Zoë"}' | jq -r .
add '{"a":40,"b":2}'`);
  assert.equal(answer.text, 'stdout:\nhello Zoë – 你好 "quoted"\n42');
});

test('a tool without arguments is called with an empty object', async () => {
  const answer = await runBashWith(['greet'], 'greet | jq -r .');
  assert.match(answer.text, /hello nobody/);
  assert.deepEqual(answer.calls[0].input, {});
});

test('arguments may be built from variables', async () => {
  const answer = await runBashWith(['greet'], `
name='O'"'"'Brien "Bob" $HOME'
greet "$(jq -cn --arg name "$name" '{name: $name}')" | jq -r .`);
  assert.match(answer.text, /hello O'Brien "Bob" \$HOME/);
});

test('a loop may call ten times', async () => {
  const answer = await runBashWith(['add'], `
total=0
for n in $(seq 1 10); do total=$(add "{\\"a\\":$total,\\"b\\":$n}"); done
echo "$total"`);
  assert.equal(answer.text, 'stdout:\n55');
  assert.equal(answer.calls.length, 10);
});

test('calls in the background run together', async () => {
  await recordTraffic(async (baseUrl, seen) => {
    const answer = await runBashWith(['get_weather'], `
{ sf=$(get_weather '{"city": "SF"}'); printf '%s\\n' "$sf" > /mnt/data/sf.json; } &
{ ny=$(get_weather '{"city": "NYC"}'); printf '%s\\n' "$ny" > /mnt/data/ny.json; } &
wait
echo "SF: $(jq -r .temp /mnt/data/sf.json) NY: $(jq -r .temp /mnt/data/ny.json)"`, { baseUrl });
    assert.match(answer.text, /^stdout:\nSF: 22 NY: 23\n/);
    assert.ok(seen.length <= 3, `${seen.length} requests`);
  });
});

test('the program is not run again: what came before a call happened once', async () => {
  const answer = await runBashWith(['add'], `
lucky=$RANDOM$RANDOM
echo "before $lucky"
echo once >> /mnt/data/log.txt
add '{"a":1,"b":1}' > /dev/null
add '{"a":2,"b":2}' > /dev/null
echo "after $lucky"
wc -l < /mnt/data/log.txt`);
  const [, before, after, lines] = answer.text.match(/before (\d+)\nafter (\d+)\n\s*(\d+)/);
  assert.equal(before, after);
  assert.equal(lines, '1');
});

test("a tool's error is a failed command with a message", async () => {
  const answer = await runBashWith(['boom'], `boom '{}' || echo "rescued: $?"; echo "goes on"`);
  assert.match(answer.text, /rescued: [1-9]/);
  assert.match(answer.text, /goes on/);
  assert.match(answer.text, /stderr:\n[^]*the database is on fire/);
});

test("a tool's error ends a strict script, and the model reads why", async () => {
  const answer = await runBashWith(['boom'], 'set -euo pipefail\nvalue=$(boom)\necho "not reached"');
  assert.match(answer.text, /the database is on fire/);
  assert.doesNotMatch(answer.text, /not reached/);
});

test('arguments that are no JSON are an error, not a wait', async () => {
  const answer = await runBashWith(['greet'], `greet 'name=Bob' || echo rescued`);
  assert.match(answer.text, /JSON|rescued/);
  assert.equal(answer.calls.length, 0);
});

test('strict mode is no problem', async () => {
  const answer = await runBashWith(['add'], `set -euo pipefail\nadd '{"a":1,"b":2}'`);
  assert.equal(answer.text, 'stdout:\n3');
});

test('names that bash cannot have are adapted', async () => {
  const answer = await runBashWith(['get-stock.price', '2fast', 'done'], `
get_stock_price '{"symbol":"X"}' | jq -r .price
_2fast
echo
done_tool`);
  assert.equal(answer.text, 'stdout:\n7\n"a digit"\n"a reserved word"');
  assert.deepEqual(answer.calls.map((call) => call.name), ['get-stock.price', '2fast', 'done']);
});

test('a large answer arrives whole', async () => {
  const answer = await runBashWith(['large'], `large '{"size":300000}' | jq -r . | tr -d '\\n' | wc -c`);
  assert.match(answer.text, /^stdout:\n\s*300000$/);
});

test('a program that takes too long is stopped, and the model is told', async () => {
  const answer = await runBashWith(['add'], `add '{"a":1,"b":1}'; sleep 60`, { timeout: 1500 });
  assert.match(answer.text, /Execution exceeded the time limit/);
});

test('files of the conversation are there, and new ones are kept for it', async () => {
  const { tools } = makeTools(['add']);
  const talk = conversation({ tools, files: [await upload('numbers.txt', '40 2')] });
  const answer = await talk.say('run_tools_with_bash', { code: `
read -r a b < <(cat /mnt/data/numbers.txt; echo)
add "{\\"a\\":$a,\\"b\\":$b}" > /mnt/data/sum.txt` });
  assert.deepEqual(answer.made.map((file) => file.name), ['sum.txt']);
  assert.equal((await say.bash(talk, 'cat sum.txt')).text, 'stdout:\n42');
});

test('a program without tools runs as an ordinary one', async () => {
  const { tools } = makeTools(['add']);
  const answer = await conversation({ tools }).say('run_tools_with_bash', { code: 'echo plain', tool_manifest: [] });
  assert.equal(answer.text, 'stdout:\nplain');
});
