// Just enough of Protocol Buffers for the answers that are long: columns of power as 32-bit
// floats. Field numbers are those of proto/wattmark/v1/task.proto.

/** message writes fields [number, kind, value], kind one of 'int', 'double', 'text'; what is 0 or empty is left out. */
export function message(fields) {
  const out = [];
  const varint = (v) => {
    for (; v > 127; v = Math.floor(v / 128)) out.push((v % 128) + 128);
    out.push(v);
  };
  for (const [number, kind, value] of fields) {
    if (!value) continue;
    varint(number * 8 + { int: 0, double: 1, text: 2 }[kind]);
    if (kind === 'int') varint(Number(value));
    if (kind === 'double') out.push(...new Uint8Array(new Float64Array([value]).buffer));
    if (kind === 'text') {
      const b = new TextEncoder().encode(value);
      varint(b.length);
      out.push(...b);
    }
  }
  return new Uint8Array(out);
}

/** fields yields [number, value] of a message: numbers, and bytes of all that has a length. */
function* fields(b) {
  const view = new DataView(b.buffer, b.byteOffset, b.byteLength);
  let at = 0;
  const varint = () => {
    let v = 0;
    for (let m = 1; ; m *= 128) {
      const x = b[at++];
      v += (x & 127) * m;
      if (x < 128) return v;
    }
  };
  while (at < b.length) {
    const tag = varint(), kind = tag % 8, number = Math.floor(tag / 8);
    if (kind === 0) yield [number, varint()];
    else if (kind === 1) yield [number, view.getFloat64((at += 8) - 8, true)];
    else if (kind === 5) yield [number, view.getFloat32((at += 4) - 4, true)];
    else {
      const n = varint();
      yield [number, b.subarray(at, at += n)];
    }
  }
}

function varints(b) {
  const out = [];
  let v = 0, m = 1;
  for (const x of b) {
    v += (x & 127) * m;
    m *= 128;
    if (x < 128) {
      out.push(v);
      [v, m] = [0, 1];
    }
  }
  return out;
}

/** envelopeRequest writes a ReadEnvelopeRequest that wants floats. */
export const envelopeRequest = ({ task_id, from_s, to_s, columns, rails = [] }) => message([
  [1, 'int', task_id], [2, 'double', from_s], [3, 'double', to_s], [4, 'int', columns], ...rails.map((r) => [5, 'text', r]), [6, 'int', 1]]);

/** envelopeAnswer reads a ReadEnvelopeResponse: { from_s, to_s, columns, bin_samples, series: [{ rail, column, values }] }. */
export function envelopeAnswer(bytes) {
  const out = { from_s: 0, to_s: 0, columns: 0, bin_samples: 0, series: [] };
  for (const [n, v] of fields(bytes)) {
    if (n <= 4) out[['from_s', 'to_s', 'columns', 'bin_samples'][n - 1]] = v;
    if (n !== 5) continue;
    const s = { rail: '', column: [], values: new Float32Array() };
    for (const [m, x] of fields(v)) {
      if (m === 1) s.rail = new TextDecoder().decode(x);
      if (m === 2) s.column = varints(x);
      if (m === 7) s.values = new Float32Array(x.slice().buffer); // both are little-endian
    }
    out.series.push(s);
  }
  return out;
}
