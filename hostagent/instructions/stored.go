package instructions

import (
	"wattmark/measure"
	"wattmark/store"
)

// campaign is what the database keeps of a run's campaign.
func (r *Run) campaign() store.InstructionCampaign {
	return store.InstructionCampaign{
		GPU: r.GPU, GPUUUID: r.UUID, Driver: r.Driver, Started: r.Campaign, Seed: r.Seed, Host: r.Host, Version: r.Version,
	}
}

// Stored is a run as the database keeps it, and its campaign, without a number.
func (r *Run) Stored() (store.InstructionCampaign, store.InstructionRun) {
	out := store.InstructionRun{
		Pass: r.Pass, Instruction: r.Instruction, Layout: string(r.Layout), Level: r.Level, Steps: r.Steps, Block: r.Block, Base: r.Base,
		Turns: r.Turns, Threads: r.Threads, Time: r.Time, Cycles: r.Cycles, X: r.X, Checked: r.Checked,
		Reads: r.Reads, SM: r.SM, Celsius: r.Celsius, Error: r.Error,
	}
	if r.Power != nil {
		out.Power = map[string]measure.Watt{}
	}
	for m, p := range r.Power {
		out.Power[string(m)] = p
	}
	return r.campaign(), out
}

// FromStore makes runs of what the database kept.
func FromStore(c store.InstructionCampaign, runs []store.InstructionRun) []Run {
	out := make([]Run, len(runs))
	for n, s := range runs {
		r := Run{
			Instruction: s.Instruction, Setting: Setting{Layout(s.Layout), s.Level, s.Steps},
			Campaign: c.Started, Pass: s.Pass, GPU: c.GPU, UUID: c.GPUUUID, Driver: c.Driver, Seed: c.Seed, Host: c.Host, Version: c.Version,
			Block: s.Block, Base: s.Base, Turns: s.Turns, Threads: s.Threads, Time: s.Time, Cycles: s.Cycles, X: s.X, Checked: s.Checked,
			Reads: s.Reads, SM: s.SM, Celsius: s.Celsius, Error: s.Error,
		}
		if s.Power != nil {
			r.Power = map[Method]measure.Watt{}
		}
		for m, p := range s.Power {
			r.Power[Method(m)] = p
		}
		out[n] = r
	}
	return out
}
