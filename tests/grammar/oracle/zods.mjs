// SPDX-License-Identifier: MIT
// zods.mjs: types of zod, which tells them as JSON Schema itself, many with a pattern and a format at once: [type, values
// that must be accepted, values that must not]. `decides`: zod looks at more than its schema says, or counts UTF-16 where
// JSON Schema counts characters, so what is drawn for the schema alone need not please it.
import { z } from 'zod';

const uuid = '01234567-0123-4123-8123-0123456789ab';
export const zods = {
  email: [z.email(), ['a.b+c@example.com', 'x@y-z.org'], ['.a@b.cd', 'a..b@c.de', 'a@b', 'a']],
  'email of lengths': [z.email().min(8).max(12), ['ab@cd.efg'], ['a@b.cd', 'abcdefgh@cd.efg']],
  'iso.date': [z.iso.date(), ['2026-02-28', '1999-12-31'], ['2026-02-30', '26-1-1']],
  'iso.time': [z.iso.time(), ['23:59', '00:00:01.25'], ['24:00', '12:00:00Z']],
  'iso.time, seconds': [z.iso.time({ precision: 0 }), ['23:59:59'], ['23:59']],
  'iso.datetime': [z.iso.datetime(), ['2026-05-04T23:59:59Z', '2026-05-04T00:00:00.123Z'], ['2026-05-04T23:59:59+01:00', '2026-05-04T23:59:59', '2026-05-04']],
  'iso.datetime, offsets': [z.iso.datetime({ offset: true }), ['2026-05-04T23:59:59Z', '2026-05-04T23:59:59+05:30'], ['2026-05-04T23:59:59']],
  'iso.datetime, local': [z.iso.datetime({ local: true }), ['2026-05-04T23:59:59Z'], ['2026-05-04']],
  'iso.datetime, milliseconds': [z.iso.datetime({ precision: 3 }), ['2026-05-04T23:59:59.123Z'], ['2026-05-04T23:59:59Z']],
  'iso.duration': [z.iso.duration(), ['P1D', 'PT1H', 'P2W', 'P1Y2M3DT4H5M6S'], ['P', 'PT', '1D']],
  uuid: [z.uuid(), [uuid], [uuid.slice(1), uuid.replace('-4', '-9')]],
  uuidv4: [z.uuidv4(), [uuid], [uuid.replace('-4', '-7')]],
  uuidv7: [z.uuidv7(), [uuid.replace('-4', '-7')], [uuid]],
  guid: [z.guid(), [uuid.replace('-4', '-9')], [uuid.slice(1)]],
  url: [z.url(), ['https://example.com/a?b=c#d', 'http://localhost:3000', 'mailto:a@b.de'], ['example.com', '']],
  httpUrl: [z.httpUrl(), ['https://example.com/'], ['example.com'], 'decides'],
  hostname: [z.hostname(), ['example.com', 'my-host', 'a.b.c'], ['-a', 'a_b', '']],
  ipv4: [z.ipv4(), ['10.0.0.255'], ['10.0.0.256', '1.2.3']],
  ipv6: [z.ipv6(), ['::1', 'fe80::1:2', '1:2:3:4:5:6:7:8'], ['1:2', '::g']],
  cidrv4: [z.cidrv4(), ['10.0.0.0/8'], ['10.0.0.0/33']],
  base64: [z.base64(), ['', 'YWI=', 'YWJj'], ['a', 'YWI']],
  base64url: [z.base64url(), ['YWI'], ['+'], 'decides'],
  nanoid: [z.nanoid(), ['V1StGXR8_Z5jdHi6B-myT'], ['a']],
  cuid2: [z.cuid2(), ['tz4a98xxat96iws9zmbrgj3a'], ['A']],
  ulid: [z.ulid(), ['01ARZ3NDEKTSV4RRFFQ69G5FAV'], ['01']],
  e164: [z.e164(), ['+4912345678'], ['+0', '12345678'], 'decides'],
  hex: [z.hex(), ['', 'dead'], ['x']],
  lowercase: [z.string().lowercase().max(9), ['abc 1'], ['aB'], 'decides'],
  'startsWith, lengths': [z.string().startsWith('a').min(2).max(4), ['ab'], ['a', 'b', 'abcde'], 'decides'],
  'endsWith': [z.string().endsWith('.c').max(9), ['a.c'], ['a.ca'], 'decides'],
  'a password': [z.string().regex(/^(?=.*[a-z])(?=.*[A-Z])(?=.*\d)[\w!?-]{8,16}$/), ['aB3-----'], ['abcdefgh', 'aB3']],
  'startsWith, endsWith, includes': [z.string().startsWith('a').endsWith('z').includes('-').max(9), ['a-z'], ['az', 'a-y'], 'decides'],
  'email of a domain': [z.email().endsWith('.org').max(16).regex(/^[a-z@.]+$/), ['a@b.org'], ['a@b.com', 'A@b.org']],
  tuple: [z.tuple([z.iso.date(), z.int()]), [['2026-01-01', 1]], [['2026-01-01', 'x'], ['x', 1]]],
  'templateLiteral': [z.templateLiteral(['a-', z.number(), '-', z.enum(['x', 'y'])]), ['a-1.5-x'], ['a-x']],
  int: [z.int(), [3, -9], [0.5, '3']],
  'nullable, optional': [z.object({ a: z.email().nullable(), b: z.iso.date().nullish() }), [{ a: null }, { a: 'a@b.cd', b: '2026-01-01' }], [{ b: null }]],
  'a list of them': [z.array(z.union([z.uuid(), z.ipv4()])).max(3), [[uuid, '1.2.3.4']], [['x']]],
};
export const refusedZods = [z.emoji(), z.string().startsWith('a').regex(/^b/), z.number().multipleOf(0.5)];
