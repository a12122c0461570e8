package serialtext

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/measure"
)

func TestPatterns(t *testing.T) {
	l, err := parsePattern("$P,{seq:u16},{t:ms}, {*};{aux.current:mA.3*0.5},{aux.voltage:V.2},{p:W}*{xor}", false)
	if err != nil {
		t.Fatal(err)
	}
	if l.tickHz != 1e3 || l.seqMod != 1<<16 || len(l.channels) != 3 {
		t.Errorf("%+v", l)
	}
	for i, gain := range []float64{0.5e-6, 1e-2, 1} {
		if g := l.channels[i].Gain; math.Abs(g/gain-1) > 1e-12 {
			t.Errorf("channel %d: gain %v, want %v", i, g, gain)
		}
	}
	for pattern, want := range map[string]string{
		"":                         "no channel",
		"{t:us}":                   "no channel",
		"{a:mA":                    "} is missing",
		"a}{a:mA}":                 "without its {",
		"{a:mA}{b:mV}":             "touch",
		"bin {a:A:i8}{xor:inner}":  "type",
		"{a:mA},{a:mV}":            "already",
		"{t:us},{t:ms},{a:A}":      "already",
		"{seq},{seq},{a:A}":        "already",
		"{t:h},{a:A}":              "us or ms",
		"{a:kA}":                   "unit",
		"{a:mA*0}":                 "factor",
		"{a:mA*1e999}":             "factor",
		"{9:mA}":                   "no name",
		"{a b:mA}":                 "no name",
		"{a}":                      "want {NAME:UNIT}",
		"{seq:i16},{a:A}":          "u8, u16 or u32",
		"{a:mA.1:i16}":             "want {NAME:UNIT}",
		"bin {a:mA}":               "type",
		"bin {a:mA.1:i16}":         "no decimals",
		"bin {a:mA:u32}":           "at most i32",
		"bin {t:us:u16} {a:mA:i8}": "u32",
		"bin {a:mA:i16}, {b:V:u8}": "between",
	} {
		text, bin := strings.CutPrefix(pattern, "bin ")
		if _, err := parsePattern(text, bin); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", pattern, err, want)
		}
	}
}

// lines parses text in pieces of a size.
func lines(p Parser, text []byte, piece int) (out [][]measure.Count, bad uint64) {
	for len(text) > 0 {
		k := min(piece, len(text))
		for part := text[:k]; ; {
			n, ok := p.Next(part)
			part = part[n:]
			lines, skipped := p.Unread()
			bad += lines + skipped
			if !ok {
				break
			}
			out = append(out, append([]measure.Count{measure.Count(p.current().stamp), measure.Count(p.current().seq)},
				p.current().counts...))
		}
		text = text[k:]
	}
	return out, bad
}

func TestLines(t *testing.T) {
	l, err := parsePattern("{seq},{t:us},{a:mA.2},{b:V}", false)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"1,20,3.25,-4\n":          "[[20 1 325 -4]] 0",
		"1,20,3.2,-4\r\n":         "[[20 1 320 -4]] 0",
		"1, 20,  -3.00000,+4 \n":  "[[20 1 -300 4]] 0",
		"1,20,-0.05,0\n":          "[[20 1 -5 0]] 0",
		"# comment\n\n  \n":       "[] 0",
		"1,20,3.255,4\n":          "[] 1", // never rounded
		"1,20,3,4.5\n":            "[] 1",
		"1,20,3,4,5\n":            "[] 1",
		"1,20,3,\n":               "[] 1",
		"1,20,.5,4\n":             "[] 1",
		"1,20,1e3,4\n":            "[] 1",
		"-1,20,1,4\n":             "[] 1",
		"4294967296,20,1,4\n":     "[] 1",
		"1,20,99999999999,4\n":    "[] 1",
		"1,20,22000000,4\n":       "[] 1", // 2.2e9 counts
		"1,20,3,4":                "[] 0", // no end yet
		"1,20\xff,3,4\n5,6,7,8\n": "[[6 5 700 8]] 1",
	} {
		for _, piece := range []int{1, 3, 1000} {
			got, bad := lines(newLineParser(l, "#"), []byte("ut off,9\n"+text), piece)
			if g := fmt.Sprint(got, " ", bad); g != want {
				t.Errorf("%q in pieces of %d: %s, want %s", text, piece, g, want)
			}
		}
	}
	long := strings.Repeat("9", 3000) + "\n1,2,3,4\n"
	if got, bad := lines(newLineParser(l, "#"), []byte("\n"+long), 100); len(got) != 1 || bad != 1 {
		t.Errorf("after a long line: %v, %d bad", got, bad)
	}
}

