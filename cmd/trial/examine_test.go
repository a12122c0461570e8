package trial

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/pyramid"
	"github.com/wattmark/wattmark/store"
)

// Samples sums up the samples that a database holds of a task.
type Samples struct {
	CRCs  map[uint64]uint32 // of chunks, by their numbers
	First uint64            // number of the first chunk
	Scans uint64
	CRC   uint32 // of all chunks' checksums, as in a capture's trailer
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Examine reads all samples of a task that has ended and compares them, by arithmetic of its own, with the task's
// numbers, counts, gaps, plots, reason and state. It calls fail with each violation, and also, unless it is nil, with
// each chunk in order; the block is valid during that call.
func Examine(
	ctx context.Context, db *store.DB, t *store.Task, also func(*chunk.Chunk, *measure.Block), fail func(string, ...any),
) Samples {
	reasons(t, fail)
	s := Samples{CRCs: map[uint64]uint32{}}
	lost := gaps(t)
	drawn, err := newTaskPlot(&t.Setup)
	if err != nil && t.Chunks > 0 {
		fail("task %d: its setup makes no power: %v", t.ID, err)
		return s
	}
	var b measure.Block
	var next uint64
	for c, err := range db.Chunks(ctx, t.ID, 0) {
		if err == nil {
			err = chunk.Decode(c, t.Setup.Timebase, len(t.Setup.Channels), &b)
		}
		if err != nil {
			fail("task %d: %v", t.ID, err)
			return s
		}
		if _, twice := s.CRCs[c.No]; twice {
			fail("task %d: chunk %d is there twice", t.ID, c.No)
		}
		if len(s.CRCs) == 0 {
			s.First = c.No
		} else if c.FirstScan != next+lost[next] {
			fail("task %d: chunk %d begins at scan %d, the one before ends at %d, and %d scans are recorded as lost",
				t.ID, c.No, c.FirstScan, next, lost[next])
		}
		next = c.FirstScan + uint64(c.Scans)
		s.CRCs[c.No], s.Scans = c.CRC, s.Scans+uint64(c.Scans)
		s.CRC = crc32.Update(s.CRC, castagnoli, binary.LittleEndian.AppendUint32(nil, c.CRC))
		drawn.add(&b)
		if also != nil {
			also(c, &b)
		}
	}
	if t.Chunks != uint64(len(s.CRCs)) || t.Scans != s.Scans {
		fail("task %d counts %d chunks and %d scans; it has %d and %d", t.ID, t.Chunks, t.Scans, len(s.CRCs), s.Scans)
	}
	if t.Chunks == 0 {
		return s
	}
	if err := drawn.compare(ctx, db, t); err != nil {
		fail("task %d: %v", t.ID, err)
	}
	return s
}

// gaps returns the number of recorded missing scans by the scan at which each gap begins.
func gaps(t *store.Task) map[uint64]uint64 {
	lost := map[uint64]uint64{}
	for _, e := range t.Events {
		if e.Kind == measure.EventGap {
			lost[e.FirstScan] += e.Scans
		}
	}
	return lost
}

// unfinished are parts of reasons that contradict a complete task, which has all of its samples and its work.
var unfinished = []string{
	"keeps the rest", "was interrupted", "are missing", "is not complete", "did not come to its end", "no longer has",
}

// reasons compares a task's reason with its state.
func reasons(t *store.Task, fail func(string, ...any)) {
	switch t.State {
	case store.Running:
		fail("task %d is half done: %s", t.ID, t.Reason)
	case store.Complete:
		for _, u := range unfinished {
			if strings.Contains(t.Reason, u) {
				fail("task %d is complete, with the reason: %s", t.ID, t.Reason)
			}
		}
	default:
		if t.Reason == "" {
			fail("task %d is in state %d without a reason", t.ID, t.State)
		}
		if strings.Contains(t.Reason, "until this host fetches it") {
			fail("task %d has ended, with a rest that is to come: %s", t.ID, t.Reason)
		}
	}
}

// taskPlot is the lowest level of a task's pyramid by series, as it must be: each bin is made scan by scan.
type taskPlot struct {
	meter *measure.PowerMeter
	rails int
	bins  []map[uint64]pyramid.Bin // by series: the rails, and their sum where there are several
	watts []measure.Watt
}

func newTaskPlot(s *measure.Setup) (*taskPlot, error) {
	meter, err := measure.NewPowerMeter(s)
	if err != nil {
		return nil, err
	}
	p := &taskPlot{meter: meter, rails: len(s.Rails), bins: make([]map[uint64]pyramid.Bin, len(s.Rails))}
	if p.rails > 1 {
		p.bins = append(p.bins, nil)
	}
	for i := range p.bins {
		p.bins[i] = map[uint64]pyramid.Bin{}
	}
	return p, nil
}

func (p *taskPlot) add(b *measure.Block) {
	var c measure.Columns
	for r := range p.rails {
		p.meter.Rail(r, b, &c)
		p.series(r, b.FirstScan, c.P)
	}
	if p.rails > 1 {
		p.watts = p.meter.Total(b, p.watts)
		p.series(p.rails, b.FirstScan, p.watts)
	}
}

func (p *taskPlot) series(s int, first uint64, watts []measure.Watt) {
	for i, w := range watts {
		at := (first + uint64(i)) / pyramid.Base
		bin := p.bins[s][at]
		bin.Join(pyramid.Bin{Min: w, Max: w, Sum: float64(w), N: 1})
		p.bins[s][at] = bin
	}
}

// compare checks each stored bin of each level, and the envelope of the whole task, against the scans: a bin counts
// all of its scans, and its least and greatest power bound theirs within the page's resolution.
func (p *taskPlot) compare(ctx context.Context, db *store.DB, t *store.Task) error {
	bins := p.bins
	for level := range pyramid.Levels {
		if level > 0 {
			bins = raise(bins)
		}
		for number := uint64(0); number*pyramid.PageBins <= lastBin(bins[0]); number++ {
			var data []byte
			err := db.SQL().QueryRowContext(ctx, `SELECT data FROM pyramid WHERE task_id=? AND level=? AND page=?`,
				int64(t.ID), level, int64(number)).Scan(&data)
			if errors.Is(err, sql.ErrNoRows) {
				continue // drawing makes it from the level below
			}
			page := &pyramid.Page{Level: level, Number: number}
			if err == nil {
				err = page.Parse(data)
			}
			if err == nil {
				err = samePage(page, bins)
			}
			if err != nil {
				return fmt.Errorf("plot: level %d, page %d: %w", level, number, err)
			}
		}
	}
	return p.drawn(ctx, db, t)
}

func samePage(page *pyramid.Page, bins []map[uint64]pyramid.Bin) error {
	if len(page.Series) != len(bins) {
		return fmt.Errorf("%d series of %d", len(page.Series), len(bins))
	}
	for s, got := range page.Series {
		lo, hi := math.Inf(1), math.Inf(-1)
		for i := range got {
			if w := bins[s][page.Number*pyramid.PageBins+uint64(i)]; w.N > 0 {
				lo, hi = min(lo, float64(w.Min)), max(hi, float64(w.Max))
			}
		}
		// A page stores 16 bits between its extremes in single precision; a higher level is made of rounded pages.
		single := 1e-6 * max(math.Abs(lo), math.Abs(hi))
		room := 8*(hi-lo)/math.MaxUint16 + single
		for i, g := range got {
			if err := sameBin(g, bins[s][page.Number*pyramid.PageBins+uint64(i)], room, single); err != nil {
				return fmt.Errorf("series %d, bin %d: %w", s, i, err)
			}
		}
	}
	return nil
}

func sameBin(got, want pyramid.Bin, room, single float64) error {
	within := func(a, b measure.Watt) bool { return math.Abs(float64(a-b)) <= room }
	bounds := float64(got.Min) <= float64(want.Min)+single && float64(got.Max) >= float64(want.Max)-single
	near := within(got.Min, want.Min) && within(got.Max, want.Max) && within(got.Mean(), want.Mean())
	switch {
	case got.N != want.N:
		return fmt.Errorf("%d scans, the chunks have %d", got.N, want.N)
	case got.N > 0 && !(bounds && near):
		return fmt.Errorf("%v to %v, mean %v; the chunks have %v to %v, mean %v",
			got.Min, got.Max, got.Mean(), want.Min, want.Max, want.Mean())
	}
	return nil
}

// drawn compares the envelope that a client gets of the whole task with its scans.
func (p *taskPlot) drawn(ctx context.Context, db *store.DB, t *store.Task) error {
	from, to, err := db.Extent(ctx, t.ID)
	if err != nil {
		return err
	}
	const columns = 7
	e, err := db.Envelope(ctx, t.ID, from, to, columns)
	if err != nil {
		return err
	}
	for s := range p.bins {
		var got, want pyramid.Bin
		for _, b := range e.Columns[s] {
			if b.N > 0 {
				got.Join(b)
			}
		}
		for _, b := range p.bins[s] {
			want.Join(b)
		}
		size := math.Abs(float64(want.Min)) + math.Abs(float64(want.Max))
		if err := sameBin(got, want, 1e-3*size, 1e-6*size); err != nil {
			return fmt.Errorf("as it is drawn, %s: %w", e.Series[s], err)
		}
	}
	return nil
}

// raise returns the bins of the next higher level.
func raise(bins []map[uint64]pyramid.Bin) []map[uint64]pyramid.Bin {
	out := make([]map[uint64]pyramid.Bin, len(bins))
	for s := range bins {
		out[s] = map[uint64]pyramid.Bin{}
		for at, b := range bins[s] {
			up := out[s][at/pyramid.Ratio]
			up.Join(b)
			out[s][at/pyramid.Ratio] = up
		}
	}
	return out
}

func lastBin(bins map[uint64]pyramid.Bin) (at uint64) {
	for i := range bins {
		at = max(at, i)
	}
	return at
}

// Planted is a folder with another program's files in it, as they were when they were written.
type Planted struct {
	dir   string
	names []string          // of the folder itself
	was   map[string]string // kind, mode and content by path below the folder
}

// Foreign folders whose names have the form of a capture's.
const (
	oldCapture    = "20250102-030405-0a1b2c3d"
	otherCapture  = "20250102-030405-0a1b2c3e"
	linkedCapture = "20250102-030405-0a1b2c3f"
)

// Plant creates a folder, and in it another program's files, folders, links and pipes, some with names like those of
// the product's own.
func Plant(dir string) (*Planted, error) {
	p := &Planted{dir: dir, was: map[string]string{}}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	files := []string{
		"thesis/chapters/one.tex", ".ssh/id", "data/r.csv", "plain.txt", "lost+found/#12", "log", ".cache/x/y",
		"empty.removing/header.json.bak", oldCapture + "/notes.txt", oldCapture + "-1/header.json.new",
		otherCapture + "/header.json.new", otherCapture + "/mine.txt", oldCapture + ".removing/diary.txt",
		"wattmark-store-mine/task.db", "other.db", "other.db-wal", "power.db.bak",
	}
	for _, f := range files {
		path := filepath.Join(dir, f)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(f), 0o600)); err != nil {
			return nil, err
		}
	}
	away := filepath.Join(dir, "thesis", "chapters")
	err := errors.Join(
		os.Mkdir(filepath.Join(dir, "nothing"), 0o700), os.Mkdir(filepath.Join(dir, ".git"), 0o700),
		os.Symlink(away, filepath.Join(dir, "link")), os.Symlink(away, filepath.Join(dir, linkedCapture)),
		os.Symlink("/nowhere", filepath.Join(dir, "dangling")), syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600),
	)
	if err != nil {
		return nil, err
	}
	for _, f := range append(files, "nothing", ".git", "link", linkedCapture, "dangling", "pipe") {
		if name, _, _ := strings.Cut(f, "/"); !p.Own(name) {
			p.names = append(p.names, name)
			err = errors.Join(err, p.look(name, p.was))
		}
	}
	return p, err
}

