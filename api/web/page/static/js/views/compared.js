// A task beside others: where its time zero lies, and what is asked of it.
import { givenUp, latest } from '../lib/api.js';
import { num } from '../lib/format.js';
import { envelope } from '../plot/envelope.js';
import { related } from './task_parts.js';

/** aligns are the instants that time can count from, of each task. */
export const aligns = [['window', 'begin of the window'], ['marker', 'start marker'], ['first', 'first sample']];

export class Compared {
  /** answer is GetTask's; index is of its group and gives the colour, group what that is called. */
  constructor(answer, index, group) {
    this.answer = answer;
    this.task = answer.task;
    this.id = answer.task.task_id;
    this.index = index;
    this.title = `${this.id} ${this.task.name.length > 24 ? `${this.task.name.slice(0, 23)}…` : this.task.name}`;
    this.label = `${group}${group && ' '}${this.title}`;
    this.rails = (answer.setup?.rails ?? []).map((r) => r.name);
    const span = (w) => (w ? [num(w.from_s), num(w.to_s)] : null);
    this.extent = span(answer.extent);
    this.window = span(answer.window);
    const tb = answer.setup?.timebase;
    this.period = tb ? num(tb.ticks_per_scan) / num(tb.tick_hz) : 0;
    this.asked = latest();
    this.energy = latest();
    this.ran = latest();
    this.timeline = null; // what ReadTimeline says of what is in view
    this.between = null; // what ReadEnergy says between the cursors, or { message }
    this.colour = (look) => look.series[index % look.series.length];
    this.place('window');
  }

  close() {
    this.asked.stop();
    this.energy.stop();
    this.ran.stop();
  }

  /** place puts time zero; what a task has not gives way to the next best. */
  place(align) {
    const start = (this.answer.markers ?? []).find((m) => m.kind === 'MARKER_KIND_START');
    const marker = start ? num(start.t_s) : undefined;
    const first = this.extent?.[0] ?? 0, window = this.window?.[0];
    this.zero = { window: window ?? marker ?? first, marker: marker ?? window ?? first, first }[align];
  }

  /** question is ReadEnvelope's for a span of the common time. */
  question(from, to, pixels, rail) {
    const pad = to - from < pixels * this.period ? 2 * this.period : 0;
    return {
      task_id: this.id, from_s: from + this.zero - pad, to_s: to + this.zero + pad, rails: [this.rails.length === 1 ? this.rails[0] : rail === 'total' || this.rails.includes(rail) ? rail : 'total'],
      columns: Math.max(200, Math.min(8192, Math.round(pixels * Math.min(4, 1 + (2 * pad) / (to - from))))),
    };
  }

  /** see asks for what is in view of the common time, in the task's own: its columns, and, with ran, its kernels. */
  async see(from, to, pixels, rail, ran, shown) {
    const question = this.question(from, to, pixels, rail);
    const { from_s, to_s } = question;
    await Promise.all([
      this.asked.envelope(question).then((e) => { this.seen = envelope(e, -this.zero); shown(); }, (e) => {
        if (givenUp(e)) return;
        this.seen = null;
        shown(e);
      }),
      ran && related(this.answer) && this.ran.get(`/v1/tasks/${this.id}/timeline`, { from_s, to_s, max_slices: Math.min(2000, pixels) }).then((t) => { this.timeline = t; shown(); }, (e) => {
        if (!givenUp(e)) this.timeline = null;
      }),
    ]);
  }

  /** ask reads the energy between two common times. */
  async ask(from, to) {
    const [a, b] = [from + this.zero, to + this.zero];
    if (!this.extent || a < this.extent[0] || b > this.extent[1]) {
      this.between = { message: 'no samples there' };
      return;
    }
    try {
      this.between = await this.energy.get(`/v1/tasks/${this.id}/energy`, { from_s: a, to_s: b });
    } catch (e) {
      if (!givenUp(e)) this.between = { message: e.message };
    }
  }
}
