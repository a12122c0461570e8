package composite

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"wattmark/measure"
)

func TestSpoolKeepsWhatItGot(t *testing.T) {
	s, err := newSpool(2)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	want := []packet{
		{block: measure.Block{FirstTick: 0, Counts: [][]measure.Count{{1, -2, 3}, {4, 5, -2147483648}}}, at: time.Unix(5, 7)},
		{event: &measure.Event{Kind: measure.EventGap, FirstScan: 3, Scans: 4, Exact: true, Channel: -1, Detail: "lost"}},
		{block: measure.Block{FirstScan: 7, FirstTick: 1 << 40, Ticks: []int64{1 << 40, 1<<40 + 9}, Counts: [][]measure.Count{{1, 2}, {3, 4}}}, at: time.Unix(6, 0)},
	}
	for i := range want {
		if err := s.write(&want[i]); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // it can be read again
		if err := s.rewind(); err != nil {
			t.Fatal(err)
		}
		for i, w := range want {
			var got packet
			if err := s.next(&got); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(w.block, got.block); (w.event == nil && d != "") || !cmp.Equal(w.event, got.event) || (w.event == nil && !got.at.Equal(w.at)) {
				t.Errorf("record %d: %+v\n%s", i, got.event, d)
			}
		}
		if err := s.next(&packet{}); !errors.Is(err, io.EOF) {
			t.Errorf("behind the last: %v", err)
		}
	}
}

// A file that something else wrote into is told of, and makes nobody panic.
func FuzzSpool(f *testing.F) {
	f.Add([]byte{recordBlock, 0, 0})
	f.Add([]byte{recordEvent, 2, 0, 0, 0, '{', '}'})
	f.Add(append([]byte{recordBlock}, make([]byte, 60)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := newSpool(2)
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		if _, err := s.file.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := s.rewind(); err != nil {
			t.Fatal(err)
		}
		for {
			var p packet
			err := s.next(&p)
			if errors.Is(err, io.EOF) && !errors.Is(err, errRecord) {
				return
			}
			if err != nil {
				if !errors.Is(err, errRecord) {
					t.Errorf("%v", err)
				}
				return
			}
			if p.event == nil && (p.block.Scans() == 0 || p.block.Scans() > len(data)) {
				t.Errorf("%d scans of %d bytes", p.block.Scans(), len(data))
			}
		}
	})
}
