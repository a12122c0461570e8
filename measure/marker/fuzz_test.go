package marker

import (
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"testing"

	"github.com/wattmark/wattmark/measure"
)

// FuzzDetector pushes arbitrary blocks, with jumps forth and back, into a
// detector of an arbitrary marker: it must neither panic nor report nonsense.
func FuzzDetector(f *testing.F) {
	f.Add(uint8(3), uint8(8), uint8(0), false, []byte("\x00\x01\x02\x03\xff\xfe\x80\x7f"))
	f.Add(uint8(1), uint8(40), uint8(10), true, []byte("block of work, another block, and so on and on"))
	f.Add(uint8(4), uint8(2), uint8(1), true, []byte{1, 1, 1, 1, 200, 200, 200, 200, 0, 0})
	levels, _, end := play([]level{{0, 50}}, fastSpec, Start, 0.1, 60, 160)
	var seed []byte
	for _, c := range fastSim.run(levels, end, newRand(1)).Counts[2] {
		seed = append(seed, byte(c>>4))
	}
	f.Add(uint8(3), uint8(20), uint8(0), false, seed)
	f.Fuzz(func(t *testing.T, code, samples, update uint8, stamped bool, data []byte) {
		rate := 1000.0
		s := sim{rate: rate, response: measure.Response{
			Update: measure.Seconds(update) * 1e-3, Window: measure.Seconds(update%7) * 1e-3,
		}}
		setup := s.setup()
		setup.Timebase.Stamped = stamped
		spec := Spec{Code: Code(code%4 + 1), Chip: measure.Seconds(float64(samples%64+1) / rate), Guard: 3, TagBits: int(update % 9)}
		d, err := NewDetector(spec, setup)
		if errors.Is(err, ErrSpec) {
			return // chips that the sensor cannot show
		}
		if err != nil {
			t.Fatal(err)
		}
		scan, tick := uint64(0), int64(0)
		for len(data) > 4 {
			head, n := binary.LittleEndian.Uint16(data), min(int(data[2])+1, len(data)-3)
			if head%5 == 0 {
				scan += uint64(head)
				tick += int64(int16(head)) * 1000
			}
			b := measure.Block{FirstScan: scan, FirstTick: tick, Counts: make([][]measure.Count, 3)}
			for i, x := range data[3 : 3+n] {
				for c := range b.Counts {
					b.Counts[c] = append(b.Counts[c], measure.Count(int8(x))<<(head%24))
				}
				if stamped {
					b.Ticks = append(b.Ticks, tick+int64(i)*1000+int64(x)*int64(head%9))
				}
			}
			if err := d.Push(&b); err != nil {
				t.Fatal(err)
			}
			scan, tick, data = scan+uint64(n), tick+int64(n)*1000, data[3+n:]
		}
		if err := d.Finish(); err != nil {
			t.Fatal(err)
		}
		for _, m := range d.Found() {
			if math.IsNaN(float64(m.T)) || !(m.U > 0) || !(m.Begin < m.T && m.T < m.End) || !(m.Step > 0) {
				t.Errorf("reported %+v", m)
			}
		}
	})
}

// TestMemoryIsFlat streams many times the length of a marker, work and markers
// alike, and looks at what is allocated.
func TestMemoryIsFlat(t *testing.T) {
	levels, _, until := mixed(fastSpec, []Kind{Start, Stop}, 70, 170)
	b := fastSim.run(levels, until, newRand(1))
	d, err := NewDetector(fastSpec, fastSim.setup())
	if err != nil {
		t.Fatal(err)
	}
	var n int
	d.OnFound(func(Found) { n++ })
	scans, ticks := uint64(b.Scans()), int64(float64(b.Scans())*d.setup.Timebase.TicksPerScan)
	push := func(times int) uint64 {
		for range times {
			if err := d.Push(&b); err != nil {
				t.Fatal(err)
			}
			b.FirstScan += scans
			b.FirstTick += ticks
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := push(5)
	after := push(100)
	if n < 200 {
		t.Errorf("found %d markers of 210", n)
	}
	// What was found is kept: some two hundred markers of thirty edges.
	if grown := int64(after) - int64(before); grown > 1<<20 {
		t.Errorf("grew by %d bytes over 100 captures", grown)
	}
}
