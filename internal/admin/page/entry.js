// One dead letter: why it is one, what it holds, and what can be done with it.

import { api } from './api.js';
import { bodyOf } from './body.js';
import { ask, destination } from './dialog.js';
import { badge, h, past, say } from './dom.js';
import { clock, count, reasons, status, visible } from './format.js';

export class EntryView {
  // onClose is called when it is to be closed, onChange when the entry was replayed or removed.
  constructor(onClose, onChange) {
    this.onClose = onClose;
    this.onChange = onChange;
    this.node = h('section', {
      class: 'entry', tabindex: -1, 'aria-label': 'Dead letter', hidden: true,
      onkeydown: (e) => { if (e.key === 'Escape') onClose(); },
    });
  }

  close() {
    this.loading?.abort();
    this.shown = undefined;
    this.node.hidden = true;
    this.node.replaceChildren();
  }

  async open(stream, seq) {
    const id = `${stream}/${seq}`;
    if (this.shown === id) return;
    this.loading?.abort();
    const loading = new AbortController();
    this.loading = loading;
    this.shown = id;
    this.node.hidden = false;
    this.node.replaceChildren(this.head(`#${seq}`), h('p', { class: 'loading' }, 'Loading …'));
    this.node.focus({ preventScroll: true });
    this.node.scrollTop = 0;
    try {
      const letter = await api.entry(stream, seq, loading.signal);
      if (this.loading === loading) this.display(letter);
    } catch (e) {
      if (e.name !== 'AbortError' && this.loading === loading) this.failed(e, stream, seq);
    }
  }

  head(title, ...badges) {
    return h('header', {}, h('h2', { title }, title), ...badges,
      h('button', { type: 'button', class: 'close', 'aria-label': 'Close', title: 'Close (Esc)', onclick: this.onClose }, '✕'));
  }

  failed(e, stream, seq) {
    const gone = e.status === 404;
    this.node.replaceChildren(this.head(`#${seq}`), h('div', { class: 'empty' },
      gone && h('h2', {}, 'No such entry'),
      h('p', {}, gone ? `${visible(stream)} has no entry ${visible(seq)} now. It was replayed, removed or dropped by the limits of the stream, or it never was: look at the address.` : `It could not be read: ${visible(e.message)}.`),
      !gone && h('button', { type: 'button', onclick: () => { this.shown = undefined; this.open(stream, seq); } }, 'Try again')));
  }

  display(l) {
    const isLetter = l.stream !== '' || l.reason !== '';
    this.result = h('div', { class: 'outcome', role: 'status' });
    this.actions = h('div', { class: 'buttons' },
      isLetter && h('button', { type: 'button', class: 'primary', onclick: () => this.replay(l) }, 'Replay …'),
      isLetter && h('button', { type: 'button', class: 'danger', onclick: () => this.remove(l) }, 'Delete …'));
    this.node.replaceChildren(
      this.head(visible(l.subject || `#${l.seq}`)),
      h('div', { class: 'entry-body' },
        this.result, this.actions, others(l),
        isLetter ? cause(l) : h('p', { class: 'quiet' }, 'This is a message in a DLQ stream, but no dead letter.'),
        origin(l),
        h('section', {}, h('h3', {}, 'Body'), bodyOf(l)),
        headers('Headers', l.headers, (name) => !own(name)),
        headers('Headers of the DLQ', l.headers, own, true)));
    this.node.scrollTop = 0;
  }

  async replay(l) {
    const to = destination();
    const answer = await ask('Replay this message', [h('p', {}, h('b', {}, visible(l.subject)), `, dead letter #${l.seq}`), others(l), to.node].filter(Boolean), ['Replay', 'primary'], to.value);
    if (answer) await this.act(l, 'Replaying …', () => api.replay(l, { to: answer }));
  }

  async remove(l) {
    const content = [h('p', {}, h('b', {}, visible(l.subject)), `, dead letter #${l.seq}`), others(l), h('p', { class: 'caution' }, 'A deleted entry cannot be brought back.')].filter(Boolean);
    if (await ask('Delete this dead letter', content, ['Delete', 'danger'])) {
      await this.act(l, 'Deleting …', () => api.remove(l));
    }
  }

