package scope_test

import (
	"testing"
	"time"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	keysightface "github.com/wattmark/wattmark/monitor/emulator/keysight"
	rigolface "github.com/wattmark/wattmark/monitor/emulator/rigol"
	rsface "github.com/wattmark/wattmark/monitor/emulator/rohdeschwarz"
	scopeface "github.com/wattmark/wattmark/monitor/emulator/scope"
	siglentface "github.com/wattmark/wattmark/monitor/emulator/siglent"
	tekface "github.com/wattmark/wattmark/monitor/emulator/tektronix"
	"github.com/wattmark/wattmark/monitor/instrument/scope/keysight"
	"github.com/wattmark/wattmark/monitor/instrument/scope/rigol"
	"github.com/wattmark/wattmark/monitor/instrument/scope/rohdeschwarz"
	"github.com/wattmark/wattmark/monitor/instrument/scope/siglent"
	"github.com/wattmark/wattmark/monitor/instrument/scope/tektronix"
)

// emulated makes faces of a family.
func emulated[F any, S Face](f F, make func(*board.Board, F, scopeface.Config) (S, error),
) func(*board.Board, scopeface.Config) (Face, error) {
	return func(b *board.Board, cfg scopeface.Config) (Face, error) { return make(b, f, cfg) }
}

// flaky is a Keysight whose preamble is a plain +0 now and then.
func flaky(b *board.Board, m keysightface.Model, cfg scopeface.Config) (*keysightface.Face, error) {
	return keysightface.New(b, m, keysightface.Config{Config: cfg, Flaky: 7})
}

// suites are the families with the settings of their tests.
var suites = map[string]*Suite{
	"DS1000Z": {
		Family: rigol.DS1000Z, New: emulated(rigolface.DS1000Z, rigolface.New), Shallow: 3000, Deep: 300_000,
		Stop: ":STOP", Data: ":WAV:DATA?", State: ":TRIG:STAT?", Another: "RIGOL TECHNOLOGIES,DS1104Z,ANOTHER,1",
		Wrong: map[string]string{
			"RIGOL TECHNOLOGIES,DS2072A,1,1": "no driver", "RIGOL TECHNOLOGIES,MSO5074,1,1": "rigol-mso5000",
			"RIGOL TECHNOLOGIES,DHO804,1,1": "rigol-dho",
		},
	},
	"MSO5000": {
		Family: rigol.MSO5000, New: emulated(rigolface.MSO5000, rigolface.New), Shallow: 10_000, Deep: 1_000_000,
		Stop: ":STOP", Data: ":WAV:DATA?", State: ":TRIG:STAT?", Another: "RIGOL TECHNOLOGIES,MSO5354,ANOTHER,1",
		Wrong: map[string]string{
			"RIGOL TECHNOLOGIES,DS1054Z,1,1": "rigol-ds1000z", "RIGOL TECHNOLOGIES,DHO924,1,1": "rigol-dho",
		},
	},
	"DHO": {
		Family: rigol.DHO, New: emulated(rigolface.DHO, rigolface.New), Shallow: 10_000, Deep: 1_000_000,
		Stop: ":STOP", Data: ":WAV:DATA?", State: ":TRIG:STAT?", Another: "RIGOL TECHNOLOGIES,DHO924,ANOTHER,1",
		Wrong: map[string]string{
			"RIGOL TECHNOLOGIES,DS1054Z,1,1": "rigol-ds1000z", "RIGOL TECHNOLOGIES,MSO5074,1,1": "rigol-mso5000",
		},
	},
	"InfiniiVision": {
		Family: keysight.InfiniiVision, New: emulated(keysightface.EDUX1002G, flaky), Stop: ":STOP", Data: ":WAV:DATA?",
		State: ":OPER:COND?", Another: "AGILENT TECHNOLOGIES,DSO-X 2002A,ANOTHER,02.50",
		Wrong: map[string]string{
			"RIGOL TECHNOLOGIES,DS1054Z,1,1": "rigol-ds1000z", "KEYSIGHT TECHNOLOGIES,DSOS604A,1,1": "no driver",
			"KEYSIGHT TECHNOLOGIES,34461A,1,1": "no driver",
		},
	},
	"RTB2000": {
		Family: rohdeschwarz.RTB2000, New: emulated(rsface.RTB2004, rsface.New), Shallow: 10_000, Deep: 1_000_000,
		Stop: "STOP", Data: ":DATA?", State: "ACQ:STAT?", Another: "Rohde&Schwarz,RTB2004,ANOTHER,02.300",
		Wrong: map[string]string{
			"Rohde&Schwarz,RTM3004,1,1": "no driver", "Rohde&Schwarz,RTB2,1,1": "no driver",
			"TEKTRONIX,MDO3014,1,1": "tektronix",
		},
	},
	"SDS2000XPlus": e11(siglentface.SDS2000XPlus), "SDS2000XHD": e11(siglentface.SDS2000XHD),
	"MDO3000": tek(tekface.MDO3000, "TEKTRONIX,MDO3104,ANOTHER,1"), "MSO4": tek(tekface.MSO4, "TEKTRONIX,MSO54,ANOTHER,1"),
}

