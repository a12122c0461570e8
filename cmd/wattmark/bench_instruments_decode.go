package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"wattmark/monitor/instrument/dataq"
	"wattmark/monitor/instrument/nidaqmx"
	"wattmark/monitor/instrument/pmd2"
	"wattmark/monitor/instrument/scope"
)

// decoder takes a recording apart once more, and returns the scans in it.
type decoder func() (scans int, err error)

// benchSubject is an instrument that can be emulated, and its decoder.
type benchSubject struct {
	emulated string
	// options changes the driver's defaults; may be nil.
	options func(any)
	// fits tells what is an answer with samples; nil where the samples are a stream,
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

// isBlock tells an answer that is a block, possibly behind a short number.
func isBlock(b []byte) bool { return bytes.IndexByte(b[:min(4, len(b))], '#') >= 0 }

// benchSubjects are the instruments, one for each driver or more.
var benchSubjects = []benchSubject{
	{emulated: "powersensor3", decoder: decodePowerSensor3},
	{emulated: "pmd", decoder: decodePMD},
	{emulated: "pmd2", decoder: decodePMD2, fits: func(b []byte) bool { return len(b) == pmd2.ReplyBytes }},
	{emulated: "powenetics", decoder: decodePowenetics},
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
	{emulated: "mdo3014", decoder: decodeScope, fits: isBlock, scope: true, options: deep(100_000)},
}

// measure decodes a recording for a time.
func (s *benchSubject) measure(ctx context.Context, r *meterRecording, each time.Duration) (decodeReport, error) {
	decode, err := s.decoder(r)
	if err != nil {
		return decodeReport{}, err
	}
	d := decodeReport{Driver: driverOf(s.emulated), Emulated: s.emulated, Bytes: len(r.bytes), Channels: r.counts.channels}
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
	cpu := processUsage().cpu()
	begin := time.Now()
	for time.Since(begin) < each && ctx.Err() == nil {
		for n := 0; n <= 100_000; n += d.Scans { // some recordings are short: the clock is not read for each
			if _, err := decode(); err != nil {
				return d, err
			}
			d.Passes++
		}
	}
	if cpu = processUsage().cpu() - cpu; cpu <= 0 { // a system that does not tell
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
		return fmt.Errorf("the decoder finds %d scans where the driver delivered %.0f and the instrument sent at most %.0f", d.Scans, delivered, sent)
	}
	return nil
}
