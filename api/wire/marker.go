package wire

import (
	"math"

	"wattmark/api/wattmarkv1"
	"wattmark/measure"
	"wattmark/measure/marker"
)

// Bounds on a marker that a host can ask for.
const (
	maxGuardChips = 1024
	maxTagBits    = 32
	maxChip       = 60 // seconds
)

// MarkerSpec converts the marker that a host plays to its message.
func MarkerSpec(s marker.Spec) *wattmarkv1.MarkerSpec {
	return &wattmarkv1.MarkerSpec{
		Code: wattmarkv1.MarkerCode(s.Code), ChipS: float64(s.Chip),
		GuardChips: toUint32(s.Guard), TagBits: toUint32(s.TagBits), Tag: s.Tag,
	}
}

// ParseMarkerSpec converts the marker that a monitor is to look for. An unset
// message, or one with the code unspecified, is "look for none".
func ParseMarkerSpec(p *wattmarkv1.MarkerSpec) (marker.Spec, error) {
	if p == nil || p.Code == wattmarkv1.MarkerCode_MARKER_CODE_UNSPECIFIED {
		return marker.Spec{}, nil
	}
	switch {
	case p.Code < 0 || p.Code > wattmarkv1.MarkerCode_MARKER_CODE_UP_DOWN:
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
func Marker(m marker.Found) *wattmarkv1.Marker {
	p := &wattmarkv1.Marker{
		Kind: wattmarkv1.MarkerKind(m.Kind), TS: float64(m.T), US: float64(m.U),
		BeginS: float64(m.Begin), EndS: float64(m.End),
		Correlation: m.Correlation, PslrDb: float64(m.PSLR), StepW: float64(m.Step), TauS: float64(m.Tau),
		Tag: m.Tag, TagOk: m.TagOK, Fallback: m.Fallback,
	}
	for _, e := range m.Edges {
		p.Edges = append(p.Edges, &wattmarkv1.Edge{Chip: toInt32(e.Chip), TS: float64(e.T), US: float64(e.U)})
	}
	return p
}

// ParseMarker converts a marker that was found. The peak-to-sidelobe ratio may
// be +Inf (no sidelobe at all); everything else must be finite.
func ParseMarker(p *wattmarkv1.Marker) (marker.Found, error) {
	if p == nil {
		return marker.Found{}, refuse("an empty marker")
	}
	if p.Kind != wattmarkv1.MarkerKind_MARKER_KIND_START && p.Kind != wattmarkv1.MarkerKind_MARKER_KIND_STOP {
		return marker.Found{}, refuse("marker: kind %v: want start or stop", p.Kind)
	}
	err := finite("marker", field{"t_s", p.TS}, field{"u_s", p.US}, field{"begin_s", p.BeginS}, field{"end_s", p.EndS},
		field{"correlation", p.Correlation}, field{"step_w", p.StepW}, field{"tau_s", p.TauS})
	switch {
	case err != nil:
		return marker.Found{}, err
	case math.IsNaN(p.PslrDb) || math.IsInf(p.PslrDb, -1):
		return marker.Found{}, refuse("marker: pslr_db is %v", p.PslrDb)
	case p.US < 0:
		return marker.Found{}, refuse("marker: u_s is %v s: must not be negative", p.US)
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
	for _, e := range p.Edges {
		if err := finite("marker edge", field{"t_s", e.GetTS()}, field{"u_s", e.GetUS()}); err != nil {
			return marker.Found{}, err
		}
		if e.GetUS() < 0 {
			return marker.Found{}, refuse("marker edge %d: u_s is %v s: must not be negative", e.GetChip(), e.GetUS())
		}
		m.Edges = append(m.Edges, marker.Edge{Chip: int(e.GetChip()), T: seconds(e.GetTS()), U: seconds(e.GetUS())})
	}
	return m, nil
}

// Markers converts a list of markers.
func Markers(found []marker.Found) []*wattmarkv1.Marker {
	var out []*wattmarkv1.Marker
	for _, m := range found {
		out = append(out, Marker(m))
	}
	return out
}

// ParseMarkers converts a list of markers, refusing it if any one is refused.
func ParseMarkers(list []*wattmarkv1.Marker) ([]marker.Found, error) {
	var out []marker.Found
	for _, p := range list {
		m, err := ParseMarker(p)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}
