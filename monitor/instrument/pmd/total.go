package pmd

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"math"

	"wattmark/measure"
)

// Total is the power of all four connectors at a record's time.
type Total struct {
	At    measure.Seconds // by the record's stamp, since the first record
	Power measure.Watt
	// Lost is how long the stamps stood still before this record: records were lost.
	// Whole turns of the stamp, 22 ms each, cannot be seen. Zero where none were.
	Lost measure.Seconds
	// Skipped counts bytes before this record that belong to none.
	Skipped uint64
}

// Totals decodes the serial bytes of continuous mode, as they were once recorded,
// as they stand: every count is taken, also a negative one, without any offset. It
// holds one buffer, however long the recording.
func Totals(r io.Reader, o Options) iter.Seq2[Total, error] {
	return func(yield func(Total, error) bool) {
		if err := o.Validate(); err != nil {
			yield(Total{}, fmt.Errorf("%s: recording: %w", Kind, err))
			return
		}
		d := totals{hz: o.TickHz}
		buf := make([]byte, 1<<16)
		for {
			n, err := r.Read(buf)
			for b := buf[:n]; ; {
				k, ok := d.parser.Next(b)
				if b = b[k:]; !ok {
					break
				}
				if !yield(d.total(), nil) {
					return
				}
			}
			switch {
			case errors.Is(err, io.EOF):
				if d.parser.Flush() {
					yield(d.total(), nil)
				}
				return
			case err != nil:
				yield(Total{}, fmt.Errorf("%s: recording: %w", Kind, err))
				return
			}
		}
	}
}

// totals unwraps the stamps and adds up the connectors.
type totals struct {
	parser  Parser
	hz      float64
	last    uint16
	tick    int64
	started bool
	skipped uint64
}

func (d *totals) total() Total {
	rec := &d.parser.Record
	var out Total
	if d.started {
		step := int64(rec.Stamp - d.last) // modulo 2^16
		if d.tick += step; step >= MaxStep {
			out.Lost = measure.Seconds((float64(step) - ticksPerScan) / d.hz)
		}
	}
	d.last, d.started = rec.Stamp, true
	out.Skipped, d.skipped = d.parser.Skipped-d.skipped, d.parser.Skipped
	var sum int32 // each product is below 2^22
	for c := 0; c < Channels; c += 2 {
		sum += int32(rec.Counts[c]) * int32(rec.Counts[c+1])
	}
	out.At = measure.Seconds(float64(d.tick) / d.hz)
	out.Power = measure.Watt(float64(sum) * (voltsPerCount * amperesPerCount))
	return out
}

// SystematicOf is what the factory's figures leave open of the sum of the
// connectors: the relative standard uncertainty of their gains, which one reference
// and one kind of shunt share, and the one of their zeros at 12 V, of which each
// amplifier has its own.
func SystematicOf() (relative float64, zero measure.Watt) {
	const volts = 12
	return math.Hypot(uGainVoltage, uGainCurrent), measure.Watt(volts * uOffsetCurrent * math.Sqrt(Channels/2))
}
