package hostlink

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
	"wattmark/hostagent"
	"wattmark/hostagent/measurement"
	"wattmark/hostagent/monitorclient"
	"wattmark/measure"
	"wattmark/measure/marker"
	"wattmark/store"
)

const (
	// maxParts is more than the marks that a GPU can hold.
	maxParts = 1 << 16
	// longestTime bounds the times that a program can ask for.
	longestTime = 30 * 24 * time.Hour
)

// Errors, wrapped with what was asked for.
var (
	// ErrUnreachable: nobody answers at the socket, or not a host daemon.
	ErrUnreachable = errors.New("the host daemon does not answer")
	// ErrLost: the daemon went away, or is being stopped, amid a measurement.
	ErrLost = errors.New("the host daemon was lost")
	// ErrRefused: the daemon does not take what was asked for.
	ErrRefused = errors.New("the host daemon refuses")
	// ErrDatabase: the daemon's task database cannot be used.
	ErrDatabase = errors.New("the host daemon's task database")
	// ErrProgram: the program failed at a command, or vanished.
	ErrProgram = errors.New("the program")
	// errCancelled: the program gave the measurement up.
	errCancelled = errors.New("the program gave the measurement up")
)

// kinds relate errors to what travels: the daemon looks for the first that an
// error is, the program gets the first of a kind.
var kinds = []struct {
	err  error
	kind wattmarkv1.FailureKind
}{
	{errCancelled, wattmarkv1.FailureKind_FAILURE_KIND_CANCELLED},
	{ErrLost, wattmarkv1.FailureKind_FAILURE_KIND_STOPPING},
	{ErrProgram, wattmarkv1.FailureKind_FAILURE_KIND_PROGRAM},
	{hostagent.ErrMIG, wattmarkv1.FailureKind_FAILURE_KIND_PROGRAM},
	{ErrRefused, wattmarkv1.FailureKind_FAILURE_KIND_ARGUMENT},
	{measure.ErrText, wattmarkv1.FailureKind_FAILURE_KIND_ARGUMENT},
	{wire.ErrMessage, wattmarkv1.FailureKind_FAILURE_KIND_ARGUMENT},
	{monitorclient.ErrBusy, wattmarkv1.FailureKind_FAILURE_KIND_BUSY},
	{monitorclient.ErrUnreachable, wattmarkv1.FailureKind_FAILURE_KIND_MONITOR},
	{monitorclient.ErrGone, wattmarkv1.FailureKind_FAILURE_KIND_MONITOR},
	{monitorclient.ErrMismatch, wattmarkv1.FailureKind_FAILURE_KIND_MONITOR},
	{measurement.ErrBench, wattmarkv1.FailureKind_FAILURE_KIND_BENCH},
	{measurement.ErrWrongGPU, wattmarkv1.FailureKind_FAILURE_KIND_BENCH},
	{ErrDatabase, wattmarkv1.FailureKind_FAILURE_KIND_DATABASE},
	{store.ErrBusy, wattmarkv1.FailureKind_FAILURE_KIND_DATABASE},
	{store.ErrFull, wattmarkv1.FailureKind_FAILURE_KIND_DATABASE},
	{store.ErrReadOnly, wattmarkv1.FailureKind_FAILURE_KIND_DATABASE},
	{store.ErrIO, wattmarkv1.FailureKind_FAILURE_KIND_DATABASE},
	{store.ErrCorrupt, wattmarkv1.FailureKind_FAILURE_KIND_DATABASE},
	{store.ErrConflict, wattmarkv1.FailureKind_FAILURE_KIND_DATABASE},
	{store.ErrNotFound, wattmarkv1.FailureKind_FAILURE_KIND_DATABASE},
}

// failure converts an error; nil stays nil.
func failure(err error) *wattmarkv1.Failure {
	if err == nil {
		return nil
	}
	f := &wattmarkv1.Failure{Text: strings.ToValidUTF8(err.Error(), "\uFFFD")}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			f.Kind = k.kind
			break
		}
	}
	return f
}

// remoteError is an error of the other end in its words, with what it is here.
type remoteError struct {
	text   string
	causes []error
}

func (e *remoteError) Error() string   { return e.text }
func (e *remoteError) Unwrap() []error { return e.causes }

// parseFailure converts an error of the daemon; what happened here goes along.
func parseFailure(f *wattmarkv1.Failure, here ...error) error {
	if f == nil {
		return nil
	}
	e := &remoteError{text: f.Text, causes: here}
	for _, k := range kinds {
		if k.kind == f.Kind {
			e.causes = append(e.causes, k.err)
			break
		}
	}
	return e
}

// gpu converts a GPU.
func gpu(i hostagent.Info) *wattmarkv1.Gpu {
	return &wattmarkv1.Gpu{
		Name: wire.Text(i.Name), Uuid: wire.Text(i.UUID), PciBusId: wire.Text(i.PCIBusID), Driver: wire.Text(i.Driver), Simulated: i.Simulated,
	}
}

