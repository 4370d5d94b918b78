// A message's body: as JSON, text or hex, whichever suits it.

import { h, say } from './dom.js';
import { bytes, visibleLines } from './format.js';

const mostText = 256 * 1024; // characters that are shown at first
const mostHex = 16 * 1024; // bytes

export function bodyOf(letter) {
  const raw = Uint8Array.from(atob(letter.body_base64), (c) => c.charCodeAt(0));
  const views = [];
  const pretty = letter.body === undefined ? undefined : json(letter.body);
  if (pretty !== undefined) views.push(['JSON', (all) => cut(pretty, all)]);
  if (letter.body !== undefined) views.push(['Text', (all) => cut(letter.body, all)]);
  views.push(['Hex', (all) => hex(raw, all)]);
  if (raw.length === 0) return h('p', { class: 'quiet' }, 'The body is empty.');
  return tabs(views, letter, raw.length);
}

function tabs(views, letter, size) {
  const panel = h('pre', { id: 'body-panel', role: 'tabpanel', tabindex: 0, dir: 'ltr' });
  const more = h('button', { type: 'button', class: 'link' }, 'Show all of it');
  const buttons = views.map(([name], i) => h('button', {
    type: 'button', role: 'tab', 'aria-controls': 'body-panel', id: `tab-${name}`, onclick: () => choose(i),
    onkeydown: (e) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
      if (step) choose((i + step + views.length) % views.length, true);
    },
  }, name));
  function choose(i, focus) {
    buttons.forEach((b, j) => { b.setAttribute('aria-selected', i === j); b.tabIndex = i === j ? 0 : -1; });
    panel.setAttribute('aria-labelledby', buttons[i].id);
    if (focus) buttons[i].focus();
    display(i, false);
  }
  function display(i, all) {
    const { text, cutOff } = views[i][1](all);
    panel.textContent = text;
    more.hidden = !cutOff;
    more.onclick = () => display(i, true);
  }
  choose(0);
  const copy = letter.body !== undefined && h('button', { type: 'button', class: 'link', onclick: () => copyText(letter.body) }, 'Copy');
  return h('div', { class: 'body' },
    h('div', { class: 'tabs' }, h('div', { role: 'tablist', 'aria-label': 'Body' }, buttons), h('small', {}, bytes(size)), copy), panel, more);
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    say('The body is in the clipboard.');
  } catch {
    say('The browser does not let the page copy here.', true);
  }
}

// json is the text indented, undefined if it is no object or list. Numbers stay as they are written, however long.
function json(text) {
  if (!/^\s*[[{]/.test(text)) return undefined;
  try {
    return JSON.stringify(JSON.parse(text, keepNumbers), null, 2);
  } catch {
    return undefined;
  }
}

function keepNumbers(_, value, context) {
  return typeof value === 'number' && context?.source && JSON.rawJSON ? JSON.rawJSON(context.source) : value;
}

function cut(text, all) {
  const cutOff = !all && text.length > mostText;
  return { text: visibleLines(cutOff ? text.slice(0, mostText) : text), cutOff };
}

function hex(raw, all) {
  const most = all ? raw.length : Math.min(raw.length, mostHex);
  const rows = [];
  for (let at = 0; at < most; at += 16) {
    const row = Array.from(raw.subarray(at, Math.min(at + 16, most)));
    const digits = row.map((b) => b.toString(16).padStart(2, '0')).join(' ').padEnd(47);
    rows.push(`${at.toString(16).padStart(6, '0')}  ${digits}  ${row.map((b) => (b > 31 && b < 127 ? String.fromCharCode(b) : '.')).join('')}`);
  }
  return { text: rows.join('\n'), cutOff: most < raw.length };
}
