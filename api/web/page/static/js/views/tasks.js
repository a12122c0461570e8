// The list of tasks: found by name and user, sorted, added up, picked for comparing.
import { latest, givenUp, get, stream } from '../lib/api.js';
import { el, fill, labelled, debounced, announce, keepFocus, typing } from '../lib/dom.js';
import { count, energy, many, seconds } from '../lib/format.js';
import { figures, notice } from '../lib/parts.js';
import { link } from '../lib/router.js';
import { addRows, fixed, showVerdicts, taskTable } from './tasks_table.js';

export const tasks = {
  name: 'tasks', title: 'tasks', nav: true,
  keys: [['/', 'to the search']],
  open: (root, route, router) => new Tasks(root, route, router),
};

const pageSize = 50;
const states = ['complete', 'running', 'incomplete', 'untrimmed', 'failed'];
const verdicts = ['good', 'usable', 'doubtful', 'void'];
// Verdicts are worked out task by task: this many tasks are looked through at once.
const lookedThrough = 1000;

/** pattern is what ListTasks looks for: a plain text is found anywhere in a name. */
export function pattern(text) {
  const t = text.trim();
  return t === '' || /[*?]/.test(t.replace(/\\[*?\\]/g, '')) ? t : `*${t}*`;
}

/** dayStart is the begin of a day in the reader's own zone, so many days later, as the API takes it. */
export function dayStart(text, later) {
  const [y, m, d] = text.trim().split('-').map(Number);
  return y && m && d ? new Date(y, m - 1, d + later).toISOString() : '';
}

/** judgedAs is what a task was when it was judged: with another result it is judged anew. */
const judgedAs = (t) => [t.task_id, t.state, t.energy?.energy_j, t.energy?.energy_u_j, t.gaps, t.lost].join();

/** left is the list as it was left, by its address: who comes back finds its rows, its picks and its place. */
const left = { at: null, rows: [], next: '', totals: null, scroll: 0 };
/** picked are the tasks to compare, of all lists, by number; known verdicts, by task and what it was when it was judged; made the rows of the table. */
const picked = new Map(), known = new Map(), made = new Map();
let shown = null; // the list that is open: rows outlast it

class Tasks {
  constructor(root, route, router) {
    this.router = router;
    this.list = latest();
    this.judged = latest();
    this.end = new AbortController();
    this.rows = [];
    this.totals = null; // of all that the search finds
    shown = this;
    this.picked = picked;
    this.form = this.makeForm();
    this.summary = el('div', { class: 'panel', 'aria-live': 'polite' });
    this.trouble = el('div');
    this.body = el('div', { class: 'panel' });
    this.actions = el('div', { class: 'row middle sticky' });
    root.append(el('h1', {}, 'Tasks'), this.form, this.trouble, this.summary, this.body);
    this.back(route);
    this.users();
    this.follow();
    // Known before the view is closed: then the page is another one.
    addEventListener('scroll', () => { this.place = scrollY; }, { signal: this.end.signal, passive: true });
    addEventListener('keydown', (e) => {
      if (e.key !== '/' || typing(e)) return;
      e.preventDefault();
      this.name.focus();
    }, { signal: this.end.signal });
  }

  close() {
    Object.assign(left, { at: this.address(), rows: this.rows, next: this.next, totals: this.totals, scroll: this.place, nodes: [...this.body.childNodes], foot: this.foot, actions: this.actions });
    this.list.stop();
    this.judged.stop();
    this.end.abort();
    this.typed.cancel();
    this.again.cancel();
  }

  update(route) {
    this.read(route);
    this.load();
    return true;
  }

  /** back shows the list as it was left, where it is the same, and brings it up to date; else it asks. */
  back(route) {
    this.read(route);
    if (left.at !== this.address() || !left.totals) {
      this.load();
      return;
    }
    Object.assign(this, { rows: left.rows, next: left.next, totals: left.totals, place: left.scroll, foot: left.foot, actions: left.actions });
    fill(this.body, left.nodes);
    this.showSums();
    this.showActions();
    requestAnimationFrame(() => scrollTo(0, left.scroll));
    this.load(true);
  }

