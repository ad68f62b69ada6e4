// SPDX-License-Identifier: MIT
// agents.mjs: two coding agents, as they are published, against api_server, without a terminal and without a network: each is
// asked a question, calls its tool that reads a file (the scripted model says so), sends what it read, and tells the answer.
// Between agent and server stands a relay, which writes down what is said and gives the model its lines.
// usage: node agents.mjs API_SERVER MODEL
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

function skip(why) {
  console.log('skipped: ' + why);
  process.exit(77);
}

// ---- the agents: packages that hold the program for one platform (of those that fit any processor)

const here = join(dirname(fileURLToPath(import.meta.url)), 'agents'), at = `${process.platform}-${process.arch}`;
const agents = { claude: [`@anthropic-ai/claude-code-${at}`, '2.1.332', 'claude'], opencode: [`opencode-${at}${process.arch === 'x64' ? '-baseline' : ''}`, '1.18.33', 'bin/opencode'] };
const all = Object.values(agents).map(([name, version]) => `${name}@${version}`), mark = join(here, 'complete');
if (!existsSync(mark) || readFileSync(mark, 'utf8') !== all.join()) {
  mkdirSync(here, { recursive: true });
  writeFileSync(join(here, 'package.json'), '{ "private": true }');
  const r = spawnSync('npm', ['install', '--no-package-lock', '--ignore-scripts', '--no-audit', '--no-fund', ...all], { cwd: here, encoding: 'utf8', timeout: 240e3 });
  if (r.status !== 0) skip(`the agents cannot be had: ${r.error?.message ?? r.stderr.slice(0, 300)}`);
  writeFileSync(mark, all.join());
}
const programs = Object.fromEntries(Object.entries(agents).map(([agent, [name, , file]]) => [agent, join(here, 'node_modules', name, file)]));
for (const [agent, file] of Object.entries(programs)) if (!existsSync(file)) skip(`${agent} is not where it was in other versions`);

// ---- a model that takes long prompts: the demo model with other words in its config; each position is computed as before

const temp = mkdtempSync(join(tmpdir(), 'shoal-agents-')), big = join(temp, 'model');
mkdirSync(big);
for (const f of readdirSync(process.argv[3]).filter((f) => /^(model.*|.*config\.json|tiktoken\.model)$/.test(f))) symlinkSync(resolve(process.argv[3], f), join(big, f));
const config = JSON.parse(readFileSync(join(big, 'config.json'), 'utf8'));
config.text_config.max_position_embeddings = config.text_config.model_max_length = 1 << 17;
rmSync(join(big, 'config.json'));
writeFileSync(join(big, 'config.json'), JSON.stringify(config));
process.argv[3] = big;
const { answer, check, finish, serve } = await import('./server.mjs');
const node = await serve({ script: 'x<|end_of_msg|>' });

// ---- the relay

let lines = () => '', said = [], queue = Promise.resolve();
const pass = (q, body, r) => new Promise((done) => {
  const url = new URL(node.url);
  const up = http.request({ host: url.hostname, port: url.port, path: q.url, method: q.method, headers: { ...q.headers, host: url.host } }, (a) => {
    const got = [];
    r.writeHead(a.statusCode, a.headers);
    a.on('data', (d) => { got.push(d); r.write(d); });
    a.on('end', () => { r.end(); done({ status: a.statusCode, text: Buffer.concat(got).toString() }); });
  });
  up.on('error', (e) => { r.destroy(); done({ status: 0, text: String(e) }); });
  up.end(body);
});
const relay = http.createServer((q, r) => {
  const parts = [];
  q.on('data', (d) => parts.push(d));
  q.on('end', () => {
    const body = Buffer.concat(parts), asked = body.length ? JSON.parse(body) : undefined;
    queue = queue.then(async () => { // one after the other: the script is one for all
      if (asked?.messages) await node.script(lines(asked, q.url), 0);
      said.push({ path: q.url, asked, ...(await pass(q, body, r)) });
    });
  });
});
await new Promise((ready) => relay.listen(0, '127.0.0.1', ready));
const url = 'http://127.0.0.1:' + relay.address().port;

