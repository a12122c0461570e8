// What is drawn into one panel of a plot. box = { x, y, w, h }, X and Y turn
// seconds and watts into its pixels.

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
  for (let i = a + 1; i <= b; i++) {
    if (i === b || s.t[i] - s.t[i - 1] > reach || !Number.isFinite(s.mean[i])) {
      if (i > a) f(a, i);
      a = i;
    }
  }
}

/** band fills from least to greatest, and draws the mean. alpha is the band's. */
export function band(c, s, view, look) {
  const { X, Y, reach } = view;
  c.lineJoin = 'bevel';
  runs(s, view.from, view.to, reach, (a, b) => {
    const apart = (X(s.t[b - 1]) - X(s.t[a])) / Math.max(1, b - a - 1);
    c.fillStyle = look.colour;
    c.strokeStyle = look.colour;
    const dense = apart > 0 && apart < 3;
    if (look.alpha > 0) {
      c.globalAlpha = look.alpha;
      if (dense) bars(c, s, view, a, b, apart);
      else outline(c, s, view, a, b);
    }
    c.globalAlpha = 1;
    if (look.line === 0) return;
    if (dense && apart * (devicePixelRatio || 1) < 1.5) {
      course(c, s, view, a, b, look.line ?? 1.4);
      return;
    }
    c.beginPath();
    for (let i = a; i < b; i++) c.lineTo(X(s.t[i]), Y(s.mean[i]));
    if (b - a === 1) c.arc(X(s.t[a]), Y(s.mean[a]), 1, 0, 7);
    c.lineWidth = look.line ?? 1.4;
    c.stroke();
    // Single samples show as what they are, once there is room for it.
    if (view.dots && apart > 6) dots(c, s, view, a, b);
  });
}

/**
 * bars fills a bar a column, from pixel to pixel. Two thousand rectangles that lie on
 * pixels are filled in a few milliseconds; as one path, or as a polygon of two thousand
 * teeth, they take ten times as long.
 */
function bars(c, s, { X, Y }, a, b, apart) {
  const f = devicePixelRatio || 1;
  for (let i = a; i < b; i++) {
    const x = X(s.t[i]);
    const from = Math.round((x - apart / 2) * f) / f, to = Math.round((x + apart / 2) * f) / f;
    const top = Y(s.max[i]);
    // A band thinner than a pixel would vanish.
    c.fillRect(from, top, to - from, Math.max(1, Y(s.min[i]) - top));
  }
}

/**
 * course draws the means where a column is a pixel: in each one from half the way to the
 * one before to half the way to the next, as a stroke would, at a tenth of its cost.
 */
function course(c, s, { X, Y }, a, b, width) {
  const f = devicePixelRatio || 1, half = width / 2;
  let y = Y(s.mean[a]), from = y, x = Math.floor(X(s.t[a]) * f);
  for (let i = a; i < b; i++) {
    const more = i + 1 < b, next = more ? Y(s.mean[i + 1]) : y, to = (y + next) / 2;
    const right = more ? Math.floor(X(s.t[i + 1]) * f) : x + 1;
    const top = Math.min(from, y, to) - half;
    c.fillRect(x / f, top, Math.max(1, right - x) / f, Math.max(from, y, to) + half - top); // up to the next one: no pixel is left out
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

/** steps draws readings that hold until the next one. */
export function steps(c, r, view, look) {
  const { X, Y } = view;
  c.beginPath();
  let last = NaN;
  for (let i = 0; i < r.t.length; i++) {
    const next = r.t[i + 1] ?? r.t[i];
    if (next < view.from && i + 1 < r.t.length) continue;
    if (r.t[i] > view.to) break;
    if (!Number.isFinite(r.value[i])) {
      last = NaN;
      continue;
    }
    const x = X(Math.max(r.t[i], view.from)), y = Y(r.value[i]);
    if (Number.isNaN(last)) c.moveTo(x, y);
    else c.lineTo(x, last), c.lineTo(x, y);
    last = y;
    c.lineTo(X(Math.min(next, view.to)), y);
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
    c.globalAlpha = s.kernels > 1 ? 0.55 : 0.9;
    c.fillStyle = look.colourOf(s.name);
    c.fillRect(a, box.y + 2, w - (w > 3 ? 0.6 : 0), box.h - 4);
    c.globalAlpha = 1;
    if (w < 34) continue;
    const share = (w - 8) / c.measureText(s.name).width;
    const text = share < 1 ? `${[...s.name].slice(0, Math.max(1, Math.floor(s.name.length * share) - 2)).join('')}…` : s.name;
    c.fillStyle = look.ground;
    c.fillText(text, a + 4, box.y + box.h / 2);
  }
}
