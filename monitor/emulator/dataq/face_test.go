package dataq

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
)

// talk is a driver of a few lines, apart from the product's own.
type talk struct {
	t *testing.T
	c net.Conn
	r *bufio.Reader
}

func (k talk) ask(command, want string) {
	k.t.Helper()
	if _, err := io.WriteString(k.c, command+"\r"); err != nil {
		k.t.Fatal(err)
	}
	if got, err := k.r.ReadString('\r'); err != nil || got != want+"\r" {
		k.t.Fatalf("to %q: %q, %v; want %q", command, got, err, want)
	}
}

func serve(t *testing.T, b *board.Board, cfg Config) (*Face, talk) {
	t.Helper()
	f, err := New(b, pace.Pace{}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	mine, theirs := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx, theirs) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return f, talk{t, mine, bufio.NewReader(mine)}
}

func TestWordsTellTheBoard(t *testing.T) {
	b, err := board.New(board.Config{Drift: -1})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		setUp   []string
		items   int
		perScan time.Duration
	}{
		"DI-1100": {[]string{"slist 0 0", "slist 1 1"}, 2, 500 * time.Microsecond},
		"DI-2108": {[]string{"slist 0 8", "slist 1 0", "slist 2 1", "filter 0 0", "dec 1"}, 3, 1500 * time.Microsecond},
	} {
		f, k := serve(t, b, Config{Model: name, Noise: -1})
		k.ask("stop", "stop")
		k.ask("info 0", "info 0 DATAQ")
		k.ask("info 1", "info 1 "+strings.TrimPrefix(name, "DI-"))
		k.ask("info 9", "info 9 60000000")
		for _, s := range append(c.setUp, "encode 0", "ps 2", "srate 30000") {
			k.ask(s, s)
		}
		if _, err := io.WriteString(k.c, "start\r"); err != nil {
			t.Fatal(err)
		}
		scan := make([]byte, 2*c.items)
		for i := range 500 {
			if _, err := io.ReadFull(k.r, scan); err != nil {
				t.Fatal(err)
			}
			low, first := uint16(0xF), 0
			if name == "DI-2108" {
				first, low = 1, 0
				if scan[0] != 0 || scan[1] != 0x7F {
					t.Fatalf("%s, scan %d: digital inputs % x", name, i, scan[:2])
				}
			} else if scan[0]&0xF != 3 || scan[2]&0xF != 0 {
				t.Fatalf("%s, scan %d: low bits of % x", name, i, scan)
			}
			at := f.StreamStart() + time.Duration(i)*c.perScan
			now := b.At(at + time.Duration(first)*c.perScan/time.Duration(c.items))
			v := float64(int16(binary.LittleEndian.Uint16(scan[2*first:])&^low)) * 10 / 32768 * meter.Divider
			if math.Abs(v-float64(now[2].V)) > 6e-3 {
				t.Fatalf("%s, scan %d: %v V, the board has %v", name, i, v, now[2].V)
			}
		}
	}
}

// What the device does not know it does not echo, and a command behind is heard.
func TestWhatIsNotKnownIsNotEchoed(t *testing.T) {
	b, err := board.New(board.Config{})
	if err != nil {
		t.Fatal(err)
	}
	_, k := serve(t, b, Config{})
	for _, s := range []string{
		"dec 1", "slist 0 9", "slist 3 0", "srate 0", "ps 8", "encode 1", "hello",
		strings.Repeat("x", 500),
	} {
		if _, err := io.WriteString(k.c, s+"\r"); err != nil {
			t.Fatal(err)
		}
	}
	k.ask("ps 1", "ps 1")
}
