package chunk

import (
	"iter"

	"wattmark/measure"
)

// DecodeAll decodes chunks as they come, such as a stored task's. The block is
// used again for the next chunk. The first error, of the chunks or of Decode,
// ends the iteration.
func DecodeAll(chunks iter.Seq2[*Chunk, error], s *measure.Setup) iter.Seq2[*measure.Block, error] {
	return func(yield func(*measure.Block, error) bool) {
		var b measure.Block
		for c, err := range chunks {
			if err == nil {
				err = Decode(c, s.Timebase, len(s.Channels), &b)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(&b, nil) {
				return
			}
		}
	}
}
