// The view of the consumers: made once for each, then only its numbers change.

import { Chart } from './chart.js';
import { badge, h, set, show } from './dom.js';
import { ago, clock, count, rate, span, status, visible } from './format.js';
import { schedule } from './schedule.js';

const few = 5; // errors that are shown at first

export class ConsumersView {
  constructor() {
    this.cards = new Map();
    this.list = h('div', { class: 'cards' });
    this.node = h('section', { 'aria-label': 'Consumers' }, h('h1', { class: 'unseen' }, 'Consumers'), this.list);
  }

  // whole takes all there is, with history and schedules.
  whole(overview) {
    if (overview.consumers.length === 0) {
      this.list.replaceChildren(h('div', { class: 'empty' }, h('h2', {}, 'No consumers'), h('p', {}, 'The configuration names none.')));
      return;
    }
    for (const c of overview.consumers) {
      const id = key(c);
      if (!this.cards.has(id)) {
        const card = new Card(c);
        this.cards.set(id, card);
        this.list.append(card.node);
      }
      this.cards.get(id).past(c.history);
    }
    this.live(overview);
  }

  live(overview) {
    for (const c of overview.consumers) this.cards.get(key(c))?.live(c);
    this.order(overview);
  }

  // order puts those that are not well first, and else leaves them as the configuration has them.
  order(overview) {
    const bad = new Set(overview.checks.filter((c) => !c.ok).map(key));
    const well = (c) => !c.breaker.open && !bad.has(key(c));
    const nodes = [...overview.consumers.filter((c) => !well(c)), ...overview.consumers.filter(well)].map((c) => this.cards.get(key(c))?.node).filter(Boolean);
    if (nodes.every((n, i) => n === this.list.children[i])) return;
    const focus = document.activeElement;
    nodes.forEach((n, i) => { if (n !== this.list.children[i]) this.list.insertBefore(n, this.list.children[i] || null); });
    if (focus !== document.activeElement && this.list.contains(focus)) focus.focus({ preventScroll: true }); // it was moved
  }

  // lead goes to the consumer of a check.
  lead(check) {
    const card = this.cards.get(key(check))?.node;
    if (!card) return;
    card.focus({ preventScroll: true });
    const covered = document.querySelector('.top').offsetHeight; // it stays at the top
    scrollTo({ top: scrollY + card.getBoundingClientRect().top - covered - 12 });
  }

  steps(steps) {
    for (const s of steps) this.cards.get(key(s))?.step(s.point);
  }
}

const key = (c) => JSON.stringify([c.stream, c.consumer]);

// tile is a number with its name and a chart.
function tile(name, chart, hint) {
  const value = h('strong', {}, '–');
  const note = h('small', {}, '');
  const node = h('div', { class: 'tile' }, h('div', { class: 'name', title: hint }, name), h('div', { class: 'value' }, value, ' ', note), chart.node);
  return { node, value, note, chart };
}

class Card {
  constructor(c) {
    const steps = 60;
    this.points = [];
    this.most = steps;
    this.badges = h('span', { class: 'badges' });
    this.why = h('p', { class: 'why', hidden: true });
    this.flow = tile('Delivered a second', new Chart('Messages delivered a second', ['good'], steps), 'acked, dropped and recognized as answered before');
    this.trouble = tile('Failed a second', new Chart('Retries and dead letters a second', ['warn', 'bad'], steps), 'orange: to be tried again; red: dead letters');
    this.backlog = tile('Backlog', new Chart('Messages not delivered yet, and parked', ['plain', 'warn'], steps, 4), 'not delivered yet; orange: parked, which wait at the server for a retry or are held by other sidecars');
    this.busy = tile('In flight', new Chart('Requests at the app', ['plain'], steps, c.concurrency), 'requests at the app now');
    this.facts = new Map();
    this.errors = h('tbody');
    this.errorsBox = h('div', { class: 'scroll' }, h('table', { class: 'errors' },
      h('thead', { class: 'unseen' }, h('tr', {}, ['When', 'Message', 'Verdict', 'Cause'].map((t) => h('th', { scope: 'col' }, t)))), this.errors));
    this.calm = h('p', { class: 'quiet' }, 'No errors since the start.');
    this.all = h('button', { type: 'button', class: 'link', onclick: () => { this.shown = Infinity; this.listErrors(); } }, '');
    this.shown = few;
    this.latest = [];
    this.node = h('article', { class: 'card', tabindex: -1, 'aria-label': visible(c.consumer) },
      h('header', {}, h('h2', {}, visible(c.consumer)), h('span', { class: 'of' }, 'on ', visible(c.stream)), this.badges),
      this.why,
      h('div', { class: 'tiles' }, [this.flow, this.trouble, this.backlog, this.busy].map((t) => t.node)),
      h('dl', { class: 'facts' }, this.fact('Leased'), this.fact('Parked'), this.fact('Unsettled'), this.fact('Since the start')),
      h('div', { class: 'two' },
        h('section', {}, h('h3', {}, 'Last errors'), this.calm, this.errorsBox, this.all),
        h('section', {}, h('h3', {}, 'Retry schedule'), schedule(c.retry, c.dlq.enabled))));
  }

