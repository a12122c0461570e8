// A task's power over time: asks for what the plot shows, whatever the zoom.
import { get, latest, givenUp } from '../lib/api.js';
import { el, fill, debounced, announce } from '../lib/dom.js';
import { num, word } from '../lib/format.js';
import { buttons, notice } from '../lib/parts.js';
import { Plot } from '../plot/plot.js';
import { Cursors } from '../plot/cursors.js';
import { envelope } from '../plot/envelope.js';
import { instant } from '../plot/scale.js';
import { panels, railsOf, shades, legend, kernelTrack, readout, stretchTrack } from './task_layers.js';
import { captionOf, takeAway } from './take.js';
import { Stretches, stretchesOf, stretchText } from './stretches.js';
import { energyBetween } from './between.js';
import { Colours, KernelTable, Steps, launch } from './kernels.js';
import { RangePanel } from './ranges.js';
import { ReadingChoice } from './readings.js';
import { Swings } from './swings.js';
import { Windows } from './windows.js';
import { related } from './task_parts.js';
import { valuesTable } from './values.js';

const modes = [['stacked', 'Stacked'], ['rails', 'Per rail'], ['total', 'Total']];

export class TaskPlot {
  /**
   * told = { keep(state, step), note(text), trim(from, to) }: the state that belongs into the address, and
   * whether it is a step to go back to; a note to add; a window to set.
   */
  constructor(root, answer, told) {
    this.answer = answer;
    this.id = answer.task.task_id;
    this.told = told;
    this.idle = null;
    this.notes(answer.notes);
    this.asks = { envelope: latest(), timeline: latest(), readings: latest(), ranges: latest() };
    const tb = answer.setup?.timebase;
    this.period = tb ? num(tb.ticks_per_scan) / num(tb.tick_hz) : 0;
    this.extent = [num(answer.extent.from_s), num(answer.extent.to_s)];
    this.window = answer.window ? [num(answer.window.from_s), num(answer.window.to_s)] : null;
    this.plot = new Plot(`Power of task ${this.id} over time. Arrows pan, plus and minus zoom, A and B put cursors; the values stand in the table below.`, {
      view: (from, to, done) => this.viewed(done), cursors: () => this.cursors.moved(this.plot.cursors), hover: (t) => this.hovered(t),
      pick: (s) => this.pick(s), step: (way) => this.step(way), snaps: () => this.snaps(),
      read: (t) => announce(`${instant(t, this.plot.view.to - this.plot.view.from)}: ${readout(this, t, true)}`),
    });
    this.plot.limits = { from: this.extent[0], to: this.extent[1] };
    this.plot.window = this.window ?? this.extent;
    this.energy = energyBetween({ id: this.id, idle: () => this.idle, setIdle: (v) => { this.idle = v; this.write(); }, actions: (from, to) => this.actions(from, to) });
    this.cursors = new Cursors(this.plot, {
      kept: () => { this.write(); this.take?.moved(); }, at: (t) => [readout(this, t, true), this.snaps().find((s) => Math.abs(s.t - t) < 1e-9)?.name].filter(Boolean).join(' · '),
      between: this.energy.show, none: this.energy.none,
    });
    this.kernels = new KernelTable(this.id, (name) => this.mark(name));
    this.steps = new Steps((way) => this.step(way), () => this.mark(''));
    this.marked = '';
    this.stretchColours = new Colours();
    this.ranges = new RangePanel((i) => this.rangeTo(i));
    this.end = new AbortController();
    this.settled = debounced(() => this.load(), 60);
    this.kept = debounced(() => { this.write(!this.fresh); this.fresh = false; this.take.moved(); this.rested(); }, 250);
    this.loads = 0; // that go on
    this.beside = 0; // how often kernels and readings came
    this.build(root);
  }

  close() {
    Object.values(this.asks).forEach((a) => a.stop());
    this.settled.cancel();
    this.kept.cancel();
    this.cursors.close();
    this.energy.close();
    this.values.close();
    this.kernels.close();
    this.named.close();
    this.swings?.close();
    this.windows?.close();
    this.end.abort();
    this.plot.close();
  }

