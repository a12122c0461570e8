// Validations: what software says of a task, against its meter.
import { get, givenUp } from '../lib/api.js';
import { announce, el, fill, labelled } from '../lib/dom.js';
import { energy, time } from '../lib/format.js';
import { notice, table } from '../lib/parts.js';
import { link } from '../lib/router.js';
import { Report } from './report.js';

export const reports = {
  name: 'reports', title: 'reports', nav: true,
  titleOf: (route) => (route.arg ? `report on task ${route.arg}` : 'reports'),
  open: (root, route) => (route.arg ? new One(root, route) : new All(root)),
};

/** All lists what can be judged, and what was judged and kept. */
class All {
  constructor(root) {
    this.end = new AbortController();
    this.body = el('div');
    const field = el('input', { type: 'number', min: 1, step: 1, required: true, inputmode: 'numeric' });
    root.append(el('h1', {}, 'Reports'), el('p', { class: 'soft' }, 'What software says of a task’s power, held against the meter.'),
      el('form', { class: 'panel row', 'aria-label': 'Report on a task', on: { submit: (e) => { e.preventDefault(); location.hash = link('reports', field.value); } } },
        labelled('Task', field), el('button', { class: 'primary' }, 'Show the report')),
      this.body);
    this.load();
  }

  close() { this.end.abort(); }

  async load() {
    try {
      const s = this.end.signal;
      const [kept, list] = await Promise.all([get('/v1/validations', {}, s), get('/v1/tasks', { page_size: 25, states: 'TASK_STATE_COMPLETE' }, s)]);
      fill(this.body, this.tasks(list.tasks, list.next_page_token), this.kept(kept));
    } catch (e) {
      if (!givenUp(e)) fill(this.body, notice(e.message, true));
    }
  }

  tasks(list, more) {
    return el('section', { class: 'panel' }, el('h2', {}, more ? `The newest ${list.length} complete tasks` : 'Complete tasks'), list.length === 0 ? el('p', { class: 'empty' }, 'No task is complete yet.') : table('A report is worked out when it is asked for', [
      { title: 'Task', class: 'name', cell: (t) => [el('a', { href: link('reports', t.task_id) }, `${t.name} (task ${t.task_id})`), el('div', { class: 'soft' }, [t.gpu, time(t.launched)].filter(Boolean).join(', '))] },
      { title: 'Meter', num: true, cell: (t) => energy(t.energy) },
    ], list), more ? el('p', { class: 'soft' }, 'Older ones by their number, above.') : null);
  }

  kept({ validations, more }) {
    return el('section', { class: 'panel' }, el('h2', {}, 'Kept'), validations.length === 0
      ? el('p', { class: 'soft' }, el('code', {}, 'wattmark validate TASK… --save NAME'), ' keeps what is said of tasks now, under a name.')
      : [more ? el('p', { class: 'soft' }, 'The newest of them.') : null, validations.map((v) => el('article', { class: 'saved' },
        el('h3', {}, v.name, el('span', { class: 'soft' }, ` version ${v.version}, ${time(v.made)}, ${v.maker}`)),
        el('ul', { class: 'kept' }, v.verdicts.slice(0, 10).map((x) => el('li', {}, el('strong', {}, `${x.name}: `), x.verdict)), v.verdicts.length > 10 ? el('li', {}, `and ${v.verdicts.length - 10} more`) : null),
        v.task_ids.length ? el('p', { class: 'soft' }, 'As of now: ', v.task_ids.map((id, i) => [i ? ', ' : '', el('a', { href: link('reports', id) }, `task ${id}`)])) : null))]);
  }
}

/** One is the report on one task. */
class One {
  constructor(root, route) {
    this.end = new AbortController();
    this.body = el('div', { 'aria-busy': 'true' }, el('p', { class: 'empty' }, 'The task is being judged …'));
    root.append(el('h1', {}, 'Report on ', el('a', { href: link('task', route.arg) }, `task ${route.arg}`)), this.body);
    this.load(route.arg);
  }

  close() {
    this.end.abort();
    this.report?.close();
  }

  async load(id) {
    try {
      const r = await get(`/v1/tasks/${encodeURIComponent(id)}/validation`, {}, this.end.signal);
      this.report = new Report(this.body, r);
      announce(r.verdict);
    } catch (e) {
      if (!givenUp(e)) fill(this.body, notice(e.message, true));
    }
    this.body.setAttribute('aria-busy', 'false');
  }
}
