//go:build linux

package emulator_test

import (
	"fmt"
	"testing"
	"time"

	"wattmark/monitor/emulator/dataqface"
	"wattmark/monitor/emulator/fault"
	"wattmark/monitor/emulator/pmd2face"
	"wattmark/monitor/emulator/pmdface"
	"wattmark/monitor/emulator/ps3face"
	"wattmark/monitor/instrument/insttest"
	"wattmark/monitor/instrument/registry"
)

// A device whose answer comes late, and then meets the next question, is still known
// for what it is.
func TestALateAnswerIsNoOtherInstrument(t *testing.T) {
	b := insttest.Workload(t, time.Second)
	for kind, face := range map[string]func() (insttest.Firmware, error){
		"pmd":          func() (insttest.Firmware, error) { return pmdface.New(b, unhurried(), pmdface.Config{}) },
		"pmd2":         func() (insttest.Firmware, error) { return pmd2face.New(b, unhurried(), pmd2face.Config{}) },
		"powersensor3": func() (insttest.Firmware, error) { return ps3face.New(b, unhurried(), ps3face.Config{}) },
		"dataq":        func() (insttest.Firmware, error) { return dataqface.New(b, unhurried(), dataqface.Config{}) },
	} {
		for _, late := range []struct {
			at int64 // bytes that come in time
			by time.Duration
		}{{0, 400 * time.Millisecond}, {0, 1200 * time.Millisecond}, {3, 400 * time.Millisecond}, {17, 1200 * time.Millisecond}} {
			t.Run(fmt.Sprintf("%s/%v after byte %d", kind, late.by, late.at), func(t *testing.T) {
				t.Parallel()
				f, err := face()
				if err != nil {
					t.Fatal(err)
				}
				plug := insttest.PlugIn(t, f, fault.Faults{Script: []fault.Fault{{Kind: fault.Stall, At: late.at, For: late.by}}})
				k, err := registry.Lookup(kind)
				if err != nil {
					t.Fatal(err)
				}
				dev, err := k.New(registry.Env{}, plug.Path, k.Options())
				if err != nil {
					t.Fatal(err)
				}
				defer dev.Close()
				if err := dev.Open(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
