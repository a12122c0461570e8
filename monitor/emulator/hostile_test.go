//go:build linux

package emulator_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	dataqface "github.com/wattmark/wattmark/monitor/emulator/dataq"
	keysightface "github.com/wattmark/wattmark/monitor/emulator/keysight"
	labjackface "github.com/wattmark/wattmark/monitor/emulator/labjack"
	niface "github.com/wattmark/wattmark/monitor/emulator/nidaqmx"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	pmdface "github.com/wattmark/wattmark/monitor/emulator/pmd"
	pmd2face "github.com/wattmark/wattmark/monitor/emulator/pmd2"
	poweneticsface "github.com/wattmark/wattmark/monitor/emulator/powenetics"
	ps3face "github.com/wattmark/wattmark/monitor/emulator/powersensor3"
	quarchface "github.com/wattmark/wattmark/monitor/emulator/quarch"
	rigolface "github.com/wattmark/wattmark/monitor/emulator/rigol"
	rsface "github.com/wattmark/wattmark/monitor/emulator/rohdeschwarz"
	scopeface "github.com/wattmark/wattmark/monitor/emulator/scope"
	textface "github.com/wattmark/wattmark/monitor/emulator/serialtext"
	siglentface "github.com/wattmark/wattmark/monitor/emulator/siglent"
	tekface "github.com/wattmark/wattmark/monitor/emulator/tektronix"
	u2300face "github.com/wattmark/wattmark/monitor/emulator/u2300"
	wt300face "github.com/wattmark/wattmark/monitor/emulator/wt300"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/registry"
	"github.com/wattmark/wattmark/monitor/internal/montest"
)

// emulated are the devices, by their drivers; replay, nvml and amdsmi have no line.
var emulated = map[string]func(*board.Board, pace.Pace) (any, error){
	"powersensor3": func(b *board.Board, p pace.Pace) (any, error) { return ps3face.New(b, p, ps3face.Config{}) },
	"pmd":          func(b *board.Board, p pace.Pace) (any, error) { return pmdface.New(b, p, pmdface.Config{}) },
	"pmd2":         func(b *board.Board, p pace.Pace) (any, error) { return pmd2face.New(b, p, pmd2face.Config{}) },
	"wireview-pro2": func(b *board.Board, p pace.Pace) (any, error) {
		return pmd2face.New(b, p, pmd2face.Config{WireView: true})
	},
	"powenetics": func(b *board.Board, p pace.Pace) (any, error) {
		return poweneticsface.New(b, p, poweneticsface.Config{})
	},
	"labjack": func(b *board.Board, p pace.Pace) (any, error) {
		return labjackface.New(b, p, labjackface.Config{})
	},
	"nidaqmx": func(b *board.Board, p pace.Pace) (any, error) { return niface.New(b, p, niface.Config{}) },
	"quarch":  func(b *board.Board, p pace.Pace) (any, error) { return quarchface.New(b, p, quarchface.Config{}) },
	"dataq": func(b *board.Board, p pace.Pace) (any, error) {
		return dataqface.New(b, p, dataqface.Config{Model: "DI-1100"})
	},
	"serialtext": func(b *board.Board, p pace.Pace) (any, error) { return textface.New(b, p, textface.Config{}) },
	"keysight-u2300": func(b *board.Board, p pace.Pace) (any, error) {
		return u2300face.New(b, u2300face.Config{Now: since(p)})
	},
	"yokogawa-wt300": func(b *board.Board, p pace.Pace) (any, error) {
		return wt300face.New(b, wt300face.Config{Now: since(p)})
	},
	"rigol-ds1000z": func(b *board.Board, p pace.Pace) (any, error) {
		return rigolface.New(b, rigolface.DS1000Z, scopeface.Config{Now: since(p)})
	},
	"rigol-mso5000": func(b *board.Board, p pace.Pace) (any, error) {
		return rigolface.New(b, rigolface.MSO5000, scopeface.Config{Now: since(p)})
	},
	"rigol-dho": func(b *board.Board, p pace.Pace) (any, error) {
		return rigolface.New(b, rigolface.DHO, scopeface.Config{Now: since(p)})
	},
	"keysight-infiniivision": func(b *board.Board, p pace.Pace) (any, error) {
		return keysightface.New(b, keysightface.DSOX1102G, keysightface.Config{Config: scopeface.Config{Now: since(p)}})
	},
	"rohde-schwarz-rtb2000": func(b *board.Board, p pace.Pace) (any, error) {
		return rsface.New(b, rsface.RTB2004, scopeface.Config{Now: since(p)})
	},
	"siglent-e11": func(b *board.Board, p pace.Pace) (any, error) {
		return siglentface.New(b, siglentface.SDS2000XPlus, scopeface.Config{Now: since(p)})
	},
	"tektronix": func(b *board.Board, p pace.Pace) (any, error) {
		return tekface.New(b, tekface.MDO3000, scopeface.Config{Now: since(p)})
	},
}

