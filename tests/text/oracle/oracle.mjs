// SPDX-License-Identifier: MIT
// oracle.mjs: the released tokenizer's rules around the npm package tiktoken, which does the
// regular expression and the merges. Nothing here is shared with the C code but the rules.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { Tiktoken } from 'tiktoken/lite';

const contraction = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?";
const upper = '[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]';
const lower = '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]';
export const PATTERN = [
  '[\\p{Han}]+',
  `[^\\r\\n\\p{L}\\p{N}]?${upper}*${lower}+${contraction}`,
  `[^\\r\\n\\p{L}\\p{N}]?${upper}+${lower}*${contraction}`,
  '\\p{N}{1,3}',
  ' ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*',
  '\\s*[\\r\\n]+',
  '\\s+(?!\\S)',
  '\\s+',
].join('|');

// tiktoken's own packed form: "! FIRST_RANK TOKEN TOKEN ...".
const pack = (tokens) => `! 0 ${tokens.join(' ')}`;

export function demoRanks(path) {
  return readFileSync(path, 'latin1').trimEnd().split('\n').map((line) => line.split(' ')[0]);
}

// The 200k vocabulary that comes with the package.
export function bigRanks() {
  const json = createRequire(import.meta.url)('tiktoken/encoders/o200k_base.json');
  const tokens = [];
  for (const line of json.bpe_ranks.split('\n')) {
    const [, first, ...rest] = line.split(' ');
    rest.forEach((t, i) => { tokens[Number(first) + i] = t; });
  }
  if (tokens.includes(undefined)) throw new Error('the ranks have holes');
  return tokens;
}

export function specialNames(count, config) {
  const names = {};
  for (let id = count; id < count + 256; id++) {
    const named = config?.added_tokens_decoder[id];
    names[named ? named.content : `<|reserved_token_${id}|>`] = id;
  }
  return names;
}

const PYTHON_SPACE = new Set([0x20, 0x85, 0xa0, 0x1680, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000]);
for (let c = 0x09; c <= 0x0d; c++) PYTHON_SPACE.add(c);
for (let c = 0x1c; c <= 0x1f; c++) PYTHON_SPACE.add(c);
for (let c = 0x2000; c <= 0x200a; c++) PYTHON_SPACE.add(c);

// The length guards: every 400,000 code points, then every 25,000 of one class in a row.
export function slices(text) {
  const out = [];
  const all = Array.from(text);
  for (let at = 0; at < all.length; at += 400000) {
    const block = all.slice(at, at + 400000);
    let start = 0;
    let length = 0;
    let space = PYTHON_SPACE.has(block[0].codePointAt(0));
    for (let i = 0; i < block.length; i++) {
      const now = PYTHON_SPACE.has(block[i].codePointAt(0));
      if (now !== space) {
        length = 1;
        space = now;
      } else if (++length > 25000) {
        out.push(block.slice(start, i).join(''));
        start = i;
        length = 1;
      }
    }
    out.push(block.slice(start).join(''));
  }
  return out;
}

export class Oracle {
  constructor(tokens, config) {
    this.enc = new Tiktoken(pack(tokens), specialNames(tokens.length, config), PATTERN);
  }
  encode(text, trusted) {
    const ids = [];
    for (const s of slices(text)) {
      const part = trusted ? this.enc.encode(s, 'all', []) : this.enc.encode_ordinary(s);
      for (const id of part) ids.push(id);
    }
    return ids;
  }
}

// A 64-bit FNV-1a over lists of ids, each list preceded by its length, 4 bytes little-endian each.
export function hashIds(lists) {
  let h = 0xcbf29ce484222325n;
  const put = (v) => {
    for (let k = 0; k < 4; k++) {
      h = BigInt.asUintN(64, (h ^ BigInt((v >>> (8 * k)) & 0xff)) * 0x100000001b3n);
    }
  };
  for (const ids of lists) {
    put(ids.length);
    ids.forEach(put);
  }
  return h.toString(16).padStart(16, '0');
}

// The random strings: t_tok_oracle.c makes the same ones from the same pools and seeds.
export function randomText(pools, seed) {
  let x = (Math.imul(seed, 2654435761) ^ 0x9e3779b9) >>> 0 || 1;
  const next = (n) => {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    x >>>= 0;
    return x % n;
  };
  const items = 1 + next(40);
  let pool = pools[next(pools.length)];
  let text = '';
  for (let i = 0; i < items; i++) {
    if (next(4) === 0) pool = pools[next(pools.length)];
    let item;
    if (pool.length) {
      item = pool[next(pool.length)];
    } else { // the empty pool stands for any code point
      const c = next(0x110000 - 0x800);
      item = String.fromCodePoint(c < 0xd800 ? c : c + 0x800);
    }
    text += item.repeat(next(8) === 0 ? 1 + next(12) : 1);
  }
  return text;
}
