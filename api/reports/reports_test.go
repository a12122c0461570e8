package reports

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/analysis/validate"
	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// launched is when the tasks were launched.
var launched = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// database is a task database of three tasks of 100 J.
type database struct {
	mu       sync.Mutex
	methods  map[store.TaskID][]store.MethodResult
	analyses []store.Analysis
	errs     []store.MethodError
}

func open(*testing.T) *database { return &database{methods: map[store.TaskID][]store.MethodResult{}} }

func (d *database) Task(_ context.Context, id store.TaskID) (x store.Task, err error) {
	if id < 1 || id > 3 {
		return x, fmt.Errorf("read task %d: %w", id, store.ErrNotFound)
	}
	x.ID, x.State, x.Scans, x.ResultNumber, x.CalibrationID = id, store.Complete, 10000, 1, "c1"
	x.Result = &measure.Result{From: 0.1, To: 0.9, Mean: 125, Total: measure.Estimate{Energy: 100, U: 1}}
	return x, nil
}

func (d *database) Methods(_ context.Context, id store.TaskID) ([]store.MethodResult, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.methods[id], nil
}

// Analyses are by name and version, as the store has them.
func (d *database) Analyses(_ context.Context, kind string) (out []store.Analysis, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.analyses {
		if a.Kind == kind {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b store.Analysis) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	return out, nil
}

func (d *database) MethodErrors(_ context.Context, limit int) ([]store.MethodError, int, bool, error) {
	return d.errs, len(d.errs), len(d.errs) > limit, nil
}

// put adds an analysis as the newest version of its name.
func (d *database) put(kind, name, content string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := store.Analysis{Kind: kind, Name: name, Version: 1, Made: launched, Maker: "test", Content: json.RawMessage(content), Tasks: []store.TaskID{1}}
	for _, b := range d.analyses {
		if b.Kind == kind && b.Name == name {
			a.Version++
		}
	}
	d.analyses = append(d.analyses, a)
}

// second is a second of 100 W, of which a method saw 110 W.
func second(id store.TaskID) validate.Subject {
	s := validate.Subject{
		Name: fmt.Sprintf("task %d", id), GPU: "H200", Driver: "580", Meter: "powersensor3", Origin: launched,
		Work: validate.Span{From: 0, To: 1}, Missing: []string{"pcie_3v3"}, Clock: validate.Clock{DriftPPM: measure.Number(math.NaN()), DriftUPPM: measure.Number(math.NaN())},
		Kernels: []validate.Kernel{{Name: "gemm", Span: validate.Span{From: 0.1, To: 0.9}}},
	}
	s.Truth = func(yield func(validate.Sample, error) bool) {
		for i := -500; i < 1500; i++ {
			if !yield(validate.Sample{At: measure.Seconds(i) / 1000, Power: 100}, nil) {
				return
			}
		}
	}
	m := validate.Method{Name: "instant", Energy: measure.Joule(math.NaN())}
	for i := range 20 {
		m.Readings = append(m.Readings, validate.Reading{At: measure.Seconds(i) / 20, Power: 110})
	}
	s.Methods = []validate.Method{m}
	return s
}

// service makes a service whose subjects are counted.
func service(t *testing.T, db *database, cfg Config) (*Service, *atomic.Int32) {
	t.Helper()
	var made atomic.Int32
	cfg.DB, cfg.ValidationKind = db, "validation"
	if cfg.Subject == nil {
		cfg.Subject = func(_ context.Context, id store.TaskID) (validate.Subject, error) { return second(id), nil }
	}
	inner := cfg.Subject
	cfg.Subject = func(ctx context.Context, id store.TaskID) (validate.Subject, error) {
		made.Add(1)
		return inner(ctx, id)
	}
	s := New(t.Context(), cfg)
	t.Cleanup(s.Close)
	return s, &made
}

func read(t *testing.T, s *Service, id int64) *pb.ReadValidationResponse {
	t.Helper()
	r, err := s.ReadValidation(t.Context(), &pb.ReadValidationRequest{TaskId: id})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestValidation(t *testing.T) {
	s, made := service(t, open(t), Config{})
	r := read(t, s, 1)
	if r.TaskId != 1 || r.Result != 1 || r.Gpu != "H200" || math.Abs(r.Energy.EnergyJ-100) > 1e-6 || r.DurationS != 1 || r.Verdict == "" || r.Made == nil {
		t.Errorf("%v", r)
	}
	m := r.Methods[0]
	if m.Name != "instant" || math.Abs(m.ErrorPct.GetValue()-10) > 1 || m.Agreement != pb.Agreement_AGREEMENT_UNSPECIFIED || // what the meter does not see may be the 10 W
		len(m.PointTS) != 20 || m.PointW[0] != 110 {
		t.Errorf("%v", m)
	}
	if last := m.PointTS[len(m.PointTS)-1]; last != 0.95 {
		t.Errorf("the last reading drawn is of %v s", last)
	}
	if len(r.TraceMeanW) != columns || math.Abs(r.TraceMeanW[columns/2]-100) > 1e-6 || len(r.Kernels) != 1 || len(r.Kernels[0].Errors) != 1 || len(r.Unseen) != 1 || r.Clock != "as given" {
		t.Errorf("trace of %d, kernels %v, unseen %v, clock %q", len(r.TraceMeanW), r.Kernels, r.Unseen, r.Clock)
	}
	// Again: kept. Another result in force, another profile: anew.
	read(t, s, 1)
	if made.Load() != 1 {
		t.Errorf("made %d times", made.Load())
	}
	db := s.cfg.DB.(*database)
	db.mu.Lock()
	db.methods[1] = []store.MethodResult{{Method: "sma", From: launched, To: launched, Mean: 1}}
	db.mu.Unlock()
	read(t, s, 1)
	db.put(sensor.Kind, "GPU-1 instant", profileJSON(t))
	read(t, s, 1)
	if made.Load() != 3 {
		t.Errorf("made %d times after two changes", made.Load())
	}
}

// Many ask for the same at once: it is worked out once, and one at a time; who goes
// away does not spoil it for the others.
func TestValidationIsSharedAndBounded(t *testing.T) {
	var running, most atomic.Int32
	gate, begun := make(chan bool), make(chan bool, 3)
	s, made := service(t, open(t), Config{Subject: func(_ context.Context, id store.TaskID) (validate.Subject, error) {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		begun <- true
		<-gate
		return second(id), nil
	}})
	gone, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := s.ReadValidation(gone, &pb.ReadValidationRequest{TaskId: 1}); status.Code(err) != codes.Canceled {
			t.Errorf("who went away was told %v", err)
		}
	})
	for i := range 12 {
		wg.Go(func() {
			if _, err := s.ReadValidation(t.Context(), &pb.ReadValidationRequest{TaskId: int64(1 + i%3)}); err != nil {
				t.Error(err)
			}
		})
	}
	<-begun // the first is under way
	leave()
	for range 3 {
		gate <- true
	}
	wg.Wait()
	if made.Load() != 3 || most.Load() != 1 {
		t.Errorf("made %d times for three tasks, %d at once", made.Load(), most.Load())
	}
	if n := len(s.judge.kept); n != 3 || s.judge.waiting != 0 {
		t.Errorf("%d kept, %d waiting", n, s.judge.waiting)
	}
}

