package reports

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/analysis/validate"
	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	// columns of a trace: as many as a wide screen has points for it.
	columns = 1200
	// mostKernels is how many kernels are named.
	mostKernels = 200
)

// ReadValidation returns a task's validation.
func (s *Service) ReadValidation(ctx context.Context, q *pb.ReadValidationRequest) (*pb.ReadValidationResponse, error) {
	if q.GetTaskId() <= 0 {
		return nil, status.Errorf(codes.InvalidArgument, "task_id: %d: task identities begin at 1", q.GetTaskId())
	}
	v, err := s.judge.validation(ctx, store.TaskID(q.GetTaskId()))
	if err != nil {
		return nil, toStatus("validate", err)
	}
	m := reportMessage(v.report)
	m.TaskId, m.Result, m.Made = int64(v.id), uint32(v.number), wire.Time(v.made)
	return m, nil
}

// reportMessage is a report as it travels; its times begin with the work.
func reportMessage(r *validate.Report) *pb.ReadValidationResponse {
	m := validationMessage(*r)
	m.DurationS, m.Clock, m.ClockUS = float64(r.Work.Length()), wire.Text(clockText(&r.Clock)), known(r.Clock.OffsetU)
	m.TraceFromS, m.TraceToS = float64(r.Trace.From-r.Work.From), float64(r.Trace.To-r.Work.From)
	m.Methods = lists.Map(r.Methods, func(x validate.MethodReport) *pb.ValidatedMethod {
		return methodMessage(&x, r.Work.From)
	})
	for _, l := range r.ByKernel(mostKernels) {
		switch k := kernelMessage(&l.KernelReport); l.Kind {
		case validate.OneKernel:
			m.Kernels = append(m.Kernels, k)
		case validate.OtherKernels:
			m.OtherKernels = k
		case validate.WithoutKernel:
			m.NoKernel = k
		case validate.AllKernels:
			m.KernelSum = k
		}
	}
	// The rest of the kernels is in OtherKernels, with its sum.
	m.MoreKernels = uint32(max(len(r.Kernels)-mostKernels, 0))
	// A column's time is that of its middle; the trace is cut into columns of one length.
	n := len(r.Trace.Columns)
	for i, c := range r.Trace.Columns {
		if math.IsNaN(float64(c.Mean)) { // no samples
			continue
		}
		m.TraceTS = append(m.TraceTS, m.TraceFromS+(float64(i)+0.5)*(m.TraceToS-m.TraceFromS)/float64(n))
		m.TraceMeanW = append(m.TraceMeanW, float64(c.Mean))
		m.TraceMinW = append(m.TraceMinW, float64(c.Min))
		m.TraceMaxW = append(m.TraceMaxW, float64(c.Max))
	}
	return m
}

// known is a number as it travels, not set where it is none.
func known[T ~float64](v T) *wrapperspb.DoubleValue {
	if x := float64(v); !math.IsNaN(x) && !math.IsInf(x, 0) {
		return wrapperspb.Double(x)
	}
	return nil
}

func energy(e validate.Truth) *pb.Energy {
	return &pb.Energy{EnergyJ: float64(e.Energy), EnergyUJ: float64(e.U)}
}

// clockText describes in short how the meter's clock was aligned with the host's.
func clockText(c *validate.Clock) string {
	how := cmp.Or(c.How, "as given")
	if measure.Known(c.DriftPPM) && measure.Known(c.DriftUPPM) {
		// + 0: no −0.0
		how += fmt.Sprintf("; it gains %+.1f ± %.1f ppm on the host's", math.Round(10*float64(c.DriftPPM))/10+0,
			c.DriftUPPM)
	}
	return how
}

var agreements = map[validate.Agreement]pb.Agreement{
	validate.Agrees: pb.Agreement_AGREEMENT_AGREES, validate.Reads: pb.Agreement_AGREEMENT_DIFFERS,
}

// methodMessage converts one method's results; its times begin at origin. Unknown figures
// are not set.
func methodMessage(x *validate.MethodReport, origin measure.Seconds) *pb.ValidatedMethod {
	m := validatedMethod(*x)
	m.LoPct, m.HiPct, m.Agreement = known(x.Interval.Lo), known(x.Interval.Hi), agreements[x.Agreement]
	if x.U > 0 {
		m.EnergyUJ = known(x.U)
	}
	for _, p := range x.Points { // no more than a plot can show: validate has thinned them
		m.PointTS = append(m.PointTS, float64(p.At-origin))
		m.PointW = append(m.PointW, float64(p.Power))
	}
	return m
}

// kernelMessage converts one kernel's energy with the errors of the methods.
func kernelMessage(x *validate.KernelReport) *pb.ValidatedKernel {
	m := validatedKernel(*x)
	for _, k := range x.Methods {
		m.Errors = append(m.Errors, &pb.KernelError{
			Method: wire.Text(k.Name), ErrorPct: known(k.ErrorPct), Agreement: agreements[k.Agreement],
		})
	}
	return m
}

var (
	errBusy    = errors.New("too many validations are asked for at once")
	errStopped = errors.New("the host is being stopped")
	// errUnfit: a validation of that task is not made here.
	errUnfit = errors.New("the task cannot be judged")
)

