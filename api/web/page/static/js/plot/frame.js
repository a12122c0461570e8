// Panels with their axes, tracks, and the axis of time.
import { grouped } from '../lib/format.js';
import { ticks, timeTicks } from './scale.js';
import { band, steps, shade, track } from './draw.js';

function clipped(c, box, f) {
  c.save();
  c.beginPath();
  c.rect(box.x, box.y, box.w, box.h);
  c.clip();
  f();
  c.restore();
}

/** drawShades fills the stretches that concern all panels. */
export function drawShades(c, box, view, shades, look) {
  clipped(c, box, () => {
    for (const s of shades) {
      const text = box.panel?.first ? s.text : '';
      shade(c, box, view, { ...s, text, colour: look[s.kind] ?? look.marker, ink: look.soft });
    }
  });
}

/** drawPanel draws one panel: grid, axis of watts, series and readings. */
export function drawPanel(c, box, view, look) {
  const { values, step } = ticks(box.lo, box.hi, Math.max(2, Math.floor(box.h / 42)));
  const kilo = Math.max(Math.abs(box.lo), Math.abs(box.hi)) >= 10000;
  const f = kilo ? 1000 : 1;
  const decimals = Math.max(0, -Math.floor(Math.log10(step / f) + 1e-9));
  c.textAlign = 'right';
  c.textBaseline = 'middle';
  c.lineWidth = 1;
  for (const v of values) {
    const y = Math.round(view.Y(v)) + 0.5;
    c.strokeStyle = look.grid;
    c.beginPath();
    c.moveTo(box.x, y);
    c.lineTo(box.x + box.w, y);
    c.stroke();
    c.fillStyle = look.soft;
    c.fillText(grouped(v / f, decimals), box.x - 6, y);
  }
  if (box.panel.title) title(c, box.w < 400 && box.panel.short !== undefined ? `${box.panel.short}${kilo ? 'kW' : 'W'}` : `${box.panel.title}, ${kilo ? 'kW' : 'W'}`, box, look);
  clipped(c, box, () => {
    for (const s of box.panel.series) band(c, s.s, view, { ...s, colour: s.colour(look) });
    names(c, box, view, look);
    for (const r of box.panel.readings ?? []) steps(c, r, view, { ...r, colour: r.colour(look), rim: look.ground });
  });
  c.strokeStyle = look.soft;
  c.lineWidth = 1;
  c.beginPath();
  c.moveTo(box.x + 0.5, box.y);
  c.lineTo(box.x + 0.5, box.y + box.h);
  c.stroke();
}

/** names writes what lines are, where they have a label: in the middle, above their lines, none on another. */
function names(c, box, view, look) {
  const middle = (view.from + view.to) / 2;
  const list = box.panel.series.filter((s) => s.label).map((s) => {
    const i = s.s.t.findIndex((t, k) => t >= middle && Number.isFinite(s.s.mean[k])), k = i < 0 ? s.s.mean.findLastIndex(Number.isFinite) : i;
    const w = c.measureText(s.label).width;
    return k < 0 ? null : { text: s.label, w, x: Math.min(Math.max(view.X(s.s.t[k]), box.x + w / 2 + 6), box.x + box.w - w / 2 - 6), y: view.Y(s.s.max[k]) - 11, colour: s.colour(look) };
  }).filter(Boolean).sort((a, b) => a.y - b.y);
  c.textAlign = 'center';
  c.textBaseline = 'middle';
  let last = box.y + 8;
  for (const n of list) {
    n.y = Math.max(n.y, last + 14);
    if (n.y > box.y + box.h - 6) return; // the table below has them all
    last = n.y;
    c.globalAlpha = 0.75;
    c.fillStyle = look.ground;
    c.fillRect(n.x - n.w / 2 - 3, n.y - 7, n.w + 6, 14);
    c.globalAlpha = 1;
    c.fillStyle = n.colour;
    c.fillText(n.text, n.x, n.y);
  }
}

/** title stands on its own ground, above the grid and the shades and below the data: it hides none. */
function title(c, text, box, look) {
  const short = text.length > 60 ? `${text.slice(0, 59)}…` : text;
  c.textAlign = 'right';
  c.textBaseline = 'top';
  c.globalAlpha = 0.8;
  c.fillStyle = look.ground;
  c.fillRect(box.x + box.w - c.measureText(short).width - 10, box.y + 1, c.measureText(short).width + 8, 16);
  c.globalAlpha = 1;
  c.fillStyle = look.soft;
  c.fillText(short, box.x + box.w - 5, box.y + 3);
}

/** drawTrack draws rows of slices below the panels, under their name. */
export function drawTrack(c, box, view, look) {
  const { rows, labels = [] } = box.track;
  const h = box.h / Math.max(1, rows.length);
  c.textAlign = 'right';
  c.textBaseline = 'middle';
  c.fillStyle = look.soft;
  if (labels.some(Boolean)) labels.forEach((l, i) => c.fillText(l, box.x - 4, box.y + (i + 0.5) * h, box.x - 4));
  else c.fillText(box.track.title, box.x - 6, box.y + box.h / 2);
  clipped(c, box, () => {
    c.fillStyle = look.outside;
    c.fillRect(box.x, box.y, box.w, box.h);
    rows.forEach((slices, i) => track(c, { ...box, y: box.y + i * h, h }, view, slices, {
      ground: look.ground, colourOf: (name) => box.track.colourOf(name, look),
    }));
  });
}

/** drawTimeGrid draws the grid of time through a box. */
export function drawTimeGrid(c, box, view, look) {
  c.strokeStyle = look.grid;
  c.lineWidth = 1;
  for (const m of marks(box.w, view).marks) {
    const x = Math.round(view.X(m.t)) + 0.5;
    c.beginPath();
    c.moveTo(x, box.y);
    c.lineTo(x, box.y + box.h);
    c.stroke();
  }
}

const marks = (width, view) => timeTicks(view.from, view.to, Math.max(2, Math.floor(width / 85)));

/** drawTimeAxis writes the axis of time below all boxes. */
export function drawTimeAxis(c, box, view, look) {
  const axis = marks(box.w, view);
  c.textBaseline = 'top';
  c.lineWidth = 1;
  c.strokeStyle = look.soft;
  c.fillStyle = look.soft;
  c.textAlign = 'center';
  for (const m of axis.marks) {
    const x = Math.round(view.X(m.t)) + 0.5;
    c.beginPath();
    c.moveTo(x, box.y);
    c.lineTo(x, box.y + 5);
    c.stroke();
    const half = c.measureText(m.text).width / 2;
    c.fillText(m.text, Math.min(Math.max(x, half + 2), box.x + box.w + 8 - half), box.y + 7);
  }
  c.beginPath();
  c.moveTo(box.x, box.y + 0.5);
  c.lineTo(box.x + box.w, box.y + 0.5);
  c.stroke();
  if (axis.base) {
    c.textAlign = 'left';
    c.fillText(axis.base, 4, box.y + 21);
  }
}
