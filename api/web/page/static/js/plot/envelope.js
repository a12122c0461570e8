// What a plot draws: least, greatest and mean power a column, as ReadEnvelope sends it.
/** Series is one rail: arrays that go together, by time. */
class Series {
  constructor(rail, t, min, max, mean) {
    this.rail = rail;
    this.t = t;
    this.min = min;
    this.max = max;
    this.mean = mean;
  }

  /** at returns the index of the column nearest to t; −1 when there is none within reach seconds. */
  at(t, reach = Infinity) {
    let lo = 0, hi = this.t.length;
    if (hi === 0) return -1;
    while (lo < hi) {
      const mid = (lo + hi) >> 1;
      if (this.t[mid] < t) lo = mid + 1;
      else hi = mid;
    }
    if (lo === this.t.length || (lo > 0 && t - this.t[lo - 1] < this.t[lo] - t)) lo--;
    return Math.abs(this.t[lo] - t) <= reach ? lo : -1;
  }
}

/** every is every third value from a first one on. */
const every = (values, first) => Float64Array.from({ length: Math.floor(values.length / 3) }, (_, i) => values[3 * i + first]);

/** envelope reads an answer of readEnvelope. Its times are moved by shift seconds. */
export function envelope(answer, shift = 0) {
  const from = answer.from_s, to = answer.to_s, width = (to - from) / answer.columns;
  return {
    from: from + shift, to: to + shift, width,
    single: answer.bin_samples === 1, // its columns rest on single samples
    series: answer.series.map((s) => new Series(
      s.rail, Float64Array.from(s.column, (c) => from + shift + (c + 0.5) * width), every(s.values, 0), every(s.values, 1), every(s.values, 2))),
  };
}

/** stack adds series up: one on the other by their means, column by column. */
export function stack(list) {
  const sums = new Map();
  return list.map((s) => {
    const low = new Float64Array(s.t.length), high = new Float64Array(s.t.length);
    s.t.forEach((t, i) => {
      low[i] = sums.get(t) ?? 0;
      high[i] = low[i] + (Number.isFinite(s.mean[i]) ? s.mean[i] : 0);
      sums.set(t, high[i]);
    });
    return new Series(s.rail, s.t, low, high, high);
  });
}

/**
 * bounds returns least and greatest watts of series within [from, to], and of the
 * columns beside it, to which lines lead.
 */
export function bounds(list, from, to) {
  let lo = Infinity, hi = -Infinity;
  for (const s of list) {
    for (let i = 0; i < s.t.length; i++) {
      if ((s.t[i + 1] ?? Infinity) < from || (s.t[i - 1] ?? -Infinity) > to) continue;
      if (s.min[i] < lo) lo = s.min[i];
      if (s.max[i] > hi) hi = s.max[i];
    }
  }
  return [lo, hi];
}

/**
 * until returns when the i-th of readings r = { t, value, until } ceases to hold: when the next
 * one was taken. The last one holds until r.until, when one was taken behind them; without,
 * it is a reading of its moment alone.
 */
export const until = (r, i) => r.t[i + 1] ?? (r.until > r.t[i] ? r.until : r.t[i]);

/** held returns the index of the reading that holds at a time; −1 where none does. */
export function held(r, t) {
  const i = r.t.findLastIndex((x) => x <= t);
  return i >= 0 && t <= until(r, i) && Number.isFinite(r.value[i]) ? i : -1;
}
