// The view of the dead letters: filters, causes, pages of a list, and one entry beside it.

import { api } from './api.js';
import { bulk } from './bulk.js';
import { badge, h, past, set, show } from './dom.js';
import { EntryView } from './entry.js';
import { Filters, inWords } from './filters.js';
import { bytes, clock, count, reasons, status, visible } from './format.js';

const pageSize = 100;
const mostCauses = 6;
const longestWait = 15000; // milliseconds before the first page is shown anew, however long it takes to read
const none = { entries: 0, bytes: 0, groups: [] }; // the counts of an empty list

export class DLQView {
  // go is called to change the address: the query of the filters, and the entry to show.
  constructor(go) {
    this.go = go;
    this.cursors = ['']; // of the pages up to this one
    this.order = 'newest';
    this.filters = new Filters((query) => go(query));
    this.entry = new EntryView(() => this.go(this.query), (l, told) => this.changedEntry(l, told));
    this.selected = h('span');
    this.between = h('span', { 'aria-live': 'off' }); // its times change all the time
    this.total = h('p', { class: 'quiet', role: 'status' }, this.selected, this.between);
    this.others = h('p', { class: 'quiet', hidden: true });
    this.replayAll = h('button', { type: 'button', disabled: true, onclick: () => this.bulk('replay') }, 'Replay all …');
    this.removeAll = h('button', { type: 'button', class: 'danger', disabled: true, onclick: () => this.bulk('rm') }, 'Delete all …');
    this.causes = h('ul', { class: 'causes', 'aria-label': 'Causes' });
    this.rows = h('tbody', { onkeydown: (e) => move(e) });
    this.table = h('table', { class: 'letters' },
      h('thead', {}, h('tr', {}, ['Message', 'Cause', 'Size', 'Stored'].map((t) => h('th', { scope: 'col' }, t)))), this.rows);
    this.state = h('div', { class: 'state' });
    this.fresh = h('button', { type: 'button', class: 'link', hidden: true, onclick: () => this.first() }, 'The DLQ has changed: show the first page');
    this.pager();
    const list = h('div', { class: 'list' }, this.filters.node, this.causes, this.fresh, this.state, this.table, this.pages);
    this.split = h('div', { class: 'split' }, list, this.entry.node);
    this.node = h('section', { class: 'dlq', 'aria-label': 'Dead letters' },
      h('header', { class: 'bar' }, h('div', {}, h('h1', {}, 'Dead letters'), this.total, this.others), h('div', { class: 'buttons' }, this.replayAll, this.removeAll)), this.split);
  }

  pager() {
    this.where = h('span', {}, '');
    this.before = h('button', { type: 'button', onclick: () => { this.cursors.pop(); this.load(true); } }, 'Previous');
    this.after = h('button', { type: 'button', onclick: () => { this.cursors.push(this.next); this.load(true); } }, 'Next');
    this.orderButton = h('button', { type: 'button', class: 'link', onclick: () => { this.order = this.order === 'newest' ? 'oldest' : 'newest'; this.first(); } });
    this.pages = h('nav', { class: 'pager', 'aria-label': 'Pages' }, this.orderButton, this.where, this.before, this.after);
  }

  // open shows what the address names: a query, and perhaps an entry.
  open(query, stream, seq) {
    const now = JSON.stringify(query);
    if (now !== this.asked) {
      this.asked = now;
      this.query = query;
      this.filters.set(query);
      this.replayAll.disabled = this.removeAll.disabled = true; // until it is counted what they would take
      this.first();
    }
    const was = this.opened;
    this.opened = stream && `${stream}/${seq}`;
    this.split.classList.toggle('open', Boolean(stream));
    if (stream) this.entry.open(stream, seq);
    else this.entry.close();
    if (this.missed) this.changed();
    for (const r of this.rows.children) r.setAttribute('aria-current', r.dataset.id === this.opened);
    if (was && !stream) (this.rowOf(was)?.querySelector('a') || this.node.querySelector('h1')).focus?.();
  }

  rowOf(id) { return [...this.rows.children].find((r) => r.dataset.id === id); }

  first() {
    this.cursors = [''];
    this.load(true);
  }

