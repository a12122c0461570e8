// Small drawings beside figures, as SVG that follows the theme by its classes. They
// say nothing that does not stand in words beside them.

import { grouped, quantity } from '../lib/format.js';
import { ticks } from '../plot/scale.js';

const ns = 'http://www.w3.org/2000/svg';

/** svg makes an SVG element; children are elements. */
function svg(tag, props = {}, ...children) {
  const e = document.createElementNS(ns, tag);
  for (const [name, v] of Object.entries(props)) e.setAttribute(name, String(v));
  e.append(...children);
  return e;
}

const box = (w, h, cls, ...children) => svg('svg', { viewBox: `0 0 ${w} ${h}`, class: `sketch ${cls}`, 'aria-hidden': 'true', focusable: 'false' }, ...children);

/**
 * interval draws [lo, hi] with a point on a scale from −reach to +reach, about zero.
 * bad colours it as one that does not hold zero; undefined, as one of which nobody knows.
 */
export function interval(lo, hi, point, reach, bad) {
  const x = (v) => 60 + (Math.max(-1, Math.min(1, v / reach)) * 56);
  const cls = bad === undefined ? 'unknown' : bad ? 'bad' : 'good';
  const parts = [svg('line', { x1: 60, x2: 60, y1: 0, y2: 16, class: 'zero' })];
  if (Number.isFinite(lo) && Number.isFinite(hi)) {
    parts.push(svg('line', { x1: x(lo), x2: Math.max(x(hi), x(lo) + 0.5), y1: 8, y2: 8, class: `span ${cls}` }));
  }
  if (Number.isFinite(point)) parts.push(svg('circle', { cx: x(point), cy: 8, r: 3.4, class: cls }));
  return box(120, 16, 'interval', ...parts);
}

/** window draws what a sensor sees of the time: two periods, and the window before each renewal. */
export function window2(period, length, delay) {
  const w = 300, h = 34, one = w / 2;
  const x = (t) => (t / period) * one;
  const parts = [svg('rect', { x: 0, y: 8, width: w, height: 18, class: 'unseen-time' })];
  for (let k = -2; k <= 4; k++) {
    const to = x(k * period - delay), from = x(k * period - delay - length);
    const a = Math.max(0, from), b = Math.min(w, to);
    if (b > a) parts.push(svg('rect', { x: a, y: 8, width: b - a, height: 18, class: 'seen-time' }));
  }
  for (let k = 0; k <= 2; k++) parts.push(svg('line', { x1: Math.min(w - 1, Math.max(1, x(k * period))), x2: Math.min(w - 1, Math.max(1, x(k * period))), y1: 2, y2: 32, class: 'renewal' }));
  return box(w, h, 'window', ...parts);
}

/** lag draws how a first-order sensor follows a step. */
export function lag(tau, delay) {
  const w = 300, h = 44, span = 5 * tau + delay;
  const x = (t) => 30 + (t / span) * (w - 30);
  const y = (v) => h - 4 - v * (h - 10);
  let d = `M0 ${y(0)}`;
  for (let i = 0; i <= 60; i++) {
    const t = (i / 60) * span;
    d += ` L${x(t).toFixed(1)} ${y(t < delay ? 0 : 1 - Math.exp(-(t - delay) / tau)).toFixed(1)}`;
  }
  return box(w, h, 'lag', svg('path', { d: `M0 ${y(0)} L30 ${y(0)} L30 ${y(1)} L${w} ${y(1)}`, class: 'step' }), svg('path', { d, class: 'answer' }));
}

/** quartile is the p-quantile of sorted values, between neighbours. */
function quartile(sorted, p) {
  const at = p * (sorted.length - 1), i = Math.floor(at);
  return sorted[i] + (at - i) * ((sorted[i + 1] ?? sorted[i]) - sorted[i]);
}

