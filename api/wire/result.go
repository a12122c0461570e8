package wire

import (
	"cmp"
	"fmt"
	"math"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/marker"
)

// Energy converts an energy with its expanded uncertainty (k = 2) to its message.
func Energy(e measure.Estimate) *pb.Energy {
	return &pb.Energy{EnergyJ: float64(e.Energy), EnergyUJ: float64(e.U)}
}

// ParseEnergy converts an energy; its uncertainty must not be negative.
func ParseEnergy(p *pb.Energy) (measure.Estimate, error) {
	if p == nil {
		return measure.Estimate{}, refuse("no energy")
	}
	err := cmp.Or(finite("energy", field{"energy_j", p.EnergyJ}), notNegative("energy", field{"energy_u_j", p.EnergyUJ}))
	return measure.Estimate{Energy: measure.Joule(p.EnergyJ), U: measure.Joule(p.EnergyUJ)}, err
}

// RailResult converts one rail over a window to its message. The role is in
// the setup; the budget does not travel.
func RailResult(r measure.RailResult) *pb.RailResult {
	return &pb.RailResult{
		Name: Text(r.Name), Energy: Energy(r.Energy), MeanW: float64(r.Mean), PeakW: float64(r.Peak),
		Budget: Budget(r.Budget),
	}
}

// ParseRailResult converts one rail over a window.
func ParseRailResult(p *pb.RailResult) (measure.RailResult, error) {
	if p == nil {
		return measure.RailResult{}, refuse("an empty rail result")
	}
	var f Fields
	r := measure.RailResult{
		Name: p.Name, Energy: Field(&f, ParseEnergy, p.Energy), Mean: measure.Watt(p.MeanW), Peak: measure.Watt(p.PeakW),
		Budget: Field(&f, ParseBudget, p.Budget),
	}
	if f.Err != nil {
		return r, fmt.Errorf("rail %s: %w", quote(p.Name), f.Err)
	}
	return r, cmp.Or(text("rail", p.Name),
		finite("rail "+quote(p.Name), field{"mean_w", p.MeanW}, field{"peak_w", p.PeakW}))
}

// Budget converts the lines of an uncertainty budget to their messages.
func Budget(lines []measure.Contribution) []*pb.Contribution {
	return lists.Map(lines, func(c measure.Contribution) *pb.Contribution {
		return &pb.Contribution{Source: Text(c.Source), UJ: float64(c.U), Systematic: c.Systematic}
	})
}

// ParseBudget converts the lines of an uncertainty budget; none of them negative.
func ParseBudget(p []*pb.Contribution) ([]measure.Contribution, error) {
	return ParseEach(p, func(c *pb.Contribution) (measure.Contribution, error) {
		out := measure.Contribution{Source: c.GetSource(), U: measure.Joule(c.GetUJ()), Systematic: c.GetSystematic()}
		if c == nil {
			return out, refuse("budget: an empty line")
		}
		return out, cmp.Or(text("source", c.Source), notNegative("budget "+quote(c.Source), field{"u_j", c.UJ}))
	})
}

// Clock converts a clock fit to its message. u_s is the larger of the standard
// uncertainties that the fit's covariance gives the two ends of the window.
func Clock(f clock.Fit, from, to measure.Seconds) *pb.Clock {
	return &pb.Clock{
		AS: float64(f.A), B: f.B, US: math.Max(mapped(f, from), mapped(f, to)), RmsS: float64(f.RMS),
		Observations: toUint32(f.Used), Rejected: toUint32(f.Rejected),
		OriginS: float64(f.Origin), VarAS2: f.VarA, VarB: f.VarB, CovAbS: f.CovAB,
	}
}

// mapped is the standard uncertainty of a + b·δ at the host time δ that maps
// to device time t: u² = var a + 2 δ cov(a, b) + δ² var b (GUM, 5.2.2).
func mapped(f clock.Fit, t measure.Seconds) float64 {
	if f.B == 0 {
		return 0
	}
	d := float64(t-f.A) / f.B
	return math.Sqrt(math.Max(0, f.VarA+2*d*f.CovAB+d*d*f.VarB))
}

// ParseClock converts a clock fit; an unset message is nil.
func ParseClock(p *pb.Clock) (*clock.Fit, error) {
	if p == nil {
		return nil, nil
	}
	err := cmp.Or(
		finite("clock", field{"a_s", p.AS}, field{"b", p.B}, field{"origin_s", p.OriginS}, field{"cov_ab_s", p.CovAbS}),
		notNegative("clock", field{"u_s", p.US}, field{"rms_s", p.RmsS}, field{"var_a_s2", p.VarAS2},
			field{"var_b", p.VarB}))
	if err == nil && !(p.B > 0) {
		err = refuse("clock: rate b is %v: must be positive", p.B)
	}
	if err != nil {
		return nil, err
	}
	return &clock.Fit{
		Origin: seconds(p.OriginS), A: seconds(p.AS), B: p.B, VarA: p.VarAS2, VarB: p.VarB, CovAB: p.CovAbS,
		RMS: seconds(p.RmsS), Used: int(p.Observations), Rejected: int(p.Rejected),
	}, nil
}

// Bounds on a marker that a host can ask for.
const (
	maxGuardChips = 1024
	maxTagBits    = 32
	maxChip       = 60 // seconds
)