func e11(f *siglentface.Family) *Suite {
	return &Suite{
		Family: siglent.E11, New: emulated(f, siglentface.New), Shallow: 10_000, Deep: 1_000_000, Data: ":WAV:DATA?",
		State: ":TRIG:STAT?", Stop: ":TRIG:STOP", Another: "Siglent Technologies,SDS2354X Plus,ANOTHER,1",
		Wrong: map[string]string{
			"Siglent Technologies,SDS1104X-E,1,1": "no driver", "Siglent Technologies,SDS2104X,1,1": "no driver",
			"RIGOL TECHNOLOGIES,DS1054Z,1,1": "rigol-ds1000z",
		},
	}
}

func tek(f *tekface.Family, another string) *Suite {
	return &Suite{
		Family: tektronix.Tektronix, New: emulated(f, tekface.New), Shallow: 10_000, Deep: 1_000_000, Data: "CURV?",
		State: "TRIG:STATE?", Stop: "ACQ:STATE STOP", Another: another,
		Wrong: map[string]string{
			"TEKTRONIX,TDS2024C,0,1": "no driver", "TEKTRONIX,TBS1202C,0,1": "no driver",
			"Siglent Technologies,SDS2104X Plus,1,1": "siglent-e11",
		},
	}
}

func TestDS1000Z(t *testing.T)       { suites["DS1000Z"].Run(t) }
func TestMSO5000(t *testing.T)       { coverage.Long(t); suites["MSO5000"].Run(t) }
func TestDHO(t *testing.T)           { coverage.Long(t); suites["DHO"].Run(t) }
func TestInfiniiVision(t *testing.T) { coverage.Long(t); suites["InfiniiVision"].Run(t) }
func TestRTB2000(t *testing.T)       { coverage.Long(t); suites["RTB2000"].Run(t) }
func TestSDS2000XPlus(t *testing.T)  { coverage.Long(t); suites["SDS2000XPlus"].Run(t) }
func TestSDS2000XHD(t *testing.T)    { coverage.Long(t); suites["SDS2000XHD"].Run(t) }
func TestMDO3000(t *testing.T)       { coverage.Long(t); suites["MDO3000"].Run(t) }
func TestMSO4(t *testing.T)          { coverage.Long(t); suites["MSO4"].Run(t) }

// A reader that needs far longer than ours waits is asked again.
func TestASlowReader(t *testing.T) {
	t.Parallel()
	slow := emulated(rigolface.MSO5000.Settling(250*time.Millisecond), rigolface.New)
	s := Suite{Family: rigol.MSO5000, New: slow, Shallow: 10_000}
	s.Once(t)
}
