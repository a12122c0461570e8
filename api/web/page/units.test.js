// The page's arithmetic, by node --test (make lint, and TestUnits): how numbers are written, where ticks stand, what is
// drawn, how ranges lie within each other.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { count, energy, many, percent, prefix, quantity, seconds, time, watts, word } from './static/js/lib/format.js';
import { envelopeAnswer, envelopeRequest } from './static/js/lib/proto.js';
import { band, steps, track } from './static/js/plot/draw.js';
import { bounds, envelope, held, stack, until } from './static/js/plot/envelope.js';
import { instant, range, step, ticks, timeTicks } from './static/js/plot/scale.js';
import { grouping } from './static/js/views/groups.js';
import { each, length } from './static/js/views/windows.js';

const same = (name, list) => test(name, () => list.forEach(([got, want]) => assert.deepEqual(got, want)));

same('format', [
  [energy({ energy_j: 125.70844, energy_u_j: 4.13508 }), '125.7 ± 4.1 J'], [energy({ energy_j: 1012345.6, energy_u_j: 20999 }), '1.012 ± 0.021 MJ'],
  [energy({ energy_j: 0.00123, energy_u_j: 0.5 }), '1 ± 500 mJ'], [energy({ energy_j: -3.2, energy_u_j: 0.11 }), '−3.20 ± 0.11 J'],
  [energy({ energy_j: 9.996, energy_u_j: 0 }), '9.9960 J'], [energy({ energy_j: 5, energy_u_j: 'NaN' }), '5.0000 J ± ?'],
  [energy({ energy_j: 'NaN', energy_u_j: 1 }), '–'], [energy(undefined), '–'],
  [watts('Infinity'), '∞ W'], [watts(-0.00001), '−10.00 µW'], [watts(0), '0 W'], [watts(1234.5), '1\u202f235 W'],
  [seconds(0.99999), '1.0000 s'], [seconds(3725), '1 h 2 min 5 s'], [seconds(0.0000012), '1.200 µs'], [quantity(-1e12, 'J'), '−1\u202f000 GJ'],
  [count('9223372036854775807'), '9\u202f223\u202f372\u202f036\u202f854\u202f775\u202f807'], [many('1', 'gap'), '1 gap'], [many(2, 'gap'), '2 gaps'],
  [time('') + time('nonsense'), '––'], [word('TASK_STATE_COMPLETE', 'TASK_STATE_'), 'complete'], [percent(NaN), '–'], [percent(0.0412), '4.1 %'], [prefix(0), [1, '']],
]);

const texts = (t) => t.marks.map((m) => m.text).join();
same('scale', [
  [texts(timeTicks(0, 3600, 6)), '0:00 h,0:10 h,0:20 h,0:30 h,0:40 h,0:50 h,1:00 h'], [timeTicks(1800, 1800.000001, 2).base, '1\u202f800.00000 s +'],
  [texts(timeTicks(1800, 1800.000001, 2)), '0.0 µs,0.5 µs,1.0 µs'], [texts(timeTicks(-600, 600, 4)), '−10 min,−5 min,0 min,5 min,10 min'],
  [texts(timeTicks(100, 400, 6)), '2 min,3 min,4 min,5 min,6 min'], [timeTicks(1, 1, 5).marks.length, 0],
  [range(Infinity, -Infinity, true), [0, 1]], [range(0, 100, true), [0, 106]], [ticks(0, 300, 6).values, [0, 50, 100, 150, 200, 250, 300]], [step(1, 4), 0.5], [instant(NaN, 1), '–'],
]);

test('steps of an axis are round, and at most as many as there is room for', () => {
  for (let e = -9; e < 9; e++) {
    for (const m of [1, 1.7, 3, 6.66, 9.99]) {
      const s = step(m * 10 ** e, 7), { values } = ticks(0, m * 10 ** e, 7);
      assert.ok([1, 2, 5, 10].some((r) => Math.abs(s / 10 ** Math.floor(Math.log10(s) + 1e-9) - r) < 1e-6), `${s}`);
      assert.ok(values.length <= 8, `${m}e${e}: ${values.length}`);
    }
  }
});

