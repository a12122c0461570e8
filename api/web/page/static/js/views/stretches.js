// Named stretches of a task, kept with it as notes: "stretch 0.25 s to 0.5 s: warm-up".
import { el, fill } from '../lib/dom.js';
import { instant } from '../plot/scale.js';

const form = /^stretch (-?[\d.]+(?:e[+-]?\d+)?) s to (-?[\d.]+(?:e[+-]?\d+)?) s: (.+)$/;

/** stretchText is the note of a stretch. */
export const stretchText = (from, to, name) => `stretch ${from} s to ${to} s: ${name}`;

/** stretchesOf are the stretches among notes: [{ from, to, name, number }]. */
export const stretchesOf = (notes) => (notes ?? []).flatMap((n) => {
  const m = form.exec(n.text);
  return m && Number(m[1]) < Number(m[2]) ? [{ from: Number(m[1]), to: Number(m[2]), name: m[3], number: n.number }] : [];
});

/** showStretches fills the list of them; pick(stretch) is called when one is pressed. */
export function showStretches(root, list, pick) {
  root.hidden = list.length === 0;
  fill(root, list.map((s) => el('li', {}, el('button', { type: 'button', class: 'plain', title: `Put the cursors at ${instant(s.from, s.to - s.from)} and ${instant(s.to, s.to - s.from)}`, on: { click: () => pick(s) } }, s.name))));
}
