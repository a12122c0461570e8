package nvml

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/internal/montest"
)

// fake is a sensor whose reading follows the clock.
type fake struct {
	info   Info
	read   func(n int) (Reading, error)
	n      int
	closed int
}

func (f *fake) Info() Info { return f.info }
func (f *fake) Read() (Reading, error) {
	f.n++
	return f.read(f.n)
}
func (f *fake) Close() error { f.closed++; return nil }

func (f *fake) open(context.Context, string) (Sensor, error) { return f, nil }

func steady(mw int32) func(int) (Reading, error) {
	return func(int) (Reading, error) { return Reading{Instant: mw, Average: mw - 1, Usage: mw - 2}, nil }
}

func opened(t *testing.T, f *fake, o Options) (*Device, *montest.Collector) {
	t.Helper()
	d, err := New(Kind, "", o, f.open)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	in := d.Inputs()
	return d, &montest.Collector{Timebase: in.Timebase, Channels: 1}
}

func TestPollsOnAGrid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{info: Info{Name: "NVIDIA H200", UUID: "GPU-1", Driver: "580"}}
		f.read = func(n int) (Reading, error) {
			if n == 100 {
				time.Sleep(9 * time.Millisecond) // one call hangs
			}
			return Reading{Instant: int32(n), Average: NoReading, Usage: NoReading}, nil
		}
		o := Defaults()
		o.Period = 4 * time.Millisecond
		d, out := opened(t, f, o)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second+time.Millisecond)
		defer cancel()
		if err := d.Stream(ctx, instrument.SinkOf(out)); err != nil {
			t.Fatal(err)
		}
		ticks := out.Ticks()
		if n := len(ticks); n < 498 || n > 501 {
			t.Errorf("%d polls in 2 s", n)
		}
		late := 0
		for i := 1; i < len(ticks); i++ {
			switch d := ticks[i] - ticks[i-1]; {
			case d == 4e6:
			case i == 98: // the reading lies in the middle of the call that hung
				late++
				if d != 4e6+4.5e6 {
					t.Errorf("poll %d: %d ns after the one before", i, d)
				}
			case i == 99:
				late++
				if d%500_000 != 0 || ticks[i]%4_000_000 != 0 {
					t.Errorf("poll %d at %d ns: off the grid", i, ticks[i])
				}
			default:
				t.Errorf("poll %d: %d ns after the one before", i, d)
			}
		}
		if late != 2 {
			t.Errorf("the late poll left %d traces", late)
		}
		if e := out.Events(0); len(e) != 0 {
			t.Errorf("events %+v", e)
		}
		if id := d.Identity(); id.Model != "NVIDIA H200" || id.Serial != "GPU-1" || d.field != FieldInstant {
			t.Errorf("%+v, field %s", id, d.field)
		}
		if got := d.Inputs().Response; got != (measure.Response{Update: 0.1, Tau: 0.0132, Delay: 0.01}) {
			t.Errorf("response %+v", got)
		}
		_ = d.Close()
		_ = d.Close()
		if f.closed != 1 {
			t.Errorf("closed %d times", f.closed)
		}
	})
}

func TestFailedPollsAreAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.read = func(n int) (Reading, error) {
			if n > 50 && n <= 55 {
				return Reading{}, errors.New("busy")
			}
			return steady(100_000)(n)
		}
		d, out := opened(t, f, Defaults())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.Stream(ctx, instrument.SinkOf(out)); err != nil {
			t.Fatal(err)
		}
		gaps := out.Events(measure.EventGap)
		if len(gaps) != 1 || gaps[0].Scans != 5 || !gaps[0].Exact || gaps[0].FirstScan != 49 {
			t.Errorf("%+v", gaps)
		}
	})
}

func TestLostGPUIsDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.read = func(n int) (Reading, error) {
			if n > 100 {
				return Reading{Instant: NoReading, Average: NoReading, Usage: NoReading}, nil
			}
			return steady(100_000)(n)
		}
		d, out := opened(t, f, Defaults())
		if err := d.Stream(t.Context(), instrument.SinkOf(out)); !errors.Is(err, instrument.ErrDisconnected) {
			t.Errorf("%v, want ErrDisconnected", err)
		}
		if n := len(out.Scans()); n != 99 {
			t.Errorf("%d good polls were delivered, want 99", n)
		}
	})
}

