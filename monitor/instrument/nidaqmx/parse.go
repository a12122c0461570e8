package nidaqmx

import (
	"encoding/binary"
	"errors"
	"fmt"

	"wattmark/measure"
	"wattmark/monitor/instrument/nidaqmx/nipb"
)

// errReply: what the server sent does not add up.
var errReply = errors.New("the server's reply does not add up")

// samples returns the bytes of the scans in a reply to ReadRaw that asked for at
// most so many, of so many inputs. The server sends all of the room that it was
// given; what is behind the samples means nothing.
func samples(r *nipb.ReadRawResponse, asked, inputs int) ([]byte, error) {
	n := int(r.GetSampsRead())
	if n < 0 || n > asked {
		return nil, fmt.Errorf("%w: %d samples where %d were asked for", errReply, n, asked)
	}
	if n == 0 {
		return nil, nil
	}
	// A sample is one input's code to some, and a whole scan to others.
	if w := int(r.GetNumBytesPerSamp()); w != bytesCode && w != bytesCode*inputs {
		return nil, fmt.Errorf("%w: %d bytes a sample: this driver knows converters of 16 bits", errReply, w)
	}
	size := n * inputs * bytesCode
	if b := r.GetReadArray(); len(b) >= size {
		return b[:size], nil
	}
	return nil, fmt.Errorf("%w: %d bytes for %d scans of %d inputs", errReply, len(r.GetReadArray()), n, inputs)
}

// scans hands over whole scans of little-endian codes, one after the other;
// counts is where they are put.
func scans(b []byte, counts []measure.Count, scan func([]measure.Count) error) error {
	size := bytesCode * len(counts)
	for ; len(b) >= size; b = b[size:] {
		for c := range counts {
			counts[c] = measure.Count(int16(binary.LittleEndian.Uint16(b[bytesCode*c:])))
		}
		if err := scan(counts); err != nil {
			return err
		}
	}
	return nil
}