  makeForm() {
    this.typed = debounced(() => this.ask(), 200);
    const now = () => this.ask();
    this.name = el('input', { type: 'search', placeholder: 'gemm, or gemm*fp16', autocomplete: 'off', on: { input: this.typed } });
    this.words = el('input', { type: 'search', placeholder: 'fan 40', autocomplete: 'off', on: { input: this.typed } });
    this.tag = el('input', { type: 'search', placeholder: 'cooler=water', autocomplete: 'off', on: { input: this.typed } });
    const day = () => el('input', { type: 'text', placeholder: '2026-01-31', pattern: '\\d{4}-\\d\\d?-\\d\\d?', size: 11, autocomplete: 'off', on: { change: now } });
    this.since = day();
    this.until = day();
    this.gpu = el('input', { type: 'search', placeholder: 'H200', autocomplete: 'off', on: { input: this.typed } });
    this.job = el('input', { type: 'search', autocomplete: 'off', on: { change: now } });
    this.user = el('select', { on: { change: now } }, el('option', { value: '' }, 'all users'));
    this.state = el('select', { on: { change: now } }, el('option', { value: '' }, 'any state'), states.map((s) => el('option', { value: s }, s)));
    this.verdict = el('select', { on: { change: now } }, el('option', { value: '' }, 'any verdict'), verdicts.map((v) => el('option', { value: v }, v)));
    return el('form', { class: 'panel row', role: 'search', 'aria-label': 'Tasks', on: { submit: (e) => { e.preventDefault(); now(); } } },
      labelled('Name (* any text, ? one character)', this.name), labelled('Words in name, notes, tags', this.words), labelled('User', this.user), labelled('State', this.state), labelled('Verdict', this.verdict),
      this.further = el('details', { class: 'further' }, el('summary', {}, 'Tag, dates, GPU, job'), el('div', { class: 'row' }, labelled('Tag', this.tag), labelled('From', this.since), labelled('Up to', this.until), labelled('GPU', this.gpu), labelled('Job', this.job))));
  }

  /** read takes what is asked from the address. */
  read({ params }) {
    this.name.value = params.get('name') ?? '';
    for (const f of ['words', 'tag', 'since', 'until', 'gpu', 'job']) this[f].value = params.get(f) ?? '';
    if (['tag', 'since', 'until', 'gpu', 'job'].some((f) => this[f].value)) this.further.open = true;
    this.wantUser = params.get('user') ?? '';
    this.pickUser();
    this.state.value = params.get('state') ?? '';
    this.verdict.value = params.get('verdict') ?? '';
    this.order = params.get('order') ?? 'id';
    this.ascending = params.get('up') === '1';
  }

  /** address is what is asked, as a link. */
  address() {
    return link('tasks', '', {
      name: this.name.value, words: this.words.value, tag: this.tag.value, since: this.since.value, until: this.until.value, gpu: this.gpu.value, job: this.job.value, user: this.wantUser, state: this.state.value, verdict: this.verdict.value, order: this.order === 'id' ? '' : this.order, up: this.ascending ? '1' : '',
    });
  }

  /** ask writes what is asked into the address, and asks. */
  ask() {
    this.wantUser = this.user.value;
    this.router.keep(this.address(), true);
    this.load();
  }

  question() {
    return {
      name: pattern(this.name.value), search: this.words.value.trim(), tags: this.tag.value.trim(), since: dayStart(this.since.value, 0), until: dayStart(this.until.value, 1), gpu: this.gpu.value.trim(), job: this.job.value.trim(), user: this.wantUser, order: `TASK_ORDER_${this.order.toUpperCase()}`, ascending: this.ascending || '',
      states: this.state.value ? `TASK_STATE_${this.state.value.toUpperCase()}` : '',
      verdicts: this.verdict.value ? `VERDICT_${this.verdict.value.toUpperCase()}` : '',
    };
  }

