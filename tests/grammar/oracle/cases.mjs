// SPDX-License-Identifier: MIT
// cases.mjs: schemas over every keyword that node/grammar keeps, and combinations of them. `yes`: values beyond the
// generated ones that must be accepted; `no`: texts that must not; `most`: tokens of one drawn text; `free`: a drawn text
// need not come to its end in so many; `compact`: a constant is written without blanks only.
const o = (properties, more = {}) => ({ type: 'object', properties, required: Object.keys(properties), additionalProperties: false, ...more });
const str = (more) => ({ type: 'string', ...more }), int = (more) => ({ type: 'integer', ...more }), num = (more) => ({ type: 'number', ...more });
const arr = (items, more) => ({ type: 'array', items, ...more });

export const cases = [];
const add = (schema, more = {}) => cases.push({ schema, ...more });

// types, alone and in lists
for (const type of ['string', 'integer', 'number', 'boolean', 'null', 'object', 'array']) add({ type });
add({}, { yes: [[1, { a: null }], 'x', -0.5] });
add(true);
add({ description: 'only words', title: 't', default: 3, examples: [1] });
for (const type of [['string', 'null'], ['integer', 'boolean'], ['number', 'integer'], ['array', 'object'], ['object', 'null', 'string']]) add({ type });
add({ type: 'string', nullable: true }, { yes: [null] });
add(o({ a: { type: 'integer', nullable: true } }), { yes: [{ a: null }] });

// constants
add({ enum: ['red', 'green', 'blue'] }, { no: ['"re"', '"redd"'] });
add({ enum: [1, -2.5, 1e21, 0, true, null, 'x', { a: [1, { b: null }] }, []] }, { compact: true });
add({ type: 'string', enum: ['a', 'é€😀', '"\\/\b\f\n\r\t\u0001', '', 'a"b', '</script>', '<|opens'] });
add({ type: 'integer', enum: [1, 2, 'x', null] }, { no: ['"x"', 'null'] });
add({ const: 'only' });
add({ const: { deep: [{ er: 'é' }, 1.5] } }, { compact: true });
add({ type: ['string', 'null'], enum: ['a', null] });
add({ type: 'string', enum: ['a', 'abc', 'abcdef'], minLength: 2, maxLength: 3 }, { no: ['"a"', '"abcdef"'] });
add({ enum: [1, 5, 9, 'x'], minimum: 3, exclusiveMaximum: 9 }, { no: ['1', '9'] });
add({ enum: [[], [1], [1, 2]], minItems: 1, maxItems: 1 }, { no: ['[]'], compact: true });

// strings
for (const [a, b] of [[0, 0], [1, 1], [0, 3], [2, 5], [7], [undefined, 2]]) add(str({ minLength: a, maxLength: b }), { yes: (b ?? 9) >= 2 && (a ?? 0) <= 2 ? ['é😀'] : [] });
for (const format of ['date', 'time', 'date-time', 'uuid', 'ipv4', 'email']) add(str({ format }), { most: 120 });
add(str({ format: 'date' }), { yes: ['2026-02-28', '1999-12-31'], no: ['"2026-02-30"', '"26-1-1"'] });
add(str({ format: 'date-time' }), { yes: ['2026-05-04T23:59:59Z', '2026-05-04T00:00:00.25+05:30'] });
add(str({ format: 'uuid', minLength: 36, maxLength: 36 }));
add(str({ format: 'email', maxLength: 254 }), { yes: ['a.b@example.com'] });
add(str({ format: 'hostname-of-mine' }), { free: true });
add(str({ format: 'hostname' }), { most: 120, free: true, yes: ['a', 'my-host.example.com', '10.0.0.1'], no: ['""', '"-a"', '"a..b"'] });
add(str({ format: 'duration' }), { yes: ['P1D', 'PT0S', 'P1Y2M3DT4H5M6S', 'P7W'], no: ['"P"', '"PT"', '"1D"'] });
add(str({ format: 'uri' }), { most: 120, free: true, no: ['""', '"x"', '"http://a b"', '"http://"'],
  yes: ['https://example.com', 'http://localhost:8080/a/b?c=d&e=%20#f', 'https://u:p@10.0.0.1/', 'file:///etc/hosts', 'mailto:a@b.c', 'urn:isbn:123', 'ssh://git@my-host.example.com/x.git'] });
