//go:build linux

package emulator_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"wattmark/measure"
	"wattmark/measure/marker"
	"wattmark/monitor/bench"
	owning "wattmark/monitor/capture"
	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/labjackface"
	"wattmark/monitor/emulator/pace"
	"wattmark/monitor/emulator/pmdface"
	"wattmark/monitor/emulator/ps3face"
	"wattmark/monitor/emulator/pty"
	"wattmark/monitor/emulator/rigolface"
	"wattmark/monitor/emulator/textface"
	"wattmark/monitor/instrument/registry"
	"wattmark/monitor/spool"
)

// plant is one card with several instruments on it.
type plant struct {
	t     *testing.T
	board *board.Board
	live  *board.Live
}

func newPlant(t *testing.T) *plant {
	t.Helper()
	b, err := board.New(board.Config{Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	return &plant{t, b, board.NewLive(b, time.Now())}
}

// pace is that of an instrument whose readings arrive late by so much: nothing that
// it says tells of it.
func (p *plant) pace(late time.Duration) pace.Pace {
	return pace.Pace{Epoch: p.live.Epoch.Add(late), Backlog: time.Minute}
}

func (p *plant) now() time.Duration { return p.live.Since(time.Now()) }

func (p *plant) run(f func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(p.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	p.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			p.t.Error(err)
		}
	})
}

// serial puts a face on a pseudo-terminal.
func serial[F interface {
	Run(context.Context, io.ReadWriteCloser) error
}](p *plant, face F, err error) (F, string) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
	port, err := pty.OpenPort()
	if err != nil {
		p.t.Fatal(err)
	}
	p.run(func(ctx context.Context) error { return face.Run(ctx, port) })
	return face, port.Path()
}

func (p *plant) listen() net.Listener {
	p.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	return l
}

func (p *plant) powerSensor(late time.Duration, rails ...string) string {
	f, err := ps3face.New(p.board, p.pace(late), ps3face.Config{Seed: 5, Rails: rails})
	_, path := serial(p, f, err)
	return fmt.Sprintf("  - {name: ps3, kind: powersensor3, port: %s, options: {pair_names: false}}\n", path)
}

func (p *plant) pmd(late time.Duration, rails ...string) string {
	cfg := pmdface.Config{Seed: 5}
	copy(cfg.Rails[:], rails)
	f, err := pmdface.New(p.board, p.pace(late), cfg)
	_, path := serial(p, f, err)
	return fmt.Sprintf("  - {name: pmd, kind: pmd, port: %s}\n", path)
}

func (p *plant) text(rate measure.Hertz, rails ...string) string {
	f, err := textface.New(p.board, p.pace(0), textface.Config{Rails: rails, Rate: rate})
	face, path := serial(p, f, err)
	return fmt.Sprintf("  - {name: arduino, kind: serialtext, port: %s, options: {rate: %v, pattern: %q}}\n", path, float64(rate), face.Pattern())
}

func (p *plant) labjack(rails ...string) string {
	f, err := labjackface.New(p.board, p.pace(0), labjackface.Config{Seed: 5, Rails: rails})
	if err != nil {
		p.t.Fatal(err)
	}
	registers, stream := p.listen(), p.listen()
	p.run(func(ctx context.Context) error { return f.Serve(ctx, registers, stream) })
	var inputs []string
	for i, r := range rails {
		inputs = append(inputs, fmt.Sprintf("{ain: %d, name: %s.voltage, per_volt: 2}, {ain: %d, name: %s.current, unit: A, per_volt: 10}", 2*i, r, 2*i+1, r))
	}
	return fmt.Sprintf("  - {name: t7, kind: labjack, address: \"tcp:%s\", options: {scan_rate: 8000, stream_port: %d, inputs: [%s]}}\n",
		registers.Addr(), stream.Addr().(*net.TCPAddr).Port, strings.Join(inputs, ", "))
}

