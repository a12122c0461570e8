package measure

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

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
		put("values", c.Unit, num(c.Gain, c.Offset, c.UGain, c.UOffset, c.Noise, float64(c.Skew)), c.MinCount, " ", c.MaxCount)
	}
	for _, r := range s.Rails {
		put("rail", r.Name)
		put("wiring", r.Role, r.Wiring, r.X, " ", r.Y, num(float64(r.Shunt), r.UShunt, float64(r.Assumed), float64(r.UAssumed)))
	}
	for _, m := range s.Missing {
		put("missing", m)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
