package capture

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/spool"
)

// markedTask plays a task on the meter: start marker at 0.5 s, stop marker at 2 s.
func (m *meter) markedTask() (startEnd, stopBegin, stopEnd float64) {
	m.play(testSpec, marker.Start, 0.5)
	m.play(testSpec, marker.Stop, 2)
	d := float64(testSpec.Duration())
	return 0.5 + d, 2, 2 + d
}

func TestCaptureIsTrimmedBetweenItsMarkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter()
		startEnd, stopBegin, stopEnd := m.markedTask()
		l := newLab(t, m, t.TempDir(), nil)
		c := l.start(session.Request{Marker: testSpec, TaskName: "gemm"})

		follow := make(chan *inbox)
		go func() { follow <- l.read(c, ReadOptions{Follow: true}) }()
		l.until(stopEnd + 0.05)
		asked := time.Now()
		sum, err := c.Stop(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(asked); took > 300*time.Millisecond {
			t.Errorf("stop took %v of virtual time", took)
		}
		if sum.State != session.Complete || sum.Reason != "" || len(sum.Markers) != 2 {
			t.Fatalf("summary %+v", sum)
		}
		if w := sum.Window; w == nil || math.Abs(float64(w.From)-startEnd) > 1e-3 || math.Abs(float64(w.To)-stopBegin) > 1e-3 {
			t.Fatalf("window %+v, want %.4f to %.4f; %s", w, startEnd, stopBegin, sum.NoWindowReason)
		}
		got := <-follow
		checkStream(t, m, got, sum)
		if first := got.header.Setup.Timebase.Seconds(float64(got.chunks[0].FirstTick)); first < 0.2 || first > 0.5 {
			t.Errorf("the trimmed stream begins at %v, the start marker at 0.5 s", first)
		}
		last := got.chunks[len(got.chunks)-1]
		if end := float64(last.FirstScan+uint64(last.Scans)) / m.rate; end < stopEnd-1e-3 {
			t.Errorf("the trimmed stream ends at %v s, the stop marker at %v s", end, stopEnd)
		}
		again, err := c.Stop(t.Context())
		if err != nil || again.Window == nil || *again.Window != *sum.Window || again.Scans != sum.Scans {
			t.Errorf("asked again: %+v, %v", again, err)
		}
	})
}

// checkStream holds a stream against the meter's own counts and its trailer.
func checkStream(t *testing.T, m *meter, got *inbox, sum session.Summary) {
	t.Helper()
	if got.trailer == nil || len(got.chunks) == 0 {
		t.Fatalf("stream of %d chunks, trailer %v", len(got.chunks), got.trailer)
	}
	first := got.chunks[0].No
	if first != sum.FirstChunk || got.header.FirstChunk != first || first+uint64(len(got.chunks)) != sum.EndChunk {
		t.Errorf("chunks %d+%d (header says %d), summary says %d to %d",
			first, len(got.chunks), got.header.FirstChunk, sum.FirstChunk, sum.EndChunk)
	}
	counts := got.counts(t)
	from := got.chunks[0].FirstScan
	if !slices.Equal(counts, m.delivered()[from:from+uint64(len(counts))]) {
		t.Error("the counts are not those that the meter delivered")
	}
	if got.trailer.Scans != uint64(len(counts)) || got.trailer.Chunks != uint64(len(got.chunks)) {
		t.Errorf("trailer %+v, %d scans in %d chunks came", got.trailer, len(counts), len(got.chunks))
	}
}

func TestReadResumedFromAnyChunk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter()
		_, _, stopEnd := m.markedTask()
		m.edit = func(_, n int, b *measure.Block) {
			if n%40 == 7 { // an over-range in most chunks
				b.Counts[0][3] = 32767
			}
		}
		l := newLab(t, m, t.TempDir(), nil)
		c := l.start(session.Request{Marker: testSpec})
		l.until(stopEnd + 1)
		sum, err := c.Stop(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, untrimmed := range []bool{false, true} {
			whole := l.read(c, ReadOptions{Untrimmed: untrimmed})
			checkResumes(t, l, c, whole, untrimmed)
			if untrimmed && uint64(len(whole.chunks)) != sum.Chunks {
				t.Errorf("untrimmed: %d of %d chunks", len(whole.chunks), sum.Chunks)
			}
		}
		// A follower got these before the stop marker was recognised.
		all := l.read(c, ReadOptions{Untrimmed: true}).chunks
		for from := sum.EndChunk + 1; from <= sum.Chunks; from++ {
			crc, part := uint32(0), l.read(c, ReadOptions{From: from})
			for _, x := range all[sum.FirstChunk:from] {
				crc = crc32.Update(crc, castagnoli, binary.LittleEndian.AppendUint32(nil, x.CRC))
			}
			if p := part.trailer; len(part.chunks) > 0 || p.Chunks != from-sum.FirstChunk || p.CRC != crc {
				t.Errorf("from %d of %d to %d: %d chunks, trailer %+v", from, sum.FirstChunk, sum.EndChunk, len(part.chunks), p)
			}
		}
		if sum.EndChunk >= sum.Chunks {
			t.Errorf("nothing lies behind the stop marker: %d of %d chunks", sum.EndChunk, sum.Chunks)
		}
		past := ReadOptions{From: sum.Chunks + 1}
		if err := c.Read(t.Context(), past, &inbox{}); !errors.Is(err, ErrPastEnd) {
			t.Errorf("past the end: %v", err)
		}
	})
}

