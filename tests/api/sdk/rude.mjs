// SPDX-License-Identifier: MIT
// rude.mjs: clients that are slow, gone, malformed or many, at once; others must be served meanwhile, and nothing may
// be left behind (descriptors, memory, places in the queue).
import assert from 'node:assert/strict';
import net from 'node:net';
import { check, finish, serve, until } from './server.mjs';

const server = await serve({ batch: 4, queue: 300 });
const { url, fds, rss, metrics } = server;
const { hostname, port } = new URL(url);

const body = (o) => JSON.stringify({ model: 'k3-demo', temperature: 0, reasoning_effort: 'none',
  messages: [{ role: 'user', content: 'Define whale.' }], ...o });
const post = (b, path = '/v1/chat/completions', headers = {}) =>
  fetch(url + path, { method: 'POST', body: b, headers: { 'content-type': 'application/json', ...headers } });
const want = (await (await post(body({}))).json()).choices[0].message.content;
assert.match(want, /^whale/);
async function served() {
  const r = await post(body({}));
  assert.equal(r.status, 200);
  assert.equal((await r.json()).choices[0].message.content, want);
}
// Bytes as they are; what comes back until the other side closes or it has been quiet for `ms`.
function raw(bytes, { ms = 1500, half = false } = {}) {
  return new Promise((resolve) => {
    let text = '';
    const s = net.connect(port, hostname);
    const t = setTimeout(() => s.destroy(), ms);
    s.on('data', (d) => (text += d));
    s.on('error', () => {});
    s.on('close', () => { clearTimeout(t); resolve(text); });
    s.write(bytes);
    if (half) s.end();
  });
}
const request = (b, more = '') => `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n` +
  `${more}Content-Length: ${Buffer.byteLength(b)}\r\n\r\n`;

await served();
const before = { fds: fds(), rss: rss() };

await check('malformed requests are answered or closed, never a crash', async () => {
  const deep = '['.repeat(5_000_000) + ']'.repeat(5_000_000);
  const cases = [
    [deep, 400], ['{"messages":' + deep + '}', 400], ['', 400], ['{', 400], ['[]', 400], ['null', 400], ['{"a":1} x', 400],
    [Buffer.from('{"messages":[{"role":"user","content":"\xff\xfe"}]}', 'latin1'), 400],
    ['{"messages":[{"role":"user","content":"a\\u0000b"}],"max_tokens":1,"reasoning_effort":"none"}', 200],
    [Buffer.from('{"messages":[{"role":"user","content":"a\0b"}]}'), 400],
    [body({ messages: 'x' }), 400], [body({ messages: [{}] }), 400], [body({ n: 17 }), 400], [body({ max_tokens: 0 }), 400],
    [body({ stop: ['a', 3] }), 400], [body({ logit_bias: { x: 1 } }), 400], [body({ tools: [3] }), 400],
    [body({ response_format: { type: 'json_schema', json_schema: { name: 'x', schema: { type: 'object', patternProperties: {} } } } }), 400],
    [body({ model: 'other' }), 404],
  ];
  for (const [b, status] of cases) {
    const r = await post(b);
    const text = await r.text();
    assert.equal(r.status, status, String(b).slice(0, 80) + ' -> ' + text.slice(0, 200));
    if (status !== 200) assert.equal(typeof JSON.parse(text).error.message, 'string');
  }
  for (const [path, status] of [['/v1/nothing', 404], ['/', 404], ['/v1/chat/completions/', 404]]) assert.equal((await post('{}', path)).status, status);
  assert.equal((await fetch(url + '/v1/chat/completions')).status, 405);
  assert.equal((await post(body({}), undefined, { origin: 'https://evil.example' })).status, 403);
  assert.match(await raw('GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n'), /^HTTP\/1.1 403/);
  assert.match(await raw('GET /health HTTP/1.0\r\n\r\n'), /^HTTP\/1.[01] 200/);
  for (const junk of ['\0\0\0\0', 'GET\r\n\r\n', 'x'.repeat(100000), 'GET / HTTP/1.1\r\n' + 'A: b\r\n'.repeat(20000) + '\r\n',
    'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n', '\x16\x03\x01\x02\x00\x01\x00'])
    await raw(junk, { ms: 300 });
  assert.match(await raw('POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n'), /413|400/);
  await served();
});

