package measurement

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/store"
	"golang.org/x/sync/errgroup"
)

const (
	// backlog is how many chunks may wait for the database; more make the stream wait, and with
	// it the monitor, whose spool takes the samples meanwhile.
	backlog = 8
	// batchBytes bounds one transaction. Chunks that come while the last one was being made
	// durable go into the next, so the batches find their own size.
	batchBytes = 8 << 20
	// trailers is how often a trailer that does not fit is asked for again.
	trailers = 2
)

// tally is the counts and the checksum of the chunks, to compare with the trailer.
type tally struct {
	chunks, scans uint64
	crc           uint32
}

// add counts a chunk. The checksum is over the chunks' own checksums, in order: it needs no
// second pass over their bytes.
func (t *tally) add(c *chunk.Chunk) {
	n, _ := c.Deleted()
	t.crc = c.Join(t.crc)
	t.chunks += n
	t.scans += uint64(c.Scans)
}

// check compares the tally with a trailer; ErrMismatch.
func (t *tally) check(want session.Trailer) error {
	if t.chunks == want.Chunks && t.scans == want.Scans && t.crc == want.CRC {
		return nil
	}
	return fmt.Errorf("%w: %s, %s, CRC-32C %08x here; %d, %d, %08x on the monitor",
		monitorclient.ErrMismatch, measure.Plural(t.chunks, "chunk"),
		measure.Plural(t.scans, "scan"), t.crc, want.Chunks, want.Scans, want.CRC)
}

// Counters count the chunks, scans and coded bytes of a transfer; safe for concurrent use.
type Counters struct{ Chunks, Scans, Bytes atomic.Uint64 }

// Transfer reads a capture into the database, from the first chunk that is not
// there yet, and holds it against the trailer; n counts the stored chunks. Every batch is on disk
// before the next one is asked of the database. It may be repeated. A trailer that does not fit
// may have been changed on the line: it is read again, trailers times, with a stream that must
// be empty.
func Transfer(
	ctx context.Context, db Store, m Monitor, id store.TaskID, o monitorclient.ReadOptions, n *Counters,
) (session.Trailer, error) {
	in := &ingest{db: db, id: id, n: n, items: make(chan item, backlog)}
	if err := in.resume(ctx, &o); err != nil {
		return session.Trailer{}, fmt.Errorf("transfer of task %d: %w", id, err)
	}
	var trailer session.Trailer
	// Chunks that have arrived are stored also while the transfer is being cancelled.
	g, reads := errgroup.WithContext(ctx)
	in.ctx = reads
	g.Go(func() (err error) {
		defer close(in.items)
		trailer, err = m.Read(reads, o, in)
		return err
	})
	g.Go(func() error { return in.store(context.WithoutCancel(ctx)) })
	err := g.Wait()
	o.From = in.next
	for tries := 0; err == nil; tries++ {
		if err = in.tally.check(trailer); err == nil || tries == trailers {
			break
		}
		trailer, err = m.Read(ctx, o, nothingMore{})
	}
	if errors.Is(err, monitorclient.ErrMismatch) {
		trailer, err = in.holdsAll(ctx, m, o, trailer, err)
	}
	if err != nil {
		return trailer, fmt.Errorf("transfer of task %d: %w", id, err)
	}
	return trailer, nil
}

// holdsAll reads a capture once more from its begin where its trailer does not fit: since the
// chunks came, the monitor's disk may have damaged some of them, or the record of the start
// marker, and then the stream begins before the first chunk that is stored here. Nothing is
// lost where all chunks from that one on are stored as they are sent; the trailer returned is
// then this side's.
func (in *ingest) holdsAll(
	ctx context.Context, m Monitor, o monitorclient.ReadOptions, t session.Trailer, mismatch error,
) (session.Trailer, error) {
	sent := reread{here: map[uint64]uint32{}}
	for c, err := range in.db.Chunks(ctx, in.id, 0) {
		if err != nil {
			return t, err
		}
		if c.Sums != nil {
			return t, mismatch // what was deleted cannot be compared
		}
		if len(sent.here) == 0 {
			sent.first = c.No
		}
		sent.here[c.No] = c.CRC
	}
	o.From = 0
	again, err := m.Read(ctx, o, &sent)
	if err != nil || sent.other || sent.check(again) != nil {
		return t, errors.Join(mismatch, err)
	}
	s := &again.Summary
	if s.Lost -= min(s.Lost, in.tally.scans-sent.both); s.Lost == 0 {
		s.Gaps = 0
	}
	return again, nil
}