add(str({ format: 'date', pattern: '^20' }), { yes: ['2026-02-28'], no: ['"1999-01-01"', '"20"'] });
add(str({ format: 'email', minLength: 8, maxLength: 9 }), { most: 120, yes: ['ab@cd.com'], no: ['"a@b.cd"', '"abcd@ef.com"'] });
for (const [pattern, yes, no] of [
  ['^a+b*$', ['a', 'aab'], ['', 'b', 'abc']], ['^[A-Z]{2}-\\d{3,4}$', ['AB-123', 'ZZ-9999'], ['AB-12', 'ab-123']], ['foo', ['foo', 'xfooy'], ['fo', 'fxoo']],
  ['^(?:cat|dog|)$', ['cat', ''], ['cow']], ['^(a|b(c|d)*)+$', ['abcdb'], ['c', '']], ['^[^"\\\\]*$', ['abc é'], ['a"b', 'a\\b']], ['^\\w+\\s\\S$', ['a_1 é', 'x\u00a0y'], ['a  b']],
  ['^.{2,3}$', ['é😀', 'abc'], ['a', 'a\nb', 'abcd']], ['^[é-ü]$', ['ê'], ['e']], ['^[\\u4e00-\\u9fff]{1,2}$', ['中文'], ['ab']], ['^a?b??c*?$', ['', 'abcc'], ['ba']], ['^x|y$', ['xa', 'ay'], ['ax']],
  ['^\\D\\W\\d$', ['a-1'], ['1-1']], ['^[\\d\\-x]+$', ['1-x'], ['a']], ['^(ab){2}(?:c{0,1}d){1,}$', ['ababd', 'ababcdd'], ['abd']], ['\\.', ['a.b', '.'], ['ab']], ['^\\t\\n"\\\\$', ['\t\n"\\'], ['tn']], ['', ['', 'x'], []],
  ['^[a-f0-9]{8}$', ['deadbeef'], ['xyz']], ['^\\+?[1-9][0-9]{1,14}$', ['+4912345'], ['+0']], ['^#(?:[0-9a-fA-F]{3}){1,2}$', ['#fff', '#a0B1c2'], ['#ff']], ['^😀*$', ['', '😀😀'], ['x']], ['[^\\s]', ['a', ' a '], ['', '  ']],
  ['^(?=.*\\d)(?=.*[a-z])(?!.*--)[a-z\\d-]{4,9}$', ['a1-b', 'x-9-x'], ['abcd', 'a1--', '1234']], ['^(?!foo|bar$)\\w+$', ['fo', 'barx', 'ba'], ['foo', 'food', 'bar']], ['(?=a)', ['a', 'xax'], ['', 'b']], ['(?!a)', ['', 'a', 'b'], []],
  ['^(?:a$|b)', ['a', 'b', 'bx'], ['ax', '']], ['^(?:(?!ab)[a-z]{2}|x(?=y)).?$', ['ac', 'xy', 'acz', 'x'].slice(0, 3), ['ab', 'x']], ['^a(?=b(?!c)).*$', ['ab', 'abd'], ['a', 'abc']], ['^(?=[é-ü😀]).{2}$', ['éa', '😀😀'], ['aé']], ['x(?!y)', ['x', 'xyx', 'ax'], ['xy', 'y']],
  ['^(?!\\.)(?!.*\\.\\.)([\\w.]*)\\w@(\\w+\\.)+[a-z]{2,}$', ['a.b@c.de'], ['.a@b.cd', 'a..b@c.de', 'a.@b.cd']], ['^P(?:(\\d+W)|(?!.*W)(?=\\d|T\\d)(\\d+Y)?(\\d+M)?(\\d+D)?(T(?=\\d)(\\d+H)?(\\d+M)?(\\d+([.,]\\d+)?S)?)?)$', ['P3W', 'PT1H', 'P1DT2M'], ['P', 'P1DT', 'P1WT1H']],
]) add(str({ pattern }), { yes, no: no.map((t) => JSON.stringify(t)), most: 120, free: true });

for (const [pattern, minLength, maxLength, yes, no] of [['^a', 2, 3, ['ab', 'aé😀'], ['a', 'abcd']], ['x', 0, 2, ['x', 'ax'], ['axb', 'aa']], ['^[a-z]+$', 3, undefined, ['abc'], ['ab', 'abC']], ['^(ab)*$', 3, 5, ['abab'], ['ab', 'ababab', 'aba']], ['^(?!a).*$', 1, 1, ['b', '"', '\n'].slice(0, 2), ['a', '']]])
  add(str({ pattern, minLength, maxLength }), { yes, no: no.map((t) => JSON.stringify(t)), most: 120, free: true });

