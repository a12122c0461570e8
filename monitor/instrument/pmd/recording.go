package pmd

import (
	"errors"
	"fmt"
	"io"
	"time"

	"wattmark/monitor/instrument"
)

// ReadRecording turns the serial bytes of continuous mode, as they were once
// recorded, into blocks. They may begin in the middle of a record. A gap is
// counted by the stamps alone: whole turns of 22 ms cannot be seen without the
// time of arrival, and every gap says that it is an estimate.
func ReadRecording(r io.Reader, o Options, sink instrument.Sink) error {
	if err := o.Validate(); err != nil {
		return fmt.Errorf("%s: recording: %w", Kind, err)
	}
	s := newStream(o, sink)
	buf := make([]byte, 16*readSize)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if err := s.take(time.Time{}, buf[:n], true); err != nil {
				return fmt.Errorf("%s: recording: %w", Kind, err)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			if err := s.finish(); err != nil {
				return fmt.Errorf("%s: recording: %w", Kind, err)
			}
			return nil
		case err != nil:
			return fmt.Errorf("%s: recording: %w", Kind, err)
		}
	}
}