  // load asks for the page and the counts. Unless it is quiet the list shows that it loads.
  async load(visibly) {
    this.loading?.abort();
    const loading = new AbortController();
    this.loading = loading;
    clearTimeout(this.later);
    this.later = undefined;
    this.missed = false;
    const began = performance.now();
    if (visibly) {
      this.table.classList.add('stale');
      if (this.rows.children.length === 0) this.tell(h('p', { class: 'loading' }, 'Loading …'));
    }
    show(this.fresh, false);
    const { signal } = loading;
    const query = { ...this.query, ...this.part() };
    const after = this.cursors.at(-1);
    if (after) query.after = after;
    try {
      const page = await api.list(query, signal);
      this.display(page);
      this.count(page.entries.length || after ? await api.stats(this.query, signal) : { ...none, others: page.others, other_consumers: page.other_consumers });
    } catch (e) {
      if (e.name !== 'AbortError') this.failed(e);
    }
    if (this.loading !== loading) return;
    this.loading = undefined;
    this.took = performance.now() - began;
    if (this.missed) this.changed();
  }

  // part is the page that is asked for. A limit in the address selects the oldest: what it leaves out is not shown either.
  part() {
    const { limit } = this.query;
    if (limit === undefined) return { order: this.order, limit: pageSize };
    const rest = Number(limit) - (this.cursors.length - 1) * pageSize;
    return { order: 'oldest', limit: rest > pageSize ? pageSize : this.cursors.length > 1 ? rest : limit };
  }

  display(page) {
    this.filters.known(page.streams);
    this.next = page.next;
    const have = new Map([...this.rows.children].map((r) => [r.dataset.id, r]));
    const rows = page.entries.map((e) => have.get(`${e.dlq_stream}/${e.seq}`) || this.row(e));
    if (rows.length !== this.rows.children.length || rows.some((r, i) => r !== this.rows.children[i])) this.rows.replaceChildren(...rows);
    this.table.classList.remove('stale');
    show(this.table, rows.length > 0);
    show(this.pages, rows.length > 0);
    const skipped = (this.cursors.length - 1) * pageSize;
    this.range = [skipped + 1, skipped + rows.length];
    this.before.disabled = this.cursors.length < 2;
    this.after.disabled = !page.next || this.range[1] >= this.query.limit;
    this.orderButton.disabled = this.query.limit !== undefined;
    set(this.orderButton, `Order: ${this.orderButton.disabled ? 'oldest' : this.order} first`);
    this.orderButton.title = 'Change the order';
    this.placed();
    if (rows.length) this.tell(null);
    else if (this.empty?.parentNode !== this.state || this.emptyOf !== this.asked) { // the same one stays: it may be pressed just now
      this.emptyOf = this.asked;
      this.empty = this.nothing();
      this.tell(this.empty);
    }
  }

  placed() {
    const of = this.stats ? ` of ${count(this.stats.entries)}` : '';
    set(this.where, `${count(this.range[0])} to ${count(this.range[1])}${of}`);
  }

  count(stats) {
    this.stats = stats;
    set(this.selected, `${count(stats.entries)} ${Object.keys(this.query).length ? 'selected' : stats.entries === 1 ? 'entry' : 'entries'}`);
    this.between.replaceChildren(...stats.entries ? [`, ${bytes(stats.bytes)}, from `, past(stats.oldest), ' to ', past(stats.newest)] : []);
    this.leftOut(stats);
    const n = stats.entries === 0 ? '' : ` ${count(stats.entries)}`;
    set(this.replayAll, `Replay all${n} …`);
    set(this.removeAll, `Delete all${n} …`);
    this.replayAll.disabled = stats.entries === 0;
    this.removeAll.disabled = stats.entries === 0;
    this.placed();
    this.causes.replaceChildren(...causes(stats.groups).slice(0, mostCauses).map((c) => h('li', {},
      h('button', { type: 'button', title: 'Filter by this cause', disabled: !Object.hasOwn(reasons, c.reason), onclick: () => this.go({ ...this.query, reason: c.reason, status: String(c.status) }) },
        h('b', {}, count(c.count)), ' ', visible(c.reason), ' ', h('small', {}, status(c.status))))));
    show(this.causes, stats.groups.length > 0);
  }

