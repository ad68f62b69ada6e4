// SPDX-License-Identifier: MIT
// classes.mjs: compares node/text/unicode_tables.c with the classes of the oracle's regular
// expression engine and with those of JavaScript's, for every code point.
// Run: node classes.mjs NODE_TEXT (the folder node/text; prints differences, exit 1 when the oracle
// differs; JavaScript's Unicode may be another version, so its differences are only reported).
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Tiktoken } from 'tiktoken/lite';

const [folder] = process.argv.slice(2);
if (!folder) throw new Error('usage: node classes.mjs NODE_TEXT');
const numbers = (text, name) => text.match(new RegExp(`${name}\\[\\d+\\] = \\{([^}]*)\\}`))[1]
  .split(',').map((s) => s.trim()).filter(Boolean).map(Number);
const table = readFileSync(join(folder, 'unicode_tables.c'), 'utf8');
const flagsOf = numbers(table, 'unicode_flags');
const index = numbers(table, 'unicode_index');
const block = numbers(table, 'unicode_block');
const header = readFileSync(join(folder, 'unicode_class.h'), 'utf8');
const bits = Object.fromEntries(
  [...header.matchAll(/^#define UC_(\w+) (0x[0-9a-f]+)/gm)].map((m) => [m[1], Number(m[2])]));
const ours = (c) => flagsOf[block[index[c >> 6] * 64 + (c & 63)]];

const classes = {
  UPPER: ['[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]', /(?!\p{Script=Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]/u],
  LOWER: ['[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]', /(?!\p{Script=Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}]/u],
  LETTER: ['\\p{L}', /\p{L}/u],
  NUMBER: ['\\p{N}', /\p{N}/u],
  HAN: ['\\p{Han}', /\p{Script=Han}/u],
  SPACE: ['\\s', /\p{White_Space}/u],
  CRLF: ['[\\r\\n]', /[\r\n]/u],
};

const scalars = [];
for (let c = 0; c < 0x110000; c++) if (c < 0xd800 || c > 0xdfff) scalars.push(c);
// An encoder whose pattern is one class, with the 256 bytes as its vocabulary, keeps of a text
// exactly the code points of that class.
const bytes = `! 0 ${Array.from({ length: 256 }, (_, b) => Buffer.from([b]).toString('base64')).join(' ')}`;
const ranges = (list) => {
  const out = [];
  for (const c of list) {
    if (out.length && out.at(-1)[1] === c - 1) out.at(-1)[1] = c;
    else out.push([c, c]);
  }
  return out.map(([a, b]) => (a === b ? a.toString(16) : `${a.toString(16)}..${b.toString(16)}`)).join(' ');
};

let wrong = 0;
for (const [name, [rust, js]] of Object.entries(classes)) {
  const enc = new Tiktoken(bytes, {}, rust);
  const theirs = new Set();
  for (let at = 0; at < scalars.length; at += 10000) {
    const text = scalars.slice(at, at + 10000).map((c) => String.fromCodePoint(c)).join('');
    const kept = Buffer.from(enc.encode_ordinary(text)).toString('utf8');
    for (const ch of kept) theirs.add(ch.codePointAt(0));
  }
  const mine = scalars.filter((c) => ours(c) & bits[name]);
  const oracle = scalars.filter((c) => !!(ours(c) & bits[name]) !== theirs.has(c));
  const script = scalars.filter((c) => !!(ours(c) & bits[name]) !== js.test(String.fromCodePoint(c)));
  wrong += oracle.length;
  console.log(`${name}: ${mine.length} code points; ${oracle.length} differ from the oracle`
    + `${oracle.length ? ` (${ranges(oracle)})` : ''}; ${script.length} from JavaScript with Unicode `
    + `${process.versions.unicode}${script.length ? ` (${ranges(script)})` : ''}`);
  enc.free();
}
process.exit(wrong ? 1 : 0);
