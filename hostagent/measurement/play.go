package measurement

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/machine"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/hostagent/witness"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/store"
)

// playError is a failure of the GPU or of the markers, not of the work.
type playError struct {
	what string
	err  error
}

// Error names the step before its cause.
func (e *playError) Error() string { return e.what + ": " + e.err.Error() }
func (e *playError) Unwrap() error { return e.err }

// playing wraps an error as a playError; nil stays nil.
func playing(what string, err error) error {
	if err == nil {
		return nil
	}
	return &playError{what, err}
}

// beside runs f on a goroutine of its own until stop is called, which cancels f's context
// and returns f's error.
func beside(ctx context.Context, f func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	return func() error {
		cancel()
		return <-done
	}
}

// optional is beside for what the measurement can do without: its error is a warning.
func (s *attempt) optional(ctx context.Context, what string, f func(context.Context) error) (stop func()) {
	end := beside(ctx, f)
	return func() {
		if err := end(); err != nil && s.cfg.Warn != nil {
			s.cfg.Warn(fmt.Sprintf("task %d: %s: %v", s.id, what, err))
		}
	}
}

// MethodPrefix stands before the method in the names of the readings that the
// software methods made by themselves; the fields are in the sensor's own.
const MethodPrefix = "method."

// machineEvery is the distance of readings of the machine's sensors: RAPL counts anew each millisecond.
const machineEvery = 10 * time.Millisecond

// play runs the work between its markers. The GPU's sensor is sampled beside it, and read by
// the software methods, whose results over the work are stored at the end.
func (s *attempt) play(ctx context.Context, work Work) error {
	if s.cfg.WarmUp > 0 {
		s.enter(PhaseWarmUp)
		if err := s.cfg.Device.WarmUp(ctx, s.cfg.WarmUp); err != nil {
			return &playError{"warm up", err}
		}
	}
	s.enter(PhaseMarker)
	put := func(ctx context.Context, r []store.Reading) error {
		return s.cfg.DB.PutReadings(ctx, s.id, s.line.readings(r))
	}
	defer s.optional(ctx, "the machine's own sensors", func(ctx context.Context) error {
		return machine.Run(ctx, s.cfg.Machine, machineEvery, put)
	})()
	if s.cfg.Witness != nil {
		defer s.optional(ctx, "the witness line", func(ctx context.Context) error {
			return witness.Run(ctx, s.cfg.Witness, put)
		})()
	}
	if s.cfg.Sensor == nil {
		return s.bracket(ctx, work)
	}
	stopSampler := beside(ctx, func(ctx context.Context) error {
		return sensor.Sample(ctx, s.cfg.Sensor, put)
	})
	stopMethods := func() {}
	if !s.cfg.NoMethods {
		o := s.cfg.Methods
		o.Line = s.line.at
		s.watcher = sensor.NewWatcher(s.cfg.Sensor, o)
		stopMethods = s.watcher.Start(ctx)
	}
	err := s.bracket(ctx, work)
	sampleErr := stopSampler()
	stopMethods()
	return errors.Join(err, playing("read the GPU's sensor", sampleErr),
		playing("store what the software methods said", s.storeMethods(context.WithoutCancel(ctx))))
}

// storeMethods stores the methods' results, and the readings that the sampler has not stored.
// Without work there is no span, and nothing to store.
func (s *attempt) storeMethods(ctx context.Context) error {
	if s.watcher == nil || s.worked.Start.IsZero() {
		return nil
	}
	var readings []store.Reading
	for _, t := range s.watcher.Traces() {
		if t.Method == sensor.InstantField || t.Method == sensor.AverageField {
			continue
		}
		for _, p := range t.Points {
			readings = append(readings,
				store.Reading{Method: MethodPrefix + string(t.Method), At: p.At, Value: p.Value})
		}
	}
	return errors.Join(s.cfg.DB.PutMethods(ctx, s.id, s.watcher.Results(s.worked)),
		s.cfg.DB.PutReadings(ctx, s.id, readings))
}

// bracket runs the work between its markers. After work that was cancelled there is no stop
// marker; after work that failed there is one, and the samples are worth as much.
func (s *attempt) bracket(ctx context.Context, work Work) error {
	// The detector needs the idle level before the first chip, and after the last.
	if err := sensor.Pause(ctx, s.cfg.Lead); err != nil {
		return err
	}
	if err := s.mark(ctx, marker.Start); err != nil {
		return err
	}
	s.enter(PhaseWork)
	err := s.work(ctx, work)
	if s.cfg.Played != nil {
		// The markers that the work played itself, in the order of their times, are numbered from
		// 1 within their kind.
		inner, innerErr := s.cfg.Played()
		if innerErr != nil {
			return errors.Join(err, &playError{"read the markers around single kernels", innerErr})
		}
		n := map[marker.Kind]int{}
		for _, p := range inner {
			n[p.Kind]++
			if innerErr := s.putPlayed(ctx, n[p.Kind], p); innerErr != nil {
				return errors.Join(err, innerErr)
			}
		}
	}
	if ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	s.enter(PhaseMarker)
	if markErr := s.mark(ctx, marker.Stop); markErr != nil {
		return errors.Join(err, markErr)
	}
	return errors.Join(err, sensor.Pause(ctx, s.cfg.Lead))
}