await check('pipelined requests and keep-alive', async () => {
  const b = body({ max_tokens: 2 });
  const text = await raw((request(b) + b).repeat(3), { ms: 4000 });
  assert.equal(text.split('HTTP/1.1 200').length - 1, 3);
});

await check('a half-closed or vanished client ends its own work', async () => {
  const m0 = await metrics();
  const long = body({ max_tokens: 3000, messages: [{ role: 'user', content: 'Define whale. '.repeat(150) }] });
  const streams = [];
  for (let i = 0; i < 8; i++) {
    const c = new AbortController();
    streams.push(c);
    fetch(url + '/v1/chat/completions', { method: 'POST', body: body({ stream: i % 2 === 0, max_tokens: 3000, ignore_eos: true }), signal: c.signal })
      .then((r) => r.text()).catch(() => {});
  }
  const half = raw(request(long) + long, { half: true, ms: 10000 });
  await until('they run', async () => (await metrics()).shoal_requests_running >= 4);
  streams.forEach((c) => c.abort());
  await half;
  await until('all gone', async () => { const m = await metrics(); return m.shoal_requests_running + m.shoal_requests_waiting === 0; });
  assert.ok((await metrics()).shoal_requests_cancelled_total - m0.shoal_requests_cancelled_total >= 8);
  await served();
});

await check('200 slow or vanishing clients, and the others are served', async () => {
  const sockets = [];
  for (let i = 0; i < 200; i++) {
    const s = net.connect(port, hostname);
    s.on('error', () => {});
    sockets.push(s);
    const b = body({ stream: true, max_tokens: 200, ignore_eos: true });
    if (i % 4 === 0) s.write('POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Le'); // never goes on
    else if (i % 4 === 1) s.write(request(b) + b.slice(0, 10)); // half a body
    else if (i % 4 === 2) { s.write(request(b) + b); s.pause(); } // does not read
    else { s.write(request(b) + b); setTimeout(() => s.destroy(), 5 + i); } // goes away
  }
  const t = Date.now();
  for (let i = 0; i < 3; i++) await served();
  console.log(`     served three times in ${Date.now() - t} ms beside them; ${fds()} descriptors, ${rss().toFixed(0)} MiB`);
  sockets.forEach((s) => s.destroy());
  await until('all gone', async () => { const m = await metrics(); return m.shoal_requests_running + m.shoal_requests_waiting === 0; });
  await until('descriptors are back', () => fds() <= before.fds + 4);
  assert.ok(rss() < before.rss + 400, `memory ${before.rss} -> ${rss()} MiB`);
  await served();
});
await check('it ended by itself', async () => assert.equal(await server.stop(), 0));

// A queue of two: the third that waits gets 429 and when to come again.
const node = await serve({ batch: 1, queue: 2 });
await check('a full queue says so', async () => {
  const c = [];
  const go = () => { const a = new AbortController(); c.push(a); return fetch(node.url + '/v1/chat/completions', { method: 'POST', body: body({ max_tokens: 3000, ignore_eos: true }), signal: a.signal }).catch(() => {}); };
  const shows = (what) => async () => what.test(await (await fetch(node.url + '/metrics')).text());
  const first = [go()];
  await until('one runs', shows(/shoal_requests_running 1/)); // a place in the queue is free again
  first.push(go(), go());
  await until('two wait', shows(/shoal_requests_waiting 2/));
  const r = await fetch(node.url + '/v1/chat/completions', { method: 'POST', body: body({}) });
  assert.equal(r.status, 429);
  assert.ok(Number(r.headers.get('retry-after')) >= 1);
  assert.equal((await r.json()).error.code, 'queue_full');
  c.forEach((a) => a.abort());
  await Promise.all(first);
  await until('all gone', shows(/shoal_requests_waiting 0/));
});
await check('a deadline', async () => {
  const r = await fetch(node.url + '/v1/chat/completions', { method: 'POST', body: body({ max_tokens: 3000, ignore_eos: true, timeout: 0.2 }) });
  assert.equal(r.status, 504);
});
await node.stop();
finish();
