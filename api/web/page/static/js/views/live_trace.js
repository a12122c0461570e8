// The last hour of a bench: what a rolling plot and the small courses beside the rails are
// drawn from, and the last seconds finer. Times are the host's, in seconds.
import { num } from '../lib/format.js';
import { palette } from '../lib/theme.js';

/** keep is how many seconds are kept, waves how many of the finer course. */
export const keep = 3600, waves = 12;

// Averages come every 0.05 s or a little more, and are kept as means of coarse s; what lies further apart than hole has one.
const coarse = 0.08, hole = 1.2;

/** first is the index of the first of sorted times at or behind one. */
function first(t, from) {
  let lo = 0, hi = t.length;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (t[mid] < from) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}

/** Column holds an hour's values in room that is taken once, so that memory does not grow; list is a view of them. */
class Column {
  constructor(values = []) {
    this.room = new Float64Array(12 * (keep + 120));
    this.list = this.room.subarray(0, 0);
    for (const v of values.slice(-this.room.length)) this.push(v);
  }

  push(v) {
    const n = this.list.length;
    if (n === this.room.length) return;
    this.room[n] = v;
    this.list = this.room.subarray(0, n + 1);
  }

  /** drop forgets the first n. */
  drop(n) {
    this.room.copyWithin(0, n, this.list.length);
    this.list = this.room.subarray(0, this.list.length - n);
  }

  set last(v) { this.list[this.list.length - 1] = v; }

  get last() { return this.list[this.list.length - 1]; }
}

export class Trace {
  constructor() {
    this.joules = 0;
    this.since = null; // when joules began to be counted, in ms
    this.clear();
  }

  clear() {
    this.columns = { t: new Column(), total: new Column(), min: new Column(), max: new Column() };
    this.rails = new Map(); // columns of watts by name
    this.part = null; // the newest mean, while more averages belong to it: when the first ended, and how many
    this.edge = 0; // when the newest average ended
    this.wave = []; // [{ at, step, w }]: the course up to a time
    this.arrived = 0; // of the newest, by this browser's clock
  }

  get t() { return this.columns.t.list; }

  get total() { return this.columns.total.list; }

  get min() { return this.columns.min.list; }

  get max() { return this.columns.max.list; }

  /** load takes what the host has kept, where that reaches back further. */
  load(history) {
    const t = (history?.at_s ?? []).map(num);
    if (t.length <= this.t.length) return;
    this.clear();
    const total = history.total_w.map(num);
    this.columns = { t: new Column(t), total: new Column(total), min: new Column(total), max: new Column(total) };
    this.edge = t[t.length - 1];
    for (const r of history.rails) this.rails.set(r.rail, new Column(r.power_w.map(num)));
    this.arrived = performance.now();
  }

  add(moment) {
    const names = moment.rails.map((r) => r.rail);
    if (names.length !== this.rails.size || names.some((n) => !this.rails.has(n))) {
      this.clear(); // another bench file
      for (const n of names) this.rails.set(n, new Column());
    }
    const at = this.placed(moment), total = num(moment.total_w);
    // An average stands in the middle of what it is of.
    const dt = num(moment.t_s) - this.last?.t, half = this.last?.capture === moment.capture_id && dt > 0 && dt < 1 ? dt / 2 : 0.025;
    this.keep(moment, at, at - half, total);
    this.edge = at;
    if (moment.wave_w?.length) this.wave.push({ at, step: num(moment.wave_step_s), w: Float32Array.from(moment.wave_w, num) });
    this.count(moment, total);
    this.arrived = performance.now();
    this.forget();
  }

