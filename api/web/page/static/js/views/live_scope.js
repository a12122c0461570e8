// What makes the rolling plot of a bench an instrument: hold, trigger, cursors, the counter of joules.
import { el, fill, labelled } from '../lib/dom.js';
import { joules, num, quantity, seconds, time, watts } from '../lib/format.js';
import { Cursors } from '../plot/cursors.js';
import { crossing } from './live_trace.js';

const before = 0.2; // of the span lies before the trigger

export class Scope {
  /** plot is what is looked at; of = { trace, span(), draw() }. */
  constructor(plot, of) {
    this.plot = plot;
    this.of = of;
    this.frozen = null; // the time at the right edge while the picture is held
    this.mode = 'off';
    this.due = null;
    this.last = NaN; // the total's newest value
    this.hold = el('button', { type: 'button', 'aria-pressed': 'false', on: { click: () => this.pressed() } }, 'Hold');
    this.level = el('input', { type: 'number', step: 'any', min: 0, size: 6, inputmode: 'decimal', on: { change: () => this.arm() } });
    this.slope = el('select', { on: { change: () => this.arm() } }, el('option', { value: 1 }, 'rising'), el('option', { value: -1 }, 'falling'));
    this.choice = el('select', { on: { change: () => this.arm() } }, [['off', 'off: rolls'], ['single', 'once'], ['normal', 'each time']].map(([v, t]) => el('option', { value: v }, t)));
    this.said = el('span', { class: 'soft', role: 'status', 'aria-live': 'polite' });
    this.trigger = el('div', { class: 'row', role: 'group', 'aria-label': 'Trigger' }, labelled('Trigger', this.choice), labelled('at W', this.level), labelled('slope', this.slope), this.said);
    this.cursors = new Cursors(plot, { kept: () => {}, at: (t) => this.wattsAt(t), between: (root, a, b) => this.between(root, a, b) });
    this.counted = el('output', { 'aria-label': 'Energy counted', 'aria-live': 'off' });
    this.counter = el('div', { class: 'row middle' }, this.counted, el('button', { type: 'button', class: 'plain', on: { click: () => { of.trace.reset(); this.count(); } } }, 'Count from now'));
  }

  close() { this.cursors.close(); }

  /** now is the time at the right edge of the plot. */
  now() { return this.frozen ?? this.of.trace.now(); }

  /** pressed holds the picture or lets it go on; a trigger that waited for one picture has had it. */
  pressed() {
    if (this.frozen !== null && this.mode === 'single') {
      this.choice.value = 'off';
      this.arm();
    }
    this.freeze(this.frozen === null ? this.of.trace.now() : null);
  }

  /** freeze holds the picture with a time at its right edge; null lets it go on. */
  freeze(at) {
    this.frozen = at;
    this.hold.setAttribute('aria-pressed', String(at !== null));
    this.hold.textContent = at === null ? 'Hold' : 'Held: go on';
    if (at === null) {
      this.plot.cursors = { a: NaN, b: NaN }; // both at once: one alone would hold the picture again
      this.cursors.moved(this.plot.cursors);
    }
    if (at === null && this.mode !== 'off') fill(this.said, 'Armed');
    this.of.draw();
  }

  /** moved shows the cursors; what they stand at must not roll away. */
  moved(cursors) {
    if (this.frozen === null && (Number.isFinite(cursors.a) || Number.isFinite(cursors.b))) this.freeze(this.of.trace.now());
    this.cursors.moved(cursors);
  }

  /** arm waits for the level from now on, where another one is asked for. */
  arm() {
    this.mode = this.choice.value;
    if (this.level.value === '' && this.mode !== 'off') this.level.value = String(Math.round(1.2 * (this.last || 100)));
    const armed = [this.mode, this.level.value, this.slope.value].join();
    if (this.armed === armed) return; // a field that only lost the focus
    this.armed = armed;
    this.due = null; // when a picture that was triggered is whole
    fill(this.said, this.mode === 'off' ? '' : 'Armed');
    if (this.mode !== 'off' && this.frozen !== null) this.freeze(null);
  }

  /** moment looks for the level in what came, and holds the picture once enough lies behind it. */
  moment(m) {
    if (this.mode !== 'off' && this.due === null && !(this.mode === 'single' && this.frozen !== null)) {
      const at = crossing(m, this.of.trace.edge, this.last, num(this.level.value), Number(this.slope.value));
      if (Number.isFinite(at)) {
        this.due = at + (1 - before) * this.of.span();
        fill(this.said, `Triggered at ${time(1000 * at)}`);
      }
    }
    this.last = num(m.wave_w?.[m.wave_w.length - 1] ?? m.total_w);
    if (this.due !== null && this.of.trace.now() >= this.due) {
      const at = this.due;
      this.due = null;
      this.freeze(at);
    }
    this.count();
  }

  count() {
    this.counted.textContent = `${joules(this.of.trace.joules, 4)} since ${time(this.of.trace.since).slice(11)}`;
  }

  wattsAt(t) {
    const list = this.of.trace.at(this.now() + t);
    return list ? watts(list[0][1]) : 'no sample here';
  }

  between(root, a, b) {
    const e = this.of.trace.energy(this.now() + a, this.now() + b);
    fill(root, el('span', { class: 'soft' }, 'Between A and B'), el('data', { class: 'value', value: e }, joules(e, 4)), `${seconds(b - a, 4)}, mean ${watts(e / (b - a))}, ${quantity(1 / (b - a), 'Hz', 3)}`,
      el('div', { class: 'soft' }, 'Of what was seen live, without an uncertainty: a task has one.'));
  }

  /** levelLine is the trigger's level as a line of the plot. */
  levelLine(view) {
    return this.mode === 'off' ? [] : [{ t: [view.from], value: [num(this.level.value)], until: view.to, colour: (look) => look.a, dash: [4, 4] }];
  }
}
