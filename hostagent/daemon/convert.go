package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/store"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	// maxParts is more than the marks that a GPU can hold.
	maxParts = 1 << 16
	// longestTime bounds the times that a program can ask for.
	longestTime = 30 * 24 * time.Hour
)

// Sentinel errors, wrapped with the socket or the cause.
var (
	// ErrUnreachable: the socket does not answer, or is not a host daemon's.
	ErrUnreachable = errors.New("the host daemon does not answer")
	// ErrLost: the daemon went away, or is being stopped, amid a measurement.
	ErrLost = errors.New("the host daemon was lost")
	// ErrRefused: the daemon does not accept the request.
	ErrRefused = errors.New("the host daemon refuses")
	// ErrDatabase: the daemon's task database cannot be used.
	ErrDatabase = errors.New("the host daemon's task database")
	// ErrProgram: the program failed at a command, or vanished.
	ErrProgram = errors.New("the program")
	// errCancelled: the program gave the measurement up.
	errCancelled = errors.New("the program gave the measurement up")
)

// kinds maps errors to their kind on the wire: the daemon sends the kind of the first row
// that has the error, the program takes the first error of its row.
var kinds = []struct {
	kind pb.FailureKind
	errs []error
}{
	{pb.FailureKind_FAILURE_KIND_CANCELLED, []error{errCancelled}},
	{pb.FailureKind_FAILURE_KIND_STOPPING, []error{ErrLost}},
	{pb.FailureKind_FAILURE_KIND_PROGRAM, []error{ErrProgram, gpu.ErrMIG}},
	{pb.FailureKind_FAILURE_KIND_ARGUMENT, []error{ErrRefused, measure.ErrText, wire.ErrMessage}},
	{pb.FailureKind_FAILURE_KIND_BUSY, []error{monitorclient.ErrBusy}},
	{
		pb.FailureKind_FAILURE_KIND_MONITOR,
		[]error{monitorclient.ErrUnreachable, monitorclient.ErrGone, monitorclient.ErrMismatch},
	},
	{pb.FailureKind_FAILURE_KIND_BENCH, []error{measurement.ErrBench, measurement.ErrWrongGPU}},
	{pb.FailureKind_FAILURE_KIND_DATABASE, []error{
		ErrDatabase, store.ErrBusy, store.ErrFull, store.ErrReadOnly, store.ErrIO, store.ErrCorrupt, store.ErrConflict,
		store.ErrNotFound,
	}},
}

// failure converts an error to its text and its kind; nil stays nil. An error of no row has no
// kind: the program then has the text alone.
func failure(err error) *pb.Failure {
	if err == nil {
		return nil
	}
	f := &pb.Failure{Text: strings.ToValidUTF8(err.Error(), "\uFFFD")}
	for _, k := range kinds {
		if slices.ContainsFunc(k.errs, func(e error) bool { return errors.Is(err, e) }) {
			f.Kind = k.kind
			break
		}
	}
	return f
}

// remoteError is an error of the other end, with its text and the errors that it is here.
type remoteError struct {
	text   string
	causes []error
}

func (e *remoteError) Error() string   { return e.text }
func (e *remoteError) Unwrap() []error { return e.causes }

// parseFailure converts an error of the daemon; here are errors of this side that it wraps.
func parseFailure(f *pb.Failure, here ...error) error {
	if f == nil {
		return nil
	}
	e := &remoteError{text: f.Text, causes: here}
	for _, k := range kinds {
		if k.kind == f.Kind {
			e.causes = append(e.causes, k.errs[0])
		}
	}
	return e
}

// parseGPU converts a GPU's identity, and refuses texts above the protocol's bound.
func parseGPU(p *pb.Gpu) (gpu.Info, error) {
	i := gpuOf(p)
	for _, s := range []string{i.Name, i.UUID, i.PCIBusID, i.Driver} {
		if len(s) > wire.MaxText {
			return i, fmt.Errorf("%w: a GPU with a name of %d bytes", wire.ErrMessage, len(s))
		}
	}
	return i, nil
}

// duration converts a time that may be asked for; zero is not set.
func duration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// parseDuration converts a time that was asked for.
func parseDuration(what string, p *durationpb.Duration) (time.Duration, error) {
	if p == nil {
		return 0, nil
	}
	d := p.AsDuration()
	if err := p.CheckValid(); err != nil || d < 0 || d > longestTime {
		return 0, fmt.Errorf("%w: %s of %v: want 0 to %v", wire.ErrMessage, what, d, longestTime)
	}
	return d, nil
}

