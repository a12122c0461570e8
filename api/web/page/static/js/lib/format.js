// Numbers as people read them. Values come from JSON: numbers, the texts "NaN" and
// "Infinity", whole numbers of 64 bits as text, or nothing where nothing is known.

/** none stands for what is not known. */
export const none = '–';

/** num reads a value of the API; NaN for what is not there. */
export const num = (v) => (v === undefined || v === null || v === '' ? NaN : Number(v));

/** @type {[number, string][]} */
const prefixes = [[1e9, 'G'], [1e6, 'M'], [1e3, 'k'], [1, ''], [1e-3, 'm'], [1e-6, 'µ'], [1e-9, 'n']];

/**
 * prefix returns [factor, letter] of the SI prefix that suits a size: 1 s, not 1000 ms, also a little below.
 * @param {number} size
 * @returns {[number, string]}
 */
export function prefix(size) {
  const v = Math.abs(size);
  if (!(v > 0) || v === Infinity) return [1, ''];
  return prefixes.find(([f]) => v >= f * 0.99995) ?? prefixes[prefixes.length - 1];
}

/** grouped writes a number with so many decimals and narrow spaces between thousands. */
export function grouped(v, decimals = 0) {
  const [whole, part] = Math.abs(v).toFixed(Math.min(20, Math.max(0, decimals))).split('.');
  const text = whole.replace(/\B(?=(\d{3})+$)/g, '\u202f') + (part ? `.${part}` : '');
  return v < 0 && /[1-9]/.test(text) ? `−${text}` : text;
}

/** digits tells how many decimals show so many significant digits of v. */
function digits(v, significant) {
  if (!(Math.abs(v) > 0)) return 0;
  return Math.max(0, significant - 1 - Math.floor(Math.log10(Math.abs(v)) + 1e-12));
}

/** quantity writes a value and its unit with so many significant digits. */
export function quantity(value, unit, significant = 4) {
  const v = num(value);
  if (Number.isNaN(v)) return none;
  if (!Number.isFinite(v)) return `${v < 0 ? '−' : ''}∞ ${unit}`;
  const [f, letter] = prefix(v);
  return `${grouped(v / f, digits(v / f, significant))} ${letter}${unit}`;
}

export const watts = (v, significant = 4) => {
  const w = num(v);
  if (Number.isNaN(w)) return none;
  // Watts of cards are read without prefixes from 0.1 on: 0.45 W, 1 250 W.
  return Math.abs(w) >= 0.1 && Math.abs(w) < 1e5 ? `${grouped(w, digits(w, significant))} W` : quantity(w, 'W', significant);
};
export const joules = (v, significant = 5) => quantity(v, 'J', significant);
export const seconds = (v, significant = 4) => {
  const s = num(v);
  if (!(s >= 120)) return quantity(s, 's', significant);
  const h = Math.floor(s / 3600), m = Math.floor((s % 3600) / 60), rest = s % 60;
  return (h ? `${h} h ` : '') + `${m} min ${rest.toFixed(h ? 0 : 1)} s`;
};
export const hertz = (v) => quantity(v, 'Hz', 4);

/** count writes how many. Text keeps all 64 bits. */
export const count = (v) => (v === undefined || v === null || v === '' ? none : String(v).replace(/\B(?=(\d{3})+$)/g, '\u202f'));

/**
 * energy writes {energy_j, energy_u_j} as E ± U: U with two digits, E with as many
 * decimals as U.
 */
export function energy(e) {
  const v = num(e?.energy_j), u = num(e?.energy_u_j);
  if (Number.isNaN(v)) return none;
  if (!(u > 0) || !Number.isFinite(u) || !Number.isFinite(v)) return joules(v) + (Number.isNaN(u) ? ' ± ?' : '');
  const [f, letter] = prefix(Math.max(Math.abs(v), u));
  const d = digits(u / f, 2);
  return `${grouped(v / f, d)} ± ${grouped(u / f, d)} ${letter}J`;
}

/** percent writes a share, as in 4.1 %. */
export const percent = (part, significant = 2) => (Number.isFinite(part) ? `${grouped(100 * part, digits(100 * part, significant))} %` : none);

/** ratio writes how many times something is something else. */
export const ratio = (v) => (Number.isFinite(v) ? `${grouped(v, digits(v, 4))} ×` : none);

/** many writes a number of things: many(2, 'gap') is 2 gaps. */
export const many = (n, thing) => `${count(n)} ${thing}${String(n) === '1' ? '' : 's'}`;

/** time writes an instant in the reader's own zone, to the second. */
export function time(text) {
  const d = new Date(text);
  if (!text || Number.isNaN(d.getTime())) return none;
  const p = (n) => String(n).padStart(2, '0');
  return `${d.getFullYear()}-${p(d.getMonth() + 1)}-${p(d.getDate())} ${p(d.getHours())}:${p(d.getMinutes())}:${p(d.getSeconds())}`;
}

/** word turns an enum's name into words: TASK_STATE_COMPLETE is complete. */
export const word = (name, front) => (name ?? '').replace(front, '').replaceAll('_', ' ').toLowerCase();

/** serials are the serial numbers of instruments that are read as one, of those that have one. */
export const serials = (text) => (text ?? '').split(' + ').filter(Boolean).join(' + ');
