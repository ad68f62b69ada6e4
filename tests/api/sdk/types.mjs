// SPDX-License-Identifier: MIT
// types.mjs: everything that api_server says, whole and each event of a stream, as TypeScript constants of the official
// clients' own types: tsc must find nothing to complain of. Each is a fresh literal, so a field that a type does not know
// is an error; the fields that are ours are listed here and are taken out, no others. That tsc would see a wrong field
// is tried, too: at each place of each type once a field too many, once a value of the wrong kind.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { answer, check, finish, serve } from './server.mjs';

// ---- the clients' types

const TYPES = {
  Chat: 'OpenAI.Chat.ChatCompletion',
  Chunk: 'OpenAI.Chat.ChatCompletionChunk',
  Text: 'OpenAI.Completion',
  // While a choice goes on, finish_reason is null, as OpenAI's own server has it; their type has forgotten it.
  TextChunk: "Omit<OpenAI.Completion, 'choices'> & { choices: (Omit<OpenAI.CompletionChoice, 'finish_reason'> & " +
    "{ finish_reason: OpenAI.CompletionChoice['finish_reason'] | null })[] }",
  Response: 'OpenAI.Responses.Response',
  ResponseEvent: 'OpenAI.Responses.ResponseStreamEvent',
  Models: '{ object: string; data: OpenAI.Model[] }', // of a page, what is sent
  Model: 'OpenAI.Model',
  Error: '{ error: OpenAI.ErrorObject }',
  Message: 'Anthropic.Message',
  MessageEvent: 'Anthropic.RawMessageStreamEvent',
  Count: 'Anthropic.MessageTokensCount',
  MessageError: 'Anthropic.ErrorResponse',
};

// Ours, beside what the types know: [type, place]. They must really be there.
const OURS = [
  ['Chat', 'choices[].message.reasoning_content'], // as other servers of open models have it
  ['Chunk', 'choices[].delta.reasoning_content'],
  ['Response', 'system_fingerprint'], // as in chat completions
  ['ResponseEvent', 'response.system_fingerprint'],
  ['Response', 'store'], // OpenAI's server says it, too
  ['ResponseEvent', 'response.store'],
  ['Models', 'data[].context_length'],
  ['Models', 'data[].system_fingerprint'],
  ['Model', 'context_length'],
  ['Model', 'system_fingerprint'],
];
// What the client adds to an answer by itself, and its type demands.
const ADDED = [['Response', ''], ['ResponseEvent', 'response']];
// Pings have no type among RawMessageStreamEvent: they are looked at by themselves. Errors in a stream are of the errors' type.

const shapes = []; // [type, value, where it is from]
const put = (type, value, from) => shapes.push([type, value, from]);

function strip(type, value, place = '') {
  if (Array.isArray(value)) return value.map((v) => strip(type, v, place + '[]'));
  if (!value || typeof value !== 'object') return value;
  const out = {};
  for (const [k, v] of Object.entries(value)) {
    const at = place ? place + '.' + k : k, ours = OURS.find(([t, p]) => t === type && p === at);
    if (ours) ours.seen = true;
    else out[k] = strip(type, v, at);
  }
  if (ADDED.some(([t, p]) => t === type && p === place)) {
    assert.ok(!('output_text' in value));
    out.output_text = '';
  }
  return out;
}

// ---- asking

const node = await serve({ script: 'x<|end_of_msg|>' });
const send = (path, body) => fetch(node.url + path, body === undefined ? {} : { method: 'POST', body: typeof body === 'string' ? body : JSON.stringify({ model: 'k3-demo', ...body }) });
async function whole(type, path, body, from) {
  const r = await send(path, body), v = await r.json();
  assert.equal(r.status, 200, JSON.stringify(v));
  put(type, v, from + ', whole');
  return v;
}
async function streamed(type, path, body, from) {
  const r = await send(path, { ...body, stream: true }), text = await r.text(), kinds = new Set();
  assert.equal(r.status, 200, text);
  for (const part of text.split('\n\n')) {
    const lines = part.split('\n'), data = lines.find((l) => l.startsWith('data: ')), name = lines.find((l) => l.startsWith('event: '));
    if (!data || data === 'data: [DONE]') continue;
    const v = JSON.parse(data.slice(6));
    if (name) assert.equal(name.slice(7), v.type); // the clients go by either
    kinds.add(v.type);
    if (type === 'MessageEvent' && v.type === 'ping') assert.deepEqual(v, { type: 'ping' });
    else put(type === 'MessageEvent' && v.type === 'error' ? 'MessageError' : v.error && !v.type ? 'Error' : type, v, from + ', streamed');
  }
  return kinds;
}
const both = async (types, path, body, from) => [await whole(types[0], path, body, from), await streamed(types[1], path, body, from)];

