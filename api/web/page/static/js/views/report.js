// A validation: the verdict, the power by the meter and by each method over time, and
// the figures (docs/validate.md defines them).
import { el, fill } from '../lib/dom.js';
import { count, energy, grouped, joules, none, num, percent, seconds, time, watts } from '../lib/format.js';
import { figures, notice, table } from '../lib/parts.js';
import { held } from '../plot/envelope.js';
import { Plot } from '../plot/plot.js';
import { signed } from './sensors.js';
import { terms } from './live_parts.js';
import { interval } from './sketch.js';

const agreement = { AGREEMENT_AGREES: ['within', 'good'], AGREEMENT_DIFFERS: ['outside', 'doubtful'] };

/** sized writes watts or per cent with one decimal, and a dash where there are none. */
const sized = (v, unit, sign = false) => (Number.isFinite(num(v)) ? `${sign && num(v) > 0 ? '+' : ''}${grouped(num(v), 1)} ${unit}` : none);

/** names tells whether a sentence names a method: not only one whose name begins alike. */
const names = (sentence, method) => sentence.split(method).slice(1).some((rest) => !/^[.\w-]*\w/.test(rest));

/** distinct are the up to three methods that are drawn at first: those of the verdict before the sensor's own fields, and of equal readings one. */
export function distinct(r) {
  const own = (m) => ['instant', 'average'].indexOf(m.name) >>> 0; // others are last
  const said = (m) => Number(names(r.verdict, m.name));
  const seen = new Set();
  const out = [];
  for (const m of r.methods.filter((x) => x.point_t_s.length > 1).sort((a, b) => said(b) - said(a) || own(a) - own(b))) {
    const what = `${m.point_t_s} ${m.point_w}`;
    if (!seen.has(what) && out.length < 3) out.push(m.name);
    seen.add(what);
  }
  return out;
}

export class Report {
  constructor(root, r) {
    this.r = r;
    this.shown = new Set(distinct(r));
    this.readout = el('div', { class: 'readout' });
    this.plot = new Plot('Power by the meter and by software over time', { hover: (t) => this.at(t) });
    this.plot.panelHeight = Math.min(360, Math.max(220, innerHeight * 0.42));
    this.trace = this.series();
    this.plot.limits = { from: num(r.trace_from_s), to: num(r.trace_to_s) };
    this.plot.look(num(r.trace_from_s), num(r.trace_to_s));
    fill(root, el('p', { class: 'verdict panel' }, `${r.verdict}.`), r.cautions.map((c) => notice(c)), this.facts(), this.power(), this.methods(), this.kernels(), this.notes());
    this.draw();
  }

  close() { this.plot.close(); }

  series() {
    const { r } = this;
    const of = (list) => Float64Array.from(list, num);
    return { t: of(r.trace_t_s), mean: of(r.trace_mean_w), min: of(r.trace_min_w), max: of(r.trace_max_w) };
  }

  facts() {
    const { r } = this;
    return el('section', { class: 'panel', 'aria-label': 'The work' }, figures([
      ['Meter (k = 2)', energy(r.energy), true], ['Mean', watts(r.mean_w)], ['Peak', watts(r.peak_w)], ['Work', seconds(r.duration_s)],
      ['Samples', count(r.samples)], ['GPU', [r.gpu || none, r.driver ? el('div', { class: 'soft' }, `driver ${r.driver}`) : null]],
    ]));
  }

  /** power is the plot, with a box to tick for each method. */
  power() {
    const boxes = this.r.methods.map((m, i) => {
      const key = el('span', { class: `key rail-${i % 8}`, 'aria-hidden': 'true' });
      const box = el('input', { type: 'checkbox', checked: this.shown.has(m.name), disabled: m.point_t_s.length < 2, on: { change: () => {
        if (box.checked) this.shown.add(m.name);
        else this.shown.delete(m.name);
        this.draw();
      } } });
      return el('li', {}, el('label', { class: 'check' }, box, key, m.name));
    });
    return el('section', { class: 'panel', 'aria-label': 'Power over time' }, el('h2', {}, 'Power over time'), el('ul', { class: 'legend' }, el('li', {}, el('span', { class: 'key key-total', 'aria-hidden': 'true' }), 'meter, with its range'), boxes), this.plot.element, this.readout);
  }

  draw() {
    const readings = this.r.methods.map((m, i) => ({ name: m.name, t: m.point_t_s.map(num), value: m.point_w.map(num), colour: (look) => look.series[i % look.series.length] }))
      .filter((m) => this.shown.has(m.name));
    this.plot.set({
      panels: [{ title: 'Power', first: true, series: [{ name: 'meter', s: this.trace, colour: (look) => look.total, alpha: 0.28 }], readings }],
      reach: (3 * (num(this.r.trace_to_s) - num(this.r.trace_from_s))) / 1200,
    });
  }

