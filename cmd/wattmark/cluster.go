package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"wattmark/store/cluster"
	"wattmark/store/relay"
)

// The ports of a node unless told otherwise.
const (
	defaultClients = "127.0.0.1:7561"
	defaultNodes   = "127.0.0.1:7571"
)

// clusterFlags say how to reach the cluster.
type clusterFlags struct{ servers, password string }

func (f *clusterFlags) register(fl *pflag.FlagSet, name, usage, value string) {
	fl.StringVar(&f.servers, name, value, usage)
	fl.StringVar(&f.password, "password-file", "", "file with the cluster's password, where it asks for one")
}

// usual are the servers where none are named.
func usualServers() string { return firstOf(os.Getenv("WATTMARK_CLUSTER"), "nats://"+defaultClients) }

func readPassword(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("--password-file: %w", err)
	}
	p := strings.TrimSpace(string(b))
	if p == "" {
		return "", withCode(exitUsage, fmt.Errorf("--password-file %s is empty", path))
	}
	return p, nil
}

// dial connects to the cluster as one of the program's commands.
func (f *clusterFlags) dial(ctx context.Context, command string, log *slog.Logger) (*relay.Bus, error) {
	password, err := readPassword(f.password)
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname() // it is only shown
	o := relay.Options{Servers: f.servers, Name: "wattmark " + command + " " + host, Password: password, Log: log}
	if err := trustCluster(ctx, &o); err != nil {
		return nil, err
	}
	b, err := relay.Dial(ctx, o)
	if errors.Is(err, relay.ErrNoStreams) {
		err = fmt.Errorf("%w: the nodes of wattmark cluster make them once most are up", err)
	}
	return b, err
}

func (a *app) clusterCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "cluster", Short: "Replicate tasks over several machines (NATS JetStream)", Args: cobra.NoArgs,
		Long: `A cluster stands between many hosts and any number of stores: three nodes hold
every task three times, and one of them may be gone. Hosts publish with wattmark
relay, or with --cluster of wattmark host and run; stores take with wattmark store.
See docs/scale.md.`,
	}
	c.AddCommand(a.clusterNodeCmd(), a.clusterTrialCmd(), a.clusterStatusCmd(), a.clusterAsideCmd())
	return c
}

// nodeFlags say what a node is.
type nodeFlags struct {
	serviceFlags
	cfg                cluster.Config
	peers, sync, pass  string
	maxBytes, maxStore size // 0 for as the disk allows
	maxUser            size
	access             accessFlags
}

func (f *nodeFlags) register(fl *pflag.FlagSet) {
	fl.StringVar(&f.cfg.Dir, "dir", "cluster", "folder of the streams")
	fl.StringVar(&f.sync, "sync", "always", "when what was written goes to the disk: always, before it is acknowledged; or as often as 100ms or 2m (docs/scale.md)")
	fl.IntVar(&f.cfg.Streams.Partitions, "partitions", 4, "streams that tasks are spread over; cannot be changed later")
	fl.Var(&f.maxBytes, "max-bytes", "how large a stream may grow, as in 500GB; one that is full refuses (default: as the disk allows)")
	fl.Var(&f.maxUser, "max-user", "how much of the streams one measurer may take, where --auth asks who publishes (default: a quarter of a stream)")
	fl.Var(&f.maxStore, "max-store", "how much of the disk all streams may take (default: three quarters of what is free)")
}

