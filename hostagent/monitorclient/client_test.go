package monitorclient

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/store"
)

func TestReadBringsEverythingInOrder(t *testing.T) {
	s := &server{chunks: makeChunks(t, 6, 300), first: 2, events: map[uint64]measure.Event{
		4: {Kind: measure.EventGap, FirstScan: 1195, Scans: 5, Exact: true, Channel: -1, Detail: "lost"},
	}}
	c := serve(t, s, Options{})
	var k keeper
	tr, err := c.Read(t.Context(), ReadOptions{CaptureID: "c", Follow: true}, &k)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(s.chunks[2:], k.chunks); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(s.events, k.events); d != "" {
		t.Error(d)
	}
	want := store.Header{
		Bench: "desk", Instrument: store.Instrument{Kind: "fake", Model: "M"}, Setup: testSetup, CalibrationID: "cal", Started: time.Unix(7, 0).UTC(),
	}
	if d := cmp.Diff([]store.Header{want}, k.headers); d != "" {
		t.Error(d)
	}
	if tr.Chunks != 4 || tr.Scans != 1200 || tr.Summary.State != session.Complete || tr.Summary.Lost != 3 || tr.Summary.OverRange != 2 {
		t.Errorf("got %+v", tr)
	}
	if d := cmp.Diff(&measure.Window{From: 0.25, To: 0.5}, tr.Summary.Window); d != "" {
		t.Error(d)
	}
}

// The line breaks three times, once before the first chunk: nothing is lost,
// nothing comes twice, and events do not run ahead of their chunk.
func TestReadResumesAfterBrokenLines(t *testing.T) {
	s := &server{
		chunks: makeChunks(t, 10, 300), breaks: map[int]int{0: 0, 1: 3, 2: 4},
		events: map[uint64]measure.Event{
			3: {Kind: measure.EventGap, FirstScan: 890, Scans: 10, Channel: -1},
			7: {Kind: measure.EventReopen, FirstScan: 2100, Channel: -1},
		},
	}
	c := serve(t, s, Options{})
	var k keeper
	if _, err := c.Read(t.Context(), ReadOptions{CaptureID: "c", Follow: true}, &k); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(s.chunks, k.chunks); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(s.events, k.events); d != "" {
		t.Error(d)
	}
	var from []uint64
	for _, q := range s.asked {
		from = append(from, q.FromChunk)
		if !q.Follow || q.CaptureId != "c" {
			t.Errorf("asked %v", q)
		}
	}
	if d := cmp.Diff([]uint64{0, 0, 3, 7}, from); d != "" {
		t.Error(d)
	}
}

func TestReadRefusesWhatDoesNotFit(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(*pb.Chunk)
		want  string
	}{
		{"a flipped bit", func(p *pb.Chunk) { p.Payload[len(p.Payload)/2] ^= 4 }, "chunk 0"},
		{"another checksum", func(p *pb.Chunk) { p.Crc32C++ }, "chunk 0"},
		{"a time that moved", func(p *pb.Chunk) { p.FirstTick++ }, "chunk 0"},
		{"a hole", func(p *pb.Chunk) {
			if p.ChunkNo > 1 {
				p.ChunkNo++
			}
		}, "chunk 3 came, wanted 2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &server{chunks: makeChunks(t, 4, 300), spoil: tc.spoil}
			c := serve(t, s, Options{})
			_, err := c.Read(t.Context(), ReadOptions{CaptureID: "c"}, &keeper{})
			if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v", err)
			}
			if s.count("Read") != 1+maxMisfits {
				t.Errorf("it was read %d times", s.count("Read"))
			}
		})
	}
	s := &server{chunks: makeChunks(t, 1, 300), spoil: func(p *pb.Chunk) { p.Payload = p.Payload[:5] }}
	c := serve(t, s, Options{})
	if _, err := c.Read(t.Context(), ReadOptions{CaptureID: "c"}, &keeper{}); err == nil {
		t.Error("a torn payload was taken")
	}
}

