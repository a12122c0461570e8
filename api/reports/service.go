// Package reports is wattmark.v1.ReportService: the profiles of GPUs' own sensors,
// and a task's validation. A validation is worked out when somebody asks for it, so
// it is of the result in force; one kept under a name stays as it was made.
//
//	Service   the calls, over the store
//	judge     works validations out: one at a time, the last ones kept
package reports

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/analysis/validate"
	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

// Database is the part of the task database that the service reads. *store.DB is one.
type Database interface {
	Task(ctx context.Context, id store.TaskID) (store.Task, error)
	Methods(ctx context.Context, id store.TaskID) ([]store.MethodResult, error)
	Analyses(ctx context.Context, kind string) ([]store.Analysis, error)
	MethodErrors(ctx context.Context, limit int) (list []store.MethodError, tasks int, more bool, err error)
}

// Subject makes the subject of a validation of a stored task. Its truth is read while
// the validation runs.
type Subject func(ctx context.Context, id store.TaskID) (validate.Subject, error)

// Config is the data and the limits of a service.
type Config struct {
	DB      Database
	Subject Subject
	// Compare compares tasks of both sides, with the work of a run, and returns JSON. Errors that
	// wrap ErrRequest are the asker's. Nil: ReadComparison is Unimplemented.
	Compare func(ctx context.Context, a, b []store.TaskID, work []string) ([]byte, error)
	// Swings returns how a task's power varies, as JSON. Errors that wrap ErrRequest are the asker's. Nil: ReadSwings
	// is Unimplemented.
	Swings func(ctx context.Context, id store.TaskID, step string) ([]byte, error)
	// ValidationKind is the kind of analysis that wattmark validate keeps.
	ValidationKind string
	// MaxScans is the longest task that is judged for who asks here, in scans; 2^26
	// when zero: 55 minutes at 20 kHz.
	MaxScans uint64
}

// Service is ReportService.
type Service struct {
	pb.UnimplementedReportServiceServer
	cfg   Config
	judge *judge
}

// New returns the service. Validations under way end with ctx, or with Close.
func New(ctx context.Context, cfg Config) *Service {
	cfg.MaxScans = cmp.Or(cfg.MaxScans, 1<<26)
	return &Service{cfg: cfg, judge: newJudge(ctx, &cfg)}
}

// Register adds the service to a server.
func (s *Service) Register(server *grpc.Server) { pb.RegisterReportServiceServer(server, s) }

// Close gives up the validations under way; all that wait get errStopped.
func (s *Service) Close() { s.judge.cancel() }

// toStatus turns an error of an operation into a status by outcomes.
func toStatus(operation string, err error) error { return wire.Status(operation, err, outcomes) }

// ListValidations returns the kept validations, newest first.
func (s *Service) ListValidations(ctx context.Context,
	q *pb.ListValidationsRequest,
) (*pb.ListValidationsResponse, error) {
	n := int(q.GetPageSize())
	if n < 0 {
		return nil, status.Errorf(codes.InvalidArgument, "page_size: %d: want 0 or more", n)
	}
	n = min(cmp.Or(n, 100), 1000)
	// The store lists by name and version; a page shows what was made last.
	list, err := s.cfg.DB.Analyses(ctx, s.cfg.ValidationKind)
	if err != nil {
		return nil, toStatus("list validations", err)
	}
	slices.SortStableFunc(list, func(a, b store.Analysis) int {
		return cmp.Or(b.Made.Compare(a.Made), cmp.Compare(b.Version, a.Version))
	})
	shown := lists.Map(list[:min(n, len(list))], saved)
	return &pb.ListValidationsResponse{More: len(list) > n, Validations: shown}, nil
}

// kept is the part that is read of a kept validation: one subject, or several in a list.
type kept struct {
	subject
	Subjects []subject `json:"subjects"`
}

// subject is the part of a kept validation that names its GPU and its verdict.
type subject struct {
	Name    string `json:"name"`
	GPU     string `json:"gpu"`
	Driver  string `json:"driver"`
	Verdict string `json:"verdict"`
}

// saved converts a kept validation to its entry in a list. Content that cannot be read,
// of another program, leaves the name alone.
func saved(a store.Analysis) *pb.SavedValidation {
	m := analysisMessage(a)
	var x kept
	if json.Unmarshal(a.Content, &x) != nil { // of another program: its name is all there is
		return m
	}
	if x.Verdict != "" {
		x.Subjects = append(x.Subjects, x.subject)
	}
	m.Verdicts = lists.Map(x.Subjects, func(v subject) *pb.SavedVerdict {
		return &pb.SavedVerdict{
			Name: wire.Text(v.Name), Gpu: wire.Text(v.GPU), Driver: wire.Text(v.Driver), Verdict: wire.Text(v.Verdict),
		}
	})
	return m
}