  /** keep adds an average that ended at a time, and stands at when, to the newest mean, or begins another. */
  keep(moment, at, when, total) {
    const { t, total: w, min, max } = this.columns, low = num(moment.min_w ?? total), high = num(moment.max_w ?? total);
    const p = this.part?.capture === moment.capture_id && at - this.part.from < coarse ? this.part : null;
    if (!p) {
      this.part = { capture: moment.capture_id, from: at, n: 1 };
      t.push(Math.max(when, (t.last ?? -Infinity) + 1e-3));
      w.push(total);
      min.push(low);
      max.push(high);
      for (const r of moment.rails) this.rails.get(r.rail).push(num(r.power_w));
      return;
    }
    const blend = (c, v) => { c.last += (v - c.last) / p.n; };
    p.n++;
    blend(t, Math.max(when, t.last));
    blend(w, total);
    min.last = Math.min(min.last, low);
    max.last = Math.max(max.last, high);
    for (const r of moment.rails) blend(this.rails.get(r.rail), num(r.power_w));
  }

  /** placed is when a moment ended, by the host's clock: apart as the device's time is, whose averages arrive now and then a little late. */
  placed(moment) {
    const at = Date.parse(moment.at) / 1000, t = num(moment.t_s);
    if (this.anchor?.capture !== moment.capture_id || Math.abs(at - t - this.anchor.offset) > 0.3) this.anchor = { capture: moment.capture_id, offset: at - t };
    return t + this.anchor.offset;
  }

  /** count adds a moment's energy to the counter: over the device time since the moment before. */
  count(moment, total) {
    const t = num(moment.t_s), dt = t - this.last?.t;
    if (this.last?.capture === moment.capture_id && dt > 0 && dt < 5) this.joules += total * dt;
    this.since ??= Date.now();
    this.last = { t, capture: moment.capture_id };
  }

  /** reset begins the counter of joules anew. */
  reset() {
    this.joules = 0;
    this.since = Date.now();
  }

  forget() {
    while (this.wave.length && this.wave[0].at < this.now() - waves) this.wave.shift();
    const n = first(this.t, this.now() - keep - 60);
    if (n < 600) return; // a minute at once
    for (const c of [...Object.values(this.columns), ...this.rails.values()]) c.drop(n);
  }

  /** now is the host's time, as far as the newest average tells it. */
  now() {
    if (this.t.length === 0) return 0;
    return this.edge + (performance.now() - this.arrived) / 1000;
  }

  /** series returns [name, series] of the total and the rails from one time to another, in seconds about now: at most so many columns each. */
  series(now, from, to, columns) {
    const a = Math.max(0, first(this.t, now + from) - 1), b = Math.min(this.t.length, first(this.t, now + to) + 1), each = Math.max(1, Math.ceil((b - a) / columns));
    const one = (mean, min, max) => {
      const s = { t: [], mean: [], min: [], max: [] };
      for (let i = a; i < b; i += each) {
        const end = Math.min(b, i + each);
        let sum = 0, lo = Infinity, hi = -Infinity;
        for (let k = i; k < end; k++) {
          sum += mean[k];
          lo = Math.min(lo, min[k]);
          hi = Math.max(hi, max[k]);
        }
        if (i > a && this.t[i] - this.t[i - 1] > hole) push(s, (this.t[i] + this.t[i - 1]) / 2 - now, NaN, NaN, NaN);
        push(s, (this.t[i] + this.t[end - 1]) / 2 - now, sum / (end - i), lo, hi);
      }
      return s;
    };
    return [['total', this.fine(now, from, to) ?? one(this.total, this.min, this.max)], ...[...this.rails].map(([name, w]) => [name, one(w.list, w.list, w.list)])];
  }

  /** fine is the total as its finer course, where that covers a span; else null. */
  fine(now, from, to) {
    if (to - from > waves - 1 || !this.wave.length || this.wave[0].at - 0.2 > Math.max(now + from, this.t[0] + 0.2)) return null;
    const s = { t: [], mean: [], min: [], max: [] };
    let last = NaN;
    for (const { at, step, w } of this.wave) {
      if (at < now + from - 0.2 || at - w.length * step > now + to + 0.2) continue;
      if (at - w.length * step - last > 0.3) push(s, last + 0.01 - now, NaN, NaN, NaN);
      w.forEach((v, i) => push(s, at - (w.length - 0.5 - i) * step - now, v, v, v));
      last = at;
    }
    return s.t.length ? s : null;
  }

