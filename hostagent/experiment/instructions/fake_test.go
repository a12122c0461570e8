package instructions

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/measure"
)

// cost is what a fake instruction truly takes.
type cost struct {
	cycles float64
	energy measure.Joule // above the idle GPU's
}

// truth is what each step of the fake GPU costs; others cost what add.s32 does.
func truth(name string) cost {
	known := map[string]cost{
		"add.s32": {6, 9e-12}, "mul.lo.s32": {6, 12e-12}, "div.s32": {63, 80e-12},
		"add.f32": {4, 6.5e-12}, "fma.rn.f64": {12, 26e-12}, "add.cc.u32, addc.u32": {5, 12e-12},
		"mma m16n8k16 f32 += f16·f16": {24, 1.9e-9}, "ld.global.cg.u64, from DRAM": {900, 2.8e-9},
	}
	if c, ok := known[name]; ok {
		return c
	}
	return known["add.s32"]
}

// The fake GPU: its clock, what it draws at rest, and what a step's glue and the
// loop itself take.
const (
	fakeHertz   = 1e9
	fakeIdle    = 126
	fakeThreads = 4096 // of a whole GPU
	loopCycles  = 20
	counterGain = 1.03
	usageOffset = 0.5
)

var glue = cost{2, 1e-12}

// fakeMachine is a GPU and its sensors on a clock of the test's own.
type fakeMachine struct {
	least  map[string]bool // do not load
	lie    string          // gives another result
	lost   string          // its launch fails
	loaded int             // programs that are open
	on     func(name string, block bool, turns uint64)

	mu      sync.Mutex
	load    measure.Watt // above idle, now
	history []change     // of the load
}

type change struct {
	at   time.Time
	load measure.Watt
}

func (m *fakeMachine) Info() gpu.Info {
	return gpu.Info{Name: "fake GPU", UUID: "GPU-1", Driver: "1.0"}
}
func (m *fakeMachine) Capability() (int, error) { return 90, nil }

var errFake = errors.New("the fake GPU will not")

func (m *fakeMachine) Load(_ context.Context, i Instruction, source []byte, s Setting) (Loaded, error) {
	if m.least[i.Name] {
		return nil, errFake
	}
	m.loaded++
	return &fakeProgram{m: m, i: i, s: s, block: countLoop(source) > s.Steps*strings.Count(i.Glue, ";")+4}, nil
}

type fakeProgram struct {
	m     *fakeMachine
	i     Instruction
	s     Setting
	block bool
}

// Run takes its time and draws its power: the physics that estimates must undo.
func (p *fakeProgram) Run(_ context.Context, turns uint64) (Launch, error) {
	if p.m.on != nil {
		p.m.on(p.i.Name, p.block, turns)
	}
	if p.m.lost == p.i.Name {
		return Launch{}, errFake
	}
	threads, each := uint64(p.i.Threads), truth(p.i.Name)
	if p.s.Layout == WholeGPU {
		threads = fakeThreads
	}
	cycles, joules := float64(p.s.Steps)*glue.cycles, float64(p.s.Steps)*float64(glue.energy)
	if p.block {
		n := float64(p.s.Steps * p.i.Ops)
		cycles, joules = cycles+n*each.cycles, joules+n*float64(each.energy)/float64(p.i.Threads)
	}
	turn := (cycles + loopCycles) / fakeHertz
	took := time.Duration(float64(turns) * turn * 1e9)
	l := Launch{Threads: threads, Cycles: uint64(float64(turns) * turn * fakeHertz)}
	if turns == verifyTurns && p.i.Next != nil {
		l.X = p.i.Result(turns, p.s.Steps)
	}
	if p.m.lie == p.i.Name && p.s.Level == 0 {
		l.X++
	}
	l.Span.Start = time.Now()
	p.m.draw(measure.Watt(joules * float64(threads) / turn))
	time.Sleep(took) // in a bubble
	p.m.draw(0)
	l.Span.End = time.Now()
	return l, nil
}

func (p *fakeProgram) Close() error { p.m.loaded--; return nil }

// draw changes the load.
func (m *fakeMachine) draw(load measure.Watt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.load = load
	m.history = append(m.history, change{time.Now(), load})
}
