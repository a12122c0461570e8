package keysight

import (
	"testing"

	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/keysightface"
	"wattmark/monitor/emulator/scopeface"
	"wattmark/monitor/instrument/scope/scopetest"
)

func emulated(m keysightface.Model) func(*board.Board, scopeface.Config) (scopetest.Face, error) {
	return func(b *board.Board, cfg scopeface.Config) (scopetest.Face, error) {
		return keysightface.New(b, m, keysightface.Config{Config: cfg, Flaky: 7})
	}
}

func TestInfiniiVision(t *testing.T) {
	s := scopetest.Suite{
		Family: InfiniiVision, New: emulated(keysightface.EDUX1002G), Stop: ":STOP", Data: ":WAV:DATA?", State: ":OPER:COND?",
		Another: "AGILENT TECHNOLOGIES,DSO-X 2002A,ANOTHER,02.50",
		Wrong: map[string]string{
			"RIGOL TECHNOLOGIES,DS1054Z,1,1": "rigol-ds1000z", "KEYSIGHT TECHNOLOGIES,DSOS604A,1,1": "no driver", "KEYSIGHT TECHNOLOGIES,34461A,1,1": "no driver",
		},
	}
	s.Run(t)
}