func (p *plant) scope(cfg rigolface.Config) (*rigolface.Face, string) {
	p.t.Helper()
	cfg.Seed, cfg.Now = 5, p.now
	f, err := rigolface.New(p.board, cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	l := p.listen()
	p.run(func(ctx context.Context) error { return f.Serve(ctx, l, nil) })
	return f, "tcp:" + l.Addr().String()
}

// task is what a capture of a task came to.
type measured struct {
	c      *owning.Capture
	sum    owning.Summary
	result measure.Result
	events []measure.Event
	from   time.Duration // board time of the window
	to     time.Duration
}

// notes are the events' texts.
func (m *measured) notes() string {
	var s strings.Builder
	for _, e := range m.events {
		fmt.Fprintf(&s, "%v %d %d: %s\n", e.Kind, e.FirstScan, e.Scans, e.Detail)
	}
	return s.String()
}

// reader integrates a capture and keeps its events.
type reader struct {
	energies
	events []measure.Event
}

func (r *reader) Event(e measure.Event) error { r.events = append(r.events, e); return nil }

// measure takes a task between markers with a bench file, over the whole way:
// drivers on real lines, composite, capture, spool.
func (p *plant) measure(text string, spec marker.Spec, work time.Duration, during func()) *measured {
	t := p.t
	t.Helper()
	file, err := bench.Parse("bench.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	ins, err := file.NewInstrument(registry.Env{})
	if err != nil {
		t.Fatal(err)
	}
	store, err := spool.Open(t.TempDir(), spool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	owner, err := owning.New(owning.Config{Bench: "bench", Instrument: ins, Setup: file.Setup, Store: store})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- owner.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		_ = store.Close()
	}()
	c, err := owner.Start(t.Context(), owning.Request{Holder: "ada@lab", Marker: spec})
	if err != nil {
		t.Fatal(err)
	}
	h := &hostClock{rng: rand.New(rand.NewPCG(1, 1))}
	m := &measured{c: c}
	if _, m.from, err = lay(p.board, h, spec, marker.Start, p.now()+400*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for i, l := range []board.Load{board.Compute, board.Memory, board.Half, board.Compute, board.Sleep} {
		if _, err := p.board.SetLoad(m.from+work/10+time.Duration(i)*work/5, l); err != nil {
			t.Fatal(err)
		}
	}
	m.to = m.from + work + 50*time.Millisecond
	_, end, err := lay(p.board, h, spec, marker.Stop, m.to)
	if err != nil {
		t.Fatal(err)
	}
	if during != nil {
		<-time.After(time.Until(p.live.Time(m.from + work/2)))
		during()
	}
	<-time.After(time.Until(p.live.Time(end)))
	m.sum, err = c.Stop(t.Context())
	if err != nil || m.sum.State != owning.Complete || m.sum.Window == nil {
		t.Fatalf("%+v, %v", m.sum, err)
	}
	p.integrate(m)
	return m
}

func (p *plant) integrate(m *measured) {
	t := p.t
	t.Helper()
	setup, w := m.c.Header().Setup, *m.sum.Window
	r := reader{energies: energies{setup: &setup}}
	var err error
	if r.sum, err = measure.NewIntegrator(&setup, w.From, w.To); err != nil {
		t.Fatal(err)
	}
	if err := m.c.Read(t.Context(), owning.ReadOptions{}, &r); err != nil {
		t.Fatal(err)
	}
	m.events = r.events
	start, stop := marker.Pair(m.sum.Markers)
	if m.result, err = r.sum.Result(measure.Edges{UFrom: start.U, UTo: stop.U}); err != nil {
		t.Fatal(err)
	}
}

// compare holds a task against the card's true energy, of the rails measured.
func (p *plant) compare(m *measured, rails ...int) {
	t := p.t
	t.Helper()
	truth, err := p.board.Energy(m.from, m.to)
	if err != nil {
		t.Fatal(err)
	}
	var want measure.Joule
	for _, i := range rails {
		want += truth.Rails[i]
	}
	off := m.result.Total.Energy - want
	t.Logf("%v measured, ± %v; %+.3f %% off; %d scans, %d lost\n%s", m.result.Total.Energy, m.result.Total.U, 100*float64(off/want), m.sum.Scans, m.sum.Lost, m.notes())
	if math.Abs(float64(off)) > float64(m.result.Total.U) {
		t.Errorf("%v measured ± %v, %v drawn", m.result.Total.Energy, m.result.Total.U, want)
	}
	if m.sum.Lost != 0 {
		t.Errorf("%d scans lost on good lines", m.sum.Lost)
	}
}

const instrumentsKey = "instruments:\n"

func TestAPMDBesideAPowerSensor3(t *testing.T) {
	p := newPlant(t)
	m := p.measure(instrumentsKey+p.pmd(0, "aux_12v_1", "aux_12v_2")+p.powerSensor(0, "pcie_12v", "pcie_3v3")+`
rails:
  - {name: pcie_12v, clamp: {current: pair0.current, voltage: pair0.voltage}}
  - {name: pcie_3v3, clamp: {current: ps3/pair1.current, voltage: ps3/pair1.voltage}}
  - {name: aux_12v_1, clamp: {current: pcie1.current, voltage: pcie1.voltage}}
  - {name: aux_12v_2, clamp: {current: pcie2.current, voltage: pmd/pcie2.voltage}}
`, marker.FastProfile(4800, 7), time.Second, nil)
	p.compare(m, 0, 1, 2, 3)
	if !strings.Contains(m.notes(), "pmd is aligned with ps3 by the start marker") {
		t.Error("not aligned by markers")
	}
}

func TestALabJackBesideAPowerSensor3(t *testing.T) {
	p := newPlant(t)
	m := p.measure(instrumentsKey+p.labjack("pcie_12v", "pcie_3v3")+p.powerSensor(0, "aux_12v_1", "aux_12v_2")+`
rails:
  - {name: pcie_12v, clamp: {current: pcie_12v.current, voltage: pcie_12v.voltage}}
  - {name: pcie_3v3, clamp: {current: pcie_3v3.current, voltage: pcie_3v3.voltage}}
  - {name: aux_12v_1, clamp: {current: pair0.current, voltage: pair0.voltage}}
  - {name: aux_12v_2, clamp: {current: pair1.current, voltage: pair1.voltage}}
`, marker.FastProfile(8000, 7), time.Second, nil)
	p.compare(m, 0, 1, 2, 3)
}

func TestASlowBoardBesideALabJack(t *testing.T) {
	p := newPlant(t)
	m := p.measure(instrumentsKey+p.text(250, "aux_12v_1")+p.labjack("pcie_12v", "pcie_3v3", "aux_12v_2")+`
rails:
  - {name: pcie_12v, clamp: {current: pcie_12v.current, voltage: pcie_12v.voltage}}
  - {name: pcie_3v3, clamp: {current: pcie_3v3.current, voltage: pcie_3v3.voltage}}
  - {name: aux_12v_1, clamp: {current: arduino/aux_12v_1.current, voltage: arduino/aux_12v_1.voltage}}
  - {name: aux_12v_2, clamp: {current: aux_12v_2.current, voltage: aux_12v_2.voltage}}
`, marker.FastProfile(250, 7), time.Second, nil)
	p.compare(m, 0, 1, 2, 3)
}

// twoScopes are a riser's two shunts, behind amplifiers of 0.25 V/A, with their
// voltages on one scope, and a clamp with a probe and the other's trigger output
// on a second.
func (p *plant) twoScopes(by string) (text string, a, b *rigolface.Face) {
	line := &rigolface.TriggerLine{}
	a, first := p.scope(rigolface.Config{Serial: "A", TriggerOut: line, Probes: [4]rigolface.Probe{
		{Quantity: rigolface.Clamp, Rail: "pcie_3v3", VoltPerAmpere: 0.25}, {Quantity: rigolface.Load, Rail: "pcie_3v3"},
		{Quantity: rigolface.Clamp, Rail: "pcie_12v", VoltPerAmpere: 0.25}, {Quantity: rigolface.Load, Rail: "pcie_12v"},
	}})
	b, second := p.scope(rigolface.Config{Serial: "B", Probes: [4]rigolface.Probe{
		{Quantity: rigolface.Clamp, Rail: "aux_12v_1", VoltPerAmpere: 0.01}, {Quantity: rigolface.Load, Rail: "aux_12v_1"},
		{}, {Quantity: rigolface.TriggerIn, Line: line},
	}})
	trigger := ""
	if by == "trigger" {
		trigger = "trigger: {channel: ch4, level: 1.5}, "
	}
	return fmt.Sprintf(`
instruments:
  - name: slot
    kind: rigol-ds1000z
    address: %s
    options:
      {window: 3s, depth: 300000, inputs: {ch1: {scale: 0.1, offset: -0.2, ampere_per_volt: 4}, ch2: {scale: 0.5, offset: -3.3}, ch3: {scale: 0.2, offset: -0.6, ampere_per_volt: 4}, ch4: {scale: 0.5, offset: -12}}}
  - name: plug
    kind: rigol-ds1000z
    address: %s
    options:
      {window: 3s, depth: 300000, %sinputs: {ch1: {scale: 0.05, offset: -0.1, ampere_per_volt: 100}, ch2: {scale: 0.5, offset: -12}, ch4: {scale: 1, offset: -2}}}
align: {by: %s}
rails:
  - {name: pcie_3v3, clamp: {current: slot/ch1, voltage: slot/ch2}}
  - {name: pcie_12v, clamp: {current: ch3, voltage: slot/ch4}}
  - {name: aux_12v_1, clamp: {current: plug/ch1, voltage: plug/ch2}}
missing: [aux_12v_2]
`, first, second, trigger, by), a, b
}

func TestTwoScopesOnOneTrigger(t *testing.T) {
	for _, by := range []string{"trigger", "markers"} {
		t.Run(by, func(t *testing.T) {
			p := newPlant(t)
			text, a, b := p.twoScopes(by)
			m := p.measure(text, marker.FastProfile(20e3, 7), 500*time.Millisecond, nil)
			p.compare(m, 0, 1, 2)
			if d := a.Begin() - b.Begin(); by == "trigger" && d != 0 {
				t.Errorf("the scopes began %v apart", d)
			}
			if want := map[string]string{"trigger": "by their common trigger", "markers": "by both markers"}[by]; !strings.Contains(m.notes(), want) {
				t.Errorf("not %s", want)
			}
		})
	}
}

// A scope, which delivers at the end, beside a meter that streams.
func TestAScopeBesideAPowerSensor3(t *testing.T) {
	p := newPlant(t)
	_, address := p.scope(rigolface.Config{})
	m := p.measure(instrumentsKey+p.powerSensor(0, "pcie_12v", "pcie_3v3")+`
  - name: scope
    kind: rigol-ds1000z
    address: `+address+`
    options:
      {window: 6s, depth: 300000, inputs: {ch1: {scale: 0.05, offset: -0.1, ampere_per_volt: 100}, ch2: {scale: 0.5, offset: -12}, ch3: {scale: 0.05, offset: -0.1, ampere_per_volt: 100}, ch4: {scale: 0.5, offset: -12}}}
rails:
  - {name: pcie_12v, clamp: {current: pair0.current, voltage: pair0.voltage}}
  - {name: pcie_3v3, clamp: {current: pair1.current, voltage: pair1.voltage}}
  - {name: aux_12v_1, clamp: {current: ch1, voltage: ch2}}
  - {name: aux_12v_2, clamp: {current: ch3, voltage: ch4}}
`, marker.FastProfile(20e3, 7), 500*time.Millisecond, nil)
	p.compare(m, 0, 1, 2, 3)
	if !strings.Contains(m.notes(), "by both markers") {
		t.Error("not aligned by markers")
	}
}
