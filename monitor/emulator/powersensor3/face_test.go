//go:build linux

package powersensor3

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/fault"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	"github.com/wattmark/wattmark/monitor/emulator/pty"
)

// peer is a driver of a few lines, apart from the product's own.
type peer struct {
	t *testing.T
	r *bufio.Reader
	w io.Writer
}

func (p *peer) send(s string) {
	p.t.Helper()
	if _, err := io.WriteString(p.w, s); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) recv(n int) []byte {
	p.t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(p.r, b); err != nil {
		p.t.Fatal(err)
	}
	return b
}

type frame struct {
	micros uint16
	levels [Sensors]uint16
	marker bool
}

// decode reads frames by their ids, as the packets are documented; it fails the
// test on anything out of order.
func (p *peer) frame() frame {
	p.t.Helper()
	b := p.recv(FrameBytes)
	var f frame
	for i := 0; i < FrameBytes; i += 2 {
		hi, lo := b[i], b[i+1]
		if hi&0x80 == 0 || lo&0x80 != 0 {
			p.t.Fatalf("packet %d is % x: the top bits are wrong", i/2, b[i:i+2])
		}
		id, m, v := hi>>4&7, lo&0x40 != 0, uint16(hi&0xF)<<6|uint16(lo&0x3F)
		switch {
		case i == 0:
			if id != 7 || !m {
				p.t.Fatalf("no time stamp: % x", b)
			}
			f.micros = v
		case int(id) != i/2-1 || (m && id != 0):
			p.t.Fatalf("packet %d: id %d, marker %v", i/2, id, m)
		default:
			f.levels[id] = v
			f.marker = f.marker || m
		}
	}
	return f
}

// serve runs a face on a real pty and returns its driver's end.
func serve(t *testing.T, f *Face, faults fault.Faults) (*peer, *fault.Line) {
	t.Helper()
	port, err := pty.OpenPort()
	if err != nil {
		t.Fatal(err)
	}
	line := fault.New(port, faults)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx, line) }()
	s, err := os.OpenFile(port.Path(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetDeadline(time.Now().Add(15 * time.Second)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && len(faults.Script) == 0 {
			t.Errorf("the face ends with %v", err)
		}
		_ = s.Close()
	})
	return &peer{t, bufio.NewReaderSize(s, 1<<16), s}, line
}