  at(t) {
    const { trace } = this;
    if (Number.isNaN(t) || trace.t.length < 2) {
      fill(this.readout);
      return;
    }
    const after = trace.t.findIndex((x) => x >= t);
    const i = after < 0 ? trace.t.length - 1 : after;
    const said = this.r.methods.filter((m) => this.shown.has(m.name)).map((m) => {
      const k = held({ t: m.point_t_s.map(num), value: m.point_w.map(num) }, t);
      return k < 0 ? null : el('span', {}, `${m.name} ${watts(m.point_w[k])}`);
    });
    fill(this.readout, el('strong', {}, `${grouped(t, 3)} s`), el('span', {}, `meter ${watts(trace.mean[i])}`), said);
  }

  methods() {
    const { r } = this;
    const reach = Math.max(1, ...r.methods.flatMap((m) => [m.lo_pct, m.hi_pct, m.error_pct].map((v) => Math.abs(num(v)))).filter(Number.isFinite));
    return el('section', { class: 'panel', 'aria-label': 'Methods' }, el('h2', {}, 'Methods'), table(`Errors against the meter, with intervals of ${percent(num(r.level), 3)}`, [
      { title: 'Method', class: 'name method', cell: (m) => [el('strong', {}, m.name), m.note ? el('div', { class: 'soft' }, m.note) : null] },
      { title: 'Error', num: true, cell: (m) => signed(m.error_pct) },
      { title: el('span', { class: 'unseen' }, 'Drawn'), cell: (m) => interval(num(m.lo_pct), num(m.hi_pct), num(m.error_pct), reach, num(m.lo_pct) > 0 || num(m.hi_pct) < 0) },
      { title: '± U', cell: (m) => { const a = agreement[m.agreement]; return a ? el('span', { class: `badge ${a[1]}` }, a[0]) : none; } },
      { title: 'Interval', num: true, cell: (m) => (Number.isFinite(num(m.lo_pct)) ? `${signed(m.lo_pct, 1)} … ${signed(m.hi_pct, 1)}` : none) },
      { title: 'Energy', num: true, cell: (m) => joules(m.energy_j, 4) },
      { title: 'Bias', num: true, cell: (m) => sized(m.bias_w, 'W', true) },
      { title: 'RMSE', num: true, cell: (m) => sized(m.rmse_w, 'W') },
      { title: 'MAPE', num: true, cell: (m) => sized(m.mape_pct, '%') },
      { title: 'Trails by', num: true, cell: (m) => (Number.isFinite(num(m.lag_s)) ? `${grouped(1e3 * num(m.lag_s), 1)} ± ${grouped(1e3 * num(m.lag_u_s), 1)} ms` : [none, el('span', { class: 'unseen' }, m.lag_note)]) },
      { title: 'Readings', num: true, cell: (m) => count(m.readings) },
    ], r.methods), el('p', { class: 'soft' }, '± U: whether the energy over this work agrees with the meter’s, within the meter’s uncertainty and the method’s own (k = 2). The interval is of other work like this.'));
  }

  kernels() {
    const { r } = this;
    if (r.kernels.length === 0) return null;
    return el('details', { class: 'panel', open: r.kernels.length <= 12 }, el('summary', {}, el('strong', {}, `By kernel (${r.kernels.length + r.more_kernels})`)),
      table('Equal shares where several run at once; errors of what each method’s readings make of the same shares', [
        { title: 'Kernel', class: 'name', cell: (k) => (k === r.kernel_sum ? el('strong', {}, k.name) : k.name) }, { title: 'Launches', num: true, cell: (k) => (k === r.no_kernel ? none : count(k.launches)) },
        { title: 'Time', num: true, cell: (k) => seconds(k === r.kernel_sum ? k.share_s : k.busy_s) }, { title: 'Meter (k = 2)', num: true, cell: (k) => energy(k.energy) },
        ...r.methods.map((m, i) => ({ title: m.name, num: true, cell: (k) => signed(k.errors[i]?.error_pct, 1) })),
      ], [...r.kernels, r.other_kernels, r.no_kernel, r.kernel_sum].filter(Boolean)), r.more_kernels ? el('p', { class: 'soft' }, `${r.more_kernels} names are in one line; wattmark validate ${r.task_id} --json has them.`) : null);
  }

  notes() {
    const { r } = this;
    const unseen = r.unseen.map((u) => `${u.name}${Number.isFinite(num(u.most_w)) ? `, at most ${watts(u.most_w)}` : ''} (${u.reason})`);
    return el('section', { class: 'panel', 'aria-label': 'How it was made' }, el('h2', {}, 'How it was made'), terms([
      ['Meter', r.meter || none], ['Its clock', [r.clock, Number.isFinite(num(r.clock_u_s)) ? `, ± ${seconds(r.clock_u_s, 2)} (k = 2)` : '']],
      ['Not seen', unseen.length ? unseen.join('; ') : 'nothing: all rails of the card were measured'],
      ['Lost', num(r.lost_s) > 0 ? seconds(r.lost_s) : 'nothing within the work'],
      ['Intervals', `by ${count(r.resamples)} resamples of blocks, seed ${r.seed}`],
      ['Judged', `${time(r.made)}, result ${r.result}`],
      ['To send on', el('code', {}, `wattmark validate ${r.task_id} --html report.html`)],
    ]));
  }
}