func checkResumes(t *testing.T, l *lab, c *Capture, whole *inbox, untrimmed bool) {
	t.Helper()
	first := whole.chunks[0].No
	for from := range uint64(len(whole.chunks)) + first + 1 {
		part := l.read(c, ReadOptions{From: from, Untrimmed: untrimmed})
		if p, w := part.trailer, whole.trailer; p.CRC != w.CRC || p.Chunks != w.Chunks || p.Scans != w.Scans {
			t.Fatalf("from %d: trailer %+v, from the begin %+v", from, p, w)
		}
		want := whole.chunks[max(from, first)-first:]
		if len(part.chunks) != len(want) || (len(want) > 0 && part.chunks[0].No != want[0].No) {
			t.Fatalf("from %d: %d chunks, want %d", from, len(part.chunks), len(want))
		}
		for i, e := range part.events {
			if at := part.before[i]; at < len(part.chunks) {
				ch := part.chunks[at]
				if e.FirstScan < ch.FirstScan || e.FirstScan >= ch.FirstScan+uint64(ch.Scans) {
					t.Fatalf("from %d: event at scan %d before the chunk of scans %d+%d", from, e.FirstScan, ch.FirstScan, ch.Scans)
				}
			}
		}
	}
}

func TestNoMarkerKeepsEverything(t *testing.T) {
	for name, tt := range map[string]struct {
		play func(*meter)
		spec marker.Spec
		why  string
		from uint64
	}{
		"none asked":  {func(*meter) {}, marker.Spec{}, "no marker was asked for", 0},
		"none played": {func(*meter) {}, testSpec, "no start marker", 0},
		"stop alone":  {func(m *meter) { m.play(testSpec, marker.Stop, 0.6) }, testSpec, "no start marker", 0},
		"start alone": {func(m *meter) { m.play(testSpec, marker.Start, 0.6) }, testSpec, "no stop marker", 1},
		"foreign tag": {func(m *meter) {
			m.play(marker.FastProfile(10e3, 0x33), marker.Start, 0.6)
			m.play(marker.FastProfile(10e3, 0x33), marker.Stop, 1.2)
		}, testSpec, "another task's tag", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMeter()
				tt.play(m)
				l := newLab(t, m, t.TempDir(), nil)
				c := l.start(session.Request{Marker: tt.spec})
				l.until(2)
				sum, err := c.Stop(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if sum.State != session.Complete || sum.Window != nil || !strings.Contains(sum.NoWindowReason, tt.why) {
					t.Errorf("summary %+v", sum)
				}
				got := l.read(c, ReadOptions{})
				checkStream(t, m, got, sum)
				if sum.EndChunk != sum.Chunks || (sum.FirstChunk > 0) != (tt.from > 0) {
					t.Errorf("chunks %d to %d of %d", sum.FirstChunk, sum.EndChunk, sum.Chunks)
				}
			})
		})
	}
}

// A capture without markers has the samples up to the stop request, also those that are on their way then.
func TestStopWithoutMarkersWaitsForSamplesOnTheirWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter()
		m.before = func(_, n int, _ instrument.Sink) error {
			if n == 150 { // at 1.5 s: all later blocks queue behind
				wait(300 * time.Millisecond)
			}
			return nil
		}
		l := newLab(t, m, t.TempDir(), nil)
		c := l.start(session.Request{})
		l.until(1.7)
		asked := time.Now()
		sum, err := c.Stop(t.Context())
		if err != nil || sum.State != session.Complete || sum.Scans < 17_000 || sum.Scans > 17_200 {
			t.Errorf("%+v, %v; want 17 000 scans", sum, err)
		}
		if took := time.Since(asked); took > 300*time.Millisecond {
			t.Errorf("stop took %v", took)
		}
	})
}

func TestReadOfARunningCaptureWithoutFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, newMeter(), t.TempDir(), nil)
		c := l.start(session.Request{Marker: testSpec})
		l.until(1.05)
		if err := c.Read(t.Context(), ReadOptions{}, &inbox{}); !errors.Is(err, ErrNoStart) {
			t.Errorf("trimmed: %v", err)
		}
		synctest.Wait()
		got := l.read(c, ReadOptions{Untrimmed: true})
		if len(got.chunks) < 4 || got.trailer != nil {
			t.Errorf("untrimmed: %d chunks, trailer %v", len(got.chunks), got.trailer)
		}
	})
}

func TestOverRangeIsCountedOnceAChunk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter()
		m.edit = func(_, n int, b *measure.Block) {
			if n == 2 || n == 3 {
				b.Counts[0][10], b.Counts[0][11], b.Counts[1][5] = 32767, -32768, 32767
			}
		}
		l := newLab(t, m, t.TempDir(), nil)
		c := l.start(session.Request{})
		l.until(0.5)
		sum, err := c.Stop(t.Context())
		if err != nil || sum.OverRange != 6 {
			t.Fatalf("summary %+v, %v", sum, err)
		}
		got := l.read(c, ReadOptions{}).kind(measure.EventOverRange)
		if len(got) != 2 || got[0].Channel != 0 || got[0].FirstScan != 210 || got[0].Scans != 4 || !got[0].Exact ||
			got[1].Channel != 1 || got[1].FirstScan != 205 || got[1].Scans != 2 {
			t.Errorf("events %+v", got)
		}
	})
}

func TestStartFailures(t *testing.T) {
	gone := errors.New("no such device")
	for name, tt := range map[string]struct {
		meter func(*meter)
		want  error
	}{
		"does not open": {func(m *meter) { m.opens = func(int) error { return gone } }, gone},
		"says nothing":  {func(m *meter) { m.silent = true }, ErrUnavailable},
		"is lost at once": {func(m *meter) {
			m.before = func(int, int, instrument.Sink) error { return instrument.ErrDisconnected }
		}, ErrUnavailable},
		"does not fit": {func(m *meter) {
			m.inputs = func(in *instrument.Inputs) { in.Channels = in.Channels[:1] }
		}, ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMeter()
				tt.meter(m)
				l := newLab(t, m, t.TempDir(), nil)
				_, err := l.Start(t.Context(), session.Request{Holder: "ada@lab"})
				if !errors.Is(err, tt.want) {
					t.Errorf("start: %v, want %v", err, tt.want)
				}
				synctest.Wait()
				if n := len(l.List()); n != 0 {
					t.Errorf("%d captures are left behind", n)
				}
				if h := l.queue.held(); h.holder != "" {
					t.Errorf("the bench is still held by %s", h.holder)
				}
			})
		})
	}
}

// Who asks while the instrument is being opened waits for that opening alone, where it fails.
func TestStartSharesAFailedOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow = 8 * time.Second
		m := newMeter()
		m.opens = func(int) error { time.Sleep(slow); return instrument.ErrSilent }
		l := newLab(t, m, t.TempDir(), nil)
		begin := time.Now()
		go l.Probe(t.Context())
		time.Sleep(slow / 2)
		_, err := l.Start(t.Context(), session.Request{Holder: "ada@lab"})
		if took := time.Since(begin); !errors.Is(err, instrument.ErrSilent) || took > slow {
			t.Errorf("after %v: %v", took, err)
		}
		m.opens = nil
		time.Sleep(fresh)
		if _, err := l.Start(t.Context(), session.Request{Holder: "ada@lab"}); err != nil {
			t.Errorf("once it answers: %v", err)
		}
	})
}

