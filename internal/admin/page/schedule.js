// The retry schedule, drawn: how long a message waits before each attempt.

import { h, svg } from './dom.js';
import { span } from './format.js';

const height = 104;
const bar = 26;
const gap = 8;

// schedule draws the delays: solid up to the shortest, lighter up to the longest, on a scale of square roots, since they grow by
// factors. letters is whether there is a DLQ.
export function schedule(retry, letters) {
  const longest = Math.max(0.001, ...retry.attempts.map((a) => a.longest));
  const y = (seconds) => height - Math.sqrt(seconds / longest) * (height - 22);
  const width = Math.max(retry.attempts.length * (bar + gap) + gap, 60);
  let most = 0;
  let least = 0;
  const bars = retry.attempts.map((a, i) => {
    const x = gap + i * (bar + gap);
    most += a.longest;
    least += a.shortest;
    return svg('g', {},
      svg('title', {}, `attempt ${a.attempt}: ${between(a.shortest, a.longest)} after the one before`),
      svg('rect', { class: 'longest', x, y: y(a.longest), width: bar, height: height - y(a.longest), rx: 3 }),
      svg('rect', { class: 'shortest', x, y: y(a.shortest), width: bar, height: height - y(a.shortest), rx: 3 }),
      svg('text', { x: x + bar / 2, y: y(a.longest) - 4, 'text-anchor': 'middle' }, span(a.longest)),
      svg('text', { class: 'attempt', x: x + bar / 2, y: height + 14, 'text-anchor': 'middle' }, String(a.attempt)));
  });
  const drawing = svg('svg', {
    class: 'schedule', viewBox: `0 0 ${width} ${height + 18}`, width, height: height + 18, 'aria-hidden': true,
  }, svg('path', { class: 'base', d: `M0 ${height}H${width}` }), bars);
  return h('div', { class: 'schedule-box' },
    retry.attempts.length > 0 && h('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': 'Retry schedule, drawn' }, drawing),
    h('p', { class: 'quiet' }, words(retry, letters, least, most)),
    table(retry));
}

const between = (a, b) => (a === b ? span(a) : `${span(a)} to ${span(b)}`);

function words(retry, letters, least, most) {
  const end = retry.max_deliver === 0
    ? 'Attempts have no limit'
    : `A retry on attempt ${retry.max_deliver} ${letters ? 'goes to the dead letters' : 'is discarded'}, ${between(least, most)} after the first`;
  return [
    end,
    retry.more && retry.max_deliver === 0 && `later ones wait at most ${span(retry.max)}`,
    retry.more && retry.max_deliver > 0 && 'later attempts are not drawn',
    retry.max_age > 0 && `a message older than ${span(retry.max_age)} is not tried again`,
    retry.retry_after_max > 0 && `the app’s Retry-After can raise a delay up to ${span(retry.retry_after_max)}`,
  ].filter(Boolean).join('; ') + '.';
}

// table is the same for those who do not see the drawing.
function table(retry) {
  return h('table', { class: 'unseen' },
    h('caption', {}, 'Delay before each attempt'),
    h('thead', {}, h('tr', {}, ['Attempt', 'Shortest', 'Longest'].map((t) => h('th', { scope: 'col' }, t)))),
    h('tbody', {}, retry.attempts.map((a) => h('tr', {},
      h('td', {}, String(a.attempt)), h('td', {}, span(a.shortest)), h('td', {}, span(a.longest))))));
}
