// The figures of tasks beside each other. Ratios are to the first one.
import { el } from '../lib/dom.js';
import { energy, none, num, ratio, seconds, watts } from '../lib/format.js';
import { stateBadge, table, verdictBadge } from '../lib/parts.js';
import { link } from '../lib/router.js';
import { letter } from './groups.js';

/** comparison makes the table of groups of tasks; does.drop(id) takes a task out, does.move(id, group) puts it into another. */
export function comparison(groups, does) {
  const tasks = groups.flat(), first = tasks[0];
  const group = (t) => {
    const pick = el('select', { 'aria-label': `Group of task ${t.id}`, on: { change: () => does.move(t.id, Number(pick.value)) } },
      groups.map((_, i) => el('option', { value: i, selected: i === t.index }, letter(i))), el('option', { value: groups.length }, `${letter(groups.length)} (new)`));
    return pick;
  };
  const joule = (t) => num(t.task.energy?.energy_j);
  const key = (t) => {
    const e = el('span', { class: 'key', 'aria-hidden': 'true' });
    e.style.background = `var(--series-${(t.index % 8) + 1})`;
    return e;
  };
  const between = tasks.some((t) => t.between);
  const columns = [
    { title: 'Task', class: 'name', cell: (t) => [key(t), ' ', el('a', { href: link('task', t.id) }, `${t.id} ${t.task.name || '(no name)'}`)] },
    ...(tasks.length > 1 ? [{ title: 'Group', cell: group }] : []),
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
    { title: el('span', { class: 'unseen' }, 'Take out'), cell: (t) => el('button', { type: 'button', class: 'plain', 'aria-label': `Take out task ${t.id}`, title: 'Take out', on: { click: () => does.drop(t.id) } }, '×') },
  ];
  return [table('Each task’s energy with its expanded uncertainty (k = 2); ratios are to the first task', columns, tasks),
    el('p', { class: 'soft' }, 'Tasks of one group are repeats of the same work. A ratio of two single runs cannot tell a difference of the work from its scatter: repeat each five times, in turns (', el('code', {}, 'wattmark run --times'), ').')];
}