add({ type: 'string', allOf: [{ pattern: '^a' }, { pattern: 'b$' }, { type: 'string', minLength: 3 }, { maxLength: 5 }], maxLength: 9 }, { yes: ['axb', 'aabbb'], no: ['"ab"', '"axxxxb"', '"axbc"'], most: 120, free: true });
add({ type: 'string', allOf: [{ minLength: 2 }, { maxLength: 3 }] }, { yes: ['ab'], no: ['"a"', '"abcd"'] });
add({ type: 'string', format: 'email', allOf: [{ pattern: '^(?!.*x)' }, { pattern: '\\.de$' }] }, { yes: ['a.b@c.de'], no: ['"ax@b.de"', '"a@b.cd"'], most: 120, free: true });

// numbers
for (const [lo, hi] of [[0, 0], [0, 9], [1, 12], [-7, 7], [-130, -9], [5, 1000], [-1, 100000], [999, 1001]]) {
  add(int({ minimum: lo, maximum: hi }), { no: [String(lo - 1), String(hi + 1), '1.5'] });
  add(num({ minimum: lo, maximum: hi }), { no: [String(lo - 1), hi + '.001'].filter((t) => !/^-\d+\.001/.test(t)) });
  if (hi - lo > 1) {
    add(int({ exclusiveMinimum: lo, exclusiveMaximum: hi }), { no: [String(lo), String(hi)] });
    add(num({ exclusiveMinimum: lo, exclusiveMaximum: hi }), { no: [String(lo), String(hi), hi > 0 ? hi - 1 + '.9999999999999999' : '0'] });
  }
}
add(int({ minimum: 3 })); add(int({ maximum: -3 })); add(num({ minimum: 0 })); add(num({ maximum: 0 })); add(num({ exclusiveMinimum: 0 }), { yes: [0.25, 1e6] });
add(num({ exclusiveMaximum: 1, minimum: 0 }), { yes: [0, 0.5, 0.999], no: ['1', '0.99999999999999999'] });
add(int({ minimum: 1.5, maximum: 4.5 }), { no: ['1', '5'] }); add(int({ exclusiveMinimum: -2.5 }), { yes: [-2], no: ['-3'] });
add(num({ multipleOf: 1 }), { no: ['1.5'] }); add(int({ multipleOf: 1, minimum: 2 }));
add(num({ minimum: 2, exclusiveMinimum: 2, maximum: 9, exclusiveMaximum: 20 }), { no: ['2'] });
add(num({ exclusiveMinimum: 999999999999998 }), { yes: [999999999999999], no: ['999999999999998.01'] });
add(num({ minimum: -1e300, maximum: 1e300 })); add({ type: ['number', 'null'], minimum: 4, maximum: 6 });

// arrays
add(arr(int())); add(arr(str(), { minItems: 1 })); add(arr({ type: 'boolean' }, { minItems: 2, maxItems: 4 })); add(arr({}, { maxItems: 1 })); add(arr({ type: 'null' }, { minItems: 3, maxItems: 3 }));
add({ type: 'array', items: false }); add({ type: 'array', maxItems: 0 }); add(arr(arr(arr(int({ minimum: 0, maximum: 9 }), { maxItems: 2 }), { maxItems: 2 }), { maxItems: 2 }));
add({ type: 'array', prefixItems: [int(), str()], items: false }, { no: ['[1,"a",2]'] });
add({ type: 'array', prefixItems: [{ const: 'x' }, {}], items: { type: 'null' }, maxItems: 4 });
add({ type: 'array', prefixItems: [{ type: 'boolean' }], items: int(), minItems: 3 }, { yes: [[true, 1, 2]], no: ['[true,1]'] });
add({ type: 'array', prefixItems: [{ type: 'boolean' }], minItems: 2 });
add(arr({ $ref: '#/$defs/p' }, { $defs: { p: o({ x: num(), y: num() }) }, maxItems: 3 }));