  async act(l, meanwhile, f) {
    const id = this.shown;
    const buttons = [...this.actions.querySelectorAll('button')];
    buttons.forEach((b) => { b.disabled = true; });
    this.result.className = 'outcome';
    this.result.textContent = meanwhile;
    let told;
    try {
      told = outcome(await f());
    } catch (e) {
      told = { kind: 'bad', text: `Nothing was changed, as far as is known: ${visible(e.message)}.`, stays: e.status !== 404 };
    }
    say(told.text, told.kind === 'bad');
    this.onChange(l, told);
    if (this.shown !== id) return;
    this.result.className = `outcome ${told.kind}`;
    this.result.textContent = told.text;
    if (told.stays) buttons.forEach((b) => { b.disabled = false; });
    else this.actions.replaceChildren(h('button', { type: 'button', class: 'primary', onclick: this.onClose }, 'Back to the list'));
    this.node.scrollTop = 0;
    this.node.focus({ preventScroll: true });
  }
}

// outcome is what became of an entry, in words.
function outcome(o) {
  const answer = o.status ? ` (${status(o.status)})` : '';
  const why = o.why ? `: ${visible(o.why)}` : '';
  return {
    removed: { kind: 'good', text: 'Deleted.' },
    acked: { kind: 'good', text: `The app accepted it${answer}. The entry is gone.` },
    dropped: { kind: 'good', text: `The app does not want it${answer}. The entry is gone.` },
    published: { kind: 'good', text: 'The stream has it. The entry is gone.' },
    failed: { kind: 'bad', text: `It failed again${answer}${why}. A new entry holds the new cause.` },
    kept: { kind: 'bad', text: `It was left as it is${answer}${why}.`, stays: true },
    gone: { kind: 'warn', text: 'Somebody else replayed or removed it meanwhile.' },
  }[o.result] || { kind: 'warn', text: o.result };
}

const own = (name) => /^dlq-/i.test(name);
const header = (l, name) => (l.headers[name] || [])[0];

function facts(rows) {
  return h('dl', { class: 'pairs' }, rows.filter((r) => r && r[1] !== undefined && r[1] !== '').map(([name, value, title]) => [
    h('dt', {}, name), h('dd', { title }, value)]));
}

function cause(l) {
  const failed = header(l, 'Dlq-Failed-At') || l.time;
  return h('section', { class: 'cause-box' }, h('h3', {}, 'Cause'),
    h('p', { class: 'headline' }, badge('bad', visible(l.reason)), ' ', reasons[l.reason] || ''),
    facts([
      ['Status', status(l.status)],
      ['Error', visible(l.error)],
      ['App’s answer', visible(header(l, 'Dlq-Response') || '')],
      ['Deliveries', l.replays > 0 ? `${count(l.deliveries)}, replays included` : count(l.deliveries)],
      l.replays > 0 && ['Replays', count(l.replays)],
      ['Failed', [`${clock(failed)}, `, past(failed)]],
    ]));
}

function origin(l) {
  const stored = header(l, 'Dlq-Time-Stamp');
  return h('section', {}, h('h3', {}, 'Message'), facts([
    ['Subject', visible(l.subject)],
    ['Stream', l.stream && `${visible(l.stream)}, sequence ${l.sequence}`],
    ['Consumer', visible(l.consumer)],
    ['Published', stored && clock(stored)],
    ['Message id', visible(l.msg_id)],
    ['Entry', `${visible(l.dlq_stream)}, sequence ${l.seq}, ${clock(l.time)}`],
    l.part && ['Part', `${visible(l.part)}: the other part is missing, this is half a message`],
  ]));
}

function headers(title, all, which, folded) {
  const names = Object.keys(all).filter(which).sort();
  const table = names.length === 0 ? h('p', { class: 'quiet' }, 'None.')
    : h('div', { class: 'scroll' }, h('table', { class: 'headers' },
      h('thead', { class: 'unseen' }, h('tr', {}, h('th', { scope: 'col' }, 'Name'), h('th', { scope: 'col' }, 'Value'))),
      h('tbody', {}, names.flatMap((n) => all[n].map((v) => h('tr', {}, h('th', { scope: 'row' }, visible(n)), h('td', {}, visible(v))))))));
  if (folded) return h('details', {}, h('summary', {}, title), table);
  return h('section', {}, h('h3', {}, title), table);
}

// others says of an entry that it is of a consumer that is not in the configuration.
function others(l) {
  return l.other_consumer && h('p', { class: 'caution' }, `It is of consumer ${visible(l.consumer)}, which is not in the configuration of this sidecar.`);
}
