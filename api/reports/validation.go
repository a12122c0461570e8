package reports

import (
	"context"
	"fmt"
	"math"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"wattmark/analysis/validate"
	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
	"wattmark/measure"
	"wattmark/store"
)

const (
	// columns of a trace: as many as a wide screen has points for it.
	columns = 1200
	// mostKernels are told by name.
	mostKernels = 200
)

// ReadValidation returns a task's validation.
func (s *Service) ReadValidation(ctx context.Context, q *wattmarkv1.ReadValidationRequest) (*wattmarkv1.ReadValidationResponse, error) {
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
func reportMessage(r *validate.Report) *wattmarkv1.ReadValidationResponse {
	m := &wattmarkv1.ReadValidationResponse{
		Name: wire.Text(r.Name), Gpu: wire.Text(r.GPU), Driver: wire.Text(r.Driver), Meter: wire.Text(r.Meter), Verdict: wire.Text(r.Verdict),
		Started: wire.Time(r.Origin), DurationS: float64(r.Work.Length()), Samples: r.Samples, Energy: energy(r.Truth),
		MeanW: float64(r.Mean), PeakW: float64(r.Peak), LostS: float64(r.Lost), Clock: wire.Text(clockText(&r.Clock)), ClockUS: known(r.Clock.OffsetU),
		UnseenW: known(r.MissingPower), Level: r.Level, Resamples: uint32(r.Resamples), Seed: r.Seed,
		TraceFromS: float64(r.Trace.From - r.Work.From), TraceToS: float64(r.Trace.To - r.Work.From),
	}
	for _, x := range r.Missing {
		m.Unseen = append(m.Unseen, &wattmarkv1.UnseenRail{Name: wire.Text(x.Name), MostW: known(x.Most), Reason: wire.Text(x.Reason)})
	}
	for _, x := range r.Cautions {
		m.Cautions = append(m.Cautions, wire.Text(x))
	}
	for i := range r.Methods {
		m.Methods = append(m.Methods, methodMessage(&r.Methods[i], r.Work.From))
	}
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
	m.MoreKernels = uint32(max(len(r.Kernels)-mostKernels, 0))
	addTrace(m, r)
	return m
}

// addTrace adds the columns that hold samples.
func addTrace(m *wattmarkv1.ReadValidationResponse, r *validate.Report) {
	n := len(r.Trace.Columns)
	for i, c := range r.Trace.Columns {
		if math.IsNaN(float64(c.Mean)) {
			continue
		}
		m.TraceTS = append(m.TraceTS, m.TraceFromS+(float64(i)+0.5)*(m.TraceToS-m.TraceFromS)/float64(n))
		m.TraceMeanW = append(m.TraceMeanW, float64(c.Mean))
		m.TraceMinW = append(m.TraceMinW, float64(c.Min))
		m.TraceMaxW = append(m.TraceMaxW, float64(c.Max))
	}
}

// known is a number as it travels, not set where it is none.
func known[T ~float64](v T) *wrapperspb.DoubleValue {
	if x := float64(v); !math.IsNaN(x) && !math.IsInf(x, 0) {
		return wrapperspb.Double(x)
	}
	return nil
}

func energy(e measure.Estimate) *wattmarkv1.Energy {
	return &wattmarkv1.Energy{EnergyJ: float64(e.Energy), EnergyUJ: float64(e.U)}
}

// clockText says in short how the meter's clock was put on the host's.
func clockText(c *validate.Clock) string {
	how := c.How
	if how == "" {
		how = "as given"
	}
	if !math.IsNaN(c.DriftPPM) && !math.IsNaN(c.DriftUPPM) {
		how += fmt.Sprintf("; it gains %+.1f ± %.1f ppm on the host's", math.Round(10*c.DriftPPM)/10+0, c.DriftUPPM) // + 0: no −0.0
	}
	return how
}

var agreements = map[validate.Agreement]wattmarkv1.Agreement{
	validate.Agrees: wattmarkv1.Agreement_AGREEMENT_AGREES, validate.Reads: wattmarkv1.Agreement_AGREEMENT_DIFFERS,
}

func methodMessage(x *validate.MethodReport, origin measure.Seconds) *wattmarkv1.ValidatedMethod {
	m := &wattmarkv1.ValidatedMethod{
		Name: wire.Text(x.Name), Note: wire.Text(x.Note), OwnRule: x.Own, EnergyJ: known(x.Energy), ErrorPct: known(x.ErrorPct), LoPct: known(x.Lo), HiPct: known(x.Hi),
		Agreement: agreements[x.Agreement], Readings: uint32(x.Readings), Compared: uint32(x.Compared), MapePct: known(x.MAPEPct), RmseW: known(x.RMSE), BiasW: known(x.Bias),
		UpdateS: known(x.Update), LagS: known(x.Lag), LagUS: known(x.LagU), LagNote: wire.Text(x.LagNote),
	}
	if x.U > 0 {
		m.EnergyUJ = known(x.U)
	}
	for _, p := range x.Points { // no more than a plot can show: validate has thinned them
		m.PointTS = append(m.PointTS, float64(p.At-origin))
		m.PointW = append(m.PointW, float64(p.Power))
	}
	return m
}

func kernelMessage(x *validate.KernelReport) *wattmarkv1.ValidatedKernel {
	m := &wattmarkv1.ValidatedKernel{Name: wire.Text(x.Name), Launches: uint32(x.Launches), BusyS: float64(x.Busy), ShareS: float64(x.Share), Energy: energy(x.Truth)}
	for _, k := range x.Methods {
		m.Errors = append(m.Errors, &wattmarkv1.KernelError{Method: wire.Text(k.Name), ErrorPct: known(k.ErrorPct), Agreement: agreements[k.Agreement]})
	}
	return m
}
