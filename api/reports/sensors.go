package reports

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"wattmark/analysis/sensor"
	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
	"wattmark/measure"
	"wattmark/store"
)

// ListSensors returns stored profiles.
func (s *Service) ListSensors(ctx context.Context, q *wattmarkv1.ListSensorsRequest) (*wattmarkv1.ListSensorsResponse, error) {
	list, err := s.cfg.DB.Analyses(ctx, sensor.Kind)
	if err != nil {
		return nil, toStatus("list sensors", err)
	}
	r := &wattmarkv1.ListSensorsResponse{}
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

var models = map[sensor.Model]wattmarkv1.SensorModel{
	sensor.Boxcar: wattmarkv1.SensorModel_SENSOR_MODEL_BOXCAR, sensor.FirstOrder: wattmarkv1.SensorModel_SENSOR_MODEL_FIRST_ORDER,
}

func profile(a *store.Analysis) (*wattmarkv1.SensorProfile, error) {
	var p sensor.Profile
	err := json.Unmarshal(a.Content, &p)
	if err == nil {
		err = p.Validate()
	}
	if err != nil {
		return nil, fmt.Errorf("profile %q, version %d: %w: delete it with wattmark sensor delete", a.Name, a.Version, err)
	}
	m := &wattmarkv1.SensorProfile{
		Gpu: wire.Text(p.GPU), GpuUuid: wire.Text(p.UUID), Driver: wire.Text(p.Driver), Field: wire.Text(p.Field),
		Model: models[p.Model], Undecided: p.Undecided, Weak: p.Weak,
		PeriodS: float64(p.Period), PeriodUS: float64(p.UPeriod), JitterS: float64(p.Jitter), ConstantS: float64(p.Window), ConstantUS: float64(p.UWindow),
		DelayS: float64(p.Delay), DelayUS: float64(p.UDelay), LagS: float64(p.Lag), LagUS: float64(p.ULag),
		Calibrated: p.Calibrated, Gain: p.Gain, GainU: p.UGain, OffsetW: float64(p.Offset), OffsetUW: float64(p.UOffset),
		QuantumW: float64(p.Quantum), NoiseW: float64(p.Noise), ShareSeen: p.Seen, ShareSeenU: p.USeen,
		Version: uint32(a.Version), Made: wire.Time(a.Made), Maker: wire.Text(a.Maker),
	}
	if p.Model == sensor.FirstOrder {
		m.ConstantS, m.ConstantUS = float64(p.Tau), float64(p.UTau)
	}
	if p.Evidence != nil {
		m.Updates = uint32(p.Evidence.Updates)
	}
	for _, t := range a.Tasks {
		m.TaskIds = append(m.TaskIds, int64(t))
	}
	return m, nil
}

// mostTasks are looked at for the sensors' errors.
const mostTasks = 2000

// ListSensorErrors returns by how much software was off the meter.
func (s *Service) ListSensorErrors(ctx context.Context, _ *wattmarkv1.ListSensorErrorsRequest) (*wattmarkv1.ListSensorErrorsResponse, error) {
	list, tasks, more, err := s.cfg.DB.MethodErrors(ctx, mostTasks)
	if err != nil {
		return nil, toStatus("list sensor errors", err)
	}
	type key struct{ gpu, uuid, driver, method string }
	by := map[key][]store.MethodError{}
	for _, x := range list {
		k := key{x.GPU, x.GPUUUID, x.Driver, x.Method}
		by[k] = append(by[k], x)
	}
	r := &wattmarkv1.ListSensorErrorsResponse{Tasks: uint32(tasks), More: more}
	for k, of := range by {
		e := errorsOf(of)
		e.Gpu, e.GpuUuid, e.Driver, e.Method = wire.Text(k.gpu), wire.Text(k.uuid), wire.Text(k.driver), wire.Text(k.method)
		r.Errors = append(r.Errors, e)
	}
	slices.SortFunc(r.Errors, func(a, b *wattmarkv1.SensorError) int {
		return cmp.Or(strings.Compare(a.Gpu, b.Gpu), strings.Compare(a.GpuUuid, b.GpuUuid), strings.Compare(a.Driver, b.Driver), strings.Compare(a.Method, b.Method))
	})
	return r, nil
}

// percentOff is a method's error of the mean power, in per cent.
func percentOff(said, truth measure.Watt) float64 { return 100 * float64(said/truth-1) }

// errorsOf sums up one method's errors, of which there is at least one. The interval
// is Student's.
func errorsOf(list []store.MethodError) *wattmarkv1.SensorError {
	e := &wattmarkv1.SensorError{Tasks: uint32(len(list)), MinErrorPct: math.Inf(1), MaxErrorPct: math.Inf(-1)}
	var all []float64
	worst := -1.0
	for _, x := range list {
		v := percentOff(x.Said, x.Truth)
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
	mean, sd := stat.MeanStdDev(all, nil)
	e.MeanErrorPct = mean
	if n := float64(len(all)); n >= 3 {
		e.MeanErrorUPct = known(distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Quantile(0.975) * sd / math.Sqrt(n))
	}
	return e
}
