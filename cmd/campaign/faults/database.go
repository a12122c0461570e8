package faults

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"

	"wattmark/cmd/campaign/powercut"
)

// errLost ends a world whose database cannot be opened; that was told.
var errLost = errors.New("campaign: the host's database is lost")

// hostDisk is the host's disk with its database, as it has been since the host's last
// crash.
type hostDisk struct {
	w       *world
	path    string
	disk    *powercut.Disk
	retired atomic.Bool // what is written here from now on is a dead process's
	broken  atomic.Int32
	deaf    atomic.Int32 // syncs that are to fail
}

// watchDatabase begins to watch the database where it lies now. The world forgets it
// at its end.
func (w *world) watchDatabase(path string) error {
	d := &hostDisk{w: w, path: path}
	var err error
	d.disk, err = powercut.Watch(path, powercut.Options{Write: d.write, Sync: d.sync, NoSync: w.broken == CommitBeforeSync})
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.database = d
	w.databases = append(w.databases, d)
	return nil
}

// disk is the host's disk as it is now.
func (w *world) disk() *hostDisk {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.database
}

func (d *hostDisk) write() powercut.Fault {
	if d.retired.Load() {
		return powercut.None
	}
	d.w.at(StepDatabaseWrite)
	d.w.hostGate.wait(context.Background())
	switch {
	case d.retired.Load():
		return powercut.None
	case d.w.databaseFull.Load():
		return powercut.Full
	case d.broken.Load() > 0:
		d.broken.Add(-1)
		return powercut.Fail
	}
	return powercut.None
}

func (d *hostDisk) sync() powercut.Fault {
	if d.retired.Load() {
		return powercut.None
	}
	d.w.at(StepDatabaseSync)
	d.w.hostGate.wait(context.Background())
	if !d.retired.Load() && d.deaf.Load() > 0 {
		d.deaf.Add(-1)
		return powercut.Fail
	}
	return powercut.None
}

// crash leaves the database as a killed process does, or a power cut, or with a bit of its
// log flipped: from now on it
// lies at another path, and what the old process still does to its own changes nothing.
func (d *hostDisk) crash(dmg damage) {
	d.retired.Store(true)
	w := d.w
	w.mu.Lock()
	next := filepath.Join(w.dir, fmt.Sprintf("power%d.db", len(w.databases)))
	w.mu.Unlock()
	var err error
	w.rngMu.Lock()
	if dmg == torn {
		err = d.disk.Cut(next, w.rng)
	} else {
		err = d.disk.Kill(next)
	}
	if dmg == rotten && flipFile(next+"-wal", w.rng) {
		w.logRotted()
	}
	w.rngMu.Unlock()
	if err = errors.Join(err, w.watchDatabase(next)); err != nil {
		w.fail("%v", err)
	}
}
