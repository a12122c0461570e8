package faults

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"
)

// Step is a place in the protocol at which a fault can strike: just before or just
// behind the event of its name.
type Step string

// The steps, in the order of a measurement.
const (
	StepBench         Step = "bench asked"
	StepStart         Step = "start asked"
	StepStarted       Step = "start answered"
	StepBegun         Step = "task begun"
	StepHeader        Step = "header came"
	StepStartMarker   Step = "start marker"
	StepWork          Step = "work"
	StepWorked        Step = "kernels stored"
	StepStopMarker    Step = "stop marker"
	StepStop          Step = "stop asked"
	StepStopped       Step = "stop answered"
	StepChunk         Step = "chunk came"
	StepStoring       Step = "chunks being stored"
	StepStored        Step = "chunks stored"
	StepTrailer       Step = "trailer came"
	StepFinish        Step = "outcome being stored"
	StepFinished      Step = "outcome stored"
	StepRelease       Step = "release asked"
	StepReleased      Step = "release answered"
	StepDatabaseWrite Step = "database written"
	StepDatabaseSync  Step = "database synced"
	StepRecover       Step = "recovery"
	StepBlock         Step = "meter delivers"
	StepSpoolWrite    Step = "spool written"
	StepSpoolSync     Step = "spool synced"
	StepMonitorStarts Step = "monitor starts"
)

// Steps are all steps.
var Steps = []Step{
	StepBench, StepStart, StepStarted, StepBegun, StepHeader, StepStartMarker, StepWork, StepWorked, StepStopMarker,
	StepStop, StepStopped,
	StepChunk, StepStoring, StepStored, StepTrailer, StepFinish, StepFinished, StepRelease, StepReleased, StepRecover,
	StepDatabaseWrite, StepDatabaseSync,
	StepBlock, StepSpoolWrite, StepSpoolSync, StepMonitorStarts,
}

// Kind is a kind of fault.
type Kind string

// The faults.
const (
	KillMonitor   Kind = "monitor killed"
	CutPower      Kind = "monitor's power cut" // unsynced writes are lost, or torn
	StopMonitor   Kind = "monitor stopped and started"
	PauseMonitor  Kind = "monitor paused"
	KillHost      Kind = "host killed"
	CutHost       Kind = "host's power cut" // as the monitor's
	LogRot        Kind = "host killed, its database's log flips a bit"
	CancelHost    Kind = "host cancelled"
	PauseHost     Kind = "host paused"
	Reset         Kind = "connections reset"
	Partition     Kind = "network cut"
	HoldBoth      Kind = "network delayed"
	HoldUp        Kind = "requests delayed"
	HoldDown      Kind = "answers delayed"
	LoseDown      Kind = "answers lost, then cut"
	Corrupt       Kind = "samples corrupted on the line"
	Crowded       Kind = "idle connections crowd the monitor"
	SpoolFull     Kind = "monitor's disk full"
	SpoolWrite    Kind = "monitor's disk fails a write"
	SpoolSync     Kind = "monitor's disk fails a sync"
	SpoolRot      Kind = "monitor's disk flips a bit"
	HeaderRot     Kind = "monitor's disk flips a bit of a header"
	RecordRot     Kind = "a calibration record flips a bit"
	StoredRot     Kind = "a stored calibration flips a bit"
	SpoolSlow     Kind = "monitor's disk stands still"
	DatabaseFull  Kind = "host's disk full"
	DatabaseWrite Kind = "host's disk fails a write"
	DatabaseSync  Kind = "host's disk fails a sync"
	Unplug        Kind = "meter unplugged, put in again"
	UnplugLong    Kind = "meter unplugged for good"
	OtherMeter    Kind = "another meter plugged in"
	ClockStep     Kind = "host's clock stepped"
	ClockSkew     Kind = "host's clock skewed"
	// The same where the card is driven by another program, which reports wall times alone.
	ClockStepApart Kind = "host's clock stepped, GPU in another program"
	MonitorStep    Kind = "monitor's clock stepped"
	MonitorSkew    Kind = "monitor's clock skewed"
)

