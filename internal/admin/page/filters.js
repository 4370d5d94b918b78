// The filters of the dead letters.

import { h } from './dom.js';
import { reasons, visible } from './format.js';

const times = [['', 'any time'], ['15m', 'the last 15 minutes'], ['1h', 'the last hour'], ['24h', 'the last day'], ['168h', 'the last week']];
const names = ['stream', 'consumer', 'subject', 'reason', 'status', 'since', 'seq'];

export class Filters {
  // onChange is called with the query when it changed, once the user paused.
  constructor(onChange) {
    this.onChange = onChange;
    this.streams = [];
    this.inputs = {
      stream: h('select', { name: 'stream' }),
      consumer: text('consumer', 'any'),
      subject: text('subject', 'orders.* or orders.>'),
      reason: select('reason', [['', 'any'], ...Object.keys(reasons).map((r) => [r, r])]),
      status: text('status', '422', { inputmode: 'numeric', pattern: '[0-9]{1,3}', maxlength: 3, title: 'An HTTP status; 0 for no answer' }),
      since: select('since', times),
      seq: text('seq', '1-100', { pattern: '[0-9]*-?[0-9]*', title: 'A sequence of the DLQ stream, or a range' }),
    };
    const labels = { stream: 'DLQ stream', consumer: 'Consumer', subject: 'Subject', reason: 'Reason', status: 'Status', since: 'Stored', seq: 'Sequence' };
    this.fields = Object.fromEntries(names.map((n) => [n, h('label', { class: `field ${n}` }, h('span', {}, labels[n]), this.inputs[n])]));
    this.clear = h('button', { type: 'button', class: 'link', onclick: () => { this.set({}); this.changed(); } }, 'Clear filters');
    this.node = h('form', {
      class: 'filters', role: 'search', 'aria-label': 'Filter dead letters', autocomplete: 'off',
      oninput: () => { clearTimeout(this.pause); this.pause = setTimeout(() => this.changed(), 350); },
      onsubmit: (e) => { e.preventDefault(); this.changed(); },
    }, Object.values(this.fields), this.clear, h('button', { type: 'submit', class: 'unseen' }, 'Filter'));
    this.known([]);
  }

  changed() {
    clearTimeout(this.pause);
    const query = this.query();
    this.clear.hidden = Object.keys(query).length === 0;
    const now = JSON.stringify(query);
    if (now !== this.last && this.node.checkValidity()) {
      this.last = now;
      this.onChange(query);
    }
  }

  // known fills in the DLQ streams there are; with one there is nothing to choose.
  known(streams) {
    if (this.streams.join() === streams.join() && streams.length) return;
    const chosen = this.inputs.stream.value || this.wanted || '';
    this.streams = streams;
    this.inputs.stream.replaceChildren(...[['', 'all'], ...streams.map((s) => [s, visible(s)])].map(([v, t]) => h('option', { value: v }, t)));
    this.inputs.stream.value = streams.includes(chosen) ? chosen : '';
    this.fields.stream.hidden = streams.length < 2;
  }

  query() {
    const query = {};
    for (const n of names) {
      const value = this.inputs[n].value.trim();
      if (value) query[n] = value;
    }
    if (this.streams.length < 2) delete query.stream;
    return query;
  }

  // set shows a query without telling that it changed.
  set(query) {
    for (const n of names) this.inputs[n].value = query[n] || '';
    this.wanted = query.stream;
    this.last = JSON.stringify(this.query());
    this.clear.hidden = this.last === '{}';
  }
}

// inWords says what a query selects.
export function inWords(query) {
  const time = times.find(([v]) => v === query.since);
  const parts = [
    query.stream && `in ${visible(query.stream)}`,
    query.consumer && `of consumer ${visible(query.consumer)}`,
    query.subject && `with subject ${visible(query.subject)}`,
    query.reason && `with reason ${visible(query.reason)}`,
    query.status && (query.status === '0' ? 'without an answer' : `with status ${visible(query.status)}`),
    query.since && `stored in ${time ? time[1] : visible(query.since)}`,
    query.seq && `with sequence ${visible(query.seq)}`,
  ].filter(Boolean);
  return parts.length ? parts.join(', ') : 'that are there now, without a filter';
}

const text = (name, placeholder, more) => h('input', { type: 'text', name, placeholder, spellcheck: 'false', autocapitalize: 'off', ...more });
const select = (name, options) => h('select', { name }, options.map(([value, words]) => h('option', { value }, words)));
