package calib

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"wattmark/measure"
)

// ErrRecord is wrapped by errors about records that cannot be.
var ErrRecord = errors.New("not a calibration record")

// Act is what was done.
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

// Instrument says of which device a record speaks.
type Instrument struct {
	Kind   string `json:"kind"`
	Serial string `json:"serial,omitempty"` // empty where the device tells none
}

// Conditions are the circumstances, as far as somebody wrote them down.
type Conditions struct {
	TemperatureC *float64 `json:"temperature_c,omitempty"`
	// Reference names what the readings were held against, with its certificate.
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

// Channel is what a record says of one channel.
type Channel struct {
	Name string       `json:"name"`
	Unit measure.Unit `json:"unit"`
	// Scale is the calibration found; nil in a note.
	Scale *Scale `json:"scale,omitempty"`
	// Nominal is what the instrument and the bench file said of the channel when
	// the record was made. Where they say another gain or offset later, the record
	// no longer fits.
	Nominal *Scale `json:"nominal,omitempty"`
	// Basis is the record that was in force before: a zero keeps its gain, a gain
	// leans on its zero. Empty where there was none.
	Basis string `json:"basis,omitempty"`
	// Points are what the scale was found from.
	Points []Point `json:"points,omitempty"`
}

// Point is a known value and what the channel read there, under the scale that
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

// Rail is what a record says of a rail's shunt.
type Rail struct {
	Name string  `json:"name"`
	Ohm  float64 `json:"ohm"`
	URel float64 `json:"u_rel"` // relative standard uncertainty
	// NominalOhm and NominalURel are what the bench file said when the record was
	// made.
	NominalOhm  float64 `json:"nominal_ohm"`
	NominalURel float64 `json:"nominal_u_rel"`
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
func (r *Record) Seal() error {
	id, err := r.contentID()
	if err != nil {
		return err
	}
	r.ID = id
	return nil
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
		return Record{}, fmt.Errorf("record %.12s: %w: it calls itself %.12s", measure.Printable(c.ID), ErrRecord, measure.Printable(r.ID))
	}
	return r, r.Validate()
}
