package measure

import (
	"testing"
	"time"
)

func TestHardwareMark(t *testing.T) {
	m := HardwareMark{time.Date(2026, 1, 2, 3, 4, 5, 678_901_234, time.UTC), "0a1b2c"}
	e := m.Event(77)
	if got, ok := e.HardwareMark(); !ok || !got.Asked.Equal(m.Asked) || got.Machine != m.Machine || e.FirstScan != 77 {
		t.Errorf("%q: %+v, %v", e.Detail, got, ok)
	}
	other := Event{Kind: EventNote, Detail: "marked on the host's request"}
	if _, ok := other.HardwareMark(); ok {
		t.Error("another note is a mark")
	}
}

func FuzzHardwareMark(f *testing.F) {
	f.Add("hardware mark, asked for by machine a at 2026-01-02T03:04:05.6Z")
	f.Add("hardware mark, asked for by machine  at ")
	f.Fuzz(func(t *testing.T, detail string) {
		e := Event{Kind: EventNote, Detail: detail}
		if m, ok := e.HardwareMark(); ok {
			again := m.Event(0)
			if back, ok := again.HardwareMark(); !ok || !back.Asked.Equal(m.Asked) || back.Machine != m.Machine {
				t.Errorf("%q gives %+v, which gives %+v", detail, m, back)
			}
		}
	})
}
