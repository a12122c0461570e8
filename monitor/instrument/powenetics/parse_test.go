package powenetics

import (
	"encoding/binary"
	"testing"
)

// frame builds a frame whose values are made of its number.
func frame(n uint16) []byte {
	b := binary.BigEndian.AppendUint16([]byte{0xCA, 0xAC}, n)
	for c := range Connectors {
		b = binary.BigEndian.AppendUint16(b, 12000+uint16(c))
		b = append(b, 0, byte(n>>4), byte(n)|1)
	}
	return b
}

func frames(from, to int) (b []byte) {
	for n := from; n < to; n++ {
		b = append(b, frame(uint16(n))...)
	}
	return b
}

// numbers parses b in pieces of a size and returns the numbers of its frames.
func numbers(p *Parser, b []byte, piece int) (out []uint16) {
	for len(b) > 0 {
		k := min(piece, len(b))
		for part := b[:k]; ; {
			n, ok := p.Next(part)
			part = part[n:]
			if !ok {
				break
			}
			out = append(out, p.Frame.Number)
		}
		b = b[k:]
	}
	for p.Rest() {
		out = append(out, p.Frame.Number)
	}
	return out
}

func TestParserLosesWhatIsSpoiltAndNoMore(t *testing.T) {
	at := func(frame, byte int) int { return frame*FrameBytes + byte }
	cut := func(b []byte, i, n int) []byte { return append(append([]byte{}, b[:i]...), b[i+n:]...) }
	double := func(b []byte, i, n int) []byte {
		return append(append(append([]byte{}, b[:i+n]...), b[i:i+n]...), b[i+n:]...)
	}
	flip := func(b []byte, i int) []byte { c := append([]byte{}, b...); c[i] ^= 0x10; return c }
	whole := frames(10, 30)
	for name, c := range map[string]struct {
		data []byte
		lost []uint16
	}{
		"whole":                     {whole, nil},
		"begins within a frame":     {whole[30:], []uint16{10}},
		"a byte lost":               {cut(whole, at(5, 20), 1), []uint16{15}},
		"bytes lost across frames":  {cut(whole, at(5, 20), 100), []uint16{15, 16}},
		"whole frames lost":         {cut(whole, at(5, 0), 3*FrameBytes), []uint16{15, 16, 17}},
		"a byte doubled":            {double(whole, at(5, 20), 1), []uint16{15}},
		"a frame doubled":           {double(whole, at(5, 0), FrameBytes), nil},
		"a stretch doubled":         {double(whole, at(5, 20), FrameBytes), nil},
		"a mark spoilt":             {flip(whole, at(5, 0)), []uint16{15}},
		"a number spoilt":           {flip(whole, at(5, 3)), nil},
		"a number's high spoilt":    {flip(whole, at(5, 2)), nil},
		"the last byte lost":        {cut(whole, at(5, FrameBytes-1), 1), []uint16{15}},
		"the number wraps":          {frames(65530, 65550), nil},
		"a mark within the values":  {append(append(frames(1, 4), marks(4)...), frames(5, 9)...), nil},
		"text before":               {append([]byte("PMD is ready!\r\n"), whole...), nil},
		"a value spoilt, not seen":  {flip(whole, at(5, 8)), nil},
		"the end of the last's cut": {whole[:len(whole)-1], []uint16{28, 29}},
	} {
		first, count := 10, 20
		switch name {
		case "the number wraps":
			first = 65530
		case "a mark within the values":
			first, count = 1, 8
		}
		for _, piece := range []int{1, 7, FrameBytes, 4096} {
			var p Parser
			got := numbers(&p, c.data, piece)
			missing := map[uint16]bool{}
			for _, n := range c.lost {
				missing[n] = true
			}
			want := 0
			for n := first; n < first+count; n++ {
				if missing[uint16(n)] {
					continue
				}
				if want >= len(got) || got[want] != uint16(n) {
					t.Errorf("%s, in pieces of %d: %v, want %d without %v", name, piece, got, count, c.lost)
					break
				}
				want++
			}
			if want != len(got) {
				t.Errorf("%s, in pieces of %d: %d frames, want %d", name, piece, len(got), want)
			}
		}
	}
}

// marks is a frame full of what looks like marks.
func marks(n uint16) []byte {
	b := frame(n)
	for i := 5; i+1 < len(b); i += 2 {
		b[i], b[i+1] = 0xCA, 0xAC
	}
	return b
}

func FuzzParser(f *testing.F) {
	f.Add(frames(1, 9), uint8(5))
	f.Add(frames(1, 9)[3:], uint8(1))
	f.Add(append(frames(1, 4), frames(7, 12)...), uint8(255))
	f.Add(marks(3), uint8(69))
	f.Fuzz(func(t *testing.T, data []byte, piece uint8) {
		var p, q Parser
		a := numbers(&p, data, int(piece)+1)
		if len(a) > len(data)/FrameBytes {
			t.Fatalf("%d frames of %d bytes", len(a), len(data))
		}
		b := numbers(&q, data, max(1, len(data)))
		if len(a) != len(b) {
			t.Fatalf("%d frames in pieces, %d at once", len(a), len(b))
		}
		for i := range a {
			if a[i] != b[i] {
				t.Fatalf("frame %d: %d in pieces, %d at once", i, a[i], b[i])
			}
		}
	})
}

func BenchmarkParser(b *testing.B) {
	data := frames(0, 1000)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	var p Parser
	for range b.N {
		for d := data; ; {
			n, ok := p.Next(d)
			if d = d[n:]; !ok {
				break
			}
		}
	}
}

func TestParserDoesNotAllocate(t *testing.T) {
	data := frames(0, 200)
	var p Parser
	if n := testing.AllocsPerRun(20, func() {
		for d := data; ; {
			k, ok := p.Next(d)
			if d = d[k:]; !ok {
				return
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
