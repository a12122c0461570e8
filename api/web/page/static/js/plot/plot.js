// A plot of power over time: panels one above the other on one axis of time, with
// shaded stretches, tracks of slices, and two cursors. It shows what it is given, and
// tells what its user wants to see; where data come from is not its business.
import { palette, onTheme } from '../lib/theme.js';
import { el } from '../lib/dom.js';
import { bounds, until } from './envelope.js';
import { range } from './scale.js';
import { drawPanel, drawTrack, drawTimeAxis, drawTimeGrid, drawShades } from './frame.js';
import { drawOverlay } from './overlay.js';
import { gestures } from './gestures.js';
import { keyboard } from './keys.js';

const gutter = 58, right = 10, axis = 34, between = 10, trackHeight = 24;

/** shortest is the shortest span that can be looked at, in seconds. */
export const shortest = 1e-7;

export class Plot {
  /**
   * told = { view(from, to, done), cursors(a, b), hover(t or NaN), read(t), pick(slice),
   * step(way), snaps(), round(t) }: what its user does; snaps are the instants that cursors go to. view is called with done = false while a gesture goes on;
   * read when keys moved the point; pick when a slice of a track is clicked.
   */
  constructor(label, told) {
    this.told = told;
    this.data = { panels: [], tracks: [], shades: [], reach: Infinity, dots: false };
    this.view = { from: 0, to: 1 };
    this.limits = { from: 0, to: 1 };
    this.cursors = { a: NaN, b: NaN };
    this.window = null; // what W shows
    this.hover = NaN;
    this.resting = NaN;
    this.selection = null; // [t, t] while a stretch is drawn up
    this.zero = true;
    this.panelHeight = 220;
    this.main = el('canvas', { 'aria-hidden': 'true' });
    this.over = el('canvas', { 'aria-hidden': 'true' });
    this.element = el('div', { class: 'plot', tabindex: 0, role: 'application', 'aria-roledescription': 'plot', 'aria-label': label }, this.main, this.over);
    this.ends = [onTheme(() => this.later()), gestures(this), keyboard(this)];
    this.watch = new ResizeObserver(() => { this.measure(); this.later(); });
    this.watch.observe(this.element);
    this.drawn = () => {}; // called after each painting
  }

  close() {
    this.watch.disconnect();
    cancelAnimationFrame(this.frame);
    clearTimeout(this.stale);
    this.ends.forEach((f) => f());
  }

  /** set replaces what is shown: { panels, tracks, shades, reach, dots, sameScale }, as far as given. */
  set(data) {
    Object.assign(this.data, data);
    clearTimeout(this.stale);
    this.later();
  }

  /** measure asks how wide the plot is. Asked while it is drawn, each answer would lay the page out anew. */
  measure() { this.outer = this.element.clientWidth; }

  /** width is the width of the panels, in pixels. */
  get width() {
    if (!this.outer) this.measure();
    return Math.max(50, this.outer - gutter - right);
  }

  /** pixels is how many columns are worth asking for: none is narrower than a pixel of the screen. */
  get pixels() { return Math.floor(Math.min(2000, this.width * Math.min(2, devicePixelRatio || 1))); }

  timeAt(x) { return this.view.from + ((x - gutter) / this.width) * (this.view.to - this.view.from); }
  xOf(t) { return gutter + ((t - this.view.from) / (this.view.to - this.view.from)) * this.width; }

  /** look shows a span, within the limits. done tells that the gesture is over. */
  look(from, to, done = true) {
    const whole = this.limits.to - this.limits.from;
    const span = Math.min(Math.max(to - from, shortest), whole);
    from = Math.min(Math.max(from + (to - from - span) / 2, this.limits.from), this.limits.to - span);
    this.view = { from, to: from + span };
    // What moves below a pointer that rests is what it points at.
    if (Number.isFinite(this.resting)) this.hover = this.timeAt(this.resting);
    // What is there is drawn at its new place; but where its successor is asked for at once,
    // only if that is long in coming.
    clearTimeout(this.stale);
    if (done) this.stale = setTimeout(() => this.later(), 80);
    else this.later();
    this.told.view?.(this.view.from, this.view.to, done);
  }

  /** zoom makes the span so many times as long, about a time. */
  zoom(factor, about = (this.view.from + this.view.to) / 2, done = true) {
    const { from, to } = this.view;
    const span = Math.min(Math.max((to - from) * factor, shortest), this.limits.to - this.limits.from);
    const share = (about - from) / (to - from);
    this.look(about - share * span, about + (1 - share) * span, done);
  }

  /** put puts cursor 'a' or 'b' at a time; NaN takes it away. */
  put(which, t) {
    // 13 digits are a nanosecond of an hour, and none that only rounding made.
    this.cursors[which] = Number.isNaN(t) ? NaN : Math.min(Math.max(this.told.round?.(t) ?? Number(t.toPrecision(13)), this.limits.from), this.limits.to);
    this.later();
    this.told.cursors?.(this.cursors.a, this.cursors.b);
  }

