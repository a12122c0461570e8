package exchange_test

import (
	"bytes"
	"iter"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/attribute"
	"github.com/wattmark/wattmark/store/exchange/proftrace"
)

// Perfetto reads an annotated trace: energies are arguments of slices, powers a counter.
func TestAnnotatedTraceByPerfetto(t *testing.T) {
	const trace = `{"schemaVersion": 1, "baseTimeNanoseconds": 1790857026000000000, "traceEvents": [
		{"ph": "X", "cat": "user_annotation", "name": "step", "pid": 485, "tid": 485, "ts": 4874869259900.000, "dur": 50, "args": {"External id": 1}},
		{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 4874869259950.001, "dur": 100.5,
		 "args": {"device": 0, "stream": 7, "correlation": 7, "grid": [1, 2, 3], "block": [32, 1, 1]}}]}`
	marks := proftrace.Marks{
		Events:   map[int]attribute.Mark{0: {Share: part(0.5, 0.1), Busy: 1e-4}, 1: {Share: part(0.25, 0.125), Busy: 1e-4}},
		Counters: []string{"power"}, Fault: func() error { return nil },
		Powers: iter.Seq2[int64, []measure.Watt](func(yield func(int64, []measure.Watt) bool) {
			_ = yield(1790857026000000000+4874869259960000, []measure.Watt{123.5})
		}),
	}
	var b bytes.Buffer
	if err := proftrace.Write(&b, strings.NewReader(trace), marks); err != nil {
		t.Fatal(err)
	}
	got := askProcessor(t, b.Bytes(),
		`SELECT s.name, EXTRACT_ARG(s.arg_set_id, 'args.energy_j') e, EXTRACT_ARG(s.arg_set_id, 'args.energy_u_j') u FROM slice s ORDER BY s.ts`,
		`SELECT value FROM counter`, `SELECT count(*) n FROM stats WHERE severity='error' AND value>0`)
	want := [][]answerRow{
		{{"name": "step", "e": 0.5, "u": 0.1}, {"name": "gemm", "e": 0.25, "u": 0.125}}, {{"value": 123.5}}, {{"n": "0"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func part(energy, u measure.Joule) measure.Share {
	return measure.Share{Estimate: measure.Estimate{Energy: energy, U: u}}
}
