// SPDX-License-Identifier: MIT
// compare.mjs: the C tokenizer against the oracle with the 200k vocabulary of the npm package, in
// both modes: every text of texts.mjs, the long runs, and random strings.
// Run: node compare.mjs DRIVER [STRINGS] (DRIVER: the built tok_driver; STRINGS: default 100000)
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Oracle, bigRanks, randomText } from './oracle.mjs';
import { build, long, pools, texts } from './texts.mjs';

const [driver, count = '100000'] = process.argv.slice(2);
if (!driver) throw new Error('usage: node compare.mjs DRIVER [STRINGS]');
const tokens = bigRanks();
const named = ['[BOS]', '[EOS]', '<|end_of_msg|>', '<|open|>', '<|close|>', '<|sep|>'];
const config = { added_tokens_decoder: {} };
named.forEach((content, i) => {
  config.added_tokens_decoder[tokens.length + i] = { content, special: i < 3 };
});
const oracle = new Oracle(tokens, config);

const dir = mkdtempSync(join(tmpdir(), 'shoal-oracle-'));
const ranksFile = join(dir, 'ranks');
const configFile = join(dir, 'config.json');
writeFileSync(ranksFile, tokens.map((t, i) => `${t} ${i}\n`).join(''));
writeFileSync(configFile, JSON.stringify(config));
const child = spawn(driver, [ranksFile, configFile], { stdio: ['pipe', 'pipe', 'inherit'] });

// Answers are read as a stream of 32-bit numbers; at most a few requests are under way at once.
let pending = Buffer.alloc(0);
const chunks = child.stdout[Symbol.asyncIterator]();
async function read(n) {
  const parts = [pending];
  let have = pending.length;
  while (have < n) {
    const { value, done } = await chunks.next();
    if (done) throw new Error('the driver ended early');
    parts.push(value);
    have += value.length;
  }
  const all = parts.length === 1 ? parts[0] : Buffer.concat(parts);
  pending = all.subarray(n);
  return all.subarray(0, n);
}

let compared = 0;
let ids = 0;
async function batch(items) {
  const out = [];
  for (const { text, bytes, trusted } of items) {
    const body = bytes ?? Buffer.from(text, 'utf8');
    const head = Buffer.alloc(5);
    head[0] = trusted ? 1 : 0;
    head.writeUInt32LE(body.length, 1);
    out.push(head, body);
  }
  child.stdin.write(Buffer.concat(out));
  for (const { name, text, trusted } of items) {
    const want = oracle.encode(text, trusted);
    const n = (await read(4)).readUInt32LE(0);
    const raw = await read(4 * n);
    const have = Array.from({ length: n }, (_, i) => raw.readUInt32LE(4 * i));
    const at = want.findIndex((id, i) => id !== have[i]);
    if (at >= 0 || want.length !== have.length) {
      console.error(`${name}, trusted ${trusted}: differs from id ${at}: oracle `
        + `${want.slice(at, at + 8)} (${want.length} ids), here ${have.slice(at, at + 8)} (${n} ids)`);
      console.error(JSON.stringify(text.slice(0, 400)));
      process.exitCode = 1;
    }
    compared++;
    ids += n;
  }
}

const both = (name, text) => [{ name, text, trusted: false }, { name, text, trusted: true }];
for (const [name, text] of Object.entries(texts)) await batch(both(name, text));
// The oracle's merges take quadratic time in a long piece: the long runs are shortened to one
// slice and a bit, save those that are about the 400,000 code points and quick.
const shorter = (name, parts) => (name.startsWith('guard') ? parts
  : parts.map(([s, times]) => [s, Math.min(times, Math.ceil(26000 / s.length))]));
for (const [name, parts] of Object.entries(long)) {
  await batch([{ name, text: build(shorter(name, parts)), trusted: true }]);
}
// Bytes that are no UTF-8 count as the text that a WHATWG decoder makes of them.
const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
for (let i = 0; i < 40; i++) {
  const items = [];
  for (let k = 0; k < 250; k++) {
    const bytes = Buffer.from(randomText(pools, 7000000 + 250 * i + k), 'utf8');
    for (let at = k % 5; at < bytes.length; at += 1 + (at * 7 + k) % 11) bytes[at] += 1 + (at * 31 + k) % 255;
    items.push({ name: `bytes ${i} ${k}`, text: decoder.decode(bytes), bytes, trusted: k % 2 === 1 });
  }
  await batch(items);
}
const first = 1 << 20; // other seeds than the fixture's
for (let i = 0; i < Number(count); i += 500) {
  const items = [];
  for (let k = i; k < Math.min(i + 500, Number(count)); k++) {
    items.push({ name: `seed ${first + k}`, text: randomText(pools, first + k), trusted: k % 2 === 1 });
  }
  await batch(items);
}
child.stdin.end();
await new Promise((done) => { child.on('close', done); });
rmSync(dir, { recursive: true });
console.log(`${compared} texts compared, ${ids} ids, ${process.exitCode ? 'DIFFERENCES' : 'all equal'}`);