// MarkerSpec converts the marker that a host plays to its message.
func MarkerSpec(s marker.Spec) *pb.MarkerSpec {
	return &pb.MarkerSpec{
		Code: pb.MarkerCode(s.Code), ChipS: float64(s.Chip),
		GuardChips: toUint32(s.Guard), TagBits: toUint32(s.TagBits), Tag: s.Tag,
	}
}

// ParseMarkerSpec converts the marker that a monitor is to look for. An unset
// message, or one with the code unspecified, is "look for none".
func ParseMarkerSpec(p *pb.MarkerSpec) (marker.Spec, error) {
	if p == nil || p.Code == pb.MarkerCode_MARKER_CODE_UNSPECIFIED {
		return marker.Spec{}, nil
	}
	switch {
	case p.Code < 0 || p.Code > pb.MarkerCode_MARKER_CODE_UP_DOWN:
		return marker.Spec{}, refuse("marker: code %v is not known to this version", p.Code)
	case !(p.ChipS > 0) || p.ChipS > maxChip:
		return marker.Spec{}, refuse("marker: a chip of %v s: want more than 0 and at most %d s", p.ChipS, maxChip)
	case p.GuardChips > maxGuardChips:
		return marker.Spec{}, refuse("marker: %d guard chips: at most %d", p.GuardChips, maxGuardChips)
	case p.TagBits > maxTagBits:
		return marker.Spec{}, refuse("marker: a tag of %d bits: at most %d", p.TagBits, maxTagBits)
	case p.TagBits < maxTagBits && p.Tag>>p.TagBits != 0:
		return marker.Spec{}, refuse("marker: tag %d does not fit in %d bits", p.Tag, p.TagBits)
	}
	return marker.Spec{
		Code: marker.Code(p.Code), Chip: seconds(p.ChipS),
		Guard: int(p.GuardChips), TagBits: int(p.TagBits), Tag: p.Tag,
	}, nil
}

// Marker converts a marker that was found to its message.
func Marker(m marker.Found) *pb.Marker {
	return &pb.Marker{
		Kind: pb.MarkerKind(m.Kind), TS: float64(m.T), US: float64(m.U), BeginS: float64(m.Begin), EndS: float64(m.End),
		Correlation: m.Correlation, PslrDb: float64(m.PSLR), StepW: float64(m.Step), TauS: float64(m.Tau),
		Tag: m.Tag, TagOk: m.TagOK, Fallback: m.Fallback,
		Edges: lists.Map(m.Edges, func(e marker.Edge) *pb.Edge {
			return &pb.Edge{Chip: toInt32(e.Chip), TS: float64(e.T), US: float64(e.U)}
		}),
	}
}

// ParseMarker converts a marker that was found. The peak-to-sidelobe ratio may
// be +Inf (no sidelobe at all); everything else must be finite.
func ParseMarker(p *pb.Marker) (marker.Found, error) {
	if p == nil {
		return marker.Found{}, refuse("an empty marker")
	}
	if p.Kind != pb.MarkerKind_MARKER_KIND_START && p.Kind != pb.MarkerKind_MARKER_KIND_STOP {
		return marker.Found{}, refuse("marker: kind %v: want start or stop", p.Kind)
	}
	err := cmp.Or(notNegative("marker", field{"u_s", p.US}), finite("marker", field{"t_s", p.TS},
		field{"begin_s", p.BeginS}, field{"end_s", p.EndS}, field{"correlation", p.Correlation}, field{"step_w", p.StepW},
		field{"tau_s", p.TauS}))
	switch {
	case err != nil:
		return marker.Found{}, err
	case math.IsNaN(p.PslrDb) || math.IsInf(p.PslrDb, -1):
		return marker.Found{}, refuse("marker: pslr_db is %v", p.PslrDb)
	case p.EndS < p.BeginS:
		return marker.Found{}, refuse("marker: ends at %v s, before it begins at %v s", p.EndS, p.BeginS)
	case len(p.Edges) > MaxEdges:
		return marker.Found{}, refuse("marker: %d edges: at most %d", len(p.Edges), MaxEdges)
	}
	m := marker.Found{
		Kind: marker.Kind(p.Kind), T: seconds(p.TS), U: seconds(p.US), Begin: seconds(p.BeginS), End: seconds(p.EndS),
		Correlation: p.Correlation, PSLR: measure.Decibel(p.PslrDb), Step: measure.Watt(p.StepW), Tau: seconds(p.TauS),
		Tag: p.Tag, TagOK: p.TagOk, Fallback: p.Fallback,
	}
	m.Edges, err = ParseEach(p.Edges, func(e *pb.Edge) (marker.Edge, error) {
		err := cmp.Or(finite("marker edge", field{"t_s", e.GetTS()}),
			notNegative(fmt.Sprint("marker edge ", e.GetChip()), field{"u_s", e.GetUS()}))
		return marker.Edge{Chip: int(e.GetChip()), T: seconds(e.GetTS()), U: seconds(e.GetUS())}, err
	})
	return m, err
}

// Markers converts a list of markers.
func Markers(found []marker.Found) []*pb.Marker { return lists.Map(found, Marker) }

// ParseMarkers converts a list of markers, and refuses it where one is refused.
func ParseMarkers(list []*pb.Marker) ([]marker.Found, error) { return ParseEach(list, ParseMarker) }
