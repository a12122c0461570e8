// Start and stop of a named recording of a bench, for operators.
import { send, givenUp } from '../lib/api.js';
import { announce, el, fill } from '../lib/dom.js';
import { notice } from '../lib/parts.js';
import { link } from '../lib/router.js';
import { may } from '../lib/who.js';

/** Recording is what stands below who has a bench: a form while it is free, the way to stop while this host records it. */
export class Recording {
  constructor() {
    this.end = new AbortController();
    this.name = el('input', { type: 'text', name: 'recording', placeholder: 'name, as idle', 'aria-label': 'Name of the recording', maxlength: 200, autocomplete: 'off' });
    this.button = el('button', { type: 'submit' }, 'Record');
    this.form = el('form', { class: 'row middle', 'aria-label': 'Record the bench', on: { submit: (e) => { e.preventDefault(); this.ask(); } } }, this.name, this.button);
    this.said = el('div', { role: 'status', 'aria-live': 'polite' });
    this.element = el('div', { class: 'later', hidden: true }, this.form, this.said);
    may('operator').then((allowed) => { this.allowed = allowed; this.show(); });
  }

  close() { this.end.abort(); }

  /** state takes what the bench is now. */
  state(s) {
    this.s = s;
    this.show();
  }

  show() {
    const s = this.s;
    this.element.hidden = !this.allowed || !s || s.reach !== 'BENCH_REACH_PRESENT' || Boolean(s.holder && !s.recording);
    this.name.hidden = Boolean(s?.recording);
    this.button.textContent = s?.recording ? 'Stop recording' : 'Record';
  }

  /** ask starts or stops. The task is linked as soon as there is one. */
  async ask() {
    const stop = this.s.recording, path = `/v1/benches/${encodeURIComponent(this.s.bench)}/recording`;
    this.button.disabled = true;
    fill(this.said, el('span', { class: 'soft' }, stop ? 'Stopping; the last samples are stored …' : 'Taking the bench …'));
    try {
      const { task_id: id } = await (stop ? send('DELETE', path, {}, undefined, this.end.signal) : send('POST', path, {}, { name: this.name.value.trim() || 'recording' }, this.end.signal));
      fill(this.said, stop ? 'Recorded: ' : 'Records ', el('a', { href: link('task', id) }, `task ${id}`));
      announce(stop ? `Recorded as task ${id}` : `Recording as task ${id}`);
      if (stop) this.name.value = '';
    } catch (e) {
      if (!givenUp(e)) fill(this.said, notice(e.message, true));
    } finally {
      this.button.disabled = false;
    }
  }
}
