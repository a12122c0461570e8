package api_test

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wattmark/wattmark/api/client"
	"github.com/wattmark/wattmark/api/internal/testdb"
	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// watts is the power of a scan of the test database.
func watts(scan uint64) (aux, slot float64) {
	c := testdb.Counts(scan)
	return 0.01 * float64(c[0]) * 0.005 * float64(c[1]), 1 + 0.5*float64(c[2])
}

func TestReadEnvelope(t *testing.T) {
	l := newLab(t)
	res, err := l.stub.ReadEnvelope(t.Context(), &pb.ReadEnvelopeRequest{TaskId: 1, FromS: 0.2, ToS: 0.21, Columns: 10, Rails: []string{"slot", store.Total}})
	if err != nil {
		t.Fatal(err)
	}
	if res.Columns != 10 || res.BinSamples != 1 || res.FromS != 0.2 || res.ToS != 0.21 || len(res.Series) != 2 || res.Series[0].Rail != "slot" || res.Series[1].Rail != store.Total {
		t.Fatalf("%v", res)
	}
	for c := range res.Series[0].Column {
		least, most, sum := math.Inf(1), 0.0, 0.0
		for scan := 2000 + 10*c; scan < 2010+10*c; scan++ {
			_, slot := watts(uint64(scan))
			least, most, sum = min(least, slot), max(most, slot), sum+slot
		}
		s := res.Series[0]
		if s.Column[c] != uint32(c) || s.MinW[c] != least || s.MaxW[c] != most || math.Abs(s.MeanW[c]-sum/10) > 1e-9 || s.Samples[c] != 10 {
			t.Errorf("column %d: %v %v %v %v %v, want %v %v %v", c, s.Column[c], s.MinW[c], s.MaxW[c], s.MeanW[c], s.Samples[c], least, most, sum/10)
		}
	}
	// Columns within the gap are left out; the window is what is meant by no bounds.
	res, err = l.stub.ReadEnvelope(t.Context(), &pb.ReadEnvelopeRequest{TaskId: 1, Columns: 800})
	if err != nil || res.FromS != testdb.From || res.ToS != testdb.To || len(res.Series) != 3 {
		t.Fatalf("%v %v", res, err)
	}
	if n := len(res.Series[0].Column); n > 792 || n < 788 {
		t.Errorf("%d of 800 columns, of which 10 lie in the gap", n)
	}
}

func TestReadEnergy(t *testing.T) {
	l := newLab(t)
	whole, err := l.stub.ReadEnergy(t.Context(), &pb.ReadEnergyRequest{TaskId: 1})
	if err != nil {
		t.Fatal(err)
	}
	if task := taskOf(t, l, 1); math.Abs(whole.Energy.EnergyJ-task.Energy.EnergyJ) > 1e-9 || whole.Samples != task.Samples || whole.Gaps != 1 || whole.Lost != testdb.GapScans {
		t.Errorf("the window: %v, the task says %v", whole, task)
	}
	part, err := l.stub.ReadEnergy(t.Context(), &pb.ReadEnergyRequest{TaskId: 1, FromS: 0.2, ToS: 0.3})
	if err != nil {
		t.Fatal(err)
	}
	want := 0.0
	for scan := uint64(2000); scan < 3000; scan++ {
		a0, s0 := watts(scan)
		a1, s1 := watts(scan + 1)
		want += (a0 + s0 + a1 + s1) / 2 / testdb.Scans
	}
	if math.Abs(part.Energy.EnergyJ-want) > 1e-9 || part.Energy.EnergyUJ <= 0 || len(part.Rails) != 2 || len(part.Budget) == 0 || math.Abs(part.MeanW-10*want) > 1e-6 {
		t.Errorf("%v, want %v J", part, want)
	}
}

func TestReadTimelineAndAggregate(t *testing.T) {
	l := newLab(t)
	begun := testdb.Launched // of task 1, when device time is zero
	if err := l.db.PutKernels(t.Context(), 1, []store.Kernel{{Name: "gemm", Start: begun.Add(time.Second / 4), End: begun.Add(time.Second / 2)}}); err != nil {
		t.Fatal(err)
	}
	line, err := l.stub.ReadTimeline(t.Context(), &pb.ReadTimelineRequest{TaskId: 1})
	if err != nil || len(line.Slices) != 1 || line.Slices[0].FromS != 0.25 || line.Slices[0].ToS != 0.5 || line.Slices[0].Name != "gemm" || !line.Unfitted {
		t.Errorf("%v %v", line, err)
	}
	sum, err := l.stub.Aggregate(t.Context(), &pb.AggregateRequest{By: pb.AggregateBy_AGGREGATE_BY_USER, Name: "g*", Limit: 1})
	if err != nil || sum.RowCount != 2 || len(sum.Rows) != 1 || sum.Rows[0].Totals.Tasks != 1 || sum.Totals.Tasks != 2 {
		t.Errorf("%v %v", sum, err)
	}
}

