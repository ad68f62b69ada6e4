// SPDX-License-Identifier: MIT
// back.mjs: every message that an answer consists of is taken back unchanged, as it came, whole, or as the official
// clients put it together from a stream; and it means the same: the state kept behind the answer is what the next
// request begins with, which it is only if the prompt is the same to the last token.
import assert from 'node:assert/strict';
import OpenAI from 'openai';
import Anthropic from '@anthropic-ai/sdk';
import { answer, check, finish, serve } from './server.mjs';

const node = await serve({ script: 'x<|end_of_msg|>' });
const openai = new OpenAI({ baseURL: node.url + '/v1', apiKey: 'none', maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: node.url, apiKey: 'none', maxRetries: 0 });
async function post(path, body) {
  const r = await fetch(node.url + path, { method: 'POST', body: JSON.stringify({ model: 'k3-demo', ...body }) }), v = await r.json();
  assert.equal(r.status, 200, JSON.stringify(v));
  return v;
}
const f = { name: 'f', description: 'd', parameters: { type: 'object', properties: { city: { type: 'string' }, days: { type: 'number' }, all: { type: 'boolean' } } } };
const next = { role: 'user', content: 'And now?' };

// Each: ask once, send the answer back, tell [tokens of the first prompt and its answer, tokens that were there again].
let turn = 0;
const ways = {
  async 'chat, whole'(think, max) {
    const p = { messages: [{ role: 'user', content: 'chat ' + ++turn }], tools: [{ type: 'function', function: f }], reasoning_effort: think ? 'low' : 'none' };
    const a = await post('/v1/chat/completions', { ...p, max_tokens: max }), m = a.choices[0].message;
    return [a.usage.total_tokens, chatBack(p, m)];
  },
  async 'chat, the stream helper'(think, max) {
    const p = { messages: [{ role: 'user', content: 'chat ' + ++turn }], tools: [{ type: 'function', function: f }], reasoning_effort: think ? 'low' : 'none' };
    const s = openai.chat.completions.stream({ model: 'k3-demo', ...p, max_tokens: max, stream_options: { include_usage: true } });
    const all = await s.finalChatCompletion();
    return [all.usage.total_tokens, chatBack(p, all.choices[0].message)];
  },
  async 'responses, whole'(think, max) {
    const p = { input: [{ role: 'user', content: 'responses ' + ++turn }], tools: [{ type: 'function', ...f, strict: false }], reasoning: { effort: think ? 'low' : 'none' } };
    const a = await post('/v1/responses', { ...p, max_output_tokens: max });
    return [a.usage.total_tokens, responsesBack(p, a.output)];
  },
  async 'responses, the stream helper'(think, max) {
    const p = { input: [{ role: 'user', content: 'responses ' + ++turn }], tools: [{ type: 'function', ...f, strict: false }], reasoning: { effort: think ? 'low' : 'none' } };
    const a = await openai.responses.stream({ model: 'k3-demo', ...p, max_output_tokens: max }).finalResponse();
    return [a.usage?.total_tokens, responsesBack(p, a.output)];
  },
  async 'messages, whole'(think, max = 500) {
    const p = { messages: [{ role: 'user', content: 'messages ' + ++turn }], tools: [{ name: f.name, description: f.description, input_schema: f.parameters }], thinking: think ? { type: 'enabled', budget_tokens: 1024 } : undefined };
    const a = await post('/v1/messages', { ...p, max_tokens: max });
    return [a.usage.input_tokens + a.usage.cache_read_input_tokens + a.usage.output_tokens, messagesBack(p, a.content)];
  },
  async 'messages, the stream helper'(think, max = 500) {
    const p = { messages: [{ role: 'user', content: 'messages ' + ++turn }], tools: [{ name: f.name, description: f.description, input_schema: f.parameters }], thinking: think ? { type: 'enabled', budget_tokens: 1024 } : undefined };
    const a = await anthropic.messages.stream({ model: 'k3-demo', ...p, max_tokens: max }).finalMessage();
    return [a.usage.input_tokens + a.usage.cache_read_input_tokens + a.usage.output_tokens, messagesBack(p, a.content)];
  },
};
async function chatBack(p, m) {
  const results = (m.tool_calls ?? []).map((c) => ({ role: 'tool', tool_call_id: c.id, content: 'sunny' }));
  return (await post('/v1/chat/completions', { ...p, messages: [...p.messages, m, ...results, next], max_tokens: 1 })).usage.prompt_tokens_details.cached_tokens;
}
async function responsesBack(p, output) {
  const results = output.filter((o) => o.type === 'function_call').map((o) => ({ type: 'function_call_output', call_id: o.call_id, output: 'sunny' }));
  return (await post('/v1/responses', { ...p, input: [...p.input, ...output, ...results, next], max_output_tokens: 1 })).usage.input_tokens_details.cached_tokens;
}
async function messagesBack(p, content) {
  const results = content.filter((b) => b.type === 'tool_use').map((b) => ({ type: 'tool_result', tool_use_id: b.id, content: [{ type: 'text', text: 'sunny' }] }));
  const messages = content.length ? [...p.messages, { role: 'assistant', content }, { role: 'user', content: [...results, { type: 'text', text: next.content }] }] : [...p.messages, next];
  return (await post('/v1/messages', { ...p, messages, max_tokens: 1 })).usage.cache_read_input_tokens;
}

const calls = [['f', { city: 'Köln "alt" < & 😀\n', days: -2.5, all: true }], ['f', {}], ['f', { city: '' }]];
const odd = (v) => answer({ calls: [['f', { days: 1 }]] }).replace('>1<', `>${v}<`);
// Where the next request does not begin with the state behind the answer, though it is taken:
const apart = (name, way, think) =>
  (/^chat, the stream helper/.test(way) && think && 'of a field that it does not know, as reasoning_content, that client keeps the last piece only') ||
  (/^(responses|messages)/.test(way) && name === 'nothing' && 'there is no message to be sent back') ||
  (/^a number/.test(name) && 'the prompt has numbers in one writing, the answer had another') ||
  (/^responses, the stream helper/.test(way) && /^cut off/.test(name) && 'that client does not read response.incomplete: no usage');
for (const [name, think, script, max] of [
  ['text', false, answer({ text: 'Yes: é😀 "q" < &\n\n ' })],
  ['reasoning and text', true, answer({ think: 'Hm: é😀 < & "q"\n ', text: 'Yes.' })],
  ['reasoning alone', true, answer({ think: 'Hm.', text: '' })],
  ['nothing', false, answer({ text: '' })],
  ['text and calls', false, answer({ text: 'I look.\n', calls })],
  ['calls alone', false, answer({ calls })],
  ['reasoning, text and calls', true, answer({ think: 'Hm.\n\n', text: ' I look.', calls })],
  ['reasoning and calls', true, answer({ think: 'Hm.', calls })],
  ['a number in another writing', false, odd(' 1.50e0')],
  ['a number that is none', false, odd('seven')],
  ['cut off while thinking', true, answer({ think: 'Hm, hm, hm.', text: 'Yes.' }), 4],
  ['cut off in text', false, answer({ text: 'Yes, yes, yes.' }), 3],
]) {
  for (const [way, ask] of Object.entries(ways)) {
    await check(`${name}: ${way}`, async () => {
      await node.script(script, 0);
      const [before, again] = await ask(think, max), cached = await again;
      if (apart(name, way, think)) assert.ok(cached > 150 && !(cached >= before - 1), `${cached} of ${before}`); // the tools and the question
      else assert.equal(cached, before - 1); // the end of a message, which came last, has not been read yet
    });
  }
}
await node.stop();
finish();
