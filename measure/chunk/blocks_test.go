package chunk

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"wattmark/measure"
)

func TestDecodeAll(t *testing.T) {
	setup := &measure.Setup{Timebase: stamped, Channels: make([]measure.Channel, 3)}
	b := randomBlock(rand.New(rand.NewPCG(4, 4)), stamped, 11, 1000, 3, 1200)
	bad := errors.New("disk")
	chunks := func(last error) func(func(*Chunk, error) bool) {
		return func(yield func(*Chunk, error) bool) {
			e, err := NewEncoder(stamped, 3, 500)
			if err != nil {
				t.Fatal(err)
			}
			for at := 0; at < b.Scans(); {
				rest := b.Slice(stamped, at, b.Scans())
				n, err := e.Append(&rest)
				if err != nil {
					t.Fatal(err)
				}
				at += n
				if !yield(e.Flush(0), nil) {
					return
				}
			}
			if last != nil {
				yield(nil, last)
			}
		}
	}
	var got []record
	for part, err := range DecodeAll(chunks(nil), setup) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, records(stamped, part)...)
	}
	if d := cmp.Diff(records(stamped, &b), got, cmp.AllowUnexported(record{})); d != "" {
		t.Error(d)
	}

	seen, failed := 0, error(nil)
	for part, err := range DecodeAll(chunks(bad), setup) {
		if failed = err; err == nil {
			seen += part.Scans()
		}
	}
	if seen != 1200 || !errors.Is(failed, bad) {
		t.Errorf("%d scans, then %v", seen, failed)
	}

	// Chunks of another setup are refused, once; a reader may leave early.
	other := &measure.Setup{Timebase: stamped, Channels: make([]measure.Channel, 2)}
	errs := 0
	for _, err := range DecodeAll(chunks(nil), other) {
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("a chunk of another setup: %v", err)
		}
		errs++
	}
	for range DecodeAll(chunks(nil), setup) {
		break
	}
	if errs != 1 {
		t.Errorf("%d errors, want one", errs)
	}
}
