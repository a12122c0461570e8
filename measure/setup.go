package measure

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
)

// Unit is the physical unit of a channel after calibration.
type Unit string

// The units that a channel can have.
const (
	UnitVolt   Unit = "V"
	UnitAmpere Unit = "A"
	UnitWatt   Unit = "W"
	// UnitWall is of watts that the whole machine takes, before its power supply. No rail of a card is made of
	// them, so that no sum of rails holds them.
	UnitWall Unit = "W wall"
)

// Channel is one input of an instrument with the calibration in force:
// value = Offset + Gain·count, in Unit. The uncertainties are standard ones
// (k = 1), as in the GUM.
type Channel struct {
	// Name is unique on a bench, for example "pcie_12v.current".
	Name string
	Unit Unit
	// Gain is the value of one count, in Unit a count.
	Gain float64
	// Offset is the value of count zero, in Unit.
	Offset float64
	// UGain is the relative standard uncertainty of the scale (0.01 = 1 %). It
	// bears on the value, not on the count: a Hall sensor whose zero lies at half
	// of its range reads zero amperes right however wrong its sensitivity is.
	UGain float64
	// UOffset is the standard uncertainty of Offset, in Unit.
	UOffset float64
	// Noise is the standard deviation of one reading, in Unit; zero where unknown.
	Noise float64
	// MinCount and MaxCount are the ends of the converter's range; a count at an
	// end is over range. Both zero where there is none.
	MinCount, MaxCount Count
	// Skew is the delay of this channel's reading behind the scan's tick.
	Skew Seconds
	// Drift is the part of the calibration's uncertainty that came after it; zero without a record. It is
	// of a time, so it is no part of CalibrationID, and neither stored nor sent: calib.Aged sets it.
	Drift Drift `json:"-"`
}

// Drift is the standard uncertainty of a gain, relative, and of an offset, in the channel's unit, by the
// age of the calibration and by temperatures other than the calibration's. A shunt has gains alone.
type Drift struct{ AgeGain, AgeOffset, TemperatureGain, TemperatureOffset float64 }

// Value returns the calibrated value of a count, in the channel's unit.
func (c Channel) Value(n Count) float64 { return c.Offset + c.Gain*float64(n) }

// NoReading is the count of a meter at the wall where it lost a reading: the card's scans go on.
const NoReading Count = math.MinInt32

// OverRange reports whether a count stands at the end of the converter's range.
func (c Channel) OverRange(n Count) bool {
	return !(c.Unit == UnitWall && n == NoReading) && c.MinCount != c.MaxCount && (n <= c.MinCount || n >= c.MaxCount)
}

// Validate reports a calibration that cannot be used, naming the field.
func (c Channel) Validate() error {
	if c.Name == "" {
		return fmt.Errorf("channel without a name")
	}
	if !slices.Contains([]Unit{UnitVolt, UnitAmpere, UnitWatt, UnitWall}, c.Unit) {
		return fmt.Errorf("channel %s: unit %q: want V, A or W", c.Name, c.Unit)
	}
	names := [...]string{"gain", "offset", "u_gain", "u_offset", "noise", "skew"}
	for i, v := range []float64{c.Gain, c.Offset, c.UGain, c.UOffset, c.Noise, float64(c.Skew)} {
		if !Known(v) {
			return fmt.Errorf("channel %s: %s is %v: must be a finite number", c.Name, names[i], v)
		}
	}
	if c.Gain == 0 {
		return fmt.Errorf("channel %s: gain is 0: every count would read the same", c.Name)
	}
	if c.UGain < 0 || c.UOffset < 0 || c.Noise < 0 {
		return fmt.Errorf("channel %s: an uncertainty is negative", c.Name)
	}
	return nil
}

// Wiring is how a rail's power follows from channels.
type Wiring uint8

// The wirings. Their numbers are stored and travel: never renumber.
const (
	// WiringShunt: voltages both sides of a shunt, I = (Vs − Vg)/R, P = I·Vg (Arafa et al., Eq. 3).
	WiringShunt Wiring = 1
	// WiringClamp: a current channel and a voltage channel, P = I·V (Cheng et al.; Arafa et al., third term).
	WiringClamp Wiring = 2
	// WiringAssumed: a current channel and a voltage that is assumed, not measured (Nagasaka et al.).
	WiringAssumed Wiring = 3
	// WiringPower: a channel that reads watts itself, as NVML does.
	WiringPower Wiring = 4
)

var wiringNames = map[Wiring]string{
	WiringShunt: "shunt", WiringClamp: "clamp", WiringAssumed: "assumed", WiringPower: "power",
}

func (w Wiring) String() string { return NameOf(wiringNames, w, "wiring") }

// Role places a rail behind the paper's twelve columns (Cheng et al.).
type Role uint8

// The roles. Their numbers are stored and travel: never renumber.
const (
	RolePSU      Role = 1 // direct supply: current1, voltage1
	RolePCIe3V3  Role = 2 // slot 3.3 V: current2, voltage2
	RolePCIe12V  Role = 3 // slot 12 V: current3, voltage3
	RoleWholeGPU Role = 4 // a sensor that reads the whole card (NVML): power only
)

