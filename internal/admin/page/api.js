// The way to the sidecar: requests with the token, streamed answers, and the events.

const key = 'jetsidecar-token';
let onNeedsToken = () => {};

export const token = {
  get: () => sessionStorage.getItem(key) || '',
  set: (value) => sessionStorage.setItem(key, value),
  clear: () => sessionStorage.removeItem(key),
  // whenNeeded is called when the sidecar asks for another token.
  whenNeeded(f) { onNeedsToken = f; },
};

// Refused is an answer that is no success. Its status is 0 if there was no answer; body is the answer, if it is JSON.
export class Refused extends Error {
  constructor(status, message, body) {
    super(message);
    this.status = status;
    this.body = body;
  }
}

async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  let answer;
  try {
    answer = await fetch(`api/${path}`, { ...options, headers, cache: 'no-store', credentials: 'omit', redirect: 'error' });
  } catch (e) {
    if (e.name === 'AbortError') throw e;
    throw new Refused(0, 'the sidecar does not answer');
  }
  if (answer.ok) return answer;
  const text = await answer.text();
  let why = text.slice(0, 300);
  let body;
  try {
    body = JSON.parse(text);
    why = body.error || why;
  } catch { /* of a proxy: no JSON */ }
  if (answer.status === 401) onNeedsToken(why);
  throw new Refused(answer.status, why || `status ${answer.status}`, body);
}

// askOutcome is what became of an entry, also if it was left as it was (409).
async function askOutcome(path, options) {
  try {
    return await (await ask(path, options)).json();
  } catch (e) {
    if (e.body?.result) return e.body;
    throw e;
  }
}

const json = (method, body) => ({ method, headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });
const entry = (stream, seq) => `dlq/${encodeURIComponent(stream)}/${seq}`;
// named are the parameters that changing an entry takes: when it was stored, as another can have its sequence once the stream was made anew, and
// its consumer where that is not in the configuration.
const named = (l) => `?${new URLSearchParams({ time: l.time, ...(l.other_consumer && { consumer: l.consumer }) })}`;

export const api = {
  consumers: async (signal) => (await ask('consumers', { signal })).json(),
  list: async (query, signal) => (await ask(`dlq?${new URLSearchParams(query)}`, { signal })).json(),
  stats: async (query, signal) => (await ask(`dlq/stats?${new URLSearchParams(query)}`, { signal })).json(),
  entry: async (stream, seq, signal) => (await ask(entry(stream, seq), { signal })).json(),
  remove: (l) => askOutcome(entry(l.dlq_stream, l.seq) + named(l), { method: 'DELETE' }),
  replay: (l, how) => askOutcome(`${entry(l.dlq_stream, l.seq)}/replay${named(l)}`, json('POST', how)),
  // many replays (what: replay) or removes (what: rm) a selection, and calls onLine with each line of the answer.
  async many(what, body, onLine, signal) {
    const answer = await ask(`dlq/${what}`, { ...json('POST', body), signal });
    for await (const line of lines(answer.body)) if (line) onLine(JSON.parse(line));
  },
};

async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const parts = (rest + value).split('\n');
    rest = parts.pop();
    yield* parts;
  }
  if (rest) yield rest;
}

const wait = (milliseconds, signal) => new Promise((resolve) => {
  const timer = setTimeout(resolve, milliseconds);
  signal.addEventListener('abort', () => { clearTimeout(timer); resolve(); });
});

// listen calls onEvent(name, data) for each event until signal aborts, and onState(live, error) when the connection changes.
// (An EventSource cannot send the token.)
export async function listen(onEvent, onState, signal) {
  for (let tries = 0; !signal.aborted; tries++) {
    const silent = new AbortController();
    let watchdog;
    const alive = () => { clearTimeout(watchdog); watchdog = setTimeout(() => silent.abort(), 40000); };
    try {
      alive();
      const answer = await ask('events', { signal: AbortSignal.any([signal, silent.signal]) });
      onState(true);
      tries = 0;
      let name = '';
      for await (const line of lines(answer.body)) {
        alive();
        if (line.startsWith('event: ')) name = line.slice(7);
        else if (line.startsWith('data: ')) onEvent(name, JSON.parse(line.slice(6)));
      }
      throw new Refused(0, 'the connection to the sidecar ended');
    } catch (e) {
      if (signal.aborted) return;
      if (e.status === 401) return; // begun anew with another token
      onState(false, e.name === 'AbortError' ? new Refused(0, 'the sidecar does not answer') : e);
    } finally {
      clearTimeout(watchdog);
    }
    await wait(Math.min(10000, 500 * 2 ** Math.min(tries, 5)) * (0.5 + Math.random() / 2), signal);
  }
}
