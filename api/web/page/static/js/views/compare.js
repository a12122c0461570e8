// Two or more tasks on one axis of time, aligned where their work began, and their
// figures beside each other.
import { get } from '../lib/api.js';
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
import { kernelAt, kernelTrack } from './task_layers.js';

export const compare = {
  name: 'compare', title: 'compare', nav: true,
  keys: plotKeys,
  open: (root, route, router) => new CompareView(root, route, router),
};

const modes = [['overlay', 'Overlaid'], ['stacked', 'One below the other']];
const most = 8;

class CompareView {
  constructor(root, route, router) {
    this.router = router;
    this.end = new AbortController();
    this.tasks = [];
    this.colours = new Colours();
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
    this.tasks.forEach((t) => t.close());
  }

  async open(params) {
    const ids = [...new Set((params.get('ids') ?? '').split(',').filter((x) => /^[1-9]\d*$/.test(x)))], over = ids.splice(most);
    const answers = await Promise.allSettled(ids.map((id) => get(`/v1/tasks/${id}`, {}, this.end.signal)));
    if (this.end.signal.aborted) return;
    const failed = answers.map((a, i) => [ids[i], a]).filter(([, a]) => a.status === 'rejected');
    fill(this.trouble, over.length ? notice(`${most} tasks are compared at once: ${over.join(', ')} left out. wattmark compare takes any number.`) : null, failed.map(([id, a]) => notice(`Task ${id}: ${a.reason.message}`, true)));
    this.tasks = answers.filter((a) => a.status === 'fulfilled').map((a, i) => new Compared(a.value, i));
    this.align = aligns.some(([a]) => a === params.get('align')) ? params.get('align') : 'window';
    this.mode = params.get('show') === 'stacked' ? 'stacked' : 'overlay';
    this.rail = params.get('rail') ?? 'total';
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
    const rails = [...new Set(['total', ...this.tasks.flatMap((t) => t.rails)])];
    const rail = el('select', { on: { change: () => { this.rail = rail.value; this.load(); this.write(); } } }, rails.map((r) => el('option', { value: r, selected: r === this.rail }, r)));
    const align = el('select', { on: { change: () => { this.align = align.value; this.limits(); this.plot.put('a', NaN); this.plot.put('b', NaN); this.plot.look(...this.first()); } } },
      aligns.map(([value, text]) => el('option', { value, selected: value === this.align }, text)));
    const button = (text, f, label) => el('button', { type: 'button', 'aria-label': label, on: { click: f } }, text);
    fill(this.body, el('section', { class: 'panel', 'aria-label': 'Power over time' },
      el('div', { class: 'row' }, buttons('Show', modes, this.mode, (m) => { this.mode = m; this.draw(); this.write(); }),
        el('div', { class: 'group', role: 'group', 'aria-label': 'Zoom' },
          button('−', () => this.plot.zoom(2), 'Zoom out'), button('+', () => this.plot.zoom(0.5), 'Zoom in'),
          button('Windows', () => this.plot.look(...this.first())), button('All', () => this.plot.look(this.plot.limits.from, this.plot.limits.to))),
        labelled('Rail', rail), labelled('Time zero at', align)),
      this.plot.element, this.line, this.cursors.element),
    el('section', { class: 'panel', 'aria-label': 'Figures' }, this.table, this.adder()));
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
      if (id.value) this.go([...this.tasks.map((t) => t.id), id.value]);
    } } }, labelled('Add task number', id), el('button', { type: 'submit', disabled: this.tasks.length >= most }, 'Add'));
  }

  go(ids) { location.hash = link('compare', '', { ...this.state(), ids: ids.join(',') }); }

  state() {
    const fixed = (t) => (Number.isFinite(t) ? Number(t.toFixed(9)) : '');
    const { from, to } = this.plot?.view ?? {}, { a, b } = this.plot?.cursors ?? {};
    return {
      ids: this.tasks.map((t) => t.id).join(','), from: fixed(from), to: fixed(to), a: fixed(a), b: fixed(b),
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
    await Promise.all(this.tasks.filter((t) => t.extent).map((t) => t.see(from, to, this.plot.pixels, this.rail, (e) => {
      if (e?.status === 0) fill(this.trouble, notice(e.message, true));
      this.draw();
    })));
  }

  draw() {
    const drawn = this.tasks.filter((t) => t.seen?.series.length);
    const narrow = this.plot.element.clientWidth < 600;
    const series = (t) => ({ s: t.seen.series[0], colour: t.colour, alpha: 0.28, line: 1.5, reach: 2.5 * Math.max(t.seen.width, t.period), dots: t.seen.single });
    const stacked = this.mode === 'stacked' && drawn.length > 1;
    this.plot.panelHeight = stacked ? (narrow ? 120 : 170) : (narrow ? 220 : 340);
    this.plot.set({
      panels: stacked ? drawn.map((t, i) => ({ title: t.title, first: i === 0, series: [series(t)] })) : [{ title: this.rail, first: true, series: drawn.map(series) }],
      tracks: this.tasks.flatMap((t) => kernelTrack(t.timeline, this.colours, { title: `task ${t.id}`, shift: -t.zero })), sameScale: stacked,
    });
    this.hovered(this.plot.hover);
  }

  hovered(t) {
    if (!Number.isFinite(t)) {
      fill(this.line, el('span', { class: 'soft' }, 'Point at the plot to read it. Click puts a cursor, dragging zooms, the wheel zooms.'));
      return;
    }
    fill(this.line, el('strong', {}, `${t.toFixed(6)} s`), this.tasks.map((x) => {
      const s = x.seen?.series[0], i = s ? s.at(t, Math.max(x.seen.width, x.period)) : -1;
      const ran = kernelAt(x.timeline, t + x.zero);
      return el('span', {}, `${x.title}: ${i < 0 ? 'no sample here' : watts(s.mean[i])}${ran ? ` in ${ran}` : ''}`);
    }));
  }

  /** between asks each task for the energy between the cursors. */
  async between(root, from, to) {
    root.setAttribute('aria-busy', 'true');
    await Promise.all(this.tasks.map((t) => t.ask(from, to)));
    root.removeAttribute('aria-busy');
    if (this.end.signal.aborted) return;
    fill(root, 'The energies between A and B stand in the table below.');
    this.showTable();
  }

  showTable() {
    fill(this.table, comparison(this.tasks, (id) => this.go(this.tasks.map((t) => t.id).filter((x) => x !== id))));
  }
}