// ListSensors returns stored profiles.
func (s *Service) ListSensors(ctx context.Context, q *pb.ListSensorsRequest) (*pb.ListSensorsResponse, error) {
	list, err := s.cfg.DB.Analyses(ctx, sensor.Kind)
	if err != nil {
		return nil, toStatus("list sensors", err)
	}
	// Versions of one profile are neighbours, the newest last: a successor of the same name replaces it.
	r := &pb.ListSensorsResponse{}
	for i := range list {
		replaced := i+1 < len(list) && list[i+1].Name == list[i].Name
		if replaced && !q.GetAllVersions() {
			continue
		}
		p, err := profile(&list[i])
		switch {
		case err != nil:
			r.Unreadable = append(r.Unreadable, wire.Text(err.Error()))
		case q.GetGpuUuid() == "" || p.GpuUuid == q.GetGpuUuid():
			r.Sensors = append(r.Sensors, p)
		}
	}
	return r, nil
}

var models = map[sensor.Model]pb.SensorModel{
	sensor.Boxcar: pb.SensorModel_SENSOR_MODEL_BOXCAR, sensor.FirstOrder: pb.SensorModel_SENSOR_MODEL_FIRST_ORDER,
}

// profile reads and validates a stored profile of a sensor. The constant is the window of
// a boxcar (s) or the time constant of a first-order lag (s).
func profile(a *store.Analysis) (*pb.SensorProfile, error) {
	var p sensor.Profile
	err := json.Unmarshal(a.Content, &p)
	if err == nil {
		err = p.Validate()
	}
	if err != nil {
		return nil, fmt.Errorf("profile %q, version %d: %w: delete it with wattmark sensor delete", a.Name, a.Version,
			err)
	}
	m := profileMessage(p)
	m.Model, m.Version, m.Made, m.Maker = models[p.Model], uint32(a.Version), wire.Time(a.Made), wire.Text(a.Maker)
	m.TaskIds = lists.Map(a.Tasks, func(t store.TaskID) int64 { return int64(t) })
	m.ConstantS, m.ConstantUS = float64(p.Window), float64(p.UWindow)
	if p.Model == sensor.FirstOrder {
		m.ConstantS, m.ConstantUS = float64(p.Tau), float64(p.UTau)
	}
	if p.Evidence != nil {
		m.Updates = uint32(p.Evidence.Updates)
	}
	return m, nil
}

// mostTasks are looked at for the sensors' errors.
const mostTasks = 2000

// ListSensorErrors returns by how much software was off the meter.
func (s *Service) ListSensorErrors(ctx context.Context,
	_ *pb.ListSensorErrorsRequest,
) (*pb.ListSensorErrorsResponse, error) {
	list, tasks, more, err := s.cfg.DB.MethodErrors(ctx, mostTasks)
	if err != nil {
		return nil, toStatus("list sensor errors", err)
	}
	// Errors of one kind of sensor are comparable under one driver only: its filter is the driver's.
	type key struct{ gpu, uuid, driver, method string }
	by := map[key][]store.MethodError{}
	for _, x := range list {
		k := key{x.GPU, x.GPUUUID, x.Driver, x.Method}
		by[k] = append(by[k], x)
	}
	r := &pb.ListSensorErrorsResponse{Tasks: uint32(tasks), More: more}
	for k, of := range by {
		e := errorsOf(of)
		e.Gpu, e.GpuUuid, e.Driver, e.Method = wire.Text(k.gpu), wire.Text(k.uuid), wire.Text(k.driver), wire.Text(k.method)
		r.Errors = append(r.Errors, e)
	}
	slices.SortFunc(r.Errors, func(a, b *pb.SensorError) int {
		return cmp.Or(strings.Compare(a.Gpu, b.Gpu), strings.Compare(a.GpuUuid, b.GpuUuid),
			strings.Compare(a.Driver, b.Driver), strings.Compare(a.Method, b.Method))
	})
	return r, nil
}

