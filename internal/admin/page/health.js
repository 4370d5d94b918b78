// What the sidecar needs, as pills at the top: one that is bad leads to what is not well, and lists it in words.

import { h, set, show } from './dom.js';
import { visible } from './format.js';

const titles = { nats: 'NATS', app: 'App', consumer: 'Consumers', dlq: 'DLQ' };
const ofConsumers = ['consumer', 'dlq']; // what a notice says of the others is seen without a click

export class Health {
  // list takes the pills and failing what is not well, when asked; onLead is called with the check to lead to.
  constructor(list, failing, onLead) {
    this.list = list;
    this.failing = failing;
    this.onLead = onLead;
    this.pills = new Map();
  }

  // forget takes all away.
  forget() {
    this.pills.clear();
    this.list.replaceChildren();
    this.fold();
  }

  // fold takes the list away.
  fold() {
    this.asked = undefined;
    this.tell([]);
  }

  display(checks) {
    this.checks = checks;
    for (const [name, title] of Object.entries(titles)) {
      const own = checks.filter((c) => c.name === name);
      if (own.length === 0) continue;
      if (!this.pills.has(name)) this.pills.set(name, this.pill(name, title));
      const { node, button, words } = this.pills.get(name);
      const bad = own.some((c) => !c.ok);
      const had = document.activeElement === button;
      node.className = bad ? 'bad' : 'good';
      node.title = bad ? own.filter((c) => !c.ok).map(inWords).join('\n') : '';
      show(words, !bad || !button);
      set(words.lastChild, bad ? ': not well' : ': well');
      if (button) show(button, bad);
      if (had && !bad) document.getElementById('main').focus({ preventScroll: true });
      if (!bad && this.asked === name) this.asked = undefined;
    }
    this.tell(this.bad(this.asked));
  }

  bad(name) { return this.checks.filter((c) => c.name === name && !c.ok); }

  pill(name, title) {
    const words = h('span', {}, title, h('span', { class: 'unseen' }, ''));
    const button = !ofConsumers.includes(name) ? undefined : h('button', {
      type: 'button', class: 'link', 'aria-expanded': 'false', 'aria-controls': this.failing.id, hidden: true, onclick: () => this.lead(name),
    }, title, h('span', { class: 'unseen' }, ': not well, show which'));
    const node = h('li', {}, words, button);
    this.list.append(node);
    return { node, button, words };
  }

  // lead lists what is not well, and goes to the first of it; pressed again it takes the list away.
  lead(name) {
    const again = this.asked === name;
    this.asked = again ? undefined : name;
    const bad = this.bad(name);
    this.tell(this.asked ? bad : []);
    if (!again && bad.length) this.onLead(bad[0]);
  }

  tell(bad) {
    for (const [name, { button }] of this.pills) button?.setAttribute('aria-expanded', name === this.asked);
    show(this.failing, bad.length > 0);
    const now = JSON.stringify(bad);
    if (now === this.told) return;
    this.told = now;
    this.failing.replaceChildren(h('ul', {}, bad.map((c) => h('li', {},
      h('button', { type: 'button', class: 'link', onclick: () => this.onLead(c) }, visible(c.consumer), ' on ', visible(c.stream)), `: ${visible(c.detail)}`))));
  }
}

const inWords = (c) => `${c.consumer ? `${visible(c.consumer)} on ${visible(c.stream)}: ` : ''}${visible(c.detail)}`;