  async load(quiet = false) {
    await this.trying(async () => {
      let { rows, next, totals } = await this.pages('', quiet ? Math.min(1000, Math.max(pageSize, this.rows.length)) : pageSize);
      const page = rows;
      // What was paged in stays when the list is only brought up to date: its first thousand.
      if (quiet && next && rows.length < this.rows.length) {
        const ids = new Set(rows.map((t) => t.task_id));
        rows = rows.concat(this.rows.slice(rows.length).filter((t) => !ids.has(t.task_id)));
        next = this.next;
      }
      const same = quiet && rows.length === this.rows.length && rows.every((t, i) => JSON.stringify(t) === JSON.stringify(this.rows[i]));
      Object.assign(this, { rows, next, totals });
      fill(this.trouble);
      if (same) this.showSums();
      else this.show();
      if (!quiet) announce(this.verdict.value ? many(rows.length, 'task') : many(totals.tasks, 'task'));
      await this.judge('', page);
    });
  }

  /** more adds as many as there are, at most a thousand at once. */
  async more() {
    await this.trying(async () => {
      const token = this.next, { rows, next } = await this.pages(token, Math.min(1000, Math.max(pageSize, this.rows.length)));
      this.rows = this.rows.concat(rows);
      this.next = next;
      this.show(rows);
      await this.judge(token, rows);
    });
  }

  async trying(f) {
    try {
      await f();
    } catch (e) {
      if (!givenUp(e)) fill(this.trouble, notice(e.message, true));
    }
  }

  /**
   * pages asks for a page; of one verdict, page after page until there are as many tasks
   * as wanted, or a thousand were looked through.
   */
  async pages(token, size) {
    const rows = [], asked = this.verdict.value ? Math.max(200, size) : size;
    let next = token, totals = null;
    for (let seen = 0; ; seen += asked) {
      const answer = await this.list.get('/v1/tasks', { ...this.question(), page_size: asked, page_token: next, with_totals: next === '' });
      rows.push(...answer.tasks);
      next = answer.next_page_token ?? '';
      totals ??= answer.totals;
      if (!this.verdict.value || next === '' || rows.length >= size || seen + asked >= lookedThrough) return { rows, next, totals };
    }
  }

  /**
   * judge fills the verdicts of a page in: they take longer than the rest, so the list does not wait
   * for them, and where none changed since they are not asked for again.
   */
  async judge(token, rows) {
    if (this.verdict.value) return;
    const of = (t) => known.get(judgedAs(t));
    if (rows.some((t) => t.state !== 'TASK_STATE_RUNNING' && !of(t))) {
      showVerdicts(this.body, new Map(rows.map((t) => [t.task_id, of(t)])));
      const answer = await this.judged.get('/v1/tasks', { ...this.question(), page_size: rows.length, page_token: token, read_mask: 'task_id,verdict' });
      const found = new Map(answer.tasks.map((t) => [t.task_id, t.verdict]));
      for (const t of rows) {
        if (found.has(t.task_id)) known.set(judgedAs(t), found.get(t.task_id));
      }
    }
    showVerdicts(this.body, new Map(this.rows.map((t) => [t.task_id, of(t)])));
  }

  sort(order) {
    this.ascending = this.order === order ? !this.ascending : order === 'name';
    this.order = order;
    this.ask();
  }

  async users() {
    try {
      const { users } = await get('/v1/users', {}, this.end.signal);
      users.sort((a, b) => a.user.localeCompare(b.user, undefined, { numeric: true }));
      this.user.append(...users.map((u) => el('option', { value: u.user }, `${u.user || '(none)'} (${count(u.tasks)})`)));
      this.pickUser();
    } catch (e) {
      if (!givenUp(e)) fill(this.trouble, notice(e.message, true));
    }
  }

  /** pickUser shows the user who is asked for, also one that is not in the list (yet). */
  pickUser() {
    if (this.wantUser && ![...this.user.options].some((o) => o.value === this.wantUser)) {
      this.user.append(el('option', { value: this.wantUser }, this.wantUser));
    }
    this.user.value = this.wantUser;
  }

