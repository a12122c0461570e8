package perf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/bench"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/analog"
	"github.com/wattmark/wattmark/monitor/instrument/dataq"
	"github.com/wattmark/wattmark/monitor/instrument/labjack"
	"github.com/wattmark/wattmark/monitor/instrument/nidaqmx"
	"github.com/wattmark/wattmark/monitor/instrument/pmd"
	"github.com/wattmark/wattmark/monitor/instrument/pmd2"
	"github.com/wattmark/wattmark/monitor/instrument/powenetics"
	"github.com/wattmark/wattmark/monitor/instrument/powersensor3"
	"github.com/wattmark/wattmark/monitor/instrument/quarch"
	"github.com/wattmark/wattmark/monitor/instrument/scope"
	"github.com/wattmark/wattmark/monitor/instrument/serialtext"
	"github.com/wattmark/wattmark/monitor/instrument/wt300"
)

// decoder takes a recording apart once more, and returns the scans in it.
type decoder func() (scans int, err error)

// benchSubject is an instrument that can be emulated, and its decoder.
type benchSubject struct {
	emulated string
	// options changes the driver's defaults; may be nil.
	options func(any)
	// fits reports whether an answer holds samples; nil where the samples are a stream,
	// all of which the recording has.
	fits func([]byte) bool
	// scope: it delivers when it was stopped, one channel a run.
	scope   bool
	decoder func(*meterRecording) (decoder, error)
}

// wideNI is six inputs.
func wideNI(o any) { niInputs(o.(*nidaqmx.Options), 6, 1e6) }

// niInputs sets up so many inputs that give so many samples a second in all.
func niInputs(o *nidaqmx.Options, n int, samples float64) {
	o.Inputs, o.Rate = nil, samples/float64(n)
	for i := range n {
		o.Inputs = append(o.Inputs, nidaqmx.Input{AI: i, Name: fmt.Sprintf("ai%d", i)})
	}
}

// deep is a short window of a scope; its family sets a depth or not.
func deep(depth int) func(any) {
	return func(o any) { s := o.(*scope.Options); s.Window, s.Depth = 400*time.Millisecond, depth }
}

func anything([]byte) bool { return true }

// isBlock reports whether an answer is a block, possibly behind a short number.
func isBlock(b []byte) bool { return bytes.IndexByte(b[:min(4, len(b))], '#') >= 0 }

// benchSubjects are the instruments, one for each driver or more.
var benchSubjects = []benchSubject{
	{emulated: "powersensor3", decoder: decodePowerSensor3},
	{emulated: "pmd", decoder: decodePMD},
	{emulated: "pmd2", decoder: decodePMD2(pmd2.PMD2), fits: func(b []byte) bool { return len(b) == pmd2.PMD2.ReplyBytes }},
	{emulated: "wireview-pro2", decoder: decodePMD2(pmd2.WireView), fits: func(b []byte) bool {
		return len(b) == pmd2.WireView.ReplyBytes
	}},
	{emulated: "powenetics", decoder: decodePowenetics},
	{emulated: "quarch", decoder: decodeQuarch, fits: anything},
	{emulated: "labjack", decoder: decodeLabJack, options: fullT7},
	{emulated: "nidaqmx", decoder: decodeRaw, options: wideNI, fits: anything},
	{emulated: "di1100", decoder: decodeDATAQ},
	{emulated: "di2108", decoder: decodeDATAQ, options: func(o any) { o.(*dataq.Options).Model = "DI-2108" }},
	{emulated: "serialtext", decoder: decodeText},
	{emulated: "u2356a", decoder: decodeBlock, fits: isBlock},
	{emulated: "wt310", decoder: decodeWT300, fits: isBlock},
	{emulated: "ds1054z", decoder: decodeScope, fits: isBlock, scope: true, options: deep(30_000)},
	{emulated: "mso5074", decoder: decodeScope, fits: isBlock, scope: true, options: deep(100_000)},
	{emulated: "dho804", decoder: decodeScope, fits: isBlock, scope: true, options: deep(100_000)},
	{emulated: "dsox1102g", decoder: decodeScope, fits: isBlock, scope: true, options: deep(0)},
	{emulated: "sds2104x-plus", decoder: decodeScope, fits: isBlock, scope: true, options: deep(100_000)},
	{emulated: "rtb2004", decoder: decodeScope, fits: isBlock, scope: true, options: deep(100_000)},
	{emulated: "mdo3014", decoder: decodeScope, fits: isBlock, scope: true, options: deep(100_000)},
}

