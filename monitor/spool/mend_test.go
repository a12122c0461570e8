package spool

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
)

// piece is one record of a log in a file: where it lies, and the scans that are lost
// when it is damaged.
type piece struct {
	begin, end int
	lost       [2]uint64
}

// gapped writes a log of five chunks with a gap between them, and returns its file and
// its records.
func gapped(t *testing.T, dir string, final bool) (*Store, []byte, []piece) {
	t.Helper()
	s := openStore(t, dir, Options{SyncEvery: time.Hour})
	l, err := s.Create(testHeader("c1"))
	must(t, err)
	must(t, l.State(State{State: 2, Trigger: 2, At: time.Unix(5, 0).UTC()}))
	const n = 9
	for no := range uint64(5) {
		c := testChunk(t, no, n)
		c.FirstScan += 7 * (no / 2)
		if no == 2 || no == 4 {
			must(t, l.Event(measure.Event{Kind: measure.EventGap, FirstScan: c.FirstScan - 7, Scans: 7, Exact: true, Channel: -1}))
		}
		must(t, l.Chunk(c))
	}
	must(t, l.Marker(marker.Found{Kind: marker.Start, T: 1.5}))
	must(t, l.Event(measure.Event{Kind: measure.EventNote, FirstScan: 59, Channel: -1, Detail: "nothing"}))
	must(t, l.State(State{State: 5, Final: final}))
	must(t, l.Close())
	whole, err := os.ReadFile(l.path())
	must(t, err)
	var pieces []piece
	for rest := whole; len(rest) > 0; {
		f, body, tail, err := ParseRecord(rest)
		must(t, err)
		p := piece{begin: len(whole) - len(rest), end: len(whole) - len(tail)}
		var e measure.Event
		switch f.Type {
		case RecordChunk:
			h := parseChunkHead(body)
			p.lost = [2]uint64{h.FirstScan, uint64(h.Scans)}
		case RecordEvent:
			must(t, json.Unmarshal(body, &e))
			p.lost = [2]uint64{e.FirstScan, e.Scans}
		}
		pieces, rest = append(pieces, p), tail
	}
	pieces[7].lost[1] = 0 // of the last chunk nothing tells how far it went
	return s, whole, pieces
}

// record is what a log has in a place.
type record struct {
	t     RecordType
	body  string
	event measure.Event
}

func records(t *testing.T, l *Log) (out []record) {
	t.Helper()
	r, err := l.NewReader()
	must(t, err)
	defer r.Close()
	var buf []byte
	for l.Size() > r.at {
		rec, err := r.whole(&buf)
		must(t, err)
		x := record{t: rec.Type, body: string(buf)}
		if rec.Type == RecordEvent {
			x.event, err = r.Event(rec)
			must(t, err)
		}
		out = append(out, x)
	}
	return out
}

// TestEveryFlippedBit damages each bit of a log that was not ended: every other record
// is there as it was, and in place of the damaged one stands which scans are lost.
func TestEveryFlippedBit(t *testing.T) {
	dir := memoryDir(t)
	s, whole, pieces := gapped(t, dir, false)
	path := filepath.Join(dir, "c1", logName)
	l := newLog(filepath.Join(dir, "c1"), testHeader("c1"), s.opt, int64(len(whole)))
	good := records(t, l)
	at := 0
	for n := range 8 * len(whole) {
		if n/8 >= pieces[at].end {
			at++
		}
		bad := bytes.Clone(whole)
		bad[n/8] ^= 1 << (n % 8)
		must(t, os.WriteFile(path, bad, 0o644))
		v, err := l.survey(false)
		must(t, err)
		last := at == len(pieces)-1
		if want := whole[:pieces[at].begin]; last {
			if len(v.holes) != 0 || v.good != int64(len(want)) || v.why == nil {
				t.Fatalf("bit %d of the last record: %+v", n, v)
			}
			continue
		}
		lost := pieces[at].lost
		if len(v.holes) != 1 || v.good != int64(len(whole)) || v.holes[0].at != int64(pieces[at].begin) ||
			v.holes[0].size != int64(pieces[at].end-pieces[at].begin) || v.holes[0].loss.Lost[1] != lost[1] ||
			lost[1] > 0 && v.holes[0].loss.Lost[0] != lost[0] {
			t.Fatalf("bit %d, record %d (%+v): %+v, %v", n, at, pieces[at], v, v.holes)
		}
		if n%61 != 0 {
			continue // writing and reading it again takes its time
		}
		checkMended(t, s, dir, good, at, bad[pieces[at].begin:pieces[at].end], lost[1])
	}
}

