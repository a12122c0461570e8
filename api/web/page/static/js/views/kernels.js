// The kernels of a task: their colours, a table of energy by name, and the way from one launch to the next.
import { get, givenUp } from '../lib/api.js';
import { el, fill, keepFocus } from '../lib/dom.js';
import { count, energy, joules, num, percent, quantity, watts } from '../lib/format.js';
import { notice, table } from '../lib/parts.js';

/** Colours gives each kernel name a colour of its own, those with most energy first; more than eight names share the soft one. */
export class Colours {
  constructor(names = []) {
    this.places = new Map();
    names.forEach((n) => this.place(n));
  }

  /** place is a name's number: that of a known one, else the next free. */
  place(name) {
    if (!this.places.has(name)) this.places.set(name, this.places.size);
    return this.places.get(name);
  }

  of(name, look) { return look.series[this.place(name)] ?? look.soft; }

  /** css is the same colour for a style sheet. */
  css(name) { return this.place(name) < 8 ? `var(--series-${this.place(name) + 1})` : 'var(--soft)'; }
}

const text = { active_idle: '(between kernels)', idle: '(before and after)' };

/** nameOf is what a line of energy is called. */
const nameOf = (l) => (l.class !== 'kernel' ? text[l.class] : l.together?.length ? `${l.together.length} together: ${l.name}` : l.name);

/** @type {[string, string, (line: any, all?: number) => string, (line: any) => any][]} */
const columns = [
  ['kernel', 'Kernel', nameOf, (l) => l.name],
  ['launches', 'Launches', (l) => (l.class === 'kernel' ? count(l.launches) : ''), (l) => num(l.launches)],
  ['busy', 'Time', (l) => quantity(l.busy_s, 's', 4), (l) => num(l.busy_s)],
  ['energy', 'Energy ± U', (l) => energy(l.energy), (l) => num(l.energy?.energy_j)],
  ['share', 'of all', (l, all) => percent(num(l.energy?.energy_j) / all), (l) => num(l.energy?.energy_j)],
  ['mean', 'Mean', (l) => (num(l.share_s) ? watts(l.mean_w) : ''), (l) => num(l.mean_w)],
  ['call', 'A launch', (l) => (num(l.launches) ? joules(l.per_call_j, 4) : ''), (l) => num(l.per_call_j)],
];

/** KernelTable is the panel of energy by kernel. picked is called with the name that one presses, '' to let go. */
export class KernelTable {
  constructor(id, picked) {
    this.id = id;
    this.picked = picked;
    this.end = new AbortController();
    this.colours = new Colours();
    this.lines = [];
    /** @type {[string, number]} */
    this.order = ['energy', -1];
    this.chosen = '';
    this.element = el('section', { class: 'panel', 'aria-label': 'Energy by kernel', hidden: true });
  }

  close() { this.end.abort(); }

  /** load asks for the energies, once. A task without recorded kernels has no panel. */
  async load() {
    try {
      this.answer = await get(`/v1/tasks/${this.id}/kernels`, {}, this.end.signal);
    } catch (e) {
      if (givenUp(e)) return;
      fill(this.element, el('h2', {}, 'Energy by kernel'), notice(e.message, true));
      this.element.hidden = false;
      return;
    }
    this.lines = this.answer.lines ?? [];
    this.lines.filter((l) => l.class === 'kernel').flatMap((l) => (l.together?.length ? l.together : [l.name])).forEach((n) => this.colours.place(n));
    this.element.hidden = !num(this.answer.recorded) && !this.answer.warnings?.length;
    this.show();
  }

  /** launches is how often a kernel ran; nothing where that is not known. */
  launches(name) { return this.lines.find((l) => l.class === 'kernel' && l.name === name)?.launches; }

  /** choose marks a name, in the table too. */
  choose(name) {
    this.chosen = name;
    if (this.answer) this.show();
  }

