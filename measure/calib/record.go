// Package calib is calibration as laboratories do it: the readings at zero and
// at known values (Meter), the straight line through them with its uncertainty
// (Fit, after the GUM), the dated record that is made of it (Record), and the
// records that are in force on a bench (History.Apply). It does no I/O.
package calib

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/wattmark/wattmark/measure"
)

// ErrRecord is wrapped by errors about records that cannot be.
var ErrRecord = errors.New("not a calibration record")

// Act is the act of calibration.
type Act string

// The acts.
const (
	Zero   Act = "zero"   // inputs empty: a new zero
	Gain   Act = "gain"   // held against a reference
	Import Act = "import" // a laboratory's certificate
	Shunt  Act = "shunt"  // a shunt's resistance
	Note   Act = "note"   // something to remember: where the clamp sits
)

// Record is one dated act of calibration. It is never changed: a later one
// takes its place.
type Record struct {
	// ID names the content; see Seal.
	ID         string     `json:"id,omitempty"`
	Done       Act        `json:"done"`
	At         time.Time  `json:"at"`
	By         string     `json:"by"`
	Instrument Instrument `json:"instrument"`
	// ValidUntil is when the calibration is to be repeated; zero for no such date.
	ValidUntil time.Time  `json:"valid_until,omitzero"`
	Remark     string     `json:"remark,omitempty"`
	Conditions Conditions `json:"conditions,omitzero"`
	Channels   []Channel  `json:"channels,omitempty"`
	Rails      []Rail     `json:"rails,omitempty"`
}

// Instrument is the device of a record.
type Instrument struct {
	Kind   string `json:"kind"`
	Serial string `json:"serial,omitempty"` // empty where the device reports none
}

// Conditions are the circumstances, as far as they were written down.
type Conditions struct {
	TemperatureC *float64 `json:"temperature_c,omitempty"`
	// WithinK is how far from that the meter may be when it measures, in K; nil for 5 K.
	WithinK *float64 `json:"within_k,omitempty"`
	// Reference names the standard that the readings were compared with, and its certificate.
	Reference string `json:"reference,omitempty"`
}

// Scale is a channel's calibration: value = offset + gain·count.
type Scale struct {
	Gain    float64 `json:"gain"`     // unit a count
	Offset  float64 `json:"offset"`   // unit
	UGain   float64 `json:"u_gain"`   // standard uncertainty, relative to the value
	UOffset float64 `json:"u_offset"` // standard uncertainty, unit
	Noise   float64 `json:"noise"`    // standard deviation of one reading, unit
}

// Channel is one channel's part of a record.
type Channel struct {
	Name string       `json:"name"`
	Unit measure.Unit `json:"unit"`
	// Scale is the calibration found; nil in a note.
	Scale *Scale `json:"scale,omitempty"`
	// Nominal is the channel's scale by the instrument and the bench file when
	// the record was made. Where they state another gain or offset later, the record
	// no longer fits.
	Nominal *Scale `json:"nominal,omitempty"`
	// Basis is the record that was in force before: a zero keeps its gain, a gain
	// leans on its zero. Empty where there was none.
	Basis string `json:"basis,omitempty"`
	// Drift is how far the scale may move; nil for the default.
	Drift *Drift `json:"drift,omitempty"`
	// Points are the measurements that the scale was fitted to.
	Points []Point `json:"points,omitempty"`
}

// Point is a known value and the channel's reading of it, under the scale that
// was in force before.
type Point struct {
	Value   float64 `json:"value"`   // unit
	U       float64 `json:"u"`       // standard uncertainty of value, unit
	Reading float64 `json:"reading"` // mean, unit
	// UReading is the reading's standard uncertainty, unit.
	UReading float64 `json:"u_reading,omitempty"`
	// MeanCount and StdCount are the mean and the standard deviation of Samples
	// counts; none in a certificate.
	MeanCount float64 `json:"mean_count,omitempty"`
	StdCount  float64 `json:"std_count,omitempty"`
	Samples   uint64  `json:"samples,omitempty"`
}

