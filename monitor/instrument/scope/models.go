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
	Memory   int    // points over all channels
	Series   string // within the family, where that matters to its Dialect
}

func model(kind, maker, pattern string, channels, memory int) Model {
	return Model{Kind: kind, Maker: maker, pattern: regexp.MustCompile("^" + pattern), Channels: channels, Memory: memory}
}

// of names the series of a model.
func (m Model) of(series string) Model {
	m.Series = series
	return m
}

// models is the table of all scopes that are known, each family in one place.
// The first row that fits counts.
var models = []Model{
	model("rigol-ds1000z", "RIGOL", `(DS|MSO)1\d\d4Z`, 4, 12_000_000),

	model("rigol-mso5000", "RIGOL", `MSO5\d\d2`, 2, 100_000_000),
	model("rigol-mso5000", "RIGOL", `MSO5\d\d4`, 4, 100_000_000),

	model("rigol-dho", "RIGOL", `DHO[89]\d2`, 2, 50_000_000),
	model("rigol-dho", "RIGOL", `DHO[89]\d4`, 4, 50_000_000),

	model("siglent-e11", "SIGLENT", `SDS2\d\d4X[ -]?(PLUS|HD)`, 4, 400_000_000).of("SDS2000X"),
	model("siglent-e11", "SIGLENT", `SDS2\d\d2X[ -]?(PLUS|HD)`, 2, 200_000_000).of("SDS2000X"),
	model("siglent-e11", "SIGLENT", `SDS(3\d\d4X[ -]?HD|7\d\d4A)`, 4, 400_000_000).of("SDS3000X"),
	model("siglent-e11", "SIGLENT", `SDS5\d\d4X`, 4, 500_000_000).of("SDS5000X"),
	model("siglent-e11", "SIGLENT", `SDS5\d\d2X`, 2, 250_000_000).of("SDS5000X"),
	model("siglent-e11", "SIGLENT", `SDS6\d\d4( ?A| ?L| ?H1[02]| ?PRO|$)`, 4, 500_000_000).of("SDS6000A"),
	model("siglent-e11", "SIGLENT", `SDS(8|1[012])\d4X[ -]?HD`, 4, 100_000_000).of("SDS1000X"),
	model("siglent-e11", "SIGLENT", `SDS(8|1[012])\d2X[ -]?HD`, 2, 100_000_000).of("SDS1000X"),

	model("tektronix", "TEKTRONIX", `MSO44B?$`, 4, 125_000_000).of("4/5/6"),
	model("tektronix", "TEKTRONIX", `MSO46B?$`, 6, 187_500_000).of("4/5/6"),
	model("tektronix", "TEKTRONIX", `MSO[56]4B?$`, 4, 250_000_000).of("4/5/6"),
	model("tektronix", "TEKTRONIX", `MSO[56]6B?$`, 6, 375_000_000).of("4/5/6"),
	model("tektronix", "TEKTRONIX", `MSO[56]8(LP|B)?$`, 8, 500_000_000).of("4/5/6"),
	model("tektronix", "TEKTRONIX", `(MSO|DPO)3\d\d4$`, 4, 20_000_000),
	model("tektronix", "TEKTRONIX", `(MSO|DPO)3\d\d2$`, 2, 10_000_000),
	model("tektronix", "TEKTRONIX", `MDO3\d\d4$`, 4, 40_000_000),
	model("tektronix", "TEKTRONIX", `MDO3\d\d2$`, 2, 20_000_000),
	model("tektronix", "TEKTRONIX", `(MSO|DPO|MDO)4\d\d4-?\d?[BC]?$`, 4, 80_000_000),
	model("tektronix", "TEKTRONIX", `(MSO|DPO|MDO)4\d\d2-?\d?[BC]?$`, 2, 40_000_000),

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