func since(p pace.Pace) func() time.Duration {
	return func() time.Duration { return time.Since(p.Epoch) }
}

// hostile is a line to a device that spoils what comes from there, once it is armed.
type hostile struct {
	attack func(*spoiler, []byte) error
	armed  atomic.Bool
}

// spoiler is one connection of it.
type spoiler struct {
	out  net.Conn
	rng  *rand.Rand
	once bool
}

var (
	errHangUp = errors.New("hung up")
	errEnough = errors.New("enough scans")
	number    = regexp.MustCompile(`\d+`)
	numbers   = []string{
		"1e999", "-1e999", "nan", "-inf", "99999999999999999999999", "-9223372036854775808", "1e-999",
		"", "0x7f", "4294967296",
	}
)

// pour sends without end what next makes; what a device could send in some minutes.
func (s *spoiler) pour(next func([]byte)) error {
	if s.once {
		return nil
	}
	s.once = true
	b := make([]byte, 64<<10)
	for range 3000 { // 190 MB
		next(b)
		if _, err := s.out.Write(b); err != nil {
			return err
		}
	}
	return nil
}

func (s *spoiler) all(c byte) error {
	return s.pour(func(b []byte) {
		for i := range b {
			b[i] = c
		}
	})
}

// attacks are what a device may come to send.
var attacks = map[string]func(*spoiler, []byte) error{
	"mutated": func(s *spoiler, b []byte) error {
		for i := range b {
			if s.rng.IntN(50) == 0 {
				b[i] ^= 1 << s.rng.IntN(8)
			}
		}
		if cut := s.rng.IntN(len(b) + 1); s.rng.IntN(4) == 0 {
			b = b[cut:]
		}
		_, err := s.out.Write(b)
		return err
	},
	"hostile numbers": func(s *spoiler, b []byte) error {
		_, err := s.out.Write(number.ReplaceAllFunc(b,
			func([]byte) []byte { return []byte(numbers[s.rng.IntN(len(numbers))]) }))
		return err
	},
	"flood": func(s *spoiler, _ []byte) error {
		return s.pour(func(b []byte) {
			for i := range b {
				b[i] = byte(s.rng.Uint32())
			}
		})
	},
	"endless line": func(s *spoiler, _ []byte) error { return s.all('1') },
	"0xff":         func(s *spoiler, _ []byte) error { return s.all(0xff) },
	"endless block": func(s *spoiler, _ []byte) error {
		if _, err := s.out.Write([]byte("#9999999999")); err != nil {
			return err
		}
		return s.all(0)
	},
	"drip": func(s *spoiler, b []byte) error {
		for _, c := range b {
			if _, err := s.out.Write([]byte{c}); err != nil {
				return err
			}
			<-time.After(20 * time.Millisecond)
		}
		return nil
	},
	"silence": func(*spoiler, []byte) error { return nil },
	"hang-up": func(*spoiler, []byte) error { return errHangUp },
	"long identity": func(s *spoiler, _ []byte) error {
		_, err := s.out.Write([]byte("KEYSIGHT," + strings.Repeat("\x1b[31m\xff\u202e", 20000) + ",1,1\n"))
		return err
	},
	"identity of separators": func(s *spoiler, _ []byte) error {
		_, err := s.out.Write(append(bytes.Repeat([]byte{','}, 5000), '\n'))
		return err
	},
}

