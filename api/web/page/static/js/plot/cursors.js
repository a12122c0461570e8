// The two cursors of a plot: their times as fields, the watts at each, and what lies
// between them: joules are the server's, E ± U of ReadEnergy.
import { el, fill, labelled, debounced } from '../lib/dom.js';
import { num } from '../lib/format.js';

export class Cursors {
  /**
   * tell = { kept(), at(t), between(root, from, to), none(root) }: a cursor came to rest; what was
   * drawn at a time, as text; show what lies between them, or that there are not two.
   */
  constructor(plot, tell) {
    this.plot = plot;
    this.tell = tell;
    this.rest = debounced(() => { tell.kept(); this.ask(); }, 120);
    this.a = this.field('a', 'Cursor A');
    this.b = this.field('b', 'Cursor B');
    this.said = el('div', { class: 'between', role: 'status', 'aria-live': 'polite', id: 'between' });
    this.element = el('div', { class: 'cursors' }, this.a.element, this.b.element, this.said);
    this.moved(plot.cursors);
  }

  close() { this.rest.cancel(); }

  field(which, name) {
    const input = el('input', { type: 'number', step: 'any', inputmode: 'decimal', placeholder: `click, or press ${which.toUpperCase()}`, on: { change: () => this.plot.put(which, num(input.value)) } });
    const said = el('span', { class: 'soft' });
    return { input, said, element: el('div', {}, labelled(`${name}, s`, input, { class: `field cursor-${which}` }), said) };
  }

  /** moved shows where the cursors are, and asks for what lies between them. */
  moved({ a, b }) {
    for (const [f, t] of [[this.a, a], [this.b, b]]) {
      if (num(f.input.value) !== t) f.input.value = Number.isFinite(t) ? String(t) : '';
    }
    this.values();
    this.rest();
  }

  /** values shows the watts at the cursors as they are drawn now. */
  values() {
    const { a, b } = this.plot.cursors;
    this.a.said.textContent = Number.isFinite(a) ? this.tell.at(a) : '';
    this.b.said.textContent = Number.isFinite(b) ? this.tell.at(b) : '';
  }

  ask() {
    const { a, b } = this.plot.cursors;
    if (!Number.isFinite(a) || !Number.isFinite(b) || a === b) {
      fill(this.said, el('span', { class: 'soft' }, 'Put two cursors to read the energy between them.'));
      this.tell.none?.(this.said);
      return;
    }
    this.tell.between(this.said, Math.min(a, b), Math.max(a, b));
  }
}
