package capture

import (
	"errors"
	"io"
	"sort"

	"wattmark/monitor/spool"
)

// indexSize is how many of the latest chunks are found without touching the
// disk: three minutes at five chunks a second.
const indexSize = 1024

// chunkIndex remembers where the latest chunks begin in device time. Its size
// is fixed, however long the capture is.
type chunkIndex struct {
	first []int64 // ring of first ticks; chunk no lies at no % indexSize
	n     uint64  // chunks so far
}

func (x *chunkIndex) add(firstTick int64) {
	if x.first == nil {
		x.first = make([]int64, indexSize)
	}
	x.first[x.n%indexSize] = firstTick
	x.n++
}

// at returns the chunk that holds a tick: the last one that begins at or before
// it. ok is false when that chunk is no longer remembered.
func (x *chunkIndex) at(tick float64) (no uint64, ok bool) {
	kept := min(x.n, indexSize)
	begin := x.n - kept
	i := sort.Search(int(kept), func(i int) bool {
		return float64(x.first[(begin+uint64(i))%indexSize]) > tick
	})
	if i == 0 {
		return 0, begin == 0
	}
	return begin + uint64(i) - 1, true
}

// findChunk does the same by walking a log's frames.
func findChunk(log *spool.Log, tick float64) (uint64, error) {
	r, err := log.NewReader()
	if err != nil {
		return 0, err
	}
	defer r.Close()
	var no uint64
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return no, nil
		}
		if err != nil {
			return 0, err
		}
		if rec.Type != spool.RecordChunk {
			continue
		}
		if float64(rec.Chunk.FirstTick) > tick {
			return no, nil
		}
		no = rec.Chunk.No
	}
}
