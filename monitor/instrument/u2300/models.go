package u2300

import (
	"fmt"
	"math"
	"strings"

	"wattmark/monitor/instrument"
	"wattmark/monitor/scpi"
)

const (
	firstChannel = 101
	slowest      = 3 // scans a second
)

// model is what one member of the family has. All convert 16 bits.
type model struct {
	name     string
	channels int     // single-ended inputs; half as many differential ones
	fastest  float64 // conversions a second in all
}

// models as the maker's Programmer's Guide lists them; the most able last. The
// U2331A, of 12 bits and other ranges, is not among them.
var models = []model{
	{"U2351A", 16, 250e3},
	{"U2352A", 16, 250e3},
	{"U2353A", 16, 500e3},
	{"U2354A", 16, 500e3},
	{"U2355A", 64, 250e3},
	{"U2356A", 64, 500e3},
}

// lookup finds a model by what *IDN? says.
func lookup(id scpi.Identity) (model, error) {
	maker := strings.ToUpper(id.Maker)
	if strings.Contains(maker, "KEYSIGHT") || strings.Contains(maker, "AGILENT") {
		for _, m := range models {
			if strings.EqualFold(id.Model, m.name) {
				return m, nil
			}
		}
	}
	return model{}, fmt.Errorf("%w: it is a %s %s, wanted a Keysight or Agilent U2351A to U2356A", instrument.ErrIdentity, id.Maker, id.Model)
}

// fits reports options that this model cannot keep, with what to change.
func (m model) fits(o Options) error {
	n := len(o.Inputs)
	if o.ScanRate*float64(n) > m.fastest {
		return fmt.Errorf("scan_rate %v with %d inputs: a %s converts %v times a second in all: set scan_rate: %v or less",
			o.ScanRate, n, m.name, m.fastest, math.Floor(m.fastest/float64(n)))
	}
	for k, i := range o.Inputs {
		last := firstChannel + m.channels - 1
		if i.Ground == "diff" {
			last = firstChannel + m.channels/2 - 1
		}
		if i.Channel > last {
			return fmt.Errorf("inputs[%d].channel %d: a %s has %d to %d for such an input", k, i.Channel, m.name, firstChannel, last)
		}
		if i.Ground != "diff" {
			continue
		}
		for _, other := range o.Inputs {
			if other.Channel == i.Channel+m.channels/2 {
				return fmt.Errorf("inputs[%d].channel %d: diff takes channel %d as its second wire: leave that out", k, i.Channel, other.Channel)
			}
		}
	}
	return nil
}
