//go:build linux

package emulator_test

import (
	"context"
	"errors"
	"io"
	"math"
	"testing"
	"time"

	"wattmark/measure"
	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/dataqface"
	"wattmark/monitor/emulator/fault"
	"wattmark/monitor/emulator/pace"
	"wattmark/monitor/emulator/pmdface"
	"wattmark/monitor/emulator/ps3face"
	"wattmark/monitor/emulator/pty"
	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/analog"
	"wattmark/monitor/instrument/dataq"
	"wattmark/monitor/instrument/pmd"
	"wattmark/monitor/instrument/powersensor3"
)

// device is a protocol face.
type device interface {
	Run(context.Context, io.ReadWriteCloser) error
	StreamStart() time.Duration
}

// keeper keeps a capture and calls stop once enough device time came.
type keeper struct {
	tb     measure.Timebase
	enough measure.Seconds
	stop   func()
	blocks []measure.Block
	events []measure.Event
	start  time.Duration // board time of device time zero
}

func (k *keeper) Block(b *measure.Block) error {
	c := measure.Block{FirstScan: b.FirstScan, FirstTick: b.FirstTick, Ticks: append([]int64(nil), b.Ticks...)}
	for _, col := range b.Counts {
		c.Counts = append(c.Counts, append([]measure.Count(nil), col...))
	}
	k.blocks = append(k.blocks, c)
	if k.tb.Seconds(c.TickAt(k.tb, c.Scans()-1)) > k.enough {
		k.stop()
	}
	return nil
}

func (k *keeper) Event(e measure.Event) error { k.events = append(k.events, e); return nil }

// drive serves a face on a real pty in real time and lets the product's driver
// capture from it for d.
func drive(t *testing.T, dev device, faults fault.Faults, d measure.Seconds, open func(path string) (instrument.Instrument, error), plug func(*fault.Line)) (*keeper, instrument.Inputs, error) {
	t.Helper()
	port, err := pty.OpenPort()
	if err != nil {
		t.Fatal(err)
	}
	line := fault.New(port, faults)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- dev.Run(ctx, line) }()
	driver, err := open(port.Path())
	if err != nil {
		t.Fatal(err)
	}
	if err := driver.Open(ctx); err != nil {
		t.Fatal(err)
	}
	in := driver.Inputs()
	streaming, stop := context.WithCancel(ctx)
	defer stop()
	k := &keeper{tb: in.Timebase, enough: d, stop: stop}
	if plug != nil {
		timer := time.AfterFunc(200*time.Millisecond, func() { plug(line) })
		defer timer.Stop()
	}
	err = driver.Stream(streaming, k)
	k.start = dev.StreamStart()
	// The driver goes first: once the device is gone its pty's number, and with it
	// the name of the driver's lock, may serve a test beside this one.
	_ = driver.Close()
	cancel()
	if e := <-ended; e != nil && plug == nil {
		t.Errorf("the device ends with %v", e)
	}
	return k, in, err
}

// unhurried is the wall clock's pace for a device that forgets nothing while a
// busy machine keeps it waiting: what goes missing, the driver has lost.
func unhurried() pace.Pace { return pace.Pace{Epoch: time.Now(), Backlog: time.Minute} }