const user = [{ role: 'user', content: 'x' }];
const f = { name: 'f', description: 'd', parameters: { type: 'object', properties: { city: { type: 'string' }, days: { type: 'integer' } }, required: ['city'], additionalProperties: false } };
const schema = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'], additionalProperties: false };
const CALLS = answer({ think: 'Hm.', text: 'I look.', calls: [['f', { city: 'Köln', days: 2 }], ['f', { city: 'Rome' }]] });
const ONLY = answer({ calls: [['f', { city: 'Rome' }]] });
const TEXT = answer({ think: 'Hm.', text: 'Yes: é😀 "q".' });
const PLAIN = answer({ text: 'Yes.' });
const JSONS = answer({ text: '{"n": 1}' });

await check('chat completions', async () => {
  const chat = (body, from) => both(['Chat', 'Chunk'], '/v1/chat/completions', { messages: user, ...body }, 'chat, ' + from);
  const tools = [{ type: 'function', function: f }], none = { reasoning_effort: 'none' };
  await node.script(TEXT, 0);
  await chat({}, 'reasoning');
  await chat({ stream_options: undefined, max_tokens: 1 }, 'cut off while thinking');
  await streamed('Chunk', '/v1/chat/completions', { messages: user, stream_options: { include_usage: true } }, 'chat, usage');
  await node.script(CALLS, 0);
  await chat({ tools }, 'reasoning and parallel calls');
  await node.script(PLAIN, 0);
  await chat({ ...none, logprobs: true, top_logprobs: 3 }, 'logprobs');
  await chat({ ...none, logprobs: true }, 'logprobs alone');
  await chat({ ...none, n: 3, stop: ['s'], user: 'u', metadata: { a: 'b' }, seed: 3, store: false }, 'several, stopped');
  await chat({ ...none, max_tokens: 1 }, 'cut off');
  await node.script(ONLY, 0);
  await chat({ ...none, tools: [{ type: 'function', function: { ...f, strict: true } }], tool_choice: { type: 'function', function: { name: 'f' } } }, 'a call that is demanded');
  await node.script(JSONS, 0);
  await chat({ ...none, response_format: { type: 'json_schema', json_schema: { name: 'a', strict: true, schema } } }, 'a schema');
  await chat({ ...none, response_format: { type: 'json_object' } }, 'JSON');
});

await check('completions', async () => {
  await node.script('Yes é😀.[EOS]', 1);
  const text = (body, from) => both(['Text', 'TextChunk'], '/v1/completions', { prompt: 'p', max_tokens: 50, ...body }, 'completions, ' + from);
  await text({}, 'plain');
  await text({ echo: true, n: 2 }, 'echo');
  await text({ logprobs: 2 }, 'logprobs');
  await text({ logprobs: 0, max_tokens: 2 }, 'logprobs alone, cut off');
  await streamed('TextChunk', '/v1/completions', { prompt: 'p', stream_options: { include_usage: true } }, 'completions, usage');
});