  build(root) {
    this.trouble = el('div');
    this.line = el('div', { class: 'readout', id: 'readout' });
    this.legend = el('ul', { class: 'legend', 'aria-label': 'Colours' });
    this.modeButtons = el('span');
    const zero = this.zero = el('input', { type: 'checkbox', checked: true, on: { change: () => { this.plot.zero = zero.checked; this.plot.later(); this.write(); } } });
    const tracks = this.tracks = el('input', { type: 'checkbox', checked: true, on: { change: () => { this.draw(); this.write(); } } });
    this.tracksBox = el('label', { class: 'check', hidden: true }, tracks, 'kernels, ranges');
    this.withKernels = related(this.answer);
    this.choice = new ReadingChoice(this.answer.nvml_method, () => { this.readings = this.choice.drawn(this.readings); this.draw(); this.load(); this.write(); });
    this.values = valuesTable(this.id, () => this.plot.view);
    this.swings = this.window ? new Swings(this.id, (t) => this.goTo({ from: t - 0.05, to: t + 0.05 })) : null;
    this.windows = this.window ? new Windows(this.id) : null;
    this.named = new Stretches(this.id, (x) => this.goTo(x));
    this.take = takeAway({ id: this.id, span: () => this.span(), figure: () => this.figure(), link: () => { this.write(); return location.href; } });
    const button = (text, f, label) => el('button', { type: 'button', 'aria-label': label, on: { click: f } }, text);
    fill(root, el('section', { class: 'panel', 'aria-label': 'Power over time' },
      el('div', { class: 'row middle' }, this.modeButtons,
        el('div', { class: 'group', role: 'group', 'aria-label': 'Zoom' },
          button('−', () => this.plot.zoom(2), 'Zoom out'), button('+', () => this.plot.zoom(0.5), 'Zoom in'),
          this.window ? button('Window', () => this.plot.look(...this.window)) : null, button('All', () => this.plot.look(...this.extent))),
        el('label', { class: 'check' }, zero, 'from 0 W'), this.tracksBox),
      this.legend, this.withKernels ? this.choice.element : null, this.trouble, this.plot.element, this.line, this.steps.element, this.cursors.element, this.take, this.values.element), this.named.element, this.ranges.element, this.kernels.element, this.windows?.element, this.swings?.element);
    this.named.show(this.stretches);
    if (this.withKernels) this.kernels.load().then(() => { this.steps.show(this.marked, this.kernels.launches(this.marked)); this.draw(); });
  }

  /** notes takes the task's notes: the named stretches among them are shown. */
  notes(list) {
    this.stretches = stretchesOf(list);
    if (!this.named) return;
    this.named.show(this.stretches);
    this.draw();
  }

  /** goTo puts the cursors about a stretch, and shows it where it is not in view. */
  goTo({ from, to }) {
    const { view } = this.plot, room = (to - from) / 5;
    if (from < view.from || to > view.to) this.plot.look(from - room, to + room);
    this.plot.put('a', from);
    this.plot.put('b', to);
  }

  /** rangeTo goes to the next single range of a name behind cursor A; behind the last one comes the first. */
  async rangeTo(i) {
    const after = this.plot.cursors.a, own = (a, from) => (a.spans ?? []).find((s) => num(s.range ?? 0) === i && num(s.from_s) > from);
    try {
      const a = await get(`/v1/tasks/${this.id}/ranges`, { from_s: this.extent[0], to_s: this.extent[1], max_spans: 20000 }, this.end.signal);
      const s = own(a, Number.isFinite(after) ? after + 1e-9 : -Infinity) ?? own(a, -Infinity);
      if (s) this.pick({ from: num(s.from_s), to: num(s.to_s), path: this.ranges.list[i].path, stretch: true, of: s });
      else fill(this.ranges.said, 'The single ranges of this name were too many and too short to keep: of all of them there is the sum.');
    } catch (e) {
      if (!givenUp(e)) fill(this.trouble, notice(e.message, true));
    }
  }

