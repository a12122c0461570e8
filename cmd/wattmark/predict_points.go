package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"

	"wattmark/analysis/predict"
	"wattmark/measure"
	"wattmark/measure/marker"
	"wattmark/store"
)

// pointSources are where points come from.
type pointSources struct {
	csv, kernel string
	blocks      []string // TASK=N or TASK=NxLAUNCHES
	traces      []string // N=FILE
	allStates   bool
}

// grid is a number of blocks and how often it was launched.
type grid struct{ blocks, launches uint64 }

var gridRE = regexp.MustCompile(`^(\d+)(?:x(\d+))?$`)

// parseGrid reads "140" or "140x1000".
func parseGrid(s string) (g grid, err error) {
	m := gridRE.FindStringSubmatch(s)
	if m == nil {
		return g, fmt.Errorf("%q is no number of blocks: write 140, or 140x1000 for a thousand launches", s)
	}
	g.launches = 1
	if g.blocks, err = strconv.ParseUint(m[1], 10, 53); err == nil && m[2] != "" {
		g.launches, err = strconv.ParseUint(m[2], 10, 53)
	}
	if err != nil || g.blocks == 0 || g.launches == 0 {
		return g, fmt.Errorf("%q: blocks and launches are whole numbers from 1 on", s)
	}
	return g, nil
}

// gather collects the points of tasks, a file and traces, and the tasks' numbers.
func (s *pointSources) gather(ctx context.Context, open func() (*store.DB, error), tasks []string) (points []predict.Point, ids []store.TaskID, err error) {
	if s.csv != "" {
		if points, err = s.fromCSV(); err != nil {
			return nil, nil, err
		}
	}
	for _, t := range s.traces {
		p, err := s.fromTrace(t)
		if err != nil {
			return nil, nil, err
		}
		points = append(points, p)
	}
	told, err := s.told()
	if err != nil {
		return nil, nil, err
	}
	for _, arg := range tasks {
		id, err := taskID(arg)
		if err != nil {
			return nil, nil, err
		}
		db, err := open()
		if err != nil {
			return nil, nil, err
		}
		p, err := taskPoint(ctx, db, id, told)
		if err != nil {
			return nil, nil, err
		}
		points, ids = append(points, p), append(ids, id)
		delete(told, id)
	}
	for id := range told {
		return nil, nil, withCode(exitUsage, fmt.Errorf("--blocks names task %d, which is not among the tasks to calibrate from", id))
	}
	return points, ids, nil
}

func (s *pointSources) fromCSV() ([]predict.Point, error) {
	f, err := os.Open(s.csv)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	table, err := predict.ReadPoints(f, s.csv)
	if err != nil {
		return nil, err
	}
	points, err := table.Kernel(s.kernel)
	if err != nil {
		return nil, withCode(exitUsage, fmt.Errorf("--kernel: %s: %w", s.csv, err))
	}
	return points, nil
}

func (s *pointSources) fromTrace(arg string) (p predict.Point, err error) {
	n, file, ok := strings.Cut(arg, "=")
	g, err := parseGrid(n)
	if err != nil || !ok {
		return p, withCode(exitUsage, fmt.Errorf("--trace %q: write BLOCKS=FILE, as 140=run.csv", arg))
	}
	t, err := readTrace(file)
	if err != nil {
		return p, err
	}
	if !s.allStates {
		t = t.Busy()
	}
	if p, err = t.Point(g.blocks); err != nil {
		return p, err
	}
	p.Time, p.Energy = p.Time/measure.Seconds(g.launches), p.Energy/measure.Joule(g.launches)
	return p, nil
}

func readTrace(file string) (*predict.Trace, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return predict.ReadTrace(f, file)
}

// told reads --blocks.
func (s *pointSources) told() (map[store.TaskID]grid, error) {
	out := map[store.TaskID]grid{}
	for _, b := range s.blocks {
		task, n, ok := strings.Cut(b, "=")
		id, err := taskID(task)
		if err == nil && ok {
			out[id], err = parseGrid(n)
		}
		if err != nil || !ok {
			return nil, withCode(exitUsage, errors.Join(fmt.Errorf("--blocks %q: write TASK=BLOCKS or TASK=BLOCKSxLAUNCHES, as 12=140 or 12=140x1000", b), err))
		}
	}
	return out, nil
}

// taskPoint makes a point of a task: of one launch, where it has several.
func taskPoint(ctx context.Context, db *store.DB, id store.TaskID, told map[store.TaskID]grid) (p predict.Point, err error) {
	t, err := db.Task(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return p, withCode(exitNotFound, fmt.Errorf("no task %d: list them with wattmark tasks", id))
	case err != nil:
		return p, err
	case t.Result == nil || t.State != store.Complete:
		return p, fmt.Errorf("task %d has no whole measurement to calibrate from: see wattmark show %d", id, id)
	}
	g, ok := told[id]
	if !ok {
		if g, err = gridOf(ctx, db, &t); err != nil {
			return p, err
		}
	}
	p = predict.Point{
		Blocks: g.blocks, Time: t.Result.Duration() / measure.Seconds(g.launches),
		Energy: t.Result.Total.Energy / measure.Joule(g.launches), From: fmt.Sprintf("task %d", id),
	}
	k := measure.FactorOf(t.Result.Total, t.Result.Budget)
	if math.IsNaN(k) || math.IsInf(k, 0) || k < 1 {
		k = 2
	}
	p.UEnergy = measure.Joule(float64(t.Result.Total.U) / k / float64(g.launches))
	var u []measure.Seconds
	for _, m := range t.Markers {
		if m.Kind == marker.Start || m.Kind == marker.Stop {
			u = append(u, m.U)
		}
	}
	if len(u) == 2 { // the window's ends are placed by the two
		p.UTime = measure.Seconds(math.Hypot(float64(u[0]), float64(u[1])) / float64(g.launches))
	}
	return p, p.Validate()
}

var nameRE = regexp.MustCompile(`\bblocks=(\d+(?:x\d+)?)\b`)

// gridOf finds a task's number of blocks: in its recorded launches, or in its
// name.
func gridOf(ctx context.Context, db *store.DB, t *store.Task) (g grid, err error) {
	tables, err := db.LaunchTables(ctx, t.ID)
	if err != nil {
		return g, err
	}
	for l, err := range db.Launches(ctx, t.ID) {
		if err != nil {
			return g, err
		}
		if l.Device < len(tables.Devices) && !tables.Devices[l.Device].Measured {
			continue
		}
		n := uint64(l.Grid[0]) * uint64(l.Grid[1]) * uint64(l.Grid[2])
		if g.blocks != 0 && n != g.blocks {
			return g, fmt.Errorf("task %d launched kernels of %d and of %d blocks: calibrate from tasks with one number each, or say --blocks %d=N", t.ID, g.blocks, n, t.ID)
		}
		g.blocks, g.launches = n, g.launches+1
	}
	if g.blocks != 0 {
		return g, nil
	}
	if m := nameRE.FindStringSubmatch(t.Name); m != nil {
		return parseGrid(m[1])
	}
	return g, withCode(exitUsage, fmt.Errorf("task %d, %s: its number of blocks is not recorded: say --blocks %d=N, name tasks like vadd,blocks=140, or measure with run --auto", t.ID, t.Name, t.ID))
}