const (
	// mostKept is how many validations are kept; one is some 200 kB.
	mostKept = 32
	// mostWaiting is how many tasks may wait to be judged. One is judged at a time:
	// the machine has kernels to launch.
	mostWaiting = 8
	// longest is how long one may take.
	longest = 2 * time.Minute
)

// verdict is a validation that is kept, or is being worked out.
type verdict struct {
	key    string
	id     store.TaskID
	number int // of the result that is judged
	made   time.Time
	report *validate.Report
	err    error
	done   chan struct{} // closed when report or err is there
}

// judge works validations out and keeps the last ones.
type judge struct {
	cfg    *Config
	ctx    context.Context // until close
	cancel context.CancelFunc
	turn   chan struct{} // has one while a validation is worked out

	mu      sync.Mutex
	kept    []*verdict // at most mostKept, one of a task; the one that was used last at the end
	waiting int
}

// newJudge returns a judge whose work ends with ctx.
func newJudge(ctx context.Context, cfg *Config) *judge {
	j := &judge{cfg: cfg, turn: make(chan struct{}, 1)}
	j.ctx, j.cancel = context.WithCancel(ctx)
	return j
}

// validation returns a task's validation. Who asks while it is worked out waits for
// the same one; it is finished, within its limit, also when nobody waits any more.
func (j *judge) validation(ctx context.Context, id store.TaskID) (*verdict, error) {
	t, err := j.cfg.DB.Task(ctx, id)
	if err != nil {
		return nil, err
	}
	if t.Scans > j.cfg.MaxScans {
		return nil, fmt.Errorf("%w here: it has %s, at most %d are judged on request: wattmark validate %d",
			errUnfit, measure.Plural(t.Scans, "scan"), j.cfg.MaxScans, id)
	}
	key, err := j.key(ctx, &t)
	if err != nil {
		return nil, err
	}
	v, err := j.find(key, &t)
	if err != nil {
		return nil, err
	}
	// The work goes on without the caller: the next one finds it done.
	select {
	case <-v.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return v, v.err
}

// key identifies the input of a validation: the result in force, the methods' results
// and the profiles of the GPU's sensor.
func (j *judge) key(ctx context.Context, t *store.Task) (string, error) {
	methods, err := j.cfg.DB.Methods(ctx, t.ID)
	if err != nil {
		return "", err
	}
	profiles, err := j.cfg.DB.Analyses(ctx, sensor.Kind)
	if err != nil {
		return "", err
	}
	// All that Run reads and that can change: a validation of another key is worked out anew.
	h := sha256.New()
	fmt.Fprintln(h, t.ID, t.State, t.ResultNumber, t.CalibrationID, t.Scans)
	if t.Result != nil {
		fmt.Fprintln(h, t.Result.From, t.Result.To, t.Result.Total)
	}
	for _, m := range methods {
		fmt.Fprintf(h, "%+v\n", m)
	}
	for _, p := range profiles {
		fmt.Fprintln(h, p.Name, p.Version)
	}
	return string(h.Sum(nil)), nil
}

// find returns the validation of a key: kept, under way, or begun now.
func (j *judge) find(key string, t *store.Task) (*verdict, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if i := slices.IndexFunc(j.kept, func(v *verdict) bool { return v.id == t.ID && v.key == key }); i >= 0 {
		v := j.kept[i]
		j.keep(v)
		return v, nil
	}
	if j.waiting >= mostWaiting {
		return nil, fmt.Errorf("%w: %d wait", errBusy, j.waiting)
	}
	// It is kept at once, unfinished: who asks for it meanwhile waits on done.
	v := &verdict{key: key, id: t.ID, number: t.ResultNumber, done: make(chan struct{})}
	j.keep(v)
	j.waiting++
	go j.work(v)
	return v, nil
}

// keep puts a verdict at the end of the kept ones, in place of its task's earlier one, and drops the
// least recently used one. The lock is held.
func (j *judge) keep(v *verdict) {
	j.kept = append(slices.DeleteFunc(j.kept, func(x *verdict) bool { return x.id == v.id }), v)
	if len(j.kept) > mostKept {
		j.kept = slices.Delete(j.kept, 0, 1)
	}
}

// work works one validation out when its turn has come. What failed is not kept.
func (j *judge) work(v *verdict) {
	defer close(v.done)
	ctx, cancel := context.WithTimeout(j.ctx, longest)
	defer cancel()
	select {
	case j.turn <- struct{}{}:
		v.report, v.err = run(ctx, j.cfg.Subject, v.id)
		v.made = time.Now()
		<-j.turn
	case <-ctx.Done():
		v.err = ctx.Err()
	}
	if j.ctx.Err() != nil {
		v.err = errStopped
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.waiting--
	if v.err != nil {
		j.kept = slices.DeleteFunc(j.kept, func(x *verdict) bool { return x == v })
	}
}

// run validates a task, with a fixed seed: the same data give the same intervals. A subject that is
// refused is errUnfit, unless the database is to blame.
func run(ctx context.Context, subject Subject, id store.TaskID) (*validate.Report, error) {
	s, err := subject(ctx, id)
	if err == nil {
		return validate.Run(ctx, s, validate.Options{Seed: 1, Columns: columns})
	}
	for _, e := range []error{
		store.ErrNotFound, store.ErrBusy, store.ErrCorrupt, store.ErrIO, context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, e) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: %w", errUnfit, err)
}
