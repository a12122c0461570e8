// Groups of repeats: which task is in which, and what the host makes of two of them (wattmark compare).
import { get, givenUp } from '../lib/api.js';
import { el, fill, labelled } from '../lib/dom.js';
import { count, grouped, many, none, num, quantity } from '../lib/format.js';
import { notice, table } from '../lib/parts.js';
import { words } from '../lib/words.js';
import { boxes } from './sketch.js';

/** letter is what the i-th group is called. */
export const letter = (i) => (i < 26 ? String.fromCharCode(65 + i) : `${letter(Math.floor(i / 26) - 1)}${letter(i % 26)}`);

/** groupsOf reads the groups of an address: numbers with commas, groups with semicolons between them. */
export const groupsOf = (text) => {
  const seen = new Set();
  return text.split(';').map((g) => g.split(',').filter((x) => /^[1-9]\d*$/.test(x) && !seen.has(x) && seen.add(x))).filter((g) => g.length);
};

/**
 * grouping puts tasks that nobody grouped into groups: the two sides of a series in their order, else those of a name
 * together where one repeats, the oldest first, else each alone, as they come.
 */
export function grouping(tasks) {
  const oldest = [...tasks].sort((a, b) => num(a.task_id) - num(b.task_id)), by = (key) => [...oldest.reduce((m, t) => m.set(key(t), [...(m.get(key(t)) ?? []), t]), new Map()).values()];
  const side = (t) => (t.tags?.series && t.tags.side ? `${t.tags.series} ${t.tags.side}` : '');
  const names = by((t) => t.name), sides = tasks.every((t) => side(t));
  const groups = sides ? by(side).sort((a, b) => (side(a[0]) < side(b[0]) ? -1 : 1)) : names.length < tasks.length ? names : tasks.map((t) => [t]);
  return groups.map((g) => g.map((t) => t.task_id));
}

/** groupText says what a group is called, and of what it is. */
export const groupText = (g, i) => `${letter(i)}: ${g[0].task.name || 'no name'} (${many(g.length, 'run')})`;

/** written is groups as an address has them. A semicolon behind a single group of several says that they belong together. */
export function written(groups) {
  const text = groups.filter((g) => g.length).map((g) => g.join(',')).join(';');
  return text.includes(',') && !text.includes(';') ? `${text};` : text;
}

/** plusMinus writes { value, low, high } with a unit: U with two digits. */
export function plusMinus(m, unit) {
  const u = (num(m.high) - num(m.low)) / 2, v = num(m.value);
  if (!(u > 0)) return quantity(v, unit, 4);
  const f = 10 ** (3 * Math.floor(Math.log10(Math.max(Math.abs(v), u)) / 3)), letters = { 1e-9: 'n', 1e-6: 'µ', 1e-3: 'm', 1: '', 1e3: 'k', 1e6: 'M', 1e9: 'G' };
  const [scale, si] = letters[f] === undefined || /[·/]/.test(unit) ? [1, ''] : [f, letters[f]];
  const d = Math.max(0, 1 - Math.floor(Math.log10(u / scale) + 1e-9));
  if (d > 9) return `${(v / scale).toPrecision(4)} ± ${(u / scale).toPrecision(2)} ${unit}`;
  return `${grouped(v / scale, d)} ± ${grouped(u / scale, d)} ${si}${unit}`;
}

/** changed writes how B differs: −11.5 ± 1.6 %. */
export function changed(e) {
  const v = num(e.change_pct), u = (num(e.high_pct) - num(e.low_pct)) / 2, sign = v > 0 ? '+' : '';
  if (!(u > 0)) return Number.isFinite(v) ? `${sign}${grouped(v, 2)} %` : none;
  const d = Math.max(0, Math.min(6, 1 - Math.floor(Math.log10(u) + 1e-9)));
  return `${sign}${grouped(v, d)} ± ${grouped(u, d)} %`;
}

const pText = (p) => (p === null || p === undefined ? none : num(p) < 1e-4 ? '< 0.0001' : grouped(num(p), num(p) < 0.01 ? 4 : 3));
const names = { energy: 'Energy', time: 'Time', 'mean power': 'Mean power', 'energy-delay product': 'Energy × time (EDP)', 'energy-delay² product': 'Energy × time² (ED²P)' };

/** Comparison is the panel of what groups come to. */
export class Comparison {
  /** setWork is told the work of a run as one typed it. */
  constructor(setWork) {
    this.setWork = setWork;
    this.body = el('div');
    this.said = el('div', { class: 'panel said', hidden: true }); // above all: what it comes to
    this.element = el('section', { class: 'panel', 'aria-label': 'Comparison', hidden: true }, el('h2', {}, 'Comparison'), this.body);
  }

  close() { this.end?.abort(); }

