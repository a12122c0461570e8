package siglent

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/wattmark/wattmark/monitor/scpi"
)

// put writes a descriptor's fields where the programming guide has them.
func put(words bool, points int32, volts, offset, codes float32, bits uint16, interval float32, probe float32) []byte {
	b := make([]byte, 346)
	copy(b, "WAVEDESC")
	copy(b[16:], "WAVEACE")
	le := binary.LittleEndian
	if words {
		le.PutUint16(b[32:], 1)
	}
	le.PutUint32(b[36:], 346)
	le.PutUint32(b[116:], uint32(points))
	for at, v := range map[int]float32{156: volts, 160: offset, 164: codes, 176: interval, 328: probe} {
		le.PutUint32(b[at:], math.Float32bits(v))
	}
	le.PutUint16(b[172:], bits)
	le.PutUint64(b[180:], math.Float64bits(2.5))
	return b
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*math.Abs(b) }

func TestDescriptors(t *testing.T) {
	for name, c := range map[string]struct {
		b           []byte
		gain, volts float64
		bits        int
	}{
		"bytes of a 2000X Plus":         {put(false, 1000, 0.5, -12, 30, 8, 1e-6, 1), 0.5 / 30, 0.5, 8},
		"bytes, codes stated for words": {put(false, 1000, 0.5, -12, 7680, 8, 1e-6, 1), 0.5 / 30, 0.5, 8},
		"bytes of a 12-bit scope":       {put(false, 1000, 0.5, -12, 30, 12, 1e-6, 1), 0.5 / 30, 0.5, 8},
		"words, bits at the top":        {put(true, 1000, 0.05, 0.1, 7680, 12, 1e-6, 10), 0.5 / 7680, 0.5, 16},
		"words, bits at the bottom":     {put(true, 1000, 0.5, 0, 480, 12, 1e-6, 1), 0.5 / 480, 0.5, 12},
		"6000A, 10.6 codes a division":  {put(false, 1000, 0.5, 0, 10.625, 8, 1e-6, 1), 0.5 / 10.625, 0.5, 8},
	} {
		d, err := parseDescriptor(c.b)
		if err != nil || !near(d.gain(), c.gain) || !near(d.volts, c.volts) || d.bits != c.bits || d.points != 1000 ||
			!near(d.seconds, 1e-6) {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
	d, _ := parseDescriptor(put(true, 1000, 0.05, -1.2, 7680, 12, 1e-6, 10))
	if !near(d.offset, -12) || d.size != 2 {
		t.Errorf("%+v", d)
	}
}

func TestRefusedDescriptors(t *testing.T) {
	good := func() []byte { return put(false, 1000, 0.5, -12, 30, 8, 1e-6, 1) }
	spoil := func(at int, v float32) []byte {
		b := good()
		binary.LittleEndian.PutUint32(b[at:], math.Float32bits(v))
		return b
	}
	nan := float32(math.NaN())
	other := good()
	other[0] = 'X'
	length := good()
	length[36] = 1
	for name, b := range map[string][]byte{
		"short": good()[:345], "long": append(good(), '\n'), "empty": nil, "no name": other, "another length": length,
		"no volts": spoil(156, 0), "volts NaN": spoil(156, nan), "negative interval": spoil(176, -1),
		"no codes":       spoil(164, 0),
		"endless offset": spoil(160, float32(math.Inf(1))), "no probe": spoil(328, 0),
		"codes beyond all": spoil(164, 1e9),
		"no bits":          put(false, 1, 1, 0, 30, 0, 1, 1), "negative points": put(false, -1, 1, 0, 30, 8, 1, 1),
		"words of more codes than they have": put(true, 1, 1, 0, 20000, 12, 1, 1),
	} {
		if d, err := parseDescriptor(b); !errors.Is(err, scpi.ErrReply) {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
}

func FuzzDescriptor(f *testing.F) {
	f.Add(put(false, 1000, 0.5, -12, 30, 8, 1e-6, 1))
	f.Add(put(true, 10_000_000, 0.05, 0, 7680, 12, 2e-9, 10))
	f.Add(put(true, 0, 0.05, 0, 480, 10, 2e-9, 0.1))
	f.Add([]byte("WAVEDESC"))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := parseDescriptor(b)
		if err != nil {
			return
		}
		// What is accepted scales: every code gives a finite voltage, and the codes
		// fit into what is sent.
		top := math.Ldexp(1, d.bits-1)
		if v := top*d.gain() - d.offset; math.IsNaN(v) || math.IsInf(v, 0) || d.gain() <= 0 {
			t.Errorf("%+v", d)
		}
		if d.bits > 8*d.size || d.points < 0 || !(d.seconds > 0) || d.codes*narrowest > 2*top {
			t.Errorf("%+v", d)
		}
	})
}
