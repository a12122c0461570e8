package perf

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/wattmark/wattmark/cmd/internal/bench"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	labjackface "github.com/wattmark/wattmark/monitor/emulator/labjack"
	niface "github.com/wattmark/wattmark/monitor/emulator/nidaqmx"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/analog"
	"github.com/wattmark/wattmark/monitor/instrument/labjack"
	"github.com/wattmark/wattmark/monitor/instrument/nidaqmx"
	"github.com/wattmark/wattmark/monitor/instrument/nidaqmx/nipb"
	"github.com/wattmark/wattmark/monitor/instrument/registry"
)

// instrumentsReport is the result of the instruments benchmark.
type instrumentsReport struct {
	Machine  machineReport  `json:"machine"`
	Decoders []decodeReport `json:"decoders"`
	Drivers  []driveReport  `json:"drivers"`
	Goals    []goal         `json:"goals"`
}

// decodeReport is how fast a driver's decoder is on bytes of its instrument. A
// sample is one channel's value.
type decodeReport struct {
	Driver   string `json:"driver"`
	Emulated string `json:"emulated"` // that sent the bytes
	Bytes    int    `json:"bytes"`    // of the recording
	Scans    int    `json:"scans"`    // in it
	Channels int    `json:"channels"`
	// SamplesPerS are those of a second of processor time.
	SamplesPerS float64 `json:"samples_per_cpu_s"`
	Passes      int     `json:"passes"` // over the recording
	// AllocsPerSample is of whole allocations a pass.
	AllocsPerSample float64 `json:"allocations_per_sample"`
	// MeterPerS is the rate of the instrument itself with these options; 0 for
	// scopes, which do not stream.
	MeterPerS float64 `json:"meter_samples_per_s,omitempty"`
}

// driveReport is the cost of a whole driver beside an instrument in a process of
// its own.
type driveReport struct {
	Name      string  `json:"name"`
	Inputs    int     `json:"inputs"`
	Wanted    float64 `json:"wanted_samples_per_s"`
	Samples   uint64  `json:"samples"`
	DurationS float64 `json:"duration_s"`
	Rate      float64 `json:"samples_per_s"`
	Lost      uint64  `json:"scans_lost"` // as the driver reported
	Cores     float64 `json:"driver_cores"`
}

type instrumentsFlags struct {
	each, record, drive float64
}

func benchInstruments(ctx context.Context, log io.Writer, f instrumentsFlags) (*instrumentsReport, error) {
	r := &instrumentsReport{Machine: describeMachine("")}
	r.Machine.FileSystem = "" // nothing is kept
	recordings, err := recordAll(ctx, ofSeconds(f.record))
	if err != nil {
		return nil, err
	}
	for i, s := range benchSubjects {
		d, err := s.measure(ctx, recordings[i], ofSeconds(f.each))
		if err != nil {
			return nil, fmt.Errorf("decoder of %s: %w", s.emulated, err)
		}
		r.Decoders = append(r.Decoders, d)
	}
	if f.drive > 0 {
		for _, s := range driveSubjects() {
			d, err := s.measure(ctx, ofSeconds(f.drive), log)
			if err != nil {
				return nil, fmt.Errorf("driver of %s: %w", s.name, err)
			}
			r.Drivers = append(r.Drivers, d)
		}
	}
	r.judge()
	r.render(log)
	return r, nil
}

// driveSubject is a driver at its instrument's full rate.
type driveSubject struct {
	name, emulated string
	inputs         int
	samples        float64 // a second, in all
	options        func(any)
}

// fullT7 is all that a T7 can stream, over four inputs.
func fullT7(o any) {
	l := o.(*labjack.Options)
	l.Inputs, l.ScanRate = nil, 25_000
	for i := range 4 {
		l.Inputs = append(l.Inputs, analog.Input{AIN: i})
	}
}

// driveSubjects are the drivers whose instruments are the fastest. A USB-6259
// converts 1.25 million times a second with one input, 1 million with several.
func driveSubjects() []driveSubject {
	ni := func(n int, samples float64) func(any) {
		return func(o any) { niInputs(o.(*nidaqmx.Options), n, samples) }
	}
	return []driveSubject{
		{"NI ReadRaw over gRPC, 1.25 MS/s", "nidaqmx", 1, 1.25e6, ni(1, 1.25e6)},
		{"NI ReadRaw over gRPC, 1 MS/s", "nidaqmx", 6, 1e6, ni(6, 1e6)},
		{"LabJack T7 over TCP, 100 kS/s", "labjack", 4, 100e3, fullT7},
	}
}

