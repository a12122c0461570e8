package api

import (
	"context"
	"fmt"
	"math"
	"sort"

	"google.golang.org/grpc"

	"wattmark/api/wattmarkv1"
	"wattmark/store"
)

// ReadSamples streams a task's samples, calibrated or as raw chunks, with the
// events between them. gRPC's flow control holds it back when the reader is slow.
func (s *Service) ReadSamples(req *wattmarkv1.ReadSamplesRequest, stream grpc.ServerStreamingServer[wattmarkv1.ReadSamplesResponse]) error {
	id, err := validID(req.GetTaskId())
	if err != nil {
		return err
	}
	operation := fmt.Sprintf("read samples of task %d", id)
	ctx := stream.Context()
	t, err := s.taskResult(ctx, id, req.GetResult())
	if err != nil {
		return toStatus(operation, err)
	}
	if !hasHeader(&t) {
		return toStatus(operation, store.ErrNoHeader)
	}
	r, err := newReading(&t, stream)
	if err != nil {
		return toStatus(operation, err)
	}
	if t.Result == nil {
		if r.base, err = s.firstStored(ctx, id); err != nil {
			return toStatus(operation, err)
		}
	}
	r.bound(req.GetFromSeq(), req.GetLimit())
	from, err := s.seek(ctx, id, t.Chunks, r.from)
	if err != nil {
		return toStatus(operation, err)
	}
	return toStatus(operation, s.read(ctx, id, from, r, req.GetRaw()))
}

func (s *Service) read(ctx context.Context, id store.TaskID, from uint64, r *reading, raw bool) error {
	send := r.batches
	if raw {
		send = r.raw
	}
	begun := false
	for c, err := range s.db.Chunks(ctx, id, from) {
		if err != nil {
			return err
		}
		if c.FirstScan+uint64(c.Scans) <= r.from {
			continue
		}
		if c.FirstScan >= r.end {
			break
		}
		if !begun {
			if err := r.clipped(c); err != nil {
				return err
			}
			begun = true
		}
		if more, err := send(c); err != nil || !more {
			return err
		}
	}
	if !begun {
		if err := r.clipped(nil); err != nil {
			return err
		}
	}
	return r.eventsBefore(r.end)
}

// seek returns the number of the chunk that holds a scan, or of one before it.
// Chunk numbers have no holes and scans grow with them, so it bisects: a dozen
// reads instead of the whole way.
func (s *Service) seek(ctx context.Context, id store.TaskID, chunks, scan uint64) (uint64, error) {
	const few = 4
	// A chunk is borrowed while its iteration lasts: take the numbers only.
	probe := func(no uint64) (number, firstScan uint64, found bool, err error) {
		for c, err := range s.db.Chunks(ctx, id, no) {
			if err != nil {
				return 0, 0, false, err
			}
			return c.No, c.FirstScan, true, nil
		}
		return 0, 0, false, nil
	}
	first, _, found, err := probe(0)
	if err != nil || !found || chunks <= few {
		return 0, err
	}
	i := sort.Search(int(min(chunks, math.MaxInt32)), func(i int) bool {
		_, firstScan, found, e := probe(first + uint64(i))
		if e != nil {
			err = e
		}
		return !found || firstScan > scan
	})
	return first + uint64(max(0, i-1)), err
}
