// What people wrote about a task: its tags, its notes and whether it is pinned, to read and to change.
import { send, givenUp } from '../lib/api.js';
import { el, fill, announce, keepFocus } from '../lib/dom.js';
import { time } from '../lib/format.js';
import { notice } from '../lib/parts.js';
import { link } from '../lib/router.js';
import { may } from '../lib/who.js';

/** tagText writes a tag as it is searched for. */
export const tagText = (key, value) => (value === '' ? key : `${key}=${value}`);

/** tagsOf are a task's tags, by key. */
export const tagsOf = (t) => Object.entries(t.tags ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));

export class Labels {
  /** changed is called with the notes when they are others. */
  constructor(answer, changed) {
    this.changed = changed;
    this.id = answer.task.task_id;
    this.tags = { ...answer.task.tags };
    this.pinned = Boolean(answer.task.pinned);
    this.notes = [...answer.notes ?? []];
    this.end = new AbortController();
    this.allowed = true;
    may('measurer').then((allowed) => { this.allowed = allowed; if (!allowed) this.show(); });
    this.trouble = el('div');
    this.body = el('div');
    this.element = el('section', { class: 'panel', 'aria-label': 'Notes and tags' }, el('h2', {}, 'Notes and tags'), this.trouble, this.body);
    this.show();
  }

  close() { this.end.abort(); }

  /** change asks for a change and takes its answer; what went wrong is told above. */
  async change(method, path, params, body, done) {
    try {
      done(await send(method, `/v1/tasks/${this.id}${path}`, params, body, this.end.signal));
      fill(this.trouble);
      this.show();
    } catch (e) {
      if (!givenUp(e)) fill(this.trouble, notice(e.message, true));
    }
  }

  addNote(text) {
    return this.change('POST', '/notes', {}, { text }, (a) => { this.notes.push(a.note); announce('Note added'); this.changed(this.notes); });
  }

  setTag(key, value) {
    // A path of the mask names one tag; without a value in the body it goes away.
    const body = value === null ? {} : { tags: { [key]: value } };
    return this.change('PATCH', '', { update_mask: `tags.${key}` }, body, (a) => {
      this.tags = { ...a.task.tags };
      announce(value === null ? `Tag ${key} removed` : `Tag ${tagText(key, value)} set`);
    });
  }

  show() {
    // Who may only read gets neither buttons nor forms.
    const change = (...of) => (this.allowed ? el(...of) : null);
    const button = (label, text, f, more = {}) => change('button', { type: 'button', 'aria-label': label, title: label, on: { click: f }, ...more }, text);
    const tag = el('input', { type: 'text', name: 'tag', placeholder: 'cooler=water', 'aria-label': 'New tag: key=value, or key alone', autocomplete: 'off' });
    const note = el('input', { type: 'text', name: 'note', placeholder: 'fan at 40 %, door open', 'aria-label': 'New note', maxlength: 4096, class: 'long', autocomplete: 'off' });
    const addTag = (e) => {
      e.preventDefault();
      const [key, ...rest] = tag.value.trim().split('=');
      if (key) this.setTag(key, rest.join('='));
    };
    const addNote = (e) => {
      e.preventDefault();
      if (note.value.trim()) this.addNote(note.value.trim());
    };
    keepFocus(this.body, () => fill(this.body,
      el('div', { class: 'row middle chips' }, !this.allowed && this.pinned ? el('span', { class: 'chip' }, 'Pinned') : null,
        button(this.pinned ? 'Let the task be deleted again' : 'Keep the task: neither delete nor retention takes it', this.pinned ? 'Pinned' : 'Pin', () => this.change('PATCH', '', { update_mask: 'pinned' }, { pinned: !this.pinned }, (a) => { this.pinned = Boolean(a.task.pinned); }), { 'aria-pressed': String(this.pinned), 'aria-label': null }),
        tagsOf(this).map(([k, v]) => el('span', { class: 'chip' }, el('a', { href: link('tasks', '', { tag: tagText(k, v) }), title: 'Tasks with this tag' }, tagText(k, v)), button(`Remove tag ${k}`, '×', () => this.setTag(k, null), { class: 'plain' }))),
        change('form', { class: 'row middle', on: { submit: addTag } }, tag, el('button', { type: 'submit' }, 'Add tag'))),
      this.notes.length ? el('ul', { class: 'notes' }, this.notes.map((n) => el('li', {}, n.text, el('span', { class: 'soft' }, ` ${time(n.at)} `),
        button(`Remove note ${n.number}`, '×', () => this.change('DELETE', `/notes/${n.number}`, {}, undefined, () => { this.notes = this.notes.filter((x) => x !== n); this.changed(this.notes); }), { class: 'plain' })))) : null,
      change('form', { class: 'row middle', on: { submit: addNote } }, note, el('button', { type: 'submit' }, 'Add note'))));
  }
}
