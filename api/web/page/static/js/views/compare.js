// Tasks on one axis of time, aligned where their work began, in groups of repeats that are compared,
// and their figures beside each other.
import { ApiError, batch, givenUp, latest } from '../lib/api.js';
import { el, fill, debounced, labelled, announce } from '../lib/dom.js';
import { num, watts } from '../lib/format.js';
import { buttons, notice } from '../lib/parts.js';
import { link } from '../lib/router.js';
import { Cursors } from '../plot/cursors.js';
import { plotKeys } from '../plot/keys.js';
import { Plot } from '../plot/plot.js';
import { comparison } from './compare_table.js';
import { Compared, aligns } from './compared.js';
import { Colours } from './kernels.js';
import { Comparison, groupText, grouping, groupsOf, letter, written } from './groups.js';
import { takeAway } from './take.js';
import { hint, kernelAt, kernelTrack } from './task_layers.js';

export const compare = {
  name: 'compare', title: 'compare', nav: true,
  keys: plotKeys,
  open: (root, route, router) => new CompareView(root, route, router),
};

const modes = [['overlay', 'Overlaid'], ['stacked', 'One below the other']];
const most = 200, mostDrawn = 16;

class CompareView {
  constructor(root, route, router) {
    this.router = router;
    this.end = new AbortController();
    this.tasks = []; // of all groups
    this.groups = [];
    this.colours = new Colours();
    this.views = latest();
    this.energies = latest();
    this.trouble = el('div');
    this.body = el('div');
    root.append(el('h1', {}, 'Compare tasks'), this.trouble, this.body);
    this.settled = debounced(() => this.load(), 60);
    this.kept = debounced(() => this.write(), 250);
    this.open(route.params);
  }

  close() {
    this.end.abort();
    this.settled.cancel();
    this.kept.cancel();
    this.cursors?.close();
    this.plot?.close();
    this.comparison?.close();
    this.views.stop();
    this.energies.stop();
  }

  async open(params) {
    const asked = groupsOf(params.get('ids') ?? ''), ids = asked.flat(), over = ids.splice(most);
    let answers;
    try {
      answers = await batch(ids.map((id) => ({ path: `/v1/tasks/${id}` })), this.end.signal);
    } catch (e) {
      if (!givenUp(e)) fill(this.trouble, notice(e.message, true));
      return;
    }
    const failed = answers.map((a, i) => [ids[i], a]).filter(([, a]) => a instanceof ApiError);
    const found = new Map(answers.filter((a) => !(a instanceof ApiError)).map((a) => [a.task.task_id, a]));
    const groups = (asked.length === 1 && found.size > 1 && !params.get('ids').endsWith(';') ? grouping([...found.values()].map((a) => a.task)) : asked).map((g) => g.filter((id) => found.has(id))).filter((g) => g.length);
    this.groups = groups.map((g, i) => g.map((id) => new Compared(found.get(id), i, g.length > 1 || groups.length > 1 ? letter(i) : '')));
    this.tasks = this.groups.flat();
    // The runs of all groups in turns, so that each is seen where not all are drawn.
    this.drawn = Array.from({ length: Math.max(0, ...this.groups.map((g) => g.length)) }, (_, i) => this.groups.map((g) => g[i])).flat().filter(Boolean).slice(0, mostDrawn);
    fill(this.trouble, over.length ? notice(`${most} tasks are compared at once: ${over.join(', ')} left out. wattmark compare takes any number.`) : null,
      this.tasks.length > mostDrawn ? notice(`${mostDrawn} of ${this.tasks.length} tasks are drawn; all are compared.`) : null,
      failed.map(([id, a]) => notice(`Task ${id}: ${a.message}`, true)));
    this.align = aligns.some(([a]) => a === params.get('align')) ? params.get('align') : 'window';
    this.mode = params.get('show') === 'stacked' ? 'stacked' : 'overlay';
    this.rail = params.get('rail') ?? 'total';
    this.work = params.get('work') ?? this.tasks[0]?.task.tags?.work ?? '';
    this.build(params);
  }

