// What a task's plot is made of: its series by mode, shaded stretches, kernels, readings.
import { el } from '../lib/dom.js';
import { many, num, seconds, watts, word } from '../lib/format.js';
import { held, stack } from '../plot/envelope.js';
import { instant } from '../plot/scale.js';
import { scanTime } from './task_parts.js';

const total = 'total';
const rail = (i) => (look) => look.series[i % look.series.length];
const black = (look) => look.total;

/** railsOf returns the series of rails, and that of the total. */
export function railsOf(p) {
  const rails = p.envelope.series.filter((s) => s.rail !== total);
  const sum = p.envelope.series.find((s) => s.rail === total);
  return { rails, sum: sum ?? rails[0] };
}

/** alone tells whether the total is the only curve, which has a rail's colour then. */
const alone = (p, rails) => p.mode === 'total' || rails.length < 2;

/** panels lays the series out: one on the other, each in its own panel, or the total alone. */
export function panels(p, narrow) {
  const { rails, sum } = railsOf(p);
  if (!sum) return [];
  const readings = p.readings ?? [];
  const whole = { s: sum, colour: black, alpha: 0.25, line: 1.2 };
  if (alone(p, rails)) return [{ title: total, first: true, series: [{ ...whole, colour: rail(0), alpha: 0.35 }], readings }];
  if (p.mode === 'rails') {
    return [{ title: total, first: true, weight: 0.8, series: [whole], readings },
      ...rails.map((s, i) => ({ title: s.rail, weight: narrow ? 0.5 : 0.42, series: [{ s, colour: rail(i), alpha: 0.3, line: 1.3 }] }))];
  }
  return [{ title: 'rails, one on the other', short: '', first: true, series: [
    ...stack(rails).map((s, i) => ({ s, colour: rail(i), alpha: 0.6, line: 0, area: true })), { ...whole, alpha: 0.15 }], readings }];
}

/** legend names the colours of what the task has. */
export function legend(p) {
  const { rails } = railsOf(p);
  const item = (colour, text) => {
    const key = el('span', { class: 'key', 'aria-hidden': 'true' });
    key.style.background = colour;
    return el('li', {}, key, text);
  };
  const one = alone(p, rails), has = new Set(shades(p).map((s) => s.kind));
  return [
    ...(one ? [] : rails.map((s, i) => item(`var(--series-${(i % 8) + 1})`, s.rail))),
    item(one ? 'var(--series-1)' : 'var(--total)', 'total: mean, within least and greatest'),
    has.has('marker') ? item('var(--marker)', 'marker') : null, has.has('outside') ? item('var(--outside)', 'outside the window') : null,
    has.has('gap') ? item('var(--gap)', p.gapsLeft ? `lost; ${many(p.gapsLeft, 'shorter gap')} not drawn: zoom in` : 'lost') : null,
  ];
}

const mostGaps = 500;

/** gaps are all, or of many those about what is in view; where these are too many the longest, which the legend says. */
function gaps(p) {
  const { from, to } = p.plot.view, at = (e) => scanTime(p.answer, e.first_scan);
  let list = (p.answer.events ?? []).filter((e) => e.kind === 'EVENT_KIND_GAP');
  if (list.length > mostGaps) list = list.filter((e) => at(e) <= to + (to - from) && at(e) + scanTime(p.answer, e.scans) >= from - (to - from));
  p.gapsLeft = Math.max(0, list.length - mostGaps);
  return p.gapsLeft ? list.sort((a, b) => num(b.scans) - num(a.scans)).slice(0, mostGaps) : list;
}

/** shades are markers, what lies outside the window, and gaps. */
export function shades(p) {
  const out = [];
  if (p.window) {
    out.push(...[[p.extent[0], p.window[0]], [p.window[1], p.extent[1]]].filter(([from, to]) => to - from > p.period).map(([from, to]) => ({ from, to, kind: 'outside' })));
  }
  for (const m of p.answer.markers ?? []) {
    out.push({ from: num(m.begin_s), to: num(m.end_s), kind: 'marker', text: `${word(m.kind, 'MARKER_KIND_')} marker` });
  }
  for (const e of gaps(p)) {
    const from = scanTime(p.answer, e.first_scan);
    out.push({ from, to: from + scanTime(p.answer, e.scans), kind: 'gap', text: 'lost', least: 2 });
  }
  return out;
}

