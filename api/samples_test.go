package api

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
)

// read collects a stream.
func read(t testing.TB, client pb.TaskServiceClient, req *pb.ReadSamplesRequest) ([]*pb.ReadSamplesResponse, error) {
	t.Helper()
	stream, err := client.ReadSamples(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	var out []*pb.ReadSamplesResponse
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, m)
	}
}

// place is what a stream looks like from afar: events and runs of samples.
type place struct {
	event     pb.EventKind
	from, end uint64 // sequence numbers
}

func (p place) String() string {
	if p.event != 0 {
		return p.event.String()
	}
	return fmt.Sprintf("%d–%d", p.from, p.end)
}

// shape checks each batch against the physics and joins batches that follow one another.
func shape(t *testing.T, s measure.Setup, base uint64, zero float64, items []*pb.ReadSamplesResponse) []place {
	t.Helper()
	var out []place
	for _, m := range items {
		if e := m.GetEvent(); e != nil {
			out = append(out, place{event: e.Kind})
			continue
		}
		b := m.GetSamples()
		n := uint64(len(b.GetTS()))
		if n == 0 || n > maxBatch {
			t.Fatalf("a batch of %d samples", n)
		}
		checkBatch(t, s, base, zero, b)
		if k := len(out) - 1; k >= 0 && out[k].event == 0 && out[k].end == b.FirstSeq {
			out[k].end += n
			continue
		}
		out = append(out, place{from: b.FirstSeq, end: b.FirstSeq + n})
	}
	return out
}

// checkBatch works out every value anew from the formulas of the two rails.
func checkBatch(t *testing.T, s measure.Setup, base uint64, zero float64, b *pb.SampleBatch) {
	t.Helper()
	near := func(what string, i int, got, want float64) {
		if math.Abs(got-want) > 1e-9*math.Max(1, math.Abs(want)) {
			t.Fatalf("sample %d: %s is %v, want %v", b.FirstSeq+uint64(i), what, got, want)
		}
	}
	if len(b.Rails) != 2 || b.Rails[0].Rail != "pcie_12v" || b.Rails[1].Rail != "gpu" || len(b.Rails[1].CurrentA) != 0 || len(b.Rails[1].VoltageV) != 0 {
		t.Fatalf("rails: %v", b.Rails)
	}
	for i := range b.TS {
		scan := base + b.FirstSeq + uint64(i)
		c := counts(scan)
		vs, vg := 0.5+1e-3*float64(c[0]), 1e-3*float64(c[1])
		amps, watts := (vs-vg)/5e-3, 1+0.25*float64(c[2])
		near("time", i, b.TS[i], float64(tickOf(s, scan))/1e6-zero)
		near("current", i, b.Rails[0].CurrentA[i], amps)
		near("voltage", i, b.Rails[0].VoltageV[i], vg)
		near("rail power", i, b.Rails[0].PowerW[i], amps*vg)
		near("gpu power", i, b.Rails[1].PowerW[i], watts)
		near("power", i, b.PowerW[i], amps*vg+watts)
	}
}

const (
	gap  = pb.EventKind_EVENT_KIND_GAP
	over = pb.EventKind_EVENT_KIND_OVER_RANGE
	note = pb.EventKind_EVENT_KIND_NOTE
)