  fact(name) {
    const dd = h('dd', {}, '–');
    this.facts.set(name, dd);
    return h('div', {}, h('dt', {}, name), dd);
  }

  live(c) {
    this.state(c);
    const r = c.rates;
    set(this.flow.value, rate(r.ack + r.drop + r.duplicate));
    set(this.trouble.value, rate(r.retry + r.dlq));
    set(this.trouble.note, r.dlq > 0 ? `${rate(r.dlq)} ${c.dlq.enabled ? 'to the DLQ' : 'discarded'}` : '');
    set(this.backlog.value, count(c.pending));
    set(this.backlog.note, c.parked > 0 ? `and ${count(c.parked)} parked` : 'waiting');
    set(this.busy.value, count(c.in_flight));
    set(this.busy.note, `of ${count(c.concurrency_limit)}`);
    const facts = {
      Leased: `${count(c.leased)} of ${count(c.concurrency + c.prefetch)}`,
      Parked: count(c.parked),
      Unsettled: c.max_ack_pending ? `${count(c.ack_pending)} of ${count(c.max_ack_pending)}` : count(c.ack_pending),
      'Since the start': ['ack', 'retry', 'dlq', 'drop', 'duplicate'].filter((v) => c.counts[v] > 0 || v === 'ack')
        .map((v) => `${count(c.counts[v])} ${v}`).join(', '),
    };
    for (const [name, text] of Object.entries(facts)) set(this.facts.get(name), text);
    this.facts.get('Unsettled').classList.toggle('warn', c.max_ack_pending > 0 && c.ack_pending > 0.8 * c.max_ack_pending);
    this.latest = c.errors;
    this.listErrors();
  }

  // state shows the badges and why it does not go on as it should.
  state(c) {
    const bound = c.state === 'bound';
    const wanted = [
      bound ? ['good', 'bound'] : ['bad', 'waiting'],
      c.breaker.open && ['bad', `breaker open for ${span(Math.max(0, (Date.now() - new Date(c.breaker.since)) / 1000))}`],
      c.dlq.enabled && !c.dlq.ok && ['bad', 'DLQ takes no entry'],
      !c.dlq.enabled && ['warn', 'no DLQ'],
    ].filter(Boolean);
    const link = c.dlq.enabled && c.dlq.depth > 0 && `${count(c.dlq.depth)} in ${visible(c.dlq.stream)}`; // of all consumers that share it
    const now = JSON.stringify([wanted, link]);
    if (now !== this.badged) {
      this.badged = now;
      this.badges.replaceChildren(...wanted.map(([kind, text]) => badge(kind, text)));
      if (link) this.badges.append(h('a', { class: 'badge warn', href: `#/dlq?${new URLSearchParams({ stream: c.dlq.stream, consumer: c.consumer })}`, title: `Show the dead letters of ${visible(c.consumer)}` }, link));
    }
    const why = [
      c.detail,
      c.breaker.open && `The app fails message after message (${c.breaker.reason}). Pulling waits; one request at a time is tried.`,
      c.dlq.enabled && !c.dlq.ok && c.dlq.detail,
    ].filter(Boolean).map(visible).join(' · ');
    set(this.why, why);
    show(this.why, why !== '');
  }

  past(history) {
    this.points = history.points;
    this.draw();
  }

  step(point) {
    this.points = [...this.points, point].slice(-this.most);
    this.draw();
  }

  draw() {
    const of = (f) => this.points.map(f);
    const delivered = of((p) => p.rates.ack + p.rates.drop + p.rates.duplicate);
    const most = (values, write) => `highest ${write(Math.max(0, ...values))}`;
    this.flow.chart.draw([delivered], most(delivered, rate));
    const retries = of((p) => p.rates.retry);
    const dead = of((p) => p.rates.dlq);
    this.trouble.chart.draw([retries, dead], `retries ${most(retries, rate)}, dead letters ${most(dead, rate)}`);
    const pending = of((p) => p.pending);
    this.backlog.chart.draw([pending, of((p) => p.parked)], most(pending, count));
    const busy = of((p) => p.in_flight);
    this.busy.chart.draw([busy], most(busy, count));
  }

  listErrors() {
    const errors = this.latest.slice(0, this.shown);
    show(this.calm, errors.length === 0);
    show(this.errorsBox, errors.length > 0);
    show(this.all, this.latest.length > errors.length);
    set(this.all, `Show all ${this.latest.length}`);
    const now = JSON.stringify(errors);
    if (now !== this.listed) {
      this.listed = now;
      this.errors.replaceChildren(...errors.map(row));
    }
    errors.forEach((e, i) => set(this.errors.children[i].firstChild, ago(e.time)));
  }
}

function row(e) {
  const dead = e.verdict === 'dlq';
  return h('tr', {},
    h('td', { class: 'time', title: clock(e.time) }, ''),
    h('td', { class: 'what' }, h('span', { class: 'subject' }, visible(e.subject)), ' ', h('small', {}, `#${e.sequence}, delivery ${e.delivered}`)),
    h('td', {}, badge(dead ? 'bad' : 'warn', dead ? `dead: ${visible(e.reason)}` : `again in ${span(e.delay)}`)),
    h('td', { class: 'cause' }, visible(e.error ? [e.status || '', e.error].join(' ').trim() : status(e.status))));
}