  /** show asks what each other group is against the first. groups are lists of Compared. */
  async show(groups, work) {
    this.close();
    const end = this.end = new AbortController(), ids = (g) => g.map((t) => t.id), have = groups.map((g) => g.filter((t) => t.task.energy));
    this.element.hidden = this.said.hidden = have.filter((g) => g.length).length < 2;
    if (this.element.hidden) return;
    const heads = have.slice(1).map(() => el('p', { class: 'verdict' }, 'Comparing …'));
    fill(this.said, heads, el('p', { class: 'soft' }, groups.map(groupText).join(' · ')));
    const parts = have.slice(1).map(() => el('div', {}, el('p', { class: 'soft' }, 'Comparing …')));
    fill(this.body, this.boxes(have), this.form(work), parts);
    await Promise.all(have.slice(1).map(async (g, i) => {
      if (!g.length || !have[0].length) return heads[i].remove(), fill(parts[i], notice(`${letter(g.length ? 0 : i + 1)} has no task with an energy.`));
      try {
        const { comparison } = await get('/v1/comparison', { a: ids(have[0]), b: ids(g), work: work ? work.split(/\s+/) : [] }, end.signal);
        const name = letter(i + 1);
        heads[i].textContent = name === 'B' ? comparison.verdict : comparison.verdict.replaceAll(/\bB\b/g, name);
        fill(parts[i], this.one(comparison, name));
      } catch (e) {
        if (givenUp(e)) return;
        heads[i].textContent = `${letter(i + 1)} is not compared.`;
        fill(parts[i], notice(e.message, true));
      }
    }));
  }

  /** boxes are the runs of each group side by side, by energy, time and mean power. */
  boxes(groups) {
    const of = (title, unit, value) => boxes(title, unit, groups.map((g, i) => ({ name: letter(i), values: g.map(value), colour: i })));
    return el('div', { class: 'boxes', role: 'img', 'aria-label': 'Runs of each group: energy, time and mean power; the table below has the figures' },
      of('Energy', 'J', (t) => num(t.task.energy.energy_j)), of('Length', 's', (t) => num(t.task.duration_s)), of('Mean power', 'W', (t) => num(t.task.mean_w)));
  }

  form(work) {
    const field = el('input', { type: 'text', name: 'work', value: work, placeholder: 'token=512', autocomplete: 'off', size: 24 });
    return el('form', { class: 'row', 'aria-label': 'Work of a run', on: { submit: (e) => { e.preventDefault(); this.setWork(field.value.trim()); } } },
      labelled('Work of a run: unit=amount, or unit=A’s,B’s', field), el('button', { type: 'submit' }, 'Joules per unit'));
  }

  one(r, name) {
    const tested = r.quantities[0].interval_holds === 'meters and scatter', sides = [['A', 'a'], [name, 'b']];
    const rows = [
      ...r.quantities.map((q) => ({ title: names[q.quantity] ?? q.quantity, unit: q.unit, ...q })),
      ...(r.work ?? []).map((w) => ({ title: `Energy per ${w.unit}`, ...w, unit: `J/${w.unit}`, a: w.a_j_per_unit, b: w.b_j_per_unit })),
    ];
    const spread = (m) => (m.spread_pct === null || m.spread_pct === undefined ? '' : el('div', { class: 'soft' }, `a run ± ${grouped(num(m.spread_pct), 2)} %`));
    return [
      table(`${name} against A, ${count(r.b.tasks.length)} and ${count(r.a.tasks.length)} runs; ± is 95 % (${r.quantities[0].interval_holds})`, [
        { title: 'Quantity', cell: (q) => el('span', { title: /EDP|ED²P/.test(q.title) ? words.EDP : null }, q.title) },
        ...sides.map(([title, key]) => ({ title, num: true, cell: (q) => [plusMinus(q[key], q.unit), q.unit === 'J' ? spread(q[key]) : null] })),
        { title: 'Change', num: true, cell: changed },
        ...(tested ? [{ title: 'p', num: true, cell: (q) => pText(q.p_corrected) }] : []),
      ], rows),
      this.notes(r), r.kernels?.length ? this.kernels(r.kernels, tested, name) : null,
    ];
  }

  notes(r) {
    const list = [
      r.randomisation ? `Exact test by randomisation, without a model of drift or scatter: p ${pText(r.randomisation.p)}.` : null,
      r.visible?.length ? `So many runs show a difference of ${grouped(num(r.visible[0].change_pct), 2)} % or more in 4 of 5 trials.` : null,
      r.needed?.runs ? `${r.needed.runs} pairs of random order would show this difference in 4 of 5 trials (wattmark run --times).` : null,
      ...(r.shared ?? []).slice(0, 4).map((s) => `In both, and not in the change: ${s.source} (${grouped(num(s.a_pct), 2)} % of A).`),
      (r.shared ?? []).length > 4 ? `${many(r.shared.length - 4, 'smaller error')} in both ${r.shared.length === 5 ? 'is' : 'are'} not listed: wattmark compare has them.` : null,
      ...(r.a.passed_over ?? []), ...(r.b.passed_over ?? []), ...(r.cautions ?? []),
    ].filter(Boolean);
    return list.length ? el('ul', { class: 'reasons' }, list.map((x) => el('li', {}, x))) : null;
  }

  kernels(list, tested, name) {
    return el('details', { open: list.length <= 12, 'aria-label': `Kernels of A and ${name}` }, el('summary', {}, `By kernel (${list.length})`), table(tested ? 'p is corrected for the number of kernels (Holm)' : 'Without a test', [
      { title: 'Kernel', class: 'name', cell: (k) => k.name }, { title: 'A', num: true, cell: (k) => plusMinus(k.energy.a, 'J') }, { title: name, num: true, cell: (k) => plusMinus(k.energy.b, 'J') },
      { title: 'Energy', num: true, cell: (k) => changed(k.energy) }, { title: 'Time', num: true, cell: (k) => changed(k.time) },
      ...(tested ? [{ title: 'p', num: true, cell: (k) => pText(k.p_holm) }] : []),
    ], list));
  }
}
