// SPDX-License-Identifier: MIT
// load.mjs: many clients at once: wrk's 200 connections beside an answer and against the queue; 200 clients that are
// slow or vanish at every stage. Answers do not change, one client's flood keeps nobody from its turn, and afterwards
// every descriptor is back and memory is bounded. What needs wrk is skipped where there is none.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { check, finish, serve, until } from './server.mjs';

const CLIENTS = 200;
// What 200 clients may cost: what MHD gives a connection (96 KiB), half-read bodies, what waits for readers that do not
// read (1 MiB at most for each of 25, of which a short stream fills a tenth), states of 4 sequences.
const MEMORY = 64; // MiB
// Turns are by address; a second address of this machine is at hand on Linux.
const second = process.platform === 'linux' ? '127.0.0.2' : undefined;

const body = (o) => JSON.stringify({ model: 'k3-demo', temperature: 0, reasoning_effort: 'none',
  messages: [{ role: 'user', content: 'Define whale.' }], ...o });
// One request on a connection of its own, from an address of its own.
const ask = (url, b, { from, path = '/v1/chat/completions' } = {}) => new Promise((resolve, reject) => {
  const { hostname, port } = new URL(url);
  const q = http.request({ host: hostname, port, path, method: b ? 'POST' : 'GET', agent: false, localAddress: from }, (r) => {
    let text = '';
    r.on('data', (d) => (text += d));
    r.on('end', () => resolve({ status: r.statusCode, headers: r.headers, text }));
    r.on('error', reject);
  });
  q.on('error', reject);
  q.end(b);
});
async function answer(url, o, how) {
  const r = await ask(url, body(o), how);
  assert.equal(r.status, 200, r.text);
  const { choices, usage } = JSON.parse(r.text);
  return { choices, tokens: usage.completion_tokens };
}
const idle = (node) => until('all is over', async () => {
  const m = await node.metrics();
  return m.shoal_requests_running + m.shoal_requests_waiting === 0;
});

// Its descriptors once it has closed what it is through with: the same number for a second and a half.
async function settled(node) {
  let n = node.fds(), same = 0;
  await until('its descriptors settle', () => { const now = node.fds(); same = now === n ? same + 1 : 0; n = now; return same > 30; });
  return n;
}

// ---- wrk ----

const missing = await new Promise((resolve) => execFile('wrk', ['--version'], (e) => resolve(e?.code === 'ENOENT')));
if (missing) console.log('skipped: there is no wrk here (Debian and Homebrew have a package of this name)');
// Runs until it is stopped (by an interrupt, as wrk has it). lua: what a request is, and response(status, headers, body), which counts in `n`.
function wrk(url, lua) {
  const dir = mkdtempSync(join(tmpdir(), 'shoal-wrk-'));
  writeFileSync(join(dir, 'script.lua'), `
    local threads = {}
    function setup(thread) table.insert(threads, thread) end
    n = {}
    function init() for _, k in ipairs({"ok", "busy", "other", "wrong"}) do n[k] = 0 end end
    function count(k) n[k] = n[k] + 1; _G["n_" .. k] = n[k] end
    ${lua}
    function done(summary)
      local e = summary.errors
      local all = {connect = e.connect, read = e.read, write = e.write, timeout = e.timeout, seconds = summary.duration / 1e6}
      for _, k in ipairs({"ok", "busy", "other", "wrong"}) do
        all[k] = 0
        for _, t in ipairs(threads) do all[k] = all[k] + (t:get("n_" .. k) or 0) end
      end
      io.write("COUNTS")
      for k, v in pairs(all) do io.write(" ", k, "=", v) end
      io.write("\\n")
    end`);
  const run = { over: false };
  run.result = new Promise((resolve, reject) =>
    run.child = execFile('wrk', ['-t2', '-c' + CLIENTS, '-d300s', '--timeout', '120s', '-s', join(dir, 'script.lua'), url], (e, out, err) => {
      run.over = true;
      rmSync(dir, { recursive: true });
      const line = /COUNTS (.*)/.exec(out);
      if (e || !line) reject(e ?? new Error(out + err));
      else resolve(Object.fromEntries(line[1].split(' ').map((x) => x.split('=')).map(([k, v]) => [k, Number(v)])));
    }));
  run.stop = () => { run.child.kill('SIGINT'); return run.result; };
  return run;
}

