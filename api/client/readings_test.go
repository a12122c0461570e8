package client

import (
	"math"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"wattmark/api/internal/testdb"
)

func TestReadings(t *testing.T) {
	c := connect(t)
	all, err := c.Readings(t.Context(), 3, Span{}, 0)
	if err != nil || len(all.Traces) != 2 || len(all.Methods) != 2 || !all.Unfitted || all.From != testdb.From || all.To != testdb.To {
		t.Fatalf("%+v %v", all, err)
	}
	some, err := c.Readings(t.Context(), 3, Span{From: 0.25, To: 0.5}, 0, "nvml.instant", "none")
	if err != nil || len(some.Traces) != 1 || len(some.Methods) != 2 {
		t.Fatalf("%+v %v", some, err)
	}
	r := some.Traces[0]
	if r.Method != "nvml.instant" || r.Thinned || len(r.Readings) != 3 || math.Abs(float64(r.Readings[0].At)-0.2) > 1e-9 || r.Readings[2].Value != 140 {
		t.Errorf("%+v", r)
	}
	if thin, err := c.Readings(t.Context(), 3, Span{}, 2, "nvml.instant"); err != nil || !thin.Traces[0].Thinned {
		t.Errorf("%+v %v", thin, err)
	}
	if none, err := c.Readings(t.Context(), 1, Span{}, 0); err != nil || len(none.Traces) != 0 {
		t.Errorf("a task without readings: %+v %v", none, err)
	}
	if _, err := c.Readings(t.Context(), 99, Span{}, 0); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
	if _, err := c.Readings(t.Context(), 3, Span{}, -1); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
}
