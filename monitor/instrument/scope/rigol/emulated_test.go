package rigol

import (
	"testing"
	"time"

	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/rigolface"
	"wattmark/monitor/emulator/scopeface"
	"wattmark/monitor/instrument/scope/scopetest"
)

// emulated makes faces of a family.
func emulated(f *rigolface.Family) func(*board.Board, scopeface.Config) (scopetest.Face, error) {
	return func(b *board.Board, cfg scopeface.Config) (scopetest.Face, error) { return rigolface.New(b, f, cfg) }
}

func TestDS1000Z(t *testing.T) {
	s := scopetest.Suite{
		Family: DS1000Z, New: emulated(rigolface.DS1000Z), Shallow: 3000, Deep: 300_000, Stop: ":STOP", Data: ":WAV:DATA?", State: ":TRIG:STAT?",
		Another: "RIGOL TECHNOLOGIES,DS1104Z,ANOTHER,1",
		Wrong: map[string]string{
			"RIGOL TECHNOLOGIES,DS2072A,1,1": "no driver", "RIGOL TECHNOLOGIES,MSO5074,1,1": "rigol-mso5000", "RIGOL TECHNOLOGIES,DHO804,1,1": "rigol-dho",
		},
	}
	s.Run(t)
}

func TestMSO5000(t *testing.T) {
	s := scopetest.Suite{
		Family: MSO5000, New: emulated(rigolface.MSO5000), Shallow: 10_000, Deep: 1_000_000, Stop: ":STOP", Data: ":WAV:DATA?", State: ":TRIG:STAT?",
		Another: "RIGOL TECHNOLOGIES,MSO5354,ANOTHER,1",
		Wrong:   map[string]string{"RIGOL TECHNOLOGIES,DS1054Z,1,1": "rigol-ds1000z", "RIGOL TECHNOLOGIES,DHO924,1,1": "rigol-dho"},
	}
	s.Run(t)
}

func TestDHO(t *testing.T) {
	s := scopetest.Suite{
		Family: DHO, New: emulated(rigolface.DHO), Shallow: 10_000, Deep: 1_000_000, Stop: ":STOP", Data: ":WAV:DATA?", State: ":TRIG:STAT?",
		Another: "RIGOL TECHNOLOGIES,DHO924,ANOTHER,1",
		Wrong:   map[string]string{"RIGOL TECHNOLOGIES,DS1054Z,1,1": "rigol-ds1000z", "RIGOL TECHNOLOGIES,MSO5074,1,1": "rigol-mso5000"},
	}
	s.Run(t)
}

// A reader that needs far longer than ours waits is asked again.
func TestASlowReader(t *testing.T) {
	s := scopetest.Suite{Family: MSO5000, New: emulated(rigolface.MSO5000.Settling(250 * time.Millisecond)), Shallow: 10_000}
	s.Once(t)
}
