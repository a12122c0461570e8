// The rails of a bench now, and their last seconds: a table that is written over in
// place, and a rolling plot.
import { el, fill } from '../lib/dom.js';
import { count, grouped, hertz, none, num } from '../lib/format.js';
import { onTheme, palette } from '../lib/theme.js';
import { Plot } from '../plot/plot.js';
import { Scope } from './live_scope.js';
import { Spectrum } from './spectrum.js';
import { colourOf, course, keep } from './live_trace.js';

const fixed = (v, decimals) => (Number.isFinite(v) && v !== 0 ? grouped(v, decimals) : none);

export class Rails {
  constructor(trace) {
    this.trace = trace;
    this.names = null;
    this.span = 60;
    this.left = 0; // averages that came as one with others
    this.total = el('output', { class: 'now', 'aria-label': 'Total power now', 'aria-live': 'off' }, none);
    this.peak = el('span', { class: 'soft' });
    this.facts = el('dl', { class: 'figures live-facts' });
    this.body = el('tbody');
    this.table = el('div', { class: 'wide', tabindex: 0, role: 'region', 'aria-label': 'Rails' }, el('table', { class: 'rails' },
      el('caption', { class: 'unseen' }, 'Rails now'),
      el('thead', {}, el('tr', {}, [['Rail'], ['Power', 'num'], ['Voltage', 'num'], ['Current', 'num'], ['Last seconds', 'spark']].map(([t, c]) => el('th', { scope: 'col', class: c }, t)))),
      this.body));
    this.readout = el('div', { class: 'readout', 'aria-live': 'off' });
    this.plot = new Plot('Power of the rails over the last seconds. Hold it, then A and B put cursors.', { hover: (t) => this.show(t), cursors: () => this.scope?.moved(this.plot.cursors), view: () => this.scope && this.draw(), round: (t) => Number(t.toFixed(4)) });
    this.plot.limits = { from: -keep, to: 0 };
    this.plot.panelHeight = Math.min(320, Math.max(200, innerHeight * 0.36));
    this.scope = new Scope(this.plot, { trace, span: () => this.span, draw: () => this.draw() });
    this.spectrum = new Spectrum(trace);
    this.setSpan(60);
    this.end = onTheme(() => this.draw());
  }

  close() {
    this.end();
    this.scope.close();
    this.plot.close();
  }

  setSpan(s) {
    this.span = s;
    this.plot.look(-s, 0);
  }

  /** rows makes a row for each rail, where they are not those that are there. */
  rows(names) {
    if (this.names?.join('\n') === names.join('\n')) return;
    this.names = names;
    this.cells = names.map((name, i) => {
      const key = el('span', { class: `key rail-${i % 8}`, 'aria-hidden': 'true' });
      const r = { w: el('td', { class: 'num strong' }), v: el('td', { class: 'num' }), a: el('td', { class: 'num' }), c: el('canvas', { class: 'course', 'aria-hidden': 'true' }) };
      r.row = el('tr', {}, el('th', { scope: 'row' }, el('span', { class: 'keyed' }, key, name)), r.w, r.v, r.a, el('td', { class: 'spark' }, r.c));
      return r;
    });
    fill(this.body, this.cells.map((r) => r.row));
  }

  /** moment shows what is measured now. */
  moment(m) {
    this.rows(m.rails.map((r) => r.rail));
    this.total.textContent = `${grouped(num(m.total_w), 2)} W`;
    const least = num(m.min_w), most = num(m.max_w);
    this.peak.textContent = most > least ? `${grouped(least, 1)} to ${grouped(most, 1)} W just now` : '';
    m.rails.forEach((r, i) => {
      const c = this.cells[i];
      c.w.textContent = `${grouped(num(r.power_w), 2)} W`;
      c.v.textContent = `${fixed(num(r.voltage_v), 3)} V`;
      c.a.textContent = `${fixed(num(r.current_a), 3)} A`;
    });
    this.stale(false);
    this.count(m);
  }

  /** count shows what was sampled, and what was lost on the way. */
  count(m) {
    const facts = [['Samples', `${hertz(m.sample_rate_hz).replace('Hz', 'S/s')}`], ['Scans', count(m.scans)],
      ['Lost', count(m.lost), m.lost !== '0'], ['Gaps', count(m.gaps), m.gaps !== '0'], ['Over range', count(m.over_range), m.over_range !== '0'],
      ['Updates left out', count(this.left + num(m.dropped)), false]];
    if (this.facts.children.length !== facts.length) fill(this.facts, facts.map(([t]) => el('div', {}, el('dt', {}, t), el('dd'))));
    facts.forEach(([, v, bad], i) => {
      const dd = this.facts.children[i].lastChild;
      if (dd.textContent !== v) dd.textContent = v;
      dd.className = bad ? 'bad' : '';
    });
  }

  /** stale dims values that are of something that is over. */
  stale(on) {
    this.body.parentElement.classList.toggle('stale', on);
    this.total.classList.toggle('stale', on);
    if (on) this.total.textContent = none;
    if (on) this.peak.textContent = '';
  }

  draw() {
    const look = palette(), now = this.scope.now(), { from, to } = this.plot.view;
    const all = this.trace.series(now, from, to, 600);
    this.plot.set({ panels: [{
      title: 'Power', first: true, readings: this.scope.levelLine(this.plot.view),
      series: all.map(([name, s], i) => ({ name, s, colour: (p) => colourOf(i - 1, p), line: i === 0 ? 2 : 1.4, alpha: i === 0 ? 0.22 : 0 })),
    }], reach: Math.max(1.2, (3 * (to - from)) / 600) });
    (this.names ?? []).forEach((name, i) => {
      const w = this.trace.rails.get(name);
      if (w) course(this.cells[i].c, this.trace.t, w.list, now, this.span, colourOf(i, look));
    });
  }

  show(t) {
    const list = Number.isNaN(t) ? null : this.trace.at(this.scope.now() + t);
    fill(this.readout, list ? [el('strong', {}, `${grouped(-t, 1)} s ago`), ...list.map(([name, w]) => el('span', {}, `${name} ${grouped(w, 2)} W`))] : null);
  }
}