// Kinds are all faults.
var Kinds = []Kind{
	KillMonitor, CutPower, StopMonitor, PauseMonitor, KillHost, CutHost, LogRot, CancelHost, PauseHost, Reset, Partition,
	HoldBoth, HoldUp, HoldDown, LoseDown,
	Corrupt, Crowded, SpoolFull, SpoolWrite, SpoolSync, SpoolRot, HeaderRot, RecordRot, StoredRot, SpoolSlow,
	DatabaseFull, DatabaseWrite, DatabaseSync, Unplug, UnplugLong, OtherMeter, ClockStep, ClockSkew, ClockStepApart,
	MonitorStep, MonitorSkew,
}

// Fault strikes the first time that its step is reached for the Nth time.
type Fault struct {
	Kind Kind
	Step Step
	Nth  int // from 1
	// Hold is how long it lasts, where it lasts.
	Hold time.Duration
	// Size is by how much a clock is stepped, in seconds, or skewed, in parts.
	Size float64
}

func (f Fault) String() string {
	s := fmt.Sprintf("%s at %q", f.Kind, f.Step)
	if f.Nth > 1 {
		s += fmt.Sprintf(" no %d", f.Nth)
	}
	switch f.Kind {
	case ClockStep, ClockStepApart, MonitorStep:
		return s + fmt.Sprintf(" by %+.3f s", f.Size)
	case ClockSkew, MonitorSkew:
		return s + fmt.Sprintf(" by %+.0f ppm", 1e6*f.Size)
	}
	return s + fmt.Sprintf(" for %v", f.Hold)
}

// Schedule is the faults of one measurement.
type Schedule struct {
	Seed   uint64
	Faults []Fault
}

func (s Schedule) String() string {
	all := make([]string, len(s.Faults))
	for i, f := range s.Faults {
		all[i] = f.String()
	}
	return fmt.Sprintf("seed %d: %s", s.Seed, strings.Join(all, "; then "))
}

// Draw makes the schedule of a seed. Seeds that follow each other walk through
// all pairs of a fault and a step, so that no pair is left to luck.
func Draw(seed uint64) Schedule {
	rng := rand.New(rand.NewPCG(seed, 0xfa17))
	s := Schedule{Seed: seed}
	pair := int(seed % uint64(len(Kinds)*len(Steps)))
	s.Faults = append(s.Faults, draw(rng, Kinds[pair%len(Kinds)], Steps[pair/len(Kinds)]))
	for more := rng.IntN(10); more >= 7 && len(s.Faults) < 3; more++ {
		s.Faults = append(s.Faults, draw(rng, Kinds[rng.IntN(len(Kinds))], Steps[rng.IntN(len(Steps))]))
		if more == 8 {
			break
		}
	}
	return s
}

// longer than the lease of the campaign's measurements.
const beyondLease = 1900 * time.Millisecond

func draw(rng *rand.Rand, k Kind, at Step) Fault {
	f := Fault{Kind: k, Step: at, Nth: 1, Hold: time.Duration(1+rng.IntN(30)) * time.Millisecond}
	switch at {
	case StepChunk, StepStoring, StepStored, StepBlock, StepSpoolWrite:
		f.Nth = 1 + rng.IntN(6)
	case StepDatabaseWrite:
		f.Nth = 1 + rng.IntN(60)
	case StepDatabaseSync:
		f.Nth = 1 + rng.IntN(12)
	case StepSpoolSync:
		f.Nth = 1 + rng.IntN(2)
	}
	if rng.IntN(12) == 0 {
		f.Hold = beyondLease
	}
	switch k {
	case ClockStep, ClockStepApart:
		f.Size = (rng.Float64() - 0.5) * 8
		if rng.IntN(2) == 0 {
			f.Size /= 1000
		}
	case ClockSkew:
		f.Size = (rng.Float64() - 0.5) * 0.02
	case MonitorStep: // milliseconds to thirty years, either way
		f.Size = math.Pow(10, -3+rng.Float64()*12) * float64(1-2*rng.IntN(2))
	case MonitorSkew:
		f.Size = (rng.Float64() - 0.5) * 0.2
	}
	return f
}
