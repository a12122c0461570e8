package scope

import (
	"fmt"
	"regexp"
	"strings"

	"wattmark/monitor/instrument"
	"wattmark/monitor/scpi"
)

// Model is a row of the table: a run of models of one family.
type Model struct {
	Kind     string // of the driver that speaks with it
	Maker    string // which the maker's field of *IDN? holds, in capitals
	pattern  *regexp.Regexp
	Channels int
	Memory   int // points over all channels
}

func model(kind, maker, pattern string, channels, memory int) Model {
	return Model{kind, maker, regexp.MustCompile("^" + pattern), channels, memory}
}

// models is the table of all scopes that are known, each family in one place.
// The first row that fits counts.
var models = []Model{
	model("rigol-ds1000z", "RIGOL", `(DS|MSO)1\d\d4Z`, 4, 12_000_000),

	model("rigol-mso5000", "RIGOL", `MSO5\d\d2`, 2, 100_000_000),
	model("rigol-mso5000", "RIGOL", `MSO5\d\d4`, 4, 100_000_000),

	model("rigol-dho", "RIGOL", `DHO[89]\d2`, 2, 50_000_000),
	model("rigol-dho", "RIGOL", `DHO[89]\d4`, 4, 50_000_000),

	model("keysight-infiniivision", "KEYSIGHT", `(DSO|MSO|EDU)-?X ?[1-46]\d\d2`, 2, 8_000_000),
	model("keysight-infiniivision", "KEYSIGHT", `(DSO|MSO|EDU)-?X ?[1-46]\d\d4`, 4, 8_000_000),
	model("keysight-infiniivision", "AGILENT", `(DSO|MSO)-?X ?[1-46]\d\d2`, 2, 8_000_000),
	model("keysight-infiniivision", "AGILENT", `(DSO|MSO)-?X ?[1-46]\d\d4`, 4, 8_000_000),
}

// Identify finds the row of an identity.
func Identify(id scpi.Identity) (Model, bool) {
	maker, name := strings.ToUpper(id.Maker), strings.ToUpper(strings.TrimSpace(id.Model))
	for _, m := range models {
		if strings.Contains(maker, m.Maker) && m.pattern.MatchString(name) {
			return m, true
		}
	}
	return Model{}, false
}

// accept refuses what is not of the family: others scale their points otherwise.
func (f *Family) accept(id scpi.Identity) error {
	m, known := Identify(id)
	switch {
	case !known:
		return fmt.Errorf("%w: it is a %s %s, wanted a %s; this program knows no driver for it", instrument.ErrIdentity, id.Maker, id.Model, f.Name)
	case m.Kind != f.Kind:
		return fmt.Errorf("%w: it is a %s %s, wanted a %s: use kind %s", instrument.ErrIdentity, id.Maker, id.Model, f.Name, m.Kind)
	}
	return nil
}
