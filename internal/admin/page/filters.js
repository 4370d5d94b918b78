// The filters of the dead letters.

import { h, set, show } from './dom.js';
import { reasons, visible } from './format.js';

const times = [['', 'any time'], ['15m', 'the last 15 minutes'], ['1h', 'the last hour'], ['24h', 'the last day'], ['168h', 'the last week']];
const names = ['stream', 'consumer', 'subject', 'reason', 'status', 'since', 'until', 'seq'];

export class Filters {
  // onChange is called with the query when it changed, once the user paused.
  constructor(onChange) {
    this.onChange = onChange;
    this.streams = [];
    this.others = {}; // parts of the query that there is no field for
    this.inputs = {
      stream: h('select', { name: 'stream' }),
      consumer: text('consumer', 'any'),
      subject: text('subject', 'orders.* or orders.>'),
      reason: select('reason', [['', 'any'], ...Object.keys(reasons).map((r) => [r, r])]),
      status: text('status', '422', { pattern: '[0-9]{1,3}|none', maxlength: 4, title: 'An HTTP status; 0 or none for no answer' }),
      since: select('since', times),
      until: text('until', 'now', { title: 'Stored before that: a duration ago, as 90m, 24h or 7d, or a time, as 2026-01-02T15:04:05Z' }),
      seq: text('seq', '1-100', { pattern: '[0-9]*-?[0-9]*', title: 'A sequence of the DLQ stream, or a range' }),
    };
    const labels = {
      stream: 'DLQ stream', consumer: 'Consumer', subject: 'Subject', reason: 'Reason', status: 'Status', since: 'Stored', until: 'Stored until', seq: 'Sequence',
    };
    this.fields = Object.fromEntries(names.map((n) => [n, h('label', { class: `field ${n}` }, h('span', {}, labels[n]), this.inputs[n])]));
    this.more = h('p', { class: 'more', hidden: true });
    this.clear = h('button', { type: 'button', class: 'link', onclick: () => { this.set({}); this.tell(); } }, 'Clear filters');
    this.node = h('form', {
      class: 'filters', role: 'search', 'aria-label': 'Filter dead letters', autocomplete: 'off',
      oninput: () => { clearTimeout(this.pause); this.pause = setTimeout(() => this.changed(), 350); },
      onsubmit: (e) => { e.preventDefault(); this.changed(); },
    }, Object.values(this.fields), this.more, this.clear, h('button', { type: 'submit', class: 'unseen' }, 'Filter'));
    this.known([]);
  }

  changed() {
    if (JSON.stringify(this.query()) !== this.last && this.node.checkValidity()) this.tell();
  }

  tell() {
    clearTimeout(this.pause);
    const query = this.query();
    this.last = JSON.stringify(query);
    show(this.clear, this.last !== '{}');
    this.onChange(query);
  }

  // known fills in the DLQ streams there are; with one there is nothing to choose, unless the query names one.
  known(streams) {
    if (this.streams.join() === streams.join() && streams.length) return;
    this.streams = streams;
    const chosen = this.inputs.stream.value;
    this.inputs.stream.replaceChildren(...[['', 'all'], ...streams.map((s) => [s, visible(s)])].map(option));
    choose(this.inputs.stream, chosen, visible);
    show(this.fields.stream, streams.length > 1 || chosen !== '');
  }

  query() {
    const query = {};
    for (const n of names) {
      const value = this.inputs[n].value.trim();
      if (value) query[n] = value;
    }
    return { ...query, ...this.others };
  }

  // set shows a query without telling that it changed: all of it, also what can be given in the address alone.
  set(query) {
    for (const n of names) {
      const value = query[n] || '';
      if (this.inputs[n].options) choose(this.inputs[n], value, n === 'since' ? since : visible);
      else this.inputs[n].value = value;
    }
    show(this.fields.stream, this.streams.length > 1 || Boolean(query.stream));
    this.others = Object.fromEntries(Object.entries(query).filter(([n]) => !names.includes(n)));
    set(this.more, `and ${othersInWords(query).join(', ')}, which the address says`);
    show(this.more, Object.keys(this.others).length > 0);
    this.last = JSON.stringify(this.query());
    show(this.clear, Object.keys(query).length > 0);
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
    query.status && (query.status === '0' || query.status === 'none' ? 'without an answer' : `with status ${visible(query.status)}`),
    query.since && `stored ${time ? `in ${time[1]}` : since(query.since)}`,
    query.until && `stored before ${moment(query.until)}`,
    query.seq && `with sequence ${visible(query.seq)}`,
    ...othersInWords(query),
  ].filter(Boolean);
  return parts.length ? parts.join(', ') : 'that are there now, without a filter';
}

const othersInWords = (query) => Object.entries(query).filter(([n]) => !names.includes(n))
  .map(([n, value]) => (n === 'limit' ? `at most ${visible(value)}, the oldest` : `with ${visible(n)} ${visible(value)}`));

// moment is a time as the API takes it: a duration ago, or a date.
const moment = (value) => (/^[\d.]+[a-zµ]/.test(value) ? `${visible(value)} ago` : visible(value));
const since = (value) => `since ${moment(value)}`;

// choose selects a value, for which there is an option of its own, in these words, if it is none of the usual ones.
function choose(node, value, words) {
  node.querySelector('[data-own]')?.remove();
  if (![...node.options].some((o) => o.value === value)) node.append(h('option', { value, 'data-own': '' }, words(value)));
  node.value = value;
}

const option = ([value, words]) => h('option', { value }, words);
const text = (name, placeholder, more) => h('input', { type: 'text', name, placeholder, spellcheck: 'false', autocapitalize: 'off', ...more });
const select = (name, options) => h('select', { name }, options.map(option));
