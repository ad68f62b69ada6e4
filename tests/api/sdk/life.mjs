// SPDX-License-Identifier: MIT
// life.mjs: what a client hears while it waits, and how long it does: places in the queue, tokens done and left and an
// estimate before the prompt is read, layers of long steps, in every format's stream; deadlines in the queue, while
// the prompt is read and while the answer is made; a client that leaves the queue within a step. Each layer of the
// server takes 15 ms longer than it would, and signs come every 40 ms in place of 3 s.
import assert from 'node:assert/strict';
import http from 'node:http';
import { check, finish, serve, until } from './server.mjs';

const LAYERS = 8, SLOW = 15, SAY = 40, CHUNK = 16;
const STEP = LAYERS * SLOW; // ms, at least
const second = process.platform === 'linux' ? '127.0.0.2' : undefined; // turns are by address
const node = await serve({ batch: 1, chunk: CHUNK, slow: SLOW, say: SAY });
const words = (n, w = 'whale') => `${w} `.repeat(n);
const ask = { model: 'k3-demo', temperature: 0, stream: true, reasoning_effort: 'none', max_tokens: 4, ignore_eos: true };
const chat = (content, o) => ({ path: '/v1/chat/completions', body: { ...ask, messages: [{ role: 'user', content }], ...o } });

// Every comment and event with the time it came at; ends when the server ends it.
function open({ path, body }, from) {
  const s = { comments: [], data: [], times: [], over: false, raw: '' };
  const { hostname, port } = new URL(node.url);
  s.began = Date.now();
  s.end = new Promise((resolve) => {
    const q = (s.request = http.request({ host: hostname, port, path, method: 'POST', agent: false, localAddress: from }, (r) => {
      s.status = r.statusCode;
      s.headers = Date.now();
      let rest = '';
      r.on('data', (d) => {
        s.raw += d;
        s.times.push(Date.now());
        const parts = (rest + d).split('\n\n');
        rest = parts.pop();
        for (const p of parts) {
          if (p.startsWith(': ')) s.comments.push(p.slice(2));
          else s.data.push(/^(?:event: .*\n)?data: (.*)$/s.exec(p)[1]);
        }
      });
      r.on('close', () => { s.over = true; resolve(s); });
      r.on('error', () => {});
    }));
    q.on('error', () => { s.over = true; resolve(s); });
    q.end(JSON.stringify(body));
  });
  return s;
}
const prefill = (s) => s.comments.map((c) => /^prefill: (\d+) of (\d+) tokens, (\d+) of them kept(?:, about (\d+) s left)?$/.exec(c)).filter(Boolean)
  .map((m) => ({ done: +m[1], total: +m[2], kept: +m[3], left: m[4] === undefined ? undefined : +m[4] }));
const queue = (s) => s.comments.map((c) => /^queue: (\d+) before this request$/.exec(c)).filter(Boolean).map((m) => +m[1]);
const layers = (s) => s.comments.map((c) => /^working: layer (\d+) of (\d+)$/.exec(c)).filter(Boolean).map((m) => [+m[1], +m[2]]);
const gap = (s) => Math.max(...s.times.map((t, i) => t - (i ? s.times[i - 1] : s.headers)));
const tokens = async (content) => (await (await fetch(node.url + '/tokenize', { method: 'POST', body: JSON.stringify({ messages: [{ role: 'user', content }], reasoning_effort: 'none' }) })).json()).count;

await check('tokens done and left, an estimate, layers: a long prompt', async () => {
  const text = words(200), total = await tokens(text), first = await open(chat(text)).end;
  assert.equal(first.status, 200);
  assert.equal(first.data.at(-1), '[DONE]');
  let p = prefill(first);
  assert.deepEqual(p[0], { done: 0, total, kept: 0, left: undefined }); // nothing to estimate it by
  assert.equal(p.at(-1).done, total);
  p.forEach((x, i) => assert.ok(x.total === total && (!i || (x.done > p[i - 1].done && x.done - p[i - 1].done <= CHUNK))));
  assert.ok(p.length >= total / CHUNK);
  p.slice(1, -1).forEach((x) => assert.ok(x.left !== undefined)); // by its own rate
  // each step takes 120 ms and more, and signs are due each 40 ms
  const l = layers(first);
  assert.ok(l.length >= p.length - 1, `${l.length} signs in ${p.length - 1} steps`);
  l.forEach(([i, n]) => assert.ok(n === LAYERS && i < n));
  assert.ok(first.headers - first.began < (first.times.at(-1) - first.began) / 4, 'headers come first');

  const other = await open(chat(words(200, 'harbour'))).end;
  p = prefill(other);
  assert.ok(p[0].done === 0 && p[0].left >= 1, JSON.stringify(p[0])); // known before it starts
  const took = (other.times.at(-1) - other.began) / 1000;
  assert.ok(p[0].left > took / 8 && p[0].left < took * 8, `estimate ${p[0].left} s, it took ${took} s`);
  console.log(`     ${total} tokens in ${took.toFixed(1)} s, estimated ${p[0].left} s; longest silence ${gap(other)} ms`);

  const again = await open(chat(text + '\nAnd more.')).end; // begins with what was kept only if a boundary lies in it
  const same = await open(chat(text)).end;
  p = prefill(same);
  assert.ok(p[0].kept > 0 && p[0].done === p[0].kept, JSON.stringify(p[0]));
  assert.deepEqual([again, same].map((s) => s.data.at(-1)), ['[DONE]', '[DONE]']);
});

