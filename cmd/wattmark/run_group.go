package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"wattmark/hostagent"
	"wattmark/hostagent/gpus"
	"wattmark/hostagent/measurement"
	"wattmark/hostagent/monitorclient"
	"wattmark/store"
)

// findGPUs finds the GPUs that --gpus names, without contexts on them; the caller closes
// them. Only where NVML cannot tell which they are the driver is asked.
func findGPUs(list string) (out []*foundGPU, err error) {
	names := strings.Split(list, ",")
	simulated := 0
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
		if strings.HasPrefix(names[i], simPrefix) {
			simulated++
		}
	}
	switch {
	case simulated > 0 && simulated < len(names):
		return nil, withCode(exitUsage, fmt.Errorf("--gpus %s: simulated and real GPUs cannot be measured together", list))
	case simulated == 0:
		found, ok, err := gpus.Locate(list)
		if !ok && err == nil {
			found, err = gpus.Find(list)
		}
		if errors.Is(err, gpus.ErrSelection) {
			err = withCode(exitUsage, fmt.Errorf("--gpus: %w", err))
		}
		if err != nil {
			return nil, err
		}
		names = names[:0]
		for _, g := range found {
			names = append(names, g.UUID)
		}
	}
	seen := map[string]string{}
	for _, n := range names {
		gpu, err := findGPU(n)
		if err != nil {
			return nil, errors.Join(err, closeGPUs(out))
		}
		out = append(out, gpu)
		uuid := gpu.Info().UUID
		if first, twice := seen[uuid]; twice {
			return nil, errors.Join(withCode(exitUsage, fmt.Errorf("--gpus: %s and %s are one GPU (%s): name it once", first, n, uuid)), closeGPUs(out))
		}
		seen[uuid] = n
	}
	return out, nil
}

func closeGPUs(all []*foundGPU) error {
	var errs []error
	for _, g := range all {
		errs = append(errs, g.Close())
	}
	return errors.Join(errs...)
}

// runGroup measures several GPUs.
func (a *app) runGroup(ctx context.Context, f runFlags, args []string) (err error) {
	all, err := findGPUs(f.gpus)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeGPUs(all)) }()
	login, holder := whoami()
	members, common, name, err := a.members(f, args, all)
	if err != nil {
		return err
	}
	monitors, closeMonitors, err := askMonitors(ctx, strings.Split(f.monitor, ","), a.tracing)
	defer closeMonitors()
	if err != nil {
		return err
	}
	if err := assign(members, monitors); err != nil {
		return err
	}
	db, err := store.Open(ctx, a.db)
	if err != nil {
		return err
	}
	defer db.Close()
	a.leftOvers(ctx, db)
	db.SetLimits(f.room.limits())
	gate := a.gate(ctx, f.cluster, db)
	defer gate.close()
	for i := range members {
		if members[i].Monitor != nil {
			members[i].Monitor = gate.monitor(members[i].Monitor)
		}
	}
	defer a.openLater(f, all, members)()
	progress := newGroupProgress(a, members)
	id, err := measurement.MeasureGroup(ctx, measurement.GroupConfig{
		DB: db, Members: members, Progress: progress.update, Lost: progress.lost,
		Each: measurement.Config{
			Owner: store.Owner(),
			Name:  firstOf(f.name, name), User: firstOf(f.user, login), Job: f.job, Holder: holder, WarmUp: f.warmUp, Wait: f.wait, Lease: f.lease,
			Tags: f.tags, Note: f.note, Provenance: a.provenance(ctx, f.redact), Warn: progress.line.warn,
		},
	}, common)
	progress.end()
	if i := interrupted(ctx, keptGroup(ctx, db, id)); i != nil {
		return i
	}
	if errors.Is(err, monitorclient.ErrBusy) && id == 0 {
		err = withCode(exitBusy, fmt.Errorf("%w\nWait for them with --wait 10m", err))
	}
	if id == 0 {
		return err
	}
	return errors.Join(err, a.showGroup(ctx, db, id, true))
}

