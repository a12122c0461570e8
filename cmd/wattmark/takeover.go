package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"wattmark/hostagent/monitorclient"
)

func (a *app) takeoverCmd() *cobra.Command {
	var address, why, capture string
	c := &cobra.Command{
		Use: "takeover --reason WHY", Short: "Take the bench from its holder, as an operator", Args: cobra.NoArgs,
		Long: `End the capture that has the bench, for somebody who may not wait until its holder
is done or its lease has ended. It ends incomplete, readable up to there; its
holder's task and the monitor's log say who took it and why. The next in line has
the bench then.`,
		Example: "  wattmark takeover --monitor lab:7551 --reason 'the card is needed for a demonstration'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if why == "" {
				return withCode(exitUsage, errors.New("say why with --reason: the holder reads it"))
			}
			_, by := whoami()
			m, err := monitorclient.Dial(address, monitorclient.Options{Version: version()})
			if err != nil {
				return err
			}
			defer m.Close()
			id, holder, reason, err := m.End(cmd.Context(), capture, by, why)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]string{"capture_id": id, "holder": holder, "reason": reason})
			}
			_, err = fmt.Fprintf(a.out, "capture %s of %s has ended: %s\n", id, holder, reason)
			return err
		},
	}
	fl := c.Flags()
	fl.StringVar(&address, "monitor", defaultMonitor, "address of the monitor")
	fl.StringVar(&why, "reason", "", "why, for the holder to read")
	fl.StringVar(&capture, "capture", "", "capture to end (default: the one that has the bench)")
	return a.jsonFlag(c)
}
