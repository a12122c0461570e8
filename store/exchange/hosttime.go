package exchange

import (
	"math"

	"wattmark/measure"
	"wattmark/store"
)

// hostTime maps device time to the host's clock.
type hostTime struct {
	whole   int64 // ns since 1970 of origin's whole seconds
	rest, a float64
	b       float64
	fitted  bool
}

// newHostTime takes the clock fit, or, where there is none, the monitor's own
// clock at device time zero.
func newHostTime(t *store.Task) hostTime {
	if f := t.Clock; f != nil && f.B > 0 {
		sec := math.Floor(float64(f.Origin))
		return hostTime{int64(sec) * 1e9, float64(f.Origin) - sec, float64(f.A), f.B, true}
	}
	if t.Started.IsZero() {
		return hostTime{b: 1}
	}
	return hostTime{whole: t.Started.UnixNano(), b: 1}
}

// nanos returns the host's time in ns since 1970 of a device time. The whole
// seconds never pass through a float64, which would cost 0.2 µs.
func (h *hostTime) nanos(t measure.Seconds) int64 {
	return h.whole + int64(math.Round(((float64(t)-h.a)/h.b+h.rest)*1e9))
}

// HostNanos returns the host's time in ns since 1970 (CLOCK_REALTIME) of a device
// time, by the task's clock fit, else by the monitor's clock at device time zero.
func (m *Meta) HostNanos(t measure.Seconds) int64 { return m.hostTime.nanos(t) }

// HostFitted says that HostNanos rests on edges that both clocks saw.
func (m *Meta) HostFitted() bool { return m.hostTime.fitted }