// A record that is written while a capture runs waits for the next one, also
// where the instrument is lost and opened again meanwhile.
func TestARecordWaitsForTheNextCapture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter()
		m.unplug(2)
		offset, called := 0.0, 0
		l := newLab(t, m, t.TempDir(), func(c *Config, _ *spool.Options) {
			c.Calibrate = func(s measure.Setup, id instrument.Identity) (measure.Setup, []string, error) {
				called++
				if id.Serial != "7" {
					t.Errorf("asked for the calibration of %+v", id)
				}
				s.Channels = append([]measure.Channel{}, s.Channels...)
				s.Channels[0].Offset = offset
				s.Records = []measure.CalibrationRecord{{ID: "abc", Text: "{}"}}
				return s, []string{"a note"}, nil
			}
		})
		if b := l.Bench(t.Context()); called != 0 || b.Setup.Records != nil {
			t.Errorf("calibrated %d times before the instrument said who it is: %+v", called, b)
		}
		c := l.start(session.Request{})
		l.until(0.5)
		offset = 1 // the new record
		l.until(3)
		sum, err := c.Stop(t.Context())
		if err != nil || sum.State != session.Complete || sum.Gaps != 1 {
			t.Fatalf("%+v, %v", sum, err)
		}
		h := l.read(c, ReadOptions{}).header
		if h.Setup.Channels[0].Offset != 0 || len(h.Setup.Records) != 1 || called != 1 {
			t.Errorf("%+v after %d calls", h.Setup, called)
		}
		again := l.start(session.Request{})
		if s := again.Header().Setup; s.Channels[0].Offset != 1 {
			t.Errorf("the next capture still has the offset %v", s.Channels[0].Offset)
		}
		b := l.Bench(t.Context())
		if b.Nominal.Channels[0].Offset != 0 || b.Setup.Channels[0].Offset != 1 || len(b.Notes) != 1 {
			t.Errorf("%+v", b)
		}
		if _, err := again.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Without knowing the calibration nothing is measured.
func TestAnUnreadableRecordStopsTheBench(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := errors.New("calibration/x.yaml:3:1: it was edited")
		l := newLab(t, newMeter(), t.TempDir(), func(c *Config, _ *spool.Options) {
			c.Calibrate = func(s measure.Setup, _ instrument.Identity) (measure.Setup, []string, error) { return s, nil, bad }
		})
		if _, err := l.Start(t.Context(), session.Request{Holder: "ada@lab"}); !errors.Is(err, ErrUnavailable) || !errors.Is(err, bad) {
			t.Errorf("%v", err)
		}
		if b := l.Bench(t.Context()); b.Holder != "" || !errors.Is(l.trouble(), bad) {
			t.Errorf("%+v", b)
		}
	})
}

// TestStopOvertakesTheStopMarker asks for the stop before the samples of the
// stop marker have arrived: they are awaited, but not for ever.
func TestStopOvertakesTheStopMarker(t *testing.T) {
	for name, tt := range map[string]struct {
		inner  bool          // markers around a kernel lie within the task's
		late   time.Duration // of every block
		ask    float64       // behind the end of the stop marker, seconds
		played bool
		window bool
		within time.Duration
	}{
		"all at hand":               {false, 0, 0.2, true, true, 0},
		"tail on its way":           {false, 0, 0, true, true, 50 * time.Millisecond},
		"slow line":                 {false, 60 * time.Millisecond, 0, true, true, 150 * time.Millisecond},
		"slow line, markers within": {true, 60 * time.Millisecond, 0, true, true, 150 * time.Millisecond},
		"busy machine":              {false, 700 * time.Millisecond, 0, true, true, 800 * time.Millisecond},
		"never played":              {false, 0, 0, false, false, 1100 * time.Millisecond},
		"asked far too soon":        {false, 0, -1.3, true, false, 1100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMeter()
				m.play(testSpec, marker.Start, 0.5)
				if tt.inner {
					m.play(testSpec, marker.Start, 1)
					m.play(testSpec, marker.Stop, 1.5)
				}
				if tt.played {
					m.play(testSpec, marker.Stop, 2)
				}
				m.before = func(_, n int, _ instrument.Sink) error {
					if n == 0 {
						wait(tt.late) // all later blocks queue behind
					}
					return nil
				}
				l := newLab(t, m, t.TempDir(), nil)
				c := l.start(session.Request{Marker: testSpec})
				l.until(2 + float64(testSpec.Duration()) + tt.ask)
				asked := time.Now()
				sum, err := c.Stop(t.Context())
				if err != nil || sum.State != session.Complete || (sum.Window != nil) != tt.window {
					t.Fatalf("%+v, %v", sum, err)
				}
				if tt.window && sum.Window.To < 1.9 {
					t.Errorf("the window ends at %v", sum.Window.To)
				}
				if took := time.Since(asked); took > tt.within {
					t.Errorf("stop took %v, want at most %v", took, tt.within)
				}
			})
		})
	}
}