// parseGPU converts a GPU.
func parseGPU(p *wattmarkv1.Gpu) (hostagent.Info, error) {
	i := hostagent.Info{
		Name: wire.Text(p.GetName()), UUID: wire.Text(p.GetUuid()), PCIBusID: wire.Text(p.GetPciBusId()),
		Driver: wire.Text(p.GetDriver()), Simulated: p.GetSimulated(),
	}
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

// played converts a marker as it was played.
func played(p hostagent.Played) *wattmarkv1.PlayedMarker {
	out := &wattmarkv1.PlayedMarker{StartNs: p.Span.Start.UnixNano(), EndNs: p.Span.End.UnixNano()}
	for _, e := range p.Edges {
		out.Edges = append(out.Edges, &wattmarkv1.HostPlayedEdge{Chip: int32(e.Chip), AtNs: e.At.UnixNano()})
	}
	return out
}

// parsePlayed converts a marker as the program says that it played it.
func parsePlayed(kind marker.Kind, p *wattmarkv1.PlayedMarker) (hostagent.Played, error) {
	out := hostagent.Played{Kind: kind, Span: span(p.GetStartNs(), p.GetEndNs())}
	switch {
	case p == nil:
		return out, fmt.Errorf("%w: no marker in the answer", wire.ErrMessage)
	case p.EndNs < p.StartNs:
		return out, fmt.Errorf("%w: a marker that ends before it begins", wire.ErrMessage)
	case len(p.Edges) > wire.MaxEdges:
		return out, fmt.Errorf("%w: a marker with %d edges: at most %d", wire.ErrMessage, len(p.Edges), wire.MaxEdges)
	}
	for _, e := range p.Edges {
		out.Edges = append(out.Edges, hostagent.PlayedEdge{Chip: int(e.GetChip()), At: time.Unix(0, e.GetAtNs())})
	}
	return out, nil
}

func span(start, end int64) hostagent.Span {
	return hostagent.Span{Start: time.Unix(0, start), End: time.Unix(0, end)}
}

// parts converts the parts of the work.
func parts(k []hostagent.Kernel) (out []*wattmarkv1.WorkPart) {
	for _, x := range k {
		out = append(out, &wattmarkv1.WorkPart{Name: wire.Text(x.Name), StartNs: x.Span.Start.UnixNano(), EndNs: x.Span.End.UnixNano()})
	}
	return out
}

// parseParts converts the parts of the work.
func parseParts(list []*wattmarkv1.WorkPart) ([]hostagent.Kernel, error) {
	if len(list) > maxParts {
		return nil, fmt.Errorf("%w: work in %d parts: at most %d", wire.ErrMessage, len(list), maxParts)
	}
	var out []hostagent.Kernel
	for _, p := range list {
		if p.GetEndNs() < p.GetStartNs() || len(p.GetName()) > wire.MaxText {
			return nil, fmt.Errorf("%w: a part of the work that ends before it begins, or whose name is too long", wire.ErrMessage)
		}
		out = append(out, hostagent.Kernel{Name: wire.Text(p.GetName()), Span: span(p.GetStartNs(), p.GetEndNs())})
	}
	return out, nil
}

// outcome converts what a measurement came to.
func outcome(t *store.Brief) *wattmarkv1.Task {
	m := &wattmarkv1.Task{
		TaskId: int64(t.ID), Name: wire.Text(t.Name), User: wire.Text(t.User), State: wattmarkv1.TaskState(t.State),
		Reason: wire.Text(t.Reason), Launched: wire.Time(t.Launched), Gpu: wire.Text(t.GPU), Stored: t.Scans,
	}
	if t.NVML != nil && !math.IsNaN(float64(*t.NVML)) {
		m.Nvml = &wattmarkv1.Task_NvmlJ{NvmlJ: float64(*t.NVML)}
	}
	if r := t.Result; r != nil {
		m.Samples, m.Gaps, m.Lost = r.Samples, r.Gaps, r.Lost
		m.DurationS, m.MeanW, m.PeakW = float64(r.To-r.From), float64(r.Mean), float64(r.Peak)
		m.Energy = wire.Energy(r.Total)
	}
	return m
}

// parseOutcome converts what a measurement came to. The window is counted from its
// begin.
func parseOutcome(p *wattmarkv1.Task) (store.Brief, error) {
	t := store.Brief{ID: store.TaskID(p.GetTaskId()), State: store.State(p.GetState()), Reason: p.GetReason()}
	t.Name, t.User, t.GPU, t.Scans = p.GetName(), p.GetUser(), p.GetGpu(), p.GetStored()
	if n, ok := p.GetNvml().(*wattmarkv1.Task_NvmlJ); ok {
		e := measure.Joule(n.NvmlJ)
		t.NVML = &e
	}
	if p.GetEnergy() == nil {
		return t, nil
	}
	e, err := wire.ParseEnergy(p.Energy)
	if err != nil {
		return t, err
	}
	r := &store.Figures{Total: e, Mean: measure.Watt(p.MeanW), Peak: measure.Watt(p.PeakW), Samples: p.Samples, Gaps: p.Gaps, Lost: p.Lost}
	r.To = measure.Seconds(p.DurationS)
	t.Result = r
	return t, nil
}