// workload is a board with 5 s of loads; the driver may begin at any time.
func workload(t *testing.T) *board.Board {
	t.Helper()
	b, err := board.New(board.Config{Seed: 2})
	if err != nil {
		t.Fatal(err)
	}
	loads := []board.Load{board.Compute, board.Sleep, board.Memory, board.ActiveIdle, board.Half}
	for i := range 150 {
		if _, err := b.SetLoad(time.Duration(i)*37*time.Millisecond, loads[i%len(loads)]); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// compare integrates a window of the capture and compares it with the board.
func compare(t *testing.T, k *keeper, setup measure.Setup, b *board.Board, rails []int, limit float64) {
	t.Helper()
	if err := setup.Validate(); err != nil {
		t.Fatal(err)
	}
	from, to := measure.Seconds(0.05), k.enough-0.05
	g, err := measure.NewIntegrator(&setup, from, to)
	if err != nil {
		t.Fatal(err)
	}
	for i := range k.blocks {
		if err := g.Add(&k.blocks[i]); err != nil {
			t.Fatal(err)
		}
	}
	r, err := g.Result(measure.Edges{})
	if err != nil {
		t.Fatal(err)
	}
	truth, err := b.Energy(k.start+from.Duration(), k.start+to.Duration())
	if err != nil {
		t.Fatal(err)
	}
	var want measure.Joule
	for _, i := range rails {
		want += truth.Rails[i]
	}
	rel := float64(r.Total.Energy/want) - 1
	t.Logf("%+.4f %% of %v in %v; %d scans, %d gaps, %d lost, %d events", 100*rel, want, to-from, r.Samples, r.Gaps, r.Lost, len(k.events))
	if math.Abs(rel) > limit {
		t.Errorf("%v through the driver, %v injected: %+.3f %%", r.Total.Energy, want, 100*rel)
	}
}

// spoilt are the faults of a bad cable.
var spoilt = fault.Faults{Seed: 3, Drop: 2e-5, Duplicate: 2e-5, Corrupt: 2e-5, After: 4000, Fragment: 50}

func TestPowerSensor3DriverAgainstTheBoard(t *testing.T) {
	for name, c := range map[string]struct {
		faults   fault.Faults
		saturate bool
		limit    float64
	}{
		"good line":                 {limit: 2e-3},
		"bad line":                  {faults: spoilt, limit: 1e-2},
		"sensor 7 like a stop mark": {saturate: true, limit: 2e-3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := workload(t)
			// Three pairs, so that sensor 7 is free to misbehave.
			f, err := ps3face.New(b, unhurried(), ps3face.Config{Seed: 2, Rails: []string{"pcie_12v", "aux_12v_1", "aux_12v_2"}})
			if err != nil {
				t.Fatal(err)
			}
			f.SaturateSensor7(c.saturate)
			k, in, err := drive(t, f, c.faults, 0.8, func(path string) (instrument.Instrument, error) {
				return powersensor3.New(path, powersensor3.Defaults())
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			rails, missing := powersensor3.NaturalRails(in)
			setup := measure.Setup{Timebase: in.Timebase, Channels: in.Channels, Rails: rails, Missing: missing}
			compare(t, k, setup, b, []int{1, 2, 3}, c.limit)
			if c.faults.Drop > 0 && len(k.events) == 0 {
				t.Error("a bad line leaves no event")
			}
			if c.faults.Drop == 0 && len(k.events) > 0 {
				t.Errorf("events on a good line: %+v", k.events)
			}
		})
	}
}

func TestPMDDriverAgainstTheBoard(t *testing.T) {
	for name, c := range map[string]struct {
		faults fault.Faults
		limit  float64
	}{"good line": {limit: 3e-3}, "bad line": {faults: spoilt, limit: 1.5e-2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := workload(t)
			f, err := pmdface.New(b, unhurried(), pmdface.Config{Seed: 2})
			if err != nil {
				t.Fatal(err)
			}
			k, in, err := drive(t, f, c.faults, 0.8, func(path string) (instrument.Instrument, error) {
				return pmd.New(path, pmd.Defaults())
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			rails, missing := pmd.NaturalRails(in)
			setup := measure.Setup{Timebase: in.Timebase, Channels: in.Channels, Rails: rails[:3], Missing: missing}
			compare(t, k, setup, b, []int{1, 2, 3}, c.limit)
			if c.faults.Drop == 0 && len(k.events) > 0 {
				t.Errorf("events on a good line: %+v", k.events)
			}
		})
	}
}

func TestDATAQDriverAgainstTheBoard(t *testing.T) {
	for model, rails := range map[string][]int{"DI-1100": {2, 3}, "DI-2108": {0, 1, 2, 3}} {
		for name, c := range map[string]struct {
			faults fault.Faults
			limit  float64
		}{"good line": {limit: 5e-3}, "bad line": {faults: fault.Faults{Seed: 3, Drop: 2e-5, Duplicate: 2e-5, After: 4000, Fragment: 50}, limit: 2e-2}} {
			t.Run(model+", "+name, func(t *testing.T) {
				t.Parallel()
				b := workload(t)
				o := dataq.Defaults()
				o.Model, o.Inputs = model, nil
				var names []string
				for k, i := range rails {
					names = append(names, b.Rails()[i].Name)
					o.Inputs = append(o.Inputs, analog.Input{AIN: 2 * k, Name: names[k] + ".voltage", PerVolt: dataqface.Divider},
						analog.Input{AIN: 2*k + 1, Name: names[k] + ".current", Unit: "A", PerVolt: dataqface.PerVolt})
				}
				f, err := dataqface.New(b, unhurried(), dataqface.Config{Model: model, Seed: 2, Rails: names})
				if err != nil {
					t.Fatal(err)
				}
				k, in, err := drive(t, f, c.faults, 0.8, func(path string) (instrument.Instrument, error) { return dataq.New(path, o) }, nil)
				if err != nil {
					t.Fatal(err)
				}
				setup := measure.Setup{Timebase: in.Timebase, Channels: in.Channels}
				setup.Rails, setup.Missing = dataq.NaturalRails(in)
				compare(t, k, setup, b, rails, c.limit)
				if c.faults.Drop == 0 && len(k.events) > 0 {
					t.Errorf("events on a good line: %+v", k.events)
				}
			})
		}
	}
}

func TestAPulledCableEndsTheDriver(t *testing.T) {
	t.Parallel()
	b, err := board.New(board.Config{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := ps3face.New(b, unhurried(), ps3face.Config{})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = drive(t, f, fault.Faults{}, 60, func(path string) (instrument.Instrument, error) {
		return powersensor3.New(path, powersensor3.Defaults())
	}, func(l *fault.Line) { _ = l.Close() })
	if !errors.Is(err, instrument.ErrDisconnected) {
		t.Errorf("the driver ends with %v, want ErrDisconnected", err)
	}
}
