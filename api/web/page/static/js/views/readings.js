// What software read of the GPU's own sensors beside a task: which of it is power, what
// each method is called, and how it is drawn.
import { el, fill } from '../lib/dom.js';
import { num } from '../lib/format.js';
import { words } from '../lib/words.js';

const names = { 'nvml.instant': 'NVML instant', 'nvml.average': 'NVML average', 'nvml.usage': 'NVML usage', 'method.sma': 'SMA', 'method.mtsm': 'MTSM', 'method.papi': 'PAPI' };

// The sensor's own fields, the nearest to the truth first, stand before what is made of them.
const order = ['nvml.instant', 'nvml.average', 'nvml.usage', 'nvidia-smi power.draw.instant', 'nvidia-smi power.draw', 'nvidia-smi power.draw.average'];

/** nameOf is what a method is called: that of an imported log is its column. */
export const nameOf = (method) => names[method] ?? method;

/** isPower tells whether a method's readings are watts: not conditions of the GPU, counters of energy, nor a line that was switched. */
const isPower = (method) => !/^gpu\.|^machine\.energy\.|^witness$|energy$|counter/.test(method);

/** powerMethods are those of a task's methods whose readings are watts, in their order. */
export function powerMethods(methods) {
  const place = (m) => order.indexOf(m) >>> 0; // others are last
  return methods.filter(isPower).sort((a, b) => place(a) - place(b) || (a < b ? -1 : 1));
}

const dashes = [['solid', []], ['dashed', [6, 3]], ['dotted', [2, 2]]];

/** lookOf is how the i-th method of a task is drawn: twelve differ. */
function lookOf(i) {
  const [style, dash] = dashes[i % dashes.length], n = i % 4;
  return { css: `var(--reading-${n + 1})`, style, dash, colour: (look) => look.readings[n] };
}

/** ReadingChoice is the list of a task's methods beside the plot, of which those ticked are drawn. */
export class ReadingChoice {
  /** headline is the method whose energy is told above the plot: alone it is drawn, until one chooses. changed is told when one does. */
  constructor(headline, changed) {
    this.headline = headline;
    this.changed = changed;
    this.methods = null; // the task's; not known before the first answer
    this.chosen = null;
    this.asked = [];
    // Its room is kept only where there will be something in it.
    this.element = el('ul', { class: 'legend', hidden: !headline, 'aria-label': 'Readings of the GPU’s own sensor' });
  }

  /** read takes the choice from the address: names, or none. */
  read(text) {
    this.chosen = text === null ? null : text.split(',').filter((m) => m && m !== 'none');
    this.tick();
  }

  /** written is the choice as the address has it; empty where it is what is drawn anyway. */
  written() { return this.chosen === null ? '' : this.chosen.join(',') || 'none'; }

  /** shown are the methods to draw, as far as the task has them. */
  shown() {
    if (this.chosen) return this.methods.filter((m) => this.chosen.includes(m));
    return this.methods.includes(this.headline) ? [this.headline] : this.methods.slice(0, 1);
  }

  /** wanted are the methods to ask for; never none, which would ask for all. */
  wanted() {
    const first = this.headline ? [this.headline] : order;
    this.asked = this.methods ? this.shown() : [...new Set([...first, ...this.chosen ?? []])];
    return this.asked.length ? this.asked : first;
  }

  /** lacks tells whether something is to be drawn that was not asked for. */
  lacks() { return this.shown().some((m) => !this.asked.includes(m)); }

  /** take makes of an answer of ReadReadings what a panel draws. */
  take(answer) {
    const methods = powerMethods(answer.methods ?? []);
    if (this.methods?.join() !== methods.join()) {
      this.methods = methods;
      this.list();
    }
    return this.drawn((answer.traces ?? []).map((r) => ({
      method: r.method, text: nameOf(r.method), t: Float64Array.from(r.t_s ?? [], num), value: Float64Array.from(r.value ?? [], num), until: num(r.until_s), ...lookOf(methods.indexOf(r.method)),
    })));
  }

  /** drawn leaves those that are ticked. */
  drawn(readings) { return (readings ?? []).filter((r) => this.shown().includes(r.method)); }

  list() {
    const items = this.methods.map((m, i) => {
      const box = el('input', { type: 'checkbox', value: m, on: { change: () => this.choose() } }), look = lookOf(i);
      const key = el('span', { class: `key line ${look.style}`, 'aria-hidden': 'true' });
      key.style.borderColor = look.css;
      return { box, item: el('li', {}, el('label', { class: 'check', title: words[nameOf(m)] }, box, key, nameOf(m))) };
    });
    fill(this.element, items.map((i) => i.item));
    this.element.hidden = items.length === 0;
    this.boxes = items.map((i) => i.box);
    this.tick();
  }

  tick() {
    if (this.methods) this.boxes.forEach((b) => { b.checked = this.shown().includes(b.value); });
  }

  choose() {
    this.chosen = null;
    const usual = this.shown().join(), ticked = this.boxes.filter((b) => b.checked).map((b) => b.value);
    if (ticked.join() !== usual) this.chosen = ticked;
    this.changed();
  }
}
