package dataq

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
)

var layouts = map[string]Layout{
	"DI-1100, 1 item":  {Items: 1, Low: true},
	"DI-1100, 4 items": {Items: 4, Low: true},
	"DI-2108, 9 items": {Items: 9, Digital: true},
	"DI-2108, 2 items": {Items: 2, Digital: true},
	"no marks":         {Items: 3},
}

// words builds n scans; the second analog item, or else the first, counts them.
func words(l Layout, n int, digital byte) (b []byte) {
	for s := range n {
		for i := range l.Items {
			w := uint16(0x2340+0x730*i) + uint16(s%5)<<4
			switch {
			case i == 0 && l.Digital:
				w = uint16(digital) << 8
			case i == min(1, l.Items-1):
				w = uint16(s) << 4
			}
			if i == 0 && l.Low {
				w |= uint16(digital) & 3
			}
			b = binary.LittleEndian.AppendUint16(b, w)
		}
	}
	return b
}

// framed cuts a stream in pieces into scans and returns what counts them.
func framed(f *Framer, l Layout, b []byte, piece int) (scans []int, skipped int) {
	take := func() {
		at := 2 * min(1, l.Items-1)
		scans = append(scans, int(binary.LittleEndian.Uint16(f.Scan[at:])>>4))
		skipped += f.Skipped
		f.Skipped = 0
	}
	for len(b) > 0 {
		k := min(piece, len(b))
		for part := b[:k]; ; {
			n, ok := f.Next(part)
			if part = part[n:]; !ok {
				break
			}
			take()
		}
		b = b[k:]
	}
	for f.Rest() {
		take()
	}
	return scans, skipped
}

func TestFramer(t *testing.T) {
	for name, l := range layouts {
		data := words(l, 500, 3)
		for _, piece := range []int{1, 7, 1 << 20} {
			f := NewFramer(l)
			scans, skipped := framed(f, l, data, piece)
			if len(scans) != 500 || skipped != 0 || scans[499] != 499 || f.Blind != (!l.Low && !l.Digital) || f.Weak {
				t.Fatalf("%s in pieces of %d: %d scans, %d bytes skipped", name, piece, len(scans), skipped)
			}
		}
	}
}

// A byte lost or doubled costs the scans that it touches, and no others come out
// wrong.
func TestFramerFindsTheNextScan(t *testing.T) {
	for name, l := range layouts {
		if !l.Low && !l.Digital {
			continue
		}
		data, size := words(l, 500, 3), 2*l.Items
		for at := 200 * size; at < 201*size; at++ {
			for what, spoilt := range map[string][]byte{
				"lost":    slices.Concat(data[:at], data[at+1:]),
				"doubled": slices.Concat(data[:at], data[at-1:]),
			} {
				f := NewFramer(l)
				scans, skipped := framed(f, l, spoilt, 100)
				wrong := 0
				for i := 1; i < len(scans); i++ {
					if scans[i] <= scans[i-1] || scans[i] > scans[i-1]+4 {
						wrong++
					}
				}
				if wrong > 0 || len(scans) < 500-4 || scans[len(scans)-1] != 499 || skipped == 0 {
					t.Errorf("%s, byte %d %s: %d scans, %d out of order, %d bytes skipped", name, at-200*size, what,
						len(scans), wrong, skipped)
				}
			}
		}
	}
}

func TestFramerSeesDigitalInputsChange(t *testing.T) {
	for _, name := range []string{"DI-1100, 4 items", "DI-2108, 9 items"} {
		l := layouts[name]
		f := NewFramer(l)
		scans, skipped := framed(f, l, slices.Concat(words(l, 100, 3), words(l, 100, 2)), 1000)
		if len(scans) != 200 || skipped != 0 || !f.Changed {
			t.Errorf("%s: %d scans, %d bytes skipped, changed: %v", name, len(scans), skipped, f.Changed)
		}
	}
}

func TestFramerKnowsWhatItCannotSee(t *testing.T) {
	l := layouts["DI-1100, 4 items"]
	f := NewFramer(l)
	if scans, _ := framed(f, l, words(l, 50, 0), 1000); len(scans) != 50 || !f.Weak {
		t.Errorf("both inputs low: %d scans, weak: %v", len(scans), f.Weak)
	}
	other := words(Layout{Items: 4}, 50, 0)
	other[21] = 0xFF
	other[22] = 0xFF
	f = NewFramer(l)
	if scans, _ := framed(f, l, other, 1000); len(scans) != 50 || !f.Blind {
		t.Errorf("bits that should not: %d scans, blind: %v", len(scans), f.Blind)
	}
}

func TestFramerSeesTheEnd(t *testing.T) {
	for name, l := range layouts {
		f := NewFramer(l)
		data := append(words(l, 100, 3), "stop 01\r"...)
		n := 0
		for len(data) > 0 {
			k, ok := f.Next(data)
			data = data[k:]
			if ok {
				n++
			}
		}
		if !f.Overflowed() || f.Overflowed() {
			t.Fatalf("%s: the end was not seen", name)
		}
		for f.Rest() {
			n++
		}
		if n != 100 {
			t.Errorf("%s: %d scans of 100 before the end", name, n)
		}
	}
}

func FuzzFramer(f *testing.F) {
	f.Add(words(layouts["DI-1100, 4 items"], 60, 3), uint8(4), true, uint8(5))
	f.Add(words(layouts["DI-2108, 9 items"], 60, 0x7F)[1:], uint8(9), false, uint8(60))
	f.Add([]byte("stop 01\r"), uint8(1), true, uint8(0))
	f.Fuzz(func(t *testing.T, data []byte, items uint8, low bool, piece uint8) {
		l := Layout{Items: 1 + int(items)%maxItems, Low: low, Digital: !low && items%2 == 0}
		p, q := NewFramer(l), NewFramer(l)
		a, sa := framed(p, l, data, int(piece)+1)
		b, sb := framed(q, l, data, len(data)+1)
		if fmt.Sprint(a) != fmt.Sprint(b) || sa != sb || len(a)*2*l.Items+sa > len(data) {
			t.Fatalf("%d scans and %d bytes skipped in pieces, %d and %d at once, of %d bytes", len(a), sa, len(b), sb,
				len(data))
		}
	})
}

func drain(f *Framer, b []byte) (n int) {
	for {
		k, ok := f.Next(b)
		if b = b[k:]; !ok {
			return n
		}
		n++
	}
}

func TestFramerDoesNotAllocate(t *testing.T) {
	l := layouts["DI-2108, 9 items"]
	data, f := words(l, 500, 3), NewFramer(l)
	if n := testing.AllocsPerRun(10, func() { drain(f, data) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkFramer(b *testing.B) {
	for name, l := range layouts {
		b.Run(name, func(b *testing.B) {
			data, f := words(l, 1000, 3), NewFramer(l)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			n := 0
			for range b.N {
				n += drain(f, data)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "scans/s")
		})
	}
}
