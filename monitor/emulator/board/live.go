package board

import (
	"fmt"
	"time"

	"wattmark/measure"
)

// Live is a board on a wall clock: what a simulated GPU and a demo hold.
// It is safe for concurrent use.
type Live struct {
	*Board
	// Epoch is the wall clock's time at the board's time zero.
	Epoch time.Time
}

// NewLive puts a board on a wall clock.
func NewLive(b *Board, epoch time.Time) *Live { return &Live{Board: b, Epoch: epoch} }

// Time returns the wall clock's time of a board instant.
func (l *Live) Time(t time.Duration) time.Time { return l.Epoch.Add(t) }

// Since returns the board instant of a wall clock's time.
func (l *Live) Since(t time.Time) time.Duration { return t.Sub(l.Epoch) }

// SetLoad is Board.SetLoad at a time of day. It returns when the load really
// changed, which is later than at where a meter had already read on.
func (l *Live) SetLoad(at time.Time, load Load) (time.Time, error) {
	t, err := l.Board.SetLoad(l.Since(at), load)
	return l.Time(t), err
}

// SetLevel is Board.SetLevel at a time of day.
func (l *Live) SetLevel(at time.Time, w measure.Watt) (time.Time, error) {
	t, err := l.Board.SetLevel(l.Since(at), w)
	return l.Time(t), err
}

// Cancel is Board.Cancel at a time of day.
func (l *Live) Cancel(after time.Time) { l.Board.Cancel(l.Since(after)) }

// Energy is Board.Energy between two times of day.
func (l *Live) Energy(from, to time.Time) (Energy, error) {
	return l.Board.Energy(l.Since(from), l.Since(to))
}

// MeanPower is Board.MeanPower between two times of day.
func (l *Live) MeanPower(from, to time.Time) measure.Watt {
	return l.Board.MeanPower(l.Since(from), l.Since(to))
}

// At is Board.At at a time of day.
func (l *Live) At(t time.Time) []Reading { return l.Board.At(l.Since(t)) }

// Step is a stretch of constant load: that of a state, or a level where it is
// positive.
type Step struct {
	Load  Load
	Level measure.Watt
	For   time.Duration
}

// SetSteps lays steps down one after another from a time of day on. It returns
// when the first really began; the load of the last stays, though it may last no time.
func (l *Live) SetSteps(at time.Time, steps []Step) (time.Time, error) {
	changes := make([]Change, 0, len(steps))
	t := l.Since(at)
	for i, s := range steps {
		w := s.Level
		if w <= 0 {
			var err error
			if w, err = l.Level(s.Load); err != nil {
				return at, err
			}
		}
		if s.For < 0 {
			return at, fmt.Errorf("board: step %d lasts %v", i+1, s.For)
		}
		changes = append(changes, Change{At: t, Level: w})
		t += s.For
	}
	begin, err := l.SetLevels(changes)
	return l.Time(begin), err
}
