// Package examine holds a stored task against itself, by its own arithmetic: chunks
// against numbers and counts, holes against events, plots against chunks, reasons against
// the state.
package examine

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"strings"

	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/store"
)

// Samples is what a database has of a task's samples.
type Samples struct {
	CRCs  map[uint64]uint32 // of chunks, by their numbers
	First uint64            // number of the first chunk
	Scans uint64
	CRC   uint32 // of all chunks' checksums, as a capture's trailer has it
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Task reads all of a task that has ended and calls fail with each violation; also is
// called with each chunk in their order, with the first scan behind the chunk before.
func Task(ctx context.Context, db *store.DB, t *store.Task, also func(c *chunk.Chunk, b *measure.Block), fail func(string, ...any)) Samples {
	reasons(t, fail)
	s := Samples{CRCs: map[uint64]uint32{}}
	lost := map[uint64]uint64{}
	for _, e := range t.Events {
		if e.Kind == measure.EventGap {
			lost[e.FirstScan] += e.Scans
		}
	}
	drawn, err := newPlot(&t.Setup)
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
			fail("task %d: chunk %d begins at scan %d, the one before ends at %d, and %d scans are told as lost", t.ID, c.No, c.FirstScan, next, lost[next])
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

// What a reason can say only of a task that is not complete: none of it holds for one
// that has all of its samples and its work.
var unfinished = []string{
	"keeps the rest", "was interrupted", "are missing", "is not complete", "did not come to its end", "no longer has",
}

// reasons holds what a task says of itself against its state.
func reasons(t *store.Task, fail func(string, ...any)) {
	switch t.State {
	case store.Running:
		fail("task %d is half done: %s", t.ID, t.Reason)
	case store.Complete:
		for _, u := range unfinished {
			if strings.Contains(t.Reason, u) {
				fail("task %d is complete, and says: %s", t.ID, t.Reason)
			}
		}
	default:
		if t.Reason == "" {
			fail("task %d is in state %d without a reason", t.ID, t.State)
		}
		if strings.Contains(t.Reason, "until this host fetches it") {
			fail("task %d has ended, and says that the rest is to come: %s", t.ID, t.Reason)
		}
	}
}