func TestRefusals(t *testing.T) {
	broken := errors.New("no methods were read beside it")
	s, made := service(t, open(t), Config{Subject: func(_ context.Context, id store.TaskID) (validate.Subject, error) {
		x := second(id)
		if id == 2 {
			return x, broken
		}
		x.Truth = iter.Seq2[validate.Sample, error](func(yield func(validate.Sample, error) bool) { yield(validate.Sample{}, store.ErrCorrupt) })
		return x, nil
	}})
	for id, want := range map[int64]codes.Code{0: codes.InvalidArgument, -1: codes.InvalidArgument, 1: codes.DataLoss, 2: codes.FailedPrecondition, 99: codes.NotFound} {
		if _, err := s.ReadValidation(t.Context(), &pb.ReadValidationRequest{TaskId: id}); status.Code(err) != want {
			t.Errorf("task %d: %v, want %v", id, err, want)
		}
	}
	if _, err := s.ReadValidation(t.Context(), &pb.ReadValidationRequest{TaskId: 2}); made.Load() != 3 || !strings.Contains(err.Error(), broken.Error()) {
		t.Errorf("a failure is kept: %d, %v", made.Load(), err)
	}
	s, made = service(t, open(t), Config{MaxScans: 100})
	if _, err := s.ReadValidation(t.Context(), &pb.ReadValidationRequest{TaskId: 1}); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "wattmark validate 1") || made.Load() != 0 {
		t.Errorf("too long: %v", err)
	}
	s.Close()
	s, _ = service(t, open(t), Config{})
	s.Close()
	if _, err := s.ReadValidation(t.Context(), &pb.ReadValidationRequest{TaskId: 1}); status.Code(err) != codes.Unavailable {
		t.Errorf("after the end: %v", err)
	}
}

