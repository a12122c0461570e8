// The table of tasks. On a narrow screen each row is a card.
import { el, fill } from '../lib/dom.js';
import { count, energy, seconds, time, watts, none } from '../lib/format.js';
import { stateBadge, verdictBadge } from '../lib/parts.js';
import { link } from '../lib/router.js';
import { tagsOf, tagText } from './labels.js';

// order is what ListTasks can sort by; none where it cannot.
const columns = [
  { title: 'Task', order: 'id', class: 'num', cell: (t) => t.task_id, label: 'Task' },
  { title: 'Name', order: 'name', class: 'name', cell: name },
  { title: 'User', class: 'who', cell: (t) => t.user || none, label: 'by' },
  { title: 'GPU', class: 'who spare', cell: (t) => t.gpu || none, label: 'on' },
  { title: 'Launched', order: 'launched', class: 'once', cell: (t) => time(t.launched), label: '' },
  { title: 'State', cell: (t) => [stateBadge(t), t.reason ? el('div', { class: 'reason', title: t.reason }, t.reason) : null] },
  { title: 'Verdict', class: 'verdict-of', cell: (t) => judged(t.task_id, t.verdict) ?? none },
  { title: 'Length', order: 'duration', class: 'num', cell: (t) => (measured(t) ? seconds(t.duration_s) : none), label: 'Length' },
  { title: 'Energy ± U', order: 'energy', class: 'num', cell: (t) => (measured(t) ? energy(t.energy) : none), label: 'Energy' },
  { title: 'Mean', class: 'num', cell: (t) => (measured(t) ? watts(t.mean_w) : none), label: 'Mean' },
  { title: 'Peak', class: 'num spare', cell: (t) => (measured(t) ? watts(t.peak_w) : none), label: 'Peak' },
  { title: 'Lost', class: 'num spare', cell: (t) => (t.lost === '0' ? '0' : count(t.lost)), label: 'Lost' },
];

/** judged is a verdict; one that has reasons leads to them. */
function judged(id, verdict) {
  const b = verdictBadge(verdict);
  return b && verdict !== 'VERDICT_GOOD' ? el('a', { href: link('task', id), 'aria-label': `${b.textContent}: reasons`, title: b.title }, b) : b;
}

const measured = (t) => t.energy !== undefined && t.energy !== null;

function name(t) {
  return [el('a', { href: link('task', t.task_id) }, t.name || '(no name)'), t.job ? el('div', { class: 'soft' }, `job ${t.job}`) : null,
    t.pinned || tagsOf(t).length ? el('div', { class: 'soft' }, [t.pinned ? ['pinned'] : [], labelsOf(t)].flat().join(' · ')) : null];
}

/** labelsOf are the tags as texts; what a series of runs noted of each is one of them. */
function labelsOf(t) {
  const { series, side, turn, planned } = t.tags ?? {}, own = series && turn ? ['series', 'side', 'turn', 'planned', 'rest_w'] : [];
  return [...(own.length ? [`series ${series}, ${side ? `${side}, ` : ''}turn ${turn}${planned ? ` of ${planned}` : ''}`] : []),
    ...tagsOf(t).filter(([k]) => !own.includes(k)).map(([k, v]) => tagText(k, v))];
}

/** taskTable shows tasks. how = { order, ascending, sort(order), picked, pick(task, on), made }; rows that were made already stay the same. */
export function taskTable(rows, how) {
  return el('div', { class: 'wide', tabindex: 0, role: 'region', 'aria-label': 'Tasks found' }, el('table', { class: 'cards' },
    el('caption', { class: 'unseen' }, 'Tasks'),
    el('thead', {}, el('tr', {}, el('th', { scope: 'col', class: 'pick' }, el('input', { type: 'checkbox', 'aria-label': `Pick all ${rows.length} tasks below`, title: 'Pick all below', on: { change: (e) => how.pickAll(e.target.checked) } })), columns.map((c) => head(c, how)))),
    el('tbody', {}, rows.map((t) => row(t, how)))));
}

/** addRows adds rows to the table in root; false where there is none. */
export function addRows(root, rows, how) {
  const body = root.querySelector('tbody');
  if (body?.rows.length > 300) fixed(body.parentElement);
  body?.append(...rows.map((t) => row(t, how)));
  return Boolean(body);
}

/** fixed keeps the widths of the columns as they are: a long table is not measured anew for each row that comes. */
export function fixed(table) {
  if (table.style.tableLayout === 'fixed' || innerWidth <= 700) return;
  const whole = table.offsetWidth, widths = [...table.tHead.rows[0].cells].map((c) => c.offsetWidth);
  widths.forEach((w, i) => { table.tHead.rows[0].cells[i].style.width = `${(100 * w) / whole}%`; });
  table.style.tableLayout = 'fixed';
}

function head(c, how) {
  const here = c.order === how.order;
  return el('th', { scope: 'col', class: c.class, 'aria-sort': c.order && here ? (how.ascending ? 'ascending' : 'descending') : null },
    c.order ? el('button', { type: 'button', on: { click: () => how.sort(c.order) } }, c.title, here ? (how.ascending ? ' ▲' : ' ▼') : '') : c.title);
}

function row(t, how) {
  const key = JSON.stringify(t), was = how.made.get(t.task_id);
  if (was?.key === key) {
    was.box.checked = how.picked.has(t.task_id);
    was.tr.classList.toggle('picked', was.box.checked);
    return was.tr;
  }
  const tr = el('tr', { class: how.picked.has(t.task_id) ? 'picked' : null });
  const box = el('input', {
    type: 'checkbox', 'aria-label': `Compare task ${t.task_id}, ${t.name}`, checked: how.picked.has(t.task_id),
    on: { change: () => { tr.classList.toggle('picked', box.checked); how.pick(t, box.checked); } },
  });
  tr.append(el('td', { class: 'pick' }, box), ...columns.map((c) => {
    const said = c.cell(t);
    return el('td', { class: `${c.class ?? ''}${said === none ? ' nothing' : ''}`, 'data-label': c.label || null }, said);
  }));
  tr.dataset.task = t.task_id;
  how.made.set(t.task_id, { key, tr, box });
  return tr;
}

/** showVerdicts puts verdicts, by task, into a table that stands. */
export function showVerdicts(root, verdicts) {
  for (const tr of root.querySelectorAll('tr[data-task]')) {
    const verdict = verdicts.get(tr.dataset.task);
    if (!verdict || tr.dataset.verdict === verdict) continue;
    tr.dataset.verdict = verdict;
    const b = judged(tr.dataset.task, verdict), cell = tr.querySelector('.verdict-of');
    cell.classList.toggle('nothing', !b);
    fill(cell, b ?? none);
  }
}