// The energy by kernel name has readable names, and adds up to its sum; a task without a record has none.
func TestReadKernels(t *testing.T) {
	l := newLab(t)
	if err := testdb.Record(t.Context(), l.db, 10); err != nil {
		t.Fatal(err)
	}
	k, err := l.stub.ReadKernels(t.Context(), &pb.ReadKernelsRequest{TaskId: 1})
	if err != nil || len(k.Lines) != 5 || k.SumJ != 100 || k.Recorded != 12 || k.Result != 1 {
		t.Fatalf("%v %v", k, err)
	}
	first, flash, axpy := k.Lines[0], k.Lines[1], k.Lines[2]
	if first.Name != "gemm" || first.Symbol != "_Z4gemmi" || first.Energy.EnergyJ != 40 || first.GetMeanW() != 200 || flash.Name != "flash<float>" || axpy.GetPerCallJ() != 1 || axpy.Symbol != "" {
		t.Errorf("%v", k.Lines)
	}
	if k.Lines[4].PerCallJ != 0 || k.Lines[4].Class != "idle" {
		t.Errorf("%v", k.Lines[4])
	}
	if k, err := l.stub.ReadKernels(t.Context(), &pb.ReadKernelsRequest{TaskId: 2}); err != nil || len(k.Lines) != 0 || k.Recorded != 0 {
		t.Errorf("without a record: %v %v", k, err)
	}
	if err := l.db.PutNameEnergies(t.Context(), 1, 1, nil); err != nil {
		t.Fatal(err)
	}
	if k, err := l.stub.ReadKernels(t.Context(), &pb.ReadKernelsRequest{TaskId: 1}); err != nil || len(k.Lines) != 0 || k.Recorded != 12 || k.SumJ != 0 {
		t.Errorf("not divided: %v %v", k, err)
	}
	if _, err := l.stub.ReadKernels(t.Context(), &pb.ReadKernelsRequest{TaskId: 99}); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
}