func TestCheckSums(t *testing.T) {
	for _, c := range []struct{ pattern, body, summed string }{
		{"{a:mA},{b:mV}*{xor}", "12,34*", "12,34*"},
		{"$P,{a:mA},{b:mV}*{xor:inner}", "$P,12,34*", "P,12,34"},
		{">{a:mA};{b:mV}#{xor:inner}", ">12;34#", "12;34"},
	} {
		l, err := parsePattern(c.pattern, false)
		if err != nil {
			t.Fatal(err)
		}
		sum := xor([]byte(c.summed))
		good := fmt.Sprintf("\n%s%02X\n%[1]s%02[2]x\n", c.body, sum)
		if got, bad := lines(newLineParser(l, "#"), []byte(good), 5); len(got) != 2 || bad != 0 {
			t.Errorf("%s: %v, %d bad", c.pattern, got, bad)
		}
		for i := 1; i < len(c.body)+2; i++ { // one flipped bit anywhere is seen
			spoilt := []byte(good)
			spoilt[i] ^= 2
			if got, bad := lines(newLineParser(l, "#"), spoilt, 100); len(got) != 1 || bad != 1 {
				t.Errorf("%q: %v, %d bad", spoilt, got, bad)
			}
		}
	}
	l, err := parsePattern("#{xor:inner},{a:A}", false) // one mark before it, not two
	if got, bad := lines(newLineParser(l, ""), []byte("\n#00,1\n"), 5); err != nil || len(got) != 0 || bad != 1 {
		t.Errorf("one mark: %v, %v, %d bad", err, got, bad)
	}
	if c := crc16([]byte("123456789")); c != 0x29B1 { // the catalogue's check value
		t.Errorf("crc16: %04x", c)
	}
}

func frameLayout(t testing.TB) layout {
	l, err := parsePattern("{seq:u8} {t:us:u32} {a:mA:i16} {b:mV:u16} {c:W:i32} {d:W:i8}", true)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// frames builds frames for frameLayout.
func frames(order binary.ByteOrder, check string, n int) (b []byte) {
	for i := range n {
		b = append(b, 0xAA, 0x55)
		body := make([]byte, 14)
		body[0] = byte(i)
		order.PutUint32(body[1:], uint32(1000*i))
		order.PutUint16(body[5:], uint16(0x10000-i))
		order.PutUint16(body[7:], 0xFFF0)
		order.PutUint32(body[9:], 0xFFFFFFFF)
		body[13] = 0x80
		b = append(b, body...)
		switch check {
		case "crc16":
			s := make([]byte, 2)
			order.PutUint16(s, crc16(body))
			b = append(b, s...)
		case "xor8":
			b = append(b, xor(body))
		case "sum8":
			s := byte(0)
			for _, c := range body {
				s += c
			}
			b = append(b, s)
		}
	}
	return b
}

func TestFrames(t *testing.T) {
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		for check := range checkBytes {
			data := append([]byte("noise\xAA"), frames(order, check, 50)...)
			for _, piece := range []int{1, 7, 5000} {
				got, _ := lines(newFrameParser(frameLayout(t), []byte{0xAA, 0x55}, order, check), data, piece)
				want := 50
				if check == "none" {
					want = 49 // the last waits for a header
				}
				if len(got) != want || fmt.Sprint(got[7]) != "[7000 7 -7 65520 -1 -128]" {
					t.Errorf("%v, %s, pieces of %d: %d frames, %v", order, check, piece, len(got), got[7])
				}
			}
			// A byte lost within frame 20 costs that frame and no other.
			size := len(data[6:]) / 50
			cut := append(append([]byte{}, data[:6+20*size+5]...), data[6+20*size+6:]...)
			got, bad := lines(newFrameParser(frameLayout(t), []byte{0xAA, 0x55}, order, check), cut, 100)
			if len(got) < 48 || got[19][1] != 19 || got[20][1] != 21 || bad != uint64(6+size-1) {
				t.Errorf("%v, %s: %d frames, %d bytes skipped", order, check, len(got), bad)
			}
		}
	}
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("\n1,20,3.25,-4\n2,30,1,1\n"), uint8(3))
	f.Add([]byte("#\r\n-,,,,\n"), uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, piece uint8) {
		l, _ := parsePattern("{seq},{t:us},{a:mA.2},{b:V}", false)
		a, abad := lines(newLineParser(l, "#"), data, int(piece)+1)
		b, bbad := lines(newLineParser(l, "#"), data, len(data)+1)
		if fmt.Sprint(a, abad) != fmt.Sprint(b, bbad) {
			t.Fatalf("%v %d in pieces, %v %d at once", a, abad, b, bbad)
		}
		if len(a) > len(data)/8 {
			t.Fatalf("%d lines of %d bytes", len(a), len(data))
		}
	})
}