/**
 * kernelTrack lays the slices of ReadTimeline into rows, one a stream of a device; their times are moved by shift
 * seconds. Where a name is marked, the others are pale.
 */
export function kernelTrack(timeline, colours, { title = 'kernels', shift = 0, marked = '' } = {}) {
  const rows = new Map();
  for (const s of timeline?.slices ?? []) {
    const device = num(s.device ?? 0), stream = num(s.stream ?? 0), key = device * 2 ** 32 + stream;
    if (!rows.has(key)) rows.set(key, { key, device, stream, slices: [] });
    rows.get(key).slices.push({ from: num(s.from_s) + shift, to: num(s.to_s) + shift, name: s.name, kernels: num(s.kernels), pale: marked !== '' && s.name !== marked });
  }
  if (rows.size === 0) return [];
  const list = [...rows.values()].sort((a, b) => a.key - b.key), devices = new Set(list.map((r) => r.device)).size;
  const label = (r) => (list.length < 2 ? '' : devices > 1 ? `${r.device}: ${r.stream}` : `stream ${r.stream}`);
  return [{ title, rows: list.map((r) => r.slices), labels: list.map(label), colourOf: (name, look) => colours.of(name, look) }];
}

/** hint says how a plot is read. */
export const hint = () => (matchMedia('(pointer: coarse)').matches ? 'Tap to put a cursor. Two fingers zoom, one moves.' : 'Point at the plot to read it. Click puts a cursor, dragging zooms, the wheel zooms.');

/**
 * stretchTrack lays named stretches into rows: what lies within another one below it, as in a flame view.
 */
export function stretchTrack(stretches, colours) {
  const rows = [], open = [];
  for (const s of [...stretches].sort((a, b) => a.from - b.from || b.to - a.to)) {
    while (open.length && open[open.length - 1].to <= s.from) open.pop();
    // One that only overlaps has to go below, too.
    (rows[open.length] ??= []).push({ ...s, kernels: 1, stretch: true });
    open.push(s);
  }
  return rows.length ? [{ title: 'ranges', rows, colourOf: (name, look) => colours.of(name, look) }] : [];
}

/** readout says what was drawn at a time. With brief, only the total's watts, as text. */
export function readout(p, t, brief) {
  if (!p.envelope || !Number.isFinite(t)) return brief ? '' : el('span', { class: 'soft' }, hint());
  const reach = Math.max(p.envelope.width, p.period);
  const { rails, sum } = railsOf(p);
  const i = sum ? sum.at(t, reach) : -1;
  if (brief) return i < 0 ? 'no sample here' : between(sum, i);
  const parts = [el('strong', {}, instant(t, p.plot.view.to - p.plot.view.from)), i < 0 ? 'no sample here' : `total ${between(sum, i)}`];
  for (const s of rails.length > 1 ? rails : []) {
    const k = s.at(t, reach);
    if (k >= 0) parts.push(`${s.rail} ${watts(s.mean[k])}`);
  }
  for (const r of p.readings ?? []) {
    const k = held(r, t);
    if (k >= 0) parts.push(`${r.text} ${watts(r.value[k])}`);
  }
  const kernel = kernelAt(p.timeline, t);
  if (kernel) parts.push(kernel);
  return parts.map((x) => (typeof x === 'string' ? el('span', {}, x) : x));
}

/** kernelAt says what ran at a time, on all streams; empty where nothing did. */
export function kernelAt(timeline, t) {
  return (timeline?.slices ?? []).filter((s) => num(s.from_s) <= t && t <= num(s.to_s))
    .map((s) => (num(s.kernels) > 1 ? `${s.kernels} kernels, most of the time ${s.name}` : `${s.name}, ${seconds(s.busy_s)}`)).join(' · ');
}

/** between writes a column: its mean, and how far it reaches. */
function between(s, i) {
  return s.min[i] === s.max[i] ? watts(s.mean[i]) : `${watts(s.mean[i])} (${watts(s.min[i])} to ${watts(s.max[i])})`;
}
