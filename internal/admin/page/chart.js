// Small charts of the last minutes: areas over a fixed span of time, the present at the right.

import { svg, set } from './dom.js';

const width = 240;
const height = 56;

// Chart draws one or more series on one scale. The first is filled. Series are lists of numbers, the oldest first; there is room
// for steps of them.
export class Chart {
  constructor(label, classes, steps, least = 1) {
    this.steps = steps;
    this.least = least;
    this.label = label;
    this.area = svg('path', { class: `area ${classes[0]}` });
    this.paths = classes.map((c) => svg('path', { class: `line ${c}`, 'vector-effect': 'non-scaling-stroke' }));
    this.title = svg('title', {}, label);
    this.node = svg('svg', { class: 'chart', viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', role: 'img' },
      this.title,
      svg('path', { class: 'base', d: `M0 ${height - 0.5}H${width}`, 'vector-effect': 'non-scaling-stroke' }),
      this.area, this.paths);
  }

  // draw shows the series and says their last and highest values in words.
  draw(series, inWords) {
    const top = Math.max(this.least, ...series.flat()) * 1.08;
    const x = (i, n) => width - ((n - 1 - i) * width) / (this.steps - 1);
    const y = (v) => height - 1 - (v / top) * (height - 3);
    const path = (values) => values.map((v, i) => `${i ? 'L' : 'M'}${x(i, values.length).toFixed(1)} ${y(v).toFixed(1)}`).join('');
    series.forEach((values, i) => this.paths[i].setAttribute('d', path(values)));
    const first = series[0];
    this.area.setAttribute('d', first.length > 1 ? `${path(first)}V${height}H${x(0, first.length).toFixed(1)}Z` : '');
    set(this.title, `${this.label}, the last minutes: ${inWords}`);
  }
}
