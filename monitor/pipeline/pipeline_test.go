package pipeline

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/instrument/series"
	"github.com/wattmark/wattmark/monitor/spool"
)

func blockOf(first uint64, tick int64, scans int) *measure.Block {
	return &measure.Block{FirstScan: first, FirstTick: tick, Counts: [][]measure.Count{make([]measure.Count, scans)}}
}

func TestStitch(t *testing.T) {
	t0 := time.Unix(1000, 0)
	gap := func(first, scans uint64, exact bool) measure.Event {
		return measure.Event{Kind: measure.EventGap, FirstScan: first, Scans: scans, Exact: exact, Channel: -1}
	}
	for name, tt := range map[string]struct {
		do         func(s *stitcher) (*measure.Block, []measure.Event, error)
		scan       uint64
		tick       int64
		events     []measure.Event
		wantErr    error
		noBlock    bool
		wantDetail string
	}{
		"follows": {
			do:   func(s *stitcher) (*measure.Block, []measure.Event, error) { return s.block(blockOf(100, 1000, 50), t0) },
			scan: 100, tick: 1000,
		},
		"a hole nobody spoke of": {
			do:   func(s *stitcher) (*measure.Block, []measure.Event, error) { return s.block(blockOf(130, 1300, 50), t0) },
			scan: 130, tick: 1300, events: []measure.Event{gap(100, 30, true)},
		},
		"a hole the driver spoke of": {
			do: func(s *stitcher) (*measure.Block, []measure.Event, error) {
				s.event(gap(100, 30, false))
				return s.block(blockOf(130, 1300, 50), t0)
			},
			scan: 130, tick: 1300, events: []measure.Event{gap(100, 30, false)},
		},
		"a hole the driver miscounted": {
			do: func(s *stitcher) (*measure.Block, []measure.Event, error) {
				s.event(gap(100, 7, true))
				return s.block(blockOf(130, 1300, 50), t0)
			},
			scan: 130, tick: 1300, events: []measure.Event{gap(100, 30, false)},
		},
		"back in time": {
			do:      func(s *stitcher) (*measure.Block, []measure.Event, error) { return s.block(blockOf(99, 990, 50), t0) },
			wantErr: ErrDriver,
		},
		"wrong shape": {
			do: func(s *stitcher) (*measure.Block, []measure.Event, error) {
				return s.block(&measure.Block{FirstScan: 100, Counts: [][]measure.Count{{1}, {2}}}, t0)
			},
			wantErr: measure.ErrShape,
		},
		"empty": {
			do:      func(s *stitcher) (*measure.Block, []measure.Event, error) { return s.block(blockOf(100, 1000, 0), t0) },
			noBlock: true,
		},
		"opened again": {
			// Away for 2.5 s at 1000 scans a second, of which the block itself took 0.05 s.
			do: func(s *stitcher) (*measure.Block, []measure.Event, error) {
				s.lost("unplugged")
				return s.block(blockOf(0, 0, 50), t0.Add(2500*time.Millisecond))
			},
			scan: 2550, tick: 25500,
			events: []measure.Event{
				{Kind: measure.EventReopen, FirstScan: 100, Scans: 2450, Channel: -1}, gap(100, 2450, false),
			},
		},
		"opened again in no time": {
			do: func(s *stitcher) (*measure.Block, []measure.Event, error) {
				s.lost("unplugged")
				return s.block(blockOf(0, 0, 50), t0)
			},
			scan: 101, tick: 1010,
			events: []measure.Event{
				{Kind: measure.EventReopen, FirstScan: 100, Scans: 1, Channel: -1}, gap(100, 1, false),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &stitcher{tb: measure.Timebase{TickHz: 1e4, TicksPerScan: 10}, channels: 1}
			if _, _, err := s.block(blockOf(0, 0, 100), t0); err != nil {
				t.Fatal(err)
			}
			b, events, err := tt.do(s)
			if !errors.Is(err, tt.wantErr) {
				t.Fatalf("error %v, want %v", err, tt.wantErr)
			}
			if diff := cmp.Diff(tt.events, events, cmpopts.IgnoreFields(measure.Event{}, "Detail"), cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
			if tt.wantErr != nil || tt.noBlock {
				return
			}
			if b.FirstScan != tt.scan || b.FirstTick != tt.tick {
				t.Errorf("scan %d at tick %d, want %d at %d", b.FirstScan, b.FirstTick, tt.scan, tt.tick)
			}
		})
	}
}

// TestStitchStamped moves the stamps of a stream that begins anew.
func TestStitchStamped(t *testing.T) {
	s := &stitcher{tb: measure.Timebase{TickHz: 1e4, TicksPerScan: 10, Stamped: true}, channels: 1}
	stamped := func(ticks ...int64) *measure.Block {
		b := blockOf(0, ticks[0], len(ticks))
		b.Ticks = ticks
		return b
	}
	t0 := time.Unix(1000, 0)
	if _, _, err := s.block(stamped(0, 11, 19), t0); err != nil {
		t.Fatal(err)
	}
	s.lost("unplugged")
	b, _, err := s.block(stamped(0, 9, 21), t0.Add(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	// 100 scans went by, three of them are in the block: 97 lost after tick 19+10.
	if want := []int64{999, 1008, 1020}; !cmp.Equal(b.Ticks, want) || b.FirstTick != 999 || b.FirstScan != 100 {
		t.Errorf("ticks %v from %d, scan %d; want %v", b.Ticks, b.FirstTick, b.FirstScan, want)
	}
}

func TestPaceKnowsWhatIsOnItsWay(t *testing.T) {
	p := &Pipeline{pace: series.Rate{Nominal: 1e9, Window: paceSpan}, tb: measure.Timebase{TickHz: 1e3, TicksPerScan: 1}}
	begin := time.Now()
	// Blocks of 10 ms arrive 3 to 8 ms after their end; the device runs 1 % slow.
	for i := range 1000 {
		p.stitch.endTick = float64(i+1) * 10
		at := time.Duration(float64(i+1)*10.1e6) + time.Duration(3+i%6)*time.Millisecond
		p.pace.Seen(begin.Add(at), int64(p.Covered()))
	}
	now := 10100*time.Millisecond + 3*time.Millisecond
	got := p.DeviceTime(begin.Add(now))
	// The drift of 1 % may show over the two spans that are remembered.
	if got < 10*time.Second-time.Millisecond || got > 10*time.Second+2*paceSpan*time.Second/100+time.Millisecond {
		t.Errorf("device time %v, want 10 s", got)
	}
}

// A busy machine that holds all blocks but the first ones back for a second and more does not move the device's time.
func TestPaceOutlastsABusyMachine(t *testing.T) {
	h := &session.Header{Setup: measure.Setup{Timebase: measure.Timebase{TickHz: 1e3, TicksPerScan: 1}, Channels: make([]measure.Channel, 1)}}
	p, err := New(Options{ChunkScans: 1000}, h, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	for end := 10 * time.Millisecond; end <= 2400*time.Millisecond; end += 10 * time.Millisecond {
		p.stitch.endTick = end.Seconds() * 1e3
		late := time.Millisecond
		if end > 500*time.Millisecond {
			late = 1200 * time.Millisecond
		}
		p.pace.Seen(begin.Add(end+late), int64(p.Covered()))
	}
	if got := p.DeviceTime(begin.Add(3600 * time.Millisecond)); got < 3590*time.Millisecond {
		t.Errorf("device time %v, want 3.6 s", got)
	}
}

func TestIndexFindsTheLatestChunks(t *testing.T) {
	var x chunkIndex
	first := func(no int) int64 { return int64(no*100 + no%7) }
	for no := range 3 * indexSize {
		x.add(first(no))
	}
	for _, tt := range []struct {
		tick float64
		want uint64
		ok   bool
	}{
		{float64(first(3*indexSize - 1)), 3*indexSize - 1, true},
		{float64(first(3*indexSize-1)) - 0.5, 3*indexSize - 2, true},
		{1e12, 3*indexSize - 1, true},
		{float64(first(2 * indexSize)), 2 * indexSize, true},
		{float64(first(2*indexSize)) - 1, 0, false},
		{0, 0, false},
	} {
		if no, ok := x.at(tt.tick); no != tt.want || ok != tt.ok {
			t.Errorf("tick %v: chunk %d, %v; want %d, %v", tt.tick, no, ok, tt.want, tt.ok)
		}
	}
	var few chunkIndex
	few.add(0)
	few.add(100)
	for tick, want := range map[float64]uint64{-5: 0, 0: 0, 99: 0, 100: 1, 1000: 1} {
		if no, ok := few.at(tick); no != want || !ok {
			t.Errorf("tick %v: chunk %d, %v; want %d", tick, no, ok, want)
		}
	}
}

// A chunk is found by walking the log, as for a marker that began before the chunks that
// are remembered.
// A plain pattern in the place of the code trims no capture that was broken off: what it would leave out
// might hold the work.
func TestPlainPatternsTrimCompleteCapturesAlone(t *testing.T) {
	setup := measure.Setup{Timebase: measure.Timebase{TickHz: 1000, TicksPerScan: 1}}
	own := marker.Found{Kind: marker.Start, Begin: 2, End: 3, TagOK: true}
	plainStart := marker.Found{Kind: marker.Start, Begin: 2, End: 3, Fallback: true}
	plainStop := marker.Found{Kind: marker.Stop, Begin: 6, End: 7, Fallback: true}
	chunkAt := func(tick float64) (uint64, error) { return uint64(tick) / 1000, nil }
	for _, c := range []struct {
		name       string
		found      []marker.Found
		complete   bool
		first, end uint64
	}{
		{"both plain, complete", []marker.Found{plainStart, plainStop}, true, 2, 8},
		{"both plain, broken off", []marker.Found{plainStart, plainStop}, false, 0, 10},
		{"the stop plain, complete", []marker.Found{own, plainStop}, true, 2, 8},
		{"the stop plain, broken off", []marker.Found{own, plainStop}, false, 2, 10},
	} {
		tr, err := trimOf(&Totals{Chunks: 10, Markers: c.found}, c.complete, &setup, chunkAt)
		if err != nil || tr.First != c.first || tr.End != c.end {
			t.Errorf("%s: chunks [%d, %d), %v, want [%d, %d)", c.name, tr.First, tr.End, err, c.first, c.end)
		}
	}
}

func TestChunkFoundInTheLog(t *testing.T) {
	dir := t.TempDir()
	store, err := spool.Open(dir, spool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	h := session.Header{CaptureID: "c1", Setup: measure.Setup{
		Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 100},
		Channels: []measure.Channel{{Name: "p", Unit: measure.UnitWatt, Gain: 1}},
		Rails:    []measure.Rail{{Name: "gpu", Role: measure.RolePSU, Wiring: measure.WiringPower, X: 0, Y: -1}},
	}}
	log, err := store.Create(h)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p, err := New(Options{FlushEvery: time.Hour, ChunkScans: 10}, &h, log, NewViewers())
	if err != nil {
		t.Fatal(err)
	}
	const blocks = 200 // of 100 scans, 10 ms
	for n := range blocks {
		if err := p.Block(blockOf(uint64(n*100), int64(n*10_000), 100), time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(p.Finish(true), log.Sync()); err != nil {
		t.Fatal(err)
	}
	for _, s := range []float64{0, 0.05, 0.5001, 1.0203} {
		want := uint64(s * 1000)
		if no, err := findChunk(log, s*1e6); err != nil || no != want {
			t.Errorf("%v s: chunk %d, %v; want %d", s, no, err, want)
		}
	}
	got, err := Recount(log)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p.Totals(), &got); diff != "" {
		t.Errorf("recounted totals (-kept +recounted):\n%s", diff)
	}
	// The disk loses chunks 50, and 100 and 101: what lies in them is found there all the same.
	if err := errors.Join(log.Close(), flip(filepath.Join(dir, "c1", "log"), 50, 100, 101)); err != nil {
		t.Fatal(err)
	}
	if holes, err := log.Mend(); err != nil || holes != 2 {
		t.Fatalf("%d holes, %v", holes, err)
	}
	for s, want := range map[float64]uint64{
		0.04999: 49, 0.05001: 50, 0.05099: 50, 0.05101: 51, 0.09999: 99, 0.10001: 100, 0.10199: 100, 0.10201: 102,
	} {
		if no, err := findChunk(log, s*1e6); err != nil || no != want {
			t.Errorf("%v s of a damaged log: chunk %d, %v; want %d", s, no, err, want)
		}
	}
}

// flip changes a bit of each of some chunks of a log.
func flip(path string, chunks ...uint64) error {
	b, err := os.ReadFile(path)
	for rest := b; err == nil && len(rest) > 0; {
		var f spool.Frame
		var body []byte
		if f, body, rest, err = spool.ParseRecord(rest); err != nil || f.Type != spool.RecordChunk {
			continue
		}
		if slices.Contains(chunks, binary.LittleEndian.Uint64(body)) {
			body[len(body)-1] ^= 1
		}
	}
	return errors.Join(err, os.WriteFile(path, b, 0o600))
}