if (!missing) await check(`wrk, ${CLIENTS} connections on /v1/models and /health, beside an answer`, async () => {
  const node = await serve({ batch: 2 });
  const o = { max_tokens: 150, ignore_eos: true, temperature: 0.8, seed: 7, logprobs: true, top_logprobs: 3 };
  const want = await answer(node.url, o), fds = await settled(node), rss = node.rss();
  const run = wrk(node.url, `
    local i = 0
    function request() i = i + 1; return wrk.format("GET", i % 2 == 0 and "/health" or "/v1/models") end
    function response(status, headers, body)
      count(status ~= 200 and "other" or (body:find('"status":"ok"', 1, true) or body:find('"id":"k3-demo"', 1, true)) and "ok" or "wrong")
    end`);
  await until('they are connected', async () => (await node.metrics()).shoal_http_connections >= CLIENTS);
  let n = 0;
  for (const end = Date.now() + 4000; n < 2 || Date.now() < end; n++) assert.deepEqual(await answer(node.url, o, { from: second }), want);
  assert.ok(!run.over);
  const c = await run.stop();
  assert.ok(c.ok > CLIENTS);
  assert.deepEqual([c.other, c.wrong, c.connect, c.read, c.write, c.timeout], [0, 0, 0, 0, 0, 0]);
  await until('descriptors are back', () => node.fds() === fds);
  console.log(`     ${(c.ok / c.seconds).toFixed(0)} requests a second, ${n} answers beside them, ${(node.rss() - rss).toFixed(1)} MiB more`);
  assert.ok(node.rss() < rss + MEMORY, `memory ${rss} -> ${node.rss()} MiB`);
  assert.equal(await node.stop(), 0);
});

if (!missing) await check(`wrk, ${CLIENTS} connections that ask for answers: the queue is bounded, and a second client gets its turns`, async () => {
  const node = await serve({ batch: 2, queue: 20 });
  const o = { max_tokens: 20 };
  const want = await answer(node.url, o), fds = await settled(node), rss = node.rss();
  const text = JSON.stringify(want.choices[0].message.content).replaceAll(']]', ']] .. "]]" .. [[');
  const run = wrk(node.url, `
    wrk.method, wrk.path = "POST", "/v1/chat/completions"
    wrk.headers["Content-Type"] = "application/json"
    wrk.body = [[${body(o)}]]
    local want = [[${text}]]
    function response(status, headers, body)
      if status == 429 then
        local after = tonumber(headers["Retry-After"])
        count(after and after >= 1 and after <= 60 and body:find('"queue_full"', 1, true) and "busy" or "wrong")
      elseif status == 200 then count(body:find(want, 1, true) and "ok" or "wrong")
      else count("other") end
    end`);
  // 4/5 of it is all that one client gets
  await until('the queue is full', async () => (await node.metrics()).shoal_requests_waiting >= 14);
  const took = [], places = [];
  let most = 0;
  for (const end = Date.now() + 6000; Date.now() < end || (second && took.length < 4); ) {
    if (!second) {
      await new Promise((r) => setTimeout(r, 100));
      continue;
    }
    const t = Date.now();
    assert.deepEqual(await answer(node.url, o, { from: second }), want); // 200, whenever it comes
    took.push(Date.now() - t);
    most = Math.max(most, (await node.metrics()).shoal_requests_waiting);
    const r = await ask(node.url, body({ ...o, stream: true }), { from: second });
    assert.equal(r.status, 200);
    assert.match(r.text, /\[DONE\]\n\n$/);
    for (const [, before] of r.text.matchAll(/^: queue: (\d+) before/gm)) places.push(Number(before));
  }
  assert.ok(!run.over);
  const c = await run.stop();
  assert.ok(c.ok > 0 && c.busy > 0, JSON.stringify(c));
  assert.deepEqual([c.other, c.wrong, c.connect, c.read, c.write, c.timeout], [0, 0, 0, 0, 0, 0]);
  if (second) {
    // the flood has 16 in the queue at any time, and yet nobody is before this one
    assert.ok(places.length > 0 && places.every((x) => x === 0), places.join(' '));
    assert.ok(most <= 20);
  } else console.log('     there is one address here: the part about turns is skipped');
  await idle(node);
  await until('descriptors are back', () => node.fds() === fds);
  console.log(`     ${c.ok} answers and ${c.busy} times 429 in ${c.seconds.toFixed(1)} s; the second client: ${took.length} answers, ` +
    `${Math.max(...took)} ms at most; ${(node.rss() - rss).toFixed(1)} MiB more`);
  assert.ok(node.rss() < rss + MEMORY, `memory ${rss} -> ${node.rss()} MiB`);
  assert.equal(await node.stop(), 0);
});