// reread is a sink that compares a stream with the stored chunks.
type reread struct {
	nothingMore // but for chunks
	tally
	here  map[uint64]uint32 // checksums of the stored chunks, by number
	first uint64            // chunk that is stored
	both  uint64            // scans of the chunks that are stored and were sent
	other bool              // a chunk behind the first came that is not stored as it is
}

func (r *reread) Chunk(c *chunk.Chunk) error {
	r.add(c)
	if c.No < r.first {
		return nil
	}
	crc, stored := r.here[c.No]
	r.other = r.other || !stored || crc != c.CRC
	r.both += uint64(c.Scans)
	return nil
}

// ingest is one Transfer: the sink of the stream on one side, the database's
// writer on the other.
type ingest struct {
	ctx   context.Context // of the reading side
	db    Store
	id    store.TaskID
	n     *Counters
	items chan item

	tally  tally
	next   uint64    // chunk that would come next
	here   []stretch // of scans, in order; adjacent ones are merged
	headed bool
}

// item is a chunk, or an event that stands before the next one.
type item struct {
	chunk *chunk.Chunk
	event measure.Event
}

// resume counts the chunks that are stored already and moves o.From behind them.
func (in *ingest) resume(ctx context.Context, o *monitorclient.ReadOptions) error {
	next, some, err := in.db.NextChunk(ctx, in.id)
	if err != nil || !some {
		return err
	}
	for c, err := range in.db.Chunks(ctx, in.id, 0) {
		if err != nil {
			return err
		}
		in.count(c)
	}
	o.From = next
	return nil
}

// count notes a chunk that is stored, or on its way to the database.
func (in *ingest) count(c *chunk.Chunk) {
	in.tally.add(c)
	in.next = c.No + 1
	end := c.FirstScan + uint64(c.Scans)
	if n := len(in.here); n > 0 && in.here[n-1].end == c.FirstScan {
		in.here[n-1].end = end
	} else {
		in.here = append(in.here, stretch{c.FirstScan, end})
	}
	in.n.Chunks.Add(1)
	in.n.Scans.Add(uint64(c.Scans))
	in.n.Bytes.Add(uint64(chunk.PayloadSize(c)))
}

// Header stores the stream's header, once.
func (in *ingest) Header(h store.Header, _ uint64) error {
	if in.headed {
		return nil
	}
	err := in.db.PutHeader(in.ctx, in.id, h)
	in.headed = err == nil
	return err
}

// Chunk hands a copy to the writer, and waits while it is behind.
func (in *ingest) Chunk(c *chunk.Chunk) error {
	if err := in.put(item{chunk: c.Clone()}); err != nil {
		return err
	}
	in.count(c)
	return nil
}

// stretch is the scans from first to before end.
type stretch struct{ first, end uint64 }

// Event hands an event to the writer; of a gap the part that is not stored here: the
// monitor's disk may have lost samples since they came.
func (in *ingest) Event(e measure.Event) error {
	// Scans that are stored are cut off the gap from the front, stretch by stretch.
	for _, s := range in.here {
		end := e.FirstScan + e.Scans
		if e.Kind != measure.EventGap || !e.Exact || end <= s.first || s.end <= e.FirstScan {
			continue
		}
		if e.FirstScan < s.first {
			e.Scans = s.first - e.FirstScan
			continue
		}
		e.FirstScan = min(end, s.end)
		if e.Scans = end - e.FirstScan; e.Scans == 0 {
			return nil
		}
	}
	return in.put(item{event: e})
}

// put queues an item for the writer, and blocks while the queue is full.
func (in *ingest) put(i item) error {
	select {
	case in.items <- i:
		return nil
	case <-in.ctx.Done():
		return context.Cause(in.ctx)
	}
}

// store writes batches until the stream has ended.
func (in *ingest) store(ctx context.Context) error {
	var chunks []*chunk.Chunk
	var events []measure.Event
	// A batch is the first item and all that wait behind it, up to batchBytes.
	for first := range in.items {
		chunks, events = chunks[:0], events[:0]
		size, more := 0, true
		for i := first; more; {
			if i.chunk != nil {
				chunks = append(chunks, i.chunk)
				size += chunk.PayloadSize(i.chunk)
			} else {
				events = append(events, i.event)
			}
			if size >= batchBytes {
				break
			}
			select {
			case i, more = <-in.items:
			default:
				more = false
			}
		}
		if err := in.db.AppendChunks(ctx, in.id, chunks, events); err != nil {
			return err
		}
	}
	return nil
}
