// SPDX-License-Identifier: MIT
// server.mjs: starts api_server and stops it.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
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
  for (const name of ['key', 'batch', 'queue', 'keep', 'chunk']) {
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
  return {
    url,
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
        child.on('exit', resolve);
        child.stdin.end();
      }),
  };
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