// listen puts the line before a device's port and returns its own.
func (h *hostile) listen(t *testing.T, device string) *net.TCPAddr {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			driver, err := l.Accept()
			if err != nil {
				return
			}
			device, err := net.Dial("tcp", device)
			if err != nil {
				_ = driver.Close()
				continue
			}
			hangUp := func() { _, _ = device.Close(), driver.Close() }
			go func() { defer hangUp(); _, _ = io.Copy(device, driver) }()
			go func() { defer hangUp(); h.carry(driver, device) }()
		}
	}()
	return l.Addr().(*net.TCPAddr)
}

func (h *hostile) carry(driver, device net.Conn) {
	s := &spoiler{out: driver, rng: rand.New(rand.NewPCG(1, 2))}
	for b := make([]byte, 16<<10); ; {
		n, err := device.Read(b)
		if err != nil {
			return
		}
		if h.armed.Load() {
			err = h.attack(s, b[:n])
		} else {
			_, err = driver.Write(b[:n])
		}
		if err != nil {
			return
		}
	}
}

// port serves one client after another, as a serial port does.
func port(run func(context.Context, io.ReadWriteCloser) error) func(context.Context, net.Listener) error {
	return func(ctx context.Context, l net.Listener) error {
		defer context.AfterFunc(ctx, func() { _ = l.Close() })()
		for {
			c, err := l.Accept()
			if err != nil {
				return nil
			}
			_ = run(ctx, c) // it ends with its line, whatever was on it
		}
	}
}

// plug serves a device behind the line, and returns the driver's address and, of a
// second port, its number.
func (h *hostile) plug(t *testing.T, device any) (address string, second int) {
	t.Helper()
	at := func(serve func(context.Context, net.Listener) error) *net.TCPAddr {
		a, _ := montest.Serve(t, "127.0.0.1:0", serve)
		return h.listen(t, a)
	}
	switch d := device.(type) {
	case *labjackface.Face:
		stream, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		second = h.listen(t, stream.Addr().String()).Port
		return "tcp:" + at(func(ctx context.Context, l net.Listener) error { return d.Serve(ctx, l, stream) }).String(),
			second
	case interface {
		Serve(context.Context, net.Listener) error
	}:
		return "tcp:" + at(d.Serve).String(), 0
	case interface {
		Serve(context.Context, net.Listener, func(net.Conn) io.ReadWriteCloser) error
	}:
		return "tcp:" + at(func(ctx context.Context, l net.Listener) error { return d.Serve(ctx, l, nil) }).String(), 0
	}
	return "tcp:" + at(port(device.(interface {
		Run(context.Context, io.ReadWriteCloser) error
	}).Run)).String(), 0
}

// driver makes the driver of a device behind the line, impatient where it can be.
func (h *hostile) driver(t *testing.T, kind string) instrument.Instrument {
	t.Helper()
	k, err := registry.Lookup(kind)
	if err != nil {
		t.Fatal(err)
	}
	device, err := emulated[kind](workload(t), unhurried())
	if err != nil {
		t.Fatal(err)
	}
	address, second := h.plug(t, device)
	o := k.Options()
	for name, value := range map[string]int64{
		"Silence": int64(time.Second), "Timeout": int64(time.Second),
		"Window": int64(300 * time.Millisecond), "StreamPort": int64(second),
	} {
		if f := reflect.ValueOf(o).Elem().FieldByName(name); f.IsValid() && (name != "StreamPort" || second != 0) {
			f.SetInt(value)
		}
	}
	dev, err := k.New(registry.Env{}, address, o)
	if err != nil {
		t.Fatal(err)
	}
	return dev
}

// patience is what a driver may take to end beyond what it is given, on a busy machine.
const patience = 90 * time.Second

// within runs one call that has to end, and whose error has to be fit to be shown.
func within(t *testing.T, what string, call func() error) error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- call() }()
	select {
	case err := <-ended:
		if err != nil && len(err.Error()) > 2000 {
			t.Errorf("%s: an error of %d bytes: %.100q…", what, len(err.Error()), err)
		}
		return err
	case <-time.After(patience):
		buf := make([]byte, 1<<20)
		t.Fatalf("%s: still there after %v\n%s", what, patience, buf[:runtime.Stack(buf, true)])
		return nil
	}
}

