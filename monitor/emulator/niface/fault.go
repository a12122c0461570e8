package niface

import "time"

// faults are what is to go wrong; each happens once.
type faults struct {
	stallAt, stall uint64
	lateAt         uint64
	late           bool
	fail           map[string]int32
}

// Stall makes the read that begins at a sample, or behind it, come so many scans
// late: the device samples on meanwhile.
func (f *Face) Stall(at, scans uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults.stallAt, f.faults.stall = at, scans
}

// Late makes the read that begins at a sample, or behind it, run into its
// time-out with half of its samples.
func (f *Face) Late(at uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults.lateAt, f.faults.late = at, true
}

// Fail makes the next call of a method fail with an error of the driver; one of
// those that stop the device does so.
func (f *Face) Fail(method string, code int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.faults.fail == nil {
		f.faults.fail = map[string]int32{}
	}
	f.faults.fail[method] = code
}

// Unplug takes the device off the server's machine, or puts it back.
func (f *Face) Unplug(off bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unplugged = off
	if !off {
		return
	}
	for _, t := range f.sessions {
		if t.running {
			t.fail(errDeviceGone)
		}
	}
}

// Drop breaks all connections. Sessions stay.
func (f *Face) Drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		_ = c.Conn.Close()
	}
}

// stalled is the stall of a read that begins at a sample; f.mu is held.
func (f *Face) stalled(t *task, at uint64) time.Duration {
	if f.faults.stall == 0 || at < f.faults.stallAt {
		return 0
	}
	d := time.Duration(float64(f.faults.stall) * t.step)
	f.faults.stall = 0
	return d
}

// isLate tells whether a read that begins at a sample runs late; f.mu is held.
func (f *Face) isLate(at uint64) bool {
	if !f.faults.late || at < f.faults.lateAt {
		return false
	}
	f.faults.late = false
	return true
}
