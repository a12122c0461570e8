// The JSON API of this host (docs/host.md).
import { envelopeAnswer, envelopeRequest } from './proto.js';

/** ApiError is an answer that is none: status 0 when the host did not answer at all. */
export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.name = 'ApiError';
    this.status = status;
  }
}

function address(path, params) {
  const q = new URLSearchParams();
  for (const [name, v] of Object.entries(params)) {
    for (const one of Array.isArray(v) ? v : [v]) {
      if (one !== undefined && one !== null && one !== '') q.append(name, one);
    }
  }
  const text = q.toString();
  return text ? `${path}?${text}` : path;
}

async function ask(path, params, signal, method = 'GET', body = undefined) {
  const bytes = body instanceof Uint8Array, headers = bytes ? { 'Content-Type': 'application/proto' } : { Accept: 'application/json' };
  if (body !== undefined && !bytes) headers['Content-Type'] = 'application/json';
  let res;
  try {
    res = await fetch(address(path, params), { signal, method, headers, body: body === undefined || bytes ? body : JSON.stringify(body) });
  } catch (e) {
    if (e.name === 'AbortError') throw e;
    throw new ApiError('The host does not answer. Is wattmark host still running?', 0);
  }
  if (res.ok) return res;
  // The session is over: what it showed leaves the screen, and who signs in again comes back to it.
  if (res.status === 401) location.replace(`/signin${location.hash}`);
  let message = `${res.status} ${res.statusText}`;
  try {
    const body = await res.json();
    message = (body.error ?? body).message || message;
  } catch { /* no JSON: the status must do */ }
  throw new ApiError(message, res.status);
}

/** readEnvelope asks for columns of power, as 32-bit floats: a fifth of the bytes of JSON. */
export async function readEnvelope(params, signal) {
  const res = await ask('/wattmark.v1.TaskService/ReadEnvelope', {}, signal, 'POST', envelopeRequest(params));
  return envelopeAnswer(new Uint8Array(await whole(() => res.arrayBuffer())));
}

const base64 = (bytes) => btoa(String.fromCharCode(...bytes));
const bytesOf = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

/**
 * batch asks several calls in one request: [{ path, params }], or { envelope: params } for columns of power. It returns
 * their answers in order, an ApiError in the place of one that failed.
 */
export async function batch(calls, signal) {
  if (calls.length === 0) return [];
  const { answers } = await send('POST', '/v1/batch', {}, { calls: calls.map((c) => (c.envelope
    ? { path: '/wattmark.v1.TaskService/ReadEnvelope', message: base64(envelopeRequest(c.envelope)) } : { path: address(c.path, c.params ?? {}) })) }, signal);
  return answers.map((a, i) => {
    if (a.status !== 200) return new ApiError(a.json?.error?.message ?? a.json?.message ?? `error ${a.status}`, a.status);
    return calls[i].envelope ? envelopeAnswer(bytesOf(a.message ?? '')) : a.json;
  });
}

/** whole reads an answer to its end. */
async function whole(read) {
  try {
    return await read();
  } catch (e) {
    if (e.name === 'AbortError') throw e;
    throw new ApiError('The answer broke off. Try again.', 0);
  }
}

/** get asks a call; signal gives it up. It throws ApiError, or AbortError when given up. */
export const get = (path, params = {}, signal = undefined) => send('GET', path, params, undefined, signal);

/** send asks a call that changes something, with a body. */
export async function send(method, path, params, body, signal) {
  const res = await ask(path, params, signal, method, body);
  return whole(() => (res.status === 204 ? null : res.json()));
}

/** stream yields the objects of a call that streams them, one a line. */
export async function* stream(path, params = {}, signal = undefined) {
  const res = await ask(path, params, signal);
  const reader = res.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (;;) {
      let part;
      try {
        part = await reader.read();
      } catch (e) {
        if (e.name === 'AbortError') throw e;
        throw new ApiError('The host does not answer any more.', 0);
      }
      if (part.done) return;
      const lines = (rest + part.value).split('\n');
      rest = lines.pop();
      for (const line of lines) {
        if (line.trim() === '') continue;
        const o = JSON.parse(line);
        if (o.error) throw new ApiError(o.error.message, o.error.http_code ?? 500);
        yield o.result;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** latest gives up the call before when a new one begins: get that only the last one's answer counts of. */
export function latest() {
  let running;
  const anew = () => {
    running?.abort();
    running = new AbortController();
    return running.signal;
  };
  return {
    get: (path, params) => get(path, params, anew()),
    envelope: (params) => readEnvelope(params, anew()),
    batch: (calls) => batch(calls, anew()),
    stop() { running?.abort(); },
  };
}

/** givenUp tells whether an error only says that nobody waits any more. */
export const givenUp = (e) => e?.name === 'AbortError';