// strict is a sink that keeps the contract of a stream, and the error that breaks it.
type strict struct {
	*montest.Collector
	first  func() // called with the first block
	scans  int
	broken error
}

func (s *strict) Block(b *measure.Block) error {
	s.first()
	if s.scans += b.Scans(); s.scans > 1<<20 { // a flood of good scans fills this sink, not the driver
		return errEnough
	}
	if s.broken == nil {
		s.broken = s.Collector.Block(b)
	}
	return s.broken
}

func (s *strict) Event(e measure.Event) error {
	if s.broken == nil {
		s.broken = s.Collector.Event(e)
	}
	return s.broken
}

// stream opens an instrument, streams for a while, and closes it; opened and, with what ends
// the stream, begun are called on the way.
func stream(t *testing.T, dev instrument.Instrument, d time.Duration, opened func(),
	begun func(enough func()),
) (scans int, err error) {
	t.Helper()
	err = within(t, "open", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		return dev.Open(ctx)
	})
	if err == nil {
		opened()
		out := &strict{Collector: montest.For(dev.Inputs())}
		err = within(t, "stream", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			out.first = func() { begun(cancel) }
			return dev.Stream(ctx, instrument.SinkOf(out))
		})
		if errors.Is(err, errEnough) {
			err = nil
		}
		if scans = len(out.Scans()); out.broken != nil {
			t.Errorf("the contract is broken: %v", out.broken)
		}
	}
	_ = within(t, "close", dev.Close)
	return scans, err
}

// limit is how much memory a hostile device may make the program take, beside others that take half of it each.
const limit = 128 << 20

// watch follows what the heap takes until the test ends, with its parallel parts.
func watch(t *testing.T) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	before, most := m.HeapAlloc, uint64(0)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	}()
	t.Cleanup(func() {
		close(done)
		<-ended
		together, _ := strconv.Atoi(flag.Lookup("test.parallel").Value.String())
		if t.Logf("the heap grew by up to %d MB", (most-before)>>20); most > before+limit+uint64(together)*limit/2 {
			t.Errorf("the heap grew by %d MB with %d drivers at a time", (most-before)>>20, together)
		}
	})
}

// Every kind with a line is tried.
func TestHostileDevicesOfAllKinds(t *testing.T) {
	for _, k := range registry.Kinds() {
		if emulated[k.Name] == nil && !slices.Contains([]string{"nvml", "amdsmi", "replay"}, k.Name) {
			t.Errorf("no hostile %s is tried: add its emulator to emulated in monitor/emulator/hostile_test.go", k.Name)
		}
	}
}

// Whatever a device sends, and whenever: its driver ends, takes little memory, reports
// what was lost, and works with the next device.
func TestHostileDevices(t *testing.T) {
	coverage.Long(t)
	watch(t)
	whens := []string{"at once", "once it is open", "in mid-stream"}
	for i, kind := range slices.Sorted(maps.Keys(emulated)) {
		for j, name := range slices.Sorted(maps.Keys(attacks)) {
			for k, when := range whens {
				if (i+j+k)%9 != 0 && os.Getenv("WATTMARK_HOSTILE") != "all" {
					continue // all take ten minutes
				}
				t.Run(kind+", "+name+" "+when, func(t *testing.T) {
					t.Parallel()
					h := &hostile{attack: attacks[name]}
					arm := func(at string) { h.armed.Store(h.armed.Load() || when == at) }
					dev := h.driver(t, kind)
					arm(whens[0])
					began := time.Now()
					scans, err := stream(t, dev, 800*time.Millisecond, func() { arm(whens[1]) }, func(func()) { arm(whens[2]) })
					t.Logf("%d scans in %.1f s: %.200v", scans, time.Since(began).Seconds(), err)
					when = "" // never again
					h.armed.Store(false)
					for end := time.Now().Add(patience); ; {
						if scans, err = stream(t, dev, time.Second, func() {}, func(enough func()) { enough() }); err == nil && scans > 0 {
							break
						}
						if time.Now().After(end) {
							t.Fatalf("a good device afterwards: %d scans, %v", scans, err)
						}
					}
				})
			}
		}
	}
}
