package client

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/wattmark/wattmark/api/internal/testdb"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
)

func connect(t *testing.T) *Client {
	t.Helper()
	address, stop, err := testdb.Serve(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	c, err := Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestTasksByPage(t *testing.T) {
	c := connect(t)
	for _, q := range []struct {
		query Query
		want  string
	}{
		{Query{}, "3:bob/gemm 2:ada/axpy 1:ada/gemm"},
		{Query{Page: 1}, "3:bob/gemm 2:ada/axpy 1:ada/gemm"},
		{Query{User: "ada", Page: 1}, "2:ada/axpy 1:ada/gemm"},
		{Query{Name: "gemm"}, "3:bob/gemm 1:ada/gemm"},
		{Query{Name: "ax*"}, "2:ada/axpy"},
		{Query{Since: testdb.Launched.Add(1), User: "ada"}, "2:ada/axpy"},
		{Query{Until: testdb.Launched}, ""},
	} {
		var got []string
		for task, err := range c.Tasks(t.Context(), q.query) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(rune('0'+task.ID))+":"+task.User+"/"+task.Name)
		}
		if s := strings.Join(got, " "); s != q.want {
			t.Errorf("%+v: got %q, want %q", q.query, s, q.want)
		}
	}
	for range c.Tasks(t.Context(), Query{Page: 1}) {
		break // leaving early must not hang or fail
	}
	for _, err := range c.Tasks(t.Context(), Query{Since: testdb.Launched, Until: testdb.Launched}) {
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("an empty span of time: %v", err)
		}
	}
}

func TestTaskSamplesAndChunksAgree(t *testing.T) {
	c := connect(t)
	d, err := c.Task(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(testdb.Setup(), *d.Setup); diff != "" {
		t.Error(diff)
	}
	if d.State != Complete || d.From != testdb.From || d.To != testdb.To || d.FirstScan != 1000 || d.Window.Gaps != 1 ||
		d.Window.Lost != testdb.GapScans || len(d.Markers) != 2 || len(d.Events) != 1 || d.Rails[0].Role != measure.RolePSU ||
		*d.NVML != 100 || d.Instrument.Kind != "powersensor3" || d.Stored != testdb.Scans-testdb.GapScans {
		t.Errorf("got %+v", d)
	}
	var v float64
	for _, c := range d.Budget {
		v += float64(c.U * c.U)
	}
	if u := 2 * math.Sqrt(v); len(d.Budget) == 0 || math.Abs(u-float64(d.Window.Energy.U)) > 0.01*u || !d.Started.Equal(testdb.Launched) || d.Job != "" {
		t.Errorf("budget %v of U %v, started %v", d.Budget, d.Window.Energy.U, d.Started)
	}
	joules, n, last, gaps := 0.0, uint64(0), Batch{}, 0
	for item, err := range c.Samples(t.Context(), 1, Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		if item.Event != nil {
			gaps++
			continue
		}
		joules += trapezoid(&last, item.Batch)
		n += uint64(len(item.Batch.Time))
		last = *item.Batch
	}
	if gaps != 1 || n != d.Window.Samples {
		t.Errorf("%d gaps and %d samples, want 1 and %d", gaps, n, d.Window.Samples)
	}
	if want := float64(d.Window.Energy.Energy); math.Abs(joules-want) > 1e-9*want {
		t.Errorf("trapezoid over the samples: %v J, the task says %v J", joules, want)
	}
	samplesFromChunks(t, c, d)
}

// trapezoid integrates a batch and the step from the one before it.
func trapezoid(before, b *Batch) (joules float64) {
	time, power := b.Time, b.Power
	if n := len(before.Time); n > 0 {
		time, power = append(before.Time[n-1:n:n], time...), append(before.Power[n-1:n:n], power...)
	}
	for i := 1; i < len(time); i++ {
		joules += float64(time[i]-time[i-1]) * float64(power[i]+power[i-1]) / 2
	}
	return joules
}

// samplesFromChunks decodes the raw chunks and checks every count.
func samplesFromChunks(t *testing.T, c *Client, d Detail) {
	t.Helper()
	var block measure.Block
	scans := 0
	for item, err := range c.Chunks(t.Context(), d.ID, d.Setup, Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		if item.Chunk == nil {
			continue
		}
		if err := chunk.Decode(item.Chunk, d.Setup.Timebase, len(d.Setup.Channels), &block); err != nil {
			t.Fatal(err)
		}
		for i := range block.Scans() {
			scans++
			want := testdb.Counts(block.FirstScan + uint64(i))
			if got := [3]measure.Count{block.Counts[0][i], block.Counts[1][i], block.Counts[2][i]}; got != want {
				t.Fatalf("scan %d: counts %v, want %v", block.FirstScan+uint64(i), got, want)
			}
		}
	}
	if scans < int(d.Window.Samples) {
		t.Errorf("%d scans in the chunks, %d in the window", scans, d.Window.Samples)
	}
}

func TestSamplesCanBeLeftAndCancelled(t *testing.T) {
	c := connect(t)
	for item, err := range c.Samples(t.Context(), 1, Range{From: 5, Limit: 3}) {
		if err != nil || item.Batch == nil || item.Batch.FirstSeq != 5 || len(item.Batch.Time) != 3 {
			t.Errorf("got %+v, %v", item, err)
		}
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range c.Samples(ctx, 1, Range{}) {
		if status.Code(err) != codes.Canceled {
			t.Errorf("cancelled: %v", err)
		}
	}
	for _, err := range c.Chunks(t.Context(), 1, nil, Range{}) {
		if err == nil {
			t.Error("chunks without a setup")
		}
	}
}

func TestUsersAndDelete(t *testing.T) {
	c := connect(t)
	users, err := c.Users(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]User{{"ada", 2}, {"bob", 1}}, users); diff != "" {
		t.Error(diff)
	}
	if err := c.Delete(t.Context(), 1); err != nil {
		t.Error(err)
	}
	if _, err := c.Task(t.Context(), 1); status.Code(err) != codes.NotFound {
		t.Errorf("a deleted task: %v", err)
	}
	if n, err := c.DeleteByName(t.Context(), "gemm"); n != 1 || err != nil {
		t.Errorf("deleted %d, %v; want 1", n, err)
	}
	if n, err := c.DeleteByUser(t.Context(), "ada"); n != 1 || err != nil {
		t.Errorf("deleted %d, %v; want 1", n, err)
	}
	if err := c.Delete(t.Context(), 1); status.Code(err) != codes.NotFound {
		t.Errorf("deleted twice: %v", err)
	}
}

func TestDialNobody(t *testing.T) {
	c, err := Dial("unix:" + t.TempDir() + "/nobody")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Users(t.Context()); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, want UNAVAILABLE", err)
	}
	if _, err := Dial("no\x00target%"); err == nil {
		t.Error("dialled rubbish")
	}
}

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

// The word of an enum is its name without the enum's own; a later version's has its number.
func TestWord(t *testing.T) {
	for want, v := range map[string]protoreflect.Enum{
		"complete": Complete, "unspecified": NotJudged, "list_anew": ListAnew, "duration": ByDuration, "kernel": PerKernel,
		"77": State(77),
	} {
		if got := Word(v); got != want {
			t.Errorf("%v is %q, want %q", v, got, want)
		}
	}
}