// Own reports whether an entry of the folder was planted.
func (p *Planted) Own(name string) bool { return slices.Contains(p.names, name) }

// Changed describes each planted path that is gone or different, and each that was added below one.
func (p *Planted) Changed() (out []string) {
	now := map[string]string{}
	for _, n := range p.names {
		if err := p.look(n, now); err != nil && !errors.Is(err, fs.ErrNotExist) {
			out = append(out, err.Error())
		}
	}
	for path, was := range p.was {
		if is, there := now[path]; !there {
			out = append(out, fmt.Sprintf("%s is gone", filepath.Join(p.dir, path)))
		} else if is != was {
			out = append(out, fmt.Sprintf("%s was %q and is %q", filepath.Join(p.dir, path), was, is))
		}
	}
	for path := range now {
		if _, there := p.was[path]; !there {
			out = append(out, fmt.Sprintf("%s has come", filepath.Join(p.dir, path)))
		}
	}
	return out
}

// look records kind, mode and content of an entry and of all below it.
func (p *Planted) look(name string, into map[string]string) error {
	return filepath.WalkDir(filepath.Join(p.dir, name), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			b, rerr := os.ReadFile(path) // #nosec G122 -- a folder of the trial, which nothing else changes
			text, err = text+" "+string(b), rerr
		case info.Mode()&fs.ModeSymlink != 0:
			to, rerr := os.Readlink(path)
			text, err = text+" "+to, rerr
		}
		below, rerr := filepath.Rel(p.dir, path)
		into[below] = text
		return errors.Join(err, rerr)
	})
}

// CrowdSize is more connections than any service accepts from one peer.
const CrowdSize = 48

// phases are the bytes that a connection sends before it falls silent: none, parts of HTTP/2, HTTP and TLS requests.
var phases = []string{
	"", "PRI", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
	"GET /healthz HTTP/1.1\r\nHost: ", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}

// Crowd is the idle connections that are open.
type Crowd []net.Conn

// Gather opens CrowdSize connections by the dialers in turn. Each falls silent in the phase, of n, that the caller
// chooses. It fails only where every connection is refused.
func Gather(
	ctx context.Context, phase func(n int) int, dialers ...func(context.Context) (net.Conn, error),
) (c Crowd, err error) {
	for i := range CrowdSize {
		one, derr := dialers[i%len(dialers)](ctx)
		if derr != nil {
			err = errors.Join(err, derr)
			continue
		}
		_, _ = one.Write([]byte(phases[phase(len(phases))]))
		c = append(c, one)
	}
	if len(c) > 0 {
		err = nil
	}
	return c, err
}

// Leave closes all connections.
func (c Crowd) Leave() {
	for _, one := range c {
		_ = one.Close()
	}
}
