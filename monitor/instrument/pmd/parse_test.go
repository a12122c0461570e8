package pmd

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// put appends a record as the device sends it.
func put(b []byte, r Record) []byte {
	b = binary.LittleEndian.AppendUint16(b, r.Stamp)
	for _, c := range r.Counts {
		b = binary.LittleEndian.AppendUint16(b, uint16(c)<<4)
	}
	return b
}

// records makes n records of a device under load, with the steps of the public
// captures.
func records(n int) (rs []Record, b []byte) {
	rng := rand.New(rand.NewPCG(5, 6))
	t := uint16(60_000)
	for range n {
		r := Record{Stamp: t, Counts: [8]int16{1600, 123, 1601, 263, 1594, 67, 1599, -2}}
		for c := range r.Counts {
			r.Counts[c] += int16(rng.IntN(7)) - 3
		}
		rs, b = append(rs, r), put(b, r)
		t += uint16(600 + rng.IntN(5))
		if rng.IntN(10) == 0 {
			t += uint16(rng.IntN(400))
		}
	}
	return rs, b
}

func parseAll(p *Parser, pieces ...[]byte) (out []Record) {
	for _, b := range pieces {
		for {
			n, ok := p.Next(b)
			b = b[n:]
			if !ok {
				break
			}
			out = append(out, p.Record)
		}
	}
	if p.Flush() {
		out = append(out, p.Record)
	}
	return out
}

func TestFragmentsAtEveryByte(t *testing.T) {
	want, b := records(20)
	for cut := range len(b) + 1 {
		var p Parser
		if d := cmp.Diff(want, parseAll(&p, b[:cut], b[cut:])); d != "" || p.Skipped != 0 {
			t.Fatalf("cut at %d: skipped %d\n%s", cut, p.Skipped, d)
		}
	}
	var p Parser
	pieces := [][]byte{}
	for i := range b {
		pieces = append(pieces, b[i:i+1])
	}
	if d := cmp.Diff(want, parseAll(&p, pieces...)); d != "" {
		t.Errorf("byte by byte:\n%s", d)
	}
}

func TestBeginsInTheMiddleOfARecord(t *testing.T) {
	want, b := records(20)
	for from := range 3 * RecordBytes {
		var p Parser
		first := (from + RecordBytes - 1) / RecordBytes
		if d := cmp.Diff(want[first:], parseAll(&p, b[from:])); d != "" {
			t.Errorf("from byte %d:\n%s", from, d)
		}
	}
}

// check tells whether got are records of want, in order and unharmed, and how
// many are missing. A loss inside a stamp can leave its low byte wrong by what no
// reader can tell from the device's own jitter: up to 255 ticks, 87 µs.
func check(want, got []Record) (missing int, whole bool) {
	i := 0
	for _, g := range got {
		j := slices.IndexFunc(want[i:], func(w Record) bool {
			d := int16(w.Stamp - g.Stamp)
			return w.Counts == g.Counts && d > -256 && d < 256
		})
		if j < 0 {
			return 0, false
		}
		i += j + 1
	}
	return len(want) - len(got), true
}

// Bytes lost or doubled anywhere cost two records at most, and never yield one
// that the device did not send.
func TestBytesLostAndDoubled(t *testing.T) {
	want, b := records(30)
	for i := 5 * RecordBytes; i < 20*RecordBytes; i++ {
		for _, n := range []int{1, 2, 3, 17, 18, 19, 36, 40} {
			var p Parser
			missing, whole := check(want, parseAll(&p, b[:i], b[i+n:]))
			if !whole || missing > 2+(n+RecordBytes-1)/RecordBytes {
				t.Errorf("%d bytes lost at %d: %d records missing, whole %v", n, i, missing, whole)
			}
			if n >= RecordBytes {
				continue
			}
			var q Parser
			missing, whole = check(want, parseAll(&q, b[:i+n], b[i:]))
			if !whole || missing > 2 {
				t.Errorf("%d bytes doubled at %d: %d records missing, whole %v", n, i, missing, whole)
			}
		}
	}
}

func TestBadNibbleCostsOneRecord(t *testing.T) {
	want, b := records(30)
	b[10*RecordBytes+4] |= 1
	var p Parser
	got := parseAll(&p, b)
	if missing, whole := check(want, got); missing != 1 || !whole || p.Skipped != RecordBytes {
		t.Errorf("%d missing, whole %v, %d bytes skipped", missing, whole, p.Skipped)
	}
}

func FuzzParser(f *testing.F) {
	_, b := records(12)
	f.Add(b, 31)
	f.Add(b[7:], 3)
	f.Add(append(append([]byte{}, b[:100]...), b[101:]...), 60)
	f.Add(bytes.Repeat([]byte{0}, 100), 1)
	f.Add([]byte{}, 0)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		if len(b) > 0 {
			cut = (cut%len(b) + len(b)) % len(b)
		} else {
			cut = 0
		}
		var whole, parts Parser
		want, got := parseAll(&whole, b), parseAll(&parts, b[:cut], b[cut:])
		if d := cmp.Diff(want, got); d != "" || whole.Skipped != parts.Skipped {
			t.Errorf("cut at %d of %d: %s", cut, len(b), d)
		}
		if len(want)*RecordBytes > len(b) {
			t.Errorf("%d records of %d bytes", len(want), len(b))
		}
	})
}

func BenchmarkParser(b *testing.B) {
	_, data := records(10_000)
	var p Parser
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		rest := data
		for {
			n, ok := p.Next(rest)
			rest = rest[n:]
			if !ok {
				break
			}
		}
	}
}

// A line that fell silent behind a record gives it up, once; one that fell
// silent within a record does not: what is there may be a loss.
func TestRestsBehindAWholeRecord(t *testing.T) {
	want, b := records(30)
	for tail := range RecordBytes {
		var p Parser
		var got []Record
		for rest := b[:20*RecordBytes+tail]; ; {
			n, ok := p.Next(rest)
			if rest = rest[n:]; !ok {
				break
			}
			got = append(got, p.Record)
		}
		released := p.Rest()
		if released != (tail == 0) {
			t.Errorf("silent %d bytes into a record: released %v", tail, released)
		}
		if released {
			got = append(got, p.Record)
		}
		if p.Rest() {
			t.Error("released twice")
		}
		got = append(got, parseAll(&p, b[20*RecordBytes+tail:])...)
		if d := cmp.Diff(want, got); d != "" || p.Skipped != 0 {
			t.Errorf("silent %d bytes into a record: skipped %d\n%s", tail, p.Skipped, d)
		}
	}
}