  build(params) {
    if (this.tasks.length === 0) {
      fill(this.body, el('div', { class: 'panel empty' }, el('p', {}, 'Which tasks? Tick them in the ', el('a', { href: link('tasks') }, 'list of tasks'), ', or name one:'), this.adder()));
      return;
    }
    announce(`Comparing ${this.tasks.length} tasks`);
    this.makePlot();
    this.table = el('div');
    this.comparison = new Comparison((work) => { this.work = work; this.comparison.show(this.groups, work); this.write(); });
    this.take = takeAway({ id: this.tasks.map((t) => t.id).join('-').slice(0, 60), figure: () => this.figure(), link: () => { this.write(); return location.href; } });
    const rails = [...new Set(['total', ...this.tasks.flatMap((t) => t.rails)])];
    const rail = el('select', { on: { change: () => { this.rail = rail.value; this.load(); this.write(); } } }, rails.map((r) => el('option', { value: r, selected: r === this.rail }, r)));
    const align = el('select', { on: { change: () => { this.align = align.value; this.limits(); this.plot.put('a', NaN); this.plot.put('b', NaN); this.plot.look(...this.first()); } } },
      aligns.map(([value, text]) => el('option', { value, selected: value === this.align }, text)));
    const button = (text, f, label) => el('button', { type: 'button', 'aria-label': label, on: { click: f } }, text);
    fill(this.body, this.comparison.said, el('section', { class: 'panel', 'aria-label': 'Power over time' },
      el('div', { class: 'row' }, buttons('Show', modes, this.mode, (m) => { this.mode = m; this.draw(); this.write(); }),
        el('div', { class: 'group', role: 'group', 'aria-label': 'Zoom' },
          button('−', () => this.plot.zoom(2), 'Zoom out'), button('+', () => this.plot.zoom(0.5), 'Zoom in'),
          button('Windows', () => this.plot.look(...this.first())), button('All', () => this.plot.look(this.plot.limits.from, this.plot.limits.to))),
        labelled('Rail', rail), labelled('Time zero at', align)),
      this.plot.element, this.line, this.kernelsOf = el('p', { class: 'soft' }), this.cursors.element, this.take),
    this.comparison.element, el('section', { class: 'panel', 'aria-label': 'Figures' }, this.table, this.adder()));
    this.comparison.show(this.groups, this.work);
    this.limits();
    const at = (name) => (params.has(name) ? num(params.get(name)) : NaN);
    this.plot.cursors = { a: at('a'), b: at('b') };
    this.cursors.moved(this.plot.cursors);
    this.showTable();
    this.plot.look(...(at('to') > at('from') ? [at('from'), at('to')] : this.first()));
  }

  makePlot() {
    this.line = el('div', { class: 'readout', id: 'readout' });
    this.plot = new Plot(`Power of ${this.tasks.length} tasks over time. Arrows pan, plus and minus zoom, A and B put cursors.`, {
      view: (from, to, done) => this.viewed(done), cursors: () => this.cursors.moved(this.plot.cursors), hover: (t) => this.hovered(t),
    });
    this.cursors = new Cursors(this.plot, {
      kept: () => this.write(), at: () => '', between: (root, from, to) => this.between(root, from, to),
      none: () => { this.tasks.forEach((t) => { t.between = null; }); this.showTable(); },
    });
  }

  /** adder adds a task by its number. */
  adder() {
    const id = el('input', { type: 'number', min: 1, step: 1, required: true });
    return el('form', { class: 'row', 'aria-label': 'Add a task', on: { submit: (e) => {
      e.preventDefault();
      if (id.value) this.go([...this.numbers(), [id.value]]);
    } } }, labelled('Add task number', id), el('button', { type: 'submit', disabled: this.tasks.length >= most }, 'Add'));
  }

  numbers() { return this.groups.map((g) => g.map((t) => t.id)); }

  go(groups) { location.hash = link('compare', '', { ...this.state(), ids: written(groups) }); }

  /** move puts a task into another group, or, behind the last, into one of its own. */
  move(id, to) {
    const groups = this.numbers().map((g) => g.filter((x) => x !== id));
    (groups[to] ??= []).push(id);
    this.go(groups);
  }

  figure() {
    const groups = this.groups.length > 1 ? `; groups ${this.groups.map(groupText).join(', ')}` : '';
    const legend = this.drawn.map((t) => ({ text: t.title, colour: t.colour, line: true }));
    return { plot: this.plot, legend, caption: `Power of ${this.tasks.length} tasks (${this.rail}), time from the ${aligns.find(([a]) => a === this.align)[1]}${groups}. wattmark.` };
  }

  state() {
    const fixed = (t) => (Number.isFinite(t) ? Number(t.toFixed(9)) : '');
    const { from, to } = this.plot?.view ?? {}, { a, b } = this.plot?.cursors ?? {};
    return {
      ids: written(this.numbers()), work: this.work, from: fixed(from), to: fixed(to), a: fixed(a), b: fixed(b),
      show: this.mode === 'stacked' ? this.mode : '', align: this.align === 'window' ? '' : this.align, rail: this.rail === 'total' ? '' : this.rail,
    };
  }

  write() { this.router.keep(link('compare', '', this.state())); }

  limits() {
    this.tasks.forEach((t) => t.place(this.align));
    const have = this.tasks.filter((t) => t.extent);
    const from = Math.min(...have.map((t) => t.extent[0] - t.zero)), to = Math.max(...have.map((t) => t.extent[1] - t.zero));
    this.plot.limits = to > from ? { from, to } : { from: 0, to: 1 };
    this.plot.window = this.first();
  }

