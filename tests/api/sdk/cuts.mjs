// SPDX-License-Identifier: MIT
// cuts.mjs: the same scripted answer cut into tokens in many ways must be told the same way by every endpoint, whole
// and streamed: content, reasoning, calls. Malformed calls are dropped, markup never shows, stop strings never leak
// their first bytes.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { answer, check, finish, model, serve } from './server.mjs';

const node = await serve({ script: 'x<|end_of_msg|>' });
const post = async (path, body) => {
  const r = await fetch(node.url + path, { method: 'POST', body: JSON.stringify({ model: 'k3-demo', ...body }) });
  assert.equal(r.status, 200, await (r.status === 200 ? '' : r.text()));
  return r;
};
const whole = async (path, body) => (await post(path, body)).json();
async function events(path, body) {
  const out = [];
  for (const part of (await (await post(path, { ...body, stream: true })).text()).split('\n\n')) {
    const data = part.split('\n').find((l) => l.startsWith('data: '));
    if (data && data !== 'data: [DONE]') out.push(JSON.parse(data.slice(6)));
  }
  return out;
}
// No text anywhere may hold a piece of structure; the scripts' own texts hold none.
const SHOWS = /<\||\|>|end_of_msg|argument key=|call tool=|\[BOS\]|\[EOS\]/;
function clean(v) {
  if (typeof v === 'string') assert.doesNotMatch(v, SHOWS);
  else if (v && typeof v === 'object') for (const [k, x] of Object.entries(v)) { assert.doesNotMatch(k, SHOWS); clean(x); }
}

// ---- one answer through each endpoint: { reasoning, content, calls: [[name, arguments]], why }

const user = [{ role: 'user', content: 'x' }];
const calls = (l) => l?.map((c) => [c.function.name, c.function.arguments]) ?? [];
const paths = {
  async chat(o) {
    const r = await whole('/v1/chat/completions', { messages: user, ...o }), m = r.choices[0].message;
    clean(r);
    return { reasoning: m.reasoning_content ?? '', content: m.content ?? '', calls: calls(m.tool_calls), why: r.choices[0].finish_reason };
  },
  async 'chat, streamed'(o) {
    const a = { reasoning: '', content: '', calls: [] };
    for (const e of await events('/v1/chat/completions', { messages: user, ...o })) {
      clean(e);
      const d = e.choices[0]?.delta ?? {};
      a.reasoning += d.reasoning_content ?? '';
      a.content += d.content ?? '';
      for (const c of d.tool_calls ?? []) {
        a.calls[c.index] ??= ['', ''];
        a.calls[c.index][0] += c.function.name ?? '';
        a.calls[c.index][1] += c.function.arguments ?? '';
      }
      a.why = e.choices[0]?.finish_reason ?? a.why;
      o.look?.(a);
    }
    return a;
  },
  async messages({ reasoning_effort, stop, look, tools, ...o }) {
    const thinking = reasoning_effort === 'none' ? undefined : { type: 'enabled', budget_tokens: 1024 };
    const r = await whole('/v1/messages', { max_tokens: 4000, thinking, stop_sequences: stop, messages: user, ...o });
    clean(r);
    const text = (t, k) => r.content.filter((b) => b.type === t).map((b) => b[k]).join('');
    return { reasoning: text('thinking', 'thinking'), content: text('text', 'text'), why: { end_turn: 'stop', stop_sequence: 'stop', max_tokens: 'length', tool_use: 'tool_calls' }[r.stop_reason],
      calls: r.content.filter((b) => b.type === 'tool_use').map((b) => [b.name, JSON.stringify(b.input)]) };
  },
  async 'messages, streamed'({ reasoning_effort, stop, look, tools, ...o }) {
    const thinking = reasoning_effort === 'none' ? undefined : { type: 'enabled', budget_tokens: 1024 };
    const a = { reasoning: '', content: '', calls: [] };
    let call;
    for (const e of await events('/v1/messages', { max_tokens: 4000, thinking, stop_sequences: stop, messages: user, ...o })) {
      clean(e);
      if (e.content_block?.type === 'tool_use') a.calls.push((call = [e.content_block.name, '']));
      a.reasoning += e.delta?.thinking ?? '';
      a.content += e.delta?.text ?? '';
      if (e.delta?.partial_json) call[1] += e.delta.partial_json;
      a.why = { end_turn: 'stop', stop_sequence: 'stop', max_tokens: 'length', tool_use: 'tool_calls' }[e.delta?.stop_reason] ?? a.why;
      look?.(a);
    }
    return a;
  },
  async responses({ reasoning_effort, stop, look, tools, max_tokens, ...o }) {
    if (stop) return undefined; // it has no stop strings
    const r = await whole('/v1/responses', { input: 'x', reasoning: { effort: reasoning_effort }, max_output_tokens: max_tokens, ...o });
    clean(r);
    const of = (t) => r.output.filter((x) => x.type === t), n = of('function_call');
    return { reasoning: of('reasoning').flatMap((x) => x.content).map((x) => x.text).join(''), content: of('message').flatMap((x) => x.content).map((x) => x.text).join(''),
      calls: n.map((c) => [c.name, c.arguments]), why: r.status === 'incomplete' ? 'length' : n.length ? 'tool_calls' : 'stop' };
  },
  async 'responses, streamed'({ reasoning_effort, stop, look, tools, max_tokens, ...o }) {
    if (stop) return undefined;
    const a = { reasoning: '', content: '', calls: [] };
    for (const e of await events('/v1/responses', { input: 'x', reasoning: { effort: reasoning_effort }, max_output_tokens: max_tokens, ...o })) {
      clean(e);
      if (e.type === 'response.output_text.delta') a.content += e.delta;
      if (e.type === 'response.reasoning_text.delta') a.reasoning += e.delta;
      if (e.type === 'response.output_item.done' && e.item.type === 'function_call') a.calls.push([e.item.name, e.item.arguments]);
      if (e.type === 'response.completed') a.why = a.calls.length ? 'tool_calls' : 'stop';
      if (e.type === 'response.incomplete') a.why = 'length';
      look?.(a);
    }
    return a;
  },
};
async function same(name, script, options, want, cuts = [0, 1, 2, 5]) {
  const o = { reasoning_effort: 'none', temperature: 0, ...options };
  await check(name, async () => {
    for (const cut of cuts) {
      await node.script(script, cut);
      for (const [p, f] of Object.entries(paths)) {
        if (cut !== 0 && cut !== 1 && p !== 'chat, streamed') continue; // the parser is one and the same
        const got = await f(o);
        if (!got) continue;
        got.calls = got.calls.map(([n, a]) => [n, JSON.parse(a)]);
        assert.deepEqual(got, want, `cut ${cut}, ${p}`);
      }
    }
  });
}

