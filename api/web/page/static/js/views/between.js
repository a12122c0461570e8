// What a task drew between two cursors: E ± U of ReadEnergy, by rail too, what U is made of, what the
// GPU's own sensor says of the same stretch, and what lies above idle.
import { latest, givenUp } from '../lib/api.js';
import { el, fill } from '../lib/dom.js';
import { count, energy, joules, many, num, percent, seconds, watts } from '../lib/format.js';
import { table } from '../lib/parts.js';
import { nameOf } from './readings.js';
import { copyButton } from './take.js';
import { budgetTable, signed } from './task_parts.js';

/** parts are the rails and the budget, folded away until they are wanted. */
function parts(r, open) {
  const all = num(r.energy.energy_j);
  return el('details', { open, 'aria-label': 'Rails and budget between A and B' }, el('summary', {}, 'Rails and budget'),
    table('Each rail between A and B', [
      { title: 'Rail', cell: (x) => x.name }, { title: 'Energy ± U', num: true, cell: (x) => energy(x.energy) },
      { title: 'Mean', num: true, cell: (x) => watts(x.mean_w) }, { title: 'Share', num: true, cell: (x) => percent(num(x.energy?.energy_j) / all) },
    ], r.rails ?? []), budgetTable((r.budget ?? []).slice(0, 6), `What U is made of, the largest first${r.budget?.length > 6 ? `, 6 of ${r.budget.length}` : ''}`));
}

/** aboveIdle is an energy above so many watts of idle, { w, u }. Gains are common to both, so their uncertainties add up at most. */
export function aboveIdle(r, idle) {
  const length = num(r.to_s) - num(r.from_s);
  return { energy_j: num(r.energy.energy_j) - idle.w * length, energy_u_j: num(r.energy.energy_u_j) + idle.u * length };
}

/**
 * energyBetween shows the energy of a task between two device times. of = { id, idle, setIdle(idle or
 * null), actions(from, to) }: idle is { w, u } in watts or null; actions are what else can be done with the two.
 */
export function energyBetween(of) {
  const asked = latest();
  const self = {
    answer: null, // what ReadEnergy said last; null while there are no two cursors
    close: () => asked.stop(),
    none: () => { self.answer = null; asked.stop(); },
    async show(root, from, to) {
      root.setAttribute('aria-busy', 'true');
      try {
        self.answer = await asked.get(`/v1/tasks/${of.id}/energy`, { from_s: from, to_s: to });
        self.write(root, from, to);
      } catch (e) {
        if (givenUp(e)) return;
        fill(root, `No energy between them: ${e.message}`);
      }
      root.removeAttribute('aria-busy');
    },
    write(root, from, to) {
      const r = self.answer, open = Boolean(root.querySelector('details')?.open);
      fill(root, el('span', { class: 'soft' }, 'Between A and B '), copyButton(energy(r.energy)),
        el('data', { class: 'value', value: r.energy.energy_j, title: `${joules(r.energy.energy_j, 10)} ± ${joules(r.energy.energy_u_j, 4)}` }, energy(r.energy)),
        `${seconds(to - from, 5)}, mean ${watts(r.mean_w)}, peak ${watts(r.peak_w)}, ${many(r.samples, 'sample')}`,
        num(r.gaps) ? `, ${count(r.lost)} lost in ${many(r.gaps, 'gap')}` : '',
        r.nvml_j === undefined ? null : el('div', { id: 'sensor' }, `${nameOf(r.nvml_method)}: ${joules(r.nvml_j, 4)} `, el('span', { class: 'soft' }, `(${signed(num(r.nvml_j) / num(r.energy.energy_j) - 1)})`)),
        r.wall ? el('div', { id: 'wall' }, `Whole machine: ${energy(r.wall)}, without the card's rails ${energy(r.rest)}`) : null,
        self.idleRow(root, from, to), of.actions(from, to), parts(r, open));
    },
    idleRow(root, from, to) {
      const r = self.answer, length = to - from, idle = of.idle();
      const set = (v) => { of.setIdle(v); self.write(root, from, to); };
      const button = (text, title, f) => el('button', { type: 'button', class: 'plain', title, on: { click: f } }, text);
      if (!idle) return el('div', {}, button('Take as idle', 'What lies between A and B is the card at rest: energies above it are shown from now on', () => set({ w: num(r.mean_w), u: num(r.energy.energy_u_j) / length })));
      return el('div', { id: 'above' }, 'Above idle: ', el('strong', {}, energy(aboveIdle(r, idle))), el('span', { class: 'soft' }, ` idle ${watts(idle.w)}`), button('×', 'Forget the idle power', () => set(null)));
    },
  };
  return self;
}
