// The ranges that a program named (NVTX, annotations): their energies as a flame and a table, and as a track below the plot.
import { el, fill, keepFocus } from '../lib/dom.js';
import { count, energy, joules, many, num, percent, quantity } from '../lib/format.js';
import { table } from '../lib/parts.js';
import { instant } from '../plot/scale.js';
import { Colours } from './kernels.js';

const rowHeight = 24;

/**
 * tree finds for each of the ranges the one around it, by their paths: [{ path, name, depth, parent, e }], in order, parent
 * the place of another or −1. A name may hold a slash itself.
 */
export function tree(ranges) {
  const open = [];
  return ranges.map((r, i) => {
    const around = ranges.map((o, k) => k).filter((k) => k !== i && r.path.startsWith(`${ranges[k].path}/`))
      .reduce((a, k) => (a < 0 || ranges[k].path.length > ranges[a].path.length ? k : a), -1);
    open[i] = around < 0 ? 0 : (open[around] ?? 0) + 1;
    return { path: r.path, name: around < 0 ? r.path : r.path.slice(ranges[around].path.length + 1), depth: open[i], parent: around, e: num(r.energy?.energy_j) || 0 };
  });
}

/** flame lays the ranges out by their joules: what lies within another one below it. left and width are parts of all. */
export function flame(list) {
  const all = list.filter((n) => n.parent < 0).reduce((sum, n) => sum + n.e, 0) || 1, used = new Map();
  return list.map((n) => {
    const left = (n.parent < 0 ? 0 : list[n.parent].left) + (used.get(n.parent) ?? 0), width = n.e / all;
    used.set(n.parent, (used.get(n.parent) ?? 0) + width);
    return Object.assign(n, { left, width });
  });
}

/** rangeTracks lays single ranges into rows, a track a thread: what lies within another one below it. */
export function rangeTracks(answer, list, colours) {
  const threads = new Map();
  for (const s of answer?.spans ?? []) {
    const t = threads.get(s.thread) ?? { rows: [], open: [] }, from = num(s.from_s), to = num(s.to_s), n = list[num(s.range ?? 0)];
    threads.set(s.thread, t);
    while (t.open.length && t.open[t.open.length - 1] <= from) t.open.pop();
    (t.rows[t.open.length] ??= []).push({ from, to, name: n.name, path: n.path, kernels: 1, stretch: true, of: s });
    t.open.push(to);
  }
  return [...threads].map(([thread, { rows }]) => ({ title: 'ranges', rows, labels: rows.map((_, i) => (i ? '' : `thread ${thread}`)), colourOf: (name, look) => colours.of(name, look) }));
}

/** RangePanel is the panel of energy by range. go(i) is called with the place of the name that is pressed. */
export class RangePanel {
  constructor(go) {
    this.go = go;
    this.list = [];
    this.colours = new Colours();
    this.none = false; // the program named no ranges: nothing more is to be asked
    this.said = el('div', { role: 'status', 'aria-live': 'polite' });
    this.body = el('div');
    this.element = el('section', { class: 'panel', 'aria-label': 'Energy by range', hidden: true }, el('h2', {}, 'Energy by range'), this.body, this.said);
  }

  /** take shows an answer of ReadRanges. */
  take(answer) {
    const first = !this.answer;
    this.answer = answer;
    this.none = !answer.ranges?.length;
    this.element.hidden = this.none;
    if (this.none) return;
    if (first) {
      this.list = flame(tree(answer.ranges));
      [...this.list].sort((a, b) => b.e - a.e).forEach((n) => this.colours.place(n.name));
      this.show();
    }
    this.left.textContent = num(answer.spans_left_out) ? `${many(answer.spans_left_out, 'shorter range')} in view ${String(answer.spans_left_out) === '1' ? 'is' : 'are'} not drawn: zoom in.` : '';
  }

  tracks() { return rangeTracks(this.answer, this.list, this.colours); }

  show() {
    const narrow = this.list.filter((n) => n.width < 0.002).length;
    const { ranges, notes = [] } = this.answer, all = this.list.filter((n) => n.parent < 0).reduce((sum, n) => sum + n.e, 0);
    const box = el('div', { class: 'flame', 'aria-hidden': 'true' }, this.list.map((n, i) => (n.width < 0.002 ? null : this.bar(n, i))));
    box.style.height = `${rowHeight * (1 + Math.max(...this.list.map((n) => n.depth)))}px`;
    this.left = el('p', { class: 'soft' });
    const name = (i) => {
      const key = el('span', { class: 'key', 'aria-hidden': 'true' });
      key.style.background = this.colours.css(this.list[i].name);
      const b = el('button', { type: 'button', class: 'plain name', title: this.list[i].path, on: { click: () => this.go(i) } }, key, ' ', this.list[i].name);
      b.style.marginLeft = `${this.list[i].depth}rem`;
      return b;
    };
    keepFocus(this.element, () => fill(this.body,
      el('p', { class: 'soft' }, 'A range has the energy of the kernels that were launched in it, whenever they ran; what lies within another counts to that, too.'), box,
      table('Energy by range, in the order of their begin', [
        { title: 'Range', class: 'name', cell: name }, { title: 'Times', num: true, cell: (i) => count(ranges[i].ranges) }, { title: 'Launches', num: true, cell: (i) => count(ranges[i].launches) },
        { title: 'GPU busy', num: true, cell: (i) => quantity(ranges[i].gpu_busy_s, 's', 4) }, { title: 'Energy ± U', num: true, cell: (i) => energy(ranges[i].energy) },
        { title: 'of all', num: true, cell: (i) => percent(this.list[i].e / all) }, { title: 'Each', num: true, cell: (i) => joules(this.list[i].e / num(ranges[i].ranges), 4) },
      ], ranges.map((_, i) => i)), this.left, narrow ? el('p', { class: 'soft' }, `${many(narrow, 'range')} with less than 0.2 % of all ${narrow === 1 ? 'is' : 'are'} not in the picture.`) : null,
      notes.length ? el('ul', { class: 'reasons' }, notes.map((x) => el('li', {}, x))) : null));
  }

  /** bar is one range of the flame. */
  bar(n, i) {
    const b = el('button', { type: 'button', tabindex: -1, title: `${n.path}: ${energy(this.answer.ranges[i].energy)}`, on: { click: () => this.go(i) } }, n.name);
    Object.assign(b.style, { left: `${100 * n.left}%`, width: `${100 * n.width}%`, top: `${rowHeight * n.depth}px` });
    b.style.setProperty('--own', this.colours.css(n.name));
    return b;
  }

  /** tell says what a single range used. */
  tell(s) {
    fill(this.said, el('strong', {}, s.path), `, thread ${s.of.thread}, from ${instant(s.from, s.to - s.from)}, ${quantity(s.to - s.from, 's', 4)}: ${energy(s.of.energy)} of ${many(s.of.launches, 'kernel')} launched in it.`);
  }
}
