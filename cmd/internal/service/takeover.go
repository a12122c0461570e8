package service

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
)

// takeoverCmd returns takeover, which ends the capture of another user; the
// monitor requires the role operator.
func takeoverCmd(a *cli.App) *cobra.Command {
	var address, why, capture string
	c := cli.Command("takeover --reason WHY", "Take the bench from its holder, as an operator", cobra.NoArgs,
		func(ctx context.Context, _ []string) error {
			if why == "" {
				return cli.Usagef("say why with --reason: the holder reads it")
			}
			_, by := cli.Whoami()
			m, err := monitorclient.Dial(address, monitorclient.Options{Version: cli.Version()})
			if err != nil {
				return err
			}
			defer m.Close()
			id, holder, reason, err := m.End(ctx, capture, by, why)
			if err != nil {
				return err
			}
			return a.Print(map[string]string{"capture_id": id, "holder": holder, "reason": reason}, func(w io.Writer) {
				fmt.Fprintf(w, "capture %s of %s has ended: %s\n", id, holder, reason)
			})
		})
	fl := c.Flags()
	fl.StringVar(&address, "monitor", cli.DefaultMonitor, "address of the monitor")
	fl.StringVar(&why, "reason", "", "why, for the holder to read")
	fl.StringVar(&capture, "capture", "", "capture to end (default: the one that has the bench)")
	return a.JSONFlag(c)
}