// A rail that has not the voltage of its supply is an event of the trimmed stream, too.
func TestSupplyStaysWithTheTrimmedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter()
		m.markedTask()
		l := newLab(t, m, t.TempDir(), func(cfg *Config, _ *spool.Options) {
			cfg.Bench.Setup = func(in instrument.Inputs) (measure.Setup, error) {
				s, err := rails(in)
				s.Rails[0].Name, s.Rails[0].Role = "pcie_3v3", measure.RolePCIe3V3
				return s, err
			}
		})
		c := l.start(session.Request{Marker: testSpec})
		l.until(5)
		if _, err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		whole, trimmed := l.read(c, ReadOptions{Untrimmed: true}), l.read(c, ReadOptions{})
		if len(trimmed.chunks) >= len(whole.chunks) {
			t.Errorf("%d of %d chunks after trimming", len(trimmed.chunks), len(whole.chunks))
		}
		for name, got := range map[string]*inbox{"whole": whole, "trimmed": trimmed} {
			if e := got.kind(measure.EventSupply); len(e) != 1 || !strings.Contains(e[0].Detail, "pcie_3v3 reads 12") {
				t.Errorf("%s: %+v", name, e)
			}
		}
	})
}

func TestStopOfAnExhaustedInstrument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter()
		m.markedTask()
		m.ends = 300
		l := newLab(t, m, t.TempDir(), nil)
		c := l.start(session.Request{Marker: testSpec})
		l.until(5)
		if s := c.Summary().State; s != session.Running {
			t.Fatalf("%v while nobody has stopped it", s)
		}
		sum, err := c.Stop(t.Context())
		if err != nil || sum.State != session.Complete || sum.Scans != 30000 || sum.Window == nil {
			t.Errorf("%+v, %v", sum, err)
		}
		got := l.read(c, ReadOptions{Untrimmed: true}).kind(measure.EventNote)
		if len(got) != 1 || got[0].FirstScan != 30000 {
			t.Errorf("notes %+v", got)
		}
	})
}

// TestEndsBeforeTheFirstScan stops, abandons and outwaits a capture that arms.
func TestEndsBeforeTheFirstScan(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(l *lab, cancel context.CancelFunc)
		want string
	}{
		"stopped": {func(l *lab, _ context.CancelFunc) {
			for _, i := range l.List() {
				c, err := l.Get(i.ID)
				if err != nil {
					l.t.Fatal(err)
				}
				if sum, err := c.Stop(l.t.Context()); err != nil || sum.State != session.Incomplete || sum.Scans != 0 {
					l.t.Errorf("stop: %+v, %v", sum, err)
				}
			}
		}, "stopped before the first scan"},
		"abandoned": {func(_ *lab, cancel context.CancelFunc) { cancel() }, "context canceled"},
		"outwaited": {func(*lab, context.CancelFunc) { wait(11 * time.Second) }, "no scan within 10s"},
		"shut down": {func(l *lab, _ context.CancelFunc) { l.stop() }, "the monitor was stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMeter()
				m.silent = true
				l := newLab(t, m, t.TempDir(), nil)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				got := make(chan error, 1)
				go func() {
					_, err := l.Start(ctx, session.Request{Holder: "ada@lab"})
					got <- err
				}()
				wait(time.Second)
				synctest.Wait()
				if n := len(l.List()); n != 1 || l.List()[0].State != session.Arming {
					t.Fatalf("captures %+v", l.List())
				}
				tt.end(l, cancel)
				if err := <-got; err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("start: %v, want %q", err, tt.want)
				}
				synctest.Wait()
				if n := len(l.List()); n != 0 {
					t.Errorf("%d captures are left", n)
				}
			})
		})
	}
}

func TestBenchBeforeTheInstrumentWasOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter()
		gone := errors.New("no such device")
		m.opens = func(n int) error {
			if n < 2 {
				return gone
			}
			return nil
		}
		m.inputs = func(in *instrument.Inputs) {
			if !m.isOpen {
				*in = instrument.Inputs{}
			}
		}
		l := newLab(t, m, t.TempDir(), nil)
		synctest.Wait() // the first try fails
		if b := l.Bench(t.Context()); b.Known() || !errors.Is(l.trouble(), gone) || !errors.Is(l.trouble(), ErrUnavailable) || b.Instrument.Kind != "fake" {
			t.Errorf("bench %+v", b)
		}
		if b := l.Bench(t.Context()); !b.Known() || b.Trouble != "" || len(b.CalibrationID) != 16 {
			t.Errorf("bench once it answers: %+v", b)
		}
	})
}