// objects
add(o({})); add(o({ a: int() })); add(o({ a: int(), b: str(), c: { type: 'boolean' } })); add({ type: 'object', properties: { a: int(), b: int(), c: int() } });
for (let bits = 0; bits < 8; bits++) add({ type: 'object', properties: { a: int(), b: { const: 'b' }, c: arr(int(), { maxItems: 1 }) }, required: ['a', 'b', 'c'].filter((_, i) => (bits >> i) & 1) });
add({ type: 'object', additionalProperties: int() }); add({ type: 'object', additionalProperties: true, minProperties: 1 }, { no: ['{}'] }); add({ type: 'object', minProperties: 1 }, { no: ['{}'] });
add({ type: 'object', properties: { a: int() }, minProperties: 1 }, { no: ['{}'] }); add({ type: 'object', properties: { ab: int(), abc: str() }, additionalProperties: { type: 'boolean' } }, { yes: [{ ab: 1, abd: true }], no: ['{"ab":true}', '{"abc":true}'] });
add({ type: 'object', properties: { ä: int(), '中文': str(), 'a"b\\c': { type: 'null' }, '': int(), ' ': int(), '😀': int(), 'a.b/c~d%e': int() }, required: ['ä', '中文', 'a"b\\c', '', '😀'] });
add({ type: 'object', properties: { 'é': int() }, additionalProperties: str() }); add({ type: 'object', properties: { a: {}, b: true } }); add({ properties: { a: int() } }); add({ required: ['a'], properties: { a: int() } });
add(o({ a: o({ b: o({ c: o({ d: str({ maxLength: 2 }) }) }) }) })); add(o(Object.fromEntries([...Array(30).keys()].map((i) => ['key_' + i, int({ minimum: 0, maximum: 9 })]))), { most: 600 });
add({ type: 'object', properties: Object.fromEntries([...Array(20).keys()].map((i) => ['p' + i, { type: 'boolean' }])), additionalProperties: { type: 'null' } });
add({ type: 'object', properties: { toString: int(), constructor: str() }, required: ['constructor'] });

add({ type: 'object', propertyNames: { type: 'string' }, additionalProperties: int({ minimum: -9007199254740991, maximum: 9007199254740991 }) });

// alternatives
add({ anyOf: [int(), str({ maxLength: 3 })] }); add({ anyOf: [{ anyOf: [{ type: 'null' }, { anyOf: [{ const: 1 }, { const: 'x' }] }] }, arr(int(), { maxItems: 2 })] });
add({ anyOf: [o({ kind: { const: 'a' }, n: int() }), o({ kind: { const: 'b' }, s: str() })] }); add({ oneOf: [o({ kind: { const: 'a' }, n: int() }), o({ kind: { const: 'b' }, s: str() })] });
add({ oneOf: [int(), str(), { type: 'null' }] }); add({ oneOf: [{ enum: [1, 2] }, { enum: ['a', 3] }] }); add({ allOf: [o({ a: int() })] }); add({ allOf: [{ $ref: '#/$defs/x' }], $defs: { x: { enum: ['q'] } } });
add({ type: 'object', anyOf: [o({ a: int() }), o({ b: str() })] }); add({ type: ['integer', 'string'], anyOf: [int({ minimum: 5 }), { const: 'z' }] }); add(o({ v: { anyOf: [str(), { type: 'null' }] }, w: { oneOf: [{ type: 'boolean' }, arr(int(), { maxItems: 1 })] } }));
add(arr({ anyOf: [{ const: 'a' }, { const: 'ab' }, { const: 'abc' }] }, { maxItems: 3 }));
add({ anyOf: [{ type: 'object', properties: { a: int() } }, { type: 'object', properties: { a: str(), b: int() } }] });

// references
add({ $ref: '#/$defs/n', $defs: { n: o({ value: int(), next: { anyOf: [{ $ref: '#/$defs/n' }, { type: 'null' }] } }) } });
add({ anyOf: [int(), arr({ $ref: '#' })] }); add({ type: 'object', properties: { name: str({ maxLength: 4 }), children: arr({ $ref: '#' }) }, required: ['name', 'children'] });
add({ definitions: { a: { $ref: '#/definitions/b' }, b: str({ enum: ['x'] }) }, type: 'array', items: { $ref: '#/definitions/a' } });
add({ $defs: { 'a/b~c': int(), 'd e': str() }, type: 'array', prefixItems: [{ $ref: '#/$defs/a~1b~0c' }, { $ref: '#/$defs/d%20e' }], items: false });
add(o({ a: str({ maxLength: 1 }), b: { $ref: '#/properties/a' }, c: arr({ $ref: '#/properties/b' }, { maxItems: 2 }) }));
add({ $defs: { e: { anyOf: [{ type: 'number' }, o({ op: { enum: ['+', '*'] }, l: { $ref: '#/$defs/e' }, r: { $ref: '#/$defs/e' } })] } }, $ref: '#/$defs/e' }, { most: 400 });
add({ $defs: { even: { anyOf: [{ const: 'z' }, arr({ $ref: '#/$defs/odd' }, { minItems: 1, maxItems: 1 })] }, odd: arr({ $ref: '#/$defs/even' }, { minItems: 1, maxItems: 1 }) }, $ref: '#/$defs/even' });