// ---- answers

const open = (t) => `<|open|>${t}<|sep|>`, close = (t) => `<|close|>${t}<|sep|>`, end = close('response') + close('message') + '<|end_of_msg|>';
const call = (inside, tag = 'call tool="f" index="1"') => open('tools') + open(tag) + inside + close('call') + close('tools');
const arg = (key, type, v) => open(`argument key="${key}" type="${type}"`) + v + close('argument');
const plain = (content, more = {}) => ({ reasoning: '', content, calls: [], why: 'stop', ...more });

const rich = answer({ think: 'Hm: é€😀 < & "q"\n', text: 'Ja, 中文 😀.\n', calls: [['f', { city: 'Köln "alt" <b> & 😀', days: -2.5, ok: true, l: [1, { a: null }] }], ['g', {}]] })
  .replaceAll('type="object" ', 'type="object"');
const told = { reasoning: 'Hm: é€😀 < & "q"\n', content: 'Ja, 中文 😀.\n', why: 'tool_calls', calls: [['f', { city: 'Köln "alt" <b> & 😀', days: -2.5, ok: true, l: [1, { a: null }] }], ['g', {}]] };
await same('reasoning, text and two calls', rich, { reasoning_effort: 'low' }, told);

await check('... at every split', async () => {
  const n = Buffer.byteLength(rich);
  for (let i = 1; i < n; i += 7) {
    await node.script(rich, '@' + i);
    const got = await paths[i % 2 ? 'chat' : 'chat, streamed']({ reasoning_effort: 'low', temperature: 0 });
    got.calls = got.calls.map(([f, a]) => [f, JSON.parse(a)]);
    assert.deepEqual(got, told, 'split at ' + i);
  }
});

for (const [what, bad] of [
  ['no tool name', call(arg('x', 'number', '1'), 'call index="1"')],
  ['structure in a value', call(open('argument key="x" type="string"') + 'a' + open('b') + 'c' + close('argument'))],
  ['an argument left open', call(open('argument key="x" type="string"') + 'secret')],
  ['never closed', open('tools') + open('call tool="f" index="1"') + arg('x', 'number', '1')],
  ['text for arguments', open('tools') + 'secret' + close('tools')],
  ['an opening without its end', open('tools') + '<|open|>call tool="f"' + close('tools')],
]) {
  await same('malformed call: ' + what, 'Before.' + close('response') + bad + close('message') + '<|end_of_msg|>', {}, plain('Before.'), [0, 1, 3]);
}
await same('a malformed call beside a good one', 'A' + close('response') + open('tools') + open('call index="1"') + arg('x', 'number', '1') + close('call') +
  open('call tool="g" index="2"') + arg('y', 'string', 'ü') + close('call') + close('tools') + close('message') + '<|end_of_msg|>', {}, plain('A', { calls: [['g', { y: 'ü' }]], why: 'tool_calls' }), [0, 1, 2]);