await check('responses', async () => {
  const ask = (body, from) => both(['Response', 'ResponseEvent'], '/v1/responses', { input: 'x', ...body }, 'responses, ' + from);
  const kinds = new Set();
  const seen = ([, k]) => k.forEach((x) => kinds.add(x));
  await node.script(TEXT, 0);
  seen(await ask({}, 'reasoning'));
  seen(await ask({ reasoning: { effort: 'low', summary: 'auto' }, instructions: 'i', metadata: { a: 'b' }, user: 'u', temperature: 0.5, top_p: 0.9, safety_identifier: 's', prompt_cache_key: 'k',
    prompt_cache_retention: '24h', max_output_tokens: 500, store: false, truncation: 'disabled', include: ['reasoning.encrypted_content'], service_tier: 'auto', parallel_tool_calls: false }, 'all fields'));
  seen(await ask({ max_output_tokens: 1 }, 'cut off while thinking'));
  await node.script(CALLS, 0);
  seen(await ask({ tools: [{ type: 'function', ...f, strict: false }] }, 'reasoning and parallel calls'));
  seen(await ask({ tools: [{ type: 'function', ...f }], tool_choice: 'auto' }, 'a tool without strict'));
  seen(await ask({ tools: [{ type: 'function', name: 'f' }] }, 'a tool without parameters'));
  await node.script(ONLY, 0);
  seen(await ask({ reasoning: { effort: 'none' }, tools: [{ type: 'function', ...f, strict: true }], tool_choice: { type: 'function', name: 'f' } }, 'a call that is demanded'));
  await node.script(JSONS, 0);
  seen(await ask({ reasoning: { effort: 'none' }, text: { format: { type: 'json_schema', name: 'a', strict: true, schema }, verbosity: 'low' } }, 'a schema'));
  seen(await ask({ reasoning: { effort: 'none' }, text: { format: { type: 'json_object' } } }, 'JSON'));
  await node.script(PLAIN, 0);
  seen(await ask({ reasoning: { effort: 'none' }, input: [{ role: 'user', content: [{ type: 'input_text', text: 'x' }] }], text: {} }, 'plain'));
  const r = await streamed('ResponseEvent', '/v1/responses', { input: 'x', timeout: 1e-6 }, 'responses, out of time');
  r.forEach((x) => kinds.add(x));
  assert.deepEqual([...kinds].map((k) => k.replace('response.', '')).sort(), ['completed', 'content_part.added', 'content_part.done', 'created', 'failed', 'function_call_arguments.delta',
    'function_call_arguments.done', 'in_progress', 'incomplete', 'output_item.added', 'output_item.done', 'output_text.delta', 'output_text.done', 'reasoning_text.delta', 'reasoning_text.done']);
});

await check('messages', async () => {
  const ask = (body, from) => both(['Message', 'MessageEvent'], '/v1/messages', { max_tokens: 500, messages: user, ...body }, 'messages, ' + from);
  const thinking = { type: 'enabled', budget_tokens: 1024 }, tools = [{ name: 'f', description: 'd', input_schema: f.parameters }];
  await node.script(TEXT, 0);
  await ask({ thinking, system: 's', metadata: { user_id: 'u' } }, 'thinking');
  await ask({ thinking, max_tokens: 1 }, 'cut off');
  await node.script(CALLS, 0);
  await ask({ thinking, tools }, 'thinking and parallel calls');
  await node.script(ONLY, 0);
  await ask({ tools, tool_choice: { type: 'any', disable_parallel_tool_use: true } }, 'a call that is demanded');
  await node.script(PLAIN, 0);
  await ask({ stop_sequences: ['s'] }, 'stopped');
  await node.script(JSONS, 0);
  await ask({ output_format: { type: 'json_schema', schema } }, 'a schema');
  await whole('Count', '/v1/messages/count_tokens', { messages: user }, 'count_tokens');
});

