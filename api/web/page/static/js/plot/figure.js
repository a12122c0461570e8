// The plot as a figure for a paper: what is in view, drawn anew in the light colours with axes,
// units, a legend and a caption.
import { lightPalette } from '../lib/theme.js';
import { drawOverlay } from './overlay.js';
import { Svg } from './svg.js';

const width = 760, margin = 12, lineHeight = 16, font = '12px Helvetica, Arial, sans-serif';

/** wrapped breaks a text into lines of a width. */
function wrapped(c, text, room) {
  const lines = [''];
  for (const word of text.split(' ')) {
    const longer = lines[lines.length - 1] ? `${lines[lines.length - 1]} ${word}` : word;
    if (c.measureText(longer).width <= room) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

/** legendRows places the items of a legend, [{ colour(look), text, line, dash }], in rows. */
function legendRows(c, items) {
  const rows = [[]];
  let x = 0;
  for (const item of items) {
    const w = c.measureText(item.text).width + (item.colour ? 34 : 12);
    if (x + w > width - 2 * margin && x > 0) {
      rows.push([]);
      x = 0;
    }
    rows[rows.length - 1].push({ ...item, x });
    x += w;
  }
  return rows;
}

const mostNames = 12;

/** trackNames are the legends of what lies in the tracks, of kernels and of ranges: the names that take most of the time in view. */
function trackNames({ data, view }) {
  const kinds = new Map();
  for (const t of data.tracks) {
    const kind = t.title === 'ranges' ? 'Ranges:' : 'Kernels:', named = kinds.get(kind) ?? new Map();
    kinds.set(kind, named);
    for (const s of t.rows.flat()) {
      const length = Math.min(s.to, view.to) - Math.max(s.from, view.from);
      if (length > 0) named.set(s.name, { time: (named.get(s.name)?.time ?? 0) + length, colour: (look) => t.colourOf(s.name, look) });
    }
  }
  return [...kinds].filter(([, named]) => named.size).map(([kind, named]) => [{ text: kind }, ...[...named].sort(([, a], [, b]) => b.time - a.time).slice(0, mostNames)
    .map(([name, n]) => ({ text: name.length > 48 ? `${name.slice(0, 47)}…` : name, colour: n.colour })), ...(named.size > mostNames ? [{ text: `and ${named.size - mostNames} more` }] : [])]);
}

/** drawInto draws the figure on a surface; of is { plot, legend, caption }. The copy of the plot is laid out for the figure's width. */
function drawInto(c, copy, { rows, lines, height, top }, look) {
  c.font = font;
  c.fillStyle = '#ffffff';
  c.fillRect(0, 0, width, height);
  c.save();
  c.translate(margin, top);
  copy.draw(c, look);
  copy.colours = look;
  drawOverlay(c, copy);
  c.restore();
  c.font = font;
  c.fillStyle = look.ink;
  c.textBaseline = 'middle';
  c.textAlign = 'left';
  rows.forEach((row, i) => row.forEach((item) => {
    const y = margin + i * lineHeight + 6, x = margin + item.x;
    if (item.colour) c.fillStyle = c.strokeStyle = item.colour(look);
    if (item.line) {
      c.lineWidth = 2;
      c.setLineDash(item.dash ?? []);
      c.beginPath();
      c.moveTo(x, y);
      c.lineTo(x + 20, y);
      c.stroke();
      c.setLineDash([]);
    } else if (item.colour) c.fillRect(x, y - 5, 20, 10);
    c.fillStyle = look.ink;
    c.fillText(item.text, item.colour ? x + 25 : x, y);
  }));
  c.textAlign = 'center';
  c.fillText(copy.timeTitle ?? 'Device time', width / 2, top + copy.axisY + 40);
  c.save();
  const panels = copy.boxes.filter((b) => b.panel), last = panels[panels.length - 1];
  c.translate(margin, top + (panels[0].y + last.y + last.h) / 2);
  c.rotate(-Math.PI / 2);
  c.fillText('Power in W', 0, 0);
  c.restore();
  c.textAlign = 'left';
  lines.forEach((l, i) => c.fillText(l, margin, height - margin - (lines.length - i - 0.5) * lineHeight));
}

/** layout makes a copy of the plot for the figure, and places what stands around it. */
function layout(c, { plot, legend, caption }) {
  const copy = Object.create(plot);
  Object.assign(copy, { outer: width - 2 * margin, hover: NaN, selection: null, panelHeight: Math.min(plot.panelHeight, 260) });
  // A single panel needs no title: the axis and the caption say what it is.
  if (copy.data.panels.length === 1) copy.data = { ...copy.data, panels: [{ ...copy.data.panels[0], title: '' }] };
  copy.layout();
  c.font = font;
  const rows = [legend, ...trackNames(plot)].flatMap((list) => legendRows(c, list)), lines = wrapped(c, caption, width - 2 * margin), top = margin + rows.length * lineHeight + 6;
  return [copy, { rows, lines, top, height: Math.ceil(top + copy.axisY + 56 + lines.length * lineHeight + margin) }];
}

/** svgFigure is the figure as the text of an SVG file. */
export function svgFigure(of) {
  const c = new Svg(width, 0), [copy, places] = layout(c, of);
  c.height = places.height;
  drawInto(c, copy, places, lightPalette());
  return c.markup();
}

/** pngFigure is the figure as a PNG of 300 dots an inch at 6.3 inches. */
export function pngFigure(of) {
  const scale = 1900 / width;
  const canvas = document.createElement('canvas'), c = canvas.getContext('2d'), [copy, places] = layout(c, of);
  canvas.width = 1900;
  canvas.height = Math.round(places.height * scale);
  c.scale(scale, scale);
  drawInto(c, copy, places, lightPalette());
  return new Promise((done) => { canvas.toBlob(done, 'image/png'); });
}

/** save offers a file to the reader. */
export function save(name, content, type) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const a = document.createElement('a');
  a.href = url;
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
