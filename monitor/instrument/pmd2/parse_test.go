package pmd2

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/measure"
)

// reply builds a reply with so many mV and mA on each sensor.
func reply(mV int16, mA int32) []byte {
	b := []byte{0xE4, 0x0C, 0x5E, 0x01}
	for range PMD2.Sensors {
		b = binary.LittleEndian.AppendUint16(b, uint16(mV))
		b = binary.LittleEndian.AppendUint32(b, uint32(mA))
		b = binary.LittleEndian.AppendUint32(b, uint32(int32(mV)*mA/1000))
	}
	return append(b, make([]byte, 8+len(PMD2.Sensors))...)
}

func TestParse(t *testing.T) {
	counts := make([]measure.Count, 2*len(PMD2.Sensors))
	for _, c := range []struct {
		mV int16
		mA int32
	}{{12_050, 31_400}, {0, 0}, {3_310, -250}, {-20, 5}} {
		if err := PMD2.Parse(reply(c.mV, c.mA), counts); err != nil {
			t.Fatal(err)
		}
		for s := range PMD2.Sensors {
			if counts[2*s] != measure.Count(c.mV) || counts[2*s+1] != measure.Count(c.mA) {
				t.Errorf("%+v: %v", c, counts)
			}
		}
	}
}

// Bytes that have slipped do not pass for a reading.
func TestParseRefusesWhatIsOutOfStep(t *testing.T) {
	counts := make([]measure.Count, 2*len(PMD2.Sensors))
	good := reply(12_050, 31_400)
	for shift := 1; shift < 2*PMD2.size; shift++ {
		slipped := slices.Concat(good[shift:], good[:shift])
		err := PMD2.Parse(slipped, counts)
		if shift%PMD2.size != 0 && (err == nil || !strings.Contains(err.Error(), "out of step")) {
			t.Errorf("%d bytes lost: %v", shift, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(reply(12_050, 31_400))
	f.Add(reply(-1, -1))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, m := range []*Model{PMD2, WireView} {
			b := make([]byte, m.ReplyBytes)
			copy(b, data)
			counts := make([]measure.Count, 2*len(m.Sensors))
			if err := m.Parse(b, counts); err != nil {
				continue
			}
			for i, c := range counts {
				if i%2 == 0 && abs(int64(c)) > mostMillivolts || abs(int64(c)) > mostMilliamperes {
					t.Errorf("channel %d: %d", i, c)
				}
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	data := reply(12_050, 31_400)
	counts := make([]measure.Count, 2*len(PMD2.Sensors))
	b.ReportAllocs()
	for range b.N {
		if err := PMD2.Parse(data, counts); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "scans/s")
}

func TestParseDoesNotAllocate(t *testing.T) {
	data := reply(12_050, 31_400)
	counts := make([]measure.Count, 2*len(PMD2.Sensors))
	if n := testing.AllocsPerRun(100, func() { _ = PMD2.Parse(data, counts) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
