package main

import (
	"bytes"
	"errors"
	"fmt"

	"wattmark/measure"
	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/analog"
	"wattmark/monitor/instrument/dataq"
	"wattmark/monitor/instrument/labjack"
	"wattmark/monitor/instrument/pmd"
	"wattmark/monitor/instrument/pmd2"
	"wattmark/monitor/instrument/powenetics"
	"wattmark/monitor/instrument/powersensor3"
	"wattmark/monitor/instrument/scope"
	"wattmark/monitor/instrument/serialtext"
	"wattmark/monitor/instrument/wt300"
	"wattmark/monitor/scpi"
)

// each takes b apart with a parser's Next, and calls found for each frame.
func each(b []byte, next func([]byte) (n int, ok bool), found func()) {
	for {
		n, ok := next(b)
		if b = b[n:]; !ok {
			return
		}
		found()
	}
}

func decodePowerSensor3(r *meterRecording) (decoder, error) {
	var p powersensor3.Parser
	want := uint8(0) // the sensors that come in pairs, which the driver keeps
	for k := range r.counts.channels {
		want |= 1 << k
	}
	counts := make([]measure.Count, powersensor3.Sensors)
	return func() (n int, err error) {
		p = powersensor3.Parser{Want: want}
		each(r.bytes, p.Next, func() {
			for c, v := range p.Frame.Levels {
				counts[c] = measure.Count(v)
			}
			n++
		})
		return n, nil
	}, nil
}

func decodePMD(r *meterRecording) (decoder, error) {
	var p pmd.Parser
	counts := make([]measure.Count, pmd.Channels)
	return func() (n int, err error) {
		p = pmd.Parser{}
		each(r.bytes, p.Next, func() {
			for c, v := range p.Record.Counts {
				counts[c] = measure.Count(v)
			}
			n++
		})
		return n, nil
	}, nil
}

func decodePMD2(r *meterRecording) (decoder, error) {
	reply := (*[pmd2.ReplyBytes]byte)(r.bytes)
	counts := new([2 * pmd2.Sensors]measure.Count)
	return func() (int, error) { return 1, pmd2.Parse(reply, counts) }, nil
}

func decodePowenetics(r *meterRecording) (decoder, error) {
	var p powenetics.Parser
	counts := make([]measure.Count, 2*powenetics.Connectors)
	return func() (n int, err error) {
		p = powenetics.Parser{}
		each(r.bytes, p.Next, func() {
			for c := range powenetics.Connectors {
				counts[2*c], counts[2*c+1] = measure.Count(p.Frame.Millivolts[c]), measure.Count(p.Frame.Milliamperes[c])
			}
			n++
		})
		return n, nil
	}, nil
}

func decodeLabJack(r *meterRecording) (decoder, error) {
	var p labjack.Parser
	counts := make([]measure.Count, r.counts.channels)
	return func() (n int, err error) {
		p = labjack.Parser{}
		each(r.bytes, p.Next, func() {
			_ = p.Packet.Scans(counts, func([]measure.Count) error { n++; return nil })
		})
		if p.Broken {
			err = errors.New("the stream is out of step")
		}
		return n, err
	}, nil
}

// decodeRaw is the way of raw 16-bit codes.
func decodeRaw(r *meterRecording) (decoder, error) {
	counts := make([]measure.Count, r.counts.channels)
	return func() (n int, err error) {
		err = analog.Scans(r.bytes, counts, func([]measure.Count) error { n++; return nil })
		return n, err
	}, nil
}

func decodeDATAQ(r *meterRecording) (decoder, error) {
	o, err := optionsOf[dataq.Options](r)
	if err != nil {
		return nil, err
	}
	layout := o.Layout()
	fresh, f := dataq.NewFramer(layout), dataq.NewFramer(layout)
	counts := make([]measure.Count, r.counts.channels)
	return func() (n int, err error) {
		*f = *fresh
		each(r.bytes, f.Next, func() { layout.Counts(f.Scan, counts); n++ })
		if f.Skipped > 0 {
			err = fmt.Errorf("%d bytes of the stream belong to no scan", f.Skipped)
		}
		return n, err
	}, nil
}

func decodeText(r *meterRecording) (decoder, error) {
	o, err := optionsOf[serialtext.Options](r)
	if err != nil {
		return nil, err
	}
	p, err := serialtext.NewParser(*o)
	if err != nil {
		return nil, err
	}
	b := r.bytes[bytes.IndexByte(r.bytes, '\n')+1 : bytes.LastIndexByte(r.bytes, '\n')+1] // whole lines
	return func() (n int, err error) {
		each(b, p.Next, func() { n++ })
		if lines, _ := p.Unread(); lines > 0 {
			err = fmt.Errorf("%d lines could not be read", lines)
		}
		return n, err
	}, nil
}

// blockOf is the data of an answer that is a block.
func blockOf(r *meterRecording) ([]byte, error) {
	data, _, ok, err := scpi.ParseBlock(r.bytes[bytes.IndexByte(r.bytes, '#'):])
	if err == nil && !ok {
		err = errors.New("the block is not whole")
	}
	return data, err
}

func decodeBlock(r *meterRecording) (d decoder, err error) {
	part := *r
	if part.bytes, err = blockOf(r); err != nil {
		return nil, err
	}
	return decodeRaw(&part)
}

func decodeWT300(r *meterRecording) (decoder, error) {
	data, err := blockOf(r)
	if err != nil {
		return nil, err
	}
	counts := make([]measure.Count, len(r.inputs.Channels))
	return func() (int, error) {
		ok, err := wt300.Readings(data, r.inputs.Channels, counts)
		if err == nil && !ok {
			err = errors.New("a reading without data")
		}
		return 1, err
	}, nil
}

func decodeScope(r *meterRecording) (decoder, error) {
	data, err := blockOf(r)
	d, ok := instrument.Driver(r.driver).(*scope.Device)
	if err != nil || !ok {
		return nil, errors.Join(err, fmt.Errorf("the driver is a %T", r.driver))
	}
	codes := d.Codes()
	counts := make([]measure.Count, len(data)/codes.Bytes)
	return func() (int, error) { return codes.Decode(counts, data), nil }, nil
}
