package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"wattmark/measure"
	"wattmark/monitor/emulator/board"
)

func (a *app) connectCmd() *cobra.Command {
	var socket, current, voltage string
	var rails []string
	c := &cobra.Command{
		Use: "connect nothing|source|card", Short: "Put nothing, a calibrator or the card on an emulated meter's inputs",
		Args: cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs), ValidArgs: []string{"nothing", "source", "card"},
		Long: `Change what an emulated meter reads, as one does with cables before wattmark
calibrate: nothing (0 V, 0 A), a source that holds a current and a voltage, or
the card again. The emulator must run with --gpu SOCKET.`,
		Example: `  wattmark emulate connect nothing --gpu /tmp/gpu
  wattmark emulate connect source --gpu /tmp/gpu --rail aux_12v_1 --current 5A --voltage 12V
  wattmark emulate connect card --gpu /tmp/gpu`,
		RunE: func(_ *cobra.Command, args []string) error {
			q := SourceChange{Rails: rails, Card: args[0] == "card"}
			var err1, err2 error
			q.Amperes, err1 = parseQuantity(current, measure.UnitAmpere)
			q.Volts, err2 = parseQuantity(voltage, measure.UnitVolt)
			if err := errors.Join(err1, err2); err != nil {
				return withCode(exitUsage, err)
			}
			if (args[0] == "source") != (q.Amperes != 0 || q.Volts != 0) {
				return withCode(exitUsage, errors.New("--current and --voltage say what a source holds; nothing and card take none"))
			}
			p, err := dialPlant(socket)
			if err != nil {
				return err
			}
			defer p.Close()
			return p.Call("Plant.Connect", q, nil)
		},
	}
	fl := c.Flags()
	fl.StringVar(&socket, "gpu", "", "socket of the emulator")
	fl.StringSliceVar(&rails, "rail", nil, "rail of the card (repeatable; default: all)")
	fl.StringVar(&current, "current", "0A", "current that the source drives")
	fl.StringVar(&voltage, "voltage", "0V", "voltage that it holds")
	_ = c.MarkFlagRequired("gpu")
	return c
}

func (a *app) truthCmd() *cobra.Command {
	var socket string
	c := &cobra.Command{
		Use: "truth TASK", Short: "Show a task beside what the emulated card really drew", Args: oneTask,
		Long: `Show every result of a task beside the energy that the emulated card really drew
while its kernels ran, on the rails that were measured. The emulator must run
with --gpu SOCKET, and remembers ten minutes.`,
		Example: "  wattmark emulate truth 1 --gpu /tmp/gpu",
		RunE:    func(cmd *cobra.Command, args []string) error { return a.truth(cmd.Context(), args[0], socket) },
	}
	c.Flags().StringVar(&socket, "gpu", "", "socket of the emulator")
	_ = c.MarkFlagRequired("gpu")
	return a.jsonFlag(c)
}

func (a *app) truth(ctx context.Context, arg, socket string) error {
	db, err := a.openDB(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	t, err := a.task(ctx, db, arg)
	if err != nil {
		return err
	}
	ks, err := db.Kernels(ctx, t.ID)
	if err != nil {
		return err
	}
	if len(ks) == 0 || len(t.Results) == 0 {
		return fmt.Errorf("task %d has no kernels or no result to compare", t.ID)
	}
	p, err := dialPlant(socket)
	if err != nil {
		return err
	}
	defer p.Close()
	q := RailSpan{TimeSpan: TimeSpan{From: ks[0].Start, To: ks[len(ks)-1].End}}
	for _, r := range t.Setup.Rails {
		if !boardRail(r.Name) {
			return fmt.Errorf("the emulated card has no rail %s: name the bench's rails as the card's", r.Name)
		}
		q.Rails = append(q.Rails, r.Name)
	}
	var joules float64
	if err := p.Call("Plant.Energy", q, &joules); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(map[string]any{"truth_j": joules, "results": newResultReports(t.Results)})
	}
	fmt.Fprintf(a.out, "Task %d: the card drew %.3f J\n", t.ID, joules)
	for _, r := range t.Results {
		e, u := float64(r.Total.Energy), float64(r.Total.U)
		fmt.Fprintf(a.out, "  result %d  %s: error %s, %s\n", r.Number, energyText(e, u), percent(100*(e/joules-1)), insideText(r.Total, joules))
	}
	return nil
}

// boardRail reports whether the emulated card has a rail of that name.
func boardRail(name string) bool {
	for _, r := range board.DefaultRails() {
		if r.Name == name {
			return true
		}
	}
	return false
}
