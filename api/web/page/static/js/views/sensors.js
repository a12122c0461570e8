// What is known of GPUs' own sensors: their profiles, and how far they were off.
import { get, givenUp } from '../lib/api.js';
import { el, fill } from '../lib/dom.js';
import { count, grouped, none, num, percent, quantity, time } from '../lib/format.js';
import { notice, table } from '../lib/parts.js';
import { link } from '../lib/router.js';
import { terms } from './live_parts.js';
import { interval, lag, window2 } from './sketch.js';

export const sensors = {
  name: 'sensors', title: 'sensors', nav: true,
  open: (root, route) => new Sensors(root, route),
};

/** within writes value ± u: u with two digits, both in the unit that suits the value. */
export function within(v, u, unit) {
  v = num(v);
  u = num(u);
  if (Number.isNaN(v)) return none;
  if (!(u > 0)) return quantity(v, unit, 3);
  /** @type {[number, string][]} */
  const units = [[1, ''], [1e-3, 'm'], [1e-6, 'µ']];
  const [f, letter] = units.find(([x]) => Math.max(Math.abs(v), u) >= x) ?? units[2];
  const d = Math.max(0, Math.min(6, 1 - Math.floor(Math.log10(u / f))));
  return `${grouped(v / f, d)} ± ${grouped(u / f, d)} ${letter}${unit}`;
}

/** signed writes per cent with their sign. */
export const signed = (v, decimals = 2) => (Number.isFinite(num(v)) ? `${num(v) > 0 ? '+' : ''}${grouped(num(v), decimals)} %` : none);

class Sensors {
  constructor(root, route) {
    this.end = new AbortController();
    this.only = route.arg;
    this.body = el('div');
    root.append(el('h1', {}, 'Sensors'), el('p', { class: 'soft' }, 'What the GPUs’ own power sensors do, and by how much they were off the meter.'), this.body);
    this.load();
  }

  close() { this.end.abort(); }

  async load() {
    try {
      const [known, errors] = await Promise.all([
        get('/v1/sensors', { gpu_uuid: this.only }, this.end.signal), get('/v1/sensors:errors', {}, this.end.signal)]);
      fill(this.body, this.errors(errors), this.profiles(known));
    } catch (e) {
      if (!givenUp(e)) fill(this.body, notice(e.message, true));
    }
  }

  errors({ errors, tasks, more }) {
    const list = this.only ? errors.filter((e) => e.gpu_uuid === this.only) : errors;
    const head = el('h2', {}, 'Error against the meter');
    if (list.length === 0) return el('section', { class: 'panel' }, head, el('p', { class: 'empty' }, 'No task was measured with a meter and software beside it yet.'));
    const reach = Math.max(1, ...list.flatMap((e) => [Math.abs(num(e.min_error_pct)), Math.abs(num(e.max_error_pct))]));
    const by = new Map();
    for (const e of list) {
      const key = `${e.gpu}\n${e.gpu_uuid}\n${e.driver}`;
      by.set(key, [...(by.get(key) ?? []), e]);
    }
    return el('section', { class: 'panel' }, head,
      el('p', { class: 'soft' }, `Of the mean power, over ${more ? `the newest ${count(tasks)}` : count(tasks)} task${tasks === 1 ? '' : 's'}. Mean ± its 95 % interval; the line is from the least error to the greatest.`),
      [...by.values()].map((of) => [
        el('h3', {}, this.only ? of[0].gpu || 'unknown GPU' : el('a', { href: link('sensors', of[0].gpu_uuid) }, of[0].gpu || 'unknown GPU'),
          el('span', { class: 'soft' }, ` driver ${of[0].driver || none}, ${of[0].gpu_uuid || 'no UUID'}`)),
        errorTable(of, reach),
      ]));
  }

  profiles({ sensors: list, unreadable }) {
    const out = unreadable.map((u) => notice(u, true));
    if (list.length === 0) {
      return [out, el('section', { class: 'panel' }, el('h2', {}, 'Profiles'), el('div', { class: 'empty' }, el('p', {}, 'No sensor was identified yet.'), el('p', {}, el('code', {}, 'wattmark sensor load --monitor ADDRESS --save'), ' does it.')))];
    }
    const by = new Map();
    for (const p of list) by.set(p.gpu_uuid, [...(by.get(p.gpu_uuid) ?? []), p]);
    return [out, [...by].map(([uuid, of]) => el('section', { 'aria-label': of[0].gpu || uuid }, el('h2', {}, of[0].gpu || 'GPU', ' ', el('span', { class: 'soft' }, uuid)), el('div', { class: 'cards' }, of.map(card))))];
  }
}

