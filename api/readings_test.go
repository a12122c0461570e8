package api_test

import (
	"math"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"wattmark/api/internal/testdb"
	"wattmark/api/wattmarkv1"
	"wattmark/store"
)

func TestReadReadings(t *testing.T) {
	l := newLab(t)
	at := func(s float64) time.Time { return testdb.Launched.Add(time.Duration(s * 1e9)) }
	err := l.db.PutReadings(t.Context(), 1, []store.Reading{
		{Method: "nvml.instant", At: at(0.05), Value: 100},
		{Method: "nvml.instant", At: at(0.5), Value: math.NaN()},
		{Method: "nvml.instant", At: at(0.95), Value: 120},
		{Method: "gpu.temperature_c", At: at(0.5), Value: 40},
	})
	if err != nil {
		t.Fatal(err)
	}
	// No bounds are the window, 0.1 to 0.9 s; the reading before it holds in it.
	res, err := l.stub.ReadReadings(t.Context(), &wattmarkv1.ReadReadingsRequest{TaskId: 1, Methods: []string{"nvml.instant"}})
	if err != nil || len(res.Traces) != 1 || len(res.Methods) != 2 || !res.Unfitted || res.FromS != testdb.From || res.ToS != testdb.To {
		t.Fatalf("%v %v", res, err)
	}
	r := res.Traces[0]
	if len(r.TS) != 2 || math.Abs(r.TS[0]-0.05) > 1e-9 || r.Value[0] != 100 || !math.IsNaN(r.Value[1]) || r.Thinned || math.Abs(r.UntilS-0.95) > 1e-9 {
		t.Errorf("%v", r)
	}
	for _, c := range []struct {
		req  *wattmarkv1.ReadReadingsRequest
		code codes.Code
	}{
		{&wattmarkv1.ReadReadingsRequest{TaskId: 99}, codes.NotFound},
		{&wattmarkv1.ReadReadingsRequest{TaskId: 0}, codes.InvalidArgument},
		{&wattmarkv1.ReadReadingsRequest{TaskId: 1, MaxReadings: -1}, codes.InvalidArgument},
		{&wattmarkv1.ReadReadingsRequest{TaskId: 1, FromS: 2, ToS: 1}, codes.InvalidArgument},
	} {
		if _, err := l.stub.ReadReadings(t.Context(), c.req); status.Code(err) != c.code {
			t.Errorf("%v: %v", c.req, err)
		}
	}
}

// GetTask says what is stored, within which the window lies.
func TestExtent(t *testing.T) {
	l := newLab(t)
	res, err := l.stub.GetTask(t.Context(), &wattmarkv1.GetTaskRequest{TaskId: 1})
	if err != nil || res.Extent.GetFromS() != 0 || math.Abs(res.Extent.GetToS()-1) > 1e-9 {
		t.Errorf("%v %v", res.GetExtent(), err)
	}
}