  /** snaps are the instants that a cursor goes to when it is put near one: [{ t, name }]. */
  snaps() {
    const edges = (from, to, name) => [{ t: from, name: `${name} begins` }, { t: to, name: `${name} ends` }];
    const shown = (this.plot.view.to - this.plot.view.from) / this.plot.width * 8; // kernels of 8 pixels and more
    return [
      ...(this.window ? edges(...this.window, 'window') : []),
      ...(this.answer.markers ?? []).flatMap((m) => edges(num(m.begin_s), num(m.end_s), `${word(m.kind, 'MARKER_KIND_')} marker`)),
      ...this.stretches.flatMap((s) => edges(s.from, s.to, s.name)),
      ...(this.timeline?.slices ?? []).filter((s) => num(s.kernels) === 1 && num(s.to_s) - num(s.from_s) >= shown).flatMap((s) => edges(num(s.from_s), num(s.to_s), s.name)),
    ];
  }

  /** span is what the samples to take away lie in: between the cursors, else what is in view. */
  span() {
    const { a, b } = this.plot.cursors, { from, to } = this.plot.view;
    if (Number.isFinite(a) && Number.isFinite(b) && a !== b) return { from: Math.min(a, b), to: Math.max(a, b), what: 'Samples between A and B' };
    return { from: Number(from.toFixed(9)), to: Number(to.toFixed(9)), what: 'Samples in view' };
  }

  /** figure is what a figure for a paper is made of. */
  figure() {
    const { rails, sum } = railsOf(this), alone = this.mode === 'total' || rails.length < 2;
    const tone = (i) => (look) => look.series[i % look.series.length];
    const legend = [
      ...(alone ? [] : rails.map((s, i) => ({ text: s.rail, colour: tone(i) }))),
      { text: alone ? sum.rail : 'total', colour: alone ? tone(0) : (look) => look.total, line: true },
      ...(this.readings ?? []).map((r) => ({ text: r.text, colour: r.colour, line: true, dash: r.dash })),
    ];
    return { plot: this.plot, legend, caption: captionOf(this.answer, { view: this.plot.view, cursors: this.plot.cursors, single: this.envelope.width < 1.5 * this.period, columns: sum.t.length, mode: this.mode }, this.energy.answer) };
  }

  /** actions are what can be done with a stretch: name it, make it the window. */
  actions(from, to) {
    const name = el('input', { type: 'text', name: 'stretch', placeholder: 'warm-up', 'aria-label': 'Name of the stretch', maxlength: 200, autocomplete: 'off' });
    const keep = (e) => {
      e.preventDefault();
      if (name.value.trim()) this.told.note(stretchText(from, to, name.value.trim()));
    };
    return el('div', { class: 'row middle actions' }, el('form', { class: 'row middle', on: { submit: keep } }, name, el('button', { type: 'submit' }, 'Keep the stretch')),
      el('button', { type: 'button', title: 'The task’s energy is of its window: compute it anew between A and B', on: { click: () => this.told.trim(from, to) } }, 'Set the window'));
  }

  /** mark shows the launches of one name, the others pale; '' for all. */
  mark(name) {
    this.marked = name;
    this.kernels.choose(name);
    this.steps.show(name, this.kernels.launches(name));
    this.draw();
    this.write();
  }

  /** pick puts the cursors about a launch, so that its energy is read; of several kernels in one slice it shows more. */
  pick(s) {
    if (s.stretch) {
      if (s.of) this.ranges.tell(s);
      this.goTo(s);
      return;
    }
    if (s.kernels > 1) {
      this.plot.look(s.from, s.to);
      return;
    }
    this.picked = s; // cursors are rounded
    this.plot.put('a', s.from);
    this.plot.put('b', s.to);
    this.mark(s.name);
    announce(`${s.name}, from ${instant(s.from, s.to - s.from)}`);
  }

