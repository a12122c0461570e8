package labjack

import (
	"encoding/binary"
	"fmt"
	"testing"
)

// packets builds n packets of as many samples.
func packets(n, samples int) (b []byte) {
	for i := range n {
		b = binary.BigEndian.AppendUint16(b, uint16(i))
		b = append(b, 0, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(lengthRest+2*samples))
		b = append(b, 1, 76, 16, 0, 0, 7)
		b = binary.BigEndian.AppendUint16(b, uint16(i))
		b = append(b, 0, 9)
		for k := range samples {
			b = binary.BigEndian.AppendUint16(b, uint16(256*i+k))
		}
	}
	return b
}

func parsed(p *Parser, b []byte, piece int) (out []string) {
	take := func() {
		out = append(out, fmt.Sprintf("%d %d %d %x", p.Packet.Backlog, p.Packet.Status, p.Packet.Extra, p.Packet.Data))
	}
	for len(b) > 0 && !p.Broken {
		k := min(piece, len(b))
		for part := b[:k]; ; {
			n, ok := p.Next(part)
			part = part[n:]
			if !ok {
				break
			}
			take()
		}
		b = b[k:]
	}
	for p.Rest() {
		take()
	}
	return out
}

func TestParser(t *testing.T) {
	for _, samples := range []int{1, 6, maxSamples} {
		data := packets(20, samples)
		for _, piece := range []int{1, 11, 1 << 20} {
			var p Parser
			got := parsed(&p, data, piece)
			if len(got) != 20 || p.Broken || got[3][:5] != "7 3 9" {
				t.Fatalf("%d samples in pieces of %d: %d packets", samples, piece, len(got))
			}
		}
		// A lost, added or changed byte of a header ends it; nothing false comes out.
		size := len(data) / 20
		for name, spoilt := range map[string][]byte{
			"lost":  append(append([]byte{}, data[:5*size+17]...), data[5*size+18:]...),
			"added": append(append([]byte{}, data[:5*size+17]...), data[5*size+16:]...),
		} {
			var p Parser
			got := parsed(&p, spoilt, 100)
			if !p.Broken || len(got) != 5 {
				t.Errorf("a byte %s: %d packets, broken %v", name, len(got), p.Broken)
			}
		}
	}
}

func FuzzParser(f *testing.F) {
	f.Add(packets(4, 3), uint8(5))
	f.Add(packets(4, 0), uint8(1))
	f.Add(packets(2, 512)[2:], uint8(0))
	f.Fuzz(func(t *testing.T, data []byte, piece uint8) {
		var p, q Parser
		a, b := parsed(&p, data, int(piece)+1), parsed(&q, data, len(data)+1)
		if fmt.Sprint(a) != fmt.Sprint(b) || p.Broken != q.Broken || len(a) > len(data)/headerBytes {
			t.Fatalf("%v in pieces, %v at once", a, b)
		}
	})
}

func TestParserDoesNotAllocate(t *testing.T) {
	data := packets(50, 120)
	var p Parser
	if n := testing.AllocsPerRun(10, func() { drain(&p, data) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func drain(p *Parser, b []byte) {
	for {
		n, ok := p.Next(b)
		if b = b[n:]; !ok {
			return
		}
	}
}

func BenchmarkParser(b *testing.B) {
	data := packets(100, 500)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	var p Parser
	for range b.N {
		drain(&p, data)
	}
	b.ReportMetric(float64(b.N)*100*500/b.Elapsed().Seconds(), "samples/s")
	if p.Broken {
		b.Error("out of step")
	}
}