// measure decodes a recording for a time.
func (s *benchSubject) measure(ctx context.Context, r *meterRecording, each time.Duration) (decodeReport, error) {
	decode, err := s.decoder(r)
	if err != nil {
		return decodeReport{}, err
	}
	d := decodeReport{
		Driver: bench.DriverOf(s.emulated), Emulated: s.emulated, Bytes: len(r.bytes),
		Channels: r.counts.channels,
	}
	if d.Scans, err = decode(); err != nil || d.Scans == 0 {
		return d, errors.Join(err, fmt.Errorf("%d scans in %d bytes", d.Scans, len(r.bytes)))
	}
	perScan := float64(d.Channels)
	if s.scope {
		perScan = 1
	} else if tb := r.inputs.Timebase; tb.TicksPerScan > 0 {
		d.MeterPerS = float64(tb.TickHz) / tb.TicksPerScan * perScan
	}
	if err := r.plausible(s, d); err != nil {
		return d, err
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	cpu := processUsage().CPUS
	begin := time.Now()
	for time.Since(begin) < each && ctx.Err() == nil {
		for n := 0; n <= 100_000; n += d.Scans { // some recordings are short: the clock is not read for each
			if _, err := decode(); err != nil {
				return d, err
			}
			d.Passes++
		}
	}
	if cpu = processUsage().CPUS - cpu; cpu <= 0 { // a system that does not tell
		cpu = time.Since(begin).Seconds()
	}
	runtime.ReadMemStats(&after)
	samples := float64(d.Scans) * perScan
	d.SamplesPerS = samples * float64(d.Passes) / cpu
	d.AllocsPerSample = float64((after.Mallocs-before.Mallocs)/uint64(max(1, d.Passes))) / samples
	return d, ctx.Err()
}

// plausible holds the scans that a decoder finds in a stream against those that the driver
// delivered. On a busy machine the instrument may have sent more, which the driver was too
// late for; but no more than its rate makes of the time.
func (r *meterRecording) plausible(s *benchSubject, d decodeReport) error {
	if s.fits != nil {
		return nil // one answer of many
	}
	delivered := float64(r.counts.scans)
	sent := max(delivered, d.MeterPerS/float64(max(1, d.Channels))*r.lasted.Seconds())
	if n := float64(d.Scans); n < 0.9*delivered || n > 1.1*sent+100 {
		return fmt.Errorf("the decoder finds %d scans where the driver delivered %.0f and the instrument sent at "+
			"most %.0f", d.Scans, delivered, sent)
	}
	return nil
}

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

func decodePMD2(m *pmd2.Model) func(*meterRecording) (decoder, error) {
	counts := make([]measure.Count, 2*len(m.Sensors))
	return func(r *meterRecording) (decoder, error) {
		return func() (int, error) { return 1, m.Parse(r.bytes[:m.ReplyBytes], counts) }, nil
	}
}

func decodePowenetics(r *meterRecording) (decoder, error) {
	var p powenetics.Parser
	counts := make([]measure.Count, 2*powenetics.Connectors)
	return func() (n int, err error) {
		p = powenetics.Parser{}
		each(r.bytes, p.Next, func() {
			for c := range powenetics.Connectors {
				counts[2*c], counts[2*c+1] = measure.Count(p.Frame.Millivolts[c]),
					measure.Count(p.Frame.Milliamperes[c])
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
			_ = analog.ScansOf(labjack.Decode, p.Packet.Data, counts, func([]measure.Count) error { n++; return nil })
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

func decodeQuarch(r *meterRecording) (decoder, error) {
	head := "<header><version>V3</version><devicePeriod>64us</devicePeriod><channels>"
	for place := range r.counts.channels + 1 { // the last is a digital line
		unit := []string{"mV", "uA"}[place%2]
		if place == r.counts.channels {
			unit = "D"
		}
		head += fmt.Sprintf("<channel><name>%d</name><units>%s</units><maxTValue>9</maxTValue><dataPosition>%d</dataPosition></channel>",
			place, unit, place+1)
	}
	h, err := quarch.ParseHeader(head + "</channels></header>")
	counts := make([]measure.Count, r.counts.channels)
	return func() (n int, err error) {
		for line := range strings.Lines(string(r.bytes)) {
			if _, ok := h.Stripe(line, counts); ok {
				n++
			}
		}
		return n, nil
	}, err
}

func decodeText(r *meterRecording) (decoder, error) {
	o, err := optionsOf[serialtext.Options](r)
	if err != nil {
		return nil, err
	}
	p := serialtext.NewParser(*o)
	b := r.bytes[bytes.IndexByte(r.bytes, '\n')+1 : bytes.LastIndexByte(r.bytes, '\n')+1] // whole lines
	return func() (n int, err error) {
		each(b, p.Next, func() { n++ })
		if lines, _ := p.Unread(); lines > 0 {
			err = fmt.Errorf("%d lines could not be read", lines)
		}
		return n, err
	}, nil
}

// blockOf is the data of an answer that is a block: #, a digit n, n digits of length, the data.
func blockOf(r *meterRecording) ([]byte, error) {
	b := r.bytes[bytes.IndexByte(r.bytes, '#')+1:]
	begin := 1 + int(b[0]-'0')
	size, err := strconv.Atoi(string(b[1:begin]))
	if err != nil || len(b) < begin+size {
		return nil, fmt.Errorf("the block is not whole (%v)", err)
	}
	return b[begin : begin+size], nil
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