await check('models, errors', async () => {
  await whole('Models', '/v1/models', undefined, 'models');
  await whole('Model', '/v1/models/k3-demo', undefined, 'a model');
  const failure = async (type, path, body, status) => {
    const r = await send(path, body), v = await r.json();
    assert.equal(r.status, status, JSON.stringify(v));
    put(type, v, `${path}, ${status}`);
    return [v, r];
  };
  for (const [path, body] of [['/v1/chat/completions', { messages: user }], ['/v1/completions', { prompt: 'x' }], ['/v1/responses', { input: 'x' }], ['/v1/messages', { messages: user, max_tokens: 9 }]]) {
    const type = path === '/v1/messages' ? 'MessageError' : 'Error';
    await failure(type, path, '{"a', 400);
    await failure(type, path, '', 400);
    await failure(type, path, { ...body, wrong_field: 1 }, 400);
    await failure(type, path, { ...body, temperature: -1 }, 400);
    const long = 'é'.repeat(300); // wherever the sentence is cut, it stays text
    for (const model of ['other', long, 'a' + long]) assert.match((await failure(type, path, { ...body, model }, 404))[0].error.message, /^model: there is no `/);
    await failure(type, path, { ...body, ['a' + long]: 1 }, 400);
    await failure(type, path, { ...body, [long]: 1 }, 400);
    await failure(type, path, { ...body, timeout: 1e-6 }, 504);
    if (path !== '/v1/responses') await streamed(path === '/v1/messages' ? 'MessageEvent' : path.includes('chat') ? 'Chunk' : 'TextChunk', path, { ...body, timeout: 1e-6 }, path + ', out of time');
  }
  for (const name of ['é'.repeat(80), 'a' + 'é'.repeat(80)]) await failure('Error', '/v1/models/' + encodeURIComponent(name), undefined, 404);
  await failure('Error', '/v1/nothing', undefined, 404);
  await failure('Error', '/v1/chat/completions', undefined, 405);
  const [v, r] = await failure('MessageError', '/v1/messages', undefined, 405);
  assert.equal(v.request_id, r.headers.get('request-id'));
});
await node.stop();

// ---- what tsc says

const here = dirname(fileURLToPath(import.meta.url)), folder = join(here, 'typed');
rmSync(folder, { recursive: true, force: true });
mkdirSync(folder);
const head = "import OpenAI from 'openai';\nimport Anthropic from '@anthropic-ai/sdk';\n" + Object.entries(TYPES).map(([n, t]) => `type ${n} = ${t};\n`).join('');
const lines0 = head.split('\n').length;
function tsc(list, name) { // the numbers of those that it complains of, and its words
  writeFileSync(join(folder, name + '.ts'), head + list.map(([t, v], i) => `export const v${i}: ${t} = ${JSON.stringify(v)};\n`).join(''));
  const r = spawnSync(process.execPath, [join(here, 'node_modules/typescript/bin/tsc'), '--noEmit', '--strict', '--skipLibCheck', '--pretty', 'false', '--noErrorTruncation', '--target', 'es2022',
    '--module', 'nodenext', join(folder, name + '.ts')], { encoding: 'utf8', maxBuffer: 1 << 28 });
  assert.ok(r.status === 0 || r.status === 2 || r.status === 1, r.stderr + r.stdout);
  const wrong = new Map();
  for (const m of r.stdout.matchAll(/\.ts\((\d+),\d+\): error ([^]*?)(?=\n\S|$)/g)) wrong.set(m[1] - lines0, (wrong.get(m[1] - lines0) ?? '') + m[2] + '\n');
  assert.equal(wrong.size === 0, r.status === 0, r.stdout);
  return wrong;
}

const distinct = [...new Map(shapes.map(([t, v, from]) => [t + JSON.stringify(v), [t, strip(t, v), from]])).values()];
await check(`${distinct.length} answers and events are of the clients' types`, () => {
  const wrong = tsc(distinct, 'said');
  for (const [i, words] of [...wrong].slice(0, 30)) console.log(`${distinct[i]?.[2]}: ${words}${JSON.stringify(distinct[i]?.[1]).slice(0, 600)}\n`);
  assert.equal(wrong.size, 0, wrong.size + ' are not');
});
await check('each of the listed extensions is really there', () => assert.deepEqual(OURS.filter((o) => !o.seen), []));

// Places where the types take anything: contents that are the client's own.
const OPEN = /(^|\.)(metadata|schema|parameters|input|top_logprobs\[\])(\.|$)/;
function plants(type, value, seen) {
  const out = [];
  const walk = (v, place, make) => {
    const first = !seen.has(type + place);
    seen.add(type + place);
    if (Array.isArray(v)) {
      v.forEach((x, i) => walk(x, place + '[]', (y) => make(v.map((z, k) => (k === i ? y : z)))));
    } else if (v && typeof v === 'object') {
      if (first && !OPEN.test(place)) out.push([type, make({ ...v, planted_field: 1 }), place + ', a field too many']);
      for (const [k, x] of Object.entries(v)) walk(x, place ? place + '.' + k : k, (y) => make({ ...v, [k]: y }));
    } else if (first && !OPEN.test(place)) {
      out.push([type, make([{ planted: true }]), place + ', of the wrong kind']);
    }
  };
  walk(value, value.type ? `(${value.type})` : '', (x) => x);
  return out;
}
const seen = new Set(), planted = distinct.flatMap(([t, v]) => plants(t, v, seen));
await check(`${planted.length} planted mistakes are seen`, () => {
  const wrong = tsc(planted, 'planted');
  assert.deepEqual(planted.filter((_, i) => !wrong.has(i)).map(([t, , at]) => t + ' ' + at), []);
});
if (!process.exitCode) rmSync(folder, { recursive: true, force: true });
finish();
