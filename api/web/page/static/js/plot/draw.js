// What is drawn into one panel of a plot. box = { x, y, w, h }, X and Y turn
// seconds and watts into its pixels.
import { until } from './envelope.js';

/**
 * runs calls f with [first, last) of each run of columns without a hole. Columns lie
 * apart when no sample fell between them; only more than reach seconds is a hole.
 */
function runs(s, from, to, reach, f) {
  let a = 0;
  while (a < s.t.length && s.t[a] < from) a++;
  let b = a;
  while (b < s.t.length && s.t[b] <= to) b++;
  a = Math.max(0, a - 1); // the lines go on past the edges
  b = Math.min(s.t.length, b + 1);
  let first = -1;
  for (let i = a; i < b; i++) {
    const none = !Number.isFinite(s.mean[i]);
    if (first >= 0 && (none || s.t[i] - s.t[i - 1] > reach)) {
      f(first, i);
      first = -1;
    }
    if (first < 0 && !none) first = i;
  }
  if (first >= 0) f(first, b);
}

/**
 * band fills from least to greatest, and draws the mean. alpha is the band's. An area is
 * one of several that lie one on the other. reach and dots stand in for the view's.
 */
export function band(c, s, view, look) {
  const { X, Y } = view;
  const pixel = 1 / c.getTransform().a;
  c.lineJoin = 'bevel';
  runs(s, view.from, view.to, look.reach ?? view.reach, (a, b) => {
    const apart = (X(s.t[b - 1]) - X(s.t[a])) / Math.max(1, b - a - 1);
    c.fillStyle = look.colour;
    c.strokeStyle = look.colour;
    const dense = apart < 3;
    if (look.alpha > 0) {
      c.globalAlpha = look.alpha;
      if (dense && !c.vector) bars(c, s, view, a, b, { pixel, area: look.area });
      else outline(c, s, view, a, b);
    }
    c.globalAlpha = 1;
    if (look.line === 0) return;
    if (b - a > 1 && apart < 1.5 * pixel && !c.vector) {
      course(c, s, view, a, b, { pixel, width: look.line ?? 1.4 });
      return;
    }
    c.beginPath();
    for (let i = a; i < b; i++) c.lineTo(X(s.t[i]), Y(s.mean[i]));
    if (b - a === 1) c.arc(X(s.t[a]), Y(s.mean[a]), 1, 0, 7);
    c.lineWidth = look.line ?? 1.4;
    c.stroke();
    // Single samples show as what they are, once there is room for it.
    if ((look.dots ?? view.dots) && apart > 6) dots(c, s, view, a, b);
  });
}

/**
 * bars fills a bar a column, from the screen's pixel half way to the column before to the
 * one half way to the next: neighbours share an edge, whatever a column's width, and no pixel
 * between them is left out or filled twice. Columns that share a pixel make one bar: of
 * a band from their least to their greatest, of an area to their means.
 *
 * Two thousand rectangles that lie on pixels are filled in a few milliseconds; as one path, or
 * as a polygon of two thousand teeth, they take ten times as long.
 */
function bars(c, s, { X, Y }, a, b, { pixel, area }) {
  const end = b - 1;
  // A run reaches half a column, at least half a pixel, beyond its outer centres.
  const half = (i, j) => Math.max(pixel, Math.abs(X(s.t[i]) - X(s.t[j]))) / 2;
  const middle = (i) => (i === a ? X(s.t[a]) - half(a, Math.min(a + 1, end)) : i === b ? X(s.t[end]) + half(end, Math.max(end - 1, a)) : (X(s.t[i - 1]) + X(s.t[i])) / 2);
  const edge = (i) => Math.round(middle(i) / pixel + 1e-3) * pixel; // halves go one way, whatever noise they have
  let from = edge(a), n = 0, top = 0, bottom = 0;
  for (let i = a; i < b; i++) {
    const hi = Y(s.max[i]), lo = Y(s.min[i]);
    if (n === 0) [top, bottom] = [hi, lo];
    else if (area) [top, bottom] = [top + (hi - top) / (n + 1), bottom + (lo - bottom) / (n + 1)];
    else [top, bottom] = [Math.min(top, hi), Math.max(bottom, lo)];
    n++;
    const to = edge(i + 1);
    if (!(to > from) && i + 1 < b) continue;
    // A band thinner than a pixel would vanish.
    c.fillRect(from, top, Math.max(to - from, pixel), Math.max(1, bottom - top));
    from = to;
    n = 0;
  }
}

/**
 * course draws the means where a column is a pixel: in each one from half the way to the
 * one before to half the way to the next, as a stroke would, at a tenth of its cost.
 */