func newBoard(t *testing.T) *board.Board {
	t.Helper()
	b, err := board.New(board.Config{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for ms, l := range map[time.Duration]load.State{
		20: load.Compute, 420: load.Sleep, 500: load.Memory,
		900: load.Idle,
	} {
		if _, err := b.SetLoad(ms*time.Millisecond, l); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func newFace(t *testing.T, b *board.Board, p pace.Pace, cfg Config) *Face {
	t.Helper()
	f, err := New(b, p, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestVersionConfigAndCounter(t *testing.T) {
	f := newFace(t, newBoard(t), pace.Pace{}, Config{Version: "F411-1.6.1-DEMO"})
	p, _ := serve(t, f, fault.Faults{Fragment: 5})
	p.send("V")
	if got := string(p.recv(17)); got != "F411-1.6.1-DEMO\r\n" {
		t.Errorf("version %q", got)
	}
	read := func() (out [Sensors]Sensor) {
		p.send("R")
		for i := range out {
			out[i].Unmarshal([SensorBytes]byte(p.recv(SensorBytes)))
			p.send("k")
		}
		if b := p.recv(1); b[0] != 'D' {
			t.Fatalf("after the configuration comes %q", b)
		}
		return out
	}
	stored := read()
	if s := stored[0]; s.Type != "MLX10" || s.Pair != "pcie_3v3" || s.Sensitivity != 0.12 || !s.InUse {
		t.Errorf("sensor 0 is %+v", s)
	}
	if s := stored[4]; s.Type != "MLX20" || s.Pair != "aux_12v_1" || s.Sensitivity != 0.0625 {
		t.Errorf("sensor 4 is %+v", s)
	}
	p.send("W")
	stored[4].Vref, stored[4].Pair = 1.5, "renamed"
	for _, s := range stored {
		b := s.Marshal()
		p.send(string(b[:]))
		if b := p.recv(1); b[0] != 'S' {
			t.Fatalf("after a sensor comes %q", b)
		}
	}
	p.recv(1)
	if d := cmp.Diff(stored, read()); d != "" {
		t.Errorf("what was written reads back otherwise (-wrote +read):\n%s", d)
	}
	p.send("I")
	p.frame()
	p.send("Q")
	if n := binary.LittleEndian.Uint32(p.recv(4)); n != Sensors {
		t.Errorf("the counter stands at %d after one frame", n)
	}
}

// joules adds up what the frames say, with the stored calibration.
func joules(stored [Sensors]Sensor, frames []frame) (total float64, rails [Pairs]float64) {
	value := func(s Sensor, level uint16) float64 {
		return (3.3*float64(level)/1023 - float64(s.Vref)) / float64(s.Sensitivity)
	}
	for _, f := range frames {
		for p := range Pairs {
			e := value(stored[2*p], f.levels[2*p]) * value(stored[2*p+1], f.levels[2*p+1]) * FrameMicros * 1e-6
			rails[p] += e
			total += e
		}
	}
	return total, rails
}

func TestEnergyOverThePtyIsTheBoards(t *testing.T) {
	b := newBoard(t)
	f := newFace(t, b, pace.Pace{}, Config{Seed: 4})
	stored := f.Stored()
	p, _ := serve(t, f, fault.Faults{})
	p.send("S")
	const n = 20000
	frames := make([]frame, n)
	for i := range frames {
		frames[i] = p.frame()
		if want := uint16(i * FrameMicros % 1024); frames[i].micros != want {
			t.Fatalf("frame %d is stamped %d µs, want %d", i, frames[i].micros, want)
		}
	}
	// Each frame stands for the 50 µs around its centre.
	from := f.BoardTime(0) - FrameMicros*time.Microsecond/2
	truth, err := b.Energy(from, from+n*FrameMicros*time.Microsecond)
	if err != nil {
		t.Fatal(err)
	}
	total, rails := joules(stored, frames)
	if rel := total/float64(truth.Total) - 1; math.Abs(rel) > 1e-3 {
		t.Errorf("%.4f J over the wire, %.4f J injected: %+.3f %%", total, float64(truth.Total), 100*rel)
	} else {
		t.Logf("total %+.4f %%", 100*rel)
	}
	for i := range b.Rails() {
		if rel := rails[i]/float64(truth.Rails[i]) - 1; math.Abs(rel) > 3e-3 {
			t.Errorf("%s: %+.3f %%", b.Rails()[i].Name, 100*rel)
		}
	}
}

func TestMarkersStopAndTail(t *testing.T) {
	f := newFace(t, newBoard(t), pace.Pace{}, Config{})
	f.SaturateSensor7(true)
	p, _ := serve(t, f, fault.Faults{})
	p.send("MMS")
	for i := range 5 {
		fr := p.frame()
		if fr.marker != (i < 2) {
			t.Errorf("frame %d: marker %v", i, fr.marker)
		}
		if fr.levels[7] != 1023 {
			t.Errorf("sensor 7 is not at full scale: %d", fr.levels[7])
		}
	}
	p.send("X")
	// Full scale on sensor 7 is FF 3F at the end of each frame, and the true mark
	// doubles it: three in a row, of which the first still belongs to a frame.
	tail := []byte{}
	for len(tail) < 6 || string(tail[len(tail)-6:]) != "\xff\x3f\xff\x3f\xff\x3f" {
		tail = append(tail, p.recv(1)[0])
	}
	if extra := (len(tail) - 4) % FrameBytes; extra != 0 {
		t.Errorf("the stream ends %d bytes into a frame", extra)
	}
	p.send("V")
	if got := string(p.recv(12)); got != "F411-1.6.1\r\n" {
		t.Errorf("after the stop comes %q", got)
	}
}

func TestRealTimePaceAndTheTailOfX(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFace(t, newBoard(t), pace.Real(time.Now()), Config{})
		host, device := net.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- f.Run(ctx, device) }()
		p := &peer{t, bufio.NewReader(host), host}
		time.Sleep(300 * time.Millisecond) // the bubble's clock, not the machine's
		p.send("S")
		begin, n := time.Now(), 0
		for time.Since(begin) < time.Second {
			p.frame()
			n++
		}
		if n < 19900 || n > 20100 {
			t.Errorf("%d frames in a second", n)
		}
		if at := f.BoardTime(f.Beat.Next); at < 1295*time.Millisecond || at > 1305*time.Millisecond {
			t.Errorf("the device stands at %v of the board's time, the clock at 1.3 s", at)
		}
		go func() { _, _ = io.WriteString(host, "X") }() // a pipe has no buffer: the device may be writing
		asked, last := time.Now(), byte(0)
		for {
			b := p.recv(1)[0]
			if last == 0xFF && b == 0x3F {
				break
			}
			last = b
		}
		p.recv(2)
		if d := time.Since(asked); d < 100*time.Millisecond || d > 110*time.Millisecond {
			t.Errorf("the stop mark came after %v", d)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestAReaderThatSleepsLosesOldFramesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFace(t, newBoard(t), pace.Real(time.Now()), Config{})
		host, device := net.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- f.Run(ctx, device) }()
		p := &peer{t, bufio.NewReader(host), host}
		p.send("S")
		p.frame()
		time.Sleep(30 * time.Second)
		for range 1000 {
			p.frame()
		}
		if lost := f.Skipped(); lost < 590_000 || lost > 600_000 {
			t.Errorf("%d frames skipped in 30 s of silence", lost)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestHostThatOwesBytesIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFace(t, newBoard(t), pace.Pace{}, Config{})
		host, device := net.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- f.Run(ctx, device) }()
		p := &peer{t, bufio.NewReader(host), host}
		p.send("R")
		p.recv(SensorBytes)
		time.Sleep(3 * time.Second) // no acknowledgement: the firmware resets
		p.send("V")
		if got := string(p.recv(12)); got != "F411-1.6.1\r\n" {
			t.Errorf("after the reset comes %q", got)
		}
		cancel()
		<-ended
	})
}

func TestFaultsReachTheDriver(t *testing.T) {
	f := newFace(t, newBoard(t), pace.Pace{}, Config{})
	p, line := serve(t, f, fault.Faults{Script: []fault.Fault{{Kind: fault.Drop, At: 2 * FrameBytes, Bytes: 3}}})
	p.send("S")
	p.frame()
	p.frame()
	if b := p.recv(1); b[0]&0x80 != 0 {
		t.Errorf("the byte after three dropped ones is %x: want a second half", b)
	}
	line.Trigger(fault.Fault{Kind: fault.Unplug})
	if _, err := io.ReadAll(p.r); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the pulled cable is not seen")
	}
	if c := line.Counts(); c.Dropped != 3 {
		t.Errorf("the line counts %+v", c)
	}
}

func TestDrawnErrorsAndBadConfig(t *testing.T) {
	b := newBoard(t)
	cfg := Config{Seed: 9, Draw: true, Spread: meter.Spread{UGainI: 0.01, UGainV: 0.01, UClock: 1e-4}}
	one, two := newFace(t, b, pace.Pace{}, cfg), newFace(t, b, pace.Pace{}, cfg)
	if one.hw != two.hw || one.clock != two.clock || one.clock == 0 {
		t.Error("the same seed draws another device")
	}
	cfg.Seed++
	if other := newFace(t, b, pace.Pace{}, cfg); other.hw == one.hw {
		t.Error("another seed draws the same device")
	}
	// Drawn without a spread, a module is as bad as one without a calibration.
	var gain, zero float64
	const seeds = 300
	for seed := range uint64(seeds) {
		f := newFace(t, b, pace.Pace{}, Config{Seed: seed, Draw: true})
		ge, oe := f.hw[4].gain/float64(f.stored[4].Sensitivity)-1, (f.hw[4].vref-1.65)/lsb
		gain, zero = gain+ge*ge, zero+oe*oe
	}
	if g, z := math.Sqrt(gain/seeds), math.Sqrt(zero/seeds); math.Abs(g-0.01) > 0.0015 || math.Abs(z-2) > 0.3 {
		t.Errorf("gains are drawn with %.4f, zeros with %.2f levels; want 0.01 and 2", g, z)
	}
	if _, err := New(b, pace.Pace{}, Config{Rails: []string{"nosuch"}}); err == nil {
		t.Error("a rail that the board lacks is taken")
	}
	if _, err := New(b, pace.Pace{}, Config{Rails: make([]string, 5)}); err == nil {
		t.Error("five rails are taken")
	}
}

func FuzzCommands(f *testing.F) {
	f.Add([]byte("VSMTX"))
	f.Add([]byte("RkkkkkkkkW"))
	f.Add([]byte{0xFF, 0x3F, 'I', 'Q', 'Z', 'B'})
	brd, err := board.New(board.Config{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		synctest.Test(t, func(t *testing.T) {
			face, err := New(brd, pace.Real(time.Now()), Config{})
			if err != nil {
				t.Fatal(err)
			}
			host, device := net.Pipe()
			ended := make(chan error, 1)
			go func() { ended <- face.Run(t.Context(), device) }()
			go func() { _, _ = io.Copy(io.Discard, host) }()
			_, _ = host.Write(in[:min(len(in), 400)])
			time.Sleep(10 * time.Millisecond)
			_ = host.Close()
			if err := <-ended; err != nil {
				t.Errorf("the face ends with %v", err)
			}
		})
	})
}