// read fills the configuration in.
func (f *nodeFlags) read() (err error) {
	f.cfg.Streams.Duplicates = 10 * time.Minute
	if f.sync != "always" {
		if f.cfg.Sync, err = time.ParseDuration(f.sync); err != nil || f.cfg.Sync <= 0 {
			return withCode(exitUsage, fmt.Errorf("--sync %q: want always, or a time as 100ms or 2m", f.sync))
		}
	}
	f.cfg.Streams.MaxBytes, f.cfg.MaxStore, f.cfg.MaxUser = int64(f.maxBytes), int64(f.maxStore), int64(f.maxUser)
	if n := f.cfg.Streams.Partitions; n < 1 || n > relay.MaxPartitions {
		return withCode(exitUsage, fmt.Errorf("--partitions %d: want 1 to %d", n, relay.MaxPartitions))
	}
	for _, p := range strings.Split(f.peers, ",") {
		if p = strings.TrimSpace(p); p != "" {
			f.cfg.Peers = append(f.cfg.Peers, p)
		}
	}
	if len(f.cfg.Peers) == 1 || len(f.cfg.Peers) == 2 {
		return withCode(exitUsage, fmt.Errorf("--peers names %d nodes: name all three or more, this one too, or none for one alone", len(f.cfg.Peers)))
	}
	f.cfg.Streams.Replicas = 1
	if len(f.cfg.Peers) > 0 {
		f.cfg.Streams.Replicas = 3
	}
	f.cfg.Password, err = readPassword(f.pass)
	return err
}

func (a *app) clusterNodeCmd() *cobra.Command {
	var f nodeFlags
	c := &cobra.Command{
		Use: "node", Short: "Run a node of a cluster", Args: cobra.NoArgs,
		Long: `Run a node: a NATS server with JetStream. Three on three machines are a cluster; it
makes its streams by itself, with three replicas, when two nodes are up. A node keeps
to this machine unless told otherwise. Where others can reach it, it wants --auth: nodes
then know each other by certificates of the folder's CA, and clients by certificates or
tokens (docs/scale.md).`,
		Example: `  wattmark cluster node --name a --dir /srv/cluster --listen 10.0.0.1:7561 --nodes 10.0.0.1:7571 \
    --peers 10.0.0.1:7571,10.0.0.2:7571,10.0.0.3:7571 --auth /etc/wattmark/auth`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := f.load(cmd); err != nil {
				return err
			}
			if err := f.read(); err != nil {
				return err
			}
			f.cfg.Log = a.serviceLog(&f.level)
			x, err := f.guard()
			if err != nil {
				return err
			}
			defer x.audit.Close()
			return a.clusterNode(cmd.Context(), f.cfg)
		},
	}
	fl := c.Flags()
	host, _ := os.Hostname()
	name, _, _ := strings.Cut(host, ".")
	fl.StringVar(&f.cfg.Name, "name", name, "name of the node, other than its peers', and the same each time")
	fl.StringVar(&f.cfg.Listen, "listen", defaultClients, "address for hosts and stores")
	fl.StringVar(&f.cfg.Cluster, "nodes", defaultNodes, "address for the other nodes")
	fl.StringVar(&f.peers, "peers", "", "addresses for nodes of all nodes, with commas between them; none for a node that is alone")
	fl.StringVar(&f.cfg.Monitor, "http", "", "also serve the server's own state over HTTP (/healthz, /jsz, /varz) on this address")
	fl.StringVar(&f.pass, "password-file", "", "file with the password that hosts, stores and nodes must know, where there is no --auth")
	f.access.addTo(fl)
	f.cfg.Name = name
	f.register(fl)
	f.addTo(c, "cluster")
	fl.Lookup("name").DefValue = "this machine's"
	return c
}

// clusterNode runs a node, and makes the streams as soon as enough nodes are up.
func (a *app) clusterNode(ctx context.Context, cfg cluster.Config) error {
	n := newNotifier(cfg.Log)
	node, err := cluster.Start(cfg)
	if err != nil {
		return err
	}
	cfg.Log.Info("the node is up", "name", cfg.Name, "address", node.URL(), "peers", len(cfg.Peers))
	n.tell("READY=1\nSTATUS=" + node.URL())
	ready, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		switch err := node.Ready(ready); {
		case err == nil:
			cfg.Log.Info("the streams are there", "partitions", cfg.Streams.Partitions, "replicas", cfg.Streams.Replicas)
		case ready.Err() == nil:
			cfg.Log.Error("the streams could not be made", "error", err)
		}
	}()
	go n.watchdog(ready, func(ctx context.Context) error {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", node.Address())
		if err != nil {
			return err
		}
		return c.Close()
	})
	err = node.Run(ctx)
	n.tell("STOPPING=1")
	return err
}