func checkMended(t *testing.T, s *Store, dir string, good []record, at int, damaged []byte, lost uint64) {
	t.Helper()
	f, err := s.open(filepath.Join(dir, "c1"))
	if err != nil || f.Holes != 1 || f.Torn != 0 || f.Sealed {
		t.Fatalf("record %d: %+v, %v", at, f, err)
	}
	defer f.Log.Close()
	got := records(t, f.Log)
	if len(got) != len(good) {
		t.Fatalf("record %d: %d records of %d", at, len(got), len(good))
	}
	for i, r := range got {
		kind := measure.EventGap
		if lost == 0 {
			kind = measure.EventNote
		}
		if i == at && (r.event.Kind != kind || r.event.Scans != lost || r.event.Channel != -1 || r.event.Detail == "") {
			t.Errorf("in place of record %d: %+v", i, r.event)
		}
		if i != at && (r.t != good[i].t || r.body != good[i].body) {
			t.Errorf("with record %d damaged, record %d is another", at, i)
		}
	}
	kept, err := os.ReadFile(filepath.Join(dir, "c1", damagedName))
	if err != nil || !bytes.HasSuffix(kept, damaged) {
		t.Errorf("the damaged bytes of record %d were not kept aside: %v", at, err)
	}
}

// Several records that are damaged, or gone with a whole page, are told all of them; the
// log may have ended, and is removed as any other.
func TestManyHoles(t *testing.T) {
	for name, x := range map[string]struct {
		harm  func([]byte, []piece)
		lost  uint64
		holes int
	}{
		"two chunks":                    {func(b []byte, p []piece) { b[p[1].begin+3] ^= 1; b[p[5].end-1] ^= 1 }, 18, 2},
		"two neighbours":                {func(b []byte, p []piece) { b[p[1].begin+30] ^= 1; b[p[2].begin+9] ^= 1 }, 18, 1},
		"a chunk, its gap, and another": {func(b []byte, p []piece) { clear(b[p[2].begin+5 : p[4].begin+7]) }, 25, 1},
		"the first":                     {func(b []byte, p []piece) { clear(b[:p[1].begin+40]) }, 9, 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s, whole, pieces := gapped(t, dir, true)
			x.harm(whole, pieces)
			must(t, os.WriteFile(filepath.Join(dir, "c1", logName), whole, 0o644))
			l := newLog(filepath.Join(dir, "c1"), testHeader("c1"), s.opt, int64(len(whole)))
			v, err := l.survey(true)
			must(t, err)
			sum := uint64(0)
			for _, h := range v.holes {
				sum += h.loss.Lost[1]
			}
			if sum != x.lost || len(v.holes) != x.holes {
				t.Errorf("%d scans in %d places: %+v", sum, len(v.holes), v.holes)
			}
			if n, err := l.Mend(); err != nil || n != x.holes {
				t.Errorf("mended %d, %v", n, err)
			}
			f, err := s.open(filepath.Join(dir, "c1"))
			if err != nil || !f.Sealed || f.Holes != 0 {
				t.Errorf("%+v, %v", f, err)
			}
			must(t, s.Remove("c1"))
		})
	}
}

// A log that cannot be mended, because bytes came in that are fewer than any record has,
// keeps what it holds.
func TestNoRoomForAHole(t *testing.T) {
	dir := t.TempDir()
	s, whole, pieces := gapped(t, dir, false)
	path := filepath.Join(dir, "c1", logName)
	odd := bytes.Join([][]byte{whole[:pieces[3].begin], []byte("xyz"), whole[pieces[3].begin:]}, nil)
	must(t, os.WriteFile(path, odd, 0o644))
	if _, err := s.open(filepath.Join(dir, "c1")); !errors.Is(err, ErrTorn) {
		t.Error(err)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, odd) {
		t.Errorf("it was changed: %v", err)
	}
}

// A bit that is flipped anywhere in a header is found, or changes nothing of what it says.
func TestAFlippedHeaderIsRefused(t *testing.T) {
	dir := memoryDir(t)
	must(t, writeHeader(dir, testHeader(filepath.Base(dir))))
	want, err := readHeader(dir)
	must(t, err)
	path := filepath.Join(dir, headerName)
	sound, err := os.ReadFile(path)
	must(t, err)
	for i := range sound {
		for bit := range 8 {
			b := bytes.Clone(sound)
			b[i] ^= 1 << bit
			must(t, os.WriteFile(path, b, 0o600))
			if got, err := readHeader(dir); err == nil && !cmp.Equal(got, want) {
				t.Fatalf("bit %d of byte %d: %q for %q: %s", bit, i, b[i], sound[i], cmp.Diff(want, got))
			}
		}
	}
	// One of a version that wrote no sum.
	old := regexp.MustCompile(`\n *"sum": "[0-9a-f]{8}",`).ReplaceAll(sound, nil)
	must(t, os.WriteFile(path, old, 0o600))
	if got, err := readHeader(dir); err != nil || len(old) == len(sound) || !cmp.Equal(got, want) {
		t.Errorf("without a sum: %v: %s", err, cmp.Diff(want, got))
	}
}