// measure runs the driver beside the instrument, a process of its own. What this
// process takes is counted from the start of the stream to its end.
func (s *driveSubject) measure(ctx context.Context, length time.Duration, stderr io.Writer) (driveReport, error) {
	r := driveReport{Name: s.name, Inputs: s.inputs, Wanted: s.samples}
	address, stop, err := startEmulator(ctx, s.emulated, stderr)
	if err != nil {
		return r, err
	}
	defer stop()
	d, _, err := newDriver(bench.DriverOf(s.emulated), address, s.options)
	if err == nil {
		err = d.Open(ctx)
	}
	if err != nil {
		return r, err
	}
	cpu, begin := processUsage().CPUS, time.Now()
	n, err := streamFor(ctx, d, length)
	cpu, r.DurationS = processUsage().CPUS-cpu, time.Since(begin).Seconds()
	if err = errors.Join(err, d.Close()); err != nil {
		return r, err
	}
	r.Samples, r.Lost = n.scans*uint64(n.channels), n.lost
	r.Rate, r.Cores = float64(r.Samples)/r.DurationS, cpu/r.DurationS
	return r, nil
}

// startEmulator starts this program again as an instrument. stop ends it.
func startEmulator(ctx context.Context, kind string, stderr io.Writer) (address string, stop func(), err error) {
	exe, err := os.Executable()
	if err != nil {
		return "", nil, fmt.Errorf("start the emulator: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	c := exec.CommandContext(ctx, exe, "emulate", kind, "--listen", "127.0.0.1:0", "--dwell", "1h")
	c.Stderr = stderr
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		cancel()
		return "", nil, fmt.Errorf("start the emulator: %w", err)
	}
	stop = func() { cancel(); _ = c.Wait() } // Wait reports the kill
	said := bufio.NewScanner(out)
	if said.Scan() {
		address = regexp.MustCompile(`tcp:[0-9.:]+[0-9]`).FindString(said.Text())
	}
	if address == "" {
		stop()
		return "", nil, fmt.Errorf("the emulator says %q, not where it listens", said.Text())
	}
	return address, stop, nil
}

// counting is a sink that counts, and keeps nothing.
type counting struct {
	scans, lost uint64
	channels    int
	begun       func() // called with the first block
}

// streamFor streams for length from the first block on, or from when the instrument samples where that delivers at the
// end. It waits a minute for that: a busy machine takes longer for it than for all that follows.
func streamFor(ctx context.Context, d instrument.Instrument, length time.Duration) (*counting, error) {
	ctx, cancel := context.WithTimeout(ctx, length+time.Minute)
	defer cancel()
	n := &counting{begun: func() { time.AfterFunc(length, cancel) }}
	sink := instrument.SinkOf(n)
	sink.Armed = func(time.Time) error { n.begun(); return nil } // it delivers once its context ends
	err := d.Stream(ctx, sink)
	if err == nil && n.scans == 0 {
		err = errors.New("no samples within a minute")
	}
	return n, err
}

// Block takes a block.
func (c *counting) Block(b *measure.Block) error {
	if c.scans == 0 {
		c.begun()
	}
	c.scans += uint64(b.Scans())
	c.channels = len(b.Counts)
	return nil
}

// Event takes an event.
func (c *counting) Event(e measure.Event) error {
	if e.Kind == measure.EventGap {
		c.lost += e.Scans
	}
	return nil
}

// meterRecording is the bytes that an instrument sent, and the blocks that its driver made.
type meterRecording struct {
	bytes   []byte
	driver  instrument.Instrument
	options any // of the driver
	inputs  instrument.Inputs
	counts  *counting
	began   time.Time     // before the stream was started
	lasted  time.Duration // until the instrument was gone
}

// recordAll records all instruments, some at a time.
func recordAll(ctx context.Context, length time.Duration) ([]*meterRecording, error) {
	all := make([]*meterRecording, len(benchSubjects))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for i, s := range benchSubjects {
		g.Go(func() (err error) {
			if all[i], err = s.record(ctx, length); err != nil {
				err = fmt.Errorf("record %s: %w", s.emulated, err)
			}
			return err
		})
	}
	return all, g.Wait()
}

// record lets a driver stream from an instrument over TCP for a time.
func (s *benchSubject) record(ctx context.Context, length time.Duration) (*meterRecording, error) {
	b, err := board.New(board.Config{Seed: 1})
	if err != nil {
		return nil, err
	}
	if _, err := b.SetLoad(0, load.Compute); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	t := &tap{fits: s.fits}
	address, ended, err := s.serve(ctx, b, t)
	if err != nil {
		cancel()
		return nil, err
	}
	r, err := s.take(ctx, address, length)
	cancel()
	if e := <-ended; err == nil && e != nil && !errors.Is(e, net.ErrClosed) {
		err = fmt.Errorf("the emulated instrument: %w", e)
	}
	if err != nil {
		return nil, err
	}
	r.lasted = time.Since(r.began)
	if r.bytes = t.longest(); len(r.bytes) == 0 {
		return nil, fmt.Errorf("no bytes of %d scans were recorded", r.counts.scans)
	}
	return r, nil
}

// serve puts the instrument on a port of this machine until ctx ends.
func (s *benchSubject) serve(ctx context.Context, b *board.Board, t *tap) (address string, ended chan error,
	err error,
) {
	ended = make(chan error, 1)
	clock := pace.Real(time.Now())
	if s.emulated == "labjack" {
		face, err := labjackface.New(b, clock, labjackface.Config{Seed: 1, Wrap: t.around})
		if err != nil {
			return "", nil, err
		}
		registers, stream, err := bench.ListenPair(ctx, "127.0.0.1:0")
		if err != nil {
			return "", nil, err
		}
		go func() { ended <- face.Serve(ctx, registers, stream) }()
		return "tcp:" + registers.Addr().String(), ended, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	address = "tcp:" + l.Addr().String()
	if s.emulated == "nidaqmx" {
		face, err := niface.New(b, clock, niface.Config{Seed: 1})
		if err != nil {
			return "", nil, errors.Join(err, l.Close())
		}
		server := grpc.NewServer()
		nipb.RegisterNiDAQmxServer(server, &niTap{face, t})
		context.AfterFunc(ctx, server.Stop)
		go func() { ended <- server.Serve(l) }()
		return address, ended, nil
	}
	face, err := bench.NewFace(s.emulated, b, clock.Epoch, bench.EmulateFlags{Seed: 1})
	if err != nil {
		return "", nil, errors.Join(err, l.Close())
	}
	go func() { ended <- serveOne(ctx, l, face, t) }()
	return address, ended, nil
}

// serveOne serves connections, one after another, until ctx ends.
func serveOne(ctx context.Context, l net.Listener, face bench.Firmware, t *tap) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		c, err := l.Accept()
		if err == nil {
			err = face.Run(ctx, t.around(c))
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// take opens the subject's driver and streams.
func (s *benchSubject) take(ctx context.Context, address string, length time.Duration) (*meterRecording, error) {
	d, o, err := newDriver(bench.DriverOf(s.emulated), address, s.options)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if err := d.Open(ctx); err != nil {
		return nil, err
	}
	r := &meterRecording{driver: d, options: o, inputs: d.Inputs(), began: time.Now()}
	r.counts, err = streamFor(ctx, d, length)
	return r, err
}

// newDriver makes a driver with its defaults, changed, and returns its options.
func newDriver(kind, address string, change func(any)) (instrument.Instrument, any, error) {
	k, err := registry.Lookup(kind)
	if err != nil {
		return nil, nil, err
	}
	o := k.Options()
	if change != nil {
		change(o)
	}
	d, err := k.New(registry.Env{}, address, o)
	return d, o, err
}

// optionsOf are the options of the driver that recorded.
func optionsOf[O any](r *meterRecording) (*O, error) {
	o, ok := r.options.(*O)
	if !ok {
		return nil, fmt.Errorf("the options are a %T", r.options)
	}
	return o, nil
}

// Goals of the instruments' benchmark.
const (
	goalRawScansPerS = 10e6 // of six channels
	goalDriverCores  = 0.1
)

// rawScans is the decoder that must take so many scans of six channels.
const rawScans = "nidaqmx"

// judge holds the results against the goals.
func (r *instrumentsReport) judge() {
	if len(r.Decoders) > 0 {
		worst := slices.MaxFunc(r.Decoders, func(a, b decodeReport) int {
			if a.AllocsPerSample < b.AllocsPerSample {
				return -1
			}
			return 1
		})
		n := worst.AllocsPerSample
		r.Goals = append(r.Goals, goal{"decoders, allocations a sample, most", "0", n, n == 0, fmt.Sprintf("%.3g", n)})
	}
	for _, d := range r.Decoders {
		if d.Driver == rawScans {
			r.Goals = append(r.Goals, atLeast("raw counts of six channels, decode alone", d.SamplesPerS/6,
				goalRawScansPerS, "million scans/s", 1e6))
		}
		if d.MeterPerS > 0 && d.SamplesPerS < d.MeterPerS {
			r.Goals = append(r.Goals, atLeast(d.Emulated+", its meter's own rate", d.SamplesPerS, d.MeterPerS,
				"samples/s", 1))
		}
	}
	for _, d := range r.Drivers {
		r.Goals = append(r.Goals,
			atMost(d.Name+", driver", d.Cores, goalDriverCores, "% of a core", 0.01),
			goal{d.Name + ", scans lost", "0", float64(d.Lost), d.Lost == 0, fmt.Sprint(d.Lost)})
	}
}

func (r *instrumentsReport) render(w io.Writer) {
	m := r.Machine
	fmt.Fprintf(w, "  machine  %s, %d cores, %s/%s, %s, load %.2f before\n\n", m.CPU, m.Cores, m.OS, m.Arch, m.Go,
		m.Load1)
	t := out.NewTable(w)
	t.AppendHeader(table.Row{
		"driver", "bytes of", "channels", "samples/s of one core", "allocations a sample",
		"the meter's samples/s", "of a core",
	})
	for _, d := range r.Decoders {
		rate, share := "", ""
		if d.MeterPerS > 0 {
			rate, share = fmt.Sprintf("%.4g", d.MeterPerS), fmt.Sprintf("%.2g %%", 100*d.MeterPerS/d.SamplesPerS)
		}
		t.AppendRow(table.Row{
			d.Driver, d.Emulated, d.Channels, fmt.Sprintf("%.3g M", d.SamplesPerS/1e6),
			fmt.Sprintf("%.3g", d.AllocsPerSample), rate, share,
		})
	}
	t.Render()
	if len(r.Drivers) > 0 {
		fmt.Fprintln(w)
		t = out.NewTable(w)
		t.AppendHeader(table.Row{"whole driver", "inputs", "wanted", "samples/s", "scans lost", "driver"})
		for _, d := range r.Drivers {
			t.AppendRow(table.Row{
				d.Name, d.Inputs, fmt.Sprintf("%.4g", d.Wanted), fmt.Sprintf("%.4g", d.Rate), d.Lost,
				fmt.Sprintf("%.1f %% of a core", 100*d.Cores),
			})
		}
		t.Render()
	}
	fmt.Fprintln(w)
	renderGoals(w, r.Goals)
}

// mostRecorded bounds a recording.
const mostRecorded = 8 << 20

// tap keeps the longest run of bytes that a device sent without a command
// anything in between: its stream, or its largest answer.
type tap struct {
	fits func([]byte) bool // nil for any

	mu        sync.Mutex
	run, best []byte
}

// tapped is a device's end of a line with a tap on it.
type tapped struct {
	io.ReadWriteCloser
	*tap
}

func (t *tap) around(rw io.ReadWriteCloser) io.ReadWriteCloser { return &tapped{rw, t} }

// Read passes commands to the device.
func (t *tapped) Read(b []byte) (int, error) {
	n, err := t.ReadWriteCloser.Read(b)
	if n > 0 {
		t.end()
	}
	return n, err
}

// Write passes the answers of the device.
func (t *tapped) Write(b []byte) (int, error) {
	n, err := t.ReadWriteCloser.Write(b)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.run = append(t.run, b[:min(n, mostRecorded-len(t.run))]...)
	return n, err
}

// end ends a run.
func (t *tap) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.run) > len(t.best) && (t.fits == nil || t.fits(t.run)) {
		t.run, t.best = t.best, t.run
	}
	t.run = t.run[:0]
}

// longest ends the recording.
func (t *tap) longest() []byte {
	t.end()
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clip(t.best)
}

// niTap keeps the largest reply to ReadRaw.
type niTap struct {
	*niface.Face
	*tap
}

// ReadRaw passes a read.
func (n *niTap) ReadRaw(ctx context.Context, q *nipb.ReadRawRequest) (*nipb.ReadRawResponse, error) {
	r, err := n.Face.ReadRaw(ctx, q)
	if err == nil {
		n.mu.Lock()
		if size := int(r.GetSampsRead()) * int(q.GetArraySizeInBytes()) / max(1,
			int(q.GetNumSampsPerChan())); size <= len(r.GetReadArray()) {
			n.run = append(n.run[:0], r.GetReadArray()[:size]...)
		}
		n.mu.Unlock()
		n.end()
	}
	return r, err
}