  /** follow keeps the list as it is in the database. */
  async follow() {
    this.again = debounced(() => this.load(true), 300);
    for (let pause = 1000; !this.end.signal.aborted; pause = Math.min(2 * pause, 30_000)) {
      try {
        for await (const { event } of stream('/v1/tasks:watch', {}, this.end.signal)) {
          // The watch is there again: what changed meanwhile was missed.
          if (event !== 'TASK_EVENT_WATCHING' || pause > 1000) this.again();
          pause = 500;
        }
      } catch { /* what cannot be followed is still as it was asked for */ }
      if (this.end.signal.aborted) return;
      fill(this.trouble, notice('The host does not answer: the list is as it was. It is tried again.'));
      await new Promise((done) => { setTimeout(done, pause); });
    }
  }

  /** show shows the rows; added are those behind the ones that are shown already, where only they are new. */
  show(added) {
    keepFocus(this.body, () => {
      this.showSums();
      if (added && addRows(this.body, added, this.how())) fill(this.foot, this.button()), this.showActions();
      else this.showRows();
    });
  }

  showSums() {
    const t = this.totals;
    fill(this.summary, figures([
      ['Tasks', count(t.tasks)], ['with a window', count(t.measured)], ['Energy', energy(t.energy ?? {})], ['Time', seconds(t.duration_s)], ['Samples', count(t.samples)],
    ]), this.verdict.value ? el('p', { class: 'soft' }, `These sums are of all verdicts; ${many(this.rows.length, 'task')} below.`) : null);
  }

  /** button leads on, where more were found than are shown. */
  button() {
    if (!this.next) return [];
    const of = this.verdict.value ? 'There may be more.' : `${count(this.rows.length)} of ${count(this.totals.tasks)} are shown.`;
    return [el('button', { type: 'button', on: { click: () => shown.more() } }, this.verdict.value ? 'Look further' : 'More'), ' ', el('span', { class: 'soft' }, of)];
  }

  how() {
    return {
      order: this.order, ascending: this.ascending, sort: (o) => shown.sort(o), picked: this.picked, made,
      pick: (task, on) => {
        if (on) picked.set(task.task_id, task);
        else picked.delete(task.task_id);
        shown.showActions();
      },
      pickAll: (on) => {
        for (const t of shown.rows) {
          if (on) picked.set(t.task_id, t);
          else picked.delete(t.task_id);
        }
        shown.show();
      },
    };
  }

  showRows() {
    this.foot = el('p', {}, this.button());
    if (this.rows.length === 0) {
      const asked = this.address() !== link('tasks');
      fill(this.body, el('div', { class: 'empty' }, this.next ? ['None of the tasks looked through is like that.', this.foot]
        : asked ? 'No task is like that.' : [el('p', {}, 'There are no tasks yet.'), el('p', {}, el('code', {}, 'wattmark run -- ./program'), ' measures one.')]));
      return;
    }
    fill(this.body, this.actions, taskTable(this.rows, this.how()), this.foot);
    this.showActions();
    if (this.rows.length > 300) fixed(this.body.querySelector('table'));
  }

  showActions() {
    const ids = [...this.picked.keys()];
    const button = el('button', { type: 'button', id: 'compare', class: ids.length > 1 ? 'primary' : null, disabled: ids.length < 2, on: { click: () => { location.hash = link('compare', '', { ids: ids.join(',') }); } } },
      ids.length > 1 ? `Compare ${ids.length} tasks` : 'Compare');
    const all = this.body.querySelector('thead input'), away = ids.filter((id) => !this.rows.some((t) => t.task_id === id)).length;
    if (all) {
      all.checked = this.rows.every((t) => this.picked.has(t.task_id));
      all.indeterminate = !all.checked && this.rows.some((t) => this.picked.has(t.task_id));
    }
    fill(this.actions, button, el('span', { class: 'soft' }, ids.length < 2 ? 'Tick two or more tasks to compare them.' : `Picked: ${ids.join(', ')}${away ? `; ${away} of them not below` : ''}`),
      ids.length ? el('button', { type: 'button', class: 'plain', on: { click: () => { this.picked.clear(); this.show(); } } }, 'Pick none') : null);
  }
}
