// The last minute of a bench: what a rolling plot and the small courses beside the
// rails are drawn from. Times are the host's, in seconds.
import { num } from '../lib/format.js';
import { palette } from '../lib/theme.js';

/** keep is how many seconds are kept. */
export const keep = 60;

// Averages come every 0.1 s or a little more; what lies further apart has a hole.
const hole = 1.2;

export class Trace {
  constructor() { this.clear(); }

  clear() {
    this.t = [];
    this.total = [];
    this.rails = new Map(); // watts by name
    this.arrived = 0; // of the newest, by this browser's clock
  }

  /** load takes what the host has kept, where that reaches back further. */
  load(history) {
    const t = (history?.at_s ?? []).map(num);
    if (t.length <= this.t.length) return;
    this.clear();
    this.t = t;
    this.total = history.total_w.map(num);
    for (const r of history.rails) this.rails.set(r.rail, r.power_w.map(num));
    this.arrived = performance.now();
  }

  add(moment) {
    const names = moment.rails.map((r) => r.rail);
    if (names.length !== this.rails.size || names.some((n) => !this.rails.has(n))) {
      this.clear(); // another bench file
      for (const n of names) this.rails.set(n, []);
    }
    this.t.push(Date.parse(moment.at) / 1000);
    this.total.push(num(moment.total_w));
    for (const r of moment.rails) this.rails.get(r.rail).push(num(r.power_w));
    this.arrived = performance.now();
    this.forget();
  }

  forget() {
    let n = 0;
    while (n < this.t.length && this.t[n] < this.now() - keep - 1) n++;
    if (n === 0) return;
    for (const list of [this.t, this.total, ...this.rails.values()]) list.splice(0, n);
  }

  /** now is the host's time, as far as the newest average tells it. */
  now() {
    if (this.t.length === 0) return 0;
    return this.t[this.t.length - 1] + (performance.now() - this.arrived) / 1000;
  }

  /** series returns [name, series] of the total and the rails, in seconds before now. */
  series() {
    const now = this.now();
    const t = this.t.map((x) => x - now);
    const one = (w) => {
      const s = { t: [], mean: [] };
      t.forEach((x, i) => {
        if (i > 0 && x - t[i - 1] > hole) {
          s.t.push((x + t[i - 1]) / 2);
          s.mean.push(NaN);
        }
        s.t.push(x);
        s.mean.push(w[i]);
      });
      return { ...s, min: s.mean, max: s.mean };
    };
    return [['total', one(this.total)], ...[...this.rails].map(([name, w]) => [name, one(w)])];
  }

  /** at returns the watts by name so many seconds before now; null where there are none. */
  at(t) {
    const when = this.now() + t;
    let best = -1;
    this.t.forEach((x, i) => { if (Math.abs(x - when) < hole / 2 && (best < 0 || Math.abs(x - when) < Math.abs(this.t[best] - when))) best = i; });
    return best < 0 ? null : [['total', this.total[best]], ...[...this.rails].map(([name, w]) => [name, w[best]])];
  }
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
  const top = Math.max(1e-9, ...w), low = Math.min(0, ...w);
  c.beginPath();
  let last = -Infinity;
  t.forEach((x, i) => {
    if (x < now - span) return;
    const px = width * (1 - (now - x) / span), py = height - 2 - ((w[i] - low) / (top - low)) * (height - 4);
    if (x - last > hole) c.moveTo(px, py);
    else c.lineTo(px, py);
    last = x;
  });
  c.strokeStyle = colour;
  c.lineWidth = 1.5;
  c.lineJoin = 'round';
  c.stroke();
}

/** colourOf is the colour of the n-th rail, or of the total before the first. */
export const colourOf = (n, look = palette()) => (n < 0 ? look.total : look.series[n % look.series.length]);
