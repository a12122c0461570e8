package smilog

import (
	"errors"
	"fmt"
	"time"
)

// ErrZone is wrapped when a zone does not tell how far a log was ahead of UTC.
var ErrZone = errors.New("the log's time zone does not tell its time")

// Extent is the first and the last time of any column; zero for none.
func (l *Log) Extent() (first, last time.Time) {
	for _, rs := range l.Columns {
		if len(rs) == 0 {
			continue
		}
		if a := rs[0].At; first.IsZero() || a.Before(first) {
			first = a
		}
		if b := rs[len(rs)-1].At; b.After(last) {
			last = b
		}
	}
	return first, last
}

// Covers reports whether every column has readings on both sides of an interval.
func (l *Log) Covers(from, to time.Time) bool {
	for _, rs := range l.Columns {
		if len(rs) > 0 && (rs[0].At.After(from) || rs[len(rs)-1].At.Before(to)) {
			return false
		}
	}
	return true
}

// Shift moves all readings in time, and returns the log.
func (l *Log) Shift(by time.Duration) *Log {
	for _, rs := range l.Columns {
		for i := range rs {
			rs[i].At = rs[i].At.Add(by)
		}
	}
	return l
}

// OffsetIn says how far a log that was parsed with an offset of zero was ahead of
// UTC, if its times are a zone's local ones. It fails with ErrZone where the clocks
// were put forward or back while it was written, or the hour came twice.
func (l *Log) OffsetIn(zone *time.Location) (time.Duration, error) {
	first, last := l.Extent()
	a, err := offsetAt(first, zone)
	if err != nil {
		return 0, err
	}
	b, err := offsetAt(last, zone)
	if err != nil {
		return 0, err
	}
	if a != b {
		return 0, fmt.Errorf("smilog: %w: the clocks in %v were changed while it was written", ErrZone, zone)
	}
	return a, nil
}

// offsetAt finds the offset of a local time, which is given as if it were UTC.
func offsetAt(local time.Time, zone *time.Location) (time.Duration, error) {
	var fits []time.Duration
	for _, near := range []time.Duration{-24 * time.Hour, 24 * time.Hour} { // before and after any change
		off := offsetOf(local.Add(near), zone)
		if offsetOf(local.Add(-off), zone) == off && (len(fits) == 0 || fits[0] != off) {
			fits = append(fits, off)
		}
	}
	if len(fits) == 1 {
		return fits[0], nil
	}
	what := "came twice"
	if len(fits) == 0 {
		what = "never was"
	}
	return 0, fmt.Errorf("smilog: %w: %s %s in %v", ErrZone, local.Format("2006-01-02 15:04:05"), what, zone)
}

func offsetOf(t time.Time, zone *time.Location) time.Duration {
	_, s := t.In(zone).Zone()
	return time.Duration(s) * time.Second
}
