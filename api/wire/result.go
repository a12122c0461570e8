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

// ParseEnergy converts an energy; its uncertainty must not be negative.
func ParseEnergy(p *pb.Energy) (measure.Estimate, error) {
	if p == nil {
		return measure.Estimate{}, refuse("no energy")
	}
	err := cmp.Or(finite("energy", field{"energy_j", p.EnergyJ}), notNegative("energy", field{"energy_u_j", p.EnergyUJ}))
	return energyOf(p), err
}

// ParseRailResult converts one rail over a window. The role is in the setup.
func ParseRailResult(p *pb.RailResult) (measure.RailResult, error) {
	if p == nil {
		return measure.RailResult{}, refuse("an empty rail result")
	}
	var f Fields
	r := railResultOf(&f, p)
	if f.Err != nil {
		return r, fmt.Errorf("rail %q: %w", p.Name, f.Err)
	}
	return r, cmp.Or(text("rail", p.Name),
		finite(fmt.Sprintf("rail %q", p.Name), field{"mean_w", p.MeanW}, field{"peak_w", p.PeakW}))
}

// Budget converts the lines of an uncertainty budget to their messages.
func Budget(lines []measure.Contribution) []*pb.Contribution { return lists.Map(lines, contribution) }

// ParseBudget converts the lines of an uncertainty budget; none of them negative.
func ParseBudget(p []*pb.Contribution) ([]measure.Contribution, error) {
	return ParseEach(p, parseContribution)
}

func parseContribution(c *pb.Contribution) (measure.Contribution, error) {
	if c == nil {
		return measure.Contribution{}, refuse("budget: an empty line")
	}
	return contributionOf(c), cmp.Or(text("source", c.Source),
		notNegative(fmt.Sprintf("budget %q", c.Source), field{"u_j", c.UJ}))
}

// Clock converts a clock fit to its message. u_s is the larger of the standard
// uncertainties that the fit's covariance gives the two ends of the window.
func Clock(f clock.Fit, from, to measure.Seconds) *pb.Clock {
	m := clockMessage(f)
	m.US = math.Max(mapped(f, from), mapped(f, to))
	return m
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
	return new(clockOf(p)), nil
}

// Bounds on a marker that a host can ask for.
const (
	maxGuardChips = 1024
	maxTagBits    = 32
	maxChip       = 60 // seconds
)

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
	return markerSpecOf(p), nil
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
	var f Fields
	return markerOf(&f, p), f.Err
}

// parseEdge converts a chip's edge.
func parseEdge(e *pb.Edge) (marker.Edge, error) {
	return edgeOf(e), cmp.Or(finite("marker edge", field{"t_s", e.GetTS()}),
		notNegative(fmt.Sprint("marker edge ", e.GetChip()), field{"u_s", e.GetUS()}))
}
