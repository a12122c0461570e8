//go:build linux

package siglent

import (
	"testing"

	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/scopeface"
	"wattmark/monitor/emulator/siglentface"
	"wattmark/monitor/instrument/scope/scopetest"
)

// suite checks a family of faces.
func suite(f *siglentface.Family) *scopetest.Suite {
	return &scopetest.Suite{
		Family: E11, Shallow: 10_000, Deep: 1_000_000, Data: ":WAV:DATA?", State: ":TRIG:STAT?", Stop: ":TRIG:STOP",
		New:     func(b *board.Board, cfg scopeface.Config) (scopetest.Face, error) { return siglentface.New(b, f, cfg) },
		Another: "Siglent Technologies,SDS2354X Plus,ANOTHER,1",
		Wrong: map[string]string{
			"Siglent Technologies,SDS1104X-E,1,1": "no driver", "Siglent Technologies,SDS2104X,1,1": "no driver", "RIGOL TECHNOLOGIES,DS1054Z,1,1": "rigol-ds1000z",
		},
	}
}

func TestSDS2000XPlus(t *testing.T) { suite(siglentface.SDS2000XPlus).Run(t) }

func TestSDS2000XHD(t *testing.T) { suite(siglentface.SDS2000XHD).Run(t) }
