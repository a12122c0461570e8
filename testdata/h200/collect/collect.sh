#!/usr/bin/env bash
# Makes the recordings and figures of this folder on a machine with a GPU, nvcc and
# PyTorch. BIN holds wattmark and libwattmark.so, OUT takes the results.
#   BIN=bin OUT=out testdata/h200/collect/collect.sh library auto pulse
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
bin=$(cd "${BIN:?}" && pwd)
mkdir -p "${OUT:?}"; out=$(cd "$OUT" && pwd)
work=$(mktemp -d)
export PATH=$bin:$PATH LD_LIBRARY_PATH=$bin:${LD_LIBRARY_PATH:-} PYTHONPATH=$root/api/python/src WATTMARK_LIBRARY=$bin/libwattmark.so
export WATTMARK_DB=$work/power.db WATTMARK_USER=lab
cd "$work" || exit

build() { nvcc -O2 -arch=native -I"$root/cmd/libwattmark" -o "$(basename "$1" .cu)" "$1" -L"$bin" -lwattmark; }
say() { printf '\n== %s (%ds)\n' "$*" "$SECONDS"; }
monitor() { # the GPU's own sensor is the meter
  wattmark monitor --instrument nvml --listen 127.0.0.1:7551 --spool "$work/spool" >"$out/monitor.log" 2>&1 &
  trap 'kill %1 2>/dev/null' EXIT
  for _ in $(seq 50); do grep -q 'serving the bench' "$out/monitor.log" && return; sleep 0.1; done
  cat "$out/monitor.log"; exit 1
}

marks() { say "what a mark costs"; build "$here/markers.cu" && ./markers; }

library() {
  for f in "$root"/cmd/libwattmark/examples/{matmul,vectoradd,streams}.cu; do
    say "$(basename "$f")"; build "$f" && ./"$(basename "$f" .cu)"
  done
  marks
  say python; python3 "$here/gemm.py"
}

auto() {
  for f in launches together; do build "$here/$f.cu"; done
  for _ in 1 2; do # alternately, so that a drift shows
    say "launches, alone"; ./launches
    say "launches, recorded and between markers"; wattmark run --auto --json --name launches -- ./launches >launches.json; grep -o '{"kernels".*' launches.json; summary launches.json
  done
  say "launches, a few bracketed"; wattmark run --auto --json --kernel nothing --one-in 100000 --at-most 1 --name bracketed -- ./launches >bracketed.json; grep -o '{"kernels".*' bracketed.json; summary bracketed.json
  say together; wattmark run --auto --json --name together -- ./together >together.json; grep -o '{"kernels".*' together.json; summary together.json
  cp ./*.json "$out"
}
train() {
  say pytorch; wattmark run --auto --json --name train -- python3 "$here/train.py" 4 >train.json; grep -o "{'steps.*" train.json; summary train.json
  wattmark export "$(tasks train)" -o "$out/train.pftrace"
  wattmark show "$(tasks train)" --kernels --no-plot | tee "$out/train.txt"
  cp train.json "$out"
}
summary() {
  python3 - "$1" <<'P'
import json, sys
text = open(sys.argv[1]).read()
r = json.loads(text[text.index("{\n"):])
k = r["kernels"]
print({"state": r["state"], "recorded": k["recorded"], "reported": k["reported"], "dropped": k["dropped"], "energy_j": r.get("energy_j"),
       "sum_j": sum(l["energy_j"] for l in k["lines"]), "warnings": k.get("warnings")})
P
}
tasks() { wattmark tasks --name "$1" --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["tasks"][-1]["task_id"])'; }

pulse() { # the energy counter is the truth; with and without its calls beside the others
  say pulse; wattmark pulse --no-meter --duration 10s --svg "$out/pulse.svg" --json | tee "$out/pulse.json"
  say "pulse, another phase"; wattmark pulse --no-meter --on 45ms --off 55ms --duration 10s --svg "$out/pulse45.svg"
  say "pulse, the counter left alone"; wattmark pulse --no-meter --no-counter --duration 3s --svg "$out/alone.svg"
}

tiny() {
  for method in repeat contrast; do
    say "tiny, $method"; wattmark tiny --scheme "$method" --benchmark compute --length 1ms --until-u 0.1 --json | tee "$out/tiny-$method.json"
  done
}

instructions() { # one pass of all; SEED orders them
  say instructions; wattmark instructions run --passes 1 --seed "${SEED:-1}" --output "$out/pass${SEED:-1}.jsonl"
}

sensor() {
  say "sensor, loads"; wattmark sensor load --save --output "$out/sensor" --svg "$out/sensor.svg"
  for length in 50ms 20ms; do say "sensor, $length"; wattmark sensor run --benchmark memory --kernel "$length"; done
}

predict() {
  for kernel in vectoradd matmul; do
    say "predict, $kernel"; wattmark predict sweep --kernel "$kernel" --csv "$out/$kernel.csv" --svg "$out/$kernel.svg" --json >"$out/$kernel.json" && tail -c 600 "$out/$kernel.json"
  done
}

roofline() {
  say roofline; wattmark roofline sweep --rounds 1,4,12,28,64,256,1024 --duration 4s --name h200 --svg "$out/roofline.svg" --json >"$out/roofline.json" && head -c 1500 "$out/roofline.json"
}

validate() { # no outside meter here: methods are held against the sensor's own trace
  say validate; wattmark run --benchmark memory --pulse 50ms --duration 5s --name judged --json >/dev/null; wattmark validate "$(tasks judged)" --html "$out/validate.html" --svg "$out/validate.svg"
}

modes() { say "the daemon and embedded"; (cd "$root" && BIN=$bin CC=cc cmd/libwattmark/examples/both-modes.sh); }

several() { # each GPU is its own meter
  local i
  for i in $(nvidia-smi --query-gpu=index --format=csv,noheader); do
    wattmark monitor --instrument nvml --gpu "$i" --listen "127.0.0.1:756$i" --spool "$work/spool$i" >"$out/monitor$i.log" 2>&1 &
    list=${list:+$list,}127.0.0.1:756$i
  done
  sleep 3; say "several GPUs"
  wattmark run --gpus all --monitor "$list" --benchmark memory --duration 5s --name pair | tee "$out/pair.txt"
  wattmark run --gpus all --monitor "$list" --json --name halves -- python3 "$here/halves.py" >"$out/halves.json"; tail -c 1500 "$out/halves.json"
  wattmark show --group 1; wattmark show --group 2
  kill $(jobs -p)
}

monitor
nvidia-smi --query-gpu=name,uuid,driver_version,clocks.sm,temperature.gpu --format=csv | tee "$out/gpu.txt"
for part in "$@"; do "$part"; done
