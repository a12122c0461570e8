package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"wattmark/analysis/counters"
	"wattmark/store"
)

// counterFlags say how files of counters are read.
type counterFlags struct {
	counters.Options
	form, by, kernel string
	power            string
	tasks, byFile    bool
	minBlocks        float64
	minTime          float64
	leaveOut         bool

	tasksUsed []store.TaskID
}

func (f *counterFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.form, "form", "", "form of the files: csv, utilisation, ncu, ncu-long, accelwattch (default: found out)")
	fl.StringVar(&f.power, "power", "", "file with the powers: a header, a column of names, a column power_w")
	fl.BoolVar(&f.tasks, "tasks", false, "take powers from the task database: tasks that are named as the kernel or the application")
	fl.StringVar(&f.Power, "power-column", "", "column with the power in W")
	fl.StringVar(&f.Name, "name-column", "", "column with the kernel's name")
	fl.StringVar(&f.App, "group-column", "", "column with the application")
	fl.StringVar(&f.Time, "time-column", "", "column with the run's time in s")
	fl.StringVar(&f.Blocks, "blocks-column", "", "column with the number of thread blocks")
	fl.StringVar(&f.Task, "task-column", "", "column with the number or name of a stored task, whose power counts")
	fl.StringArrayVar(&f.Ignore, "ignore", nil, "leave a column out (repeatable)")
	fl.StringArrayVar(&f.Rates, "rate", nil, "column that is no count of events: not divided by the time (repeatable)")
	fl.StringVar(&f.by, "rows", string(counters.ByKernel), "of Nsight Compute's launches make a row by kernel, launch or app")
	fl.BoolVar(&f.byFile, "by-file", false, "each file is of an application that is named as the file")
	fl.StringVar(&f.kernel, "kernel", "", "only kernels whose name matches this regular expression")
	fl.Float64Var(&f.minBlocks, "min-blocks", 120, "warn of kernels with fewer blocks (the paper's 120 are 4 for each of 30 multiprocessors)")
	fl.Float64Var(&f.minTime, "min-time", 1, "warn of powers measured for fewer seconds")
	fl.BoolVar(&f.leaveOut, "leave-out", false, "leave rows that are warned of so out, rather than warn")
}

// featureFlags choose a model's columns.
type featureFlags struct {
	set, file, scale string
	features         []string
}

func (f *featureFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.set, "set", "", "columns: mem, inst, mem/inst, mem/inst/branch, mem/inst/ws, mem/inst/tlb, full (the paper's), nsight-full, nsight-units, per-cycle, all, or counters with commas between")
	fl.StringArrayVar(&f.features, "feature", nil, "a column by a formula: 'dram = (DRAM_Rd + DRAM_Wr)/Elapsed_Cycles' (repeatable)")
	fl.StringVar(&f.file, "features", "", "YAML file with name: formula")
	fl.StringVar(&f.scale, "scale", string(counters.Auto), "counts of events per-second, none, or auto: per second where every row has a time")
}

// counterTable reads the files of a command line, joins passes and powers.
func (a *app) counterTable(ctx context.Context, f *counterFlags, files []string) (*counters.Table, error) {
	if f.kernel != "" {
		re, err := regexp.Compile(f.kernel)
		if err != nil {
			return nil, withCode(exitUsage, fmt.Errorf("--kernel: %w", err))
		}
		f.Kernel = re
	}
	f.Options.Form, f.Options.By = counters.Form(f.form), counters.By(f.by)
	var tables []*counters.Table
	for _, arg := range files {
		o := f.Options
		if f.byFile {
			o.AppName = strings.TrimSuffix(filepath.Base(arg), filepath.Ext(arg))
		}
		t, err := a.readCounters(arg, o)
		if err != nil {
			return nil, err
		}
		tables = append(tables, t)
	}
	t, err := counters.Merge(tables...)
	if err != nil {
		return nil, err
	}
	if f.power != "" {
		if err := a.joinPowerFile(t, f.power); err != nil {
			return nil, err
		}
	}
	if err := a.joinTasks(ctx, t, f); err != nil {
		return nil, err
	}
	if f.leaveOut {
		if n := t.Drop(func(r counters.Run) bool {
			return r.Blocks < f.minBlocks || float64(r.Measured) < f.minTime
		}); n > 0 {
			t.Notes = append(t.Notes, fmt.Sprintf("%d rows were left out: fewer than %g blocks, or measured for less than %g s", n, f.minBlocks, f.minTime))
		}
	}
	return t, nil
}

// readCounters reads a file, or "-", the standard input; NAME=FILE names the application.
func (a *app) readCounters(arg string, o counters.Options) (*counters.Table, error) {
	path := arg
	if _, err := os.Stat(arg); err != nil {
		if name, file, ok := strings.Cut(arg, "="); ok && name != "" {
			o.AppName, path = name, file
		}
	}
	var r io.Reader = a.in
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r = f
	}
	return counters.Parse(path, r, o)
}

func (a *app) joinPowerFile(t *counters.Table, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	list, err := counters.ParsePower(path, f)
	if err != nil {
		return err
	}
	return t.JoinPower(path, list)
}