// Rail is one rail's shunt in a record.
type Rail struct {
	Name string  `json:"name"`
	Ohm  float64 `json:"ohm"`
	URel float64 `json:"u_rel"` // relative standard uncertainty
	// NominalOhm and NominalURel are the bench file's values when the record was
	// made.
	NominalOhm  float64 `json:"nominal_ohm"`
	NominalURel float64 `json:"nominal_u_rel"`
	Drift       *Drift  `json:"drift,omitempty"` // nil for the default
}

// ScaleOf returns the scale that a channel has.
func ScaleOf(c measure.Channel) Scale { return Scale{c.Gain, c.Offset, c.UGain, c.UOffset, c.Noise} }

// On returns the channel under the scale.
func (s Scale) On(c measure.Channel) measure.Channel {
	c.Gain, c.Offset, c.UGain, c.UOffset, c.Noise = s.Gain, s.Offset, s.UGain, s.UOffset, s.Noise
	return c
}

// Seal gives the record its ID: the first 12 hex digits of the SHA-256 of its
// JSON without the ID. Times are cut to milliseconds.
func (r *Record) Seal() (err error) {
	r.ID, err = r.contentID()
	return err
}

func (r *Record) contentID() (string, error) {
	r.At, r.ValidUntil = r.At.UTC().Truncate(time.Millisecond), r.ValidUntil.UTC().Truncate(time.Millisecond)
	bare := *r
	bare.ID = ""
	text, err := json.Marshal(bare)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrRecord, err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6]), nil
}

// Travel returns the record as it travels with a capture and is stored.
func (r Record) Travel() (measure.CalibrationRecord, error) {
	text, err := json.Marshal(r)
	return measure.CalibrationRecord{ID: r.ID, Text: string(text)}, err
}

// Parse reads a record that has travelled, and checks it.
func Parse(c measure.CalibrationRecord) (Record, error) {
	var r Record
	if err := json.Unmarshal([]byte(c.Text), &r); err != nil {
		return Record{}, fmt.Errorf("record %.12s: %w: %w", measure.Printable(c.ID), ErrRecord, err)
	}
	if r.ID != c.ID {
		return Record{}, fmt.Errorf("record %.12s: %w: it calls itself %.12s", measure.Printable(c.ID), ErrRecord,
			measure.Printable(r.ID))
	}
	return r, r.Validate()
}

// Bounds on a record's content; far more than any bench has.
const (
	maxItems  = 256
	maxPoints = 1000
	maxText   = 1000
)

// Validate reports the first field that cannot be so, and an ID that is
// not that of its content. Errors wrap ErrRecord.
func (r *Record) Validate() error {
	if err := r.check(); err != nil {
		return fmt.Errorf("record %.12s: %w: %w", measure.Printable(r.ID), ErrRecord, err)
	}
	return nil
}

func (r *Record) check() error {
	id, err := r.contentID()
	if err != nil {
		return err
	}
	if r.ID != id {
		return fmt.Errorf(
			"its id is %q, its content's %s: it was edited, or cut off; records are never changed, make a new "+
				"one", r.ID, id)
	}
	if r.At.IsZero() || r.By == "" || r.Instrument.Kind == "" {
		return errors.New("at, by and instrument.kind must be given")
	}
	err = cmp.Or(shortText("by", r.By), shortText("remark", r.Remark), shortText("instrument", r.Instrument.Kind),
		shortText("serial", r.Instrument.Serial), shortText("reference", r.Conditions.Reference))
	if err != nil {
		return err
	}
	if t := r.Conditions.TemperatureC; t != nil && !measure.Known(*t) {
		return fmt.Errorf("temperature_c is %v", *t)
	}
	if w := r.Conditions.WithinK; w != nil && !notNegative(*w) {
		return fmt.Errorf("within_k is %v: want zero or more", *w)
	}
	if !r.ValidUntil.IsZero() && r.ValidUntil.Before(r.At) {
		return fmt.Errorf("valid_until %v lies before at %v", r.ValidUntil, r.At)
	}
	return r.checkContent()
}

