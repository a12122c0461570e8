package nidaqmx

import (
	"context"
	"sync"
	"testing"
	"time"

	"wattmark/measure"
	"wattmark/monitor/emulator/niface"
	"wattmark/monitor/emulator/pace"
	"wattmark/monitor/instrument/insttest"
	"wattmark/monitor/instrument/nidaqmx/nipb"
)

// What the buffer loses is counted to the sample, once and again.
func TestExactLosses(t *testing.T) {
	// The buffer holds 10000 scans; a read is 500, and goes on at its middle.
	// The second stall comes on top of what the first has left behind.
	for _, late := range []uint64{0, 1, 5_000, 9_000, 9_999, 10_000, 10_001, 12_345, 100_000, 3_000_001} {
		r := emulate(t, niface.Config{Codes: numbered})
		r.open(t)
		r.face.Stall(7000, late)
		out, err := r.stream(t, 20_000, func() { r.face.Stall(0, late+17) })
		if err != nil {
			t.Fatal(err)
		}
		if lost := r.face.Skipped(); out.Lost() != lost || (lost > 0) != (late >= 9000) {
			t.Errorf("late by %d: %d told lost, %d were", late, out.Lost(), lost)
		}
		for _, e := range out.Events(measure.EventGap) {
			if !e.Exact {
				t.Errorf("%+v", e)
			}
		}
		if o, g := len(out.Events(measure.EventOverflow)), len(out.Events(measure.EventGap)); o != g {
			t.Errorf("%d overflows, %d gaps", o, g)
		}
		r.counted(t, out)
	}
}

// The same against the wall clock, with a read that really hangs.
func TestExactLossesInRealTime(t *testing.T) {
	t.Parallel()
	r := emulate(t, niface.Config{Codes: numbered}, pace.Real(time.Now()))
	r.opts.Interval, r.opts.Buffer = 20*time.Millisecond, 200*time.Millisecond
	r.make(t)
	r.open(t)
	out, err := r.stream(t, 4000, func() { r.face.Stall(0, 2500) })
	if err != nil {
		t.Fatal(err)
	}
	if lost := r.face.Skipped(); lost < 1000 || out.Lost() != lost {
		t.Errorf("%d told lost, %d were", out.Lost(), lost)
	}
	for _, e := range out.Events(measure.EventGap) {
		if !e.Exact {
			t.Errorf("%+v", e)
		}
	}
	r.counted(t, out)
}

// Another program that reads from the same session takes samples away: they are
// missing here, and counted.
func TestSamplesTakenByOthers(t *testing.T) {
	t.Parallel()
	r := emulate(t, niface.Config{Codes: numbered})
	r.open(t)
	var stolen uint64
	out, err := r.stream(t, 5000, func() {
		conn, err := connect("tcp:" + r.at)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		reply, err := nipb.NewNiDAQmxClient(conn).ReadRaw(t.Context(), &nipb.ReadRawRequest{
			Task: &nipb.Session{Name: r.opts.Session}, NumSampsPerChan: 77, Timeout: 1, ArraySizeInBytes: 77 * 16,
		})
		if err != nil {
			t.Error(err)
		}
		stolen = uint64(reply.GetSampsRead())
	})
	if err != nil {
		t.Fatal(err)
	}
	if gaps := out.Events(measure.EventGap); stolen != 77 || len(gaps) != 1 || gaps[0].Scans != stolen || !gaps[0].Exact {
		t.Errorf("%d taken, %+v", stolen, gaps)
	}
	r.counted(t, out)
}

// Samples that are late come later; nothing is lost or twice.
func TestSamplesNotYetAvailable(t *testing.T) {
	r := emulate(t, niface.Config{Codes: numbered})
	r.open(t)
	r.face.Late(3000)
	out, err := r.stream(t, 10_000, func() { r.face.Late(0) })
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Events(0)) != 0 {
		t.Errorf("%+v", out.Events(0))
	}
	r.counted(t, out)
}

// A device that has stopped is started again; the gap says that it is estimated.
func TestRestartsAreEstimated(t *testing.T) {
	if testing.Short() {
		t.Skip("a buffer of 200 ms in real time runs over by itself under the race detector")
	}
	t.Parallel()
	for name, c := range map[string]struct {
		fixed  bool
		break_ func(*rig)
		exact  uint64 // scans that the device really missed, at least
	}{
		"its own memory overflowed":   {false, func(r *rig) { r.face.Fail("ReadRaw", fifoOverflow) }, 1},
		"reads that cannot be moved":  {true, func(r *rig) { r.face.Stall(0, 1500) }, 1500},
		"moving the reads is refused": {false, func(r *rig) { r.face.Stall(0, 1500); r.face.Fail("SetReadAttributeInt32", -200557) }, 1500},
		"the position is not told":    {false, func(r *rig) { r.face.Stall(0, 1500); r.face.Fail("GetReadAttributeUInt64", -200233) }, 1500},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := emulate(t, niface.Config{Codes: numbered, Fixed: c.fixed}, pace.Real(time.Now()))
			r.opts.Interval, r.opts.Buffer = 20*time.Millisecond, 200*time.Millisecond
			r.make(t)
			r.open(t)
			before := time.Time{}
			out, err := r.stream(t, 4000, func() { before = time.Now(); c.break_(r) })
			if err != nil {
				t.Fatal(err)
			}
			gaps := out.Events(measure.EventGap)
			if len(gaps) != 1 || gaps[0].Exact || len(out.Events(measure.EventOverflow)) != 1 {
				t.Fatalf("%+v", out.Events(0))
			}
			// The gap is what the host's clock tells, to what a busy machine's delays allow.
			most := uint64(time.Since(before).Seconds() * r.opts.Rate)
			if gaps[0].Scans < c.exact || gaps[0].Scans > most {
				t.Errorf("%d scans missing, between %d and %d are", gaps[0].Scans, c.exact, most)
			}
			// What came after is the new start's, scan by scan.
			zero := gaps[0].FirstScan + gaps[0].Scans
			counts := out.Counts(0)
			for i, scan := range out.Scans() {
				want := numbered(0, scan)
				if scan >= zero {
					want = numbered(0, scan-zero)
				}
				if counts[i] != measure.Count(want) {
					t.Fatalf("scan %d: %d, want %d", scan, counts[i], want)
				}
			}
		})
	}
}

// A stream that ends brings what the read in progress holds.
func TestTheTailIsDelivered(t *testing.T) {
	t.Parallel()
	epoch := time.Now()
	r := emulate(t, niface.Config{Codes: numbered}, pace.Real(epoch))
	r.open(t)
	in := r.dev.Inputs()
	out := &insttest.Collector{Timebase: in.Timebase, Channels: len(in.Channels)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := time.Duration(0)
	err := r.dev.Stream(ctx, &until{Collector: out, n: 1000, stop: sync.OnceFunc(func() {
		time.AfterFunc(30*time.Millisecond, func() { ended = time.Since(epoch); cancel() })
	})})
	if err != nil {
		t.Fatal(err)
	}
	last := r.face.StreamStart() + time.Duration(float64(len(out.Scans()))/r.opts.Rate*1e9)
	if last < ended {
		t.Errorf("samples up to %v, the stream was ended at %v", last, ended)
	}
	r.counted(t, out)
}
