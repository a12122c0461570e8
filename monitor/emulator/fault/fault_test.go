package fault

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// tape keeps what is written, and the size of each write.
type tape struct {
	bytes.Buffer
	sizes  []int
	closed bool
}

func (t *tape) Write(p []byte) (int, error) {
	if t.closed {
		return 0, io.ErrClosedPipe
	}
	t.sizes = append(t.sizes, len(p))
	return t.Buffer.Write(p)
}

func (t *tape) Close() error { t.closed = true; return nil }

func TestScriptedFaultsHitTheirBytes(t *testing.T) {
	for name, c := range map[string]struct {
		script []Fault
		want   string
	}{
		"none":             {nil, "abcdefghij"},
		"drop":             {[]Fault{{Kind: Drop, At: 3, Bytes: 2}}, "abcfghij"},
		"drop one":         {[]Fault{{Kind: Drop, At: 0}}, "bcdefghij"},
		"duplicate":        {[]Fault{{Kind: Duplicate, At: 4, Bytes: 2}}, "abcdefefghij"},
		"two, given later": {[]Fault{{Kind: Drop, At: 8, Bytes: 1}, {Kind: Duplicate, At: 1, Bytes: 1}}, "abbcdefghj"},
	} {
		for _, write := range []int{1, 3, 10} {
			var tp tape
			l := New(&tp, Faults{Script: c.script})
			for in := []byte("abcdefghij"); len(in) > 0; {
				n := min(write, len(in))
				if k, err := l.Write(in[:n]); k != n || err != nil {
					t.Fatalf("%s: wrote %d of %d: %v", name, k, n, err)
				}
				in = in[n:]
			}
			// A fault does not reach beyond one write, so only whole writes compare.
			if write == 10 || len(c.script) == 0 {
				if d := cmp.Diff(c.want, tp.String()); d != "" {
					t.Errorf("%s (-want +got):\n%s", name, d)
				}
			}
		}
	}
}

func TestCorruptFlipsOneBit(t *testing.T) {
	var tp tape
	l := New(&tp, Faults{Script: []Fault{{Kind: Corrupt, At: 5, Bytes: 3}}})
	if _, err := l.Write(make([]byte, 20)); err != nil {
		t.Fatal(err)
	}
	for i, b := range tp.Bytes() {
		hit := i >= 5 && i < 8
		if (b != 0) != hit || (hit && b&(b-1) != 0) {
			t.Errorf("byte %d is %08b", i, b)
		}
	}
}

func TestChancesAreDeterministicAndOfTheirSize(t *testing.T) {
	run := func(seed uint64) ([]byte, Counts) {
		var tp tape
		l := New(&tp, Faults{Seed: seed, Drop: 0.01, Duplicate: 0.02, Corrupt: 0.03, After: 1000, Fragment: 7})
		for range 100 {
			if _, err := l.Write(make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range tp.sizes {
			if n > 7 {
				t.Fatalf("a fragment of %d bytes", n)
			}
		}
		return tp.Bytes(), l.Counts()
	}
	a, ca := run(1)
	b, cb := run(1)
	c, _ := run(2)
	if !bytes.Equal(a, b) || ca != cb {
		t.Error("the same seed spoils other bytes")
	}
	if bytes.Equal(a, c) {
		t.Error("another seed spoils the same bytes")
	}
	if !bytes.Equal(a[:1000], make([]byte, 1000)) {
		t.Error("the greeting is spoilt")
	}
	near := func(what string, got int64, want float64) {
		if float64(got) < 0.85*want || float64(got) > 1.15*want {
			t.Errorf("%s: %d bytes of 100000, want about %.0f", what, got, want)
		}
	}
	near("dropped", ca.Dropped, 990)
	near("duplicated", ca.Duplicated, 1980)
	near("corrupted", ca.Corrupted, 2970)
	if want := ca.Sent - ca.Dropped + ca.Duplicated; int64(len(a)) != want {
		t.Errorf("%d bytes came, the counts say %d", len(a), want)
	}
}

func TestStallWaitsAndAPulledCableEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tp tape
		l := New(&tp, Faults{})
		l.Trigger(Fault{Kind: Stall, For: 3 * time.Second})
		begin := time.Now()
		if _, err := l.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begin); d != 3*time.Second {
			t.Errorf("stalled for %v", d)
		}
		l.Trigger(Fault{Kind: Stall, For: time.Hour})
		time.AfterFunc(time.Second, func() { _ = l.Close() })
		if _, err := l.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("a stalled write on a pulled cable: %v", err)
		}
	})
}

func TestUnplug(t *testing.T) {
	var tp tape
	l := New(&tp, Faults{Script: []Fault{{Kind: Unplug, At: 4}}})
	n, err := l.Write([]byte("abcdefgh"))
	if n != 4 || !errors.Is(err, ErrUnplugged) || !tp.closed || tp.String() != "abcd" {
		t.Errorf("wrote %d, %v, closed %v, sent %q", n, err, tp.closed, tp.String())
	}
}