  /** first is the span that holds all windows, with some room. */
  first() {
    const spans = this.tasks.map((t) => t.window ?? t.extent).map((w, i) => w && w.map((x) => x - this.tasks[i].zero)).filter(Boolean);
    if (spans.length === 0) return [0, 1];
    const from = Math.min(...spans.map((w) => w[0])), to = Math.max(...spans.map((w) => w[1])), room = (to - from) * 0.04;
    return [Math.max(this.plot.limits.from, from - room), Math.min(this.plot.limits.to, to + room)];
  }

  viewed(done) {
    if (done) {
      this.settled.cancel();
      this.load();
      this.kept();
    } else {
      this.settled();
    }
  }

  /** load asks each task for what is in view, in its own device time. */
  async load() {
    const { from, to } = this.plot.view;
    const tasks = this.drawn.filter((t) => t.extent), tracked = this.tracked();
    const calls = tasks.map((t) => t.calls(from, to, this.plot.pixels, this.rail, tracked.includes(t)));
    try {
      const answers = await this.views.batch(calls.flat());
      tasks.forEach((t, i) => t.take(answers.splice(0, calls[i].length)));
    } catch (e) {
      if (givenUp(e)) return;
      fill(this.trouble, notice(e.message, true));
    }
    this.draw();
  }

  draw() {
    const drawn = this.drawn.filter((t) => t.seen?.series.length);
    const narrow = this.plot.element.clientWidth < 600;
    const series = (t) => ({ s: t.seen.series[0], colour: t.colour, label: this.labelOf(t), alpha: drawn.length > 8 ? 0.1 : 0.28, line: 1.5, reach: 2.5 * Math.max(t.seen.width, t.period), dots: t.seen.single });
    const stacked = this.mode === 'stacked' && drawn.length > 1;
    this.plot.panelHeight = stacked ? (narrow ? 120 : 170) : (narrow ? 220 : 340);
    this.plot.set({
      panels: stacked ? drawn.map((t, i) => ({ title: t.title, first: i === 0, series: [series(t)] })) : [{ title: this.rail, first: true, series: drawn.map(series) }],
      tracks: this.tracked().flatMap((t) => kernelTrack(t.timeline, this.colours, { title: `task ${t.id}`, shift: -t.zero })), sameScale: stacked,
    });
    const tracked = this.tracked(), ran = tracked.some((t) => t.timeline?.slices?.length);
    this.kernelsOf.textContent = ran && tracked.length < this.drawn.length ? `Kernels are shown of ${tracked.map((t) => t.title).join(' and ')} alone, the first of each group.` : '';
    this.hovered(this.plot.hover);
  }

  /** tracked are the tasks whose kernels are shown: of many the first of each group. */
  tracked() { return this.drawn.length > 6 ? this.groups.map((g) => g[0]) : this.drawn; }

  /** labelOf is what stands at a task's line: at the first of a group of repeats what the group is. */
  labelOf(t) {
    const group = this.groups[t.index];
    if (group.length === 1) return t.label;
    return this.groups.length === 1 ? t.title : t === group[0] ? `${letter(t.index)} ${t.task.name || 'no name'}` : '';
  }

  hovered(t) {
    if (!Number.isFinite(t)) {
      fill(this.line, el('span', { class: 'soft' }, hint()));
      return;
    }
    fill(this.line, el('strong', {}, `${t.toFixed(6)} s`), this.drawn.map((x) => {
      const s = x.seen?.series[0], i = s ? s.at(t, Math.max(x.seen.width, x.period)) : -1;
      const ran = kernelAt(x.timeline, t + x.zero);
      return el('span', {}, `${x.title}: ${i < 0 ? 'no sample here' : watts(s.mean[i])}${ran ? ` in ${ran}` : ''}`);
    }));
  }

  /** between asks each task for the energy between the cursors. */
  async between(root, from, to) {
    root.setAttribute('aria-busy', 'true');
    const asked = this.tasks.filter((t) => t.spanOf(from, to));
    this.tasks.forEach((t) => { t.between = { message: 'no samples there' }; });
    try {
      const answers = await this.energies.batch(asked.map((t) => ({ path: `/v1/tasks/${t.id}/energy`, params: t.spanOf(from, to) })));
      asked.forEach((t, i) => { t.between = answers[i]; }); // an error has its message
    } catch (e) {
      if (givenUp(e)) return;
      asked.forEach((t) => { t.between = e; });
    }
    root.removeAttribute('aria-busy');
    fill(root, 'The energies between A and B stand in the table below.');
    this.showTable();
  }

  showTable() {
    fill(this.table, comparison(this.groups, { drop: (id) => this.go(this.numbers().map((g) => g.filter((x) => x !== id))), move: (id, to) => this.move(id, to) }));
  }
}
