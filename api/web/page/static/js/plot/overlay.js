// What lies over a plot and moves with the pointer: cursors, the stretch that is drawn
// up, the line at the pointer.

/** drawOverlay draws it into a cleared canvas. */
export function drawOverlay(c, plot) {
  const look = plot.colours;
  const top = 2, bottom = plot.axisY, left = plot.xOf(plot.view.from), right = plot.xOf(plot.view.to);
  const { a, b } = plot.cursors;
  c.save();
  c.beginPath();
  c.rect(left - 8, 0, right - left + 16, bottom + 40);
  c.clip();
  c.font = 'bold 12px system-ui, sans-serif';
  if (Number.isFinite(a) && Number.isFinite(b)) {
    const [x, y] = [plot.xOf(a), plot.xOf(b)].sort((p, q) => p - q);
    c.fillStyle = look.b;
    c.globalAlpha = 0.08;
    c.fillRect(x, top, y - x, bottom - top);
    c.globalAlpha = 1;
  }
  for (const [name, t] of [['A', a], ['B', b]]) {
    if (!Number.isFinite(t)) continue;
    const x = plot.xOf(t);
    if (x < left - 8 || x > right + 8) continue;
    line(c, x, top, bottom, look[name.toLowerCase()], 1.6, []);
    c.fillStyle = look[name.toLowerCase()];
    c.fillRect(x - 8, top, 16, 15);
    c.fillStyle = look.ground;
    c.textAlign = 'center';
    c.textBaseline = 'middle';
    c.fillText(name, x, top + 8);
  }
  if (Number.isFinite(plot.hover)) {
    const x = plot.xOf(plot.hover);
    if (x >= left && x <= right) line(c, x, top, bottom, look.soft, 1, [3, 3]);
  }
  if (plot.selection) {
    const [x, y] = plot.selection.map((t) => plot.xOf(t));
    c.fillStyle = look.accent;
    c.globalAlpha = 0.18;
    c.fillRect(Math.min(x, y), top, Math.abs(y - x), bottom - top);
    c.globalAlpha = 1;
  }
  c.restore();
}

function line(c, x, y0, y1, colour, width, dash) {
  c.strokeStyle = colour;
  c.lineWidth = width;
  c.setLineDash(dash);
  c.beginPath();
  c.moveTo(x, y0);
  c.lineTo(x, y1);
  c.stroke();
  c.setLineDash([]);
}
