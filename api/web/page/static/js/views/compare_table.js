// The figures of tasks beside each other. Ratios are to the first one.
import { el } from '../lib/dom.js';
import { energy, none, num, ratio, seconds, watts } from '../lib/format.js';
import { stateBadge, table, verdictBadge } from '../lib/parts.js';
import { link } from '../lib/router.js';

/** comparison makes the table; drop(id) takes a task out. */
export function comparison(tasks, drop) {
  const first = tasks[0];
  const joule = (t) => num(t.task.energy?.energy_j);
  const key = (t) => {
    const e = el('span', { class: 'key', 'aria-hidden': 'true' });
    e.style.background = `var(--series-${(t.index % 8) + 1})`;
    return e;
  };
  const between = tasks.some((t) => t.between);
  const columns = [
    { title: 'Task', class: 'name', cell: (t) => [key(t), ' ', el('a', { href: link('task', t.id) }, `${t.id} ${t.task.name || '(no name)'}`)] },
    { title: 'Energy ± U', num: true, cell: (t) => (t.task.energy ? el('data', { value: t.task.energy.energy_j }, energy(t.task.energy)) : none) },
    { title: 'Energy ratio', num: true, cell: (t) => ratio(joule(t) / joule(first)) },
    { title: 'Mean', num: true, cell: (t) => (t.task.energy ? watts(t.task.mean_w) : none) },
    { title: 'Length', num: true, cell: (t) => (t.task.energy ? seconds(t.task.duration_s) : none) },
    ...(between ? [
      { title: 'A to B', num: true, cell: (t) => (t.between?.energy ? el('data', { value: t.between.energy.energy_j }, energy(t.between.energy)) : t.between?.message ?? none) },
      { title: 'Ratio', num: true, cell: (t) => ratio(num(t.between?.energy?.energy_j) / num(first.between?.energy?.energy_j)) },
      { title: 'Mean', num: true, cell: (t) => watts(t.between?.mean_w) },
    ] : []),
    { title: 'State', cell: (t) => [stateBadge(t.task), ' ', verdictBadge(t.task.verdict)] },
    { title: 'User', class: 'name', cell: (t) => t.task.user || none },
    { title: el('span', { class: 'unseen' }, 'Take out'), cell: (t) => el('button', { type: 'button', class: 'plain', 'aria-label': `Take out task ${t.id}`, title: 'Take out', on: { click: () => drop(t.id) } }, '×') },
  ];
  return [table('Energies with their expanded uncertainty (k = 2); ratios are to the first task', columns, tasks),
    el('p', { class: 'soft' }, 'A ratio of two single runs cannot tell a difference of the work from its scatter from run to run: repeat each five times, in turns, and let ',
      el('code', {}, 'wattmark compare --a … --b …'), ' test them. It also works out what of the meter’s error cancels.')];
}