// checkContent compares a record's content with its act.
func (r *Record) checkContent() error {
	if len(r.Channels) > maxItems || len(r.Rails) > maxItems {
		return fmt.Errorf("%d channels and %d rails: at most %d of each", len(r.Channels), len(r.Rails), maxItems)
	}
	seen := map[string]bool{}
	once := func(name string) error {
		if name == "" || seen[name] {
			return fmt.Errorf("name %q: must be given, and only once", name)
		}
		seen[name] = true
		return shortText("name", name)
	}
	for _, c := range r.Channels {
		if err := once(c.Name); err != nil {
			return fmt.Errorf("channels: %w", err)
		}
		if err := c.check(r.Done); err != nil {
			return fmt.Errorf("channel %s: %w", c.Name, err)
		}
	}
	clear(seen)
	for _, x := range r.Rails {
		if err := once(x.Name); err != nil {
			return fmt.Errorf("rails: %w", err)
		}
		if !(x.Ohm > 0) || !measure.Known(x.Ohm) || !(x.NominalOhm > 0) || !measure.Known(x.NominalOhm) ||
			!notNegative(x.URel) || !notNegative(x.NominalURel) {
			return fmt.Errorf("rail %s: ohm and nominal_ohm must be positive, u_rel and nominal_u_rel zero or positive",
				x.Name)
		}
		if err := x.Drift.check(); err != nil {
			return fmt.Errorf("rail %s: %w", x.Name, err)
		}
	}
	return r.checkDone()
}

// checkDone checks that a record names what its kind is about.
func (r *Record) checkDone() error {
	switch r.Done {
	case Zero, Gain, Import:
		if len(r.Channels) == 0 || len(r.Rails) > 0 {
			return fmt.Errorf("a %s names channels, and no rails", r.Done)
		}
	case Shunt:
		if len(r.Rails) == 0 || len(r.Channels) > 0 {
			return errors.New("a shunt names rails, and no channels")
		}
	case Note:
		if r.Remark == "" || len(r.Rails) > 0 {
			return errors.New("a note has a remark, and no rails")
		}
	default:
		return fmt.Errorf("done is %q: want %s, %s, %s, %s or %s", r.Done, Zero, Gain, Import, Shunt, Note)
	}
	return nil
}

func (c *Channel) check(done Act) error {
	if c.Unit != measure.UnitVolt && c.Unit != measure.UnitAmpere && c.Unit != measure.UnitWatt {
		return fmt.Errorf("unit %q: want V, A or W", c.Unit)
	}
	if (c.Scale == nil) != (done == Note) || (c.Nominal == nil) != (done == Note) {
		return errors.New("scale and nominal must be given, save in a note")
	}
	for _, s := range []*Scale{c.Scale, c.Nominal} {
		if s == nil {
			continue
		}
		if !measure.Known(s.Gain) || s.Gain == 0 || !measure.Known(s.Offset) || !notNegative(s.UGain) ||
			!notNegative(s.UOffset) || !notNegative(s.Noise) {
			return fmt.Errorf("a scale of %+v cannot be", *s)
		}
	}
	if err := cmp.Or(shortText("basis", c.Basis), c.Drift.check()); err != nil {
		return err
	}
	if len(c.Points) > maxPoints {
		return fmt.Errorf("%d points: at most %d", len(c.Points), maxPoints)
	}
	for i, p := range c.Points {
		if !measure.Known(p.Value) || !measure.Known(p.Reading) || !notNegative(p.U) || !notNegative(p.UReading) ||
			!measure.Known(p.MeanCount) || !notNegative(p.StdCount) {
			return fmt.Errorf("point %d of %+v cannot be", i+1, p)
		}
	}
	return nil
}

func notNegative(v float64) bool { return v >= 0 && !math.IsInf(v, 0) }

func shortText(what, s string) error {
	if len(s) > maxText {
		return fmt.Errorf("%s is %d bytes long: at most %d", what, len(s), maxText)
	}
	return measure.CheckText(what, s)
}
