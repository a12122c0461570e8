// Perfetto's trace processor, as WebAssembly for its page's worker, run in Node:
//
//   node processor.mjs DIR TRACE <queries.json
//
// DIR has trace_processor.wasm, engine_bundle.node.js (the worker) and engine.mjs (its
// client). Queries are a list of SQL texts; the answers are a list of lists of rows.
import fs from "node:fs";
import path from "node:path";
import vm from "node:vm";
import { pathToFileURL } from "node:url";

const [dir, trace] = process.argv.slice(2);
const queries = JSON.parse(fs.readFileSync(0, "utf8"));
console.log = console.warn = (...a) => process.stderr.write(a.map(String).join(" ") + "\n");

// What a worker finds around it.
const file = (name) => path.join(dir, name);
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = function () {};
Object.defineProperty(globalThis, "location", { value: { href: pathToFileURL(dir).href + "/" }, configurable: true });
globalThis.wasmBytes = fs.readFileSync(file("trace_processor.wasm"));
let worker = fs.readFileSync(file("engine_bundle.node.js"), "utf8");
for (const [was, is] of [
  ["= hasMemory64Support();", "= false;"], // the one for 32 bits is what is here
  ["locateFile: (s) => s,", "locateFile: (s) => s, wasmBinary: globalThis.wasmBytes,"],
  ["const wasmBridge = new", "const wasmBridge = globalThis.bridge = new"],
]) {
  if (!worker.includes(was)) throw new Error("the worker is another than this was made for: it has no " + was);
  worker = worker.replace(was, is);
}
vm.runInThisContext(worker);
while (bridge.reqBufferAddr === undefined) await new Promise((f) => setImmediate(f));

const { EngineBase } = await import(pathToFileURL(file("engine.mjs")));
class Engine extends EngineBase {
  mode = "WASM";
  id = "processor";
  rpcSendRequestBytes(data) {
    port.onmessage({ data });
  }
  [Symbol.dispose]() {}
}
const engine = new Engine();
// Replies come as from another thread: after the request has returned.
const port = { postMessage: (data) => queueMicrotask(() => engine.onRpcResponseBytes(data)) };
bridge.initialize(port);

await engine.parse(new Uint8Array(fs.readFileSync(trace)));
await engine.notifyEof();
const answers = [];
for (const q of queries) {
  const result = await engine.query(q);
  if (result.error()) throw new Error(`${q}: ${result.error()}`);
  const rows = [];
  for (const i = result.iter({}); i.valid(); i.next()) {
    rows.push(Object.fromEntries(result.columns().map((c) => [c, i.get(c)])));
  }
  answers.push(rows);
}
// Nanoseconds since 1970 are too large for a number.
process.stdout.write(JSON.stringify(answers, (_, v) => (typeof v === "bigint" ? String(v) : v)));
