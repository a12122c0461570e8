package measure

import (
	"fmt"
	"math"
)

// Wiring says how a rail's power follows from channels.
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

func (w Wiring) String() string {
	if s, ok := wiringNames[w]; ok {
		return s
	}
	return fmt.Sprintf("wiring(%d)", uint8(w))
}

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

func (r Role) String() string {
	if s, ok := roleNames[r]; ok {
		return s
	}
	return fmt.Sprintf("role(%d)", uint8(r))
}

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
			return bad("channel %s reads %s; a %s rail wants %s there", channels[c].Name, channels[c].Unit, r.Wiring, units[i])
		}
	}
	if r.X == r.Y {
		return bad("both its channels are %s", channels[r.X].Name)
	}
	if r.Wiring == WiringShunt {
		if !(r.Shunt > 0) || math.IsInf(float64(r.Shunt), 0) {
			return bad("a shunt of %v Ω: must be positive and finite", float64(r.Shunt))
		}
		if !(r.UShunt >= 0) || math.IsInf(r.UShunt, 0) {
			return bad("shunt uncertainty %v: must be zero or positive and finite", r.UShunt)
		}
	}
	if r.Wiring == WiringAssumed {
		if !(r.Assumed > 0) || math.IsInf(float64(r.Assumed), 0) {
			return bad("assumed voltage %v V: must be positive and finite", float64(r.Assumed))
		}
		if !(r.UAssumed >= 0) || math.IsInf(float64(r.UAssumed), 0) {
			return bad("uncertainty of the assumed voltage %v V: must be zero or positive and finite", float64(r.UAssumed))
		}
	}
	return nil
}

// Linear is a rail's power as a product of two linear forms of its raw counts:
// I = I0 + IX·x + IY·y, V = V0 + VY·y, P = I·V. For a power rail V is 1 and I
// is the power in watts. It is what the stored view computes in SQL.
type Linear struct {
	I0, IX, IY float64
	V0, VY     float64
}

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

// Power returns the rail's power for one pair of counts.
func (l Linear) Power(x, y Count) Watt {
	fx, fy := float64(x), float64(y)
	return Watt((l.I0 + l.IX*fx + l.IY*fy) * (l.V0 + l.VY*fy))
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
// anew every Update. Zeros mean an instrument that samples what is there.
type Response struct {
	Tau    Seconds // first-order time constant, a first guess for the fit
	Window Seconds // boxcar average before each new value
	Update Seconds // distance of new values; zero: every scan is new
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
