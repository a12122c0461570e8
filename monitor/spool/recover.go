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

// open opens one capture's log and cuts off a torn tail.
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
	good, sealed, why, err := l.survey()
	if err != nil {
		return Found{}, err
	}
	found := Found{Log: l, Sealed: sealed, Torn: info.Size() - good, Why: why}
	if sealed {
		return found, nil
	}
	if found.Torn > 0 {
		if err := os.Truncate(l.path(), good); err != nil {
			return Found{}, err
		}
		l = newLog(dir, h, s.opt, good)
		found.Log = l
	}
	return found, l.start()
}

// survey finds where the good records end. A log that ends with a final state
// was synced before anybody was told, so only its frames are looked at; of any
// other, every byte is verified, since a power cut can lose what lies before
// the tail.
func (l *Log) survey() (good int64, sealed bool, why string, err error) {
	r, err := l.NewReader()
	if err != nil {
		return 0, false, "", err
	}
	defer r.Close()
	if sealed, err = r.endsFinal(); err == nil && sealed {
		return l.Size(), true, "", nil
	}
	r.at = 0
	var buf []byte
	for {
		good = r.at
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return good, false, "", nil
		}
		if err == nil {
			_, err = r.Body(rec, &buf)
		}
		if err != nil {
			var disk *os.PathError
			if errors.As(err, &disk) {
				return 0, false, "", err // the disk, not the record
			}
			return good, false, err.Error(), nil
		}
	}
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
