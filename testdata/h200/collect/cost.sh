#!/usr/bin/env bash
# What recording costs a decode whose launches the processor bounds, in TURNS turns: alone, with CUPTI's records that
# nobody reads (bare.c), between markers, recorded. BIN holds wattmark and libwattmark.so, OUT takes the results.
set -u
here=$(cd "$(dirname "$0")" && pwd); bin=$(cd "${BIN:?}" && pwd); mkdir -p "${OUT:?}"; out=$(cd "$OUT" && pwd)
work=$(mktemp -d); cp "$here/decode.py" "$work"; cd "$work" || exit 1
export WATTMARK_DB=$work/power.db WATTMARK_USER=lab HF_HUB_OFFLINE=1
cupti=$(python3 -c 'import nvidia,os;print(list(nvidia.__path__)[0])')
inc=$(dirname "$(find / -name cupti.h -not -path '/proc/*' 2>/dev/null | head -1)")
lib=$(find "$cupti" / -name 'libcupti.so.1*' -not -path '/proc/*' 2>/dev/null | head -1)
gcc -O2 -shared -fPIC -I"$inc" -I/usr/local/cuda/include -o bare.so "$here/bare.c" "$lib" -Wl,-rpath,"$(dirname "$lib")" || exit 1
decode() { echo "$1 $("${@:2}" 2>err | tee last | grep -o 'DECODE.*' || tail -3 err)" | tee -a "$out/cost.txt"; }
run() { # the words before "--name X" are of run, those behind it begin the program
  local flags=()
  while [ $# -gt 0 ]; do flags+=("$1"); [ "$1" = --name ] && { flags+=("$2"); shift 2; break; }; shift; done
  "$bin/wattmark" run --instrument nvml "${flags[@]}" -- "$@" python3 decode.py
}
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | tee -a "$out/cost.txt"
for _ in $(seq "${TURNS:-5}"); do
  for mode in ${MODES:-alone kernels thread tenth callback run auto}; do
    case $mode in
    alone) decode alone python3 decode.py ;;
    run) decode run run --name run ;;
    unranged) decode unranged run --auto --library "$bin/libwattmark.so" --name unranged env -u NVTX_INJECTION64_PATH ;;
    auto) decode auto run --auto --library "$bin/libwattmark.so" --name auto ;;
    auto=*) decode "$mode" run --"$mode" --library "$bin/libwattmark.so" --name "$mode" ;;
    *) decode "$mode" env BARE="$mode" CUDA_INJECTION64_PATH="$work/bare.so" python3 decode.py ;;
    esac
  done
done
"$bin/wattmark" show latest --ranges --no-plot | tail -30
