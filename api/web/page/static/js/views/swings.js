// How a task's power varies within its window: means over 1, 10 and 100 ms, frequencies, the mean course of a step.
import { get, givenUp } from '../lib/api.js';
import { el, fill, labelled } from '../lib/dom.js';
import { energy, grouped, many, num, percent, quantity, seconds, watts } from '../lib/format.js';
import { figures, notice, table } from '../lib/parts.js';
import { instant } from '../plot/scale.js';
import { courseSketch } from './sketch.js';

/** excursion is the quantile p of a scale, with its sign. */
const excursion = (p) => (s) => {
  const v = num(s.excursions.find((q) => num(q.p) === p)?.w);
  return `${v > 0 ? '+' : ''}${watts(v, 3)}`;
};

/** power writes watts with their U. */
const power = (w, u) => energy({ energy_j: w, energy_u_j: u }).replace(/J$/, 'W');

/** Swings is a panel that reads all samples of the window once it is opened. go(t) is called with a time to be looked at. */
export class Swings {
  constructor(id, go) {
    this.id = id;
    this.go = go;
    this.end = new AbortController();
    this.body = el('div');
    this.step = el('input', { type: 'text', name: 'step', placeholder: 'part of a kernel’s name', autocomplete: 'off' });
    this.element = el('details', { class: 'panel', 'aria-label': 'Swings', on: { toggle: () => this.element.open && !this.asked && this.load() } }, el('summary', {}, el('strong', {}, 'Swings'), el('span', { class: 'soft' }, ' how the power varies: excursions, slopes, frequencies, a step')),
      el('form', { class: 'row', 'aria-label': 'Course of a step', on: { submit: (e) => { e.preventDefault(); this.load(); } } }, labelled('A step begins with', this.step), el('button', { type: 'submit' }, 'Show its course')), this.body);
  }

  close() { this.end.abort(); }

  async load() {
    this.asked = true;
    this.body.setAttribute('aria-busy', 'true');
    fill(this.body, el('p', { class: 'soft' }, 'All samples are read …'));
    try {
      const { swings } = await get(`/v1/tasks/${this.id}/swings`, { step: this.step.value.trim() }, this.end.signal);
      this.show(swings);
    } catch (e) {
      if (!givenUp(e)) fill(this.body, notice(e.message, true));
    }
    this.body.removeAttribute('aria-busy');
  }

  show(s) {
    fill(this.body, figures([
      ['Mean', watts(s.mean_w)], ['Root mean square', watts(s.rms_w)], ['Highest sample', watts(s.peak_w)], ['Crest factor', grouped(num(s.crest), 3)],
    ]), s.step ? this.course(s.step) : null, s.scales?.length ? table('Means over a width, less the mean of the window', [
      { title: 'Width', cell: (x) => seconds(x.width_s, 1) },
      ...[['Least', 0], ['1 %', 0.01], ['99 %', 0.99], ['Most', 1]].map(([title, p]) => ({ title, num: true, cell: excursion(p) })),
      { title: '± U', num: true, cell: (x) => watts(x.u_w, 2) }, { title: 'Steepest rise', num: true, cell: (x) => this.slope(x.steepest_rise) }, { title: 'Steepest fall', num: true, cell: (x) => this.slope(x.steepest_fall) },
    ], s.scales) : null, s.bands?.length ? table('Root mean square by frequency', [
      { title: 'From', cell: (b) => quantity(b.from_hz, 'Hz', 2) }, { title: 'to', num: true, cell: (b) => quantity(b.to_hz, 'Hz', 2) },
      { title: 'rms ± U', num: true, cell: (b) => power(b.rms_w, b.u_w) }, { title: 'The meter’s noise alone', num: true, cell: (b) => watts(b.noise_w, 2) },
    ], s.bands) : null, s.notes?.length ? el('ul', { class: 'reasons' }, s.notes.map((n) => el('li', {}, n))) : null);
  }

  /** slope is a button that looks at where it is. */
  slope(x) {
    const text = `${quantity(x.w_per_s, 'W/s', 3)} at ${instant(num(x.t_s), 0.1)}`;
    return num(x.w_per_s) ? el('button', { type: 'button', class: 'plain', title: 'Look at it', on: { click: () => this.go(num(x.t_s)) } }, text) : 'none';
  }

  course(c) {
    const mean = num(c.energy_j) / num(c.length_s), most = c.phases.reduce((a, p) => (num(p.w) > num(a.w) ? p : a));
    return el('div', {}, el('p', {}, 'A step takes ', el('strong', {}, energy(c)), ` and ${seconds(c.length_s)} ± ${seconds(c.length_sd_s, 2)} (sd), a mean of ${many(c.steps, 'step')}; ${num(c.left_out)} left out. Most is drawn at ${percent(num(most.phase))} of it, ${power(most.w, most.u_w)}; ${watts(mean)} on average.`),
      courseSketch(c.phases.map((p) => ({ x: num(p.phase), y: num(p.w) }))));
  }
}
