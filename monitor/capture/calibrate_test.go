package capture

import (
	"errors"
	"testing"
	"testing/synctest"

	"wattmark/measure"
	"wattmark/monitor/instrument"
	"wattmark/monitor/spool"
)

// A record that is written while a capture runs waits for the next one, also
// where the instrument is lost and opened again meanwhile.
func TestARecordWaitsForTheNextCapture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter()
		m.unplug(2)
		offset, called := 0.0, 0
		l := newLab(t, m, t.TempDir(), func(c *Config, _ *spool.Options) {
			c.Calibrate = func(s measure.Setup, id instrument.Identity) (measure.Setup, []string, error) {
				called++
				if id.Serial != "7" {
					t.Errorf("asked for the calibration of %+v", id)
				}
				s.Channels = append([]measure.Channel{}, s.Channels...)
				s.Channels[0].Offset = offset
				s.Records = []measure.CalibrationRecord{{ID: "abc", Text: "{}"}}
				return s, []string{"a note"}, nil
			}
		})
		if b := l.Bench(t.Context()); called != 0 || b.Setup.Records != nil {
			t.Errorf("calibrated %d times before the instrument said who it is: %+v", called, b)
		}
		c := l.start(Request{})
		l.until(0.5)
		offset = 1 // the new record
		l.until(3)
		sum, err := c.Stop(t.Context())
		if err != nil || sum.State != Complete || sum.Gaps != 1 {
			t.Fatalf("%+v, %v", sum, err)
		}
		h := l.read(c, ReadOptions{}).header
		if h.Setup.Channels[0].Offset != 0 || len(h.Setup.Records) != 1 || called != 1 {
			t.Errorf("%+v after %d calls", h.Setup, called)
		}
		again := l.start(Request{})
		if s := again.Header().Setup; s.Channels[0].Offset != 1 {
			t.Errorf("the next capture still has the offset %v", s.Channels[0].Offset)
		}
		b := l.Bench(t.Context())
		if b.Nominal.Channels[0].Offset != 0 || b.Setup.Channels[0].Offset != 1 || len(b.Notes) != 1 {
			t.Errorf("%+v", b)
		}
		if _, err := again.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Without knowing the calibration nothing is measured.
func TestAnUnreadableRecordStopsTheBench(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := errors.New("calibration/x.yaml:3:1: it was edited")
		l := newLab(t, newMeter(), t.TempDir(), func(c *Config, _ *spool.Options) {
			c.Calibrate = func(s measure.Setup, _ instrument.Identity) (measure.Setup, []string, error) { return s, nil, bad }
		})
		if _, err := l.Start(t.Context(), Request{Holder: "ada@lab"}); !errors.Is(err, ErrUnavailable) || !errors.Is(err, bad) {
			t.Errorf("%v", err)
		}
		if b := l.Bench(t.Context()); b.Holder != "" || !errors.Is(b.Err, bad) {
			t.Errorf("%+v", b)
		}
	})
}
