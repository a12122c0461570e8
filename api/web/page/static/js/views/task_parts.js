// What is said of a task beside its plot: figures, rails, quality, budget, markers, events.
import { get } from '../lib/api.js';
import { el, fill } from '../lib/dom.js';
import { count, energy, grouped, joules, many, none, num, percent, quantity, seconds, serials, time, watts, word } from '../lib/format.js';
import { figures, notice, stateBadge, table, verdictBadge } from '../lib/parts.js';
import { link } from '../lib/router.js';
import { words } from '../lib/words.js';
import { nameOf } from './readings.js';

/** head is the task's name and its figures. */
export function head(answer) {
  const t = answer.task;
  const known = Boolean(t.energy);
  return [
    el('div', { class: 'row middle' }, el('h1', {}, t.name || '(no name)'), stateBadge(t), verdict(t.verdict)),
    el('p', { class: 'soft' }, `Task ${t.task_id} of ${t.user || 'nobody'}, launched ${time(t.launched)}`, t.gpu ? ` on ${t.gpu}` : '', t.job ? `, job ${t.job}` : '', '. ',
      el('a', { href: link('compare', '', { ids: t.task_id }) }, 'Compare with others'), t.tags?.series ? [', ', el('a', { href: link('tasks', '', { tag: `series=${t.tags.series}` }) }, 'the runs of its series')] : null),
    doubted(t) ? notice([t.reason && t.state !== 'TASK_STATE_FAILED' ? t.reason : '', reasonList(answer)]) : t.reason ? notice(t.reason) : null,
    el('div', { class: 'panel' }, figures([
      ['Energy ± U (k = 2)', el('data', { id: 'energy', value: known ? t.energy.energy_j : '' }, known ? energy(t.energy) : none), true],
      known ? ['Length', seconds(t.duration_s)] : ['Stored', answer.extent ? seconds(answer.extent.to_s - answer.extent.from_s) : none],
      ['Mean', known ? watts(t.mean_w) : none], ['Peak', known ? watts(t.peak_w) : none],
      known && t.nvml_j !== undefined ? [`${answer.nvml_method ? nameOf(answer.nvml_method) : 'The GPU’s own sensor'} says`, [joules(t.nvml_j, 4), el('span', { class: 'soft' }, ` (${signed(num(t.nvml_j) / num(t.energy.energy_j) - 1)})`)]] : null,
      ['Samples', count(known ? t.samples : t.stored)], ['Lost', num(t.gaps) > 0 ? `${count(t.lost)} in ${many(t.gaps, 'gap')}` : count(t.lost)],
    ])),
  ];
}

/** verdict is the badge, which leads to the reasons. */
const verdict = (v) => {
  const b = verdictBadge(v);
  return b && el('button', { type: 'button', class: 'plain', title: b.title, 'aria-label': `${b.textContent}: to the reasons`, on: { click: () => {
    const to = document.querySelector('#reasons') ?? document.querySelector('[aria-label=Quality]');
    to?.scrollIntoView({ block: 'center' });
  } } }, b);
};

/** doubted tells whether the reasons stand above all: E may be off by more than U. */
const doubted = (t) => /DOUBTFUL|VOID/.test(t.verdict);

const reasonList = (answer) => el('ul', { class: 'reasons', id: doubted(answer.task) ? 'reasons' : null }, (answer.reasons ?? []).map((r) => el('li', {}, verdictBadge(r.verdict), ` ${r.cause}${r.subject ? ` (${r.subject})` : ''}: ${r.text}`)));

/** signed writes a relative difference with its sign. */
export const signed = (part) => (Number.isFinite(part) ? (part > 0 ? '+' : '') + percent(part) : none);

/** details are the panels below the plot. */
export function details(answer) {
  return [quality(answer), rails(answer), whole(answer), budget(answer), markers(answer), origin(answer), events(answer)].filter(Boolean);
}

const panel = (title, ...children) => el('section', { class: 'panel', 'aria-label': title }, el('h2', {}, title), ...children);

