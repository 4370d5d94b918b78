// How numbers, times and foreign text are written.

const whole = new Intl.NumberFormat('en');
const compact = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });

export const count = (n) => (n < 100000 ? whole.format(n) : compact.format(n));

// rate is a number a second with as many digits as one needs.
export function rate(perSecond) {
  if (perSecond === 0) return '0';
  if (perSecond < 0.1) return '<0.1';
  return perSecond < 10 ? perSecond.toFixed(1) : count(Math.round(perSecond));
}

export function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB'];
  let unit = 0;
  for (; n >= 1024 && unit < units.length - 1; unit++) n /= 1024;
  return `${unit && n < 10 ? n.toFixed(1) : Math.round(n)} ${units[unit]}`;
}

// span is a duration in seconds: 250 ms, 1.5 s, 2 m 30 s, 3 h.
export function span(seconds) {
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${Math.round(seconds * 10) / 10} s`;
  const parts = [[86400, 'd'], [3600, 'h'], [60, 'm'], [1, 's']];
  const first = parts.findIndex(([size]) => seconds >= size);
  let rest = Math.round(seconds);
  return parts.slice(first, first + 2).map(([size, unit]) => {
    const n = Math.floor(rest / size);
    rest -= n * size;
    return n ? `${n} ${unit}` : '';
  }).filter(Boolean).join(' ');
}

// ago is how long a time is past, roughly.
export function ago(time, now = Date.now()) {
  const at = moment(time);
  if (!at) return 'unknown';
  const seconds = Math.max(0, (now - at) / 1000);
  if (seconds < 5) return 'just now';
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  for (const [size, unit] of [[86400, 'd'], [3600, 'h'], [60, 'm']]) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${unit} ago`;
  }
  return '';
}

const local = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
// moment is a time, undefined for what is none: headers can hold anything.
function moment(time) {
  const at = new Date(/^\d{4}-\d\d-\d\dT/.test(time) ? time : NaN);
  return Number.isNaN(at.getTime()) || at.getUTCFullYear() < 1970 ? undefined : at;
}

export function clock(time) {
  const at = moment(time);
  return at ? local.format(at) : 'unknown';
}

// What cannot be seen, or changes the order in which text is shown: control, bidirectional and zero-width characters.
const unseen = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/gu;

const code = (c) => `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}⟩`;

// visible writes foreign text so that all of it can be seen, on one line.
export const visible = (text) => String(text).replace(unseen, code);

// visibleLines does the same and leaves line ends and tabs.
export const visibleLines = (text) => String(text).replace(/\r\n/g, '\n').replace(unseen, (c) => (c === '\n' || c === '\t' ? c : code(c)));

const names = {
  200: 'OK', 202: 'Accepted', 204: 'No Content', 301: 'Moved Permanently', 302: 'Found', 400: 'Bad Request', 401: 'Unauthorized',
  403: 'Forbidden', 404: 'Not Found', 405: 'Method Not Allowed', 408: 'Request Timeout', 409: 'Conflict', 410: 'Gone',
  413: 'Content Too Large', 415: 'Unsupported Media Type', 418: "I'm a teapot", 422: 'Unprocessable Content', 429: 'Too Many Requests',
  500: 'Internal Server Error', 501: 'Not Implemented', 502: 'Bad Gateway', 503: 'Service Unavailable', 504: 'Gateway Timeout',
};

// status is an HTTP status with its name.
export const status = (n) => (n ? [n, names[n]].filter(Boolean).join(' ') : 'no answer');

// reasons are the causes a dead letter can have, in plain words.
export const reasons = {
  rejected: 'the app rejected it',
  max_deliver: 'the last attempt failed',
  max_age: 'it was too old to be tried again',
  crash_loop: 'processes died with it',
  max_deliver_server: 'the server gave up on it',
  undeliverable: 'no request can be made of it',
};
