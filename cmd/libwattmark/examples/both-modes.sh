#!/usr/bin/env bash
# Measures on a real GPU without a daemon and through one, with the GPU's own sensor
# as the meter; then kills a program amid its measurement, and the daemon of another. Run it in
# the repository's root, on a machine with a driver and a C compiler; without Go, BIN names
# the folder of wattmark and libwattmark.so.
set -euo pipefail
unset WATTMARK_DB WATTMARK_USER # the daemon says where
bin=${BIN:-bin}
[ -n "${BIN:-}" ] || make build lib
dir=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$dir"' EXIT
export LD_LIBRARY_PATH=$(cd "$bin" && pwd)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} WATTMARK_HOST=unix:$dir/host.sock WATTMARK_MONITOR=127.0.0.1:7561
for p in plain cost; do
  cc -O2 -Icmd/libwattmark -o "$dir/$p" cmd/libwattmark/examples/$p.c -L"$bin" -lwattmark
done
"$bin"/wattmark monitor --instrument nvml --gpu 0 --listen 127.0.0.1:7561 --spool "$dir/spool" 2>"$dir/monitor.log" &
host() { "$bin"/wattmark host --db "$dir/power.db" --socket "$dir/host.sock" --listen 127.0.0.1:0 2>>"$dir/host.log" & hostpid=$!; until [ -S "$dir/host.sock" ] && grep -q "measuring for programs" "$dir/host.log"; do sleep 0.1; done; }
host
for mode in "$WATTMARK_HOST" none; do
  echo "== WATTMARK_HOST=$mode"
  for p in plain cost; do (cd "$dir" && WATTMARK_HOST=$mode "./$p") || echo "exit code $?"; done
done
echo "== a program is killed amid its measurement"
"$dir/plain" & sleep 1.5; kill -9 $! || true
sleep 5 # the monitor ends a capture when a slow sensor's last readings are in
echo "== the daemon is killed amid a measurement"
"$dir/plain" & program=$!; sleep 1.5; kill -9 "$hostpid"; wait "$program" || echo "exit code $?"
: >"$dir/host.log"; host; sleep 35
"$bin"/wattmark tasks --db "$dir/power.db"
cat "$dir/host.log"
