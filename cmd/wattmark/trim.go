package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"wattmark/hostagent/measurement"
)

func (a *app) trimCmd() *cobra.Command {
	var from, to time.Duration
	c := &cobra.Command{
		Use: "trim TASK --from T --to T", Short: "Set a task's window by hand", Args: oneTask,
		Long: `Set the window of a task by hand, in device time as wattmark show plots it, and
compute its energy anew. For tasks whose markers were not found: their samples
are all kept.`,
		Example: "  wattmark trim 42 --from 1.25s --to 3.5s",
		RunE: func(cmd *cobra.Command, args []string) error {
			if to <= from {
				return withCode(exitUsage, errors.New("trim: --to must lie after --from; look at the plot of wattmark show"))
			}
			ctx := cmd.Context()
			db, err := a.openToChange(ctx)
			if err != nil {
				return err
			}
			defer db.Close()
			t, err := a.task(ctx, db, args[0])
			if err != nil {
				return err
			}
			w := measurement.Window{From: seconds(from), To: seconds(to)}
			if err := measurement.Retrim(ctx, db, t.ID, w); err != nil {
				return err
			}
			if err := shareAgain(ctx, db, t.ID); err != nil {
				return err
			}
			return a.showTask(ctx, db, t.ID, nil)
		},
	}
	c.Flags().DurationVar(&from, "from", 0, "device time at which the window begins")
	c.Flags().DurationVar(&to, "to", 0, "device time at which it ends")
	return a.jsonFlag(c)
}