func TestKeptIsBounded(t *testing.T) {
	j := newJudge(t.Context(), &Config{})
	j.cancel()
	for id := range store.TaskID(100) {
		j.mu.Lock()
		j.keep(&verdict{id: id})
		j.keep(&verdict{id: 0})
		j.mu.Unlock()
	}
	// Task 0, and the last ones of the others.
	if n := len(j.kept); n != mostKept || j.kept[0].id != 69 || j.kept[n-2].id != 99 || j.kept[n-1].id != 0 {
		t.Errorf("%d kept, %v", n, lists.Map(j.kept, func(v *verdict) store.TaskID { return v.id }))
	}
}

func profileJSON(t *testing.T) string {
	t.Helper()
	b, err := json.Marshal(sensor.Profile{
		Field: "instant", GPU: "H200", UUID: "GPU-1", Driver: "580", Model: sensor.Boxcar, Period: 0.1, UPeriod: 1e-5, Window: 0.025, UWindow: 5e-4,
		Gain: 1.01, UGain: 0.002, Calibrated: true, Seen: 0.25, USeen: 0.005, Evidence: &sensor.Evidence{Updates: 163},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestSensors(t *testing.T) {
	db := open(t)
	s, _ := service(t, db, Config{})
	db.put(sensor.Kind, "GPU-1 instant", profileJSON(t))
	db.put(sensor.Kind, "GPU-1 instant", profileJSON(t))
	db.put(sensor.Kind, "GPU-2 average", strings.NewReplacer(`"boxcar"`, `"first-order"`, `"tau_s":0`, `"tau_s":0.7`, "GPU-1", "GPU-2").Replace(profileJSON(t)))
	db.put(sensor.Kind, "GPU-3 usage", `{"model":"magic"}`)
	for _, c := range []struct {
		q    *pb.ListSensorsRequest
		want string
	}{
		{&pb.ListSensorsRequest{}, "[GPU-1 v2 0.025 GPU-2 v1 0.7]"},
		{&pb.ListSensorsRequest{AllVersions: true}, "[GPU-1 v1 0.025 GPU-1 v2 0.025 GPU-2 v1 0.7]"},
		{&pb.ListSensorsRequest{GpuUuid: "GPU-2"}, "[GPU-2 v1 0.7]"},
	} {
		r, err := s.ListSensors(t.Context(), c.q)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range r.Sensors {
			got = append(got, fmt.Sprintf("%s v%d %v", p.GpuUuid, p.Version, p.ConstantS))
		}
		if fmt.Sprint(got) != c.want || len(r.Unreadable) != 1 || !strings.Contains(r.Unreadable[0], "GPU-3") {
			t.Errorf("%v: %v, unreadable %q", c.q, got, r.Unreadable)
		}
	}
	r, _ := s.ListSensors(t.Context(), &pb.ListSensorsRequest{})
	if p := r.Sensors[0]; p.Updates != 163 || p.Gain != 1.01 || p.ShareSeen != 0.25 || p.Model != pb.SensorModel_SENSOR_MODEL_BOXCAR || p.TaskIds[0] != 1 || !p.Calibrated {
		t.Errorf("%v", p)
	}
}

func TestSensorErrors(t *testing.T) {
	db := open(t)
	s, _ := service(t, db, Config{})
	for id, said := range map[store.TaskID]measure.Watt{1: 90, 2: 110, 3: 130} {
		db.errs = append(db.errs, store.MethodError{Task: id, GPU: "H200", Method: "sma", Said: said, Truth: 100, Partial: true})
	}
	r, err := s.ListSensorErrors(t.Context(), &pb.ListSensorErrorsRequest{})
	if err != nil || r.Tasks != 3 || r.More || len(r.Errors) != 1 {
		t.Fatalf("%v, %v", r, err)
	}
	// Mean +10 %, standard deviation 20 %: half of Student's interval is 4.303·20/√3.
	e := r.Errors[0]
	if e.Method != "sma" || e.Gpu != "H200" || math.Abs(e.MeanErrorPct-10) > 1e-9 || math.Abs(e.MeanErrorUPct.GetValue()-49.68) > 0.01 ||
		math.Abs(e.MinErrorPct+10) > 1e-9 || math.Abs(e.MaxErrorPct-30) > 1e-9 || e.WorstTaskId != 3 || e.NewestTaskId != 3 || e.PartialTasks != 3 {
		t.Errorf("%v", e)
	}
	if u := errorsOf([]store.MethodError{{Said: 1, Truth: 1}, {Said: 2, Truth: 1}}).MeanErrorUPct; u != nil {
		t.Errorf("an interval of two tasks: %v", u)
	}
}

func TestSavedValidations(t *testing.T) {
	db := open(t)
	s, _ := service(t, db, Config{})
	db.put("validation", "one", `{"name":"task 1","gpu":"H200","verdict":"sma reads low"}`)
	db.put("validation", "many", `{"subjects":[{"name":"task 1","verdict":"a"},{"name":"task 2","verdict":"b"}],"summary":[]}`)
	db.put("validation", "alien", `[1]`)
	r, err := s.ListValidations(t.Context(), &pb.ListValidationsRequest{})
	if err != nil || len(r.Validations) != 3 || r.More {
		t.Fatalf("%v, %v", r, err)
	}
	n := map[string]int{}
	for _, v := range r.Validations {
		n[v.Name] = len(v.Verdicts)
	}
	if n["one"] != 1 || n["many"] != 2 || n["alien"] != 0 {
		t.Errorf("%v", n)
	}
	if r, err = s.ListValidations(t.Context(), &pb.ListValidationsRequest{PageSize: 2}); err != nil || len(r.Validations) != 2 || !r.More {
		t.Errorf("%v, %v", r, err)
	}
	if _, err = s.ListValidations(t.Context(), &pb.ListValidationsRequest{PageSize: -1}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("%v", err)
	}
}

// Of many readings those are drawn that a plot needs: the extremes, and the last one.
func TestManyReadings(t *testing.T) {
	s, _ := service(t, open(t), Config{Subject: func(_ context.Context, id store.TaskID) (validate.Subject, error) {
		x := second(id)
		m := &x.Methods[0]
		m.Readings = nil
		for i := range 8001 {
			m.Readings = append(m.Readings, validate.Reading{At: measure.Seconds(i) / 8000, Power: 110})
		}
		m.Readings[4001].Power = 300
		return x, nil
	}})
	m := read(t, s, 1).Methods[0]
	if n := len(m.PointTS); n > 3*columns || m.PointTS[n-1] != 1 || slices.Max(m.PointW) != 300 {
		t.Errorf("%d readings, the last of %v s, up to %v W", n, m.PointTS[n-1], slices.Max(m.PointW))
	}
}
