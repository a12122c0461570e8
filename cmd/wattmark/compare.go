package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"wattmark/analysis/compare"
	"wattmark/store"
)

// compareFlags say what is compared, and how.
type compareFlags struct {
	a, b     string
	aDB, bDB string
	meter    string
	work     []string
	kernels  bool
}

func (a *app) compareCmd() *cobra.Command {
	var f compareFlags
	c := &cobra.Command{
		Use: "compare A B | --a TASKS --b TASKS", Short: "Compare two versions of some work: energy, time, power, per kernel, with a test",
		Long: `Compare two versions of some work, A before and B after a change of code or card:
energy, time, mean power and the energy-delay products, each with an interval of
95 %, a p, and a verdict in one sentence.

A and B are tasks by number, several with commas between them, or by name; a name
that ends in * takes all that begin so. The test is Welch's, with a permutation
test beside it, and needs repeats: five of each, in turns. With one run on either
side there are ratios with the meters' uncertainty, and no test: one run cannot
tell a difference of the work from its scatter.

What A and B have in common cancels: the gain of one and the same meter under one
calibration is in both energies by the same factor. --meter says otherwise where
a meter tells no serial number. Where both were recorded by run --auto, their
kernels are compared by name, corrected for their number after Holm.

--work says what one run does, and gives joules for it: flop=4.4e12, byte=1e12,
token=512; flop=4.4e12,3.9e12 where A and B do not do the same.`,
		Example: "  wattmark compare --a 3,5,7,9,11 --b 4,6,8,10,12 --work token=512\n  wattmark compare 3 4\n" +
			"  wattmark compare gemm-v1 'gemm-v2*' --json\n  wattmark compare gemm gemm --a-db h100/power.db --b-db h200/power.db",
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.sides(args); err != nil {
				return err
			}
			return a.compare(cmd.Context(), f)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.a, "a", "", "tasks of A: numbers and names, with commas between them")
	fl.StringVar(&f.b, "b", "", "tasks of B")
	fl.StringVar(&f.aDB, "a-db", "", "database of A's tasks (default: --db)")
	fl.StringVar(&f.bDB, "b-db", "", "database of B's tasks (default: --db)")
	fl.StringVar(&f.meter, "meter", meterAuto, "auto, same or different: whether A and B were measured with one meter")
	fl.StringArrayVar(&f.work, "work", nil, "work of one run, UNIT=AMOUNT or UNIT=A's,B's (repeatable)")
	fl.BoolVar(&f.kernels, "kernels", true, "compare the kernels too, where they were recorded")
	return a.jsonFlag(c)
}

// sides takes A and B from the arguments or the flags.
func (f *compareFlags) sides(args []string) error {
	switch {
	case len(args) == 2 && f.a == "" && f.b == "":
		f.a, f.b = args[0], args[1]
	case len(args) != 0 || f.a == "" || f.b == "":
		return withCode(exitUsage, errors.New("name two sides: wattmark compare 3 4, or --a 3,4,5 --b 6,7,8"))
	}
	switch f.meter {
	case meterAuto, meterSame, meterDifferent:
		return nil
	}
	return withCode(exitUsage, fmt.Errorf("--meter %q: want auto, same or different", f.meter))
}

// comparedSide is one side's tasks.
type comparedSide struct {
	name, path string
	db         *store.DB
	tasks      []*store.Task
	passed     []string // what the name matched and was not taken, and why
	runs       []compare.Run
}

func (a *app) compare(ctx context.Context, f compareFlags) error {
	var work []compare.WorkPair
	for _, s := range f.work {
		w, err := compare.ParseWork(s)
		if err != nil {
			return withCode(exitUsage, fmt.Errorf("--work %w", err))
		}
		work = append(work, w)
	}
	var err error
	var sides [2]comparedSide
	for i, s := range [][3]string{{f.a, f.aDB, "A"}, {f.b, f.bDB, "B"}} {
		if sides[i], err = a.comparedSide(ctx, s[0], store.Conceal(firstOf(s[1], a.db))); err != nil {
			return fmt.Errorf("%s: %w", s[2], err)
		}
		defer sides[i].db.Close()
		for _, t := range sides[i].tasks {
			sides[i].runs = append(sides[i].runs, comparedRun(t, f.meter, s[2], sides[i].path))
		}
	}
	if err := disjoint(&sides); err != nil {
		return err
	}
	effects, err := compare.All(sides[0].runs, sides[1].runs)
	if err != nil {
		return err
	}
	r := newCompareReport(&sides, effects)
	if err := r.addWork(effects, work); err != nil {
		return withCode(exitUsage, err)
	}
	if f.kernels {
		if err := r.addKernels(ctx, &sides); err != nil {
			return err
		}
	}
	if a.json {
		return a.printJSON(r)
	}
	a.renderCompare(r)
	return nil
}

// disjoint refuses a task that is on both sides.
func disjoint(s *[2]comparedSide) error {
	if s[0].path != s[1].path {
		return nil
	}
	for _, a := range s[0].tasks {
		for _, b := range s[1].tasks {
			if a.ID == b.ID {
				return withCode(exitUsage, fmt.Errorf("task %d is in A (%s) and in B (%s): it says nothing about a difference", a.ID, s[0].name, s[1].name))
			}
		}
	}
	return nil
}