// A number is missing only where the monitor's disk lost a chunk, and a gap says so.
func TestReadOfAHoleThatIsTold(t *testing.T) {
	for scans, whole := range map[uint64]bool{300: true, 299: false, 301: false} {
		chunks := makeChunks(t, 5, 300)
		gap := measure.Event{Kind: measure.EventGap, FirstScan: 600, Scans: scans, Exact: true, Channel: -1}
		s := &server{chunks: append(chunks[:2:2], chunks[3:]...), events: map[uint64]measure.Event{3: gap}}
		var k keeper
		_, err := serve(t, s, Options{}).Read(t.Context(), ReadOptions{CaptureID: "c"}, &k)
		if (err == nil) != whole || !whole && !errors.Is(err, ErrMismatch) || whole && len(k.chunks) != 4 {
			t.Errorf("a gap of %d scans: %d chunks, %v", scans, len(k.chunks), err)
		}
	}
}

// What was changed on the line is asked for again, from that chunk on: here a chunk of
// each of six streams.
func TestReadAsksAgainForWhatWasChangedOnTheLine(t *testing.T) {
	s := &server{chunks: makeChunks(t, 12, 300)}
	s.spoil = func(p *pb.Chunk) {
		if int(p.ChunkNo) == 2*(s.count("Read")-1) {
			p.Payload = slices.Clone(p.Payload)
			p.Payload[len(p.Payload)/2] ^= 4
		}
	}
	c := serve(t, s, Options{})
	var k keeper
	end, err := c.Read(t.Context(), ReadOptions{CaptureID: "c"}, &k)
	if err != nil || len(k.chunks) != 12 || end.Chunks != 12 || s.count("Read") != 7 {
		t.Fatalf("%d chunks in %d reads, trailer %+v: %v", len(k.chunks), s.count("Read"), end, err)
	}
	for i, got := range k.chunks {
		if got.No != uint64(i) || got.CRC != s.chunks[i].CRC {
			t.Errorf("chunk %d is %d, CRC %x, want %x", i, got.No, got.CRC, s.chunks[i].CRC)
		}
	}
}