function quality(answer) {
  const reasons = answer.reasons ?? [];
  return panel('Quality',
    el('p', {}, verdictBadge(answer.task.verdict) ?? 'Not judged yet.', ' ', reasons.length === 0 && answer.task.verdict === 'VERDICT_GOOD' ? 'Nothing was noticed that E ± U does not hold.' : ''),
    doubted(answer.task) ? el('p', { class: 'soft' }, 'The reasons stand above.') : reasons.length ? reasonList(answer) : null,
    answer.setup?.missing?.length ? el('p', {}, `Not measured: ${answer.setup.missing.join(', ')}. The card's own energy is larger.`) : null);
}

function rails(answer) {
  if (!answer.rails?.length) return null;
  return panel('Rails', table('Each rail over the window', [
    { title: 'Rail', cell: (r) => r.name }, { title: 'Energy ± U', num: true, cell: (r) => energy(r.energy) },
    { title: 'Mean', num: true, cell: (r) => watts(r.mean_w) }, { title: 'Peak', num: true, cell: (r) => watts(r.peak_w) },
    { title: 'Share', num: true, cell: (r) => percent(num(r.energy?.energy_j) / num(answer.task.energy?.energy_j)) },
  ], answer.rails));
}

/** whole is the whole machine by a meter at its wall, which is asked for. */
function whole(answer) {
  if (!answer.task.energy || !answer.setup?.channels?.some((c) => c.unit === 'UNIT_WALL_WATT')) return null;
  const body = el('div', {}, 'Reading…'), length = num(answer.task.duration_s);
  get(`/v1/tasks/${answer.task.task_id}/energy`).then((a) => fill(body, a.wall_trouble ? notice(a.wall_trouble) : table('The whole machine over the window', [
    { title: 'Of it', cell: (r) => r[0] }, { title: 'Energy ± U', num: true, cell: (r) => energy(r[1]) }, { title: 'Mean', num: true, cell: (r) => watts(num(r[1].energy_j) / length) },
  ], [['wall', a.wall], ['rest of the machine, losses of the power supply included', a.rest]])), (e) => fill(body, notice(e.message, true)));
  return panel('Whole machine', body);
}

/** budgetTable lists what an uncertainty is made of, with bars by variance. */
export function budgetTable(lines, caption) {
  const all = lines.reduce((sum, b) => sum + num(b.u_j) ** 2, 0);
  const bar = (b) => {
    const e = el('span', { class: 'bar', 'aria-hidden': 'true' });
    e.style.width = `${Math.max(1, (100 * num(b.u_j) ** 2) / (all || 1))}%`;
    return e;
  };
  return table(caption, [
    { title: 'Source', cell: (b) => b.source }, { title: 'u (k = 1)', num: true, cell: (b) => joules(b.u_j, 2) },
    { title: 'of u²', num: true, cell: (b) => (num(b.u_j) ** 2 < 1e-3 * all ? '< 0.1 %' : percent(num(b.u_j) ** 2 / all)) }, { title: 'share', class: 'bars', cell: bar },
    { title: el('span', { title: words.systematic }, 'Systematic'), cell: (b) => (b.systematic ? 'yes' : 'no') },
  ], lines);
}

function budget(answer) {
  if (!answer.budget?.length) return null;
  const shown = answer.budget.slice(0, 8), rest = answer.budget.slice(8);
  return panel('Where ± U comes from', budgetTable(shown, 'The largest first'),
    rest.length ? el('details', { 'aria-label': 'Smaller contributions' }, el('summary', {}, `${rest.length} smaller ones`), budgetTable(rest, 'Smaller ones')) : null,
    (answer.rails ?? []).filter((r) => r.budget?.length).map((r) => el('details', { 'aria-label': `Budget of ${r.name}` },
      el('summary', {}, `${r.name}: ${energy(r.energy)}`), budgetTable(r.budget, `Of rail ${r.name} alone, the largest first`))));
}