// as clients make them
add({ $schema: 'https://json-schema.org/draft/2020-12/schema', type: 'object', title: 'Person', properties: { name: str({ description: 'n', minLength: 1, maxLength: 40 }), age: int({ minimum: 0, maximum: 150 }), email: { anyOf: [str({ format: 'email' }), { type: 'null' }], default: null }, born: str({ format: 'date' }), tags: arr(str({ maxLength: 8 }), { maxItems: 3, default: [] }) }, required: ['name', 'age', 'email', 'born', 'tags'], additionalProperties: false }, { most: 500 });
add(o({ steps: arr(o({ explanation: str(), output: str() }), { maxItems: 2 }), final_answer: str() }), { most: 400 });
add(o({ location: str({ description: 'city' }), unit: { type: ['string', 'null'], enum: ['C', 'F', null] }, days: int({ exclusiveMinimum: 0 }) }));
add(o({ items: arr({ oneOf: [o({ type: { const: 'text' }, text: str({ maxLength: 5 }) }), o({ type: { const: 'num' }, n: num() }), o({ type: { enum: ['x', 'y'] } })] }, { minItems: 1, maxItems: 3 }) }), { most: 400 });

// What must be refused, by its place: a keyword that would narrow it and is not kept.
export const refused = [
  [{ not: {} }, 'schema.not'], [{ type: 'object', patternProperties: {} }, 'schema.patternProperties'], [arr(int(), { uniqueItems: true }), 'schema.uniqueItems'], [num({ multipleOf: 0.5 }), 'schema.multipleOf'],
  [num({ minimum: 0.5 }), 'schema.minimum'], [{ type: 'string', pattern: '^aaaa', maxLength: 3 }, 'schema.pattern'], [str({ format: 'date', maxLength: 5 }), 'schema.format'], [str({ pattern: '(?<=a)b' }), 'schema.pattern'], [str({ pattern: '(?:(?=a)b)+' }), 'schema.pattern'], [str({ pattern: '(?<n>a)' }), 'schema.pattern'], [str({ pattern: '^(\\p{Emoji})+$' }), 'schema.pattern'], [str({ pattern: 'a\\b' }), 'schema.pattern'], [str({ pattern: 'a$b' }), 'schema.pattern'],
  [{ oneOf: [int(), num()] }, 'schema.oneOf'], [{ oneOf: [{ const: 1 }, { const: 1.0 }] }, 'schema.oneOf'], [{ oneOf: [{ enum: [{ a: 1, b: 2 }] }, { enum: [{ b: 2, a: 1 }] }] }, 'schema.oneOf'],
  [{ oneOf: [{ properties: { k: { const: 1 } }, required: ['k'] }, { properties: { k: { const: 2 } }, required: ['k'] }] }, 'schema.oneOf'], [{ oneOf: [str({ nullable: true }), { type: 'null' }] }, 'schema.oneOf'],
  [{ type: 'string', anyOf: [int(), str()] }, 'schema.type'], [{ anyOf: [str(), int()], minLength: 2 }, 'schema.minLength'], [{ allOf: [str()], maxLength: 2 }, 'schema.maxLength'], [{ allOf: [int(), num()] }, 'schema.allOf'], [{ type: 'string', allOf: [{ pattern: '^a' }, { pattern: '^b' }] }, 'schema.pattern'], [{ type: 'string', allOf: [{ minLength: 3 }, { maxLength: 2 }] }, 'schema.allOf'], [{ type: 'string', allOf: [{ pattern: '^a' }, { not: {} }] }, 'schema.allOf'], [{ anyOf: [int()], oneOf: [str()] }, 'schema.oneOf'],
  [{ enum: ['ab', 'c'], pattern: '^a' }, 'schema.pattern'], [{ const: 'a', enum: ['b'] }, 'schema.enum'], [{ type: 'string', const: 3 }, 'schema.const'], [{ const: 3, minimum: 4 }, 'schema.const'], [{ enum: [{ a: 1 }], required: ['b'] }, 'schema.required'],
  [{ type: 'array', prefixItems: [int(), int()], maxItems: 1 }, 'schema.maxItems'], [{ type: 'array', items: false, minItems: 1 }, 'schema.minItems'], [{ type: 'array', prefixItems: [int()], items: false, minItems: 2 }, 'schema.minItems'],
  [{ type: 'object', required: ['a'] }, 'schema.required[0]'], [{ type: 'object', minProperties: 2 }, 'schema.minProperties'], [{ type: 'object', maxProperties: 2 }, 'schema.maxProperties'], [{ $ref: '#/$defs/none' }, 'schema.$ref'], [{ $ref: 'https://example.com/x' }, 'schema.$ref'],
  [{ $ref: '#/$defs/a', minLength: 1, $defs: { a: str() } }, 'schema.minLength'], [o({ a: { $ref: '#' } }), 'schema'], [{ $defs: { a: { $ref: '#/$defs/a' } }, $ref: '#/$defs/a' }, 'schema.$ref'], [{ type: 'text' }, 'schema.type'], [{ type: [] }, 'schema.type'], [false, 'schema'], [3, 'schema'],
  [o({ a: o({ b: { if: {}, then: {} } }) }), 'schema.a.b.if'], [int({ minimum: 5, maximum: 4 }), 'schema'], [str({ minLength: 5, maxLength: 4 }), 'schema.maxLength'], [arr(int(), { contains: {} }), 'schema.contains'], [{ type: 'object', propertyNames: { pattern: '^a' } }, 'schema.propertyNames'], [{ type: 'object', dependentRequired: {} }, 'schema.dependentRequired'],
];

