package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"wattmark/store/relay"
)

func (a *app) clusterTrialCmd() *cobra.Command {
	var f nodeFlags
	var nodes, port int
	c := &cobra.Command{
		Use: "trial", Short: "Run three nodes on this machine, to try it", Args: cobra.NoArgs,
		Long: `Run the nodes of a cluster on this machine, each in a process of its own: to try
what happens when one is killed. All three copies lie on one disk, so it keeps
nothing safe.`,
		Example: "  wattmark cluster trial --dir /tmp/cluster\n  wattmark relay --once\n  wattmark store --db lab.db",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if nodes != 1 && nodes < 3 {
				return withCode(exitUsage, errors.New("--nodes: want 3 or more, or 1"))
			}
			if err := f.read(); err != nil {
				return err
			}
			return a.clusterTrial(cmd.Context(), &f, nodes, port)
		},
	}
	c.Flags().IntVar(&nodes, "nodes", 3, "how many")
	c.Flags().IntVar(&port, "port", 7561, "the first of their ports: so many for clients, and as many, from ten behind it on, between them")
	f.register(c.Flags())
	return c
}

// trialNode is the command line of one node of several on this machine.
func trialNode(f *nodeFlags, i, nodes, port int) []string {
	var peers []string
	for k := range nodes {
		peers = append(peers, fmt.Sprintf("127.0.0.1:%d", port+10+k))
	}
	args := []string{
		"cluster", "node", "--name", fmt.Sprintf("n%d", i+1), "--dir", filepath.Join(f.cfg.Dir, fmt.Sprintf("n%d", i+1)), "--log-level", "warn",
		"--listen", fmt.Sprintf("127.0.0.1:%d", port+i), "--nodes", peers[i], "--sync", f.sync, "--partitions", fmt.Sprint(f.cfg.Streams.Partitions),
		"--max-bytes", fmt.Sprint(int64(f.maxBytes)), "--max-store", fmt.Sprint(int64(f.maxStore)),
	}
	if nodes > 1 {
		args = append(args, "--peers", strings.Join(peers, ","))
	}
	return args
}

func (a *app) clusterTrial(ctx context.Context, f *nodeFlags, nodes, port int) error {
	t := trial{a: a, f: f, nodes: nodes, port: port}
	g, ctx := errgroup.WithContext(ctx)
	if err := t.start(ctx, g, true); err != nil {
		return errors.Join(err, g.Wait())
	}
	b, err := t.dial(ctx)
	if err == nil {
		fmt.Fprintf(a.err, "%d streams are there; export WATTMARK_CLUSTER=%s\n", b.Partitions(), t.servers())
		b.Close()
	} else if ctx.Err() == nil {
		fmt.Fprintln(a.err, "wattmark:", err)
	}
	return g.Wait()
}

// trial is some nodes on this machine.
type trial struct {
	a           *app
	f           *nodeFlags
	nodes, port int
}

func (t *trial) servers() string {
	var out []string
	for i := range t.nodes {
		out = append(out, "nats://"+net.JoinHostPort("127.0.0.1", fmt.Sprint(t.port+i)))
	}
	return strings.Join(out, ",")
}

// start starts the nodes, which end with the context. A node that ends by itself is
// told of, with how to start it again, where loud.
func (t *trial) start(ctx context.Context, g *errgroup.Group, loud bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for i := range t.nodes {
		args := trialNode(t.f, i, t.nodes, t.port)
		cmd := exec.CommandContext(ctx, self, args...)
		if loud {
			cmd.Stdout, cmd.Stderr = t.a.err, t.a.err
		}
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = 10 * time.Second
		if err := cmd.Start(); err != nil {
			return err
		}
		if loud {
			fmt.Fprintf(t.a.err, "node n%d is process %d\n", i+1, cmd.Process.Pid)
		}
		g.Go(func() error {
			err := cmd.Wait()
			if ctx.Err() == nil { // the others go on without it
				fmt.Fprintf(t.a.err, "node n%d has ended: %v; start it again with:\n  wattmark %s\n", i+1, err, strings.Join(args, " "))
			}
			return nil
		})
	}
	return nil
}

// dial waits until the streams are there.
func (t *trial) dial(ctx context.Context) (*relay.Bus, error) {
	return relay.Dial(ctx, relay.Options{Servers: t.servers(), Name: "wattmark trial"})
}

// freePorts finds a first port for a trial of which all are free.
func freePorts(nodes int) (port int, err error) {
	for range 20 {
		if port, err = freeFrom(nodes); err == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free ports for %d nodes: %w", nodes, err)
}

func freeFrom(nodes int) (port int, err error) {
	first, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer first.Close()
	port = first.Addr().(*net.TCPAddr).Port
	for i := range nodes {
		for _, p := range []int{port + i, port + 10 + i} {
			if p == port {
				continue
			}
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
			if err != nil {
				return 0, err
			}
			defer l.Close()
		}
	}
	return port, nil
}

// startTrial starts nodes for a benchmark, on ports that are free.
func (a *app) startTrial(ctx context.Context, f *nodeFlags, nodes int) (b *relay.Bus, stop func() error, err error) {
	port, err := freePorts(nodes)
	if err != nil {
		return nil, nil, err
	}
	t := trial{a: a, f: f, nodes: nodes, port: port}
	ctx, cancel := context.WithCancel(ctx)
	g, gctx := errgroup.WithContext(ctx)
	stop = func() error {
		cancel()
		return g.Wait()
	}
	if err = t.start(gctx, g, false); err == nil {
		b, err = t.dial(gctx)
	}
	if err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return b, stop, nil
}
