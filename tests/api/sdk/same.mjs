// SPDX-License-Identifier: MIT
// same.mjs: the same request gets the same answer and the same system_fingerprint: whole or streamed, alone or beside
// four others, cold or from kept states, by servers with other batches and chunks, by another process.
import assert from 'node:assert/strict';
import { check, finish, serve } from './server.mjs';

const texts = ['Define whale.', 'Define guitar, and say it twice.', 'é€😀 {"a": [1, 2]}\n\n', 'The sea, the harbour, the gulls. '.repeat(8), 'x'];
const requests = texts.flatMap((content, i) => [
  { messages: [{ role: 'user', content }], temperature: 0, reasoning_effort: i % 2 ? 'low' : 'none', max_tokens: 60, ignore_eos: true },
  { messages: [{ role: 'system', content: 'Be brief.' }, { role: 'user', content }], temperature: 0.9, top_p: 0.95, top_k: 40, seed: i + 5, max_tokens: 60, logprobs: true, top_logprobs: 2, frequency_penalty: 0.3, presence_penalty: 0.2 },
  { messages: [{ role: 'user', content }], temperature: 1.2, seed: i, max_tokens: 80, reasoning_effort: 'none',
    response_format: { type: 'json_schema', json_schema: { name: 'x', schema: { type: 'object', properties: { a: { type: 'string', maxLength: 12 }, b: { type: 'array', items: { type: 'integer' }, maxItems: 3 } }, required: ['a', 'b'], additionalProperties: false } } } },
]);

const post = (url, body) => fetch(url + '/v1/chat/completions', { method: 'POST', body: JSON.stringify({ model: 'k3-demo', ...body }) });
async function whole(url, q) {
  const r = await post(url, q), v = await r.json();
  assert.equal(r.status, 200, JSON.stringify(v));
  const c = v.choices[0];
  return { reasoning: c.message.reasoning_content ?? '', content: c.message.content ?? '', why: c.finish_reason, tokens: v.usage.completion_tokens, print: v.system_fingerprint, logprobs: c.logprobs?.content ?? [] };
}
async function streamed(url, q) {
  const r = await post(url, { ...q, stream: true, stream_options: { include_usage: true } });
  assert.equal(r.status, 200);
  const a = { reasoning: '', content: '', why: null, tokens: 0, print: null, logprobs: [] };
  for (const part of (await r.text()).split('\n\n')) {
    if (!part.startsWith('data: {')) continue;
    const e = JSON.parse(part.slice(6)), c = e.choices[0];
    a.print ??= e.system_fingerprint;
    assert.equal(e.system_fingerprint, a.print);
    a.reasoning += c?.delta.reasoning_content ?? '';
    a.content += c?.delta.content ?? '';
    a.why = c?.finish_reason ?? a.why;
    a.logprobs.push(...(c?.logprobs?.content ?? []));
    a.tokens = e.usage?.completion_tokens ?? a.tokens;
  }
  return a;
}

let node = await serve({ batch: 1 });
const want = [];
await check('alone', async () => {
  for (const q of requests) want.push(await whole(node.url, q));
  assert.equal(new Set(want.map((w) => w.print)).size, 1);
  for (const [i, w] of want.entries()) if (i % 3 === 2 && w.why === 'stop') JSON.parse(w.content);
});
await check('again, from kept states, streamed', async () => {
  for (const [i, q] of requests.entries()) assert.deepEqual(await streamed(node.url, q), want[i], `request ${i}`);
});
await node.stop();

// 20 prompts, 500 tokens each: alone and whole; all at once on another server, streamed, while others come and go; then
// on that one from kept states.
const long = Array.from({ length: 20 }, (_, i) => ({
  messages: [{ role: 'user', content: [`Define whale number ${i}.`, 'The harbour at night. '.repeat(i), `{"n": ${i}}`, `${i} é€😀`][i % 4] + ' Go on.' }],
  reasoning_effort: i % 5 ? 'none' : 'low', max_tokens: 500, ignore_eos: true, ...(i % 2 ? { temperature: 0.8, top_p: 0.95, seed: i } : { temperature: 0 }),
}));
const wanted = [];
const equal = (got) => got.forEach((g, i) => assert.deepEqual(g, wanted[i], `prompt ${i}`));
node = await serve({ batch: 1, chunk: 16 });
await check('20 prompts of 500 tokens, alone', async () => {
  for (const q of long) wanted.push(await whole(node.url, q));
  wanted.forEach((w) => assert.equal(w.tokens, 500));
  assert.ok(new Set(wanted.map((w) => w.reasoning + w.content)).size >= 15);
});
await node.stop();
node = await serve({ batch: 8 });
await check('at once, streamed, beside others that come and go', async () => {
  let over = false;
  const others = (async () => {
    for (let i = 0; !over; i++) {
      const c = new AbortController();
      const r = fetch(node.url + '/v1/chat/completions', { method: 'POST', signal: c.signal, body: JSON.stringify({ ...long[i % 20], stream: true, seed: 99 }) });
      await (await r).body.getReader().read();
      c.abort();
      await new Promise((go) => setTimeout(go, 100));
    }
  })();
  const got = await Promise.all(long.map((q) => streamed(node.url, q)));
  over = true;
  await others;
  equal(got);
});
await check('and once more, from kept states', async () => equal(await Promise.all(long.map((q, i) => (i % 2 ? streamed : whole)(node.url, q)))));
await node.stop();
for (const options of [{ batch: 5 }, { batch: 5, chunk: 7 }, { batch: 3, chunk: 2 }]) {
  node = await serve(options);
  await check('five at once, of all kinds: ' + JSON.stringify(options), async () => {
    for (let i = 0; i < requests.length; i += 5) {
      const got = await Promise.all([0, 1, 2, 3, 4].map((k) => ((i + k) % 2 ? whole : streamed)(node.url, requests[(i + k) % requests.length])));
      got.forEach((g, k) => assert.deepEqual(g, want[(i + k) % requests.length], `request ${i + k}`));
    }
  });
  await node.stop();
}
finish();
