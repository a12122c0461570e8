// Keys on a plot that has the focus. A point stands in its middle, or where the arrows
// with Ctrl moved it; A and B put the cursors there.

/** plotKeys is for the help. */
export const plotKeys = [
  ['← or →', 'pan by a tenth; with Shift by a whole width'],
  ['Ctrl ← or Ctrl →', 'move the point of reading'],
  ['+ or −', 'zoom in and out, about the point'],
  ['0', 'all'], ['W', 'the window'], ['A', 'put cursor A at the point'], ['B', 'put cursor B at the point'],
  ['C', 'between the cursors'], ['X', 'take the cursors away'], ['N or P', 'the next or previous launch of the marked kernel'],
];

/** keyboard listens on a plot; it returns what ends that. */
export function keyboard(plot) {
  const end = new AbortController();
  plot.element.addEventListener('keydown', (ev) => {
    if (ev.altKey || ev.metaKey || !press(plot, ev)) return;
    ev.preventDefault();
  }, { signal: end.signal });
  return () => end.abort();
}

/** press does what a key says, and reports whether it says anything. */
function press(plot, ev) {
  const { from, to } = plot.view, span = to - from;
  const inside = plot.hover >= from && plot.hover <= to;
  const at = inside ? plot.hover : (from + to) / 2;
  const move = (ev.shiftKey ? 1 : 0.1) * span;
  switch (ev.key) {
    case 'ArrowLeft': ev.ctrlKey ? point(plot, at - span / 100) : plot.look(from - move, to - move); return true;
    case 'ArrowRight': ev.ctrlKey ? point(plot, at + span / 100) : plot.look(from + move, to + move); return true;
    case '+': case '=': plot.zoom(0.5, at); return true;
    case '-': case '−': case '_': plot.zoom(2, at); return true;
    case '0': case 'Home': plot.look(plot.limits.from, plot.limits.to); return true;
  }
  if (ev.ctrlKey) return false;
  switch (ev.key.toLowerCase()) {
    case 'w': if (plot.window) plot.look(...plot.window); return true;
    case 'a': case 'b': plot.put(ev.key.toLowerCase(), plot.snap(at, ev)); return true;
    case 'c': between(plot); return true;
    case 'n': case 'p': plot.told.step?.(ev.key.toLowerCase() === 'n' ? 1 : -1); return true;
    case 'x': plot.put('a', NaN); plot.put('b', NaN); return true;
  }
  return false;
}

function point(plot, t) {
  const { from, to } = plot.view;
  plot.point(Math.min(Math.max(t, from), to));
  plot.told.read?.(plot.hover); // who moves it by keys may not see it
}

function between(plot) {
  const [s, t] = [plot.cursors.a, plot.cursors.b].sort((a, b) => a - b);
  if (t > s) plot.look(s - (t - s) * 0.1, t + (t - s) * 0.1);
}
