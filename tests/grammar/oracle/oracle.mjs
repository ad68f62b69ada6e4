// SPDX-License-Identifier: MIT
// oracle.mjs: node/grammar judged by ajv, an independent validator of JSON Schema (draft 2020-12):
// - whatever is drawn at random from masks alone is JSON and valid;
// - valid values, made here and written in the schema's order, are accepted, in three spellings of blanks;
// - what ajv finds invalid is never accepted;
// - the arguments of strict tool calls, drawn and read back by the parser, are valid;
// - what is drawn for zod's own types, zod takes;
// - what is not kept is refused by its place.
// usage: node oracle.mjs GRAM_DRIVER [DRAWS]
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import Ajv from 'ajv/dist/2020.js';
import formats from 'ajv-formats';
import { z } from 'zod';
import { calls, cases, refused, refusedCalls } from './cases.mjs';
import { refusedZods, zods } from './zods.mjs';

const [program, draws = '12'] = process.argv.slice(2);
const child = spawn(program, [], { stdio: ['pipe', 'pipe', 'inherit'] });
const waiting = [];
createInterface({ input: child.stdout }).on('line', (l) => waiting.shift()(JSON.parse(l)));
child.on('exit', (code) => { if (code) { console.log('gram_driver ended with ' + code); process.exit(1); } });
const ask = (q) => new Promise((resolve) => { waiting.push(resolve); child.stdin.write(JSON.stringify(q) + '\n'); });

let failed = 0, drawn = 0, made = 0, wrong = 0, open = 0;
function fail(schema, why) {
  failed++;
  console.log(`FAIL ${JSON.stringify(schema).slice(0, 300)}\n     ${why}`);
}
const ajv = formats(new Ajv({ strict: false, validateFormats: true, ownProperties: true, logger: false }));

// ---- values made here