func TestReadSamplesCalibrated(t *testing.T) {
	db := fakeDB(t)
	client := serve(t, db)
	for _, c := range []struct {
		name        string
		task        int64
		from, limit uint64
		want        []place
	}{
		{"window", 1, 0, 0, []place{{from: 0, end: 2000}, {event: over}, {from: 2000, end: 4000}, {event: gap}, {from: 4500, end: 10000}}},
		{"middle of the over-range", 1, 2001, 10, []place{{event: over}, {from: 2001, end: 2011}}},
		{"after the over-range", 1, 2002, 10, []place{{from: 2002, end: 2012}}},
		{"one sample", 1, 0, 1, []place{{from: 0, end: 1}}},
		{"up to the gap", 1, 3990, 10, []place{{from: 3990, end: 4000}}},
		{"into the gap", 1, 3990, 11, []place{{from: 3990, end: 4000}, {event: gap}}},
		{"within the gap", 1, 4100, 50, []place{{event: gap}}},
		{"out of the gap", 1, 4100, 450, []place{{event: gap}, {from: 4500, end: 4550}}},
		{"the last", 1, 9999, 0, []place{{from: 9999, end: 10000}}},
		{"past the last", 1, 10000, 0, nil},
		{"far past the last", 1, math.MaxUint64, math.MaxUint64, nil},
		{"range that would wrap", 1, 9990, math.MaxUint64, []place{{from: 9990, end: 10000}}},
		{"no window", 2, 0, 0, []place{{from: 0, end: 2100}, {event: over}, {from: 2100, end: 4100}, {event: gap}, {from: 4600, end: 10600}, {event: note}, {from: 10600, end: 11100}}},
		{"no window, some", 2, 4599, 2, []place{{event: gap}, {from: 4600, end: 4601}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			items, err := read(t, client, &pb.ReadSamplesRequest{TaskId: c.task, FromSeq: c.from, Limit: c.limit})
			if err != nil {
				t.Fatal(err)
			}
			task := db.tasks[c.task-1]
			base, zero := uint64(900), 0.0
			if task.Result != nil {
				base, zero = 1000, 0.1
			}
			got := shape(t, task.Setup, base, zero, items)
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("got  %v\nwant %v", got, c.want)
			}
		})
	}
}

