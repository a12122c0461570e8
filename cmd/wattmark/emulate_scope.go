package main

import (
	"maps"
	"slices"

	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/keysightface"
	"wattmark/monitor/emulator/rigolface"
	"wattmark/monitor/emulator/scopeface"
	"wattmark/monitor/emulator/siglentface"
	"wattmark/monitor/emulator/tekface"
)

// emulatedScope is a scope in software and the driver for it.
type emulatedScope struct {
	driver string
	face   func(*board.Board, scopeface.Config) (firmware, error)
}

// scopes are all that can be emulated.
var scopes = map[string]emulatedScope{
	"ds1054z":   {"rigol-ds1000z", rigolScope(rigolface.DS1000Z)},
	"mso5074":   {"rigol-mso5000", rigolScope(rigolface.MSO5000)},
	"dho804":    {"rigol-dho", rigolScope(rigolface.DHO)},
	"dsox1102g": {"keysight-infiniivision", keysightScope(keysightface.DSOX1102G)},
	"edux1002g": {"keysight-infiniivision", keysightScope(keysightface.EDUX1002G)},

	"sds2104x-plus": {"siglent-e11", siglentScope(siglentface.SDS2000XPlus)},
	"sds2104x-hd":   {"siglent-e11", siglentScope(siglentface.SDS2000XHD)},
	"mdo3014":       {"tektronix", tektronixScope(tekface.MDO3000)},
	"mso44":         {"tektronix", tektronixScope(tekface.MSO4)},
}

func rigolScope(f *rigolface.Family) func(*board.Board, scopeface.Config) (firmware, error) {
	return func(b *board.Board, cfg scopeface.Config) (firmware, error) { return rigolface.New(b, f, cfg) }
}

func keysightScope(m keysightface.Model) func(*board.Board, scopeface.Config) (firmware, error) {
	return func(b *board.Board, cfg scopeface.Config) (firmware, error) {
		return keysightface.New(b, m, keysightface.Config{Config: cfg})
	}
}

func siglentScope(f *siglentface.Family) func(*board.Board, scopeface.Config) (firmware, error) {
	return func(b *board.Board, cfg scopeface.Config) (firmware, error) { return siglentface.New(b, f, cfg) }
}

func tektronixScope(f *tekface.Family) func(*board.Board, scopeface.Config) (firmware, error) {
	return func(b *board.Board, cfg scopeface.Config) (firmware, error) { return tekface.New(b, f, cfg) }
}

// scopeNames lists them in order.
func scopeNames() []string { return slices.Sorted(maps.Keys(scopes)) }