// mark plays one of the two bounding markers, which have number 0 of their kind.
func (s *attempt) mark(ctx context.Context, kind marker.Kind) (err error) {
	if s.cfg.Unmarked {
		return nil
	}
	played, err := s.cfg.Device.PlayMarker(ctx, s.spec, kind)
	if err != nil {
		return &playError{fmt.Sprintf("the %v marker could not be played", kind), err}
	}
	return s.putPlayed(ctx, 0, played)
}

// putPlayed stores a marker's edges, on the line.
func (s *attempt) putPlayed(ctx context.Context, number int, p gpu.Played) error {
	edges := make([]store.Played, len(p.Edges))
	for i, e := range p.Edges {
		edges[i] = store.Played{Kind: p.Kind, Number: number, Chip: e.Chip, At: s.line.at(e.At)}
	}
	if err := s.watchClock(ctx); err != nil {
		return err
	}
	return playing("store the marker", s.cfg.DB.PutPlayed(context.WithoutCancel(ctx), s.id, edges))
}

// work runs the measured work and stores when it ran, and how it failed. The work's own
// error is kept in s.failed; the error returned is the database's or the GPU's.
func (s *attempt) work(ctx context.Context, work Work) (err error) {
	if err := s.condition(ctx); err != nil {
		return err
	}
	// All that takes time stands before the begin and after the end: the window of work that
	// returns no kernels is the time between these two readings of the clock.
	strangers := s.watchOthers(ctx)
	begin := s.line.now()
	if s.watcher != nil {
		s.watcher.Begin()
	}
	var kernels []gpu.Kernel
	endMarks, endRolling := s.amid(ctx), s.rollOn(ctx, begin)
	kernels, s.failed = work(ctx)
	if s.watcher != nil {
		s.watcher.End()
	}
	end := s.line.now()
	conditionErr := s.condition(ctx) // at once, while the clocks are still those of the work
	endMarks()
	endRolling()
	if len(kernels) == 0 {
		kernels = []gpu.Kernel{{Name: "work", Span: gpu.Span{Start: begin, End: end}}}
	}
	seen := strangers()
	rows := make([]store.Kernel, len(kernels)) // on the line
	for i, k := range kernels {
		rows[i] = store.Kernel{Name: k.Name, Start: s.line.at(k.Span.Start), End: s.line.at(k.Span.End)}
	}
	if from, to, ok := span(rows); ok {
		s.worked = gpu.Span{Start: from, End: to}
	}
	if err := errors.Join(s.watchClock(ctx), s.putFailure(ctx)); err != nil {
		return errors.Join(conditionErr, err)
	}
	keep := context.WithoutCancel(ctx)
	err = playing("store the kernels", s.cfg.DB.PutKernels(keep, s.id, rows))
	if err == nil && len(seen) > 0 {
		err = playing("store what other processes did", s.cfg.DB.PutEvents(keep, s.id, seen))
	}
	return errors.Join(conditionErr, err)
}

// putFailure stores how the work failed. Work that was cancelled has not failed.
func (s *attempt) putFailure(ctx context.Context) error {
	if s.failed == nil || ctx.Err() != nil {
		return nil
	}
	f := store.Failure{Reason: s.failed.Error()}
	if program, ok := errors.AsType[*ProgramError](s.failed); ok {
		f.ExitCode = &program.Code
	}
	return playing("store that the work failed", s.cfg.DB.PutFailure(context.WithoutCancel(ctx), s.id, f))
}

// condition stores the GPU's clocks, temperature and throttling, where its sensor reads them, and how far the
// machine's clock may be off UTC, where its kernel states it.
func (s *attempt) condition(ctx context.Context) error {
	var rows []store.Reading
	if c, err := machine.ReadClock(); err == nil {
		now := s.line.now()
		// The line does not follow the wall clock where that was set meanwhile.
		set := now.Round(0).Sub(s.line.base.Round(0)) - now.Sub(s.line.base)
		c.MaxError += set.Abs()
		rows = c.Readings(now)
	}
	if r, ok := s.cfg.Sensor.(gpu.ConditionReader); ok {
		rows = append(rows, sensor.ConditionReadings(r.Condition(), s.line.now())...)
	}
	return playing("store the condition of GPU and clock",
		s.cfg.DB.PutReadings(context.WithoutCancel(ctx), s.id, s.line.readings(rows)))
}

// EnvWork marks the processes that a measurement starts, and all that these start: its
// value is the number of the process that measures.
const EnvWork = "WATTMARK_WORK"

