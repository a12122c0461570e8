// What stands around the rails of a bench: who has it, who waits, what it is.
import { el } from '../lib/dom.js';
import { count, hertz, none, num, serials, time, word } from '../lib/format.js';
import { notice } from '../lib/parts.js';
import { link } from '../lib/router.js';

/** age is a span for a reader: 12 s, 3 min, 2 h. */
export function age(s) {
  if (!(s > 0)) return '0 s';
  if (s < 120) return `${Math.floor(s)} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

const since = (text) => (Date.now() - Date.parse(text)) / 1000;

/** ago is a span that goes on: beat() writes it anew. */
export function ago(text, words = (a) => a) {
  const e = el('time', { datetime: text ?? '', title: time(text) });
  e.beat = () => {
    const now = words(age(since(text)));
    if (e.textContent !== now) e.textContent = now;
  };
  e.beat();
  return e;
}

/** beat writes all spans below an element anew. */
export const beat = (root) => root.querySelectorAll('time').forEach((e) => e.beat?.());

/** stateOf is a bench in one word: away, draining, trouble, held or free. */
export function stateOf(s) {
  if (s.reach === 'BENCH_REACH_AWAY') return 'away';
  if (s.reach !== 'BENCH_REACH_PRESENT') return 'asking';
  if (s.holder) return 'held';
  if (s.trouble) return 'trouble';
  return s.draining ? 'draining' : 'free';
}

const kinds = { away: 'void', trouble: 'doubtful', draining: 'doubtful', held: 'running', free: 'good', asking: '' };

export const benchBadge = (s) => el('span', { class: `badge ${kinds[stateOf(s)]}` }, { held: 'measuring' }[stateOf(s)] ?? stateOf(s));

export const nameOf = (s) => s.name || s.bench;

/** troubles are notices of what is wrong with a bench. */
export function troubles(s) {
  const out = [];
  if (s.reach === 'BENCH_REACH_AWAY') {
    out.push(notice([el('strong', {}, `The monitor at ${s.bench} is away`), ` since ${time(s.since)}. `,
      `It is asked again every second. ${s.away}`], true));
  }
  if (s.trouble) out.push(notice([el('strong', {}, 'Cannot be sampled now: '), s.trouble]));
  if (s.draining) out.push(notice('The monitor is being stopped: it takes no new captures.'));
  if (s.bridged) out.push(notice(s.bridged));
  for (const n of s.notes ?? []) out.push(notice(n));
  return out;
}

const taskLink = (id, text) => (num(id) > 0 ? el('a', { href: link('task', id) }, text) : text);

/** holder tells who has the bench, for which task, and who had it last. */
export function holder(s) {
  const rows = [];
  if (s.holder) {
    rows.push(['Held by', el('strong', {}, s.holder)], ['since', [time(s.held_since), ' (', ago(s.held_since), ')']],
      ['Task', s.task_id !== '0' ? taskLink(s.task_id, `${s.task_name || 'task'} (task ${s.task_id})`) : s.task_name || none]);
    if (s.task_id === '0') rows.push(['', el('span', { class: 'soft' }, 'Not in this host’s database, or not yet.')]);
  } else {
    rows.push(['Held by', s.reach === 'BENCH_REACH_AWAY' ? 'not known' : 'nobody']);
  }
  const last = s.last;
  if (last) {
    const name = last.capture.task_name || `capture ${last.capture.capture_id}`;
    rows.push(['Last', [last.task_id !== '0' ? taskLink(last.task_id, `${name} (task ${last.task_id})`) : name, last.capture.holder ? ` by ${last.capture.holder}` : '']]);
  }
  const line = s.waiting ?? [];
  rows.push(['Waiting', line.length === 0 ? 'nobody' : el('ol', { class: 'line' }, line.map((w) => el('li', {}, w.holder, ago(w.since, (a) => `, for ${a}`))))]);
  return terms(rows);
}

/** heldBy is what holder() rests on: a capture's end changes nothing of what is shown, and a link must outlast a press. */
export const heldBy = (s) => [s.reach, s.holder, s.held_since, s.task_id, s.task_name, s.waiting,
  s.last && [s.last.task_id, s.last.capture.capture_id, s.last.capture.task_name, s.last.capture.holder]];

/** kept lists the captures that the monitor has on its disk. */
export function kept(s) {
  const list = s.captures ?? [];
  if (list.length === 0) return el('p', { class: 'soft' }, 'None: all that was measured was fetched.');
  return el('ul', { class: 'kept' }, list.map(({ capture: c, task_id: id }) => el('li', {},
    taskLink(id, c.task_name || c.capture_id), keptText(c), c.reason ? el('div', { class: 'soft' }, c.reason) : null)));
}

/** keptText says of a capture what it is, and how large once it no longer grows. */
const keptText = (c) => ` by ${c.holder}, ${word(c.state, 'CAPTURE_STATE_')}${/COMPLETE$/.test(c.state) ? `, ${size(c.spool_bytes)}` : ''}`;

/** keptOn is what the list of captures rests on. */
export const keptOn = (s) => (s.captures ?? []).map(({ capture: c, task_id: id }) => [c.capture_id, c.task_name, c.reason, id, keptText(c)]);

function size(bytes) {
  const b = num(bytes);
  return b < 1e6 ? `${count(Math.round(b / 1000))} kB` : `${count((b / 1e6).toFixed(1))} MB`;
}

/** about tells what the bench is, and the calibration in force. */
export function about(s) {
  const i = s.instrument ?? {};
  return terms([
    ['Monitor', `${s.bench}${s.version ? `, wattmark ${s.version}, protocol ${s.protocol}` : ''}`],
    ['Instrument', [i.model, serials(i.serial) && `no. ${serials(i.serial)}`, i.firmware && `firmware ${i.firmware}`].filter(Boolean).join(', ') || i.kind || none],
    ['Sample rate', num(s.sample_rate_hz) > 0 ? hertz(s.sample_rate_hz).replace('Hz', 'S/s') : none],
    ['GPU', s.gpu_uuid || 'nobody said which'],
    ['Not measured', (s.missing ?? []).join(', ') || 'nothing: all rails of the card'],
    ['Calibration', [el('code', {}, s.calibration_id || none), (s.records ?? []).length ? null : el('span', { class: 'soft' }, ' by instrument and bench file alone')]],
    ...(s.records ?? []).map(record),
  ]);
}

/** record is one act of calibration, in a line; its text is JSON of the monitor's. */
function record(r) {
  let o = {};
  try {
    o = JSON.parse(r.text) ?? {};
  } catch { /* the identity must do */ }
  const words = [o.kind, o.subject ?? o.channel ?? o.rail, o.date ?? o.made, o.operator ?? o.by].filter((x) => typeof x === 'string' && x !== '');
  return ['', [el('code', {}, r.id), words.length ? ` ${words.join(', ')}` : '']];
}

/** terms is a list of terms and what they mean. */
export const terms = (rows) => el('dl', { class: 'terms' }, rows.map(([t, v]) => [el('dt', {}, t), el('dd', {}, v)]));