  show() {
    const a = this.answer, [by, way] = this.order, value = columns.find(([key]) => key === by)[3];
    const sorted = [...this.lines].sort((x, y) => {
      const p = value(x), q = value(y);
      if ((x.class === 'kernel') !== (y.class === 'kernel')) return x.class === 'kernel' ? -1 : 1; // what is no kernel stands below them
      return way * (typeof p === 'string' ? p.localeCompare(q) : (Number.isNaN(p) ? -Infinity : p) - (Number.isNaN(q) ? -Infinity : q));
    });
    const all = num(a.sum_j);
    keepFocus(this.element, () => fill(this.element, el('h2', {}, 'Energy by kernel'), this.first(all),
      el('p', { class: 'soft' }, `${count(a.recorded)} launches recorded of ${count(num(a.reported) + num(a.dropped))}. Kernels that run at once share the power equally; the lines add up to ${joules(all)}, the energy of the task.`),
      table('Energy by kernel name', columns.map(([key, title, cell]) => ({
        title: this.header(key, title), num: key !== 'kernel', class: 'name', sort: key === by ? (way < 0 ? 'descending' : 'ascending') : 'none',
        cell: (l) => (key === 'kernel' ? this.name(l) : cell(l, all)),
      })), sorted),
      this.colours.places.size > 8 ? el('p', { class: 'soft' }, `The eight with most energy have colours of their own in the plot; ${this.colours.places.size - 8} more are grey.`) : null,
      a.warnings?.length ? el('ul', { class: 'reasons' }, a.warnings.map((w) => el('li', {}, w))) : null));
  }

  /** first says which kernel takes most, and whether U leaves that open. */
  first(all) {
    const [x, y] = this.lines.filter((l) => l.class === 'kernel').sort((a, b) => num(b.energy?.energy_j) - num(a.energy?.energy_j)), e = (l) => num(l.energy?.energy_j), u = (l) => num(l.energy?.energy_u_j);
    if (!x || !(e(x) > 0)) return null;
    const sure = y && e(x) - e(y) > u(x) + u(y);
    return el('p', { class: 'verdict' }, `${nameOf(x)} takes most: ${energy(x.energy)}, ${percent(e(x) / all)} of the task. `,
      y ? `Next is ${nameOf(y)}${sure ? `, with ${joules(e(x) - e(y), 3)} less` : ', within U of it: which of the two takes more is open'}.` : null);
  }

  header(key, title) {
    const [by, way] = this.order;
    return el('button', { type: 'button', class: 'plain', on: { click: () => { this.order = [key, by === key ? -way : key === 'kernel' ? 1 : -1]; this.show(); } } },
      `${title}${by === key ? (way < 0 ? ' ▼' : ' ▲') : ''}`);
  }

  /** name is the first cell: for kernels a button that marks their launches in the plot. */
  name(l) {
    if (l.class !== 'kernel') return el('span', { class: 'soft' }, nameOf(l));
    const names = l.together?.length ? l.together : [l.name], first = names[0], on = names.includes(this.chosen);
    const key = el('span', { class: 'key', 'aria-hidden': 'true' });
    key.style.background = this.colours.css(first);
    return el('button', { type: 'button', class: 'plain name', 'aria-pressed': String(on), title: l.symbol || l.name, on: { click: () => this.picked(on ? '' : first) } }, key, ' ', nameOf(l));
  }
}

/**
 * launch finds the next (way 1) or previous (way −1) single launch of a name beyond a time, within limits. It asks for
 * spans that grow, and shrink where so many kernels lie in one that they come merged. Null where there is none.
 */
export async function launch(id, name, t, way, limits, span, signal) {
  let from = t;
  for (let tries = 0; tries < 60; tries++) {
    const to = way > 0 ? Math.min(from + span, limits.to) : Math.max(from - span, limits.from);
    if (!(Math.abs(to - from) > 0)) return null;
    const a = await get(`/v1/tasks/${id}/timeline`, { from_s: Math.min(from, to), to_s: Math.max(from, to), max_slices: 2000 }, signal);
    if (a.merged) {
      span = Math.abs(to - from) / 8;
      continue;
    }
    const own = (a.slices ?? []).filter((s) => s.name === name && (way > 0 ? num(s.from_s) > t : num(s.from_s) < t));
    if (own.length) return way > 0 ? own[0] : own[own.length - 1];
    from = to;
    span *= 4;
  }
  return null;
}

/** Steps is the row that stands below the plot while a name is marked: which one, and the way through its launches. */
export class Steps {
  constructor(go, leave) {
    this.go = go;
    this.leave = leave;
    this.element = el('div', { class: 'row middle', role: 'group', 'aria-label': 'Launches of the marked kernel', hidden: true });
  }

  show(name, launches) {
    this.element.hidden = !name;
    if (!name) return;
    const button = (label, f) => el('button', { type: 'button', on: { click: f } }, label);
    keepFocus(this.element, () => fill(this.element, el('strong', {}, name), launches ? el('span', { class: 'soft' }, `${count(launches)} launch${String(launches) === '1' ? '' : 'es'}`) : null,
      button('◂ Previous', () => this.go(-1)), button('Next ▸', () => this.go(1)), button('Let go', () => this.leave())));
  }
}
