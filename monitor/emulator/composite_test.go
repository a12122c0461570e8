//go:build linux

package emulator_test

import (
	"context"
	"fmt"
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
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/bench"
	owning "github.com/wattmark/wattmark/monitor/capture"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	dataqface "github.com/wattmark/wattmark/monitor/emulator/dataq"
	"github.com/wattmark/wattmark/monitor/emulator/fault"
	labjackface "github.com/wattmark/wattmark/monitor/emulator/labjack"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	pmdface "github.com/wattmark/wattmark/monitor/emulator/pmd"
	pmd2face "github.com/wattmark/wattmark/monitor/emulator/pmd2"
	ps3face "github.com/wattmark/wattmark/monitor/emulator/powersensor3"
	"github.com/wattmark/wattmark/monitor/emulator/pty"
	rigolface "github.com/wattmark/wattmark/monitor/emulator/rigol"
	scopeface "github.com/wattmark/wattmark/monitor/emulator/scope"
	textface "github.com/wattmark/wattmark/monitor/emulator/serialtext"
	"github.com/wattmark/wattmark/monitor/instrument/registry"
	"github.com/wattmark/wattmark/monitor/internal/montest"
	"github.com/wattmark/wattmark/monitor/spool"
)

// plant is one card with several instruments on it.
type plant struct {
	t     *testing.T
	board *board.Board
	live  *board.Live
	t7    *labjackface.Face
}

