// What tasks come to by user, day, GPU, job or kernel.
import { latest, givenUp } from '../lib/api.js';
import { el, fill, labelled } from '../lib/dom.js';
import { count, energy, many, num, percent, seconds } from '../lib/format.js';
import { buttons, figures, notice, table } from '../lib/parts.js';
import { link } from '../lib/router.js';
import { dayStart } from './tasks.js';

export const totals = {
  name: 'totals', title: 'totals', nav: true,
  open: (root, route, router) => new Totals(root, route, router),
};

const kinds = [['user', 'User'], ['day', 'Day'], ['gpu', 'GPU'], ['job', 'Job'], ['kernel', 'Kernel']];
const most = 1000;

/** tasksOf is the list of what a row adds up; null where the list cannot be asked for that. */
function tasksOf(by, key, { since, until }) {
  if (!key || by === 'kernel') return null;
  if (by === 'day') return link('tasks', '', { since: key, until: key });
  return link('tasks', '', { [by]: key, since, until });
}

class Totals {
  constructor(root, route, router) {
    this.router = router;
    this.asked = latest();
    this.body = el('div', { class: 'panel' });
    this.sums = el('div', { class: 'panel', 'aria-live': 'polite' });
    this.choice = el('span');
    const day = () => el('input', { type: 'text', placeholder: '2026-01-31', pattern: '\\d{4}-\\d\\d?-\\d\\d?', size: 11, autocomplete: 'off', on: { change: () => this.ask() } });
    this.since = day();
    this.until = day();
    root.append(el('h1', {}, 'Totals'), el('form', { class: 'panel row', 'aria-label': 'Totals', on: { submit: (e) => { e.preventDefault(); this.ask(); } } },
      this.choice, labelled('From', this.since), labelled('Up to', this.until)), this.sums, this.body);
    this.update(route);
  }

  close() { this.asked.stop(); }

  update({ params }) {
    this.by = kinds.some(([k]) => k === params.get('by')) ? params.get('by') : 'user';
    this.since.value = params.get('since') ?? '';
    this.until.value = params.get('until') ?? '';
    fill(this.choice, buttons('By', kinds, this.by, (k) => { this.by = k; this.ask(); }));
    this.load();
    return true;
  }

  ask() {
    this.router.keep(link('totals', '', { by: this.by, since: this.since.value, until: this.until.value }), true);
    this.load();
  }

  async load() {
    try {
      const a = await this.asked.get('/v1/aggregate', { by: `AGGREGATE_BY_${this.by.toUpperCase()}`, since: dayStart(this.since.value, 0), until: dayStart(this.until.value, 1), limit: most });
      this.show(a);
    } catch (e) {
      if (!givenUp(e)) fill(this.body, notice(e.message, true));
    }
  }

  show({ rows, row_count, totals: all }) {
    fill(this.sums, figures([['Tasks', count(all.tasks)], ['with a window', count(all.measured)], ['Energy', energy(all.energy ?? {})], ['Time', seconds(all.duration_s)]]));
    if (rows.length === 0) {
      fill(this.body, el('div', { class: 'empty' }, this.by === 'kernel' ? 'No task has recorded kernels there.' : 'There are no tasks there.'));
      return;
    }
    const joule = (r) => num(r.totals.energy?.energy_j), largest = Math.max(...rows.map(joule)), sum = num(all.energy?.energy_j);
    const bar = (r) => {
      const e = el('span', { class: 'bar', 'aria-hidden': 'true' });
      e.style.width = `${Math.max(0.5, (100 * joule(r)) / (largest || 1))}%`;
      return e;
    };
    const name = (r) => [r.label && r.label !== r.key ? `${r.label}${r.key ? ', ' : ''}` : '', r.key || (r.label ? '' : '(none)')].join('');
    const title = kinds.find(([k]) => k === this.by)[1];
    fill(this.body, table(`Energy by ${title === 'GPU' ? title : title.toLowerCase()}${num(row_count) > rows.length ? `, the first ${count(rows.length)} of ${count(row_count)}` : ''}; a sum keeps what the tasks’ errors have in common`, [
      { title, class: 'name', cell: (r) => { const to = tasksOf(this.by, r.key, { since: this.since.value, until: this.until.value }); return to ? el('a', { href: to }, name(r)) : name(r); } },
      { title: 'Tasks', num: true, cell: (r) => count(r.totals.tasks) },
      ...(this.by === 'kernel' ? [{ title: 'Launches', num: true, cell: (r) => (num(r.launches) ? count(r.launches) : '') }] : []),
      { title: 'Time', num: true, cell: (r) => seconds(r.totals.duration_s) },
      { title: 'Energy ± U', num: true, cell: (r) => energy(r.totals.energy ?? {}) },
      { title: 'of all', num: true, cell: (r) => percent(joule(r) / sum) },
      { title: el('span', { class: 'unseen' }, 'Drawn'), class: 'bars', cell: bar },
    ], rows), el('p', { class: 'soft' }, `${many(row_count, 'row')}.`));
  }
}