const (
	// lookEvery is the interval at which the GPU's processes are listed while the work runs:
	// one that begins and ends between two looks leaves no trace.
	lookEvery = time.Second
	// usedFrom is the share of the time from which another process has used the GPU, rather
	// than kept a desktop or a context there.
	usedFrom = 0.05
	// shareServer begins the names of CUDA's Multi-Process Service, which works for other
	// processes: its use may be this measurement's own.
	shareServer = "nvidia-cuda-mps"
)

// others notices processes on the GPU that are not this measurement's. Where the driver's
// process numbers are not those of this machine, as in a container, it reports none: this
// measurement's own process is then not among them.
type others struct {
	reader gpu.ProcessReader
	root   int // the process that measures, or the one that is measured

	seen  map[int]*seen // each that was there, also when it has gone since
	own   bool          // one of ours was among them
	begun time.Time
}

// seen is a process on the GPU, and the time for which it has used it; NaN where unknown.
type seen struct {
	gpu.ProcessUse
	seconds          float64
	sorted, stranger bool // whose it is, once that is known
}

// watchOthers lists the GPU's processes every lookEvery until stop is called, which returns
// an event for those that are not this measurement's.
func (s *attempt) watchOthers(ctx context.Context) (stop func() []measure.Event) {
	reader, ok := s.cfg.Sensor.(gpu.ProcessReader)
	if !ok {
		return func() []measure.Event { return nil }
	}
	o := &others{reader: reader, root: cmp.Or(s.cfg.Process, os.Getpid()), seen: map[int]*seen{}, begun: time.Now()}
	o.look()
	end := beside(ctx, func(ctx context.Context) error {
		for sensor.Pause(ctx, lookEvery) == nil {
			o.look()
		}
		return nil
	})
	return func() []measure.Event {
		_ = end()
		o.look()
		return o.events(time.Since(o.begun))
	}
}

// look sorts those that are there now, and notes how much they have used so far: the
// driver forgets.
func (o *others) look() {
	now := time.Now()
	list, err := o.reader.Processes(gpu.Span{Start: o.begun, End: now})
	if err != nil {
		return // a look that fails reports no process
	}
	for _, p := range list {
		// Busy is a share of the time since begun. A process that has gone keeps the most
		// that was seen of it.
		used := p.Busy * now.Sub(o.begun).Seconds()
		s := o.seen[p.PID]
		if s == nil {
			s = &seen{seconds: math.NaN()}
			o.seen[p.PID] = s
		}
		if math.IsNaN(s.seconds) || used > s.seconds {
			s.ProcessUse, s.seconds = p, used
		}
		if !s.sorted {
			s.stranger, s.sorted = o.stranger(p.PID)
			o.own = o.own || s.sorted && !s.stranger
		}
	}
}

// stranger reports whether a process was started by another than this measurement: neither
// root nor the bearer of EnvWork is among its ancestors. alive is false for a process that
// has ended.
func (o *others) stranger(pid int) (stranger, alive bool) {
	for at, depth := pid, 0; at > 0 && depth < 100; depth++ {
		if at == o.root {
			return false, true
		}
		raw, err := os.ReadFile("/proc/" + strconv.Itoa(at) + "/stat")
		// pid (name) state parent …: the name, in brackets, may hold anything.
		fields := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:])
		if err != nil || len(fields) < 2 {
			return false, false
		}
		if at, err = strconv.Atoi(string(fields[1])); err != nil {
			return false, false
		}
	}
	env, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ") // of another user it cannot be read
	mark := []byte(EnvWork + "=" + strconv.Itoa(o.root))
	return !slices.ContainsFunc(bytes.Split(env, []byte{0}), func(e []byte) bool { return bytes.Equal(e, mark) }), true
}

// events describes the strangers: those that used the GPU, and those that only held contexts
// there.
func (o *others) events(length time.Duration) (out []measure.Event) {
	if !o.own {
		return nil
	}
	var used, there []string
	for _, pid := range slices.Sorted(maps.Keys(o.seen)) {
		p := o.seen[pid]
		share := p.seconds / length.Seconds()
		text := strings.TrimSpace(fmt.Sprintf("process %d %s", p.PID, p.Name))
		switch {
		case !p.stranger, strings.HasPrefix(p.Name, shareServer):
		case share >= usedFrom:
			used = append(used, fmt.Sprintf("%s for %.0f %% of the time", text, 100*min(share, 1)))
		case math.IsNaN(share):
			there = append(there, text+" (how much it used the GPU is not told)")
		default:
			there = append(there, text)
		}
	}
	add := func(kind measure.EventKind, text string) {
		out = append(out, measure.Event{Kind: kind, Channel: -1, Detail: measure.Printable(text)})
	}
	if len(used) > 0 {
		add(measure.EventOthers, "other processes used the GPU while it was measured: "+strings.Join(used, ", ")+
			"; the energy holds what they drew")
	}
	if len(there) > 0 {
		add(measure.EventNote, "other processes had contexts on the GPU, and little or no work: "+
			strings.Join(there, ", "))
	}
	return out
}
