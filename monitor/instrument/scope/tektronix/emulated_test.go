//go:build linux

package tektronix

import (
	"testing"

	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/scopeface"
	"wattmark/monitor/emulator/tekface"
	"wattmark/monitor/instrument/scope/scopetest"
)

// suite checks a family of faces.
func suite(f *tekface.Family, another string) *scopetest.Suite {
	return &scopetest.Suite{
		Family: Tektronix, Shallow: 10_000, Deep: 1_000_000, Data: "CURV?", State: "TRIG:STATE?", Stop: "ACQ:STATE STOP", Another: another,
		New: func(b *board.Board, cfg scopeface.Config) (scopetest.Face, error) { return tekface.New(b, f, cfg) },
		Wrong: map[string]string{
			"TEKTRONIX,TDS2024C,0,1": "no driver", "TEKTRONIX,TBS1202C,0,1": "no driver", "Siglent Technologies,SDS2104X Plus,1,1": "siglent-e11",
		},
	}
}

func TestMDO3000(t *testing.T) { suite(tekface.MDO3000, "TEKTRONIX,MDO3104,ANOTHER,1").Run(t) }

func TestMSO4(t *testing.T) { suite(tekface.MSO4, "TEKTRONIX,MSO54,ANOTHER,1").Run(t) }
