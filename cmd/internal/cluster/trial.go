package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/store/relay"
	"golang.org/x/sync/errgroup"
)

// clusterTrialCmd returns the command that runs a whole cluster on this machine, for trials of failures, until
// its context ends. It prints the WATTMARK_CLUSTER that reaches the nodes as soon as the streams exist.
func clusterTrialCmd(a *cli.App) *cobra.Command {
	var f NodeFlags
	var nodes, port int
	c := cli.Command("trial", "Run three nodes on this machine, to try it", cobra.NoArgs,
		func(ctx context.Context, _ []string) error {
			if nodes != 1 && nodes < 3 {
				return cli.Usagef("--nodes: want 3 or more, or 1")
			}
			if err := f.read(); err != nil {
				return err
			}
			g, ctx := errgroup.WithContext(ctx)
			if err := startNodes(ctx, g, a, &f, nodes, port); err != nil {
				return errors.Join(err, g.Wait())
			}
			var urls []string
			for i := range nodes {
				urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", port+i))
			}
			servers := strings.Join(urls, ",")
			// Dial blocks until the streams exist.
			b, err := relay.Dial(ctx, relay.Options{Servers: servers, Name: "wattmark trial"})
			if err == nil {
				fmt.Fprintf(a.Err, "%d streams are there; export WATTMARK_CLUSTER=%s\n", b.Partitions(), servers)
				b.Close()
			} else if ctx.Err() == nil {
				fmt.Fprintln(a.Err, "wattmark:", err)
			}
			return g.Wait()
		})
	c.Flags().IntVar(&nodes, "size", 3, "how many")
	c.Flags().IntVar(&port, "first-port", 7561,
		"the first of their ports: so many for clients, and as many, from ten behind it on, between them")
	f.register(c.Flags())
	return c
}

// startNodes starts the nodes in g, each a process of its own with a folder of its own. They
// end with ctx: SIGTERM, and SIGKILL 10 s later. A node that ends before is reported on
// standard error with the command that starts it again, and the others go on. Node i listens
// on port+i for clients and on port+10+i for the other nodes.
func startNodes(ctx context.Context, g *errgroup.Group, a *cli.App, f *NodeFlags, nodes, port int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var peers []string
	for i := range nodes {
		peers = append(peers, fmt.Sprintf("127.0.0.1:%d", port+10+i))
	}
	for i, at := range peers {
		name := fmt.Sprintf("n%d", i+1)
		args := []string{
			"cluster", "node", "--name", name, "--dir", filepath.Join(f.Cfg.Dir, name), "--log-level", "warn",
			"--listen", fmt.Sprintf("127.0.0.1:%d", port+i), "--nodes", at, "--sync", f.Sync,
			"--streams", fmt.Sprint(f.Cfg.Streams.Partitions),
			"--max-bytes", fmt.Sprint(int64(f.maxBytes)), "--max-store", fmt.Sprint(int64(f.maxStore)),
		}
		if nodes > 1 {
			args = append(args, "--peers", strings.Join(peers, ","))
		}
		cmd := exec.CommandContext(ctx, self, args...)
		cmd.Stdout, cmd.Stderr = cli.Raw(a.Err), cli.Raw(a.Err)
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = 10 * time.Second
		if err := cmd.Start(); err != nil {
			return err
		}
		fmt.Fprintf(a.Err, "node %s is process %d\n", name, cmd.Process.Pid)
		g.Go(func() error {
			err := cmd.Wait()
			if ctx.Err() == nil { // no error for the group: that would end the other nodes
				fmt.Fprintf(a.Err, "node %s has ended: %v; start it again with:\n  wattmark %s\n", name, err,
					strings.Join(args, " "))
			}
			return nil
		})
	}
	return nil
}
