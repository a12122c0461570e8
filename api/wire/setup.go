package wire

import (
	"fmt"
	"slices"
	"unicode/utf8"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/measure"
)

var units = []measure.Unit{
	pb.Unit_UNIT_VOLT:      measure.UnitVolt,
	pb.Unit_UNIT_AMPERE:    measure.UnitAmpere,
	pb.Unit_UNIT_WATT:      measure.UnitWatt,
	pb.Unit_UNIT_WALL_WATT: measure.UnitWall,
}

// ParseTimebase converts and validates a timebase.
func ParseTimebase(p *pb.Timebase) (measure.Timebase, error) {
	if p == nil {
		return measure.Timebase{}, refuse("setup without a timebase")
	}
	t := timebaseOf(p)
	if err := t.Validate(); err != nil {
		return measure.Timebase{}, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	return t, nil
}

// Channel converts a channel with its calibration to its message.
func Channel(c measure.Channel) *pb.Channel {
	m := channelMessage(c)
	m.Unit = pb.Unit(max(0, slices.Index(units, c.Unit)))
	return m
}

// ParseChannel converts and validates a channel.
func ParseChannel(p *pb.Channel) (measure.Channel, error) {
	if p == nil {
		return measure.Channel{}, refuse("an empty channel")
	}
	if err := text("channel", p.Name); err != nil {
		return measure.Channel{}, err
	}
	if p.Unit <= 0 || int(p.Unit) >= len(units) {
		return measure.Channel{}, refuse("channel %q: unit %v: want volt, ampere or watt", p.Name, p.Unit)
	}
	c := channelOf(p)
	c.Unit = units[p.Unit]
	if err := c.Validate(); err != nil {
		return measure.Channel{}, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	if c.MinCount > c.MaxCount {
		return measure.Channel{}, refuse("channel %q: min_count %d above max_count %d", c.Name, c.MinCount, c.MaxCount)
	}
	return c, nil
}

// ParseRail converts a rail and validates it against the channels that it is made of.
func ParseRail(p *pb.Rail, channels []measure.Channel) (measure.Rail, error) {
	if p == nil {
		return measure.Rail{}, refuse("an empty rail")
	}
	f := Fields{text("rail", p.Name)}
	r := railOf(&f, p)
	if f.Err != nil {
		return measure.Rail{}, fmt.Errorf("rail %q: %w", p.Name, f.Err)
	}
	if err := r.Validate(channels); err != nil {
		return measure.Rail{}, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	return r, nil
}

// ParseRole refuses a role that is not stated or not known.
func ParseRole(p pb.Role) (measure.Role, error) {
	if p <= 0 || p > pb.Role_ROLE_WHOLE_GPU {
		return 0, refuse("role %v: want psu, pcie_3v3, pcie_12v or whole_gpu", p)
	}
	return measure.Role(p), nil
}

// ParseWiring refuses a wiring that is not stated or not known.
func ParseWiring(p pb.Wiring) (measure.Wiring, error) {
	if p <= 0 || p > pb.Wiring_WIRING_POWER {
		return 0, refuse("wiring %v: want shunt, clamp, assumed or power", p)
	}
	return measure.Wiring(p), nil
}

// ParseResponse converts a response; an unset one is an instrument that
// samples instantaneous values.
func ParseResponse(p *pb.Response) (measure.Response, error) {
	return responseOf(p), notNegative("response", field{"tau_s", p.GetTauS()}, field{"window_s", p.GetWindowS()},
		field{"update_s", p.GetUpdateS()})
}

// ParseSetup converts a setup and validates it as a whole: timebase, channels,
// rails, unique names, no channel in two rails.
func ParseSetup(p *pb.Setup) (measure.Setup, error) {
	if p == nil {
		return measure.Setup{}, refuse("no setup")
	}
	if len(p.Channels) > MaxChannels || len(p.Rails) > MaxRails || len(p.Missing) > MaxRails {
		return measure.Setup{}, refuse("setup of %d channels, %d rails, %d missing rails: at most %d, %d and %d",
			len(p.Channels), len(p.Rails), len(p.Missing), MaxChannels, MaxRails, MaxRails)
	}
	f := Fields{text("setup", p.Missing...)}
	s := measure.Setup{
		Missing: slices.Clone(p.Missing), Timebase: Field(&f, ParseTimebase, p.Timebase),
		Response: Field(&f, ParseResponse, p.Response),
	}
	if f.Err == nil {
		s.Channels, f.Err = ParseEach(p.Channels, ParseChannel)
	}
	if f.Err == nil {
		s.Rails, f.Err = ParseEach(p.Rails, func(r *pb.Rail) (measure.Rail, error) { return ParseRail(r, s.Channels) })
	}
	if f.Err != nil {
		return measure.Setup{}, f.Err
	}
	if err := s.Validate(); err != nil {
		return measure.Setup{}, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	s.Records, f.Err = parseRecords(p.Records)
	return s, f.Err
}

// Bounds on the records of a setup, far above those of any bench.
const (
	maxRecords    = 1000
	maxRecordText = 1 << 20
)

// parseRecords bounds the records and refuses texts that are not UTF-8. Their
// content is for measure/calib to read, and may be of a later version.
func parseRecords(p []*pb.CalibrationRecord) (out []measure.CalibrationRecord, err error) {
	size := 0
	for _, r := range p {
		size += len(r.GetText())
		if len(p) > maxRecords || size > maxRecordText {
			return nil, refuse("%d calibration records: at most %d, of %d bytes in all", len(p), maxRecords,
				maxRecordText)
		}
		if err := text("calibration record", r.GetId()); err != nil {
			return nil, err
		}
		if !utf8.ValidString(r.GetText()) {
			return nil, refuse("calibration record %q is no text", r.GetId())
		}
		out = append(out, measure.CalibrationRecord{ID: r.GetId(), Text: r.GetText()})
	}
	return out, nil
}

// ParseInstrument converts an identity; an unset message is an unknown device.
func ParseInstrument(p *pb.Instrument) (measure.Identity, error) {
	i := instrumentOf(p)
	return i, text("instrument", i.Kind, i.Model, i.Serial, i.Firmware, i.Address)
}

// ParseEvent converts an event.
func ParseEvent(p *pb.Event) (measure.Event, error) {
	switch {
	case p == nil:
		return measure.Event{}, refuse("an empty event")
	case p.Kind <= 0 || p.Kind > pb.EventKind_EVENT_KIND_SUPPLY:
		return measure.Event{}, refuse("event: kind %v is not known to this version", p.Kind)
	case p.Channel < -1 || p.Channel >= MaxChannels:
		return measure.Event{}, refuse("event: channel %d: want −1 for all, or an index below %d", p.Channel,
			MaxChannels)
	case p.FirstScan+p.Scans < p.FirstScan:
		return measure.Event{}, refuse("event: %d scans from scan %d on: past the largest number", p.Scans, p.FirstScan)
	}
	return eventOf(p), text("event", p.Detail)
}

// Window converts a span of device time to its message; nil stays nil.
func Window(w *measure.Window) *pb.Window {
	if w == nil {
		return nil
	}
	return &pb.Window{FromS: float64(w.From), ToS: float64(w.To)}
}

// ParseWindow converts a span of device time; nil where it is not set.
func ParseWindow(p *pb.Window) (*measure.Window, error) {
	if p == nil {
		return nil, nil
	}
	if p.ToS < p.FromS {
		return nil, refuse("window: ends at %v s, before it begins at %v s", p.ToS, p.FromS)
	}
	return &measure.Window{From: measure.Seconds(p.FromS), To: measure.Seconds(p.ToS)},
		finite("window", field{"from_s", p.FromS}, field{"to_s", p.ToS})
}
