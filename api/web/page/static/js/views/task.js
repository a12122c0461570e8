// One task: its figures, its power over time with cursors, its uncertainty and quality.
import { get, givenUp, send, stream, ApiError } from '../lib/api.js';
import { sure } from '../lib/dialog.js';
import { el, fill, announce } from '../lib/dom.js';
import { grouped } from '../lib/format.js';
import { notice } from '../lib/parts.js';
import { link, parse } from '../lib/router.js';
import { plotKeys } from '../plot/keys.js';
import { Labels } from './labels.js';
import { head, details } from './task_parts.js';
import { TaskPlot } from './task_plot.js';

export const task = {
  name: 'task', title: 'task', nav: false,
  titleOf: (route) => `task ${route.arg}`,
  keys: plotKeys,
  open: (root, route, router) => new TaskView(root, route, router),
};

class TaskView {
  constructor(root, route, router) {
    this.root = root;
    this.router = router;
    this.id = route.arg;
    this.end = new AbortController();
    this.head = el('div', {}, el('h1', {}, `Task ${route.arg}`), el('p', { class: 'soft' }, 'Reading …'));
    this.middle = el('div');
    this.trouble = el('div');
    this.foot = el('div', { class: 'columns' });
    root.append(this.head, this.trouble, this.middle, this.foot);
    this.load(route);
  }

  close() {
    this.end.abort();
    clearTimeout(this.below);
    this.plot?.close();
    this.labels?.close();
  }

  update(route) {
    if (route.arg !== this.id || !this.plot) return false;
    this.plot.read(route.params);
    return true;
  }

  async load(route) {
    if (!/^[1-9]\d*$/.test(this.id)) {
      this.fail(new ApiError(`“${this.id}” is no task: their numbers begin at 1.`, 400));
      return;
    }
    try {
      this.show(await get(`/v1/tasks/${this.id}`, {}, this.end.signal), route);
    } catch (e) {
      this.fail(e);
    }
  }

  /** follow shows a task that runs anew when something became of it. */
  async follow() {
    this.followed = true;
    try {
      for await (const { event, task: t } of stream('/v1/tasks:watch', {}, this.end.signal)) {
        if (event !== 'TASK_EVENT_WATCHING' && t?.task_id === this.id) this.load(parse(location.hash));
      }
    } catch { /* the page shows what it knew */ }
  }

  fail(e) {
    if (givenUp(e)) return;
    fill(this.head, el('h1', {}, `Task ${this.id}`), notice(e.message, true), el('p', {}, el('a', { href: link('tasks') }, 'All tasks')));
  }

  show(answer, route) {
    const t = answer.task;
    document.title = `${t.name || 'task'} · ${t.task_id} · wattmark`;
    announce(`Task ${t.task_id}, ${t.name}`);
    fill(this.head, head(answer));
    this.labels?.close();
    this.labels = new Labels(answer, (notes) => this.plot?.notes(notes));
    fill(this.trouble);
    // What stands below the plot is not laid out while that is waited for.
    clearTimeout(this.below);
    this.below = setTimeout(() => fill(this.foot, this.labels.element, details(answer)), answer.extent ? 250 : 0);
    if (t.state === 'TASK_STATE_RUNNING' && !this.followed) this.follow();
    if (!answer.extent) {
      fill(this.middle, notice(t.state === 'TASK_STATE_RUNNING' ? 'The task runs; its samples come when it has ended.' : 'No samples of this task are stored.'));
      return;
    }
    this.plot?.close();
    this.plot = new TaskPlot(this.middle, answer, {
      keep: (state, step) => this.router.keep(link('task', this.id, state), step), note: (text) => this.labels.addNote(text), trim: (from, to) => this.trim(from, to),
    });
    this.plot.read(route.params);
  }

  /** trim sets the window, after a question: the energy in lists and sums is of the new one from then on. */
  async trim(from, to) {
    if (!await sure('Set the window?', `The energy of task ${this.id} is computed anew from ${grouped(from, 6)} to ${grouped(to, 6)} s. Lists and sums follow it. wattmark trim sets it back.`, 'Set the window')) return;
    try {
      await send('POST', `/v1/tasks/${this.id}/trim`, {}, { from_s: from, to_s: to }, this.end.signal);
      this.load(parse(location.hash));
    } catch (e) {
      if (!givenUp(e)) fill(this.trouble, notice(e.message, true));
    }
  }
}