// parsePlayed converts a marker from the program.
func parsePlayed(kind marker.Kind, p *pb.PlayedMarker) (out gpu.Played, err error) {
	switch {
	case p == nil:
		return out, fmt.Errorf("%w: no marker in the answer", wire.ErrMessage)
	case p.EndNs < p.StartNs:
		return out, fmt.Errorf("%w: a marker that ends before it begins", wire.ErrMessage)
	case len(p.Edges) > wire.MaxEdges:
		return out, fmt.Errorf("%w: a marker with %d edges: at most %d", wire.ErrMessage, len(p.Edges), wire.MaxEdges)
	}
	out = playedOf(p)
	out.Kind = kind
	return out, nil
}

// parseParts converts the kernels of the work. Their number and names are bounded: they come
// from a program, and are stored.
func parseParts(list []*pb.WorkPart) ([]gpu.Kernel, error) {
	if len(list) > maxParts {
		return nil, fmt.Errorf("%w: work in %d parts: at most %d", wire.ErrMessage, len(list), maxParts)
	}
	for _, p := range list {
		if p.GetEndNs() < p.GetStartNs() || len(p.GetName()) > wire.MaxText {
			return nil, fmt.Errorf("%w: a part of the work that ends before it begins, or whose name is too long",
				wire.ErrMessage)
		}
	}
	return lists.Map(list, partOf), nil
}

// outcome converts the outcome of a measurement.
func outcome(t *store.Brief) *pb.Task {
	m := outcomeMessage(*t)
	if t.NVML != nil && !math.IsNaN(float64(*t.NVML)) {
		m.Nvml = &pb.Task_NvmlJ{NvmlJ: float64(*t.NVML)}
	}
	if r := t.Result; r != nil {
		m.Samples, m.Gaps, m.Lost = r.Samples, r.Gaps, r.Lost
		m.DurationS, m.MeanW, m.PeakW = float64(r.To-r.From), float64(r.Mean), float64(r.Peak)
		m.Energy = wire.Energy(r.Total)
	}
	return m
}

// parseOutcome converts the outcome of a measurement. Its window begins at zero.
func parseOutcome(p *pb.Task) (store.Brief, error) {
	t := outcomeOf(p)
	if n, ok := p.GetNvml().(*pb.Task_NvmlJ); ok {
		t.NVML = new(measure.Joule(n.NvmlJ))
	}
	if p.GetEnergy() == nil {
		return t, nil
	}
	var f wire.Fields
	r := resultOf(&f, p)
	r.To = measure.Seconds(p.DurationS) // From is zero
	t.Result = &r
	return t, f.Err
}

// phases are the steps in the order of their numbers on the wire, from 1 on; one that is not known is not stated.
var phases = []measurement.Phase{
	measurement.PhaseBench, measurement.PhaseCapture, measurement.PhaseWarmUp, measurement.PhaseMarker,
	measurement.PhaseWork,
	measurement.PhaseStop, measurement.PhaseTransfer, measurement.PhaseAnalysis, measurement.PhaseDone,
}

// Bounds of a program's command line; the rest of a longer one is cut.
const (
	maxWords = 1024
	maxBytes = 64 << 10
)

// provenance converts a program's provenance; nil for none.
func provenance(p *store.Provenance) *pb.Provenance {
	if p == nil {
		return nil
	}
	out := provenanceMessage(*p)
	// The command line is cut at a word, with a mark where words are missing.
	size := 0
	for i, w := range p.Command {
		w = wire.Text(w)
		if size += len(w); i == maxWords || size > maxBytes {
			out.Command = append(out.Command, "…")
			break
		}
		out.Command = append(out.Command, w)
	}
	return out
}

// provenance converts a program's provenance. A program that sends none runs on this
// machine all the same.
func (s *Server) provenance(p *pb.Provenance) (*store.Provenance, error) {
	if p == nil {
		host, _ := os.Hostname()
		return &store.Provenance{Host: host, OS: runtime.GOOS + "/" + runtime.GOARCH, Version: s.cfg.Version}, nil
	}
	size := 0
	for _, w := range p.Command {
		size += len(w)
	}
	if len(p.Command) > maxWords+1 || size > maxBytes+wire.MaxText {
		return nil, fmt.Errorf("%w: provenance: a command line of %d words and %d bytes", wire.ErrMessage,
			len(p.Command), size)
	}
	for _, t := range []string{p.Host, p.Os, p.Version, p.Directory, p.GitCommit} {
		if len(t) > wire.MaxText {
			return nil, fmt.Errorf("%w: provenance: a text of more than %d bytes", wire.ErrMessage, wire.MaxText)
		}
	}
	out := provenanceOf(p)
	out.Version, out.Command = cmp.Or(out.Version, s.cfg.Version), p.Command
	return &out, nil
}
