// The page: views by address, what holds it up, the token, and the live connection.

import { api, listen, token } from './api.js';
import { ConsumersView } from './consumers.js';
import { DLQView } from './dlq.js';
import { h, keepTime, set, show } from './dom.js';
import { count, visible } from './format.js';
import { Health } from './health.js';

const main = document.getElementById('main');
const notice = document.getElementById('notice');
let consumers = new ConsumersView();
let letters = new DLQView(go);
const pills = new Health(document.getElementById('health'), document.getElementById('failing'), (check) => {
  if (location.hash.startsWith('#/dlq')) location.hash = '#/consumers';
  display(consumers.node);
  consumers.lead(check);
});
let live;
let view;

function go(query, stream, seq) {
  const path = stream ? `/dlq/${encodeURIComponent(stream)}/${seq}` : '/dlq';
  const search = new URLSearchParams(query).toString();
  location.hash = `#${path}${search ? `?${search}` : ''}`;
}

function route() {
  const [path, search = ''] = location.hash.slice(1).split('?');
  const parts = path.split('/').slice(1).map(decode);
  const isDLQ = parts[0] === 'dlq';
  for (const [id, current] of [['nav-consumers', !isDLQ], ['nav-dlq', isDLQ]]) {
    const link = document.getElementById(id);
    if (current) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  document.title = isDLQ ? 'Dead letters · jetsidecar' : 'Consumers · jetsidecar';
  display(isDLQ ? letters.node : consumers.node);
  if (isDLQ) pills.fold();
  if (isDLQ) letters.open(Object.fromEntries([...new URLSearchParams(search)].filter(([, value]) => value.trim())), parts[1], parts[2]);
}

function decode(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}

function display(node) {
  if (view === node) return;
  view = node;
  main.replaceChildren(node);
}

// begin shows what there is and follows it, until the sidecar wants another token.
async function begin() {
  live?.abort();
  const connection = new AbortController();
  live = connection;
  try {
    const overview = await api.consumers(connection.signal);
    consumers.whole(overview);
    health(overview);
    route();
  } catch (e) {
    if (connection.signal.aborted || e.status === 401) return;
    if (e.status === 403) {
      display(h('div', { class: 'empty' }, h('h2', {}, 'Not from here'), h('p', {}, visible(e.message))));
      return;
    }
    away(e);
    if (!view) display(h('p', { class: 'loading' }, 'Waiting for the sidecar …'));
    setTimeout(() => { if (live === connection) begin(); }, 2000);
    return;
  }
  let missed = false;
  await listen((name, data) => {
    if (name === 'consumers') { consumers.live(data); health(data); }
    if (name === 'history') consumers.steps(data);
    if (name === 'dlq') letters.changed();
  }, async (connected, error) => {
    if (!connected) {
      missed = true;
      away(error);
    } else if (missed) {
      missed = false;
      consumers.whole(await api.consumers(connection.signal));
      letters.changed();
    }
  }, connection.signal);
}

// health shows what the sidecar needs, and what it lacks.
function health(overview) {
  document.body.classList.remove('away');
  pills.display(overview.checks);
  const lacks = overview.checks.filter((c) => !c.ok && (c.name === 'nats' || c.name === 'app'))
    .map((c) => `${c.name === 'nats' ? 'NATS is away' : 'The app is away or failing'}: ${visible(c.detail)}`);
  tell(lacks.join(' · '), 'bad');
  const depths = new Map(overview.consumers.filter((c) => c.dlq.enabled).map((c) => [c.dlq.stream, c.dlq.depth]));
  const depth = [...depths.values()].reduce((a, b) => a + b, 0);
  const shown = document.getElementById('nav-depth');
  set(shown, count(depth));
  show(shown, depth > 0);
}

function away(error) {
  document.body.classList.add('away');
  tell(`Not connected: ${visible(error.message)}. Trying again. What is shown may be old.`, 'bad');
}

function tell(text, kind) {
  notice.className = `notice ${kind}`;
  set(notice, text);
  show(notice, text !== '');
}

// needsToken asks for the token; a wrong one is asked for again.
function needsToken() {
  live?.abort();
  const wrong = token.get() !== '';
  token.clear();
  const input = h('input', { type: 'password', id: 'token', autocomplete: 'current-password', required: true, pattern: '[!-~]+', title: 'letters, digits and signs, without blanks', 'aria-describedby': 'token-note' });
  const note = h('p', { id: 'token-note', class: wrong ? 'caution' : 'quiet', role: wrong ? 'alert' : undefined },
    wrong ? 'This token is not the right one.' : 'It is admin.token of the sidecar’s configuration, and kept until this tab is closed.');
  tell('', '');
  consumers = new ConsumersView(); // what was shown is not for who has no token
  letters = new DLQView(go);
  pills.forget();
  display(h('form', { class: 'ask', onsubmit: (e) => { e.preventDefault(); token.set(input.value.trim()); display(h('p', { class: 'loading' }, 'Loading …')); begin(); } },
    h('h1', {}, 'Token'), h('label', { for: 'token' }, 'The token of this sidecar'), input, note, h('button', { type: 'submit', class: 'primary' }, 'Go on')));
  input.focus();
}

token.whenNeeded(needsToken);
addEventListener('hashchange', () => { if (live && !live.signal.aborted) route(); });
keepTime();
begin();
