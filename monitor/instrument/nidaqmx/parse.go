package nidaqmx

import (
	"errors"
	"fmt"

	"wattmark/monitor/instrument/nidaqmx/nipb"
)

// errReply: what the server sent does not add up.
var errReply = errors.New("the server's reply does not add up")

// knownWidth tells whether samples of so many bytes are 16-bit codes: a sample is one
// input's code to some, and a whole scan to others.
func knownWidth(bytes, inputs int) bool { return bytes == bytesCode || bytes == bytesCode*inputs }

func inputsText(n int) string {
	if n == 1 {
		return "1 input"
	}
	return fmt.Sprintf("%d inputs", n)
}

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
	if w := int(r.GetNumBytesPerSamp()); !knownWidth(w, inputs) {
		return nil, fmt.Errorf("%w: %d bytes a sample: this driver knows converters of 16 bits", errReply, w)
	}
	size := n * inputs * bytesCode
	if b := r.GetReadArray(); len(b) >= size {
		return b[:size], nil
	}
	return nil, fmt.Errorf("%w: %d bytes for %d scans of %d inputs", errReply, len(r.GetReadArray()), n, inputs)
}
