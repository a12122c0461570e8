// Package ptd is the command that takes PTDaemon's place under MLPerf's power director.
package ptd

import (
	"context"
	_ "embed"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/hostagent/ptd"
)

//go:embed help.md
var help string

// Commands returns the package's commands.
func Commands(a *cli.App) []*cobra.Command { return cli.In(cli.Machines, help, command(a)) }

// command returns ptd, which takes the flags that the director gives to PTDaemon.
func command(a *cli.App) *cobra.Command {
	port, samples := 8888, ""
	c := cli.Command("ptd -l FILE [-p PORT] DEVICE-TYPE MONITOR", "Answer MLPerf's power director as an analyser",
		cobra.ExactArgs(2),
		func(ctx context.Context, args []string) error {
			if _, err := strconv.ParseUint(args[0], 10, 16); err != nil {
				return cli.Usagef("device type %.40q: want the number of server.conf's deviceType", args[0])
			}
			if samples == "" {
				return cli.Usagef("no -l FILE: the director reads the samples from it")
			}
			return serve(ctx, a, port, samples, args[1])
		})
	fl := c.Flags()
	fl.IntVarP(&port, "ptd-port", "p", port, "port of 127.0.0.1 to listen at")
	fl.StringVarP(&samples, "log", "l", "", "file of the samples; it grows")
	// The director passes on what its configuration has; none of it bears on a monitor.
	for _, f := range []struct{ name, short string }{{"dc", "D"}, {"network", "n"}, {"tmctl", "y"}, {"usb", "U"}, {"gpib", "g"}} {
		fl.BoolP(f.name, f.short, false, "taken from the director, without effect")
	}
	for _, f := range []struct{ name, short string }{{"board", "b"}, {"ptd-channel", "c"}} {
		fl.StringP(f.name, f.short, "", "taken from the director, without effect")
	}
	return c
}

func serve(ctx context.Context, a *cli.App, port int, samples, monitor string) error {
	client, err := cli.DialMeter(ctx, monitor, monitorclient.Options{Version: cli.Version()})
	if err != nil {
		return err
	}
	defer client.Close()
	bench, err := client.GetBench(ctx)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(samples, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	d, err := ptd.New(ptd.Config{Monitor: client, Bench: bench, Version: cli.Version(), Samples: file, Messages: cli.Raw(a.Out)})
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Err, "bench %s answers as an analyser on %v\n", bench.Name, l.Addr())
	return d.Serve(ctx, l)
}