// keptGroup says what was kept of an interrupted measurement of several GPUs.
func keptGroup(ctx context.Context, db *store.DB, id store.GroupID) string {
	if id == 0 {
		return "no task was begun"
	}
	g, err := db.Group(context.WithoutCancel(ctx), id)
	if err != nil {
		return fmt.Sprintf("group %d: %v", id, err)
	}
	var tasks []string
	for _, m := range g.Members {
		if m.Task != 0 {
			tasks = append(tasks, strings.TrimPrefix(kept(ctx, db, m.Task), "kept as "))
		}
	}
	return fmt.Sprintf("kept as group %d: %s", id, strings.Join(tasks, ", "))
}

// members says what each GPU does: a program works on behalf of all, benchmarks
// and PTX kernels run on each.
func (a *app) members(f runFlags, args []string, all []*foundGPU) (out []measurement.Member, common measurement.Work, name string, err error) {
	for _, g := range all {
		m := measurement.Member{GPU: g.Info(), Device: g.Device}
		if common == nil {
			var w measurement.Work
			if w, name, err = a.work(g.Device, f, args); err != nil {
				return nil, nil, "", err
			}
			if len(args) > 0 {
				common = w
			} else {
				m.Work = w
			}
		}
		out = append(out, m)
	}
	return out, common, name, nil
}

// openLater has each GPU opened once its bench is held, with its own sensor.
func (a *app) openLater(f runFlags, all []*foundGPU, members []measurement.Member) (done func()) {
	var mu sync.Mutex
	var open []gpuSensor
	for i, g := range all {
		members[i].Open = func(ctx context.Context) (hostagent.PowerSensor, error) {
			if err := g.open(ctx); err != nil || f.noSensor {
				return nil, err
			}
			s, err := g.openSensor()
			if err != nil {
				fmt.Fprintf(a.err, "wattmark: the own sensor of %s is left out: %v\n", g.Info().UUID, err)
				return nil, nil
			}
			mu.Lock()
			defer mu.Unlock()
			open = append(open, s)
			return s, nil
		}
	}
	return func() {
		for _, s := range open {
			if err := s.Close(); err != nil {
				fmt.Fprintln(a.err, "wattmark:", err)
			}
		}
	}
}

// askedMonitor is a monitor that was asked for its bench.
type askedMonitor struct {
	measurement.MonitorBench
	client *monitorclient.Client
}

// askMonitors asks all monitors at once which GPUs their benches measure.
func askMonitors(ctx context.Context, addresses []string, traces *tracing) (out []askedMonitor, done func(), err error) {
	done = func() {
		for _, m := range out {
			_ = m.client.Close()
		}
	}
	for _, address := range addresses {
		if address = strings.TrimSpace(address); address == "" {
			return out, done, withCode(exitUsage, errors.New("--monitor has an empty entry: want host:port, or several with commas between them"))
		}
		c, err := dialMeter(ctx, address, monitorclient.Options{Version: version(), Dial: traces.dial()})
		if err != nil {
			return out, done, err
		}
		out = append(out, askedMonitor{measurement.MonitorBench{Address: address}, c})
	}
	var wg sync.WaitGroup
	for i := range out {
		wg.Go(func() { out[i].Bench, out[i].Err = out[i].client.GetBench(ctx) })
	}
	wg.Wait()
	return out, done, ctx.Err()
}

// assign gives each GPU its monitor.
func assign(members []measurement.Member, monitors []askedMonitor) error {
	var infos []hostagent.Info
	for _, m := range members {
		infos = append(infos, m.GPU)
	}
	var benches []measurement.MonitorBench
	for _, m := range monitors {
		benches = append(benches, m.MonitorBench)
	}
	got, err := measurement.Assign(infos, benches)
	if err != nil {
		return err
	}
	for i, x := range got {
		if members[i].Missing = x.Missing; x.Missing == nil {
			members[i].Monitor = monitors[x.Monitor].client
		}
	}
	return nil
}