func TestReadSamplesRaw(t *testing.T) {
	db := fakeDB(t)
	client := serve(t, db)
	// Chunks begin at scans 900, 2400, 3900, 5500, 7000, 8500, 10000 and 11500 (numbers 3 to 10).
	for _, c := range []struct {
		name        string
		from, limit uint64
		want        string
	}{
		{"window", 0, 0, "3 [3000] 4 5 [5000] 6 7 8 9 "},
		{"within one chunk", 1500, 10, "4 "},
		{"over a border", 1399, 2, "3 4 "},
		{"the last", 9999, 0, "9 "},
		{"past the last", 10500, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			items, err := read(t, client, &pb.ReadSamplesRequest{TaskId: 1, Raw: true, FromSeq: c.from, Limit: c.limit})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, m := range items {
				if e := m.GetEvent(); e != nil {
					got += fmt.Sprintf("[%d] ", e.FirstScan)
					continue
				}
				var ch chunk.Chunk
				if err := wire.ParseChunk(m.GetChunk(), 3, &ch); err != nil {
					t.Fatal(err)
				}
				if err := ch.Validate(db.tasks[0].Setup.Timebase, 3); err != nil {
					t.Error(err)
				}
				got += fmt.Sprintf("%d ", ch.No)
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// A page from the end must not read the whole task.
func TestReadSamplesSeeks(t *testing.T) {
	db := fakeDB(t)
	s := fakeSetup(false)
	db.tasks[0].Setup, db.tasks[0].Events, db.tasks[0].Result = s, nil, nil
	db.chunks[1] = encode(t, s, 0, 64, stretch{0, 64 * 1000})
	db.tasks[0].Chunks = 1000
	client := serve(t, db)
	db.reads = 0
	items, err := read(t, client, &pb.ReadSamplesRequest{TaskId: 1, FromSeq: 63000, Limit: 7})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(shape(t, s, 0, 0, items)); got != "[63000–63007]" {
		t.Errorf("got %v", got)
	}
	if db.reads > 20 {
		t.Errorf("read %d of 1000 chunks for seven samples", db.reads)
	}
}

// Samples that were deleted while the capture ran are an event, and what is behind them is found.
func TestReadSamplesOfAThinnedTask(t *testing.T) {
	db := fakeDB(t)
	s := fakeSetup(false)
	all := encode(t, s, 0, 64, stretch{0, 64 * 1000})
	sums, err := chunk.NewThinning(&s, nil)
	for _, c := range all[10:990] {
		err = errors.Join(err, sums.Add(c))
	}
	c, fault := sums.Chunk()
	if err = errors.Join(err, fault); err != nil {
		t.Fatal(err)
	}
	db.chunks[1] = slices.Concat(all[:10], []*chunk.Chunk{c}, all[990:])
	task := db.tasks[0]
	task.Setup, task.Result, task.Chunks = s, nil, 21
	task.Events = []measure.Event{{Kind: measure.EventThinned, FirstScan: 640, Scans: 980 * 64, Exact: true, Channel: -1}}
	db.tasks[0] = task
	client := serve(t, db)
	for _, x := range []struct {
		from, limit uint64
		want        string
	}{
		{0, 0, "[0–640 EVENT_KIND_THINNED 63360–64000]"},
		{63500, 7, "[63500–63507]"},
		{5000, 10, "[EVENT_KIND_THINNED]"},
		{630, 63000, "[630–640 EVENT_KIND_THINNED 63360–63630]"},
	} {
		items, err := read(t, client, &pb.ReadSamplesRequest{TaskId: 1, FromSeq: x.from, Limit: x.limit})
		if got := fmt.Sprint(shape(t, s, 0, 0, items)); got != x.want || err != nil {
			t.Errorf("from %d: %v, %v, want %v", x.from, got, err, x.want)
		}
	}
}

func TestReadSamplesErrors(t *testing.T) {
	db := fakeDB(t)
	client := serve(t, db)
	for name, c := range map[string]struct {
		task int64
		want codes.Code
	}{
		"no such task": {42, codes.NotFound},
		"no header":    {3, codes.FailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := read(t, client, &pb.ReadSamplesRequest{TaskId: c.task}); status.Code(err) != c.want {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
	t.Run("corrupt chunk", func(t *testing.T) {
		db.chunks[1][4].Columns[0].Dir[4] = 77 // a width that cannot be
		items, err := read(t, client, &pb.ReadSamplesRequest{TaskId: 1})
		if status.Code(err) != codes.DataLoss {
			t.Errorf("got %v, want DATA_LOSS", err)
		}
		if len(items) == 0 {
			t.Error("what comes before the damage was not sent")
		}
	})
	t.Run("corrupt setup", func(t *testing.T) {
		db.tasks[1].Setup.Channels = append([]measure.Channel{}, db.tasks[1].Setup.Channels...)
		db.tasks[1].Setup.Channels[0].Gain = math.NaN()
		if _, err := read(t, client, &pb.ReadSamplesRequest{TaskId: 2}); status.Code(err) != codes.DataLoss {
			t.Errorf("got %v, want DATA_LOSS", err)
		}
	})
}

// An over-range event counts clipped scans wherever they lie in its chunk: it comes with a
// range that holds one of them, and with no other.
func TestReadSamplesTellsClippedScans(t *testing.T) {
	db := fakeDB(t)
	task := &db.tasks[0]
	ch := &task.Setup.Channels[1]
	ch.MinCount, ch.MaxCount = math.MinInt32, math.MaxInt32
	b := measure.Block{FirstScan: 900, FirstTick: 90_000, Counts: make([][]measure.Count, 3)}
	for c := range b.Counts {
		b.Counts[c] = make([]measure.Count, 1500)
	}
	b.Counts[1][200], b.Counts[1][1100] = math.MaxInt32, math.MaxInt32 // scans 1100 and 2000
	e, err := chunk.NewEncoder(task.Setup.Timebase, 3, 1500)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Append(&b); err != nil {
		t.Fatal(err)
	}
	c := e.Flush(0)
	db.chunks[1], task.Chunks, task.Scans, task.Events = []*chunk.Chunk{c}, 1, 1500, nil
	err = c.OverRangeEvents(task.Setup.Channels, func(e measure.Event) error { task.Events = append(task.Events, e); return nil })
	if err != nil || len(task.Events) != 1 || task.Events[0].Scans != 2 {
		t.Fatalf("%+v, %v", task.Events, err)
	}
	client := serve(t, db)
	const limit = 10
	for from, want := range map[uint64]bool{95: true, 100: true, 101: false, 500: false, 991: true, 1000: true, 1001: false} {
		items, err := read(t, client, &pb.ReadSamplesRequest{TaskId: 1, FromSeq: from, Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		told := false
		for _, i := range items {
			told = told || i.GetEvent() != nil
		}
		if told != want {
			t.Errorf("from %d on: the event was told: %v", from, told)
		}
	}
}
