package scopetest

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"wattmark/measure"
	"wattmark/monitor/emulator/scopeface"
	"wattmark/monitor/emulator/scpiface"
	"wattmark/monitor/instrument"
	"wattmark/monitor/scpi"
)

// stopped: what a scope misses that somebody else stops is not lost in silence.
func (s *Suite) stopped(t *testing.T) {
	b := s.bench(t, scopeface.Config{}, 0)
	k, dev, err := s.take(t, b, s.options(600*time.Millisecond, s.Shallow), 300*time.Millisecond, func(k *taker) {
		k.onArmed = func() { time.AfterFunc(100*time.Millisecond, func() { b.other(s.Stop) }) }
	})
	if s.Family.Whole { // nobody knows what it holds then
		if !errors.Is(err, scpi.ErrInstrument) || !strings.Contains(err.Error(), "front panel") || len(k.Scans()) > 0 {
			t.Errorf("%d scans, %v", len(k.Scans()), err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	n, rate := len(k.Scans()), float64(dev.Inputs().Timebase.SampleRate())
	gaps := k.Events(measure.EventGap)
	if len(gaps) != 1 || gaps[0].FirstScan != uint64(n) || !strings.Contains(gaps[0].Detail, "front panel") {
		t.Fatalf("%d scans, %+v", n, gaps)
	}
	if took := window(dev.Inputs(), n); took < 0.05 || took > 0.25 {
		t.Errorf("%v of 0.1 s", took)
	}
	if due := float64(n) + float64(k.Lost()); due < k.stopped.Sub(k.at).Seconds()*rate-1 {
		t.Errorf("%v scans held and lost of %v", due, k.stopped.Sub(k.at))
	}
}

// Once takes one recording that fills a shallow memory, which must be whole.
func (s *Suite) Once(t *testing.T) { s.mended(t, nil, 0) }

// mended takes a recording in spite of a fault: not a scan is lost, not one is
// invented.
func (s *Suite) mended(t *testing.T, fault *scpiface.Fault, fragment int) {
	b := s.bench(t, scopeface.Config{}, fragment)
	o := s.options(60*time.Millisecond, s.Shallow)
	if fault != nil {
		o.Timeout = 400 * time.Millisecond // shorter than a reply is late
	}
	k, dev, err := s.take(t, b, o, 130*time.Millisecond, func(*taker) {
		if fault != nil {
			b.Inject(*fault)
		}
	})
	if err != nil || b.Pending() != 0 {
		t.Fatalf("%d faults to come, %v", b.Pending(), err)
	}
	in, n := dev.Inputs(), len(k.Scans())
	if took := window(in, n); s.Shallow != 0 && n != s.Shallow || took < 0.06 {
		t.Errorf("%d scans, %v", n, took)
	}
	r, want := energy(t, k, in, 0.002, 0.058), b.truth(t, len(in.Channels), 0.002, 0.058)
	if rel := float64(r.Total.Energy/want) - 1; math.Abs(rel) > 0.02 {
		t.Errorf("%+.2f %% (%+v)", 100*rel, dev.Stats())
	}
}

// faults of the line are all mended.
func (s *Suite) faults(t *testing.T) {
	data := func(k scpiface.Kind, bytes int) *scpiface.Fault {
		return &scpiface.Fault{Kind: k, Match: s.Data, Skip: 1, Bytes: bytes, Text: "beep\n", For: 500 * time.Millisecond}
	}
	for name, c := range map[string]struct {
		fault    *scpiface.Fault
		fragment int
	}{
		"byte by byte":                   {fragment: 1},
		"truncated block":                {fault: data(scpiface.Truncate, 700)},
		"a header and then nothing":      {fault: data(scpiface.Header, 0)},
		"no reply":                       {fault: data(scpiface.Mute, 0)},
		"late reply":                     {fault: data(scpiface.Late, 0)},
		"unsolicited text":               {fault: data(scpiface.Unsolicited, 0)},
		"junk behind a block":            {fault: data(scpiface.Junk, 0)},
		"cable pulled while it delivers": {fault: data(scpiface.Hangup, 0)},
		"cable pulled while it samples":  {fault: &scpiface.Fault{Kind: scpiface.Hangup, Match: s.State, Skip: 3}},
		"errors in the queue":            {fault: &scpiface.Fault{Kind: scpiface.QueueError, Match: s.State, Skip: 1, Times: 3, Err: scpiface.ErrRange}},
		"two replies lost":               {fault: &scpiface.Fault{Kind: scpiface.Mute, Match: s.Data, Times: 2}},
	} {
		t.Run(name, beside(func(t *testing.T) { s.mended(t, c.fault, c.fragment) }))
	}
}

func (s *Suite) fatal(t *testing.T) {
	for name, c := range map[string]struct {
		during func(b *Bench)
		refuse bool
		want   error
		says   string
	}{
		"another scope at the address": {func(b *Bench) {
			b.Inject(scpiface.Fault{Kind: scpiface.Hangup, Match: s.State, Skip: 1})
			b.SetIdentity(s.Another)
		}, false, instrument.ErrIdentity, "answers where"},
		"switched off and on": {func(b *Bench) { b.other("*RST") }, false, nil, "switched off"},
		"the sink has enough": {nil, true, errRefused, ""},
	} {
		t.Run(name, beside(func(t *testing.T) {
			b := s.bench(t, scopeface.Config{}, 0)
			_, _, err := s.take(t, b, s.options(60*time.Millisecond, s.Shallow), 200*time.Millisecond, func(k *taker) {
				k.refuse = c.refuse
				if c.during != nil {
					k.onArmed = func() { c.during(b) }
				}
			})
			if err == nil || (c.want != nil && !errors.Is(err, c.want)) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
		}))
	}
}

// unwanted: a scope that says nothing more is not waited for where nobody wants what it
// holds, as when its monitor is stopped.
func (s *Suite) unwanted(t *testing.T) {
	b := s.bench(t, scopeface.Config{}, 0)
	_, _, err := s.take(t, b, s.options(60*time.Millisecond, s.Shallow), 100*time.Millisecond, func(k *taker) {
		k.unwanted = make(chan struct{})
		k.onArmed = func() { b.Inject(scpiface.Fault{Kind: scpiface.Mute, Times: 1000}) }
		stop := k.stop
		k.stop = func() {
			stop()
			close(k.unwanted)
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