/** errorTable is what is known of one GPU under one driver. */
const errorTable = (list, reach) => table('Errors by field or method', [
  { title: 'Field or method', cell: (e) => el('strong', {}, e.method) },
  { title: 'Mean error', num: true, cell: (e) => (Number.isFinite(num(e.mean_error_u_pct)) ? `${signed(e.mean_error_pct).replace(' %', '')} ± ${grouped(num(e.mean_error_u_pct), 2)} %` : signed(e.mean_error_pct)) },
  { title: el('span', { class: 'unseen' }, 'Drawn'), cell: (e) => interval(num(e.min_error_pct), num(e.max_error_pct), num(e.mean_error_pct), reach, Number.isFinite(num(e.mean_error_u_pct)) ? Math.abs(num(e.mean_error_pct)) > num(e.mean_error_u_pct) : undefined) },
  { title: 'Least to greatest', num: true, cell: (e) => `${signed(e.min_error_pct, 1)} … ${signed(e.max_error_pct, 1)}` },
  { title: 'Tasks', num: true, cell: (e) => [count(e.tasks), e.partial_tasks ? el('div', { class: 'soft' }, `${e.partial_tasks} miss a rail`) : null] },
  { title: 'Worst', cell: (e) => el('a', { href: link('reports', e.worst_task_id) }, `task ${e.worst_task_id}`) },
], list);

/** card is one field of one sensor. */
function card(p) {
  const boxcar = p.model === 'SENSOR_MODEL_BOXCAR';
  const period = num(p.period_s);
  return el('article', { class: 'panel profile', 'aria-label': `${p.field} of ${p.gpu || p.gpu_uuid}` },
    el('h3', {}, p.field, p.weak ? el('span', { class: 'badge doubtful' }, 'weak') : null, p.undecided ? el('span', { class: 'badge usable' }, 'undecided') : null),
    el('p', { class: 'big' }, el('strong', {}, percent(num(p.share_seen), 3)), ' of the time is seen', num(p.share_seen_u) > 0.0005 ? el('span', { class: 'soft' }, ` (± ${percent(Math.min(1, num(p.share_seen_u)))})`) : null),
    boxcar ? window2(period, num(p.constant_s), num(p.delay_s)) : lag(num(p.constant_s), num(p.delay_s)),
    el('p', { class: 'soft caption' }, boxcar ? 'Two periods: what lies in the coloured parts enters a reading.' : 'The answer to a step of the power.'),
    terms([
      ['Renewed every', within(p.period_s, p.period_u_s, 's')],
      [boxcar ? 'Mean over' : 'Lags with τ', within(p.constant_s, p.constant_u_s, 's')],
      ['Delay', within(p.delay_s, p.delay_u_s, 's')],
      ['Trails by', within(p.lag_s, p.lag_u_s, 's')],
      ...(p.calibrated ? [['Gain', `${grouped(num(p.gain), 4)} ± ${grouped(num(p.gain_u), 4)}`], ['Offset', within(p.offset_w, p.offset_u_w, 'W')]] : [['Gain, offset', 'not known: no meter']]),
      ['Steps of', quantity(p.quantum_w, 'W', 2)], ['Noise', quantity(p.noise_w, 'W', 2)],
      ['Driver', p.driver || none],
      ['Identified', [time(p.made), `, version ${p.version}`, p.updates ? `, from ${count(p.updates)} renewals` : '']],
      ...(p.task_ids.length ? [['From', p.task_ids.map((id, i) => [i ? ', ' : '', el('a', { href: link('task', id) }, `task ${id}`)])]] : []),
    ]),
    p.weak ? el('p', { class: 'soft' }, 'The load that it was read from hardly tells its constant.') : null,
    p.undecided ? el('p', { class: 'soft' }, 'A window and a lag fitted about equally well.') : null);
}