function course(c, s, { X, Y }, a, b, { pixel, width }) {
  const half = width / 2;
  let y = Y(s.mean[a]), from = y, x = Math.floor(X(s.t[a]) / pixel);
  for (let i = a; i < b; i++) {
    const more = i + 1 < b, next = more ? Y(s.mean[i + 1]) : y, to = (y + next) / 2;
    const right = more ? Math.floor(X(s.t[i + 1]) / pixel) : x + 1;
    const top = Math.min(from, y, to) - half;
    c.fillRect(x * pixel, top, Math.max(1, right - x) * pixel, Math.max(from, y, to) + half - top); // up to the next one: no pixel is left out
    from = to;
    y = next;
    x = right;
  }
}

/** outline fills the polygon about least and greatest. */
function outline(c, s, { X, Y }, a, b) {
  c.beginPath();
  for (let i = a; i < b; i++) c.lineTo(X(s.t[i]), Y(s.max[i]));
  for (let i = b - 1; i >= a; i--) c.lineTo(X(s.t[i]), Y(s.min[i]));
  c.closePath();
  c.fill();
}

function dots(c, s, { X, Y }, a, b) {
  c.beginPath();
  for (let i = a; i < b; i++) {
    c.moveTo(X(s.t[i]) + 2.4, Y(s.mean[i]));
    c.arc(X(s.t[i]), Y(s.mean[i]), 2.4, 0, 7);
  }
  c.fill();
}

/**
 * steps draws readings that hold until the next one. The last one of all is a dot: how long
 * it holds is not known.
 */
export function steps(c, r, view, look) {
  const { X, Y } = view;
  const single = [];
  c.beginPath();
  let last = NaN;
  for (let i = 0; i < r.t.length && r.t[i] <= view.to; i++) {
    const end = until(r, i);
    if (end < view.from) continue;
    if (!Number.isFinite(r.value[i])) {
      last = NaN;
      continue;
    }
    const x = X(Math.max(r.t[i], view.from)), y = Y(r.value[i]);
    if (Number.isNaN(last)) c.moveTo(x, y);
    else c.lineTo(x, last), c.lineTo(x, y);
    last = y;
    c.lineTo(X(Math.min(end, view.to)), y);
    if (end === r.t[i] && i === r.t.length - 1) single.push([x, y]);
  }
  // A rim of the ground's colour sets it off from the areas below.
  c.strokeStyle = look.rim;
  c.lineWidth = 4;
  c.globalAlpha = 0.65;
  c.stroke();
  c.globalAlpha = 1;
  c.strokeStyle = look.colour;
  c.lineWidth = 1.8;
  c.setLineDash(look.dash ?? []);
  c.stroke();
  c.setLineDash([]);
  c.fillStyle = look.colour;
  for (const [x, y] of single) c.fillRect(x - 2, y - 2, 4, 4);
}

/** shade fills a stretch of time over the box's height, and writes what it is. */
export function shade(c, box, view, s) {
  const a = Math.max(box.x, view.X(s.from)), b = Math.min(box.x + box.w, view.X(s.to));
  if (!(b > a) && !(s.least && b >= box.x && a <= box.x + box.w)) return;
  const w = Math.max(b - a, s.least ?? 0);
  c.fillStyle = s.colour;
  c.fillRect(a, box.y, w, box.h);
  if (s.text && w > c.measureText(s.text).width + 6) {
    c.fillStyle = s.ink;
    c.textAlign = 'left';
    c.textBaseline = 'top';
    c.fillText(s.text, a + 3, box.y + 2);
  }
}

/** track draws slices with names, as boxes in a row of their own. */
export function track(c, box, view, slices, look) {
  c.textBaseline = 'middle';
  c.textAlign = 'left';
  for (const s of slices) {
    const a = Math.max(box.x, view.X(s.from)), b = Math.min(box.x + box.w, view.X(s.to));
    if (b < box.x || a > box.x + box.w) continue;
    const w = Math.max(1, b - a);
    c.globalAlpha = s.pale ? 0.2 : s.kernels > 1 ? 0.55 : 0.9;
    c.fillStyle = look.colourOf(s.name);
    c.fillRect(a, box.y + 2, w - (w > 3 ? 0.6 : 0), box.h - 4);
    c.globalAlpha = 1;
    if (w < 34) continue;
    const share = (w - 8) / c.measureText(s.name).width;
    const text = share < 1 ? `${[...s.name].slice(0, Math.max(1, Math.floor(s.name.length * share) - 2)).join('')}…` : s.name;
    c.fillStyle = s.pale ? look.soft : look.ground;
    c.fillText(text, a + 4, box.y + box.h / 2);
  }
}
