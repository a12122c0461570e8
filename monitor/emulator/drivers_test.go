//go:build linux

package emulator_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/calib"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/bench"
	"github.com/wattmark/wattmark/monitor/calibration"
	owning "github.com/wattmark/wattmark/monitor/capture"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	dataqface "github.com/wattmark/wattmark/monitor/emulator/dataq"
	"github.com/wattmark/wattmark/monitor/emulator/fault"
	keysightface "github.com/wattmark/wattmark/monitor/emulator/keysight"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	pmdface "github.com/wattmark/wattmark/monitor/emulator/pmd"
	ps3face "github.com/wattmark/wattmark/monitor/emulator/powersensor3"
	"github.com/wattmark/wattmark/monitor/emulator/pty"
	rigolface "github.com/wattmark/wattmark/monitor/emulator/rigol"
	rsface "github.com/wattmark/wattmark/monitor/emulator/rohdeschwarz"
	scopeface "github.com/wattmark/wattmark/monitor/emulator/scope"
	siglentface "github.com/wattmark/wattmark/monitor/emulator/siglent"
	tekface "github.com/wattmark/wattmark/monitor/emulator/tektronix"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/analog"
	"github.com/wattmark/wattmark/monitor/instrument/dataq"
	"github.com/wattmark/wattmark/monitor/instrument/pmd"
	"github.com/wattmark/wattmark/monitor/instrument/powersensor3"
	"github.com/wattmark/wattmark/monitor/instrument/registry"
	"github.com/wattmark/wattmark/monitor/internal/montest"
	"github.com/wattmark/wattmark/monitor/spool"
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
func drive(t *testing.T, dev device, faults fault.Faults, d measure.Seconds,
	open func(path string) (instrument.Instrument, error), plug func(*fault.Line),
) (*keeper, instrument.Inputs, error) {
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
	err = driver.Stream(streaming, instrument.SinkOf(k))
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
	loads := []load.State{load.Compute, load.Sleep, load.Memory, load.ActiveIdle, load.Half}
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
	t.Logf("%+.4f %% of %v in %v; %d scans, %d gaps, %d lost, %d events", 100*rel, want, to-from, r.Samples, r.Gaps,
		r.Lost, len(k.events))
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
			f, err := ps3face.New(b, unhurried(),
				ps3face.Config{Seed: 2, Rails: []string{"pcie_12v", "aux_12v_1", "aux_12v_2"}})
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
		}{"good line": {limit: 5e-3}, "bad line": {faults: fault.Faults{
			Seed: 3, Drop: 2e-5, Duplicate: 2e-5,
			After: 4000, Fragment: 50,
		}, limit: 2e-2}} {
			t.Run(model+", "+name, func(t *testing.T) {
				t.Parallel()
				b := workload(t)
				o := dataq.Defaults()
				o.Model, o.Inputs = model, nil
				var names []string
				for k, i := range rails {
					names = append(names, b.Rails()[i].Name)
					o.Inputs = append(o.Inputs,
						analog.Input{AIN: 2 * k, Name: names[k] + ".voltage", PerVolt: meter.Divider},
						analog.Input{AIN: 2*k + 1, Name: names[k] + ".current", Unit: "A", PerVolt: meter.PerVolt})
				}
				f, err := dataqface.New(b, unhurried(), dataqface.Config{Model: model, Seed: 2, Rails: names})
				if err != nil {
					t.Fatal(err)
				}
				k, in, err := drive(t, f, c.faults, 0.8,
					func(path string) (instrument.Instrument, error) { return dataq.New(path, o) }, nil)
				if err != nil {
					t.Fatal(err)
				}
				setup := measure.Setup{Timebase: in.Timebase, Channels: in.Channels}
				setup.Rails, setup.Missing = instrument.NaturalRails(in)
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

// Of two meters on one card, one has been calibrated: its record is in force in the
// capture of both, and that of a third meter is not.
func TestARecordOfOneOfTwoMeters(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	file, err := bench.Parse("bench.yaml",
		[]byte(instrumentsKey+p.pmd(0, "aux_12v_1", "aux_12v_2")+p.labjack("pcie_12v", "pcie_3v3")))
	if err != nil {
		t.Fatal(err)
	}
	ins, err := file.NewInstrument(registry.Env{})
	if err != nil {
		t.Fatal(err)
	}
	folder := calibration.Folder(t.TempDir())
	store, err := spool.Open(t.TempDir(), spool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	owner, err := owning.New(owning.Config{
		Bench: owning.Bench{Name: "bench", Instrument: ins, Setup: file.Setup, Calibrate: folder.Calibrate},
		Store: store,
	})
	if err != nil {
		t.Fatal(err)
	}
	p.run(owner.Run)
	header := func() session.Header {
		c, err := owner.Start(t.Context(), session.Request{Holder: "ada@lab"})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if _, err := c.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		return c.Header()
	}
	first := header()
	parts := first.Instrument.Parts()
	if len(parts) != 2 || parts[0].Kind != "pmd" || parts[1].Kind != "labjack" || parts[1].Serial == "" ||
		len(first.Setup.Records) != 0 {
		t.Fatalf("%+v, %+v", parts, first.Setup.Records)
	}
	const channel = "pcie_12v.current"
	at := -1
	for i, c := range first.Setup.Channels {
		if c.Name == "t7/"+channel {
			at = i
		}
	}
	was := first.Setup.Channels[at]
	record := func(serial string, gain float64) {
		nominal := calib.ScaleOf(was)
		scale := nominal
		scale.Gain *= gain
		r := &calib.Record{
			Done: calib.Gain, At: time.Now(), By: "ada", Instrument: calib.Instrument{Kind: "labjack", Serial: serial},
			Channels: []calib.Channel{{Name: channel, Unit: was.Unit, Scale: &scale, Nominal: &nominal}},
		}
		if _, err := folder.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	record(parts[1].Serial, 1.01)
	record("another", 1.02)
	second := header()
	for i, c := range second.Setup.Channels {
		want := first.Setup.Channels[i]
		if i == at {
			want.Gain *= 1.01
		}
		if c != want {
			t.Errorf("%+v, want %+v", c, want)
		}
	}
	notes := strings.Join(owner.Bench(t.Context()).Notes, "\n")
	if len(second.Setup.Records) != 1 || !strings.Contains(notes, "it is of a labjack another, this is a pmd") {
		t.Errorf("%+v, %s", second.Setup.Records, notes)
	}
}

// socket is where a meter is plugged in, as udev names it.
type socket struct {
	t    *testing.T
	link string
	plug *montest.Plug
}

func (s *socket) in() {
	s.t.Helper()
	face, err := ps3face.New(montest.Workload(s.t, 5*time.Second), pace.Pace{Epoch: time.Now()}, ps3face.Config{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.plug = montest.PlugIn(s.t, face, fault.Faults{})
	if err := os.Symlink(s.plug.Path, s.link); err != nil {
		s.t.Fatal(err)
	}
}

func (s *socket) out() {
	s.t.Helper()
	if err := os.Remove(s.link); err != nil {
		s.t.Fatal(err)
	}
	s.plug.Pull()
}

// A bench tells that its meter was unplugged, idle or in a capture, and that it was
// plugged in again, without a restart.
func TestBenchTellsOfAnUnpluggedMeter(t *testing.T) {
	s := &socket{t: t, link: filepath.Join(t.TempDir(), "meter")}
	s.in()
	b, err := bench.Default("powersensor3", s.link)
	if err != nil {
		t.Fatal(err)
	}
	ins, err := b.NewInstrument(registry.Env{})
	if err != nil {
		t.Fatal(err)
	}
	store, err := spool.Open(t.TempDir(), spool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o, err := owning.New(owning.Config{
		Bench: owning.Bench{Name: b.Name, Instrument: ins, Setup: b.Setup}, Store: store, Reopen: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- o.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	gone := func(b session.Bench) bool { return strings.Contains(b.Trouble, "disconnected") }
	if b := o.Ask(ctx); b.Trouble != "" || !b.Known() {
		t.Fatalf("plugged in: %+v", b)
	}
	s.out() // idle, and never sampled
	if b := o.Ask(ctx); !gone(b) || !gone(o.Bench(ctx)) {
		t.Errorf("unplugged: %v", b.Trouble)
	}
	s.in()
	if b := o.Ask(ctx); b.Trouble != "" || o.Bench(ctx).Trouble != "" {
		t.Errorf("plugged in again: %v", b.Trouble)
	}
	c, err := o.Start(ctx, session.Request{Holder: "ada@lab"})
	if err != nil {
		t.Fatal(err)
	}
	s.out()
	await(t, "the capture's meter is lost", func() bool { return gone(o.Ask(ctx)) })
	s.in()
	await(t, "the capture has its meter again", func() bool { return o.Ask(ctx).Trouble == "" })
	if sum, err := c.Stop(ctx); err != nil || sum.State != session.Complete || sum.Gaps == 0 {
		t.Errorf("%+v, %v", sum, err)
	}
}

// await asks until it is so, or the test's time is over.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatal("not within a minute: ", what)
		}
	}
}

// scopeFace is an emulated scope.
type scopeFace interface {
	Serve(ctx context.Context, l net.Listener, wrap func(net.Conn) io.ReadWriteCloser) error
	Begin() time.Duration
}

// scopeCase is a family: how it is set for some 25 to 50 kS/s.
type scopeCase struct {
	kind, options string
	rails         int
	rate          measure.Hertz
	face          func(*board.Board, scopeface.Config) (scopeFace, error)
}

func rigolCase(kind, depth string, rate measure.Hertz, f *rigolface.Family) scopeCase {
	return scopeCase{kind, "depth: " + depth, 2, rate, func(b *board.Board, cfg scopeface.Config) (scopeFace, error) {
		return rigolface.New(b, f, cfg)
	}}
}

// scopeBench is the documented bench file at an address, with a short window.
func scopeBench(t *testing.T, address string, c scopeCase) *bench.Bench {
	t.Helper()
	file := `
name: scope
instruments:
  - kind: ` + c.kind + `
    address: ` + address + `
    options:
      window: 1200ms
      ` + c.options + `
      inputs:
        ch1: {scale: 0.05, offset: -0.1, ampere_per_volt: 100}
        ch2: {scale: 0.5, offset: -12}`
	rails := "\n  - {name: aux_12v_1, clamp: {current: ch1, voltage: ch2}}"
	if c.rails == 2 {
		file += `
        ch3: {scale: 0.05, offset: -0.1, ampere_per_volt: 100}
        ch4: {scale: 0.5, offset: -12}`
		rails += "\n  - {name: aux_12v_2, clamp: {current: ch3, voltage: ch4}}"
	}
	b, err := bench.Parse("scope.yaml", []byte(file+"\nrails:"+rails+"\nmissing: [pcie_12v, pcie_3v3]\n"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// energies adds up what a capture holds between its markers.
type energies struct {
	setup *measure.Setup
	sum   *measure.Integrator
	blk   measure.Block
}

func (e *energies) Header(session.Opening) error  { return nil }
func (e *energies) Event(measure.Event) error     { return nil }
func (e *energies) Trailer(session.Trailer) error { return nil }
func (e *energies) Chunk(h chunk.Chunk, payload []byte) error {
	if err := e.decode(h, payload); err != nil {
		return err
	}
	return e.sum.Add(&e.blk)
}

func (e *energies) decode(h chunk.Chunk, payload []byte) error {
	if err := chunk.ParsePayload(&h, payload); err != nil {
		return err
	}
	return chunk.Decode(&h, e.setup.Timebase, len(e.setup.Channels), &e.blk)
}

// A task between markers, measured with a scope whose memory is read after the
// stop, over the whole way: bench file, driver, TCP, capture, spool.
func TestATaskOnAScope(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	for name, c := range map[string]scopeCase{
		"DS1000Z": rigolCase("rigol-ds1000z", "30000", 25e3, rigolface.DS1000Z),
		"MSO5000": rigolCase("rigol-mso5000", "100000", 50e3, rigolface.MSO5000),
		"DHO":     rigolCase("rigol-dho", "100000", 50e3, rigolface.DHO),
		"EDUX1002G": {
			"keysight-infiniivision", "timeout: 5s", 1, 25e3,
			func(b *board.Board, cfg scopeface.Config) (scopeFace, error) {
				return keysightface.New(b, keysightface.EDUX1002G, keysightface.Config{Config: cfg})
			},
		},
		"RTB2004": {
			"rohde-schwarz-rtb2000", "depth: 100000", 2, 40e3,
			func(b *board.Board, cfg scopeface.Config) (scopeFace, error) {
				return rsface.New(b, rsface.RTB2004, cfg)
			},
		},
		"SDS2000X Plus": {
			"siglent-e11", "depth: 100000", 2, 40e3,
			func(b *board.Board, cfg scopeface.Config) (scopeFace, error) {
				return siglentface.New(b, siglentface.SDS2000XPlus, cfg)
			},
		},
		"MDO3000": {
			"tektronix", "depth: 100000", 2, 50e3,
			func(b *board.Board, cfg scopeface.Config) (scopeFace, error) {
				return tekface.New(b, tekface.MDO3000, cfg)
			},
		},
		"MSO4": {
			"tektronix", "depth: 100000", 2, 62.5e3,
			func(b *board.Board, cfg scopeface.Config) (scopeFace, error) {
				return tekface.New(b, tekface.MSO4, cfg)
			},
		},
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); taskOnAScope(t, c, false) })
		if c.rails == 1 {
			t.Run(name+" with errors", func(t *testing.T) { t.Parallel(); taskOnAScope(t, c, true) })
		}
	}
}

// owned is a scope on a board, and the one who owns its driver.
type owned struct {
	board *board.Board
	live  *board.Live
	face  scopeFace
	owner *owning.Owner
}

// own serves a scope and lets a driver be owned until the test ends.
func own(t *testing.T, family scopeCase, imperfect bool) *owned {
	t.Helper()
	b, err := board.New(board.Config{Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	o := &owned{board: b, live: board.NewLive(b, time.Now())}
	cfg := scopeface.Config{Seed: 5, Draw: imperfect, Now: func() time.Duration { return o.live.Since(time.Now()) }}
	if o.face, err = family.face(b, cfg); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	store, err := spool.Open(t.TempDir(), spool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	file := scopeBench(t, "tcp:"+l.Addr().String(), family)
	ins, err := file.NewInstrument(registry.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if o.owner, err = owning.New(owning.Config{
		Bench: owning.Bench{Name: "scope", Instrument: ins, Setup: file.Setup}, Store: store,
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- o.face.Serve(ctx, l, nil) }()
	go func() { ended <- o.owner.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		_ = store.Close()
	})
	return o
}

// lay puts a marker on the board as a GPU would play it and returns its end.
func lay(t *testing.T, b *board.Board, spec marker.Spec, kind marker.Kind, begin time.Duration) (end time.Duration) {
	t.Helper()
	chips := spec.Chips(kind)
	for i := 0; i <= len(chips); i++ {
		l := load.ActiveIdle
		if i < len(chips) {
			l = load.Sleep
			if chips[i] {
				l = load.Full
			}
		}
		end = begin + measure.Seconds(float64(i)*float64(spec.Chip)).Duration()
		if _, err := b.SetLoad(end, l); err != nil {
			t.Fatal(err)
		}
	}
	return end
}

func taskOnAScope(t *testing.T, family scopeCase, imperfect bool) {
	var off time.Duration
	for range 3 { // a machine that is too busy hears late that the scope began
		if off = measureOnAScope(t, family, imperfect); off > -20*time.Millisecond && off < 20*time.Millisecond {
			return
		}
	}
	t.Errorf("the capture's begin is off by %v", off)
}

// measureOnAScope returns by how much the capture's begin is off.
func measureOnAScope(t *testing.T, family scopeCase, imperfect bool) (off time.Duration) {
	t.Helper()
	o := own(t, family, imperfect)
	spec := marker.FastProfile(family.rate, 7)
	c, err := o.owner.Start(t.Context(), session.Request{Holder: "ada@lab", Marker: spec})
	if err != nil {
		t.Fatal(err)
	}
	begin := lay(t, o.board, spec, marker.Start, o.live.Since(time.Now())+50*time.Millisecond)
	if _, err := o.board.SetLoad(begin+20*time.Millisecond, load.Compute); err != nil {
		t.Fatal(err)
	}
	end := lay(t, o.board, spec, marker.Stop, begin+250*time.Millisecond)
	<-time.After(time.Until(o.live.Time(end)))
	sum, err := c.Stop(t.Context())
	if err != nil || sum.State != session.Complete || sum.Window == nil || sum.Lost != 0 {
		t.Fatalf("%+v, %v", sum, err)
	}
	// The instant at which the capture says that it began is the scope's own.
	off = o.live.Since(c.Started()) - o.face.Begin()
	r, want := o.energy(t, c, *sum.Window, family.rails)
	rel := float64(r.Total.Energy/want) - 1
	t.Logf("%+.3f %% of %v between markers; ± %v stated; %d scans", 100*rel, want, r.Total.U, sum.Scans)
	if math.Abs(float64(r.Total.Energy-want)) > float64(r.Total.U) || !imperfect && math.Abs(rel) > 5e-3 {
		t.Errorf("%v ± %v measured, %v drawn", r.Total.Energy, r.Total.U, want)
	}
	return off
}

// energy is what a capture holds between its markers, and what the board drew.
func (o *owned) energy(t *testing.T, c *owning.Capture, w measure.Window, rails int) (r measure.Result,
	want measure.Joule,
) {
	t.Helper()
	setup := c.Header().Setup
	truth, err := o.board.Energy(o.face.Begin()+w.From.Duration(), o.face.Begin()+w.To.Duration())
	if err != nil {
		t.Fatal(err)
	}
	e := energies{setup: &setup}
	if e.sum, err = measure.NewIntegrator(&setup, w.From, w.To); err != nil {
		t.Fatal(err)
	}
	if err := c.Read(t.Context(), owning.ReadOptions{}, &e); err != nil {
		t.Fatal(err)
	}
	if r, err = e.sum.Result(measure.Edges{}); err != nil {
		t.Fatal(err)
	}
	for _, j := range truth.Rails[len(truth.Rails)-2:][:rails] {
		want += j
	}
	return r, want
}