func newPlant(t *testing.T) *plant {
	t.Helper()
	b, err := board.New(board.Config{Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	return &plant{t: t, board: b, live: board.NewLive(b, time.Now())}
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
	return fmt.Sprintf("  - {name: arduino, kind: serialtext, port: %s, options: {rate: %v, pattern: %q}}\n", path,
		float64(rate), face.Pattern())
}

func (p *plant) labjack(rails ...string) string {
	f, err := labjackface.New(p.board, p.pace(0), labjackface.Config{Seed: 5, Rails: rails})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t7 = f
	registers, stream := p.listen(), p.listen()
	p.run(func(ctx context.Context) error { return f.Serve(ctx, registers, stream) })
	var inputs []string
	for i, r := range rails {
		inputs = append(inputs, fmt.Sprintf("{ain: %d, name: %s.voltage, per_volt: 2}, {ain: %d, name: %s.current, "+
			"unit: A, per_volt: 10}", 2*i, r, 2*i+1, r))
	}
	return fmt.Sprintf("  - {name: t7, kind: labjack, address: \"tcp:%s\", options: {scan_rate: 8000, stream_port: "+
		"%d, inputs: [%s]}}\n",
		registers.Addr(), stream.Addr().(*net.TCPAddr).Port, strings.Join(inputs, ", "))
}

func (p *plant) scope(cfg scopeface.Config) (*rigolface.Face, string) {
	p.t.Helper()
	cfg.Seed, cfg.Now = 5, p.now
	f, err := rigolface.New(p.board, rigolface.DS1000Z, cfg)
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
	sum    session.Summary
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

// blocksOf reads a capture's blocks and keeps its events.
type blocksOf struct {
	energies
	take   func(*measure.Block) error
	events []measure.Event
}

func (r *blocksOf) Event(e measure.Event) error { r.events = append(r.events, e); return nil }

func (r *blocksOf) Chunk(h chunk.Chunk, payload []byte) error {
	if err := r.decode(h, payload); err != nil {
		return err
	}
	return r.take(&r.blk)
}

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
	owner, err := owning.New(owning.Config{Bench: owning.Bench{Name: "bench", Instrument: ins, Setup: file.Setup}, Store: store})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	p.run(owner.Run)
	c, err := owner.Start(t.Context(), session.Request{Holder: "ada@lab", Marker: spec})
	if err != nil {
		t.Fatal(err)
	}
	m := &measured{c: c}
	m.from = lay(t, p.board, spec, marker.Start, p.now()+400*time.Millisecond)
	for i, l := range []load.State{load.Compute, load.Memory, load.Half, load.Compute, load.Sleep} {
		if _, err := p.board.SetLoad(m.from+work/10+time.Duration(i)*work/5, l); err != nil {
			t.Fatal(err)
		}
	}
	m.to = m.from + work + 50*time.Millisecond
	end := lay(t, p.board, spec, marker.Stop, m.to)
	if during != nil {
		<-time.After(time.Until(p.live.Time(m.from + work/2)))
		during()
	}
	<-time.After(time.Until(p.live.Time(end)))
	m.sum, err = c.Stop(t.Context())
	if err != nil || m.sum.State != session.Complete || m.sum.Window == nil {
		t.Fatalf("%+v, %v", m.sum, err)
	}
	p.integrate(m)
	return m
}

func (p *plant) integrate(m *measured) {
	t := p.t
	t.Helper()
	setup, w := m.c.Header().Setup, *m.sum.Window
	sum, err := measure.NewIntegrator(&setup, w.From, w.To)
	if err != nil {
		t.Fatal(err)
	}
	r := blocksOf{energies: energies{setup: &setup}, take: sum.Add}
	if err := m.c.Read(t.Context(), owning.ReadOptions{}, &r); err != nil {
		t.Fatal(err)
	}
	m.events = r.events
	start, stop := marker.Pair(m.sum.Markers)
	if m.result, err = sum.Result(measure.Edges{UFrom: start.U, UTo: stop.U}); err != nil {
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
	t.Logf("%v measured, ± %v; %+.3f %% off; %d scans, %d lost\n%s", m.result.Total.Energy, m.result.Total.U,
		100*float64(off/want), m.sum.Scans, m.sum.Lost, m.notes())
	if math.Abs(float64(off)) > float64(m.result.Total.U) {
		t.Errorf("%v measured ± %v, %v drawn", m.result.Total.Energy, m.result.Total.U, want)
	}
	if m.sum.Lost != 0 {
		t.Errorf("%d scans lost on good lines", m.sum.Lost)
	}
}

const instrumentsKey = "instruments:\n"

func TestAPMDBesideAPowerSensor3(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
	coverage.Long(t)
	t.Parallel()
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
	line := &scopeface.TriggerLine{}
	a, first := p.scope(scopeface.Config{Serial: "A", TriggerOut: line, Probes: [4]scopeface.Probe{
		{Quantity: scopeface.Clamp, Rail: "pcie_3v3", VoltPerAmpere: 0.25},
		{Quantity: scopeface.Load, Rail: "pcie_3v3"},
		{Quantity: scopeface.Clamp, Rail: "pcie_12v", VoltPerAmpere: 0.25},
		{Quantity: scopeface.Load, Rail: "pcie_12v"},
	}})
	b, second := p.scope(scopeface.Config{Serial: "B", Probes: [4]scopeface.Probe{
		{Quantity: scopeface.Clamp, Rail: "aux_12v_1", VoltPerAmpere: 0.01},
		{Quantity: scopeface.Load, Rail: "aux_12v_1"},
		{},
		{Quantity: scopeface.TriggerIn, Line: line},
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
	coverage.Long(t)
	for _, by := range []string{"trigger", "markers"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			p := newPlant(t)
			text, a, b := p.twoScopes(by)
			m := p.measure(text, marker.FastProfile(20e3, 7), 500*time.Millisecond, nil)
			p.compare(m, 0, 1, 2)
			if d := a.Begin() - b.Begin(); by == "trigger" && d != 0 {
				t.Errorf("the scopes began %v apart", d)
			}
			if want := map[string]string{
				"trigger": "by their common trigger",
				"markers": "by both markers",
			}[by]; !strings.Contains(m.notes(), want) {
				t.Errorf("not %s", want)
			}
		})
	}
}

// A scope, which delivers at the end, beside a meter that streams.
func TestAScopeBesideAPowerSensor3(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	_, address := p.scope(scopeface.Config{})
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

// startIn returns where the detector places the start marker in some rails of a
// capture, by themselves.
func (p *plant) startIn(m *measured, spec marker.Spec, r measure.Response, rails ...int) marker.Found {
	t := p.t
	t.Helper()
	setup := m.c.Header().Setup
	own := setup
	own.Rails, own.Response = nil, r
	for _, r := range rails {
		own.Rails = append(own.Rails, setup.Rails[r])
	}
	d, err := marker.NewDetector(spec, &own)
	if err != nil {
		t.Fatal(err)
	}
	all := &blocksOf{energies: energies{setup: &setup}, take: d.Push}
	if err := m.c.Read(t.Context(), owning.ReadOptions{Untrimmed: true}, all); err != nil {
		t.Fatal(err)
	}
	if err := d.Finish(); err != nil {
		t.Fatal(err)
	}
	start, _ := marker.Pair(d.Found())
	if start == nil {
		t.Fatal("no start marker in one instrument's rails")
	}
	return *start
}

// One of two instruments is 3 ms late, which no clock can tell. The markers find
// it: afterwards both see the start marker within a scan of the faster one and
// what the marker itself leaves open.
func TestMarkersRemoveAHiddenDelay(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	for _, late := range []time.Duration{3 * time.Millisecond, 0} {
		p := newPlant(t)
		spec := marker.FastProfile(4800, 7)
		m := p.measure(instrumentsKey+p.pmd(late, "aux_12v_1", "aux_12v_2")+p.powerSensor(3*time.Millisecond-late, "pcie_12v", "pcie_3v3")+`
rails:
  - {name: pcie_12v, clamp: {current: pair0.current, voltage: pair0.voltage}}
  - {name: aux_12v_1, clamp: {current: pcie1.current, voltage: pcie1.voltage}}
  - {name: aux_12v_2, clamp: {current: pcie2.current, voltage: pcie2.voltage}}
`, spec, time.Second, nil)
		p.compare(m, 1, 2, 3)
		base, other := p.startIn(m, spec, measure.Response{}, 0), p.startIn(m, spec, m.c.Header().Setup.Response, 1, 2)
		apart, u := float64(other.T-base.T), math.Hypot(float64(other.U), float64(base.U))
		t.Logf("the start marker lies %.1f ± %.1f µs apart in the two instruments' rails", 1e6*apart, 1e6*u)
		if math.Abs(apart) > 50e-6+2*u {
			t.Errorf("%v s apart, more than a scan of 50 µs and 2 × %v s", apart, u)
		}
		// Held readings do not move the marker that the capture itself goes by.
		whole, _ := marker.Pair(m.sum.Markers)
		if off := float64(whole.T - base.T); math.Abs(off) > 50e-6+2*math.Hypot(float64(whole.U), float64(base.U)) {
			t.Errorf("the whole has its start marker %v s off the faster instrument's", off)
		}
	}
}

// What the slower or the faster instrument loses is lost by the whole, exactly.
func TestALossInOneInstrument(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	const rails = `
rails:
  - {name: aux_12v_1, clamp: {current: arduino/aux_12v_1.current, voltage: arduino/aux_12v_1.voltage}}
  - {name: pcie_12v, clamp: {current: pcie_12v.current, voltage: pcie_12v.voltage}}
`
	p := newPlant(t)
	slow := p.text(250, "aux_12v_1")
	t7 := p.labjack("pcie_12v")
	m := p.measure(instrumentsKey+slow+t7+rails, marker.FastProfile(250, 7), time.Second,
		func() { p.t7.Lose(p.t7.Scans()+200, 37) })
	if m.sum.Lost != 37 || !strings.Contains(m.notes(), "t7: ") {
		t.Errorf("%d lost, want 37\n%s", m.sum.Lost, m.notes())
	}
	// A held instrument's loss counts in scans of the base: 50 of 8 kS/s beside
	// 20 kS/s are 6.25 ms, 125 scans, one more or less by where they fall.
	p = newPlant(t)
	m = p.measure(instrumentsKey+p.labjack("pcie_12v")+p.powerSensor(0, "aux_12v_1")+`
rails:
  - {name: aux_12v_1, clamp: {current: pair0.current, voltage: pair0.voltage}}
  - {name: pcie_12v, clamp: {current: pcie_12v.current, voltage: pcie_12v.voltage}}
`, marker.FastProfile(8000, 7), time.Second, func() { p.t7.Lose(p.t7.Scans()+200, 50) })
	if m.sum.Lost < 124 || m.sum.Lost > 126 || m.sum.Gaps != 1 {
		t.Errorf("%d lost in %d gaps\n%s", m.sum.Lost, m.sum.Gaps, m.notes())
	}
	for _, e := range m.events {
		if e.Kind == measure.EventGap && !e.Exact {
			t.Errorf("%+v", e)
		}
	}
}

// plugged is a face on a pseudo-terminal that can be pulled and plugged in again,
// under one name.
func (p *plant) plugged(face interface {
	Run(context.Context, io.ReadWriteCloser) error
}, link string,
) (pull func()) {
	p.t.Helper()
	port, err := pty.OpenPort()
	if err != nil {
		p.t.Fatal(err)
	}
	_ = os.Remove(link)
	if err := os.Symlink(port.Path(), link); err != nil {
		p.t.Fatal(err)
	}
	ended := make(chan struct{})
	p.run(func(ctx context.Context) error {
		defer close(ended)
		_ = face.Run(ctx, port) // what a pulled cable makes of it is no fault
		return nil
	})
	return func() {
		_ = port.Close()
		<-ended
	}
}

// One instrument is unplugged in the middle of a task and comes back: so does the
// whole, and says how much is missing.
func TestOneOfTwoIsUnplugged(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	p := newPlant(t)
	face, err := pmdface.New(p.board, p.pace(0), pmdface.Config{Seed: 5, Rails: [4]string{"aux_12v_1"}})
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "pmd")
	pull := p.plugged(face, link)
	m := p.measure(instrumentsKey+"  - {name: pmd, kind: pmd, port: "+link+"}\n"+p.powerSensor(0, "pcie_12v")+`
rails:
  - {name: pcie_12v, clamp: {current: pair0.current, voltage: pair0.voltage}}
  - {name: aux_12v_1, clamp: {current: pcie1.current, voltage: pcie1.voltage}}
`, marker.FastProfile(4800, 7), 2500*time.Millisecond, func() {
		pull()
		p.plugged(face, link)
	})
	t.Logf("%d scans, %d lost\n%s", m.sum.Scans, m.sum.Lost, m.notes())
	if m.sum.Gaps != 1 || m.sum.Lost == 0 || !strings.Contains(m.notes(), "reopen") ||
		!strings.Contains(m.notes(), "pmd: ") {
		t.Errorf("%d gaps, %d lost", m.sum.Gaps, m.sum.Lost)
	}
	setup := m.c.Header().Setup
	span := float64(m.sum.End) * float64(setup.Timebase.SampleRate())
	if total := float64(m.sum.Scans + m.sum.Lost); math.Abs(total/span-1) > 1e-3 {
		t.Errorf("%v scans told of in a span of %v", total, span)
	}
}

func TestOpeningTwoInstrumentsLeavesNothingBehind(t *testing.T) {
	p := newPlant(t)
	file, err := bench.Parse("bench.yaml", []byte(instrumentsKey+p.text(250, "aux_12v_1")+p.labjack("pcie_12v")+`
rails:
  - {name: pcie_12v, clamp: {current: pcie_12v.current, voltage: pcie_12v.voltage}}
  - {name: aux_12v_1, clamp: {current: arduino/aux_12v_1.current, voltage: arduino/aux_12v_1.voltage}}
`))
	if err != nil {
		t.Fatal(err)
	}
	ins, err := file.NewInstrument(registry.Env{})
	if err != nil {
		t.Fatal(err)
	}
	montest.Cycles(t, ins, 100) // an opening takes 30 ms: the serial board is waited for
}

// A device whose answer comes late, and then meets the next question, is still known
// for what it is.
func TestALateAnswerIsNoOtherInstrument(t *testing.T) {
	b := montest.Workload(t, time.Second)
	for kind, face := range map[string]func() (montest.Firmware, error){
		"pmd":  func() (montest.Firmware, error) { return pmdface.New(b, unhurried(), pmdface.Config{}) },
		"pmd2": func() (montest.Firmware, error) { return pmd2face.New(b, unhurried(), pmd2face.Config{}) },
		"wireview-pro2": func() (montest.Firmware, error) {
			return pmd2face.New(b, unhurried(), pmd2face.Config{WireView: true})
		},
		"powersensor3": func() (montest.Firmware, error) { return ps3face.New(b, unhurried(), ps3face.Config{}) },
		"dataq":        func() (montest.Firmware, error) { return dataqface.New(b, unhurried(), dataqface.Config{}) },
	} {
		for _, late := range []struct {
			at int64 // bytes that come in time
			by time.Duration
		}{
			{0, 400 * time.Millisecond},
			{0, 1200 * time.Millisecond},
			{3, 400 * time.Millisecond},
			{17, 1200 * time.Millisecond},
		} {
			t.Run(fmt.Sprintf("%s/%v after byte %d", kind, late.by, late.at), func(t *testing.T) {
				t.Parallel()
				f, err := face()
				if err != nil {
					t.Fatal(err)
				}
				plug := montest.PlugIn(t, f,
					fault.Faults{Script: []fault.Fault{{Kind: fault.Stall, At: late.at, For: late.by}}})
				k, err := registry.Lookup(kind)
				if err != nil {
					t.Fatal(err)
				}
				dev, err := k.New(registry.Env{}, plug.Path, k.Options())
				if err != nil {
					t.Fatal(err)
				}
				defer dev.Close()
				if err := dev.Open(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
