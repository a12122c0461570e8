package sensor

import (
	"testing"
	"time"

	"github.com/wattmark/wattmark/monitor/clocktest"
)

// On the line of a measurement no reading is left out when the wall clock is set back;
// on the wall's own time it would be.
func TestReadingsWhileTheClockIsSetBack(t *testing.T) {
	clock := clocktest.New()
	base := clock.Now()
	line := func(at time.Time) time.Time { return base.Round(0).Add(at.Sub(base)) }
	var on, off trace
	for i := range 4 {
		if i == 2 {
			clock.Step(-time.Hour)
		}
		at, v := clock.Now(), float64(100+i)
		on.add(line(at), v)
		off.add(at, v)
	}
	if len(on.runs) != 4 || len(off.runs) != 2 {
		t.Errorf("%d readings on the line, %d on the wall's time; want 4 and 2", len(on.runs), len(off.runs))
	}
}
