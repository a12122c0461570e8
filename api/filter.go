package api

import (
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
	"wattmark/measure"
	"wattmark/store"
)

// filtering is a request that selects tasks.
type filtering interface {
	GetUser() string
	GetName() string
	GetJob() string
	GetGpu() string
	GetSince() *timestamppb.Timestamp
	GetUntil() *timestamppb.Timestamp
	GetStates() []wattmarkv1.TaskState
	GetGroupId() int64
	GetMinEnergyJ() float64
	GetMaxEnergyJ() float64
	GetMinDurationS() float64
	GetMaxDurationS() float64
	GetSearch() string
	labelling
}

// filter validates what a request selects.
func filter(req filtering) (f store.Filter, err error) {
	f = store.Filter{
		User: req.GetUser(), Name: req.GetName(), Job: req.GetJob(), GPU: req.GetGpu(), Group: store.GroupID(req.GetGroupId()),
		MinEnergy: measure.Joule(req.GetMinEnergyJ()), MaxEnergy: measure.Joule(req.GetMaxEnergyJ()),
		MinDuration: measure.Seconds(req.GetMinDurationS()), MaxDuration: measure.Seconds(req.GetMaxDurationS()),
	}
	for _, t := range [][2]string{{"user", f.User}, {"name", f.Name}, {"job", f.Job}, {"gpu", f.GPU}} {
		if err := validText(t[0], t[1]); err != nil {
			return f, err
		}
	}
	if err := f.Check(); err != nil {
		return f, invalid("name", "%v", err)
	}
	if err := labels(req, req.GetSearch(), &f); err != nil {
		return f, err
	}
	if f.Group < 0 {
		return f, invalid("group_id", "%d: groups are numbered from 1", f.Group)
	}
	if err := limits("energy_j", req.GetMinEnergyJ(), req.GetMaxEnergyJ()); err != nil {
		return f, err
	}
	if err := limits("duration_s", req.GetMinDurationS(), req.GetMaxDurationS()); err != nil {
		return f, err
	}
	if f.States, err = states(req.GetStates()); err != nil {
		return f, err
	}
	if f.Since, err = wire.ParseTime("since", req.GetSince()); err != nil {
		return f, invalid("since", "%v", err)
	}
	if f.Until, err = wire.ParseTime("until", req.GetUntil()); err != nil {
		return f, invalid("until", "%v", err)
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return f, invalid("until", "%v is not after since, %v", f.Until, f.Since)
	}
	return f, nil
}

// limits refuses a least and a greatest value that cannot be.
func limits(of string, least, greatest float64) error {
	for i, v := range []float64{least, greatest} {
		if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			return invalid([]string{"min_", "max_"}[i]+of, "%v: want a number that is not negative, or 0 for no limit", v)
		}
	}
	if greatest != 0 && least > greatest {
		return invalid("max_"+of, "%v is less than min_%s, %v", greatest, of, least)
	}
	return nil
}

func states(asked []wattmarkv1.TaskState) (out []store.State, err error) {
	for i, s := range asked {
		if s < wattmarkv1.TaskState_TASK_STATE_RUNNING || s > wattmarkv1.TaskState_TASK_STATE_FAILED {
			return nil, invalid(fmt.Sprintf("states[%d]", i), "%v: not a state", s)
		}
		if state := store.State(s); !slices.Contains(out, state) {
			out = append(out, state)
		}
	}
	return out, nil
}

func validText(field, s string) error {
	if len(s) > wire.MaxText {
		return invalid(field, "%d bytes long: at most %d", len(s), wire.MaxText)
	}
	return nil
}