function markers(answer) {
  const list = answer.markers ?? [], c = answer.clock;
  if (list.length === 0) return null;
  return panel('Markers', table('Markers in the trace', [
    { title: 'Marker', cell: (m) => word(m.kind, 'MARKER_KIND_') }, { title: 'at', num: true, cell: (m) => `${grouped(num(m.t_s), 6)} s` },
    { title: 'u', num: true, cell: (m) => quantity(m.u_s, 's', 2) }, { title: 'Correlation', num: true, cell: (m) => grouped(num(m.correlation), 3) },
    { title: 'Step', num: true, cell: (m) => watts(m.step_w, 3) }, { title: 'Tag', cell: (m) => (m.tag_ok ? 'right' : 'not read') },
  ], list),
  c ? el('p', { class: 'soft' }, `The two clocks agree to ${quantity(c.rms_s, 's', 2)} rms over ${c.observations} edges, ${c.rejected} rejected.`) : null);
}

function origin(answer) {
  const i = answer.instrument ?? {}, t = answer.task;
  const rows = [
    ['Meter', [i.model || i.kind, serials(i.serial) && `serial ${serials(i.serial)}`, i.firmware ? `firmware ${i.firmware}` : ''].filter(Boolean).join(', ')],
    ['Rate', rate(answer)], ['GPU', [t.gpu, t.gpu_uuid].filter(Boolean).join(', ')],
    ['Window', answer.window ? `${grouped(num(answer.window.from_s), 6)} to ${grouped(num(answer.window.to_s), 6)} s` : 'none'],
    ['Run on', [answer.provenance?.host, answer.provenance?.os].filter(Boolean).join(', ')], ['Command', answer.provenance?.command?.join(' ')], ['In', answer.provenance?.directory],
    ['Commit', answer.provenance?.git_commit ? `${answer.provenance.git_commit}${answer.provenance.git_dirty ? ', with changes' : ''}` : ''],
    ['wattmark', [answer.provenance?.version, answer.provenance?.monitor_version ? `monitor ${answer.provenance.monitor_version}` : ''].filter(Boolean).join(', ')],
    ['Group', num(t.group_id) ? `${t.group_id}, of several GPUs` : ''],
    ['Result', answer.results?.length > 1 ? `${answer.result} of ${answer.results.length}, calibration ${answer.results.find((r) => r.number === answer.result)?.calibration_id}` : ''],
  ].filter(([, v]) => v);
  return panel('Where it comes from', el('div', { class: 'wide', tabindex: 0, role: 'region', 'aria-label': 'Origin' }, el('table', {}, el('tbody', {}, rows.map(([k, v]) => el('tr', {}, el('th', { scope: 'row' }, k), el('td', { class: 'name' }, v)))))));
}

function rate(answer) {
  const tb = answer.setup?.timebase;
  return tb ? `${quantity(num(tb.tick_hz) / num(tb.ticks_per_scan), 'S/s', 3)}` : '';
}

function events(answer) {
  const list = answer.events ?? [];
  if (list.length === 0) return null;
  return panel('Gaps and events', table(`${many(list.length, 'event')}${list.length > 50 ? ', the first 50' : ''}`, [
    { title: 'What', cell: (e) => word(e.kind, 'EVENT_KIND_') }, { title: 'at', num: true, cell: (e) => `${grouped(scanTime(answer, e.first_scan), 6)} s` },
    { title: 'Scans', num: true, cell: (e) => (e.exact ? '' : '~') + count(e.scans) }, { title: 'More', class: 'name', cell: (e) => e.detail },
  ], list.slice(0, 50)));
}

/** scanTime is the device time of a scan by the nominal rate, in seconds. */
export function scanTime(answer, scan) {
  const tb = answer.setup?.timebase;
  return tb ? (num(scan) * num(tb.ticks_per_scan)) / num(tb.tick_hz) : NaN;
}

/** related tells whether kernels and readings can be placed in the trace: by a clock fit, or by when the capture began. */
export const related = (answer) => Boolean(answer.clock || answer.started);
