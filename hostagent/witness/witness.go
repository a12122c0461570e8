// Package witness switches a line of this host that is wired to an input of the meter: a witness of time beside the
// marker kernels, which needs no GPU.
//
//	DTR or RTS of a serial port, a GPIO's value ──▶ the bench's channel "witness"
//
// When the line was switched is stored as readings; Find looks for the changes in the channel.
package witness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
	"go.bug.st/serial"
)

// Method is that of the readings: at the begin of the call that switched the line, how long it took in seconds,
// negative where it was switched off. Channel is the name of the meter's channel, or the last part of it.
const (
	Method  = "witness"
	Channel = "witness"
)

// Line is an output of this host. One goroutine uses it.
type Line interface {
	// Set returns when the line has changed.
	Set(on bool) error
	Close() error
}

// Open opens the line of a serial port, as PORT or PORT:dtr and PORT:rts, or a file that takes 1 and 0, as of a GPIO.
func Open(name string) (Line, error) {
	path, which, named := strings.Cut(name, ":")
	if info, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%w: name a serial port, or the value file of a GPIO", err)
	} else if info.Mode()&os.ModeCharDevice == 0 {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		return fileLine{f}, nil
	}
	if named && which != "dtr" && which != "rts" {
		return nil, fmt.Errorf("%s has no line %q: want %s:dtr or %s:rts", path, which, path, path)
	}
	port, err := serial.Open(path, &serial.Mode{BaudRate: 9600})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	l := portLine{port, port.SetDTR}
	if which == "rts" {
		l.set = port.SetRTS
	}
	if err := l.Set(false); err != nil {
		return nil, errors.Join(fmt.Errorf("%s cannot be switched: %w", name, err), l.Close())
	}
	return l, nil
}

type portLine struct {
	serial.Port
	set func(bool) error
}

func (l portLine) Set(on bool) error { return l.set(on) }

type fileLine struct{ *os.File }

func (f fileLine) Set(on bool) error {
	value := "0\n"
	if on {
		value = "1\n"
	}
	_, err := f.WriteAt([]byte(value), 0)
	return err
}

// A line changes after Apart to three times that. Two changes one way are twice Apart from each other at least, so that
// one that is within Apart of where it is looked for is the one.
const Apart = 300 * time.Millisecond

// Run switches a line until ctx ends, which is no error, and stores each change.
func Run(ctx context.Context, l Line, put func(context.Context, []store.Reading) error) error {
	for on := true; ; on = !on {
		if backoff.Sleep(ctx, Apart+rand.N(2*Apart)) != nil {
			return nil
		}
		begin := time.Now()
		if err := l.Set(on); err != nil {
			return err
		}
		took := max(time.Since(begin), 1).Seconds()
		if !on {
			took = -took
		}
		r := store.Reading{Method: Method, At: begin, Value: took}
		if err := put(context.WithoutCancel(ctx), []store.Reading{r}); err != nil {
			return err
		}
	}
}

// ChannelOf returns the index of the channel that shows the line, -1 without one.
func ChannelOf(s *measure.Setup) int {
	return slices.IndexFunc(s.Channels, func(c measure.Channel) bool {
		return c.Name == Channel || strings.HasSuffix(c.Name, "/"+Channel)
	})
}

// Change is when the channel was seen to pass from one level to the other: between two readings.
type Change struct {
	From, To measure.Seconds
	On       bool
}

// Middle is its most likely time.
func (c Change) Middle() measure.Seconds { return (c.From + c.To) / 2 }

// Finder looks for changes of a channel of two levels. Its memory grows with the changes.
type Finder struct {
	tb      measure.Timebase
	channel int
	skew    measure.Seconds
	lo, hi  measure.Count // a quarter and three quarters of the way between the levels
	begun   bool
	high    bool
	next    uint64          // the scan behind the last one
	last    measure.Seconds // of the last reading on its level
	Changes []Change
}

// NewFinder makes a finder of changes between two levels of a channel, in counts.
func NewFinder(s *measure.Setup, channel int, low, high measure.Count) *Finder {
	quarter := (int64(high) - int64(low)) / 4
	return &Finder{
		tb: s.Timebase, channel: channel, skew: s.Instant(channel),
		lo: low + measure.Count(quarter), hi: high - measure.Count(quarter),
	}
}

// Add looks at a block, the next in time. A change across scans that were lost is none.
func (f *Finder) Add(b *measure.Block) {
	if f.next != b.FirstScan {
		f.begun = false
	}
	f.next = b.FirstScan + uint64(b.Scans())
	for i, v := range b.Counts[f.channel] {
		if v > f.lo && v < f.hi {
			continue // on its way
		}
		at := f.tb.Seconds(b.TickAt(f.tb, i)) + f.skew
		if high := v >= f.hi; f.begun && high != f.high {
			f.Changes = append(f.Changes, Change{f.last, at, high})
		}
		f.begun, f.high, f.last = true, v >= f.hi, at
	}
}
