package wire

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"wattmark/api/wattmarkv1"
	"wattmark/measure"
)

var units = []measure.Unit{
	wattmarkv1.Unit_UNIT_VOLT:   measure.UnitVolt,
	wattmarkv1.Unit_UNIT_AMPERE: measure.UnitAmpere,
	wattmarkv1.Unit_UNIT_WATT:   measure.UnitWatt,
}

// Timebase converts a timebase to its message.
func Timebase(t measure.Timebase) *wattmarkv1.Timebase {
	return &wattmarkv1.Timebase{
		TickHz: float64(t.TickHz), UTickRel: t.UTickHz, TicksPerScan: t.TicksPerScan, Stamped: t.Stamped,
	}
}

// ParseTimebase converts and validates a timebase.
func ParseTimebase(p *wattmarkv1.Timebase) (measure.Timebase, error) {
	if p == nil {
		return measure.Timebase{}, refuse("setup without a timebase")
	}
	t := measure.Timebase{
		TickHz: measure.Hertz(p.TickHz), UTickHz: p.UTickRel, TicksPerScan: p.TicksPerScan, Stamped: p.Stamped,
	}
	if err := t.Validate(); err != nil {
		return measure.Timebase{}, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	return t, nil
}

// Channel converts a channel with its calibration to its message.
func Channel(c measure.Channel) *wattmarkv1.Channel {
	return &wattmarkv1.Channel{
		Name: Text(c.Name), Unit: wattmarkv1.Unit(max(0, slices.Index(units, c.Unit))),
		Gain: c.Gain, Offset: c.Offset, UGainRel: c.UGain, UOffset: c.UOffset, Noise: c.Noise,
		MinCount: c.MinCount, MaxCount: c.MaxCount, SkewS: float64(c.Skew),
	}
}

// ParseChannel converts and validates a channel.
func ParseChannel(p *wattmarkv1.Channel) (measure.Channel, error) {
	if p == nil {
		return measure.Channel{}, refuse("an empty channel")
	}
	if err := text("channel", p.Name); err != nil {
		return measure.Channel{}, err
	}
	if p.Unit <= 0 || int(p.Unit) >= len(units) {
		return measure.Channel{}, refuse("channel %s: unit %v: want volt, ampere or watt", quote(p.Name), p.Unit)
	}
	c := measure.Channel{
		Name: p.Name, Unit: units[p.Unit],
		Gain: p.Gain, Offset: p.Offset, UGain: p.UGainRel, UOffset: p.UOffset, Noise: p.Noise,
		MinCount: p.MinCount, MaxCount: p.MaxCount, Skew: seconds(p.SkewS),
	}
	if err := c.Validate(); err != nil {
		return measure.Channel{}, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	if c.MinCount > c.MaxCount {
		return measure.Channel{}, refuse("channel %s: min_count %d above max_count %d", quote(c.Name), c.MinCount, c.MaxCount)
	}
	return c, nil
}

// Rail converts a rail to its message.
func Rail(r measure.Rail) *wattmarkv1.Rail {
	return &wattmarkv1.Rail{
		Name: Text(r.Name), Role: wattmarkv1.Role(r.Role), Wiring: wattmarkv1.Wiring(r.Wiring),
		X: toInt32(r.X), Y: toInt32(r.Y),
		ShuntOhm: float64(r.Shunt), UShuntRel: r.UShunt,
		AssumedV: float64(r.Assumed), UAssumedV: float64(r.UAssumed),
	}
}

// ParseRail converts a rail and validates it against the channels that it is made of.
func ParseRail(p *wattmarkv1.Rail, channels []measure.Channel) (measure.Rail, error) {
	if p == nil {
		return measure.Rail{}, refuse("an empty rail")
	}
	if err := text("rail", p.Name); err != nil {
		return measure.Rail{}, err
	}
	role, err := ParseRole(p.Role)
	if err != nil {
		return measure.Rail{}, fmt.Errorf("rail %s: %w", quote(p.Name), err)
	}
	wiring, err := ParseWiring(p.Wiring)
	if err != nil {
		return measure.Rail{}, fmt.Errorf("rail %s: %w", quote(p.Name), err)
	}
	r := measure.Rail{
		Name: p.Name, Role: role, Wiring: wiring, X: int(p.X), Y: int(p.Y),
		Shunt: measure.Ohm(p.ShuntOhm), UShunt: p.UShuntRel,
		Assumed: measure.Volt(p.AssumedV), UAssumed: measure.Volt(p.UAssumedV),
	}
	if err := r.Validate(channels); err != nil {
		return measure.Rail{}, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	return r, nil
}

// ParseRole refuses a role that is not stated or not known.
func ParseRole(p wattmarkv1.Role) (measure.Role, error) {
	if p <= 0 || p > wattmarkv1.Role_ROLE_WHOLE_GPU {
		return 0, refuse("role %v: want psu, pcie_3v3, pcie_12v or whole_gpu", p)
	}
	return measure.Role(p), nil
}

// ParseWiring refuses a wiring that is not stated or not known.
func ParseWiring(p wattmarkv1.Wiring) (measure.Wiring, error) {
	if p <= 0 || p > wattmarkv1.Wiring_WIRING_POWER {
		return 0, refuse("wiring %v: want shunt, clamp, assumed or power", p)
	}
	return measure.Wiring(p), nil
}

// Response converts an instrument's response to its message.
func Response(r measure.Response) *wattmarkv1.Response {
	return &wattmarkv1.Response{TauS: float64(r.Tau), WindowS: float64(r.Window), UpdateS: float64(r.Update)}
}

// ParseResponse converts a response; an unset one is an instrument that
// samples what is there.
func ParseResponse(p *wattmarkv1.Response) (measure.Response, error) {
	if p == nil {
		return measure.Response{}, nil
	}
	for _, f := range []field{{"tau_s", p.TauS}, {"window_s", p.WindowS}, {"update_s", p.UpdateS}} {
		if err := finite("response", f); err != nil {
			return measure.Response{}, err
		}
		if f.v < 0 {
			return measure.Response{}, refuse("response: %s is %v s: must not be negative", f.name, f.v)
		}
	}
	return measure.Response{Tau: seconds(p.TauS), Window: seconds(p.WindowS), Update: seconds(p.UpdateS)}, nil
}

// Setup converts all that turns counts into watts to its message.
func Setup(s measure.Setup) *wattmarkv1.Setup {
	p := &wattmarkv1.Setup{
		Timebase: Timebase(s.Timebase), Response: Response(s.Response),
	}
	for _, name := range s.Missing {
		p.Missing = append(p.Missing, Text(name))
	}
	for _, c := range s.Channels {
		p.Channels = append(p.Channels, Channel(c))
	}
	for _, r := range s.Rails {
		p.Rails = append(p.Rails, Rail(r))
	}
	for _, r := range s.Records {
		p.Records = append(p.Records, &wattmarkv1.CalibrationRecord{Id: Text(r.ID), Text: r.Text})
	}
	return p
}

// ParseSetup converts a setup and validates it as a whole: timebase, channels,
// rails, unique names, no channel in two rails.
func ParseSetup(p *wattmarkv1.Setup) (measure.Setup, error) {
	if p == nil {
		return measure.Setup{}, refuse("no setup")
	}
	if len(p.Channels) > MaxChannels || len(p.Rails) > MaxRails || len(p.Missing) > MaxRails {
		return measure.Setup{}, refuse("setup of %d channels, %d rails, %d missing rails: at most %d, %d and %d",
			len(p.Channels), len(p.Rails), len(p.Missing), MaxChannels, MaxRails, MaxRails)
	}
	if err := text("setup", p.Missing...); err != nil {
		return measure.Setup{}, err
	}
	s := measure.Setup{Missing: slices.Clone(p.Missing)}
	var err error
	if s.Timebase, err = ParseTimebase(p.Timebase); err != nil {
		return measure.Setup{}, err
	}
	if s.Response, err = ParseResponse(p.Response); err != nil {
		return measure.Setup{}, err
	}
	for _, c := range p.Channels {
		channel, err := ParseChannel(c)
		if err != nil {
			return measure.Setup{}, err
		}
		s.Channels = append(s.Channels, channel)
	}
	for _, r := range p.Rails {
		rail, err := ParseRail(r, s.Channels)
		if err != nil {
			return measure.Setup{}, err
		}
		s.Rails = append(s.Rails, rail)
	}
	if err := s.Validate(); err != nil {
		return measure.Setup{}, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	s.Records, err = parseRecords(p.Records)
	return s, err
}

// Bounds on the records of a setup, far above what benches have.
const (
	maxRecords    = 1000
	maxRecordText = 1 << 20
)

// parseRecords bounds the records and refuses what no terminal should show. What
// they say is for measure/calib to read, and may be of a later version.
func parseRecords(p []*wattmarkv1.CalibrationRecord) (out []measure.CalibrationRecord, err error) {
	size := 0
	for _, r := range p {
		size += len(r.GetText())
		if len(p) > maxRecords || size > maxRecordText {
			return nil, refuse("%d calibration records: at most %d, of %d bytes in all", len(p), maxRecords, maxRecordText)
		}
		if err := text("calibration record", r.GetId()); err != nil {
			return nil, err
		}
		if !utf8.ValidString(r.GetText()) {
			return nil, refuse("calibration record %s is no text", quote(r.GetId()))
		}
		out = append(out, measure.CalibrationRecord{ID: r.GetId(), Text: r.GetText()})
	}
	return out, nil
}