const answer = { from_s: 0, to_s: 4, columns: 4, bin_samples: 1, series: [{ rail: 'x', column: [0, 1, 3], values: Float32Array.of(1, 2, 1, NaN, NaN, 1, 3, 9, 5) }] };
same('envelope', [
  [bounds(envelope(answer).series, 1.6, 2.4), [3, 9]], [[...stack(envelope(answer).series)[0].max], [1, 1, 5]],
  [[until({ t: [1, 2], until: 5 }, 0), until({ t: [1, 2], until: 5 }, 1), until({ t: [1, 2] }, 1), until({ t: [1, 2], until: NaN }, 1)], [2, 5, 2, 2]],
  [[0.5, 1.5, 2.5, 5.5].map((t) => held({ t: [1, 2], value: [7, 8], until: 5 }, t)), [-1, 0, 1, -1]],
]);

test('an envelope as it travels', () => {
  assert.deepEqual([...envelopeRequest({ task_id: 300, from_s: 0, to_s: 1, columns: 200, rails: ['a'] })], [8, 172, 2, 25, 0, 0, 0, 0, 0, 0, 240, 63, 32, 200, 1, 42, 1, 97, 48, 1]);
  const floats = [...new Uint8Array(Float32Array.of(1, 3, 2).buffer)], series = [10, 1, 97, 18, 1, 5, 58, 12, ...floats];
  const e = envelopeAnswer(Uint8Array.of(24, 10, 42, series.length, ...series));
  assert.deepEqual([e.columns, e.series[0].rail, e.series[0].column, [...e.series[0].values]], [10, 'a', [5], [1, 3, 2]]);
});

/** surface is a canvas of 100 by 50 pixels at a device pixel ratio, which counts how often each pixel is filled. */
function surface(ratio = 1) {
  const w = 100 * ratio, h = 50 * ratio, filled = new Uint8Array(w * h), written = [];
  const none = () => {};
  return {
    w, h, filled, written, lines: [], getTransform: () => ({ a: ratio }), beginPath: none, stroke: none, fill: none, arc: none, moveTo: none, setLineDash: none, closePath: none,
    lineTo(x, y) { this.lines.push([x, y]); }, measureText: (text) => ({ width: 6 * text.length }), fillText: (text) => written.push(text),
    fillRect(x, y, dx, dy) {
      for (let i = Math.round(x * ratio); i < Math.round((x + dx) * ratio); i++) {
        for (let k = Math.round(y * ratio); k < Math.round((y + dy) * ratio); k++) if (i >= 0 && i < w && k >= 0 && k < h) filled[k * w + i]++;
      }
    },
  };
}

/** tops draws columns at places with their watts, from 0 W up, and returns the highest row that is filled in each of the canvas's. */
function tops(at, watt, reach, ratio = 1) {
  const c = surface(ratio), mean = at.map((_, i) => watt(i));
  band(c, { t: at, min: mean.map((v) => 0 * v), max: mean, mean }, { from: 0, to: 100, X: (t) => t, Y: (v) => 50 - v, reach }, { colour: 'black', alpha: 1, line: 0 });
  return { c, tops: Array.from({ length: c.w }, (_, x) => { let y = 0; while (y < c.h && !c.filled[y * c.w + x]) y++; return y; }) };
}

test('bands have no hole and no stripe, at any pixel ratio and any distance of the columns', () => {
  for (const ratio of [1, 1.25, 2, 3]) {
    for (const apart of [0.03, 0.1, 0.4, 0.77, 1, 1.3, 1.99, 2.5, 2.97]) {
      const n = Math.ceil(110 / apart), { c } = tops(Array.from({ length: n }, (_, i) => i * apart), () => 20, 99, ratio);
      for (let x = 1; x < c.w - 1; x++) assert.equal(c.filled[Math.round(40 * ratio) * c.w + x], 1, `ratio ${ratio}, ${apart} apart: pixel ${x}`);
    }
  }
});

