package witness

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/pty"
	"github.com/wattmark/wattmark/store"
)

// slow is a line that changes halfway through a call of 2 ms.
type slow struct {
	changes []time.Time
	on      []bool
	fails   int // the call that fails; 0 for none
}

func (l *slow) Set(on bool) error {
	time.Sleep(time.Millisecond)
	if l.changes, l.on = append(l.changes, time.Now()), append(l.on, on); len(l.on) == l.fails {
		return errors.New("unplugged")
	}
	time.Sleep(time.Millisecond)
	return nil
}

func (l *slow) Close() error { return nil }

// Each change is stored with a call that encloses it, and lies apart from the others.
func TestRunSwitchesTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, got := &slow{}, []store.Reading(nil)
		put := func(_ context.Context, r []store.Reading) error { got = append(got, r...); return nil }
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := Run(ctx, l, put); err != nil || len(got) < 60 || len(got) != len(l.on) {
			t.Fatalf("%d changes, %d stored, %v", len(l.on), len(got), err)
		}
		for i, r := range got {
			took := time.Duration(math.Abs(r.Value) * 1e9)
			if d := l.changes[i].Sub(r.At); d != took/2 || l.on[i] != (r.Value > 0) || l.on[i] != (i%2 == 0) {
				t.Fatalf("change %d: %v of %v, %v", i, d, took, r.Value)
			}
			if i > 0 && r.At.Sub(got[i-1].At) < Apart {
				t.Fatalf("%v from one change to the next", r.At.Sub(got[i-1].At))
			}
		}
		if err := Run(t.Context(), &slow{fails: 3}, put); err == nil || !strings.Contains(err.Error(), "unplugged") {
			t.Errorf("a line that fails: %v", err)
		}
		full := errors.New("full")
		err := Run(t.Context(), &slow{}, func(context.Context, []store.Reading) error { return full })
		if !errors.Is(err, full) {
			t.Errorf("a store that fails: %v", err)
		}
	})
}

func TestOpen(t *testing.T) {
	gpio := filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(gpio, []byte("0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Open(gpio)
	if err != nil {
		t.Fatal(err)
	}
	for _, on := range []bool{true, false, true} {
		if err := l.Set(on); err != nil {
			t.Fatal(err)
		}
		if text, _ := os.ReadFile(gpio); (string(text) == "1\n") != on {
			t.Errorf("%v: %q", on, text)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	port, err := pty.OpenPort()
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	for name, want := range map[string]string{
		gpio + ".none":       "name a serial port",
		port.Path() + ":cts": "want " + port.Path() + ":dtr or",
		port.Path():          "cannot be switched", // a pseudo-terminal has no such line
		port.Path() + ":rts": "cannot be switched",
	} {
		if _, err := Open(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Readings between the levels are passed over; what changed while scans were lost is no change.
func TestFinder(t *testing.T) {
	s := &measure.Setup{
		Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 100},
		Channels: []measure.Channel{{Name: "a"}, {Name: "meter/witness", Skew: 10e-6}},
	}
	if n := ChannelOf(s); n != 1 {
		t.Fatalf("channel %d", n)
	}
	f := NewFinder(s, 1, 0, 100)
	for _, b := range []struct {
		first  uint64
		counts []measure.Count
	}{{0, []measure.Count{3, 0, 0, 98}}, {4, []measure.Count{100, 100, 50, 2}}, {20, []measure.Count{99, 99, 0}}} {
		f.Add(&measure.Block{
			FirstScan: b.first, FirstTick: int64(100 * b.first), Counts: [][]measure.Count{make([]measure.Count, len(b.counts)), b.counts},
		})
	}
	want := []Change{{210e-6, 310e-6, true}, {510e-6, 710e-6, false}, {2110e-6, 2210e-6, false}}
	if len(f.Changes) != len(want) {
		t.Fatalf("%v", f.Changes)
	}
	for i, c := range f.Changes {
		if math.Abs(float64(c.From-want[i].From)) > 1e-9 || math.Abs(float64(c.To-want[i].To)) > 1e-9 || c.On != want[i].On {
			t.Errorf("%v, want %v", c, want[i])
		}
	}
	if n := ChannelOf(&measure.Setup{Channels: []measure.Channel{{Name: "eyewitness"}}}); n != -1 {
		t.Errorf("channel %d", n)
	}
}