  /** step goes to the next or previous launch of the marked name, and moves the view where that lies outside of it. */
  async step(way) {
    if (!this.marked) return;
    const { from, to } = this.plot.view, { a } = this.plot.cursors, at = this.picked?.from;
    const t = Math.abs(at - a) < 1e-8 ? at : Number.isFinite(a) ? a : (from + to) / 2;
    let s;
    try {
      s = await launch(this.id, this.marked, t, way, this.plot.limits, (to - from) / 2, this.end.signal);
    } catch (e) {
      if (!givenUp(e)) fill(this.trouble, notice(e.message, true));
      return;
    }
    if (!s) {
      announce(`There is no ${way > 0 ? 'later' : 'earlier'} launch of ${this.marked}.`);
      return;
    }
    const slice = { from: num(s.from_s), to: num(s.to_s), name: s.name, kernels: 1 }, half = (to - from) / 2, middle = (slice.from + slice.to) / 2;
    if (slice.from < from || slice.to > to) this.plot.look(middle - half, middle + half);
    this.pick(slice);
  }

  /** read takes span, cursors and mode from the address. */
  read(params) {
    const at = (name) => (params.has(name) ? num(params.get(name)) : NaN);
    this.mode = modes.some(([m]) => m === params.get('show')) ? params.get('show') : 'stacked';
    fill(this.modeButtons, buttons('Show', modes, this.mode, (m) => this.show(m)));
    const [from, to] = at('to') > at('from') ? [at('from'), at('to')] : this.first();
    this.choice.read(params.get('readings'));
    this.plot.zero = this.zero.checked = params.get('zero') !== '0';
    this.tracks.checked = params.get('tracks') !== '0';
    if (this.marked !== (params.get('kernel') ?? '')) {
      this.marked = params.get('kernel') ?? '';
      this.kernels.choose(this.marked);
      this.steps.show(this.marked);
    }
    const idle = (params.get('idle') ?? '').split(',').map(Number);
    this.idle = idle.length === 2 && idle.every(Number.isFinite) && params.get('idle') ? { w: idle[0], u: idle[1] } : null;
    this.plot.cursors = { a: at('a'), b: at('b') };
    this.cursors.moved(this.plot.cursors);
    this.fresh = true; // what comes from the address is no step of the reader's
    this.plot.look(from, to);
  }

  /** show changes how the rails are laid out. */
  show(mode) {
    this.mode = mode;
    this.draw();
    this.load();
    this.write();
  }

  /** first is the span that a task opens with: the window and the markers about it. */
  first() {
    if (!this.window) return this.extent;
    const edges = (this.answer.markers ?? []).flatMap((m) => [num(m.begin_s), num(m.end_s)]).filter(Number.isFinite);
    const from = Math.min(this.window[0], ...edges), to = Math.max(this.window[1], ...edges);
    const room = (to - from) * 0.02;
    return [Math.max(this.extent[0], from - room), Math.min(this.extent[1], to + room)];
  }

  /** write puts the state into the address, in figures that suit the span. */
  write(step = false) {
    const { from, to } = this.plot.view, { a, b } = this.plot.cursors;
    const short = (t) => (Number.isFinite(t) ? Number(t.toFixed(Math.min(12, Math.max(3, Math.ceil(5 - Math.log10(to - from)))))) : '');
    const exact = (t) => (Number.isFinite(t) ? t : '');
    const idle = this.idle ? `${Number(this.idle.w.toPrecision(7))},${Number(this.idle.u.toPrecision(3))}` : '';
    this.told.keep({ from: short(from), to: short(to), a: exact(a), b: exact(b), show: this.mode === 'stacked' ? '' : this.mode, readings: this.choice.written(), kernel: this.marked, idle, zero: this.plot.zero ? '' : '0', tracks: this.tracks.checked ? '' : '0' }, step);
  }

  viewed(done) {
    this.moving = !done;
    this.plot.element.setAttribute('aria-busy', 'true');
    if (done) {
      this.settled.cancel();
      this.load();
      this.kept();
      this.values.moved();
    } else {
      this.settled();
    }
    this.hovered(this.plot.hover);
  }

