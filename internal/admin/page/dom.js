// Elements are made here. Texts become text nodes, never markup: nothing of a message is ever parsed as HTML.

import { ago } from './format.js';

const svgNamespace = 'http://www.w3.org/2000/svg';

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? '' : String(value));
  }
  node.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}

// h makes an element: h('p', {class: 'x', onclick: f}, 'text', otherElement).
export const h = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);

// svg does the same for drawings.
export const svg = (name, attributes, ...children) => fill(document.createElementNS(svgNamespace, name), attributes, children);

// set changes a text only if it differs, so that screen readers and selections are left alone.
export function set(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// show shows or hides.
export function show(node, visible) {
  node.hidden = !visible;
}

// say tells the result of an action, to the eye and to screen readers.
export function say(text, bad) {
  const said = document.getElementById('said');
  said.className = bad ? 'said bad' : 'said';
  said.textContent = text;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => { said.textContent = ''; }, 12000);
}

// past is how long a time is past. It stays true: see keepTime.
export const past = (time) => h('span', { 'data-past': time || '' }, ago(time));

// keepTime writes all times that are past anew, every few seconds, and touches nothing else.
export function keepTime() {
  setInterval(() => {
    for (const node of document.querySelectorAll('[data-past]')) set(node, ago(node.dataset.past));
  }, 3000);
}

// badge is a short word with a colour: good, warn, bad or plain.
export const badge = (kind, text) => h('span', { class: `badge ${kind}` }, text);
