package reports

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"wattmark/analysis/sensor"
	"wattmark/analysis/validate"
	"wattmark/store"
)

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
	turn   chan struct{} // has one while nothing is worked out

	mu      sync.Mutex
	kept    map[store.TaskID]*verdict
	order   []store.TaskID // of kept, the one that was used last at the end
	waiting int
}

func newJudge(cfg *Config) *judge {
	j := &judge{cfg: cfg, turn: make(chan struct{}, 1), kept: map[store.TaskID]*verdict{}}
	j.ctx, j.cancel = context.WithCancel(context.Background())
	j.turn <- struct{}{}
	return j
}

func (j *judge) close() { j.cancel() }

// validation returns a task's validation. Who asks while it is worked out waits for
// the same one; it is finished, within its limit, also when nobody waits any more.
func (j *judge) validation(ctx context.Context, id store.TaskID) (*verdict, error) {
	t, err := j.cfg.DB.Task(ctx, id)
	if err != nil {
		return nil, err
	}
	if t.Scans > j.cfg.MaxScans {
		return nil, fmt.Errorf("%w here: it has %d scans, at most %d are judged on request: wattmark validate %d", errUnfit, t.Scans, j.cfg.MaxScans, id)
	}
	key, err := j.key(ctx, &t)
	if err != nil {
		return nil, err
	}
	v, err := j.find(key, &t)
	if err != nil {
		return nil, err
	}
	select {
	case <-v.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return v, v.err
}

// key says what a validation rests on: the result in force, what the methods said,
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
	if v := j.kept[t.ID]; v != nil && v.key == key {
		j.used(t.ID)
		return v, nil
	}
	if j.waiting >= mostWaiting {
		return nil, fmt.Errorf("%w: %d wait", errBusy, j.waiting)
	}
	v := &verdict{key: key, id: t.ID, number: t.ResultNumber, done: make(chan struct{})}
	j.kept[t.ID] = v
	j.used(t.ID)
	j.waiting++
	go j.work(v)
	return v, nil
}

// used puts a task at the end of the order, and drops what was not used for longest.
// The lock is held.
func (j *judge) used(id store.TaskID) {
	for i, x := range j.order {
		if x == id {
			j.order = append(j.order[:i], j.order[i+1:]...)
			break
		}
	}
	j.order = append(j.order, id)
	if len(j.order) > mostKept {
		delete(j.kept, j.order[0])
		j.order = j.order[1:]
	}
}

// work works one validation out when its turn has come. What failed is not kept.
func (j *judge) work(v *verdict) {
	defer close(v.done)
	ctx, cancel := context.WithTimeout(j.ctx, longest)
	defer cancel()
	select {
	case <-j.turn:
		v.report, v.err = j.run(ctx, v.id)
		v.made = time.Now()
		j.turn <- struct{}{}
	case <-ctx.Done():
		v.err = ctx.Err()
	}
	if j.ctx.Err() != nil {
		v.err = errStopped
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.waiting--
	if v.err != nil && j.kept[v.id] == v {
		delete(j.kept, v.id)
	}
}

func (j *judge) run(ctx context.Context, id store.TaskID) (*validate.Report, error) {
	s, err := j.cfg.Subject(ctx, id)
	if err != nil {
		return nil, unfit(err)
	}
	return validate.Run(ctx, s, validate.Options{Seed: 1, Columns: columns})
}

// unfit marks what a subject is refused for, unless the database is to blame.
func unfit(err error) error {
	for _, e := range []error{store.ErrNotFound, store.ErrBusy, store.ErrCorrupt, store.ErrIO, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, e) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", errUnfit, err)
}
