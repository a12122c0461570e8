#!/usr/bin/env bash
# A program's own profiler beside run --auto: its kernels with and without, joules in its trace, ranges of a training
# step. BIN holds wattmark and libwattmark.so, OUT takes the results; needs a GPU and PyTorch.
set -u
here=$(cd "$(dirname "$0")" && pwd); bin=$(cd "${BIN:?}" && pwd); mkdir -p "${OUT:?}"; out=$(cd "$OUT" && pwd)
work=$(mktemp -d); cp "$here/selfprofile.py" "$work"; cd "$work" || exit 1
export WATTMARK_DB=$work/power.db WATTMARK_USER=lab
auto() { "$bin/wattmark" run --instrument nvml --auto --library "$bin/libwattmark.so" --json --name "$1" -- python3 selfprofile.py "$1" "auto-$1.json" >"$1.out" 2>"$1.err"; }
counts() {
  grep -h "own prof" "$1.out" "$1.err"
  python3 - "$1.out" <<'P'
import json, sys
t = open(sys.argv[1]).read()
k = json.loads(t[t.index("{\n"):])["kernels"]
print({x: k[x] for x in ("recorded", "reported", "dropped")}, [w for w in k.get("warnings", []) if "process" in w])
P
}
{
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
  for mode in once twice early; do
    echo "== alone, $mode"; python3 selfprofile.py "$mode" "alone-$mode.json" 2>&1 | tail -1
    echo "== run --auto, $mode"; auto "$mode" || tail -5 "$mode.err"; counts "$mode"
  done
  for n in 1 2 3; do
    echo "== task $n"; "$bin/wattmark" show "$n" --ranges --no-plot | sed -n '/Energy by range/,$p'
    for t in auto-once auto-twice auto-early; do "$bin/wattmark" annotate "$n" --trace "$t.json" -o "$n-$t.json" 2>&1 | sed -n 1,14p; done
  done
} 2>&1 | tee "$out/share.txt"
gzip -9c auto-once.json >"$out/trace.json.gz"; gzip -9c 1-auto-once.json >"$out/joules.json.gz"; gzip -9c power.db >"$out/power.db.gz"