/** boxes draws groups of values side by side: all of them as dots, with median, quartiles and range of five and more. list is [{ name, values, colour }]. */
export function boxes(title, unit, list) {
  const w = 74 + 70 * list.length, h = 190, all = list.flatMap((g) => g.values).filter(Number.isFinite);
  let [lo, hi] = [Math.min(...all), Math.max(...all)];
  const room = (hi - lo) * 0.12 || Math.abs(hi) * 0.05 || 1;
  [lo, hi] = [lo - room, hi + room];
  const y = (v) => 26 + (1 - (v - lo) / (hi - lo)) * (h - 50);
  const text = (x, at, what, anchor = 'end') => {
    const e = svg('text', { x, y: at, 'text-anchor': anchor });
    e.textContent = what;
    return e;
  };
  const { step, values } = ticks(lo, hi, 4), d = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const parts = [text(0, 12, `${title}, ${unit}`, 'start'), ...values.flatMap((v) => [svg('line', { x1: 66, x2: w, y1: y(v), y2: y(v), class: 'rule' }), text(62, y(v) + 4, grouped(v, d))])];
  list.forEach((g, i) => {
    const x = 104 + 70 * i, cls = `series-${(g.colour % 8) + 1}`, sorted = g.values.filter(Number.isFinite).sort((a, b) => a - b), q = (p) => y(quartile(sorted, p));
    if (sorted.length >= 5) {
      parts.push(svg('line', { x1: x, x2: x, y1: q(0), y2: q(1), class: `whisker ${cls}` }), svg('rect', { x: x - 16, y: q(0.75), width: 32, height: Math.max(1, q(0.25) - q(0.75)), class: `box ${cls}` }),
        svg('line', { x1: x - 16, x2: x + 16, y1: q(0.5), y2: q(0.5), class: `median ${cls}` }));
    }
    // Dots of a group lie apart, so that equal runs are two.
    sorted.forEach((v, k) => parts.push(svg('circle', { cx: x + ((k % 5) - 2) * 3.2, cy: y(v), r: 2.6, class: `dot ${cls}` })));
    parts.push(text(x, h - 6, g.name, 'middle'));
  });
  const e = box(w, h, 'plain-boxes', ...parts);
  e.setAttribute('width', w);
  return e;
}

/** courseSketch draws the watts of a step by its phase, [{ x, y }] with x from 0 to 1, from 0 W up. */
export function courseSketch(list) {
  const w = 560, h = 190, left = 52, bottom = h - 22, { values } = ticks(0, Math.max(...list.map((p) => p.y)) * 1.05, 4), most = Math.max(...values, ...list.map((p) => p.y));
  const x = (v) => left + v * (w - left - 24), y = (v) => bottom - (v / most) * (bottom - 10);
  const text = (px, py, what, anchor) => {
    const e = svg('text', { x: px, y: py, 'text-anchor': anchor });
    e.textContent = what;
    return e;
  };
  return box(w, h, 'spectrum', ...values.flatMap((v) => [svg('line', { x1: left, x2: w, y1: y(v), y2: y(v), class: 'rule' }), text(left - 4, y(v) + 4, quantity(v, 'W', 2), 'end')]),
    ...[0, 0.25, 0.5, 0.75, 1].map((v) => text(x(v), h - 6, `${100 * v} %`, 'middle')), svg('path', { d: list.map((p, i) => `${i ? 'L' : 'M'}${x(p.x).toFixed(1)} ${y(p.y).toFixed(1)}`).join(''), class: 'answer' }));
}

/** spectrumSketch draws amplitudes [{ f, a }] by frequency, both on logarithmic axes, over four decades of watts. */
export function spectrumSketch(list) {
  const w = 560, h = 190, left = 52, bottom = h - 22, top = Math.ceil(Math.log10(Math.max(1e-6, ...list.map((p) => p.a)))), low = top - 4;
  const [from, to] = [list[0].f, list[list.length - 1].f].map(Math.log10);
  const x = (f) => left + ((Math.log10(f) - from) / (to - from)) * (w - left - 8), y = (a) => 10 + ((top - Math.max(low, Math.log10(Math.max(a, 1e-30)))) / 4) * (bottom - 10);
  const parts = [];
  const text = (px, py, what, anchor) => {
    const e = svg('text', { x: px, y: py, 'text-anchor': anchor });
    e.textContent = what;
    parts.push(e);
  };
  for (let d = low; d <= top; d++) {
    parts.push(svg('line', { x1: left, x2: w, y1: y(10 ** d), y2: y(10 ** d), class: 'rule' }));
    text(left - 4, y(10 ** d) + 4, quantity(10 ** d, 'W', 1), 'end');
  }
  for (let d = Math.ceil(from - 1e-9); d <= to; d++) {
    parts.push(svg('line', { x1: x(10 ** d), x2: x(10 ** d), y1: 10, y2: bottom, class: 'rule' }));
    text(x(10 ** d), h - 6, quantity(10 ** d, 'Hz', 1), 'middle');
  }
  parts.push(svg('path', { d: list.map((p, i) => `${i ? 'L' : 'M'}${x(p.f).toFixed(1)} ${y(p.a).toFixed(1)}`).join(''), class: 'answer' }));
  const e = box(w, h, 'spectrum', ...parts);
  return e;
}
