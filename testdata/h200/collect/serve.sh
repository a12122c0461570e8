#!/usr/bin/env bash
# The example server at three loads, measured by the card's own sensor. BIN holds wattmark, OUT takes the results.
set -u
root=$(cd "$(dirname "$0")/../../.." && pwd); bin=$(cd "${BIN:?}" && pwd); mkdir -p "${OUT:?}"; out=$(cd "$OUT" && pwd)
cd "$(mktemp -d)" || exit 1
export WATTMARK_DB=$PWD/power.db WATTMARK_USER=lab HF_HUB_OFFLINE=1 PYTHONPATH=$root/api/python/src
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | tee -a "$out/serve.txt"
for rate in ${RATES:-1 4 16}; do
  "$bin/wattmark" run --instrument nvml --name "serve-$rate" -- python3 "$root/cmd/libwattmark/examples/serve.py" \
    --rate "$rate" --seconds "${SECONDS_EACH:-40}" 2>err | tee last | grep requests | sed "s|^|rate $rate: |" | tee -a "$out/serve.txt"
  [ -s last ] || tail -5 err
  "$bin/wattmark" show latest --windows --no-plot | sed -n '/^ rail/,/^$/p; /^  quality/p; /^Energy by window/,$p' | tee -a "$out/serve.txt"
  "$bin/wattmark" show latest --windows --json | gzip -9 >"$out/serve-$rate.json.gz"
done
