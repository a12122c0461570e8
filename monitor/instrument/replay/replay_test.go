package replay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/internal/montest"
)

var (
	identity = instrument.Identity{Kind: "pmd", Model: "PMD-USB", Firmware: "6", Address: "/dev/ttyUSB0"}
	inputs   = instrument.Inputs{
		Timebase: measure.Timebase{TickHz: 1e6, UTickHz: 1e-4, TicksPerScan: 200, Stamped: true},
		Response: measure.Response{Update: 0.1, Window: 0.025},
		Channels: []measure.Channel{
			{
				Name: "eps1.voltage", Unit: measure.UnitVolt, Gain: 0.007568, Offset: 0.1, UGain: 0.005, UOffset: 0.01,
				Noise: 0.02, MinCount: -2048, MaxCount: 2047,
			},
			{Name: "eps1.current", Unit: measure.UnitAmpere, Gain: 0.0488, Skew: 1e-5},
		},
	}
)

// record makes a recording of two blocks with a gap between, 1 s in all.
func record(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "rec")
	w, err := Create(dir, identity, inputs)
	if err != nil {
		t.Fatal(err)
	}
	block := func(from, n int) {
		b := measure.Block{FirstScan: uint64(from), FirstTick: int64(from) * 200, Counts: make([][]measure.Count, 2)}
		for i := range n {
			b.Ticks = append(b.Ticks, int64(from+i)*200)
			b.Counts[0] = append(b.Counts[0], measure.Count(from+i))
			b.Counts[1] = append(b.Counts[1], measure.Count(-from-i))
		}
		if err := w.Block(&b); err != nil {
			t.Fatal(err)
		}
	}
	block(0, 2000)
	gap := measure.Event{
		Kind: measure.EventGap, FirstScan: 2000, Scans: 500, Exact: true, Channel: -1,
		Detail: `cable, "loose"`,
	}
	if err := w.Event(gap); err != nil {
		t.Fatal(err)
	}
	block(2500, 2500)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func play(t *testing.T, dir string, o Options) (*montest.Collector, error) {
	t.Helper()
	d, err := New(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if diff := cmp.Diff(inputs, d.Inputs()); diff != "" {
		t.Error(diff)
	}
	if id := d.Identity(); id.Kind != Kind || id.Model != "pmd PMD-USB" || id.Address != dir {
		t.Errorf("%+v", id)
	}
	out := &montest.Collector{Timebase: inputs.Timebase, Channels: 2}
	return out, d.Stream(t.Context(), instrument.SinkOf(out))
}

func TestRecordAndPlay(t *testing.T) {
	dir := record(t)
	out, err := play(t, dir, Options{Speed: 0, AtEnd: "stop"})
	if !errors.Is(err, ErrEnd) {
		t.Fatal(err)
	}
	scans, ticks, v, i := out.Scans(), out.Ticks(), out.Counts(0), out.Counts(1)
	if len(scans) != 4500 {
		t.Fatalf("%d scans", len(scans))
	}
	for k, s := range scans {
		if ticks[k] != int64(s)*200 || v[k] != measure.Count(s) || i[k] != -measure.Count(s) {
			t.Fatalf("scan %d: tick %d, counts %d %d", s, ticks[k], v[k], i[k])
		}
	}
	want := []measure.Event{{
		Kind: measure.EventGap, FirstScan: 2000, Scans: 500, Exact: true, Channel: -1,
		Detail: `cable, "loose"`,
	}}
	if d := cmp.Diff(want, out.Events(0)); d != "" {
		t.Error(d)
	}
	if _, err := Create(dir, identity, inputs); err == nil {
		t.Error("a recording was overwritten")
	}
}

func TestPlaysAtItsOwnPace(t *testing.T) {
	dir := record(t)
	for speed, want := range map[float64]time.Duration{1: time.Second, 4: 250 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			if _, err := play(t, dir, Options{Speed: speed, AtEnd: "stop"}); !errors.Is(err, ErrEnd) {
				t.Fatal(err)
			}
			if d := time.Since(begin); d < want-want/10 || d > want+want/10 {
				t.Errorf("speed %v: took %v, want %v", speed, d, want)
			}
		})
	}
}

func TestWaitsAtTheEnd(t *testing.T) {
	dir := record(t)
	synctest.Test(t, func(t *testing.T) {
		d, err := New(dir, Defaults())
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		out := &montest.Collector{Timebase: inputs.Timebase, Channels: 2}
		if err := d.Stream(ctx, instrument.SinkOf(out)); err != nil || len(out.Scans()) != 4500 {
			t.Errorf("%d scans, %v", len(out.Scans()), err)
		}
	})
}