// Too much work: refused at once rather than looked at for minutes.
refused.push([o(Object.fromEntries([...Array(6000).keys()].map((i) => ['p' + i, true]))), 'schema'], [{ oneOf: [...Array(300).keys()].map((i) => ({ enum: [...Array(100).keys()].map((k) => i * 100 + k) })) }, 'schema'],
  [{ type: 'array', prefixItems: [...Array(200).keys()].map(() => ({ anyOf: [...Array(100).keys()].map(() => ({})) })) }, 'schema']);

// Arguments of a strict tool.
export const calls = [
  o({}), o({ city: str() }), o({ city: str(), days: int() }), { type: 'object', properties: { a: str(), b: num({ minimum: 0 }), c: { type: 'boolean' }, d: { type: 'null' }, e: arr(int(), { maxItems: 2 }), f: o({ x: str({ maxLength: 2 }) }) }, required: ['b'] },
  o({ unit: { enum: ['C', 'F', 'a"b&<'] }, n: { enum: [1, 2.5] }, c: { const: 'k' }, s: str({ enum: ['x', 3] }) }), o({ v: { anyOf: [str({ maxLength: 3 }), { type: 'null' }, int()] } }), o({ v: { oneOf: [str({ maxLength: 3 }), arr({ type: 'null' }, { maxItems: 1 })] } }),
  o({ p: str({ pattern: '^[a-z"&]{1,3}$' }), d: str({ format: 'date' }), l: str({ minLength: 1, maxLength: 2 }) }), o({ 'k"&é😀 ': int(), '': str({ maxLength: 1 }) }), { $defs: { a: str({ maxLength: 2 }), n: o({ next: { anyOf: [{ $ref: '#/$defs/n' }, { type: 'null' }] } }) }, ...o({ a: { $ref: '#/$defs/a' }, n: { $ref: '#/$defs/n' } }) },
];
export const refusedCalls = [
  { ...o({ a: int() }), patternProperties: {} }, { anyOf: [o({ a: int() })] }, { type: 'array', items: int() }, o({ a: { enum: ['x', 1] } }), o({ a: { type: ['string', 'integer'] } }), o({ a: { type: 'string', anyOf: [int()] } }), o({ a: { oneOf: [int(), num()] } }),
  { type: 'object', properties: {}, required: ['a'] }, { type: 'object', properties: { a: int() }, minProperties: 1 }, o({ a: { anyOf: [str()], minLength: 3 } }),
];
