// What a task drew between two cursors: E ± U of ReadEnergy, by rail too, and what U is made of.
import { latest, givenUp } from '../lib/api.js';
import { el, fill, announce } from '../lib/dom.js';
import { count, energy, joules, many, num, percent, seconds, watts } from '../lib/format.js';
import { table } from '../lib/parts.js';
import { budgetTable } from './task_parts.js';

/** copyable is a button that copies a text, where the browser lets it. */
function copyable(text) {
  if (!navigator.clipboard) return null;
  return el('button', { type: 'button', class: 'plain', title: `Copy “${text}”`, on: { click: () => navigator.clipboard.writeText(text).then(() => announce('Copied'), () => announce('The browser does not copy')) } }, 'Copy');
}

/** parts are the rails and the budget, folded away until they are wanted. */
function parts(r, open) {
  const all = num(r.energy.energy_j);
  return el('details', { open, 'aria-label': 'Rails and budget between A and B' }, el('summary', {}, 'Rails and budget'),
    table('Each rail between A and B', [
      { title: 'Rail', cell: (x) => x.name }, { title: 'Energy ± U', num: true, cell: (x) => energy(x.energy) },
      { title: 'Mean', num: true, cell: (x) => watts(x.mean_w) }, { title: 'Share', num: true, cell: (x) => percent(num(x.energy?.energy_j) / all) },
    ], r.rails ?? []), budgetTable((r.budget ?? []).slice(0, 6), 'What U is made of, the largest first'));
}

/** energyBetween shows the energy of a task between two device times. */
export function energyBetween(id) {
  const asked = latest();
  return {
    close: () => asked.stop(),
    none: () => asked.stop(),
    async show(root, from, to) {
      const open = Boolean(root.querySelector('details')?.open);
      root.setAttribute('aria-busy', 'true');
      try {
        const r = await asked.get(`/v1/tasks/${id}/energy`, { from_s: from, to_s: to });
        fill(root, el('span', { class: 'soft' }, 'Between A and B '), copyable(energy(r.energy)),
          el('data', { class: 'value', value: r.energy.energy_j, title: `${joules(r.energy.energy_j, 10)} ± ${joules(r.energy.energy_u_j, 4)}` }, energy(r.energy)),
          `${seconds(to - from, 5)}, mean ${watts(r.mean_w)}, peak ${watts(r.peak_w)}, ${many(r.samples, 'sample')}`,
          num(r.gaps) ? `, ${count(r.lost)} lost in ${many(r.gaps, 'gap')}` : '', parts(r, open));
      } catch (e) {
        if (givenUp(e)) return;
        fill(root, `No energy between them: ${e.message}`);
      }
      root.removeAttribute('aria-busy');
    },
  };
}