await same('a value that is not of its type', 'A' + close('response') + call(arg('y', 'number', 'seven')) + close('message') + '<|end_of_msg|>', {}, plain('A', { calls: [['f', { y: 'seven' }]], why: 'tool_calls' }), [0, 1]);
await same('stray and unknown structure', 'A' + open('nonsense') + 'B' + close('nothing') + 'C<|sep|>D' + close('think') + end, {}, plain('ABCD'), [0, 1, 2]);
const config = JSON.parse(readFileSync(model + '/tokenizer_config.json', 'utf8'));
const specials = Object.values(config.added_tokens_decoder).map((v) => v.content).filter((s) => !/^(\[EOS\]|<\|end_of_msg\|>|<\|(open|close)\|>)$/.test(s));
await same('every other special token', specials.map((s, i) => 'abcdefgh'[i % 8] + s).join('') + end, {}, plain(specials.map((_, i) => 'abcdefgh'[i % 8]).join('')), [0, 1, 2]);
await same('[EOS] while thinking', 'Thoughts that lead no[EOS]', { reasoning_effort: 'low' }, plain('', { reasoning: 'Thoughts that lead no' }), [0, 1, 2]);

await check('cut off anywhere: length, and what came before', async () => {
  const think = 'Think 1 < 2.', text = 'Done & dusted.', script = answer({ think, text });
  const bytes = think.length, structure = 'think'.length + 2 + 'response'.length + 2; // tokens, since each byte is one
  await node.script(script, 1);
  for (let k = 1; k < bytes + structure + text.length; k += k < bytes - 1 || k > bytes + structure + 1 ? 5 : 1) {
    for (const p of k % 5 ? ['chat'] : Object.keys(paths)) {
      const got = await paths[p]({ reasoning_effort: 'low', temperature: 0, max_tokens: k });
      const at = Math.max(0, k - bytes - structure);
      assert.deepEqual(got, { reasoning: think.slice(0, k), content: text.slice(0, at), calls: [], why: 'length' }, `${k} tokens, ${p}`);
    }
  }
});

// ---- stop strings: at no moment is more out than there will be at the end

for (const [stop, text, want] of [
  [['STOP'], 'one STO STOP two', 'one STO '], [['\n\n', '###'], 'a\n#\n##\n\nb', 'a\n#\n##'], [['aab'], 'xaaaab', 'xaa'], [['é€'], 'é€'.slice(0, 1) + 'é€ z', 'é'],
  [['END', 'E'], 'abEND', 'ab'], [['never'], 'neve neve', 'neve neve'], [['😀!'], 'a😀😀!b', 'a😀'],
]) {
  const look = (a) => assert.ok(want.startsWith(a.content), `leaked: ${JSON.stringify(a.content)}`);
  await same('stop ' + JSON.stringify(stop), text + end, { stop, look }, plain(want), [0, 1, ...Array.from({ length: Buffer.byteLength(text) - 1 }, (_, i) => '@' + (i + 1))]);
}
await check('completions: text, stop strings, echo', async () => {
  const text = 'ab é😀 STOP cd';
  for (const cut of [0, 1, 2, 3]) {
    await node.script(text + '[EOS]', cut);
    for (const [stop, want] of [[undefined, text], ['STOP', 'ab é😀 ']]) {
      const r = await whole('/v1/completions', { prompt: 'p', stop, max_tokens: 200 });
      clean(r);
      assert.equal(r.choices[0].text, want);
      let all = '';
      for (const e of await events('/v1/completions', { prompt: 'p', stop, max_tokens: 200, echo: true })) {
        all += e.choices[0]?.text ?? '';
        assert.ok(('p' + want).startsWith(all), `leaked: ${JSON.stringify(all)}`);
      }
      assert.equal(all, 'p' + want);
    }
  }
});
await check('logprobs are those of the content, and of nothing else', async () => {
  const text = 'ab é😀 cd', call = '<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|><|close|>call<|sep|><|close|>tools<|sep|>';
  for (const cut of [0, 1, 3]) {
    await node.script('why so<|close|>think<|sep|><|open|>response<|sep|>' + text + '<|close|>response<|sep|>' + call + end, cut);
    const o = { messages: user, reasoning_effort: 'low', logprobs: true, tools: [{ type: 'function', function: { name: 'f' } }] };
    const r = await whole('/v1/chat/completions', o);
    assert.equal(Buffer.from(r.choices[0].logprobs.content.flatMap((t) => t.bytes)).toString(), text);
    const l = (await events('/v1/chat/completions', o)).flatMap((e) => e.choices[0]?.logprobs?.content ?? []);
    assert.equal(Buffer.from(l.flatMap((t) => t.bytes)).toString(), text);
  }
});
await check('a form has its end, also when ends are to be ignored', async () => {
  await node.script('{"a":1}' + end, 0);
  const r = await whole('/v1/chat/completions', { messages: user, reasoning_effort: 'none', ignore_eos: true, response_format: { type: 'json_object' } });
  assert.deepEqual([r.choices[0].message.content, r.choices[0].finish_reason], ['{"a":1}', 'stop']);
});
await node.stop();
finish();
