package pmd2

import (
	"context"
	"encoding/binary"
	"io"
	"math"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
)

// A driver of a few lines, apart from the product's own, reads what the board
// draws.
func TestRepliesTellTheBoard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := board.New(board.Config{Drift: -1})
		if err != nil {
			t.Fatal(err)
		}
		f, err := New(b, pace.Real(time.Now()), Config{NoiseV: -1, NoiseI: -1})
		if err != nil {
			t.Fatal(err)
		}
		mine, theirs := net.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- f.Run(ctx, theirs) }()
		get := func(command byte, n int) []byte {
			if command != 0xFF {
				if _, err := mine.Write([]byte{command}); err != nil {
					t.Fatal(err)
				}
			}
			p := make([]byte, n)
			if _, err := io.ReadFull(mine, p); err != nil {
				t.Fatal(err)
			}
			return p
		}
		if hello := string(get(0xFF, 15)); hello != "ElmorLabs PMD2\x00" {
			t.Errorf("%q", hello)
		}
		if id := get(1, 3); id[0] != 0xEE || id[1] != 0x15 {
			t.Errorf("% x", id)
		}
		for i := range 200 {
			time.Sleep(700 * time.Microsecond) // in virtual time
			p := get(4, 122)
			now := b.At(time.Duration(f.last) * time.Millisecond)
			for sensor, rail := range map[int]int{4: 2, 7: 3} {
				q := p[4+10*sensor:]
				mV, mA := int16(binary.LittleEndian.Uint16(q)), int32(binary.LittleEndian.Uint32(q[2:]))
				mW := int32(binary.LittleEndian.Uint32(q[6:]))
				if math.Abs(float64(mV)-1e3*float64(now[rail].V)) > 2 ||
					math.Abs(float64(mA)-1e3*float64(now[rail].I)) > 60 ||
					math.Abs(float64(mW)-float64(mV)*float64(mA)/1e3) > 1 {
					t.Fatalf("reading %d, sensor %d: %d mV, %d mA, %d mW; the board has %+v", i, sensor, mV, mA, mW,
						now[rail])
				}
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
