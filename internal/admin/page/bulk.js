// Replaying or deleting all that is selected: confirmation, progress with cancel, and what came of it.

import { api } from './api.js';
import { Dialog, destination } from './dialog.js';
import { h, say, set, show } from './dom.js';
import { count, span, visible } from './format.js';

// bulk asks, and does it (what: replay or rm) with what query selects, inWords, and stats counted: what came later is left. It resolves
// when the dialog is closed, to whether something was done.
export function bulk(what, query, inWords, stats) {
  return new Promise((resolve) => {
    const run = new Run(what, query, stats, resolve);
    run.confirm(inWords);
  });
}

class Run {
  constructor(what, query, stats, resolve) {
    this.what = what;
    this.selection = { ...query, up_to: stats.up_to };
    this.entries = stats.entries;
    this.begun = false;
    this.abort = new AbortController();
    this.dialog = new Dialog(what === 'rm' ? 'Delete dead letters' : 'Replay dead letters', () => {
      this.abort.abort();
      resolve(this.begun);
    });
  }

  confirm(inWords) {
    const n = this.entries === 1 ? '1 entry' : `${count(this.entries)} entries`;
    this.dialog.body.append(h('p', {}, h('b', {}, n), ` ${inWords}.`));
    if (this.what === 'rm') {
      this.dialog.body.append(h('p', { class: 'caution' }, 'Deleted entries cannot be brought back.'));
    } else {
      this.to = destination();
      this.rate = h('input', {
        type: 'number', required: true, min: 0, max: 1000000, step: 'any', value: 50, inputmode: 'decimal', id: 'rate', 'aria-describedby': 'rate-fault', oninput: () => this.rateFault(),
      });
      this.fault = h('p', { class: 'caution', id: 'rate-fault', role: 'alert', hidden: true });
      this.dialog.body.append(this.to.node, h('p', { class: 'field' }, h('label', { for: 'rate' }, 'At most this many a second (0 is no limit)'), this.rate), this.fault);
    }
    this.dialog.choices(
      ['Cancel', '', () => this.dialog.close()],
      this.what === 'rm' ? ['Delete', 'danger', () => this.start()] : ['Replay', 'primary', () => this.start()]);
    this.dialog.open();
  }

  // rateFault says what is wrong with the rate, and reports whether something is: nothing but a 0 that was typed is no limit.
  rateFault() {
    const fault = this.rate.validationMessage;
    set(this.fault, fault && `The rate: ${fault}`);
    show(this.fault, fault !== '');
    this.rate.setAttribute('aria-invalid', fault !== '');
    return fault !== '';
  }

  async start() {
    if (this.rate && this.rateFault()) {
      this.rate.focus();
      return;
    }
    this.begun = true;
    const body = { ...this.selection };
    if (this.what === 'replay') Object.assign(body, { to: this.to.value(), rate: this.rate.valueAsNumber });
    this.bar = h('progress', { 'aria-label': 'Progress' });
    this.words = h('p', {}, 'Selecting …');
    this.dialog.body.replaceChildren(this.bar, this.words);
    this.dialog.choices(['Cancel', '', () => this.abort.abort()]);
    this.dialog.buttons.firstChild.focus();
    this.dialog.node.addEventListener('cancel', (e) => { // Esc: first it is cancelled, then closed
      if (this.finished) return;
      e.preventDefault();
      this.abort.abort();
    });
    this.started = performance.now();
    this.last = { selected: 0, done: 0, failed: 0, kept: 0 };
    let report;
    let error;
    try {
      await api.many(this.what, body, (line) => {
        if (line.progress) this.progress(line.progress);
        if (line.failures) this.failures = line.failures;
        if (line.report) report = line.report;
        if (line.error) error = line.error;
      }, this.abort.signal);
      if (!report && !error) error = 'the connection ended before it was through';
    } catch (e) {
      if (e.name !== 'AbortError') error = e.message;
    }
    this.finish(report, error);
  }

  progress(p) {
    this.last = p;
    if (p.selected === 0) return;
    const through = p.done + p.failed + p.kept;
    const seconds = (performance.now() - this.started) / 1000;
    this.bar.max = p.selected;
    this.bar.value = through;
    const rate = through / seconds;
    const waiting = p.waiting && `, waiting for ${count(p.waiting.entries)} that ${visible(p.waiting.owner)} has in work`;
    const left = rate > 0 && through < p.selected ? `, ${rate.toFixed(rate < 10 ? 1 : 0)} a second, ${span((p.selected - through) / rate)} left` : '';
    set(this.words, `${count(through)} of ${count(p.selected)}: ${this.inWords(p)}${waiting || left}`);
  }

  inWords(p) {
    return [
      `${count(p.done - (p.gone || 0))} ${this.what === 'rm' ? 'deleted' : 'replayed'}`,
      p.failed > 0 && `${count(p.failed)} failed again`,
      p.kept > 0 && `${count(p.kept)} kept`,
      p.gone > 0 && `${count(p.gone)} gone meanwhile`,
      p.unsettled > 0 && `${count(p.unsettled)} of them perhaps failed again (it took too long to look)`,
    ].filter(Boolean).join(', ');
  }

  // missed says how many were counted, and were not there any more, or not as they were, when it began.
  missed(report, error) {
    const selected = report && (report.selected > 0 || !error && !report.interrupted);
    const n = selected ? this.entries - report.selected : 0;
    return n > 0 && h('p', { class: 'caution' },
      `${count(n)} of the ${count(this.entries)} were gone or changed meanwhile: somebody replayed or deleted them, they failed again, or are too old for the filter now.`);
  }

  finish(report, error) {
    this.finished = true;
    const p = report || this.last;
    const failed = report?.failures || this.failures; // without a report: what was told before
    const cancelled = this.abort.signal.aborted;
    const through = p.done + p.failed + p.kept;
    let head = 'Done';
    if (error) head = 'It could not go on';
    else if (cancelled || p.interrupted) head = 'Cancelled';
    const left = cancelled && p.selected > through ? ` About ${count(p.selected - through)} were not touched.` : '';
    const result = h('div', { tabindex: -1, class: 'result' },
      h('p', {}, h('b', {}, head), `: ${this.inWords(p)}.${left}`),
      this.missed(report, error),
      error && h('p', { class: 'caution' }, visible(error)),
      failed?.length > 0 && failures(failed));
    this.dialog.body.replaceChildren(result);
    this.dialog.choices(['Close', 'primary', () => this.dialog.close()]);
    this.dialog.buttons.firstChild.focus();
    say(`${head}: ${this.inWords(p)}`, Boolean(error));
  }
}

function failures(all) {
  return h('div', { class: 'scroll' }, h('table', { class: 'failures' },
    h('caption', {}, 'Still dead letters'),
    h('thead', {}, h('tr', {}, ['Count', 'Consumer', 'Why', 'Example'].map((t) => h('th', { scope: 'col' }, t)))),
    h('tbody', {}, all.map((f) => h('tr', {},
      h('td', {}, count(f.count)),
      h('td', {}, visible(f.consumer)),
      h('td', {}, visible([f.result, f.reason, f.status || '', f.why].filter(Boolean).join(' · '))),
      h('td', {}, visible(f.dlq_stream), ` #${f.example}`))))));
}