// Whatever is asked of a span that cannot be is refused, naming the field.
func TestSpansRefuse(t *testing.T) {
	l := newLab(t)
	bare := int64(l.begin("x", "ada"))
	ctx, s := context.Background(), l.stub
	type span struct {
		task     int64
		from, to float64
	}
	for _, c := range []struct {
		span
		code  codes.Code
		field string
	}{
		{span{0, 0, 0}, codes.InvalidArgument, "task_id"},
		{span{-1, 0, 0}, codes.InvalidArgument, "task_id"},
		{span{1, math.NaN(), 1}, codes.InvalidArgument, "from_s"},
		{span{1, 0, math.Inf(1)}, codes.InvalidArgument, "to_s"},
		{span{1, 0.5, 0.4}, codes.InvalidArgument, "to_s"},
		{span{1, 1e300, 2e300}, codes.InvalidArgument, "from_s"},
		{span{99, 0, 0}, codes.NotFound, ""},
		{span{99, 0.1, 0.2}, codes.NotFound, ""},
		{span{bare, 0, 0}, codes.FailedPrecondition, ""},
	} {
		_, envelope := s.ReadEnvelope(ctx, &pb.ReadEnvelopeRequest{TaskId: c.task, FromS: c.from, ToS: c.to})
		_, energy := s.ReadEnergy(ctx, &pb.ReadEnergyRequest{TaskId: c.task, FromS: c.from, ToS: c.to})
		_, timeline := s.ReadTimeline(ctx, &pb.ReadTimelineRequest{TaskId: c.task, FromS: c.from, ToS: c.to})
		for what, err := range map[string]error{"envelope": envelope, "energy": energy, "timeline": timeline} {
			if status.Code(err) != c.code || !strings.HasPrefix(status.Convert(err).Message(), c.field) {
				t.Errorf("%s of %+v: %v, want %v of %q", what, c.span, err, c.code, c.field)
			}
		}
	}
	refused := func(field string, err error) {
		t.Helper()
		if status.Code(err) != codes.InvalidArgument || !strings.HasPrefix(status.Convert(err).Message(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, n := range []int32{-1, maxColumns + 1} {
		_, err := s.ReadEnvelope(ctx, &pb.ReadEnvelopeRequest{TaskId: 1, Columns: n})
		refused("columns", err)
	}
	_, err := s.ReadEnvelope(ctx, &pb.ReadEnvelopeRequest{TaskId: 1, Rails: []string{"slot", "nope"}})
	refused("rails[1]", err)
	_, err = s.ReadEnergy(ctx, &pb.ReadEnergyRequest{TaskId: 1, FromS: 5, ToS: 6})
	refused("from_s", err)
	_, err = s.ReadTimeline(ctx, &pb.ReadTimelineRequest{TaskId: 1, MaxSlices: 1 << 30})
	refused("max_slices", err)
	_, err = s.Aggregate(ctx, &pb.AggregateRequest{})
	refused("by", err)
	_, err = s.Aggregate(ctx, &pb.AggregateRequest{By: 1, Limit: -2})
	refused("limit", err)
	_, err = s.Aggregate(ctx, &pb.AggregateRequest{By: 2, UtcOffsetMin: 5000})
	refused("utc_offset_min", err)
	_, err = s.Aggregate(ctx, &pb.AggregateRequest{By: 2, MaxEnergyJ: -2})
	refused("max_energy_j", err)
}

const maxColumns = 8192

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
	res, err := l.stub.ReadReadings(t.Context(), &pb.ReadReadingsRequest{TaskId: 1, Methods: []string{"nvml.instant"}})
	if err != nil || len(res.Traces) != 1 || len(res.Methods) != 2 || !res.Unfitted || res.FromS != testdb.From || res.ToS != testdb.To {
		t.Fatalf("%v %v", res, err)
	}
	r := res.Traces[0]
	if len(r.TS) != 2 || math.Abs(r.TS[0]-0.05) > 1e-9 || r.Value[0] != 100 || !math.IsNaN(r.Value[1]) || r.Thinned || math.Abs(r.UntilS-0.95) > 1e-9 {
		t.Errorf("%v", r)
	}
	for _, c := range []struct {
		req  *pb.ReadReadingsRequest
		code codes.Code
	}{
		{&pb.ReadReadingsRequest{TaskId: 99}, codes.NotFound},
		{&pb.ReadReadingsRequest{TaskId: 0}, codes.InvalidArgument},
		{&pb.ReadReadingsRequest{TaskId: 1, MaxReadings: -1}, codes.InvalidArgument},
		{&pb.ReadReadingsRequest{TaskId: 1, FromS: 2, ToS: 1}, codes.InvalidArgument},
	} {
		if _, err := l.stub.ReadReadings(t.Context(), c.req); status.Code(err) != c.code {
			t.Errorf("%v: %v", c.req, err)
		}
	}
}

// GetTask says what is stored, within which the window lies.
func TestExtent(t *testing.T) {
	l := newLab(t)
	res, err := l.stub.GetTask(t.Context(), &pb.GetTaskRequest{TaskId: 1})
	if err != nil || res.Extent.GetFromS() != 0 || math.Abs(res.Extent.GetToS()-1) > 1e-9 {
		t.Errorf("%v %v", res.GetExtent(), err)
	}
}

// A task that was recalculated can be read under either calibration.
func TestTwoResults(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	address, stop, err := testdb.Serve(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	c, err := client.Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	db, err := store.Open(ctx, filepath.Join(dir, "power.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	was, err := db.Task(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	now := was.Setup
	now.Channels = slices.Clone(now.Channels)
	now.Channels[0].Gain *= 2
	now.Records = []measure.CalibrationRecord{{ID: "abcd", Text: "{}"}}
	r := *was.Result
	r.Total.Energy *= 2
	if _, _, err := db.AddResult(ctx, 1, now, &r); err != nil {
		t.Fatal(err)
	}
	first := func(number uint32) (measure.Joule, measure.Ampere) {
		t.Helper()
		d, err := c.TaskResult(ctx, 1, number)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Results) != 2 || d.Results[0].InUse || !d.Results[1].InUse || d.Results[1].Energy != r.Total {
			t.Errorf("%+v", d.Results)
		}
		for item, err := range c.Samples(ctx, 1, client.Range{Limit: 1, Result: number}) {
			if err != nil {
				t.Fatal(err)
			}
			return d.Window.Energy.Energy, item.Batch.Rails[0].Current[0]
		}
		return 0, 0
	}
	e0, i0 := first(0)
	e1, i1 := first(1)
	e2, i2 := first(2)
	if e1 != was.Result.Total.Energy || e2 != r.Total.Energy || e0 != e2 || i2 != 2*i1 || i0 != i2 {
		t.Errorf("in use %v, %v; original %v, %v; recalculated %v, %v", e0, i0, e1, i1, e2, i2)
	}
	if d, err := c.Task(ctx, 1); err != nil || d.Result != 2 || len(d.Setup.Records) != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := c.TaskResult(ctx, 1, 3); status.Code(err) != codes.NotFound {
		t.Errorf("a result that is not there: %v", err)
	}
	for _, err := range c.Samples(ctx, 1, client.Range{Result: 3}) {
		if status.Code(err) != codes.NotFound {
			t.Errorf("samples of a result that is not there: %v", err)
		}
	}
}