  // leftOut says how many entries there are of consumers that are not in the configuration, and leads to them.
  leftOut(stats) {
    const now = JSON.stringify([this.query, stats.others, stats.other_consumers]);
    show(this.others, stats.others > 0);
    if (now === this.saidOthers) return; // the buttons stay: one may be pressed just now
    this.saidOthers = now;
    const names = stats.other_consumers || [];
    this.others.replaceChildren(`${count(stats.others || 0)} of other consumers not counted${names.length ? ': ' : ''}`,
      ...names.flatMap((c, i) => [i > 0 ? ', ' : '',
        h('button', { type: 'button', class: 'link', title: 'Filter by this consumer', onclick: () => this.go({ ...this.query, consumer: c }) }, visible(c))]));
  }

  nothing() {
    if (Object.keys(this.query).length) {
      return h('div', { class: 'empty' }, h('h2', {}, 'Nothing matches'), h('p', {}, 'No dead letter is ', inWords(this.query).replace(/^that are/, 'there'), '.'),
        h('button', { type: 'button', onclick: () => this.go({}) }, 'Clear filters'));
    }
    return h('div', { class: 'empty' }, h('h2', {}, 'No dead letters'), h('p', {}, 'Every message was delivered, or is still on its way.'));
  }

  failed(e) {
    if (e.status === 401) return;
    this.table.classList.add('stale');
    const wrong = e.status === 400;
    const old = this.rows.children.length > 0;
    show(this.table, old);
    show(this.pages, old);
    this.replayAll.disabled = this.removeAll.disabled = true;
    this.tell(h('div', { class: 'empty bad', role: 'alert' },
      h('h2', {}, wrong ? 'The filter is not right' : 'The dead letters cannot be read'), h('p', {}, visible(e.message)),
      !wrong && h('button', { type: 'button', onclick: () => this.load(true) }, 'Try again')));
  }

  tell(node) { this.state.replaceChildren(...[node].filter(Boolean)); }

  row(e) {
    const id = `${e.dlq_stream}/${e.seq}`;
    const link = h('a', { href: `#/dlq/${encodeURIComponent(e.dlq_stream)}/${e.seq}`, onclick: (ev) => { ev.preventDefault(); this.go(this.query, e.dlq_stream, e.seq); } }, visible(e.subject));
    const why = e.error || (e.status ? status(e.status) : '');
    return h('tr', {
      'data-id': id, 'aria-current': id === this.opened,
      onclick: (ev) => { if (!ev.target.closest('a') && getSelection().isCollapsed) this.go(this.query, e.dlq_stream, e.seq); },
    },
    h('td', { class: 'what' }, link, h('small', {}, `#${e.seq}`, ' · ', visible(e.consumer), e.replays > 0 && ` · replayed ${e.replays}×`, e.part && ' · half a message')),
    h('td', { class: 'cause' }, badge('bad', visible(e.reason)), ' ', e.status > 0 && h('span', { class: 'code' }, String(e.status)), ' ', h('span', { title: visible(why) }, visible(why))),
    h('td', { class: 'size' }, bytes(e.size)),
    h('td', { class: 'time', title: clock(e.time) }, past(e.time)));
  }

  changedEntry(l, told) {
    if (told.stays) return;
    const row = this.rowOf(`${l.dlq_stream}/${l.seq}`);
    row?.remove();
    this.load(false);
  }

  // changed is called when the sidecar says that a DLQ stream changed. The first page is shown anew, not too often, and also while it changes on and on.
  changed() {
    this.missed = Boolean(this.loading) || !this.node.isConnected;
    if (this.missed) return;
    if (this.cursors.length > 1) {
      show(this.fresh, true);
      return;
    }
    this.later ??= setTimeout(() => this.load(false), Math.min(longestWait, Math.max(500, 10 * (this.took || 0))));
  }

  async bulk(what) {
    if (await bulk(what, this.query, inWords(this.query), this.stats)) this.first();
  }
}

// causes adds up the groups of a reason and status.
function causes(groups) {
  const all = new Map();
  for (const g of groups) {
    const id = `${g.reason}/${g.status}`;
    const c = all.get(id) || { reason: g.reason, status: g.status, count: 0 };
    c.count += g.count;
    all.set(id, c);
  }
  return [...all.values()].sort((a, b) => b.count - a.count);
}

// move goes from row to row with the arrow keys.
function move(e) {
  const row = e.target.closest('tr');
  const to = { ArrowDown: row?.nextElementSibling, ArrowUp: row?.previousElementSibling }[e.key];
  if (!to) return;
  e.preventDefault();
  to.querySelector('a').focus();
}
