// Axes: where ticks stand and what is written at them.
import { grouped } from '../lib/format.js';

/** step returns the round step (1, 2 or 5 times a power of ten) of at most n steps in a span. */
export function step(span, n) {
  const raw = span / Math.max(1, n);
  const power = 10 ** Math.floor(Math.log10(raw));
  const m = raw / power;
  return power * (m <= 1.0001 ? 1 : m <= 2.0001 ? 2 : m <= 5.0001 ? 5 : 10);
}

// Minutes and hours go by sixty.
const clockSteps = [60, 120, 300, 600, 1200, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

/** timeStep is step for seconds. */
function timeStep(span, n) {
  const s = step(span, n);
  return s < 50 ? s : clockSteps.find((c) => c >= span / n) ?? step(span / 86400, n) * 86400;
}

/** ticks returns round values within [from, to], and their step. */
export function ticks(from, to, n, stepOf = step) {
  if (!(to > from) || !Number.isFinite(to - from)) return { step: 0, values: [] };
  const s = stepOf(to - from, n);
  const values = [];
  const first = Math.ceil(from / s - 1e-9);
  for (let i = 0; i <= 2 * n + 2; i++) {
    const v = (first + i) * s;
    if (v > to + s * 1e-9) break;
    values.push(v);
  }
  return { step: s, values };
}

const decimals = (s) => Math.max(0, -Math.floor(Math.log10(s) + 1e-9));

/**
 * timeTicks labels a span of seconds. Where the span is so short that labels would
 * be long and alike, they count from a base, which is written once.
 */
export function timeTicks(from, to, n) {
  const { step: s, values } = ticks(from, to, n, timeStep);
  if (s === 0) return { base: '', marks: [] };
  const largest = Math.max(Math.abs(from), Math.abs(to));
  if (s >= 60) return { base: '', marks: values.map((t) => ({ t, text: clock(t, largest >= 3600) })) };
  const [f, unit] = s >= 0.1 ? [1, 's'] : s >= 1e-4 ? [1e-3, 'ms'] : s >= 1e-7 ? [1e-6, 'µs'] : [1e-9, 'ns'];
  // Up to six figures are read at a glance.
  if (largest / s < 1e5) {
    return { base: '', marks: values.map((t) => ({ t, text: `${grouped(t / f, decimals(s / f))} ${unit}` })) };
  }
  const large = 10 ** Math.ceil(Math.log10(s * n * 10));
  const base = Math.floor(from / large) * large;
  return {
    base: `${grouped(base, decimals(large))} s +`,
    marks: values.map((t) => ({ t, text: `${grouped((t - base) / f, decimals(s / f))} ${unit}` })),
  };
}

/** clock writes minutes, from an hour on hours and minutes. long says that the axis reaches hours. */
function clock(t, long) {
  if (!long) return `${grouped(t / 60, 0)} min`;
  const v = Math.abs(t), h = Math.floor(v / 3600 + 1e-9), m = Math.floor((v - 3600 * h) / 60 + 1e-9);
  return `${t < 0 ? '−' : ''}${h}:${String(m).padStart(2, '0')} h`;
}

/** instant writes a device time as finely as a span of the view calls for. */
export function instant(t, span) {
  if (!Number.isFinite(t)) return '–';
  const d = Math.min(9, Math.max(3, Math.ceil(-Math.log10(span / 2000))));
  return grouped(t, Number.isFinite(d) ? d : 6) + ' s';
}

/** range returns the watts that an axis shows for values within [lo, hi]. */
export function range(lo, hi, zero) {
  if (!(hi >= lo)) return [0, 1];
  if (zero) {
    lo = Math.min(0, lo);
    hi = Math.max(0, hi);
  }
  const room = (hi - lo) * 0.06 || Math.abs(hi) * 0.1 || 1;
  return [zero && lo === 0 ? 0 : lo - room, zero && hi === 0 ? 0 : hi + room];
}