// A recording made by hand may lack events and begin anywhere.
func TestForeignRecording(t *testing.T) {
	dir := record(t)
	if err := os.Remove(filepath.Join(dir, eventsFile)); err != nil {
		t.Fatal(err)
	}
	csv := "scan,tick,v,i\n100,5000,1,2\n101,5200,3,4\n105,6000,5,6\r\n106,62"
	if err := os.WriteFile(filepath.Join(dir, ScansFile), []byte(csv), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := play(t, dir, Options{AtEnd: "stop"})
	if !errors.Is(err, ErrEnd) {
		t.Fatal(err)
	}
	if d := cmp.Diff([]uint64{0, 1, 5}, out.Scans()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]int64{0, 200, 1000}, out.Ticks()); d != "" {
		t.Error(d)
	}
	if out.Lost() != 3 {
		t.Errorf("lost %d", out.Lost())
	}
}

func TestBadRecordings(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"no folder": func(dir string) error { return os.RemoveAll(dir) },
		"no json": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, MetaFile), []byte("{"),
				0o600)
		},
		"another format":  func(dir string) error { return replace(dir, MetaFile, formatName, "x") },
		"another version": func(dir string) error { return replace(dir, MetaFile, `"version": 1`, `"version": 2`) },
		"bad timebase": func(dir string) error {
			return replace(dir, MetaFile, `"tick_hz": 1000000`,
				`"tick_hz": 0`)
		},
		"bad channel": func(dir string) error { return replace(dir, MetaFile, `"unit": "V"`, `"unit": "K"`) },
		"no scans":    func(dir string) error { return os.Remove(filepath.Join(dir, ScansFile)) },
		"empty scans": func(dir string) error { return os.WriteFile(filepath.Join(dir, ScansFile), nil, 0o600) },
		"letters":     func(dir string) error { return replace(dir, ScansFile, "7,1400,", "x,1400,") },
		"short line":  func(dir string) error { return replace(dir, ScansFile, "\n7,1400,7,-7\n", "\n7,1400,7\n") },
		"long line": func(dir string) error {
			return replace(dir, ScansFile, "\n7,1400,7,-7\n",
				"\n7,1400,7,-7,1\n")
		},
		"back in time": func(dir string) error { return replace(dir, ScansFile, "\n2500,", "\n1,") },
		"bad event":    func(dir string) error { return replace(dir, eventsFile, "true", "perhaps") },
	} {
		t.Run(name, func(t *testing.T) {
			dir := record(t)
			if err := spoil(dir); err != nil {
				t.Fatal(err)
			}
			d, err := New(dir, Options{AtEnd: "stop"})
			if err != nil {
				t.Fatal(err)
			}
			if err = d.Open(t.Context()); err == nil {
				err = d.Stream(t.Context(),
					instrument.SinkOf(&montest.Collector{Timebase: inputs.Timebase, Channels: 2}))
			}
			if !errors.Is(err, ErrFormat) {
				t.Errorf("%v, want ErrFormat", err)
			}
		})
	}
}

// A quantity that is null, or the NaN of other programs, is refused with the name of its field.
func TestUnknownQuantities(t *testing.T) {
	for field, written := range map[string]string{
		"tick_hz": "1000000", "tau_s": "0", "window_s": "0.025", "update_s": "0.1", "skew_s": "0.00001",
	} {
		for _, unknown := range []string{"null", "NaN"} {
			dir := record(t)
			if err := replace(dir, MetaFile, fmt.Sprintf("%q: %s", field, written),
				fmt.Sprintf("%q: %s", field, unknown)); err != nil {
				t.Fatal(field, err)
			}
			d, err := New(dir, Options{AtEnd: "stop"})
			if err != nil {
				t.Fatal(err)
			}
			if err = d.Open(t.Context()); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), field) {
				t.Errorf("%s of %s: %v, want ErrFormat and the field", field, unknown, err)
			}
		}
	}
}

func replace(dir, file, from, to string) error {
	name := filepath.Join(dir, file)
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if !strings.Contains(string(b), from) {
		return errors.New("nothing to replace")
	}
	return os.WriteFile(name, []byte(strings.Replace(string(b), from, to, 1)), 0o600)
}

func FuzzRow(f *testing.F) {
	f.Add([]byte("1,2,3,4"))
	f.Add([]byte("1,,3"))
	f.Add([]byte("18446744073709551615,0,0,0"))
	f.Fuzz(func(t *testing.T, line []byte) {
		r := row{counts: make([]measure.Count, 2)}
		_ = parseRow(line, &r)
	})
}
