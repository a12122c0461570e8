// The spectrum of the last second of a bench.
import { el, fill } from '../lib/dom.js';
import { grouped, hertz, watts } from '../lib/format.js';
import { spectrumSketch } from './sketch.js';

/** fft transforms real values in place: re and im have a power of two. */
function fft(re, im) {
  const n = re.length;
  for (let i = 1, j = 0; i < n; i++) {
    let bit = n >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) [re[i], re[j], im[i], im[j]] = [re[j], re[i], im[j], im[i]];
  }
  for (let len = 2; len <= n; len *= 2) {
    for (let i = 0; i < n; i += len) {
      for (let k = 0; k < len / 2; k++) {
        const [c, s] = [Math.cos((-2 * Math.PI * k) / len), Math.sin((-2 * Math.PI * k) / len)], a = i + k, b = a + len / 2;
        const x = re[b] * c - im[b] * s, y = re[b] * s + im[b] * c;
        [re[b], im[b], re[a], im[a]] = [re[a] - x, im[a] - y, re[a] + x, im[a] + y];
      }
    }
  }
}

/** amplitudes are the amplitudes of values that lie step seconds apart, by frequency: [{ f, a }], through a Hann window, without the mean. */
export function amplitudes(values, step) {
  const n = 2 ** Math.floor(Math.log2(values.length));
  if (n < 64) return [];
  const used = values.slice(-n), mean = used.reduce((s, v) => s + v, 0) / n, re = new Float64Array(n), im = new Float64Array(n);
  used.forEach((v, i) => { re[i] = (v - mean) * (1 - Math.cos((2 * Math.PI * i) / n)); }); // a Hann window of mean 1
  fft(re, im);
  return Array.from({ length: n / 2 - 1 }, (_, k) => ({ f: (k + 1) / (n * step), a: (2 / n) * Math.hypot(re[k + 1], im[k + 1]) }));
}

/** Spectrum is folded away until it is wanted; tick() draws it anew. */
export class Spectrum {
  constructor(trace) {
    this.trace = trace;
    this.body = el('div');
    this.element = el('details', { on: { toggle: () => this.tick() } }, el('summary', {}, 'Spectrum of the last second'), this.body);
  }

  tick() {
    if (!this.element.open) return;
    const { step, values } = this.trace.latest(1), list = amplitudes(values, step);
    if (!list.length) {
      fill(this.body, el('p', { class: 'soft' }, 'No course of the last second: nobody samples the bench, or its monitor is an older one.'));
      return;
    }
    // Leakage of the window makes neighbours large too: a peak is larger than both.
    const peaks = list.filter((p, i) => i > 0 && p.a > list[i - 1].a && p.a >= (list[i + 1]?.a ?? 0)).sort((p, q) => q.a - p.a).slice(0, 3);
    fill(this.body, spectrumSketch(list), el('p', { class: 'soft' }, `Largest: ${peaks.map((p) => `${hertz(p.f)}, ${watts(p.a, 3)}`).join(' · ')}. Amplitudes of the total’s means over ${grouped(1e3 * step, 2)} ms, Hann window; ${grouped(1 / (list.length * 2 * step), 2)} Hz apart.`));
  }
}