func TestReadEndsAsItMust(t *testing.T) {
	t.Run("still running", func(t *testing.T) {
		c := serve(t, &server{chunks: makeChunks(t, 2, 300), noEnd: true}, Options{})
		var k keeper
		if _, err := c.Read(t.Context(), ReadOptions{CaptureID: "c"}, &k); !errors.Is(err, ErrRunning) || len(k.chunks) != 2 {
			t.Errorf("got %v and %d chunks", err, len(k.chunks))
		}
	})
	t.Run("gone", func(t *testing.T) {
		c := serve(t, &server{answer: func(string, int) error { return status.Error(codes.NotFound, "no such capture") }}, Options{})
		if _, err := c.Read(t.Context(), ReadOptions{CaptureID: "c"}, &keeper{}); !errors.Is(err, ErrGone) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("the sink is full", func(t *testing.T) {
		full := errors.New("disk full")
		s := &server{chunks: makeChunks(t, 2, 300)}
		c := serve(t, s, Options{})
		if _, err := c.Read(t.Context(), ReadOptions{CaptureID: "c"}, &keeper{fail: full}); !errors.Is(err, full) || s.count("Read") != 1 {
			t.Errorf("got %v after %d reads", err, s.count("Read"))
		}
	})
	t.Run("patience ends", func(t *testing.T) {
		s := &server{chunks: makeChunks(t, 2, 300), answer: func(string, int) error { return status.Error(codes.Unavailable, "the transport is closing") }}
		c := serve(t, s, Options{Patience: 20 * time.Millisecond})
		_, err := c.Read(t.Context(), ReadOptions{CaptureID: "c"}, &keeper{})
		if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "gave up after 20ms") { // that it asks again: the next one
			t.Errorf("got %v", err)
		}
	})
	t.Run("cancelled while it waits", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &server{answer: func(_ string, call int) error {
			if call == 3 {
				cancel()
			}
			return status.Error(codes.Unavailable, "connection")
		}}
		c := serve(t, s, Options{})
		if _, err := c.Read(ctx, ReadOptions{CaptureID: "c"}, &keeper{}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

func TestGetBench(t *testing.T) {
	s := &server{bench: &pb.GetBenchResponse{
		Name: "desk", Setup: wire.Setup(testSetup), Instrument: &pb.Instrument{Kind: "pmd"}, CalibrationId: "cal",
		Holder: "lab@host", HeldSince: wire.Time(time.Unix(9, 0)), CaptureId: "c1", Version: "v1",
		Protocol: wire.Protocol(wire.Speaks), Draining: true,
	}}
	c := serve(t, s, Options{})
	b, err := c.GetBench(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := session.Bench{
		Name: "desk", Setup: testSetup, Instrument: store.Instrument{Kind: "pmd"}, CalibrationID: "cal",
		Holder: "lab@host", HeldSince: time.Unix(9, 0).UTC(), CaptureID: "c1", Version: "v1",
		Protocol: wire.Speaks, Draining: true,
	}
	if d := cmp.Diff(want, b); d != "" {
		t.Error(d)
	}
	s.bench = &pb.GetBenchResponse{Name: "desk", Trouble: "no such port"}
	if b, err = c.GetBench(t.Context()); err != nil || b.Trouble != "no such port" || len(b.Setup.Channels) != 0 {
		t.Errorf("a bench in trouble: %+v, %v", b, err)
	}
	s.bench = &pb.GetBenchResponse{Setup: &pb.Setup{}}
	if _, err = c.GetBench(t.Context()); !errors.Is(err, wire.ErrMessage) {
		t.Errorf("a setup without a timebase: %v", err)
	}
}

func TestStart(t *testing.T) {
	s := &server{}
	c := serve(t, s, Options{})
	r := session.Request{Holder: "lab@host", TaskName: "gemm", Marker: marker.FastProfile(1e4, 1), Lease: 20 * time.Second}
	got, err := c.Start(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	want := session.Started{
		CaptureID: "c-gemm", SampleRate: 1000, Instrument: store.Instrument{Kind: "fake"}, CalibrationID: "MARKER_CODE_M31",
		Started: time.Unix(1000, 0).UTC(), LeaseUntil: time.Unix(1020, 0).UTC(),
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, tc := range []struct {
		code codes.Code
		text string
		is   error
		want string
	}{
		{codes.FailedPrecondition, "bench is busy: held by ann@lab since noon", ErrBusy, "held by ann@lab since noon"},
		{codes.Unavailable, "powersensor3: open /dev/ttyACM0: no such file", nil, "open /dev/ttyACM0"},
		{codes.Unavailable, "start capture: pmd: open tcp:lab:1: connect: connection refused", nil, "pmd: open tcp:lab:1"},
		{codes.InvalidArgument, "no holder", nil, "no holder"},
	} {
		s.answer = func(string, int) error { return status.Error(tc.code, tc.text) }
		_, err := c.Start(t.Context(), r)
		if err == nil || !strings.Contains(err.Error(), tc.want) || (tc.is != nil && !errors.Is(err, tc.is)) {
			t.Errorf("%v: got %v", tc.code, err)
		}
		if errors.Is(err, ErrUnreachable) {
			t.Errorf("%v: a monitor that answered is called silent: %v", tc.code, err)
		}
	}
	if s.count("Start") != 5 {
		t.Errorf("start was sent %d times: it must not be repeated", s.count("Start"))
	}
}

func TestStopAndReleaseAreRepeated(t *testing.T) {
	s := &server{answer: func(_ string, call int) error {
		if call < 4 {
			return status.Error(codes.Unavailable, "connection")
		}
		return nil
	}}
	c := serve(t, s, Options{})
	sum, err := c.Stop(t.Context(), "c")
	if err != nil || sum.Scans != 100 || s.count("Stop") != 4 {
		t.Errorf("stop: %+v, %v after %d calls", sum, err, s.count("Stop"))
	}
	if err := c.Release(t.Context(), "c"); err != nil || s.count("Release") != 4 {
		t.Errorf("release: %v after %d calls", err, s.count("Release"))
	}
	s.answer = func(string, int) error { return status.Error(codes.NotFound, "no such capture") }
	if _, err := c.Stop(t.Context(), "c"); !errors.Is(err, ErrGone) || s.count("Stop") != 5 {
		t.Errorf("stop: %v", err)
	}
}

func TestKeepLease(t *testing.T) {
	s := &server{renewed: pb.CaptureState_CAPTURE_STATE_RUNNING}
	s.answer = func(_ string, call int) error {
		switch {
		case call == 2:
			return status.Error(codes.Unavailable, "connection")
		case call == 4:
			s.renewed = pb.CaptureState_CAPTURE_STATE_COMPLETE
		}
		return nil
	}
	c := serve(t, s, Options{})
	if err := c.KeepLease(t.Context(), "c", 30*time.Millisecond); err != nil || s.count("Renew") != 4 {
		t.Errorf("until the capture has ended: %v after %d calls", err, s.count("Renew"))
	}
	s.answer = func(string, int) error { return status.Error(codes.NotFound, "no such capture") }
	if err := c.KeepLease(t.Context(), "c", 30*time.Millisecond); !errors.Is(err, ErrGone) {
		t.Errorf("gone: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.KeepLease(ctx, "c", time.Hour); err != nil {
		t.Errorf("cancelled: %v", err)
	}
}

func TestCaptures(t *testing.T) {
	c := serve(t, &server{}, Options{})
	got, err := c.Captures(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []session.Capture{{ID: "c1", Holder: "lab@host", TaskName: "gemm", Started: time.Unix(5, 0).UTC(), State: session.Incomplete, Reason: "unplugged", SpoolBytes: 42}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestSilentMonitor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	c := dial(t, address, Options{Patience: 10 * time.Millisecond})
	_, err = c.GetBench(t.Context())
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "is wattmark monitor running there?") || !strings.Contains(err.Error(), address) {
		t.Errorf("got %v", err)
	}
	if err := c.Release(t.Context(), "c"); !errors.Is(err, ErrUnreachable) {
		t.Errorf("release: %v", err)
	}
}

var _ chunk.Sink = (*keeper)(nil)

// A monitor of another version: what it speaks decides whether it is refused,
// bridged with a word, or nothing is said.
func TestVersionSkew(t *testing.T) {
	ours := wire.Speaks
	at := func(major, minor uint32) *pb.Protocol {
		return &pb.Protocol{Major: major, Minor: minor}
	}
	for _, tc := range []struct {
		name    string
		speaks  *pb.Protocol
		refused []string
		bridged []string
	}{
		{"the same", at(ours.Major, ours.Minor), nil, nil},
		{"before versions were told", nil, nil, []string{"monitor (wattmark 9.8.7, protocol 1.0)", "is older than this host (wattmark 1.2.3, protocol " + ours.String()}},
		{"a later addition", at(ours.Major, ours.Minor+1), nil, []string{"9.8.7", "is newer than this host", "1.2.3"}},
		{"the next major", at(ours.Major+1, 0), []string{"wattmark 9.8.7 and speaks protocol 2.0", "wattmark 1.2.3 and speaks " + ours.String(), "update this host"}, nil},
		{"the major before", at(ours.Major-1, 9), []string{"9.8.7", "speaks protocol 0.9", "update the monitor"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &server{bench: &pb.GetBenchResponse{Name: "desk", Version: "9.8.7", Protocol: tc.speaks}}
			b, err := serve(t, s, Options{Version: "1.2.3"}).GetBench(t.Context())
			if (err != nil) != (tc.refused != nil) || err != nil && !errors.Is(err, ErrVersion) {
				t.Fatalf("got %v", err)
			}
			for _, w := range tc.refused {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q is not told: %v", w, err)
				}
			}
			if (b.Bridged != "") != (tc.bridged != nil) {
				t.Errorf("bridged: %q", b.Bridged)
			}
			for _, w := range tc.bridged {
				if !strings.Contains(b.Bridged, w) {
					t.Errorf("%q is not told: %s", w, b.Bridged)
				}
			}
		})
	}
}

// What a future monitor may send must not be read before it is refused.
func TestIncompatibleMonitorIsNotRead(t *testing.T) {
	s := &server{bench: &pb.GetBenchResponse{
		Version: "3.0.0", Protocol: &pb.Protocol{Major: 3}, GpuUuid: "not what it is today",
	}}
	if _, err := serve(t, s, Options{}).GetBench(t.Context()); !errors.Is(err, ErrVersion) || strings.Contains(err.Error(), "gpu_uuid") {
		t.Errorf("got %v", err)
	}
}

// A newer monitor refuses this host by itself.
func TestMonitorRefusesThisHost(t *testing.T) {
	s := &server{answer: func(method string, _ int) error {
		if method != "Start" {
			return nil
		}
		return status.Error(codes.Unimplemented, "the host is wattmark 1.2.3 and speaks protocol 1.1, this monitor is wattmark 3.0.0 and speaks 3.0: update the host")
	}}
	_, err := serve(t, s, Options{Version: "1.2.3"}).Start(t.Context(), session.Request{Holder: "a@b"})
	if !errors.Is(err, ErrVersion) || errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "3.0.0") || !strings.Contains(err.Error(), "update the host") {
		t.Errorf("got %v", err)
	}
}