var roleNames = map[Role]string{
	RolePSU: "psu", RolePCIe3V3: "pcie_3v3", RolePCIe12V: "pcie_12v", RoleWholeGPU: "whole_gpu",
}

func (r Role) String() string { return NameOf(roleNames, r, "role") }

// Rail is one supply of the card, made of one or two channels.
type Rail struct {
	// Name is unique on a bench: pcie_3v3, pcie_12v, aux_12v_1, eps, gpu …
	Name   string
	Role   Role
	Wiring Wiring
	// X and Y are channel indices: shunt: X source side, Y load (ground) side;
	// clamp: X current, Y voltage; assumed: X current, Y = −1; power: X watts, Y = −1.
	X, Y int
	// Shunt is the shunt's resistance and UShunt its relative standard uncertainty.
	Shunt  Ohm
	UShunt float64
	Drift  Drift `json:"-"` // of the shunt, as a channel's
	// Assumed is the assumed voltage and UAssumed its standard uncertainty.
	Assumed  Volt
	UAssumed Volt
}

// Validate reports a rail that cannot be used with the given channels.
func (r Rail) Validate(channels []Channel) error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("rail %s: %s", r.Name, fmt.Sprintf(format, a...))
	}
	if r.Name == "" {
		return fmt.Errorf("rail without a name")
	}
	if _, ok := roleNames[r.Role]; !ok {
		return bad("unknown role %d", r.Role)
	}
	want := map[Wiring][2]Unit{
		WiringShunt: {UnitVolt, UnitVolt}, WiringClamp: {UnitAmpere, UnitVolt},
		WiringAssumed: {UnitAmpere, ""}, WiringPower: {UnitWatt, ""},
	}
	units, ok := want[r.Wiring]
	if !ok {
		return bad("unknown wiring %d", r.Wiring)
	}
	for i, c := range []int{r.X, r.Y} {
		if units[i] == "" {
			if c != -1 {
				return bad("a %s rail has no second channel", r.Wiring)
			}
			continue
		}
		if c < 0 || c >= len(channels) {
			return bad("channel %d does not exist (the bench has %d)", c, len(channels))
		}
		if channels[c].Unit != units[i] {
			return bad("channel %s reads %s; a %s rail wants %s there", channels[c].Name, channels[c].Unit, r.Wiring,
				units[i])
		}
	}
	if r.X == r.Y {
		return bad("both its channels are %s", channels[r.X].Name)
	}
	shunt, assumed := r.Wiring == WiringShunt, r.Wiring == WiringAssumed
	switch {
	case shunt && !(r.Shunt > 0 && Known(r.Shunt)):
		return bad("a shunt of %v Ω: must be positive and finite", float64(r.Shunt))
	case shunt && !(r.UShunt >= 0 && Known(r.UShunt)):
		return bad("shunt uncertainty %v: must be zero or positive and finite", r.UShunt)
	case assumed && !(r.Assumed > 0 && Known(r.Assumed)):
		return bad("assumed voltage %v V: must be positive and finite", float64(r.Assumed))
	case assumed && !(r.UAssumed >= 0 && Known(r.UAssumed)):
		return bad("uncertainty of the assumed voltage %v V: must be zero or positive and finite", float64(r.UAssumed))
	}
	return nil
}

// Linear is a rail's power as a product of two linear forms of its raw counts:
// I = I0 + IX·x + IY·y, V = V0 + VY·y, P = I·V. For a power rail V is 1 and I
// is the power in watts. The stored view computes the same in SQL.
type Linear struct {
	I0, IX, IY float64
	V0, VY     float64
}

// Power returns the power in watts for a rail's raw counts; y is zero for a rail of one channel.
func (l *Linear) Power(x, y float64) float64 { return (l.I0 + l.IX*x + l.IY*y) * (l.V0 + l.VY*y) }

// Linear returns the rail's coefficients under the channels' calibration.
func (r Rail) Linear(channels []Channel) Linear {
	x := channels[r.X]
	switch r.Wiring {
	case WiringShunt:
		y, g := channels[r.Y], 1/float64(r.Shunt)
		return Linear{I0: (x.Offset - y.Offset) * g, IX: x.Gain * g, IY: -y.Gain * g, V0: y.Offset, VY: y.Gain}
	case WiringClamp:
		y := channels[r.Y]
		return Linear{I0: x.Offset, IX: x.Gain, V0: y.Offset, VY: y.Gain}
	case WiringAssumed:
		return Linear{I0: x.Offset, IX: x.Gain, V0: float64(r.Assumed)}
	default:
		return Linear{I0: x.Offset, IX: x.Gain, V0: 1}
	}
}

// Setup is all that is needed to turn counts into watts: it travels in the
// stream's header and is stored with every task.
type Setup struct {
	Timebase Timebase
	Channels []Channel
	Rails    []Rail
	// Missing names rails that the card has and the bench does not measure.
	Missing []string
	// Response is how the instrument follows a step of power.
	Response Response
	// Records are the calibration records that the channels and rails follow,
	// oldest first; none where the instrument and the bench file alone speak. They
	// are no part of CalibrationID.
	Records []CalibrationRecord `json:",omitempty"`
}