await check('every format says so', async () => {
  const long = words(60);
  for (const [path, body] of [
    ['/v1/completions', { ...ask, prompt: words(60, 'gull'), reasoning_effort: undefined }],
    ['/v1/responses', { model: 'k3-demo', stream: true, input: long + 'r', max_output_tokens: 4, reasoning: { effort: 'none' } }],
    ['/v1/messages', { model: 'k3-demo', stream: true, messages: [{ role: 'user', content: long + 'm' }], max_tokens: 4 }],
  ]) {
    const s = await open({ path, body }).end;
    assert.equal(s.status, 200, s.raw);
    const p = prefill(s);
    assert.ok(p.length >= 60 / CHUNK && p.at(-1).done === p.at(-1).total, path + s.raw);
    assert.ok(layers(s).length > 0, path);
  }
});

await check('places in the queue are told within a step, and again while it lasts; who leaves it leaves at once', async () => {
  const a = open(chat(words(300, 'b')));
  await until('it runs', () => prefill(a).length >= 1);
  const n = prefill(a).length;
  const b = open(chat('Define gull.'));
  await until('b knows its place', () => queue(b).length >= 1);
  const c = open(chat('Define harbour.'), second);
  await until('c knows its place', () => queue(c).length >= 1);
  const d = open(chat('Define sea.'));
  await until('d knows its place', () => queue(d).length >= 1);
  assert.equal(b.status, 200); // headers are there long before the answer
  assert.equal(queue(b)[0], 0);
  if (second) { // another client's turn comes before the second one of the first
    await until('b is behind c', () => queue(b).at(-1) === 1);
    assert.equal(queue(c)[0], 0);
    assert.equal(queue(d)[0], 2);
  }
  await until('b hears it again', () => queue(b).length >= 4);
  d.request.destroy();
  await until('d has left', async () => (await node.metrics()).shoal_requests_waiting === 2);
  assert.ok(!a.over && prefill(a).at(-1).done < prefill(a).at(-1).total); // which still reads its prompt
  console.log(`     told within ${prefill(a).length - n} steps`);
  await Promise.all([a.end, b.end, c.end]);
  for (const s of [a, b, c]) assert.equal(s.data.at(-1), '[DONE]');
  if (second) assert.ok(c.times.at(-1) <= b.times.at(-1));
});

const failed = async (path, body, from) => {
  const t = Date.now();
  const s = await open({ path, body }, from).end;
  return { ...s, ms: Date.now() - t };
};
const late = (s) => { assert.equal(s.status, 504, s.raw); assert.equal(JSON.parse(s.raw).error.code, 'deadline_exceeded'); };
await check('a deadline, while the prompt is read and while the answer is made', async () => {
  const prompt = words(300, 'd'), many = { max_tokens: 3000, stream: false };
  let s = await failed('/v1/chat/completions', chat(prompt, { stream: false, timeout: 0.5 }).body);
  late(s);
  assert.ok(s.ms >= 500 && s.ms < 300 / CHUNK * STEP, `${s.ms} ms`); // not even its prompt was read
  s = await failed('/v1/chat/completions', chat('x', { ...many, timeout: 1 }).body);
  late(s);
  assert.ok(s.ms >= 1000);
  // in a stream the answer has begun: an error in it, and no end as if it were whole
  s = await failed('/v1/chat/completions', chat('x', { max_tokens: 3000, timeout: 1 }).body);
  assert.equal(s.status, 200);
  assert.equal(JSON.parse(s.data.at(-1)).error.code, 'deadline_exceeded');
  assert.ok(s.data.slice(0, -1).some((d) => JSON.parse(d).choices[0].delta.content));
  s = await failed('/v1/completions', { ...ask, reasoning_effort: undefined, prompt: 'x', max_tokens: 3000, timeout: 1 });
  assert.equal(JSON.parse(s.data.at(-1)).error.code, 'deadline_exceeded');
  s = await failed('/v1/responses', { model: 'k3-demo', stream: true, input: prompt + 'r', timeout: 0.5 });
  assert.equal(JSON.parse(s.data.at(-1)).type, 'response.failed');
  assert.match(JSON.parse(s.data.at(-1)).response.error.message, /deadline/);
  s = await failed('/v1/messages', { model: 'k3-demo', stream: true, messages: [{ role: 'user', content: prompt + 'm' }], max_tokens: 9, timeout: 0.5 });
  assert.match(JSON.parse(s.data.at(-1)).error.message, /deadline/);
  for (const timeout of [-1, 'soon', 1e9]) {
    s = await failed('/v1/chat/completions', chat('x', { stream: false, timeout }).body);
    assert.equal(s.status, 400);
    assert.equal(JSON.parse(s.raw).error.param, 'timeout');
  }
});

await check('a deadline in the queue, within a step, and the one that runs is not touched', async () => {
  const want = (await open(chat(words(300, 'q'))).end).data.map((x) => x === '[DONE]' ? x : JSON.stringify(JSON.parse(x).choices));
  const a = open(chat('z' + words(300, 'q')));
  await until('it runs', () => prefill(a).length >= 1);
  const s = await failed('/v1/chat/completions', chat('x', { stream: false, timeout: 0.2 }).body, second);
  late(s);
  assert.match(JSON.parse(s.raw).error.message, /while it waited/);
  assert.ok(!a.over && prefill(a).at(-1).done < prefill(a).at(-1).total);
  assert.equal((await a.end).data.at(-1), '[DONE]');
  const again = (await open(chat(words(300, 'q'))).end).data.map((x) => x === '[DONE]' ? x : JSON.stringify(JSON.parse(x).choices));
  assert.deepEqual(again, want);
});

await check('it ended by itself', async () => assert.equal(await node.stop(), 0));
finish();