  /** rested says so when nothing moves, is asked for, or has yet to go into the address. */
  rested() {
    if (!this.moving && !this.loads && !this.settled.pending() && !this.kept.pending()) this.plot.element.removeAttribute('aria-busy');
  }

  hovered(t) { fill(this.line, readout(this, t, false)); }

  /** load asks for what is in view. Where samples lie apart, a little more, so that lines reach the edges. */
  async load() {
    const { from, to } = this.plot.view;
    const pad = (to - from) < this.plot.pixels * this.period ? 2 * this.period : 0;
    const columns = Math.round(this.plot.pixels * Math.min(4, 1 + (2 * pad) / (to - from)));
    // A column shows one sample's place at best: never fewer of them than samples.
    const span = { from_s: from - pad, to_s: to + pad };
    const began = performance.now();
    this.loads++;
    const jobs = [
      this.part('envelope', this.asks.envelope.envelope({ task_id: this.id, ...span, columns: Math.min(8192, Math.max(columns, 200)), rails: this.wanted() }), (e) => { this.envelope = envelope(e); }),
      this.withKernels ? this.part('timeline', this.ask('timeline', { ...span, max_slices: Math.min(2000, this.plot.pixels) }), (t) => { this.timeline = t; this.beside++; }) : null,
      this.withKernels ? this.loadReadings(span) : null,
      this.withKernels && !this.ranges.none ? this.part('ranges', this.ask('ranges', { ...span, max_spans: Math.min(2000, this.plot.pixels) }), (r) => { this.ranges.take(r); this.beside++; }) : null,
    ];
    if (await jobs[0]) {
      // How long a zoom takes until it is drawn stands in the browser's own record.
      fill(this.trouble);
      this.plot.drawn = () => {
        this.plot.drawn = () => {};
        // What was drawn is on the screen when the next picture is due.
        requestAnimationFrame(() => performance.measure('wattmark.zoom', { start: began, end: performance.now() }));
      };
    }
    const before = this.beside;
    this.draw();
    await Promise.all(jobs);
    this.loads--;
    if (this.beside !== before) this.draw();
    this.rested();
  }

  /** loadReadings asks for what is drawn of the readings; which methods there are is known with the first answer. */
  async loadReadings(span) {
    const take = (r) => { this.readings = this.choice.take(r); this.beside++; };
    const ask = () => this.part('readings', this.ask('readings', { ...span, methods: this.choice.wanted(), max_readings: 2 * this.plot.pixels }), take);
    if (await ask() && this.choice.lacks()) await ask();
  }

  ask(name, params) { return this.asks[name].get(`/v1/tasks/${this.id}/${name}`, params); }

  /** wanted are the rails to ask for: of a total alone only that, else all. */
  wanted() { return this.mode === 'total' && (this.answer.setup?.rails ?? []).length > 1 ? ['total'] : []; }

  /** part awaits the answer of one call and takes it; it reports whether that came. */
  async part(name, answer, take) {
    try {
      take(await answer);
      return true;
    } catch (e) {
      if (givenUp(e)) return false;
      // Without kernels and readings the plot stands.
      if (name === 'envelope' || e.status === 0) fill(this.trouble, notice(e.message, true));
      return false;
    }
  }

  draw() {
    if (!this.envelope) return;
    const narrow = this.plot.element.clientWidth < 600;
    const list = panels(this, narrow);
    const tracks = [...stretchTrack(this.stretches, this.stretchColours), ...this.ranges.tracks(), ...kernelTrack(this.timeline, this.kernels.colours, { marked: this.marked })];
    this.tracksBox.hidden = !tracks.length;
    this.plot.panelHeight = narrow ? 200 : 300;
    this.plot.set({
      panels: list, tracks: this.tracks.checked ? tracks : [], shades: shades(this),
      // Columns that hold no sample are no hole as long as samples lie that far apart.
      reach: 2.5 * Math.max(this.envelope.width, this.period), dots: this.envelope.single,
    });
    fill(this.legend, legend(this));
    this.hovered(this.plot.hover);
    this.cursors.values();
  }
}