// Response is how an instrument's reading follows a step of the true power:
// the step passes a first-order lag, is averaged over Window, and is shown
// anew every Update. Zeros mean an instrument that samples the instantaneous value.
type Response struct {
	Tau    Seconds // first-order time constant, a first guess for the fit
	Window Seconds // boxcar average before each new value
	Update Seconds // distance of new values; zero: every scan is new
	// Delay is how long after the lag, or the end of the window, a value appears on the mean. The channels'
	// Skew takes it off, so that it is neither stored nor sent.
	Delay Seconds `json:"-"`
	// Centred is set where each value is shown around its time rather than after it,
	// as readings that are placed afterwards: it lags behind by nothing. It is
	// needed where markers are looked for alone, so it is neither stored nor sent.
	Centred bool
}

// Seen returns the time before each new value that the value rests on: the window, or of a first-order lag twice its
// time constant, the standard length of an average with the same noise. What changes in the rest of Update is missed.
func (r Response) Seen() Seconds { return max(r.Window, 2*r.Tau) }

// LooksAway reports whether values rest on less than the time between them, so that work between two of them is misread
// by any amount. A meter with a value every 5 ms or faster counts as one that samples.
func (r Response) LooksAway() bool { return r.Update > max(r.Seen(), 5e-3) }

// Sees returns Seen in words, for a meter that misses a part of Update.
func (r Response) Sees() string {
	if r.Seen() == 0 {
		return fmt.Sprintf("sees single moments, %v apart", r.Update)
	}
	return fmt.Sprintf("sees %v of every %v", r.Seen(), r.Update)
}

// Validate checks the timebase, every channel and every rail, that names are
// unique and that no channel serves two rails.
func (s *Setup) Validate() error {
	if err := s.Timebase.Validate(); err != nil {
		return err
	}
	if len(s.Channels) == 0 {
		return fmt.Errorf("no channels")
	}
	if len(s.Rails) == 0 {
		return fmt.Errorf("no rails: name at least one that the channels make")
	}
	names := map[string]bool{}
	for _, c := range s.Channels {
		if err := c.Validate(); err != nil {
			return err
		}
		if names[c.Name] {
			return fmt.Errorf("channel %s: named twice", c.Name)
		}
		names[c.Name] = true
	}
	rails, owner := map[string]bool{}, map[int]string{}
	for _, r := range s.Rails {
		if err := r.Validate(s.Channels); err != nil {
			return err
		}
		if rails[r.Name] {
			return fmt.Errorf("rail %s: named twice", r.Name)
		}
		rails[r.Name] = true
		for _, c := range []int{r.X, r.Y} {
			if c < 0 {
				continue
			}
			if o, taken := owner[c]; taken {
				return fmt.Errorf("rail %s: channel %s is already used by rail %s", r.Name, s.Channels[c].Name, o)
			}
			owner[c] = r.Name
		}
	}
	return nil
}

// Wall returns the channel of the meter at the wall, -1 where there is none.
func (s *Setup) Wall() int {
	return slices.IndexFunc(s.Channels, func(c Channel) bool { return c.Unit == UnitWall })
}

// RecordIDs returns the IDs of the records in force, in their order; none is an empty list.
func (s *Setup) RecordIDs() []string {
	ids := make([]string, len(s.Records)) // a list in JSON, not null
	for i := range s.Records {
		ids[i] = s.Records[i].ID
	}
	return ids
}

// CalibrationID names a calibration by its content: everything that turns counts
// into watts and seconds, with its uncertainties. Equal setups have equal names
// on every machine; any change of a number makes another.
func (s *Setup) CalibrationID() string {
	h := sha256.New()
	put := func(what string, v ...any) { fmt.Fprintf(h, "%s %q\n", what, fmt.Sprint(v...)) }
	num := func(f ...float64) string { return fmt.Sprintf("%x", f) } // exact
	put("timebase", num(float64(s.Timebase.TickHz), s.Timebase.UTickHz, s.Timebase.TicksPerScan), s.Timebase.Stamped)
	put("response", num(float64(s.Response.Tau), float64(s.Response.Window), float64(s.Response.Update)))
	for _, c := range s.Channels {
		put("channel", c.Name)
		put("values", c.Unit, num(c.Gain, c.Offset, c.UGain, c.UOffset, c.Noise, float64(c.Skew)), c.MinCount, " ",
			c.MaxCount)
	}
	for _, r := range s.Rails {
		put("rail", r.Name)
		put("wiring", r.Role, r.Wiring, r.X, " ", r.Y,
			num(float64(r.Shunt), r.UShunt, float64(r.Assumed), float64(r.UAssumed)))
	}
	for _, m := range s.Missing {
		put("missing", m)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// CalibrationRecord is one dated act of calibration as it travels and is stored
// beside the numbers that follow from it: maker, date and standard.
// Package measure/calib reads it.
type CalibrationRecord struct {
	// ID names the record by its content: 12 hex digits.
	ID string `json:"id"`
	// Text is the whole record as JSON (docs/calibration.md).
	Text string `json:"text"`
}