// errorsOf sums up one method's errors, of which there is at least one. The interval
// is Student's.
func errorsOf(list []store.MethodError) *pb.SensorError {
	e := &pb.SensorError{Tasks: uint32(len(list)), MinErrorPct: math.Inf(1), MaxErrorPct: math.Inf(-1)}
	var all []float64
	worst := -1.0
	for _, x := range list {
		v := 100 * float64(x.Said/x.Truth-1)
		all = append(all, v)
		e.MinErrorPct, e.MaxErrorPct = min(e.MinErrorPct, v), max(e.MaxErrorPct, v)
		if math.Abs(v) > worst {
			worst, e.WorstTaskId = math.Abs(v), int64(x.Task)
		}
		e.NewestTaskId = max(e.NewestTaskId, int64(x.Task))
		if x.Partial {
			e.PartialTasks++
		}
	}
	// Below three tasks a standard deviation says nothing about the mean: no interval then.
	var sd float64
	e.MeanErrorPct, sd = stat.MeanStdDev(all, nil)
	if n := float64(len(all)); n >= 3 {
		e.MeanErrorUPct = known(distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Quantile(0.975) * sd / math.Sqrt(n))
	}
	return e
}

// outcomes are the codes of the errors of calls.
var outcomes = []wire.Outcome{
	{context.Canceled, codes.Canceled, ""},
	{context.DeadlineExceeded, codes.DeadlineExceeded, ""},
	{store.ErrNotFound, codes.NotFound, "ListTasks (wattmark tasks) shows which there are"},
	{store.ErrBusy, codes.Unavailable, "try again"},
	{store.ErrCorrupt, codes.DataLoss, "read it again; if it stays, restore the file from a copy"},
	{store.ErrIO, codes.Internal, "look at the disk of the machine that holds the database"},
	{errBusy, codes.ResourceExhausted, "try again"},
	{errStopped, codes.Unavailable, ""},
	{validate.ErrSubject, codes.FailedPrecondition, ""},
	{errUnfit, codes.FailedPrecondition, ""},
	{ErrRequest, codes.InvalidArgument, ""},
}

// ErrRequest is an error by what was asked for.
var ErrRequest = errors.New("the request cannot be answered")

// maxRuns bounds the tasks of a side of a comparison, maxWork its amounts of work.
const (
	maxRuns = 1000
	maxWork = 8
)

// ReadComparison compares two groups of tasks.
func (s *Service) ReadComparison(ctx context.Context,
	q *pb.ReadComparisonRequest,
) (*pb.ReadComparisonResponse, error) {
	if s.cfg.Compare == nil {
		return nil, status.Error(codes.Unimplemented, "this service compares nothing: ask wattmark host")
	}
	sides := [2][]store.TaskID{}
	for i, list := range [][]int64{q.GetA(), q.GetB()} {
		if len(list) == 0 || len(list) > maxRuns {
			return nil, status.Errorf(codes.InvalidArgument, "%c: %d tasks: want 1 to %d", "ab"[i], len(list), maxRuns)
		}
		sides[i] = lists.Map(list, func(id int64) store.TaskID { return store.TaskID(id) })
	}
	if len(q.GetWork()) > maxWork {
		return nil, status.Errorf(codes.InvalidArgument, "work: %d amounts: at most %d", len(q.GetWork()), maxWork)
	}
	b, err := s.cfg.Compare(ctx, sides[0], sides[1], q.GetWork())
	r, err := object(b, err)
	return &pb.ReadComparisonResponse{Comparison: r}, toStatus("compare", err)
}

// ReadSwings returns how a task's power varies. It reads all samples of the task: at most Config.MaxScans.
func (s *Service) ReadSwings(ctx context.Context, q *pb.ReadSwingsRequest) (*pb.ReadSwingsResponse, error) {
	if s.cfg.Swings == nil {
		return nil, status.Error(codes.Unimplemented, "this service reads no swings: ask wattmark host")
	}
	id := store.TaskID(q.GetTaskId())
	doing := fmt.Sprintf("read the swings of task %d", id)
	t, err := s.cfg.DB.Task(ctx, id)
	if err != nil {
		return nil, toStatus(doing, err)
	}
	if t.Scans > s.cfg.MaxScans {
		err := fmt.Errorf("%w: it has %s, at most %d are read on request: wattmark show %d --swings", errUnfit,
			measure.Plural(t.Scans, "scan"), s.cfg.MaxScans, id)
		return nil, toStatus(doing, err)
	}
	b, err := s.cfg.Swings(ctx, id, q.GetStep())
	r, err := object(b, err)
	return &pb.ReadSwingsResponse{Swings: r}, toStatus(doing, err)
}

// object reads JSON that was made without an error.
func object(b []byte, err error) (*structpb.Struct, error) {
	if err != nil {
		return nil, err
	}
	out := &structpb.Struct{}
	return out, protojson.Unmarshal(b, out)
}
