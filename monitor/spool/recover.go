package spool

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// errNeverBegan: the capture was interrupted before its header was written, so
// that it cannot hold a sample.
var errNeverBegan = errors.New("capture without a header")

// open opens one capture's log. Damaged records become events, and a torn tail is cut off.
func (s *Store) open(dir string) (Found, error) {
	if err := safe(dir, os.ModeDir); err != nil {
		return Found{}, err
	}
	h, err := readHeader(dir)
	if os.IsNotExist(err) {
		if info, serr := os.Stat(filepath.Join(dir, logName)); serr == nil && info.Size() > 0 {
			return Found{}, fmt.Errorf("%s: a log without a header: left as it is", dir)
		}
		return Found{}, errNeverBegan
	}
	if err != nil {
		return Found{}, err
	}
	info, err := os.Lstat(filepath.Join(dir, logName))
	if err == nil {
		err = safeInfo(filepath.Join(dir, logName), info, 0)
	}
	if err != nil {
		return Found{}, err
	}
	l := newLog(dir, h, s.opt, info.Size())
	v, err := l.survey(false)
	if err != nil {
		return Found{}, err
	}
	found := Found{Log: l, Sealed: v.sealed, Holes: len(v.holes), Torn: info.Size() - v.good}
	if why := v.why; why != nil {
		found.Why = why.Error()
	}
	if len(v.holes) > 0 || v.why != nil {
		if err := l.mend(v); err != nil {
			return Found{}, err
		}
		l = newLog(dir, h, s.opt, v.good)
		found.Log = l
	}
	if v.sealed {
		return found, nil
	}
	return found, l.start()
}

// endsFinal walks the frames and tells whether the last one is a final state.
func (r *Reader) endsFinal() (bool, error) {
	var last Record
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return false, err
		}
		last = rec
	}
	if last.Type != RecordState {
		return false, nil
	}
	s, err := r.State(last)
	return err == nil && s.Final, nil
}
