// The windows that a server named in a task: requests and their stages, summed up by class, with joules by what they counted.
import { get, givenUp } from '../lib/api.js';
import { el, fill } from '../lib/dom.js';
import { count, energy, joules, seconds } from '../lib/format.js';
import { notice, table } from '../lib/parts.js';

/** each writes the energies by what was counted: "18.8 ± 1.3 mJ a token". */
export const each = (line) => (line.per ?? []).map((p) => `${energy(p.energy)} by ${p.unit}`).join(', ');

/** length is the mean length of a line's windows, in seconds. */
export const length = (line) => Number(line.time_s) / Number(line.windows);

/** Windows is a panel that asks for the sums once it is opened. */
export class Windows {
  constructor(id) {
    this.id = id;
    this.end = new AbortController();
    this.body = el('div');
    this.element = el('details', { class: 'panel', 'aria-label': 'Windows of a server', on: { toggle: () => this.element.open && !this.asked && this.load() } },
      el('summary', {}, el('strong', {}, 'Windows'), el('span', { class: 'soft' }, ' requests and stages that a server named: joules by request and by token')), this.body);
  }

  close() { this.end.abort(); }

  async load() {
    this.asked = true;
    this.body.setAttribute('aria-busy', 'true');
    try {
      this.show(await get(`/v1/tasks/${this.id}/windows`, { max_windows: 1 }, this.end.signal));
    } catch (e) {
      if (!givenUp(e)) fill(this.body, notice(e.message, true));
    }
    this.body.removeAttribute('aria-busy');
  }

  show({ sums = [], notes = [] }) {
    const known = (write) => (l) => (Number(l.windows) ? write(l) : '');
    fill(this.body, sums.length ? table('Energy by window; those open at once share the power equally', [
      { title: 'Class', cell: (l) => l.class ?? '' }, { title: 'Stage', cell: (l) => l.stage || 'whole requests' }, { title: 'Windows', num: true, cell: (l) => count(l.windows ?? 0) },
      { title: 'Mean length', num: true, cell: known((l) => seconds(length(l), 3)) }, { title: 'Energy (k = 2)', num: true, cell: known((l) => energy(l.energy)) },
      ...['p50', 'p90', 'p99'].map((q) => ({ title: q, num: true, cell: known((l) => joules(l[`${q}_j`], 3)) })),
      { title: 'Each', num: true, cell: known(each) },
    ], sums) : el('p', { class: 'soft' }, 'The program named no windows: wattmark.window in Python does, and BeginWindow over gRPC and HTTP.'),
    notes.length ? el('ul', { class: 'reasons' }, notes.map((n) => el('li', {}, n))) : null);
  }
}
