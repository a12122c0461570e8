//go:build linux

package pmd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/fault"
	"github.com/wattmark/wattmark/monitor/emulator/internal/line"
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

func (p *peer) send(b ...byte) {
	p.t.Helper()
	if _, err := p.w.Write(b); err != nil {
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

func serve(t *testing.T, f *Face, faults fault.Faults) (*peer, *pty.Port) {
	t.Helper()
	port, err := pty.OpenPort()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx, fault.New(port, faults)) }()
	s, err := os.OpenFile(port.Path(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetDeadline(time.Now().Add(15 * time.Second)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the face ends with %v", err)
		}
		_ = s.Close()
	})
	return &peer{t, bufio.NewReaderSize(s, 1<<16), s}, port
}

func newBoard(t *testing.T) *board.Board {
	t.Helper()
	b, err := board.New(board.Config{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for ms, l := range map[time.Duration]load.State{
		20: load.Compute, 420: load.Sleep, 500: load.Memory,
		1700: load.Idle,
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

func TestGreetingAndSingleReadings(t *testing.T) {
	f := newFace(t, newBoard(t), pace.Pace{},
		Config{NoiseV: -1, NoiseI: -1, Start: 100 * time.Millisecond, Offsets: [8]int8{0: 3, 1: -2}})
	p, _ := serve(t, f, fault.Faults{Fragment: 4})
	p.send(0xFF, 0x00)
	if got := string(p.recv(17)); got != "ElmorLabs PMD-USB" {
		t.Errorf("welcome %q", got)
	}
	p.send(0x01)
	if got := p.recv(3); !bytes.Equal(got, []byte{0xEE, 0x0A, 6}) {
		t.Errorf("id % x", got)
	}
	truth := f.board.At(100 * time.Millisecond)
	aux := truth[2] // aux_12v_1 on PCIE1
	p.send(0x02)
	s := p.recv(48)
	volts, amps, watts := u16(s[6:]), u16(s[8:]), u16(s[10:])
	if string(s[:5]) != "PCIE1" || math.Abs(volts/100-float64(aux.V)) > 0.01 ||
		math.Abs(amps/10-float64(aux.I)) > 0.1 || math.Abs(watts-float64(aux.P)) > 1 {
		t.Errorf("sensors say %q %v %v %v, the board %+v", s[:6], volts, amps, watts, aux)
	}
	p.send(0x03)
	if v := p.recv(16); u16(v) != volts || u16(v[2:]) != amps {
		t.Errorf("values say %v %v, sensors %v %v", u16(v), u16(v[2:]), volts, amps)
	}
	p.send(0x06)
	adc := p.recv(16)
	raw := float64(int16(binary.LittleEndian.Uint16(adc))>>4) + 3
	if adc[0]&0xF != 0 || math.Abs(raw*VoltCount-float64(aux.V)) > VoltCount {
		t.Errorf("raw %v counts with the offset, the board has %v", raw, aux.V)
	}
}

func u16(b []byte) float64 { return float64(int16(binary.LittleEndian.Uint16(b))) }

func TestConfigNeedsItsCRC(t *testing.T) {
	f := newFace(t, newBoard(t), pace.Pace{}, Config{Offsets: [8]int8{1, -1, 2}})
	p, _ := serve(t, f, fault.Faults{})
	read := func() []byte { p.send(0x04); return p.recv(ConfigSize) }
	c := read()
	if int8(c[5]) != -1 || line.CRC16([]byte("123456789")) != 0x29B1 {
		t.Errorf("configuration % x, check value %04x", c, line.CRC16([]byte("123456789")))
	}
	bad := append([]byte{0x05}, c...)
	bad[1+4] = 99
	p.send(bad...)
	if got := read(); !bytes.Equal(got, c) {
		t.Errorf("a configuration with a wrong CRC is taken: % x", got)
	}
	binary.LittleEndian.PutUint16(bad[3:], line.CRC16(bad[5:]))
	p.send(bad...)
	if got := read(); got[4] != 99 {
		t.Errorf("a configuration with its CRC is not taken: % x", got)
	}
}

func TestContinuousFormats(t *testing.T) {
	for _, stamp := range []byte{0, 1, 2, 4} {
		for _, mask := range []byte{0xFF, 0x03, 0x80} {
			f := newFace(t, newBoard(t), pace.Pace{}, Config{})
			p, _ := serve(t, f, fault.Faults{})
			p.send(0x07, 1, stamp, mask)
			size := mode{stamp: int(stamp), mask: mask}.size()
			last := uint32(0)
			for i := range 200 {
				s := p.recv(size)
				var tick [4]byte
				copy(tick[:], s[:stamp])
				now := binary.LittleEndian.Uint32(tick[:])
				bits := uint(8 * stamp)
				step := (now - last) & uint32(1<<bits-1)
				if stamp > 1 && i > 0 && (step < 590 || step > 1020) {
					t.Fatalf("stamp %d: step of %d ticks", stamp, step)
				}
				last = now
				for _, b := range [][]byte{s[stamp:]} {
					for j := 0; j < len(b); j += 2 {
						if b[j]&0xF != 0 {
							t.Fatalf("stamp %d mask %02x: sample % x has a low nibble", stamp, mask, s)
						}
					}
				}
			}
			p.send(0x07, 0, 0, 0)
		}
	}
}

func TestEnergyAndRateOverThePty(t *testing.T) {
	b := newBoard(t)
	f := newFace(t, b, pace.Pace{}, Config{Seed: 2})
	if got := railNames(f); got != [4]string{"aux_12v_1", "aux_12v_2", "pcie_12v", ""} {
		t.Fatalf("rails on the pairs: %q", got)
	}
	p, _ := serve(t, f, fault.Faults{})
	p.send(0x07, 1, 4, 0xFF)
	const n = 8000
	var ticks [n]float64
	var power [n][4]float64
	for i := range n {
		s := p.recv(20)
		ticks[i] = float64(binary.LittleEndian.Uint32(s))
		for c := range 4 {
			v := float64(int16(binary.LittleEndian.Uint16(s[4+4*c:]))>>4) * VoltCount
			a := float64(int16(binary.LittleEndian.Uint16(s[6+4*c:]))>>4) * AmpCount
			power[i][c] = v * a
		}
	}
	rate := (n - 1) / (ticks[n-1] - ticks[0]) * TickHz
	if math.Abs(rate-4781) > 30 {
		t.Errorf("%.1f samples a second, the captures have 4781", rate)
	}
	var got [4]float64
	for i := 1; i < n; i++ {
		for c := range 4 {
			got[c] += (power[i][c] + power[i-1][c]) / 2 * (ticks[i] - ticks[i-1]) / TickHz
		}
	}
	truth, err := b.Energy(f.boardTime(uint64(ticks[0])), f.boardTime(uint64(ticks[n-1])))
	if err != nil {
		t.Fatal(err)
	}
	for c, rail := range []int{2, 3, 1} {
		rel := got[c]/float64(truth.Rails[rail]) - 1
		t.Logf("%s %+.3f %%", PairNames[c], 100*rel)
		if math.Abs(rel) > 2e-3 {
			t.Errorf("%s: %.4f J over the wire, %.4f J injected", PairNames[c], got[c], float64(truth.Rails[rail]))
		}
	}
}

// recording returns n records with a stamp step of 600 ticks and counting counts.
func recording(n int) []byte {
	var out []byte
	for i := range n {
		out = binary.LittleEndian.AppendUint16(out, uint16(i*600))
		for c := range Channels {
			out = binary.LittleEndian.AppendUint16(out, uint16((i+c)<<4))
		}
	}
	return out
}

func player600(data []byte) Config {
	return Config{Play: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }}
}

func TestPlaybackIsVerbatim(t *testing.T) {
	data := append(recording(5000), 1, 2, 3) // with a torn tail
	f := newFace(t, nil, pace.Pace{}, player600(data))
	p, port := serve(t, f, fault.Faults{})
	for range 2 { // switching on again plays from the begin
		p.send(0x07, 1, 2, 0xFF)
		if got := p.recv(len(data)); !bytes.Equal(got, data) {
			t.Fatal("what is played is not what was recorded")
		}
		select {
		case <-f.Played():
		case <-time.After(5 * time.Second):
			t.Fatal("the end of the recording is not told")
		}
		if n, err := port.Unread(); err != nil || n != 0 {
			t.Errorf("%d bytes left in the line (%v)", n, err)
		}
		p.send(0x07, 0, 0, 0)
	}
	p.send(0x01) // it still answers
	p.recv(3)
	if f.samples.Load() != 10000 {
		t.Errorf("%d samples counted, want 10000", f.samples.Load())
	}
}

func TestPlaybackInAnotherFormat(t *testing.T) {
	f := newFace(t, nil, pace.Pace{}, player600(recording(300)))
	p, _ := serve(t, f, fault.Faults{})
	p.send(0x07, 1, 4, 0x02)
	for i := range 300 {
		s := p.recv(6)
		if tick, n := binary.LittleEndian.Uint32(s), binary.LittleEndian.Uint16(s[4:])>>4; tick != uint32(i*600) ||
			n != uint16(i+1) {
			t.Fatalf("record %d comes as tick %d, count %d", i, tick, n)
		}
	}
}

func TestPlaybackIsPaced(t *testing.T) {
	for _, speed := range []float64{1, 8} {
		synctest.Test(t, func(t *testing.T) {
			f := newFace(t, nil, pace.Pace{Epoch: time.Now(), Speed: speed}, player600(recording(9782)))
			host, device := net.Pipe()
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- f.Run(ctx, device) }()
			time.Sleep(time.Minute)
			p := &peer{t, bufio.NewReader(host), host}
			p.send(0x07, 1, 2, 0xFF)
			begin := time.Now()
			p.recv(9782 * recordSize)
			want := 9781 * 600 / TickHz / speed
			if d := time.Since(begin).Seconds(); math.Abs(d-want) > 0.01 {
				t.Errorf("speed %v: played in %.3f s, recorded in %.3f s", speed, d, want)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestBaudLimitsTheRate(t *testing.T) {
	f := newFace(t, newBoard(t), pace.Pace{}, Config{LimitToBaud: true})
	p, _ := serve(t, f, fault.Faults{})
	p.send(0x07, 1, 4, 0xFF)
	first := binary.LittleEndian.Uint32(p.recv(20))
	slow := binary.LittleEndian.Uint32(p.recv(20)) - first
	if want := 20.0 * 10 * TickHz / 115200; math.Abs(float64(slow)-want) > 1 {
		t.Errorf("at 115200 baud the samples are %d ticks apart, want %.1f", slow, want)
	}
}

func TestDrawnScaleAndBadConfig(t *testing.T) {
	b := newBoard(t)
	cfg := Config{Seed: 3, Draw: true, Spread: meter.Spread{UGainI: 0.01, UClock: 1e-4}}
	one, two := newFace(t, b, pace.Pace{}, cfg), newFace(t, b, pace.Pace{}, cfg)
	if one.inputs != two.inputs || one.clock == 0 || one.clock != two.clock {
		t.Error("the same seed draws another device")
	}
	if one.inputs[0].ampGain == AmpCount {
		t.Error("no gain error was drawn")
	}
	if f := newFace(t, b, pace.Pace{}, Config{Seed: 3, Draw: true}); f.inputs[0].voltGain == VoltCount ||
		f.clock == 0 {
		t.Error("drawn without a spread, the device is perfect")
	}
	if _, err := New(b, pace.Pace{}, Config{Rails: [4]string{"nosuch"}}); err == nil {
		t.Error("a rail that the board lacks is taken")
	}
	if _, err := New(nil, pace.Pace{}, Config{}); err == nil {
		t.Error("a device without a board and a recording is made")
	}
}

func FuzzCommands(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 6})
	f.Add([]byte{7, 1, 2, 0xFF, 1, 7, 0, 0, 0})
	f.Add([]byte{7, 1, 3, 0, 5, 0xF0, 0xF1, 8})
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

// shared returns the path of a recording beside the repository, or skips.
func shared(t *testing.T, parts ...string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	path := filepath.Join(append([]string{dir, "..", "shared", "data"}, parts...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no recording: %v", err)
	}
	return path
}

func TestRealRecordingsPassThePtyUnchanged(t *testing.T) {
	for _, run := range []string{"3090-square", "k40m-step"} {
		path := shared(t, "pmd", run, "PMD_data.bin")
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f := newFace(t, nil, pace.Pace{}, Config{Play: func() (io.ReadCloser, error) { return os.Open(path) }})
		p, _ := serve(t, f, fault.Faults{})
		p.send(0x07, 1, 2, 0xFF)
		if got := p.recv(len(want)); !bytes.Equal(got, want) {
			t.Errorf("%s: the played bytes differ from the recorded ones", run)
		}
	}
}

// The emulated device's steps of the time stamp are those of the real one: the
// same mean, and the same share within the plain loop.
func TestStepsAreThoseOfTheRealDevice(t *testing.T) {
	data, err := os.ReadFile(shared(t, "pmd", "3090-square", "PMD_data.bin"))
	if err != nil {
		t.Fatal(err)
	}
	stamp := func(i int) uint16 { return binary.LittleEndian.Uint16(data[i*recordSize:]) }
	n := len(data)/recordSize - 1
	mean, plain := 0.0, 0.0
	for i := range n {
		d := stamp(i+1) - stamp(i)
		mean += float64(d)
		if d >= 600 && d <= 604 {
			plain++
		}
	}
	f := newFace(t, newBoard(t), pace.Pace{}, Config{Seed: 1})
	em, ep := 0.0, 0.0
	for range n {
		d := f.nextStep()
		em += float64(d)
		if d >= 600 && d <= 604 {
			ep++
		}
	}
	k := float64(n)
	t.Logf("mean step %.2f ticks recorded, %.2f emulated; plain loops %.1f %% and %.1f %%", mean/k, em/k, 100*plain/k,
		100*ep/k)
	if math.Abs(em/mean-1) > 0.002 || math.Abs(ep-plain)/k > 0.03 {
		t.Error("the emulated steps are not the recorded ones")
	}
}

// railNames returns the names of the rails on PCIE1, PCIE2, EPS1 and EPS2.
func railNames(f *Face) (names [4]string) {
	for p, in := range f.inputs {
		if in.rail >= 0 {
			names[p] = f.board.Rails()[in.rail].Name
		}
	}
	return names
}
