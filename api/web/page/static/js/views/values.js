// The plot as a table, for those who do not see it: twenty stretches of what is in view.
import { latest, givenUp } from '../lib/api.js';
import { el, fill, debounced } from '../lib/dom.js';
import { num, watts } from '../lib/format.js';
import { notice, table } from '../lib/parts.js';
import { instant } from '../plot/scale.js';

const stretches = 20;

/** valuesTable makes the table of a task; view() tells what is in view. moved() says that it changed. */
export function valuesTable(id, view) {
  const asked = latest();
  const body = el('div');
  const load = async () => {
    const { from, to } = view();
    try {
      const r = await asked.get(`/v1/tasks/${id}/envelope`, { from_s: from, to_s: to, columns: stretches });
      fill(body, rows(r));
    } catch (e) {
      if (!givenUp(e)) fill(body, notice(e.message));
    }
  };
  const later = debounced(load, 200);
  const element = el('details', { 'aria-label': 'Values as a table', on: { toggle: () => element.open && load() } }, el('summary', {}, 'Values as a table'), body);
  return {
    element,
    moved: () => element.open && later(),
    close: () => { asked.stop(); later.cancel(); },
  };
}

function rows(r) {
  const from = num(r.from_s), width = (num(r.to_s) - from) / num(r.columns);
  const series = r.series ?? [];
  const find = (s, c) => (s.column ?? []).findIndex((x) => num(x) === c);
  const value = (s, key) => (c) => {
    const i = find(s, c);
    return i < 0 ? '–' : watts(s[key][i]);
  };
  const sum = series.find((s) => s.rail === 'total');
  return table('Mean power by stretches of time, of the total the least and the greatest too', [
    { title: 'From', cell: (c) => instant(from + c * width, num(r.to_s) - from) },
    ...(sum ? [['Total', 'mean_w'], ['least', 'min_w'], ['greatest', 'max_w']].map(([title, key]) => ({ title, num: true, cell: value(sum, key) })) : []),
    ...series.filter((s) => s !== sum).map((s) => ({ title: s.rail, num: true, cell: value(s, 'mean_w') })),
  ], Array.from({ length: num(r.columns) }, (_, i) => i));
}