let state = 1;
const random = () => { state = (Math.imul(state, 1664525) + 1013904223) >>> 0; return state / 2 ** 32; };
const pick = (l) => l[Math.floor(random() * l.length)];
const between = (a, b) => a + Math.floor(random() * (b - a + 1));
const letters = ['a', 'b', ' ', 'é', '中', '😀', '"', '\\', '\n', '\u0001', '/', '<', '0'];
function anything(depth) {
  return pick([() => null, () => random() < 0.5, () => between(-99, 99), () => 0.5, () => pick(letters), () => (depth ? [anything(depth - 1)] : []), () => (depth ? { [pick(letters)]: anything(depth - 1) } : {})])();
}
const follow = (root, s) => {
  while (s.$ref !== undefined)
    s = s.$ref === '#' ? root : s.$ref.slice(2).split('/').reduce((v, k) => v[decodeURIComponent(k).replace(/~1/g, '/').replace(/~0/g, '~')], root);
  return s;
};
// A value that should fit, or undefined. Objects have their members in the schema's order.
function make(root, s, depth) {
  if (s === true || Object.keys(s).length === 0) return anything(2);
  s = follow(root, s);
  if (s.const !== undefined) return s.const;
  if (s.enum) return pick(s.enum);
  const some = s.anyOf ?? s.oneOf ?? s.allOf;
  if (some) return make(root, depth > 0 ? pick(some) : some.find((x) => !JSON.stringify(x).includes('$ref')) ?? some[0], depth - 1);
  const type = Array.isArray(s.type) ? pick(s.type) : s.type ?? pick(['null', 'object', 'string', 'integer']);
  switch (type) {
    case 'null': return null;
    case 'boolean': return random() < 0.5;
    case 'string': {
      if (s.pattern !== undefined || (s.format && s.format !== 'hostname-of-mine')) return undefined;
      const n = between(s.minLength ?? 0, s.maxLength ?? (s.minLength ?? 0) + 5);
      return Array.from({ length: n }, () => pick(letters)).join('');
    }
    case 'integer': case 'number': {
      const lo = Math.max(s.minimum ?? -1e6, s.exclusiveMinimum ?? -1e6, -1e6), hi = Math.min(s.maximum ?? 1e6, s.exclusiveMaximum ?? 1e6, 1e6);
      if (lo > hi) return undefined;
      const v = between(Math.ceil(lo), Math.floor(hi));
      return type === 'number' && s.multipleOf === undefined && random() < 0.5 ? Number((lo + random() * (hi - lo)).toFixed(between(1, 4))) : v;
    }
    case 'array': {
      const first = s.prefixItems ?? [], least = Math.max(s.minItems ?? 0, first.length);
      const n = s.items === false ? first.length : s.prefixItems && s.items === undefined ? least : between(least, Math.min(s.maxItems ?? 99, least + (depth > 0 ? 2 : 0)));
      return Array.from({ length: n }, (_, i) => make(root, first[i] ?? s.items ?? true, depth - 1));
    }
    default: {
      if (!s.properties && s.additionalProperties === undefined) return anything(2) && { [pick(letters)]: anything(1) };
      const v = new Map(), required = new Set(s.required ?? []);
      for (const [k, x] of Object.entries(s.properties ?? {})) if (required.has(k) || random() < 0.5) v.set(k, make(root, x, depth - 1));
      if (s.additionalProperties && !v.size) v.set('zz' + between(0, 9), make(root, s.additionalProperties, depth - 1));
      if (v.has('__proto__') || [...v.values()].includes(undefined)) return undefined;
      return Object.fromEntries(v);
    }
  }
}
// JSON with members in the schema's order (JSON.stringify would put keys such as "0" first; there are none here).
const spell = [(v) => JSON.stringify(v), (v) => JSON.stringify(v, null, 2), (v) => JSON.stringify(v, null, '\t'), (v) => spaced(v)];
function spaced(v) { // ", " and ": ", as Python writes it
  if (Array.isArray(v)) return '[' + v.map(spaced).join(', ') + ']';
  if (v && typeof v === 'object') return '{' + Object.entries(v).map(([k, x]) => JSON.stringify(k) + ': ' + spaced(x)).join(', ') + '}';
  return JSON.stringify(v);
}
// Something near the value.
function spoil(v) {
  if (Array.isArray(v)) return pick([() => [...v, anything(1)], () => v.slice(1), () => v.map((x, i) => (i === 0 ? spoil(x) : x)), () => ({})])();
  if (v && typeof v === 'object') {
    const e = Object.entries(v);
    return Object.fromEntries(pick([() => e.slice(1), () => [...e, ['zq', anything(1)]], () => e.map(([k, x], i) => [k, i === e.length - 1 ? spoil(x) : x]), () => e.map(([k, x], i) => [i ? k : k + 'x', x]), () => [...e].reverse()])());
  }
  if (typeof v === 'string') return pick([v + 'x', v.slice(1), v + v, 3, null, 'A' + v]);
  if (typeof v === 'number') return pick([v + 1, v - 1, v * 10, v + 0.5, -v, String(v), 1e5, null]);
  return pick([0, 'true', null, true, [], {}]);
}

// ---- schemas

for (const [i, c] of cases.entries()) {
  let valid;
  try {
    valid = ajv.compile(c.schema === true ? {} : c.schema);
  } catch (e) {
    fail(c.schema, 'ajv does not take it: ' + e.message);
    continue;
  }
  state = i + 1;
  const texts = [], want = [];
  const wanted = (v, must) => {
    const fine = valid(v);
    if (must && !fine) fail(c.schema, `the case itself is wrong: ${JSON.stringify(v)}: ${ajv.errorsText(valid.errors)}`);
    if (fine && !must) return;
    for (const f of fine && !c.compact ? spell : [spell[0]]) { texts.push(f(v)); want.push(fine); }
  };
  for (const v of c.yes ?? []) wanted(v, true);
  for (let k = 0; k < 12; k++) {
    const v = make(c.schema, c.schema, 3);
    if (v === undefined) continue;
    if (valid(v)) wanted(v, true);
    for (let n = 0; n < 3; n++) wanted(spoil(v), false);
  }
  for (let k = 0; k < 6; k++) wanted(anything(2), false);
  for (const t of c.no ?? []) { texts.push(t); want.push(false); }
  const r = await ask({ schema: c.schema, draw: Number(draws), seed: i + 1, most: c.most ?? 200, fits: texts });
  if (r.error) { fail(c.schema, 'refused: ' + r.error); continue; }
  r.fits.forEach((f, k) => {
    want[k] ? made++ : wrong++;
    if (f !== want[k]) fail(c.schema, `${JSON.stringify(texts[k])} should${want[k] ? '' : ' not'} fit`);
  });
  open += r.open;
  if (!r.drawn.length && !c.free) fail(c.schema, 'no text that was drawn came to its end');
  for (const t of r.drawn) {
    drawn++;
    try {
      if (!valid(JSON.parse(t))) fail(c.schema, `drawn: ${JSON.stringify(t)}: ${ajv.errorsText(valid.errors)}`);
    } catch (e) { fail(c.schema, `drawn: ${JSON.stringify(t)} is no JSON: ${e.message}`); }
  }
}

