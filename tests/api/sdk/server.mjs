// SPDX-License-Identifier: MIT
// server.mjs: starts api_server and stops it; looks at it from outside.
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

export const [program, model] = process.argv.slice(2);
if (!model) throw new Error('usage: node SCRIPT API_SERVER MODEL');

export async function serve(options = {}) {
  const args = [model];
  if (options.script !== undefined) {
    const file = join(mkdtempSync(join(tmpdir(), 'shoal-sdk-')), 'script');
    writeFileSync(file, options.script);
    args.push('--script', file);
  }
  for (const name of ['key', 'batch', 'queue', 'keep', 'chunk', 'say', 'slow']) {
    if (options[name] !== undefined) args.push('--' + name, String(options[name]));
  }
  const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  const url = await new Promise((resolve, reject) => {
    let text = '';
    child.stdout.on('data', (d) => {
      text += d;
      if (text.includes('\n')) resolve(text.trim());
    });
    child.on('exit', (code) => reject(new Error('api_server ended with ' + code)));
  });
  const ps = (...a) => execFileSync(a[0], a.slice(1), { encoding: 'utf8' });
  const proc = existsSync('/proc/self/fd') && `/proc/${child.pid}`; // else macOS
  return {
    url,
    pid: child.pid,
    fds: () => (proc ? readdirSync(proc + '/fd').length
      : ps('lsof', '-a', '-p', String(child.pid), '-d', '0-65535', '-Ff').split('\n').filter((l) => l[0] === 'f').length),
    rss: () => // MiB
      (proc ? Number(/VmRSS:\s+(\d+)/.exec(readFileSync(proc + '/status', 'utf8'))[1])
        : Number(ps('ps', '-o', 'rss=', '-p', String(child.pid)))) / 1024,
    metrics: async () => Object.fromEntries((await get(url + '/metrics')).split('\n').filter((l) => l && l[0] !== '#').map((l) => [l.slice(0, l.lastIndexOf(' ')), Number(l.slice(l.lastIndexOf(' ') + 1))])),
    // Another script, cut into tokens in another way (see api_server.c). No request may be under way.
    script: (text, cut) =>
      new Promise((resolve) => {
        const file = join(mkdtempSync(join(tmpdir(), 'shoal-sdk-')), 'script');
        writeFileSync(file, text);
        child.stdout.once('data', () => {
          rmSync(dirname(file), { recursive: true });
          resolve();
        });
        child.stdin.write(`script ${cut} ${file}\n`);
      }),
    stop: () =>
      new Promise((resolve) => {
        child.on('exit', resolve); // with its exit status
        child.stdin.end();
      }),
  };
}

// By a connection of its own, which is closed then.
const get = (url) => new Promise((resolve, reject) =>
  http.get(url, { agent: false }, (r) => {
    let text = '';
    r.on('data', (d) => (text += d)).on('end', () => resolve(text)).on('error', reject);
  }).on('error', reject));
export async function until(what, f, seconds = 60) {
  for (const end = Date.now() + seconds * 1000; Date.now() < end; ) {
    if (await f()) return;
    await new Promise((r) => setTimeout(r, 50));
  }
  throw new Error('never: ' + what);
}

let failed = 0;
export async function check(name, f) {
  try {
    await f();
    console.log('ok   ' + name);
  } catch (e) {
    failed++;
    console.log('FAIL ' + name + ': ' + (e.stack ?? e));
  }
}
export function finish() {
  console.log(failed ? failed + ' failed' : 'all passed');
  process.exit(failed ? 1 : 0);
}

// K3's markup, for scripts.
const open = (tag) => '<|open|>' + tag + '<|sep|>';
const close = (tag) => '<|close|>' + tag + '<|sep|>';
const arg = ([k, v]) =>
  open(`argument key="${k}" type="${typeof v === 'string' ? 'string' : typeof v}"`) +
  (typeof v === 'string' ? v : JSON.stringify(v)) + close('argument');
export function answer({ think, text = '', calls = [] }) {
  const tools = calls.map(([name, args], i) =>
    open(`call tool="${name}" index="${i + 1}"`) + Object.entries(args).map(arg).join('') + close('call'));
  return (think === undefined ? '' : think + close('think') + open('response')) + text + close('response') +
    (tools.length ? open('tools') + tools.join('') + close('tools') : '') + close('message') + '<|end_of_msg|>';
}