func TestFieldFallsBack(t *testing.T) {
	none := int32(NoReading)
	for name, tc := range map[string]struct {
		ask  Field
		r    Reading
		want Field
	}{
		"all":                {FieldAuto, Reading{1, 2, 3}, FieldInstant},
		"no instant":         {FieldAuto, Reading{none, 2, 3}, FieldAverage},
		"usage only":         {FieldAuto, Reading{none, none, 3}, FieldUsage},
		"asked":              {FieldUsage, Reading{1, 2, 3}, FieldUsage},
		"asked, not there":   {FieldInstant, Reading{none, 2, 3}, ""},
		"a GPU without any":  {FieldAuto, Reading{none, none, none}, ""},
		"zero watts is read": {FieldAuto, Reading{0, 2, 3}, FieldInstant},
	} {
		f := &fake{read: func(int) (Reading, error) { return tc.r, nil }}
		o := Defaults()
		o.Field = tc.ask
		d, err := New(Kind, "0", o, f.open)
		if err != nil {
			t.Fatal(err)
		}
		err = d.Open(t.Context())
		if (err == nil) != (tc.want != "") || (err == nil && d.field != tc.want) {
			t.Errorf("%s: field %q, %v", name, d.field, err)
		}
		if err != nil && f.closed != 1 {
			t.Errorf("%s: the sensor was left open", name)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	if _, err := New(Kind, "", Defaults(), nil); !errors.Is(err, ErrNoSensor) {
		t.Errorf("no opener: %v", err)
	}
	lib := errors.New("libnvidia-ml.so.1 not found")
	d, err := New(Kind, "", Defaults(), func(context.Context, string) (Sensor, error) { return nil, lib })
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Open(t.Context()); !errors.Is(err, lib) {
		t.Errorf("%v", err)
	}
	if err := d.Stream(t.Context(), instrument.SinkOf(&montest.Collector{})); err == nil {
		t.Error("Stream of a closed device")
	}
	for _, o := range []Options{
		{},
		{Period: time.Minute, Field: FieldAuto},
		{Period: time.Millisecond, Field: "both"},
	} {
		if _, err := New(Kind, "", o, (&fake{}).open); err == nil {
			t.Errorf("%+v: accepted", o)
		}
	}
}

func TestArchitectures(t *testing.T) {
	for name, want := range map[string]Arch{
		"NVIDIA H200": Hopper, "NVIDIA H100 80GB HBM3": Hopper, "NVIDIA GH200 480GB": Hopper,
		"NVIDIA GeForce RTX 4090": Ada, "NVIDIA L4": Ada, "NVIDIA L40S": Ada, "NVIDIA RTX 6000 Ada Generation": Ada,
		"NVIDIA A100-SXM4-40GB": GA100, "NVIDIA A30": GA100, "NVIDIA GeForce RTX 3090": GA10x, "NVIDIA A10": GA10x,
		"NVIDIA RTX A6000": GA10x, "Tesla T4": Turing, "Quadro RTX 8000": Turing, "Tesla V100-SXM2-16GB": Volta,
		"Tesla P100-PCIE-16GB": Pascal, "Tesla K40m": Kepler, "NVIDIA B200": Unknown, "": Unknown,
	} {
		if got := ArchOf(name); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
	for _, a := range []Arch{Hopper, Ada, GA10x, GA100, Turing, Volta, Pascal, Kepler, Unknown} {
		for _, f := range []Field{FieldInstant, FieldAverage, FieldUsage} {
			if r := ResponseOf(a, f); !(r.Update > 0) || !(r.Window > 0 || r.Tau > 0) {
				t.Errorf("%s %s: %+v", a, f, r)
			}
		}
	}
}

func TestNaturalRails(t *testing.T) {
	in := Inputs(Defaults())
	rails, missing := instrument.NaturalRails(in)
	s := measure.Setup{
		Timebase: in.Timebase, Channels: in.Channels, Rails: rails, Missing: missing,
		Response: in.Response,
	}
	if err := s.Validate(); err != nil || len(rails) != 1 || rails[0].Role != measure.RoleWholeGPU {
		t.Errorf("%+v, %v", rails, err)
	}
}

// TestAMD: the driver of AMD's GPUs reads whichever register a card has, and its response is not NVIDIA's.
func TestAMD(t *testing.T) {
	for want, r := range map[Field]Reading{
		FieldInstant: {Instant: 717_000, Average: NoReading, Usage: NoReading},
		FieldAverage: {Instant: NoReading, Average: 94_000, Usage: NoReading},
	} {
		f := &fake{info: Info{Name: "AMD Instinct MI300X"}, read: func(int) (Reading, error) { return r, nil }}
		d, err := New(AMD, "", Defaults(), f.open)
		if err != nil {
			t.Fatal(err)
		}
		before := d.Inputs().Response
		if err := d.Open(t.Context()); err != nil || d.field != want || d.Identity().Kind != AMD {
			t.Errorf("%v: field %s of %+v", err, d.field, d.Identity())
		}
		if now := d.Inputs().Response; now != before || now.Window != 1 || now != InputsOf(AMD)(Defaults()).Response {
			t.Errorf("response %+v, before opening %+v", now, before)
		}
	}
	f := &fake{read: func(int) (Reading, error) { return Reading{NoReading, 94_000, NoReading}, nil }}
	d, _ := New(AMD, "", Options{Period: Defaults().Period, Field: FieldUsage}, f.open)
	if err := d.Open(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "amdsmi: ") || f.closed != 1 {
		t.Errorf("a register that it lacks: %v", err)
	}
}