test('columns far narrower than a pixel keep their extremes; what is none is no part of a bar', () => {
  let t = tops(Array.from({ length: 1000 }, (_, i) => i / 10), (i) => (i === 333 ? 40 : 1), 99).tops;
  assert.deepEqual([t[33], t[32], t[34]], [10, 49, 49]);
  t = tops([10, 30, 31, 32, 70], () => 20, 5).tops;
  assert.deepEqual([t[10], t[20], t[31], t[70], t[71]], [30, 50, 30, 30, 50]);
  t = tops(Array.from({ length: 100 }, (_, i) => i), (i) => (i === 50 ? NaN : 20), 99).tops;
  assert.deepEqual([t[49], t[50], t[51]], [30, 50, 30]);
});

test('a reading is a step up to the edge of the view', () => {
  const c = surface();
  steps(c, { t: [0, 10], value: [5, 7], until: 200 }, { from: 2, to: 90, X: (t) => t, Y: (v) => 50 - v }, { colour: 'red', rim: 'white' });
  assert.deepEqual(c.lines, [[10, 45], [10, 45], [10, 43], [90, 43]]);
});

test('slices have their names where there is room, shortened where there is little', () => {
  const c = surface(), look = { ground: 'white', soft: 'grey', colourOf: () => 'blue' };
  const slices = [[0, 40, 'gemm'], [40, 80, 'ncclDevKernel_AllReduce'], [80, 90, 'short']].map(([from, to, name]) => ({ from, to, name, kernels: 1 }));
  track(c, { x: 0, y: 0, w: 100, h: 20 }, { from: 0, to: 100, X: (t) => t }, slices, look);
  assert.deepEqual(c.written, ['gemm', 'ncc…']);
});

test('groups of repeats: by side of a series, by name with the oldest first, else as they come', () => {
  const of = (...list) => grouping(list.map(([task_id, name, tags]) => ({ task_id: String(task_id), name, tags }))).map((g) => g.join()).join(';');
  assert.equal(of([11, 'b'], [10, 'a'], [9, 'b'], [8, 'a']), '8,10;9,11');
  assert.equal(of([2, 'new'], [1, 'old']), '2;1');
  assert.equal(of([5, 'x', { series: 's', side: 'B' }], [6, 'x', { series: 's', side: 'A' }]), '6;5');
});

globalThis.matchMedia ??= () => ({ matches: false, addEventListener() {} });
const { Trace } = await import('./static/js/views/live_trace.js'); // it asks for the theme at once
const moment = (t, w) => ({ at: new Date(1e12 + 1000 * t).toISOString(), t_s: t, capture_id: 'c', total_w: w, min_w: w - 1, max_w: w + 1, rails: [{ rail: 'aux', power_w: w / 2 }] });

test('two averages of 50 ms are one mean of the hour', () => {
  const trace = new Trace();
  for (let i = 1; i <= 5; i++) trace.add(moment(0.05 * i, 10 * i));
  assert.deepEqual([...trace.total], [15, 35, 50]);
  assert.deepEqual([...trace.min], [9, 29, 49]);
  assert.deepEqual([...trace.rails.get('aux').list], [7.5, 17.5, 25]);
  assert.deepEqual([...trace.t].map((t) => Math.round(1000 * (t - 1e9))), [50, 150, 225]);
});

test('an hour is kept, in room that does not grow', () => {
  const trace = new Trace(), room = trace.columns.t.room.length;
  for (let i = 1; i <= 90_000; i++) trace.add(moment(0.05 * i, i));
  assert.equal(trace.columns.t.room.length, room);
  assert.ok(trace.t.length > 36_000 && trace.t.length <= room && trace.total[trace.total.length - 1] === 89_999.5, `${trace.t.length} means, the last ${trace.total[trace.total.length - 1]}`);
  assert.ok(trace.t[0] > 1e9 + 4500 - 3600 - 125 && trace.t[0] <= 1e9 + 4500 - 3600, `from ${trace.t[0]} on`);
});

same('windows of a server', [
  [each({ per: [{ unit: 'tokens', energy: { energy_j: 0.0188, energy_u_j: 0.0013 } }] }), '18.8 ± 1.3 mJ by tokens'], [each({}), ''], [length({ time_s: 2, windows: '4' }), 0.5],
]);
