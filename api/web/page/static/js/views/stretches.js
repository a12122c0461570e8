// Named stretches of a task, kept with it as notes: "stretch 0.25 s to 0.5 s: warm-up".
import { get, givenUp } from '../lib/api.js';
import { el, fill, keepFocus } from '../lib/dom.js';
import { energy, none, seconds, watts } from '../lib/format.js';
import { table } from '../lib/parts.js';
import { instant } from '../plot/scale.js';

const form = /^stretch (-?[\d.]+(?:e[+-]?\d+)?) s to (-?[\d.]+(?:e[+-]?\d+)?) s: (.+)$/;

/** stretchText is the note of a stretch. */
export const stretchText = (from, to, name) => `stretch ${from} s to ${to} s: ${name}`;

/** stretchesOf are the stretches among notes: [{ from, to, name, number }]. */
export const stretchesOf = (notes) => (notes ?? []).flatMap((n) => {
  const m = form.exec(n.text);
  return m && Number(m[1]) < Number(m[2]) ? [{ from: Number(m[1]), to: Number(m[2]), name: m[3], number: n.number }] : [];
});

/** Stretches is the table of a task's named stretches with their energies; picked(stretch) is called when one is pressed. */
export class Stretches {
  constructor(id, picked) {
    this.id = id;
    this.picked = picked;
    this.end = new AbortController();
    this.energies = new Map(); // answers of ReadEnergy, or messages, by span
    this.element = el('section', { class: 'panel', 'aria-label': 'Named stretches', hidden: true });
  }

  close() { this.end.abort(); }

  /** show shows a list, and asks for the energies that it does not know. */
  async show(list) {
    this.list = list;
    this.write();
    await Promise.all(list.filter((s) => !this.energies.has(span(s))).map(async (s) => {
      this.energies.set(span(s), null);
      try {
        this.energies.set(span(s), await get(`/v1/tasks/${this.id}/energy`, { from_s: s.from, to_s: s.to }, this.end.signal));
      } catch (e) {
        if (givenUp(e)) return;
        this.energies.set(span(s), { message: e.message });
      }
    }));
    if (!this.end.signal.aborted) this.write();
  }

  write() {
    this.element.hidden = this.list.length === 0;
    const of = (s) => this.energies.get(span(s));
    keepFocus(this.element, () => fill(this.element, el('h2', {}, 'Named stretches'), table('Energy between the ends of each', [
      { title: 'Stretch', class: 'name', cell: (s) => el('button', { type: 'button', class: 'plain name', title: 'Put the cursors at its ends', on: { click: () => this.picked(s) } }, s.name) },
      { title: 'From', num: true, cell: (s) => instant(s.from, s.to - s.from) }, { title: 'Length', num: true, cell: (s) => seconds(s.to - s.from) },
      { title: 'Energy ± U', num: true, cell: (s) => (of(s)?.energy ? energy(of(s).energy) : of(s)?.message ?? none) }, { title: 'Mean', num: true, cell: (s) => watts(of(s)?.mean_w) },
    ], this.list)));
  }
}

const span = (s) => `${s.from} ${s.to}`;
