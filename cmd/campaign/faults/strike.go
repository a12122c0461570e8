package faults

import (
	"context"
	"slices"
	"time"
)

// hostAt reaches a step of the host's that is neither call nor database.
func (w *world) hostAt(s Step) error {
	w.mu.Lock()
	h := w.host
	w.mu.Unlock()
	return h.at(s)
}

// at reaches a step: faults that wait for it strike now.
func (w *world) at(s Step) {
	for _, f := range w.due(s) {
		w.strike(f)
	}
}

func (w *world) due(s Step) (out []Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reached[s]++
	for i, f := range w.schedule.Faults {
		if !w.fired[i] && f.Step == s && w.reached[s] >= f.Nth {
			w.fired[i] = true
			out = append(out, f)
			w.struckBy = append(w.struckBy, f)
		}
	}
	return out
}

// struck tells whether a fault of a kind has struck.
func (w *world) struck(k Kind) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.struckBy, func(f Fault) bool { return f.Kind == k })
}

// later does something when a fault's time is over. The world does not end before.
func (w *world) later(d time.Duration, f func()) {
	w.heals.Go(func() {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-w.ctx.Done():
		}
		f()
	})
}

// strike makes a fault happen. It is called on the goroutine that reached the
// step, which may be one of the side that is hit.
func (w *world) strike(f Fault) {
	switch f.Kind {
	case KillMonitor, CutPower, SpoolRot, HeaderRot:
		w.strikeDown(f)
	case StopMonitor:
		w.heals.Go(func() {
			w.monitor.end()
			w.line.cut(false)
			w.restart()
		})
	case KillHost, CutHost, LogRot, CancelHost:
		w.mu.Lock()
		h := w.host
		w.mu.Unlock()
		if f.Kind == CancelHost {
			h.cancel(context.Canceled)
		} else {
			h.kill(damageOf[f.Kind])
		}
	case ClockStep, ClockStepApart:
		w.card.disturb(f.Size, 0)
	case ClockSkew:
		w.card.disturb(0, f.Size)
	case MonitorStep:
		w.monitor.clock.Step(time.Duration(f.Size * float64(time.Second)))
	case MonitorSkew:
		w.monitor.clock.Skew(f.Size)
	case Corrupt:
		w.line.corruptOne()
	case StoredRot: // once all is quiet: see damaged
	case RecordRot:
		w.flipRecord()
		w.later(f.Hold, w.mendRecords)
	case Crowded:
		w.gather()
	case Reset:
		w.line.cut(false)
	default:
		w.strikeFor(f)
	}
}

// damageOf is what a fault leaves of its side's disk.
var damageOf = map[Kind]damage{KillMonitor: intact, CutPower: torn, SpoolRot: rotten, HeaderRot: rottenHeader, KillHost: intact, CutHost: torn, LogRot: rotten}

// strikeDown kills the monitor, with what that does to its disk, and starts it
// again later.
func (w *world) strikeDown(f Fault) {
	w.monitor.kill(damageOf[f.Kind])
	w.later(f.Hold, w.restart)
}

func (w *world) restart() {
	if err := w.monitor.start(); err != nil {
		w.fail("the monitor does not start again: %v", err)
	}
}

// strikeFor makes a fault that lasts.
func (w *world) strikeFor(f Fault) {
	d := w.monitor.disk
	switch f.Kind {
	case PauseMonitor:
		w.monitorGate.shut()
		w.line.down.shut()
		w.later(f.Hold, func() { w.monitorGate.open(); w.line.down.open() })
	case SpoolSlow:
		w.monitorGate.shut()
		w.later(f.Hold, w.monitorGate.open)
	case PauseHost:
		w.hostGate.shut()
		w.line.up.shut()
		w.later(f.Hold, func() { w.hostGate.open(); w.line.up.open() })
	case Partition:
		w.line.cut(true)
		w.later(f.Hold, w.line.heal)
	case HoldBoth:
		w.line.up.shut()
		w.line.down.shut()
		w.later(f.Hold, w.line.heal)
	case HoldUp:
		w.line.up.shut()
		w.later(f.Hold, w.line.heal)
	case HoldDown:
		w.line.down.shut()
		w.later(f.Hold, w.line.heal)
	case LoseDown:
		w.line.down.shut()
		w.later(f.Hold, func() { w.line.cut(false); w.line.heal() })
	case SpoolFull:
		d.set(func(d *disk) { d.full = true })
		w.later(f.Hold, func() { d.set(func(d *disk) { d.full = false }) })
	case SpoolWrite:
		d.set(func(d *disk) { d.badWrit++ })
	case SpoolSync:
		d.set(func(d *disk) { d.badSync++ })
	case DatabaseWrite:
		w.disk().broken.Add(1)
	case DatabaseSync:
		w.disk().deaf.Add(1)
	case DatabaseFull:
		w.databaseFull.Store(true)
		w.later(f.Hold, func() { w.databaseFull.Store(false) })
	case Unplug:
		w.cable.set(true, false)
		w.later(f.Hold, func() { w.cable.set(false, false) })
	case UnplugLong:
		w.cable.set(true, false)
		w.later(beyondLease, func() { w.cable.set(false, false) })
	case OtherMeter:
		w.cable.set(true, true)
		w.later(f.Hold, func() { w.cable.set(false, true) })
		w.later(beyondLease, func() { w.cable.set(false, false) })
	}
}

// heal takes all faults away that are left.
func (w *world) heal() {
	w.line.heal()
	w.monitorGate.open()
	w.hostGate.open()
	w.databaseFull.Store(false)
	w.disk().broken.Store(0)
	w.disk().deaf.Store(0)
	w.cable.set(false, false)
	w.mendRecords()
	w.monitor.disk.set(func(d *disk) { d.full, d.badSync, d.badWrit = false, 0, 0 })
}