for (const [i, schema] of calls.entries()) {
  const valid = ajv.compile(schema), r = await ask({ schema, draw: 2 * Number(draws), seed: i + 77, most: 400, call: true });
  if (r.error || !r.drawn.length) { fail(schema, 'arguments: ' + (r.error ?? 'none came to its end')); continue; }
  for (const t of r.drawn) {
    drawn++;
    if (!valid(JSON.parse(t))) fail(schema, `arguments drawn: ${t}: ${ajv.errorsText(valid.errors)}`);
  }
}
// What zod makes of its types, judged by zod itself; and each text fits the pattern that came with it.
for (const [i, [name, [type, yes, no, decides]]] of Object.entries(zods).entries()) {
  const schema = z.toJSONSchema(z.object({ v: type })), pattern = schema.properties.v.pattern;
  const text = (v) => JSON.stringify({ v });
  for (const v of yes) if (!type.safeParse(v).success) fail(schema, `${name}: the case itself is wrong: ${JSON.stringify(v)}`);
  const r = await ask({ schema, draw: 3 * Number(draws), seed: i + 7, most: 300, fits: [...yes, ...no].map(text) });
  if (r.error || !r.drawn.length) { fail(schema, `${name}: ${r.error ?? 'no text that was drawn came to its end'}`); continue; }
  r.fits.forEach((f, k) => { if (f !== k < yes.length) fail(schema, `${name}: ${text([...yes, ...no][k])} should${f ? ' not' : ''} fit`); });
  for (const t of r.drawn) {
    drawn++;
    const v = JSON.parse(t).v;
    if (!decides && !type.safeParse(v).success) fail(schema, `${name}: zod does not take what was drawn: ${t}`);
    if (pattern !== undefined && !new RegExp(pattern, 'u').test(v)) fail(schema, `${name}: drawn against its pattern: ${t}`);
  }
}
for (const type of refusedZods) {
  const schema = z.toJSONSchema(type), r = await ask({ schema, draw: 1 });
  if (!/^schema\./.test(r.error ?? '')) fail(schema, `should be refused, got ${JSON.stringify(r)}`);
}
for (const [schema, place] of refused) {
  const r = await ask({ schema, draw: 1 });
  if (!r.error?.startsWith(place + (place === 'schema' ? '' : ':'))) fail(schema, `should be refused at ${place}, got ${JSON.stringify(r)}`);
}
for (const schema of refusedCalls) {
  const r = await ask({ schema, draw: 1, call: true });
  if (!r.error?.startsWith('tools.f.parameters')) fail(schema, `should be refused as arguments, got ${JSON.stringify(r)}`);
}
child.stdin.end();
console.log(`${cases.length} schemas and ${calls.length} argument lists, ${Object.keys(zods).length} types of zod: ${drawn} drawn texts judged (${open} did not end in time), ${made} valid and ${wrong} invalid ones tried, ${refused.length + refusedCalls.length} refusals; ${failed} failed`);
process.exitCode = failed ? 1 : 0;