func FuzzFrames(f *testing.F) {
	f.Add(frames(binary.LittleEndian, "none", 4), uint8(3))
	f.Add(frames(binary.LittleEndian, "crc16", 4)[3:], uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, piece uint8) {
		for check := range checkBytes {
			l := frameLayout(t)
			a, abad := lines(newFrameParser(l, []byte{0xAA, 0x55}, binary.LittleEndian, check), data, int(piece)+1)
			b, bbad := lines(newFrameParser(l, []byte{0xAA, 0x55}, binary.LittleEndian, check), data, len(data)+1)
			if fmt.Sprint(a, abad) != fmt.Sprint(b, bbad) || len(a) > len(data)/16 {
				t.Fatalf("%v %d in pieces, %v %d at once", a, abad, b, bbad)
			}
		}
	})
}

func FuzzPattern(f *testing.F) {
	f.Add("{seq},{t:us},{aux.current:mA.1},{aux.voltage:mV}*{xor}", false)
	f.Add("$P,{seq},{a:mA}*{xor:inner}", false)
	f.Add("{seq:u8} {a:mA*0.1:i16}", true)
	f.Fuzz(func(t *testing.T, pattern string, binary bool) {
		l, err := parsePattern(pattern, binary)
		if err != nil {
			return
		}
		for _, c := range l.channels {
			if err := c.Validate(); err != nil {
				t.Errorf("%q: %v", pattern, err)
			}
		}
	})
}

func TestParsersDoNotAllocate(t *testing.T) {
	l, _ := parsePattern("{seq},{t:us},{a:mA.2},{b:V}", false)
	text := []byte(strings.Repeat("1,20,3.25,-4\n", 100))
	p := newLineParser(l, "#")
	frame := newFrameParser(frameLayout(t), []byte{0xAA, 0x55}, binary.LittleEndian, "crc16")
	data := frames(binary.LittleEndian, "crc16", 100)
	for name, run := range map[string]func(){
		"lines":  func() { drain(p, text) },
		"frames": func() { drain(frame, data) },
	} {
		if n := testing.AllocsPerRun(10, run); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func drain(p Parser, b []byte) (n int) {
	for {
		k, ok := p.Next(b)
		if b = b[k:]; !ok {
			return n
		}
		n++
	}
}

func BenchmarkLines(b *testing.B) {
	l, _ := parsePattern("{seq},{t:us},{a:mA.2},{b:V}", false)
	p := newLineParser(l, "#")
	text := []byte(strings.Repeat("1000,200000,3012.25,12041\n", 1000))
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for range b.N {
		drain(p, text)
	}
	b.ReportMetric(1000*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
}

func BenchmarkFrames(b *testing.B) {
	p := newFrameParser(frameLayout(b), []byte{0xAA, 0x55}, binary.LittleEndian, "crc16")
	data := frames(binary.LittleEndian, "crc16", 1000)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for range b.N {
		drain(p, data)
	}
}
