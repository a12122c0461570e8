// A task beside others: where its time zero lies, and what is asked of it.
import { ApiError } from '../lib/api.js';
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
    this.timeline = null; // what ReadTimeline says of what is in view
    this.between = null; // what ReadEnergy says between the cursors, or { message }
    this.colour = (look) => look.series[index % look.series.length];
    this.place('window');
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

  /** calls are what to ask for of what is in view of the common time, in the task's own: its columns, and, with ran, its kernels. */
  calls(from, to, pixels, rail, ran) {
    const question = this.question(from, to, pixels, rail), { from_s, to_s } = question;
    this.asksKernels = Boolean(ran && related(this.answer));
    return [{ envelope: question }, ...(this.asksKernels ? [{ path: `/v1/tasks/${this.id}/timeline`, params: { from_s, to_s, max_slices: Math.min(2000, pixels) } }] : [])];
  }

  /** take takes the answers to calls. */
  take([seen, timeline]) {
    this.seen = seen instanceof ApiError ? null : envelope(seen, -this.zero);
    if (this.asksKernels) this.timeline = timeline instanceof ApiError ? null : timeline;
  }

  /** spanOf is two common times in the task's own; null where it has no samples all over. */
  spanOf(from, to) {
    const [a, b] = [from + this.zero, to + this.zero];
    return this.extent && a >= this.extent[0] && b <= this.extent[1] ? { from_s: a, to_s: b } : null;
  }
}
