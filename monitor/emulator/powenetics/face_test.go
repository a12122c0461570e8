package powenetics

import (
	"context"
	"encoding/binary"
	"io"
	"math"
	"net"
	"testing"

	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
)

// A driver of a few lines, apart from the product's own, reads what the board
// draws.
func TestFramesTellTheBoard(t *testing.T) {
	b, err := board.New(board.Config{Drift: -1})
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(b, pace.Pace{}, Config{NoiseV: -1, NoiseI: -1})
	if err != nil {
		t.Fatal(err)
	}
	mine, theirs := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx, theirs) }()
	hello := make([]byte, len(greeting))
	if _, err := io.ReadFull(mine, hello); err != nil || string(hello) != greeting {
		t.Fatalf("%q, %v", hello, err)
	}
	if _, err := mine.Write([]byte{0xFF, 0xCA, 0xAC, 0xBD, 0x90}); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, FrameBytes)
	for i := range 500 {
		if _, err := io.ReadFull(mine, buf); err != nil {
			t.Fatal(err)
		}
		if buf[0] != 0xCA || buf[1] != 0xAC || binary.BigEndian.Uint16(buf[2:]) != uint16(i+1) {
			t.Fatalf("frame %d begins % x", i, buf[:4])
		}
		now := b.At(f.BoardTime(uint64(i)))
		for rail, at := range []int{10, 11, 12, 9} {
			v := float64(binary.BigEndian.Uint16(buf[4+5*at:])) / 1e3
			a := float64(int(buf[6+5*at])<<16|int(buf[7+5*at])<<8|int(buf[8+5*at])) / 1e3
			if math.Abs(v-float64(now[rail].V)) > 0.6e-3 || math.Abs(a-float64(now[rail].I)) > 2.6e-3 {
				t.Fatalf("frame %d, connector %d: %v V, %v A; the board has %+v", i, at, v, a, now[rail])
			}
		}
	}
	if _, err := mine.Write([]byte{0xCA, 0xAC, 0xBD, 0x00}); err != nil {
		t.Fatal(err)
	}
	for f.Cleared() == 0 {
		if _, err := io.ReadFull(mine, buf); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
