#!/usr/bin/env bash
# Marks amid work on a real GPU, measured by the card's own sensor: in the rests between bursts, and while it
# is busy. BIN holds wattmark, OUT takes the results.
set -u
root=$(cd "$(dirname "$0")/../../.." && pwd); bin=$(cd "${BIN:?}" && pwd); mkdir -p "${OUT:?}"; out=$(cd "$OUT" && pwd)
cd "$(mktemp -d)" || exit 1
export WATTMARK_DB=$PWD/power.db WATTMARK_USER=lab
log() { sed "s|$root/||g" | tee -a "$out/amid.txt"; }
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | log
try() { # name, options of run, program
  name=$1 options=$2; shift 2
  echo "== $name: run $options -- $*" | log
  "$bin/wattmark" run --instrument nvml --name "$name" $options --json -- "$@" >"$out/$name-run.json" 2>err || { tail -5 err | log; }
  "$bin/wattmark" show latest --no-plot 2>&1 | log
  "$bin/wattmark" show latest --json | gzip -9 >"$out/$name.json.gz"
  "$bin/wattmark" export latest --format csv -o "$out/$name.csv" >/dev/null 2>&1 && gzip -9f "$out/$name.csv"
}
here=$root/testdata/h200/collect
try rests "--mark-every 26s" python3 "$here/bursts.py" 130 5 20
try never "--mark-every 26s" python3 "$here/bursts.py" 60 60 0
try busy "--mark-every 26s --mark-busy" python3 "$here/bursts.py" 110 110 0
try halves "--mark-every 26s --mark-busy" python3 "$here/bursts.py" 110 2 2
