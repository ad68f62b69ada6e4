// SPDX-License-Identifier: MIT
// fixture.mjs: writes the oracle's answers for the demo vocabulary to ../data/tok_oracle.json.
// Run: npm ci --ignore-scripts && node fixture.mjs
import { readFileSync, writeFileSync } from 'node:fs';
import { Oracle, demoRanks, hashIds, randomText } from './oracle.mjs';
import { build, long, pools, texts } from './texts.mjs';

const data = new URL('../data/', import.meta.url);
const oracle = new Oracle(demoRanks(new URL('demo.tiktoken.model', data)),
  JSON.parse(readFileSync(new URL('demo.tokenizer_config.json', data))));

const out = { texts: [], long: [], pools, random: [] };
for (const [name, text] of Object.entries(texts)) {
  for (const trusted of [false, true]) {
    out.texts.push({ name, trusted, text, ids: oracle.encode(text, trusted) });
  }
}
for (const [name, parts] of Object.entries(long)) {
  let ids;
  try {
    ids = oracle.encode(build(parts), true);
  } catch (e) {
    console.error(`${name}: the oracle fails: ${e}`);
    continue;
  }
  out.long.push({ name, parts, count: ids.length, hash: hashIds([ids]) });
  console.error(name, ids.length);
}
for (let block = 0; block < 80; block++) { // each: 250 strings in both modes
  const lists = [];
  for (let k = 0; k < 250; k++) {
    const text = randomText(pools, block * 250 + k);
    lists.push(oracle.encode(text, false), oracle.encode(text, true));
  }
  out.random.push(hashIds(lists));
}
const rows = (list) => list.map((x) => `    ${JSON.stringify(x)}`).join(',\n');
writeFileSync(new URL('tok_oracle.json', data), `{
  "texts": [\n${rows(out.texts)}\n  ],
  "long": [\n${rows(out.long)}\n  ],
  "pools": [\n${rows(out.pools)}\n  ],
  "random": [\n${rows(out.random)}\n  ]
}\n`);