  /** snap is the instant worth pointing at within 6 pixels of a time; the time itself where there is none, or with Alt. */
  snap(t, ev) {
    const reach = (6 / this.width) * (this.view.to - this.view.from);
    const far = (s) => Math.abs(s.t - t);
    const best = ev.altKey ? null : (this.told.snaps?.() ?? []).reduce((a, s) => (a && far(a) <= far(s) ? a : s), null);
    return best && far(best) <= reach ? best.t : t;
  }

  /** point reads at a time; x is the pointer's pixel, if one points there. */
  point(t, x = NaN) {
    this.hover = t;
    this.resting = x;
    this.laterOver();
    this.told.hover?.(t);
  }

  /** sliceAt returns the slice of a track at a pixel, the nearest within 4 pixels; null for none. */
  sliceAt(x, y) {
    const box = this.boxes?.find((b) => b.track && y >= b.y && y < b.y + b.h);
    if (!box) return null;
    const row = box.track.rows[Math.floor(((y - box.y) / box.h) * box.track.rows.length)] ?? [];
    const far = (s) => Math.max(this.xOf(s.from) - x, x - this.xOf(s.to), 0);
    const best = row.reduce((a, s) => (a && far(a) <= far(s) ? a : s), null);
    return best && far(best) <= 4 ? best : null;
  }

  later() {
    this.whole = true;
    this.laterOver();
  }

  laterOver() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      if (this.whole) this.paint();
      this.whole = false;
      this.paintOver();
    });
  }

  /** layout places panels and tracks. */
  layout() {
    /** @type {any[]} */
    const boxes = [];
    let y = 6;
    for (const p of this.data.panels) {
      const h = Math.round(this.panelHeight * (p.weight ?? 1));
      boxes.push({ x: gutter, y, w: this.width, h, panel: p });
      y += h + between;
    }
    for (const t of this.data.tracks) {
      const h = trackHeight * Math.max(1, t.rows?.length ?? 1);
      boxes.push({ x: gutter, y, w: this.width, h, track: t });
      y += h + between;
    }
    this.boxes = boxes;
    this.axisY = y - between;
    return y - between + axis;
  }

  /** scale returns least and greatest watts of an axis for what panels show. */
  scale(panels) {
    const { from, to } = this.view;
    let [lo, hi] = bounds(panels.flatMap((p) => p.series.map((s) => s.s)), from, to);
    for (const r of panels.flatMap((p) => p.readings ?? [])) {
      for (let i = 0; i < r.t.length; i++) {
        if (until(r, i) < from || r.t[i] > to || !Number.isFinite(r.value[i])) continue;
        lo = Math.min(lo, r.value[i]);
        hi = Math.max(hi, r.value[i]);
      }
    }
    return range(lo, hi, this.zero);
  }

  paint() {
    const height = this.layout();
    const c = surface(this.main, this.outer, height);
    surface(this.over, this.outer, height);
    this.draw(c, this.colours = palette());
    this.drawn();
  }

  /** draw draws all but what moves with the pointer, in given colours; figures are drawn by it too. */
  draw(c, look) {
    const { from, to } = this.view;
    const X = (t) => this.xOf(t);
    const view = { from, to, X, reach: this.data.reach, dots: this.data.dots };
    const same = this.data.sameScale ? this.scale(this.data.panels) : null;
    for (const box of this.boxes) {
      if (box.track) {
        drawTrack(c, box, view, look);
        continue;
      }
      [box.lo, box.hi] = same ?? this.scale([box.panel]);
      box.Y = (w) => box.y + box.h - ((w - box.lo) / (box.hi - box.lo)) * box.h;
      drawShades(c, box, view, this.data.shades, look);
      drawTimeGrid(c, box, view, look);
      drawPanel(c, box, { ...view, Y: box.Y }, look);
    }
    drawTimeAxis(c, { x: gutter, y: this.axisY, w: this.width }, view, look);
  }

  paintOver() {
    if (!this.boxes) return;
    const c = this.over.getContext('2d');
    c.clearRect(0, 0, this.outer, this.axisY + axis);
    drawOverlay(c, this);
  }
}

/** surface sizes a canvas for the screen's pixels and clears it. */
function surface(canvas, width, height) {
  const f = Math.min(3, devicePixelRatio || 1);
  const w = Math.max(1, Math.round(width * f)), h = Math.max(1, Math.round(height * f));
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.height = `${height}px`;
  }
  const c = canvas.getContext('2d');
  c.setTransform(f, 0, 0, f, 0, 0);
  c.clearRect(0, 0, width, height);
  c.font = '12px system-ui, sans-serif';
  return c;
}
