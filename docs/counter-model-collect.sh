#!/bin/sh
# Collects counters (ncu) and powers (wattmark run) of generated kernels for a model:
#   counter-model-collect.sh DIR [fma|mad|ex2|f64|fp16 ...]
# It wants a monitor that serves (wattmark monitor --instrument nvml will do), ncu in
# the PATH, and leave to read counters. A kernel takes some 40 s with NVML's slow markers; what is
# there already is kept. Afterwards:
#   wattmark model fit DIR/*.csv --by-file --rows app --power DIR/power.txt --name h200
set -eu
export LC_ALL=C
W=${WATTMARK:-wattmark} OUT=$1; shift; [ $# -gt 0 ] || set -- fma mad ex2 f64 fp16
mkdir -p "$OUT"; export WATTMARK_DB="$OUT/power.db"; [ -f "$OUT/power.txt" ] || echo name,power_w >"$OUT/power.txt"
known=$(ncu --query-metrics 2>/dev/null | awk 'NF > 2 { print $1 }'); metrics=gpu__time_duration.sum
for m in $("$W" model plan --source ncu --per-run 0 | sed -n 's/.*--metrics \([^ ]*\) .*/\1/p' | tr , ' '); do
  if echo "$known" | grep -qx "${m%.sum}"; then metrics=$metrics,$m; else echo "this GPU has no $m" >&2; fi
done
ptx() { # op loads: a loop of 16 operations and so many 16-byte loads all over 1 GiB
  case $1 in fma) code='fma.rn.f32 %f1, %f1, %f2, %f3;' ;; mad) code='mad.lo.s32 %r6, %r6, %r2, %r3;' ;; ex2) code='ex2.approx.f32 %f1, %f1;' ;;
    f64) code='fma.rn.f64 %d1, %d1, %d2, %d2;' ;; fp16) code='fma.rn.f16x2 %r6, %r6, %r2, %r3;' ;; esac
  printf '%s\n' '.version 7.0' '.target sm_70' '.address_size 64' '
  .visible .entry wk(.param .u64 p, .param .u32 n) { .reg .b64 %a<6>; .reg .b32 %r<12>; .reg .f32 %f<10>; .reg .f64 %d<4>; .reg .pred %p<3>;
  ld.param.u64 %a1, [p]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r7, %nctaid.x;
  mad.lo.u32 %r5, %r3, %r4, %r2; mul.wide.u32 %a2, %r5, 16; mul.lo.u32 %r8, %r7, %r4; mul.wide.u32 %a3, %r8, 16; mov.u32 %r6, %r5;
  cvt.rn.f32.u32 %f1, %r5; mov.f32 %f2, 0f3F7FFF00; mov.f32 %f3, 0f38D1B717; cvt.f64.f32 %d1, %f1; cvt.f64.f32 %d2, %f2; mov.f32 %f8, 0f00000000;
L:'
  for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do echo "  $code"; done
  i=0; while [ $i -lt "$2" ]; do i=$((i + 1)); echo '  and.b64 %a4, %a2, 1073741808; add.u64 %a5, %a1, %a4; add.u64 %a2, %a2, %a3;
  ld.global.cg.v4.f32 {%f4, %f5, %f6, %f7}, [%a5]; add.f32 %f8, %f8, %f4;'; done
  echo '  sub.u32 %r1, %r1, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra L; cvt.rn.f32.f64 %f9, %d1; add.f32 %f9, %f9, %f1; add.f32 %f9, %f9, %f8;
  cvt.rn.f32.s32 %f4, %r6; add.f32 %f9, %f9, %f4; setp.eq.f32 %p2, %f9, 0f42F6E979; @%p2 st.global.f32 [%a1], %f9; ret; }'
}
for op; do for loads in 0 1 4; do for grid in 132 1056; do
  k=$op-$loads-$grid; [ ! -f "$OUT/$k.csv" ] || continue
  ptx "$op" "$loads" >"$OUT/$k.ptx"
  run() { "$@" "$W" run --no-methods --json --name "$k" --ptx "$OUT/$k.ptx" --grid "$grid" --block 256 --buffer 1073741824 --scalar "$((20000 / (1 + 5 * loads)))" --repeat "$repeat"; }
  repeat=1000; run env >"$OUT/$k.json"; watts=$(sed -n 's/^  "mean_w": \([0-9.]*\).*/\1/p' "$OUT/$k.json")
  repeat=3; run ncu --csv --page raw --print-units base --clock-control none --kernel-name wk --metrics "$metrics" --log-file "$OUT/$k.part" >/dev/null || [ $? -eq 3 ]
  echo "$k,$watts" >>"$OUT/power.txt"; mv "$OUT/$k.part" "$OUT/$k.csv"
done; done; done