  /** latest are the values of the course in the last seconds, and how far they lie apart. */
  latest(seconds) {
    const step = this.wave[this.wave.length - 1]?.step, n = Math.round(seconds / step);
    const all = this.wave.slice(-Math.ceil(seconds / 0.05)).filter((c) => c.step === step).flatMap((c) => [...c.w]);
    return { step, values: all.slice(-n) };
  }

  /** at returns the watts by name at a time; null where there are none. */
  at(when) {
    const i = first(this.t, when), near = [i - 1, i].filter((k) => Math.abs(this.t[k] - when) < hole / 2).sort((p, q) => Math.abs(this.t[p] - when) - Math.abs(this.t[q] - when))[0];
    return near === undefined ? null : [['total', this.total[near]], ...[...this.rails].map(([name, w]) => [name, w.list[near]])];
  }

  /** energy is the integral of the total between two times: of the finer course where it is there, else of the averages. NaN where something is missing. */
  energy(from, to) {
    const s = this.fine(from, 0, to - from) ?? this.series(from, 0, to - from, Infinity)[0][1];
    let sum = 0, covered = 0;
    for (let i = 1; i < s.t.length; i++) {
      const a = Math.max(0, s.t[i - 1]), b = Math.min(to - from, s.t[i]);
      if (!(b > a) || Number.isNaN(s.mean[i] + s.mean[i - 1])) continue;
      const at = (x) => s.mean[i - 1] + ((x - s.t[i - 1]) / (s.t[i] - s.t[i - 1])) * (s.mean[i] - s.mean[i - 1]);
      sum += ((at(a) + at(b)) / 2) * (b - a);
      covered += b - a;
    }
    return covered > 0.98 * (to - from) ? sum : NaN;
  }
}

function push(s, t, mean, min, max) {
  s.t.push(t);
  s.mean.push(mean);
  s.min.push(min);
  s.max.push(max);
}

/** crossing is the first time at which a moment's course, which ended at a time, passes a level upwards (way 1) or downwards (−1); NaN for never. before is the value before it. */
export function crossing(moment, at, before, level, way) {
  const w = moment.wave_w?.length ? moment.wave_w.map(num) : [num(moment.total_w)], step = num(moment.wave_step_s) || 0.1;
  let last = before;
  for (let i = 0; i < w.length; i++) {
    if (way * (last - level) < 0 && way * (w[i] - level) >= 0) return at - (w.length - 1 - i) * step;
    last = w[i];
  }
  return NaN;
}

/** course draws a list of watts small, from zero up, the newest at the right. */
export function course(canvas, t, w, now, span, colour) {
  const width = canvas.clientWidth, height = canvas.clientHeight;
  if (width === 0) return;
  const f = Math.min(3, devicePixelRatio || 1);
  canvas.width = Math.round(width * f);
  canvas.height = Math.round(height * f);
  const c = canvas.getContext('2d');
  c.scale(f, f);
  const begin = first(t, now - span), each = Math.max(1, Math.floor((t.length - begin) / (2 * width)));
  let top = 1e-9, low = 0;
  for (let i = begin; i < w.length; i++) [top, low] = [Math.max(top, w[i]), Math.min(low, w[i])];
  c.beginPath();
  let last = -Infinity;
  for (let i = begin; i < t.length; i += each) {
    const px = width * (1 - (now - t[i]) / span), py = height - 2 - ((w[i] - low) / (top - low)) * (height - 4);
    if (t[i] - last > hole * each) c.moveTo(px, py);
    else c.lineTo(px, py);
    last = t[i];
  }
  c.strokeStyle = colour;
  c.lineWidth = 1.5;
  c.lineJoin = 'round';
  c.stroke();
}

/** colourOf is the colour of the n-th rail, or of the total before the first. */
export const colourOf = (n, look = palette()) => (n < 0 ? look.total : look.series[n % look.series.length]);