// ---- slow and vanishing ----

const head = (b) => `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n` +
  `Content-Length: ${Buffer.byteLength(b)}\r\n\r\n`;
const short = body({}), stream = body({ stream: true, max_tokens: 3000, ignore_eos: true });
const unread = body({ stream: true, max_tokens: 100, ignore_eos: true, logprobs: true, top_logprobs: 20 });
// Each takes a connection and gives what is known when it is over (or true).
const drip = (s, text, ms) => { let i = 0; const t = setInterval(() => (i < text.length && s.writable ? s.write(text[i++]) : clearInterval(t)), ms); };
const closed = (s) => new Promise((r) => s.once('close', () => r(true)));
const said = (s) => { let text = ''; s.on('data', (d) => (text += d)); return closed(s).then(() => text); };
const at = (s, event, f) => { s.once('data', () => {}); said(s); let n = 0; s.on('data', () => { if (++n === event) f(); }); return closed(s); };
const kinds = {
  'headers byte by byte': (s) => { drip(s, head(short) + short, 8); return said(s); },
  'a body byte by byte': (s) => { s.write(head(short)); drip(s, short, 25); return said(s); },
  'a stream that is not read': (s) => { s.pause(); s.write(head(unread) + unread); return true; },
  'half-closed within a stream': (s) => { s.write(head(stream) + stream); return at(s, 3, () => s.end()); },
  'reset within a stream': (s) => { s.write(head(stream) + stream); return at(s, 3, () => s.resetAndDestroy()); },
  'reset within a body': (s) => { s.write(head(short) + short.slice(0, 40)); setTimeout(() => s.resetAndDestroy(), 300); return closed(s); },
  'gone within the headers': (s) => { s.write(head(short).slice(0, 60)); setTimeout(() => s.destroy(), 300); return closed(s); },
  'gone in the queue': (s) => { s.write(head(stream) + stream); setTimeout(() => s.destroy(), 600); return closed(s); },
};

const node = await serve({ batch: 4, queue: 300 });
const want = await answer(node.url, {});
const connect = () => { const { hostname, port } = new URL(node.url); const s = net.connect(port, hostname); s.on('error', () => {}); return s; };
const before = { m: await node.metrics(), fds: await settled(node), rss: node.rss() };

await check(`${CLIENTS} clients that are slow or vanish, each at its own stage`, async () => {
  const names = Object.keys(kinds), sockets = [], ends = Object.fromEntries(names.map((n) => [n, []]));
  for (let i = 0; i < CLIENTS; i++) {
    const s = connect(), name = names[i % names.length];
    sockets.push(s);
    ends[name].push(kinds[name](s));
  }
  await until('they are connected', () => node.fds() >= before.fds + CLIENTS / 2);
  const took = [];
  let most = 0, over = false;
  const slow = Promise.all(Object.values(ends).flat()).then(() => (over = true));
  for (let i = 0; i < 3 || !over; i++) {
    const t = Date.now();
    assert.deepEqual(await answer(node.url, {}, { from: second }), want);
    assert.equal((await ask(node.url, null, { path: '/health' })).status, 200);
    took.push(Date.now() - t);
    most = Math.max(most, node.rss());
  }
  await slow;
  for (const name of names.slice(0, 2)) for (const text of await Promise.all(ends[name])) { // slow, and served all the same
    assert.match(text, /^HTTP\/1.1 200/);
    assert.ok(text.includes(JSON.stringify(want.choices[0].message.content)), text);
  }
  sockets.forEach((s) => s.destroy());
  await idle(node);
  const m = await node.metrics();
  // work had begun for the readers that went, in a stream or in the queue; the others never had any
  assert.ok(m.shoal_requests_cancelled_total - before.m.shoal_requests_cancelled_total >= 3 * (CLIENTS / names.length));
  assert.equal(m.shoal_requests_failed_total, before.m.shoal_requests_failed_total);
  await until('descriptors are back', () => node.fds() === before.fds);
  console.log(`     others served ${took.length} times, ${Math.max(...took)} ms at most; ${(most - before.rss).toFixed(1)} MiB more at most, ` +
    `${(node.rss() - before.rss).toFixed(1)} afterwards`);
  assert.ok(most < before.rss + MEMORY, `memory ${before.rss} -> ${most} MiB`);
});

await check('it ended by itself', async () => assert.equal(await node.stop(), 0));
finish();