async function run(program, args, env) {
  const home = mkdtempSync(join(temp, 'home-')), work = mkdtempSync(join(temp, 'work-'));
  said = [];
  writeFileSync(join(work, 'note.txt'), 'The word is quagmire.\n');
  for (const [file, text] of Object.entries(env.files ?? {})) {
    mkdirSync(dirname(join(home, file)), { recursive: true });
    writeFileSync(join(home, file), text);
  }
  const child = spawn(program, args, { cwd: work, stdio: ['ignore', 'pipe', 'pipe'], timeout: 100e3, env: { PATH: process.env.PATH, HOME: home, ...env.set } });
  let out = '', err = '';
  child.stdout.on('data', (d) => (out += d));
  child.stderr.on('data', (d) => (err += d));
  env.note.file = join(work, 'note.txt');
  const code = await new Promise((done) => child.on('exit', (c, signal) => done(c ?? signal)));
  await queue;
  assert.equal(code, 0, out.slice(-1000) + err.slice(-2000) + said.map((s) => `${s.path} ${s.status} ${s.text.slice(0, 200)}`).join('\n'));
  for (const s of said) assert.equal(s.status, 200, s.path + ': ' + s.text.slice(0, 500));
  return out;
}

// What the model says: with tools at hand it reads the note, and when it has been read it tells. `think` as it was asked to.
const WORD = 'So the word is quagmire: 1 < 2 & "é😀".';
const script = (asked, path, tool, note) => {
  const thinks = !path.startsWith('/v1/messages') || (asked.thinking && asked.thinking.type !== 'disabled'), think = thinks ? 'Hm, let me see.' : undefined;
  const seen = JSON.stringify(asked.messages).includes('The word is quagmire');
  const has = asked.tools?.find((t) => (t.name ?? t.function?.name) === tool);
  if (!has || seen) return answer({ think, text: seen ? WORD : 'A title' });
  const properties = (has.input_schema ?? has.function.parameters).properties, name = ['file_path', 'filePath'].find((k) => properties[k]);
  assert.ok(name, Object.keys(properties).join());
  return answer({ think, text: 'I read it.', calls: [[tool, { [name]: note.file }]] });
};

await check('Claude Code reads a file and answers', async () => {
  const note = {};
  lines = (asked, path) => script(asked, path, 'Read', note);
  const out = await run(programs.claude, ['-p', 'Which word is in note.txt?', '--model', 'k3-demo', '--output-format', 'json', '--tools', 'Read'], { note, set: {
    ANTHROPIC_BASE_URL: url, ANTHROPIC_AUTH_TOKEN: 'none', ANTHROPIC_DEFAULT_HAIKU_MODEL: 'k3-demo', API_TIMEOUT_MS: '86400000', CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1' } });
  const r = JSON.parse(out);
  assert.equal(r.result, WORD);
  assert.equal(r.is_error, false);
  assert.ok(r.usage.cache_read_input_tokens > 1000); // the second request begins where the first ended
  const back = said.filter((s) => s.asked?.tools?.length).at(-1).asked.messages;
  assert.ok(back.some((m) => m.role === 'assistant' && m.content.some?.((b) => b.type === 'tool_use')));
  console.log(`     ${said.length} requests, ${JSON.stringify(r.usage).slice(0, 110)}`);
});

await check('OpenCode reads a file and answers', async () => {
  const note = {};
  lines = (asked, path) => script(asked, path, 'read', note);
  const settings = { $schema: 'https://opencode.ai/config.json', autoupdate: false, tools: { '*': false, read: true },
    provider: { shoal: { npm: '@ai-sdk/openai-compatible', name: 'Shoal', options: { baseURL: url + '/v1', apiKey: 'none' }, models: { 'k3-demo': { name: 'Kimi K3' } } } } };
  const out = await run(programs.opencode, ['run', '--model', 'shoal/k3-demo', 'Which word is in note.txt?'], { note, files: { '.config/opencode/opencode.json': JSON.stringify(settings) } });
  assert.ok(out.includes(WORD), out);
  const back = said.filter((s) => s.asked?.tools?.length).at(-1);
  assert.ok(back.asked.messages.some((m) => m.role === 'assistant' && m.tool_calls));
  assert.ok(back.asked.messages.some((m) => m.role === 'assistant' && m.reasoning_content), 'reasoning comes back');
  const usage = [...back.text.matchAll(/"cached_tokens":(\d+)/g)].at(-1);
  console.log(`     ${said.length} requests, of the last prompt ${usage?.[1]} tokens were there`);
});

relay.close();
relay.closeAllConnections();
await node.stop();
rmSync(temp, { recursive: true, force: true });
finish();
