// Package cluster has the commands of many machines: nodes of the replicated log
// (cluster), the service that carries finished tasks into it (relay) and the one that
// keeps them (store). A Gate lets a measurement release the monitor's samples only
// after the cluster has them.
//
//	host, run ── Gate ──┐                        ┌─ store → SQLite
//	                    ├→ cluster node × 3 ─────┤
//	relay ──────────────┘   (JetStream streams)  └─ store → PostgreSQL
//
// A task is published as messages of one stream (its partition); each stream has three
// replicas. Package store/relay holds the message format and the delivery guarantees,
// package store/cluster the server; here are flags, wiring and status output.
package cluster

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/api/auth"
	"github.com/wattmark/wattmark/cmd/config"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/daemon"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/store/cluster"
	"github.com/wattmark/wattmark/store/relay"
)

// The default addresses of a node: both on the loopback interface.
const (
	defaultClients = "127.0.0.1:7561" // for hosts and stores
	defaultNodes   = "127.0.0.1:7571" // for the other nodes
)

// ClusterFlags are the flags for a connection to the cluster: the addresses of its nodes,
// separated by commas, and the path of the password file.
type ClusterFlags struct{ Servers, password string }

// Register adds the flags to fl; value is the default of the servers.
func (f *ClusterFlags) Register(fl *pflag.FlagSet, usage, value string) {
	fl.StringVar(&f.Servers, "cluster", value, usage)
	fl.StringVar(&f.password, "password-file", "", "file with the cluster's password, where it asks for one")
}

// usualServers returns the default servers: WATTMARK_CLUSTER, else a node on this machine.
func usualServers() string {
	return cmp.Or(os.Getenv("WATTMARK_CLUSTER"), "nats://"+defaultClients)
}

// readPassword returns the content of a password file without surrounding white space.
// An empty path gives an empty password; an empty file is an error, since it would open
// the cluster to everyone.
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
		return "", cli.Usagef("--password-file %s is empty", path)
	}
	return p, nil
}

// Dial connects to the cluster under the name of a command, which the server lists with
// its connections. It blocks until the streams exist or ctx ends; the caller closes the Bus.
func (f *ClusterFlags) Dial(ctx context.Context, command string, log *slog.Logger) (*relay.Bus, error) {
	password, err := readPassword(f.password)
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname() // for display only
	o := relay.Options{Servers: f.Servers, Name: "wattmark " + command + " " + host, Password: password, Log: log}
	if err := trustCluster(ctx, &o); err != nil {
		return nil, err
	}
	b, err := relay.Dial(ctx, o)
	if errors.Is(err, relay.ErrNoStreams) {
		err = fmt.Errorf("%w: the nodes of wattmark cluster make them once most are up", err)
	}
	return b, err
}

// NodeFlags are the flags of a node. Cfg is complete after read and, for a node that
// serves other machines, guard.
type NodeFlags struct {
	daemon.ServiceFlags
	Cfg                cluster.Config
	peers, Sync, pass  string   // Sync: "always" or an interval
	maxBytes, maxStore cli.Size // 0: derived from the free disk space
	maxUser            cli.Size // per measurer; 0: a quarter of a stream
	access             daemon.AccessFlags
}

// register adds the flags that "cluster node" and "cluster trial" share.
func (f *NodeFlags) register(fl *pflag.FlagSet) {
	fl.StringVar(&f.Cfg.Dir, "dir", "cluster", "folder of the streams")
	fl.StringVar(&f.Sync, "sync", "always", "when what was written goes to the disk: always, before it is "+
		"acknowledged; or as often as 100ms or 2m (docs/scale.md)")
	fl.IntVar(&f.Cfg.Streams.Partitions, "streams", 4, "streams that tasks are spread over; cannot be changed later")
	fl.Var(&f.maxBytes, "max-bytes",
		"how large a stream may grow, as in 500GB; one that is full refuses (default: as the disk allows)")
	fl.Var(&f.maxUser, "max-user", "how much of the streams one measurer may take, where --auth asks who publishes "+
		"(default: a quarter of a stream)")
	fl.Var(&f.maxStore, "max-store",
		"how much of the disk all streams may take (default: three quarters of what is free)")
}

// read converts the flags to Cfg and checks them. The replication factor follows from the
// peers: 3 for a cluster, 1 for a single node. Two nodes are refused, because a majority of
// two is both: the loss of either would stop the cluster.
func (f *NodeFlags) read() (err error) {
	f.Cfg.Streams.Duplicates = 10 * time.Minute
	if f.Sync != "always" {
		if f.Cfg.Sync, err = time.ParseDuration(f.Sync); err != nil || f.Cfg.Sync <= 0 {
			return cli.Usagef("--sync %q: want always, or a time as 100ms or 2m", f.Sync)
		}
	}
	f.Cfg.Streams.MaxBytes, f.Cfg.MaxStore, f.Cfg.MaxUser = int64(f.maxBytes), int64(f.maxStore), int64(f.maxUser)
	if n := f.Cfg.Streams.Partitions; n < 1 || n > relay.MaxPartitions {
		return cli.Usagef("--streams %d: want 1 to %d", n, relay.MaxPartitions)
	}
	for _, p := range strings.Split(f.peers, ",") {
		if p = strings.TrimSpace(p); p != "" {
			f.Cfg.Peers = append(f.Cfg.Peers, p)
		}
	}
	if len(f.Cfg.Peers) == 1 || len(f.Cfg.Peers) == 2 {
		return cli.Usagef("--peers names %d nodes: name all three or more, this one too, or none for one alone",
			len(f.Cfg.Peers))
	}
	f.Cfg.Streams.Replicas = 1
	if len(f.Cfg.Peers) > 0 {
		f.Cfg.Streams.Replicas = 3
	}
	f.Cfg.Password, err = readPassword(f.pass)
	return err
}

func clusterNodeCmd(a *cli.App) *cobra.Command {
	var f NodeFlags
	c := f.Command(a, "node", "Run a node of a cluster",
		func(ctx context.Context, _ *config.Reloader, log *slog.Logger) error {
			if err := f.read(); err != nil {
				return err
			}
			f.Cfg.Log = log
			x, err := f.guard()
			if err != nil {
				return err
			}
			defer x.Audit.Close()
			return clusterNode(ctx, f.Cfg)
		})
	fl := c.Flags()
	host, _ := os.Hostname()
	name, _, _ := strings.Cut(host, ".")
	fl.StringVar(&f.Cfg.Name, "name", name, "name of the node, other than its peers', and the same each time")
	fl.StringVar(&f.Cfg.Listen, "listen", defaultClients, "address for hosts and stores")
	fl.StringVar(&f.Cfg.Cluster, "nodes", defaultNodes, "address for the other nodes")
	fl.StringVar(&f.peers, "peers", "",
		"addresses for nodes of all nodes, with commas between them; none for a node that is alone")
	fl.StringVar(&f.Cfg.Monitor, "http", "",
		"also serve the server's own state over HTTP (/healthz, /jsz, /varz) on this address")
	fl.StringVar(&f.pass, "password-file", "",
		"file with the password that hosts, stores and nodes must know, where there is no --auth")
	cli.Section(fl, "Who may call", func() { f.access.AddTo(fl) })
	f.Cfg.Name = name
	f.register(fl)
	f.AddTo(c, "cluster")
	fl.Lookup("name").DefValue = "this machine's"
	return c
}

// clusterNode runs a node until ctx ends. The streams are created in the background as soon
// as enough nodes are up; a failure to create them is logged and leaves the node running.
func clusterNode(ctx context.Context, cfg cluster.Config) error {
	n := daemon.NewNotifier(cfg.Log)
	node, err := cluster.Start(cfg)
	if err != nil {
		return err
	}
	cfg.Log.Info("the node is up", "name", cfg.Name, "address", node.URL(), "peers", len(cfg.Peers))
	n.Tell("READY=1\nSTATUS=" + node.URL())
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
	// The node is alive while its client port accepts connections.
	go n.Watchdog(ready, func(ctx context.Context) error {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", node.Address())
		if err != nil {
			return err
		}
		return c.Close()
	})
	err = node.Run(ctx)
	n.Tell("STOPPING=1")
	return err
}

//go:embed help.md
var help string

// Commands returns the commands of this package.
func Commands(a *cli.App) []*cobra.Command {
	c := &cobra.Command{
		Use: "cluster", Short: "Replicate tasks over several machines (NATS JetStream)", Args: cobra.NoArgs,
	}
	c.AddCommand(clusterNodeCmd(a), clusterTrialCmd(a), clusterStatusCmd(a), clusterAsideCmd(a))
	return cli.In(cli.Many, help, c, relayCmd(a), storeCmd(a))
}

// guard opens the access control of a node and sets Cfg.Access. It refuses combinations
// that leave the node open: a password next to --auth, tokens without TLS, and addresses
// other than loopback without authentication. The caller closes the audit log of the result.
func (f *NodeFlags) guard() (*daemon.Access, error) {
	x, err := f.access.Open(f.Cfg.Log)
	if err != nil {
		return nil, err
	}
	refuse := func(err error) (*daemon.Access, error) { return nil, errors.Join(err, x.Audit.Close()) }
	if x.Server != nil && f.Cfg.Password != "" {
		return refuse(cli.Usagef("--password-file and --auth: choose one; with --auth clients have tokens or certificates"))
	}
	if x.Server == nil && x.Asks {
		return refuse(cli.Usagef("tokens travel over TLS alone here: name --serve-cert " +
			"and --serve-key too, or a folder made by wattmark auth init"))
	}
	if x.Server != nil {
		if f.Cfg.Access, err = x.Cluster(); err != nil {
			return refuse(cli.WithCode(cli.ExitUsage, err))
		}
	}
	addresses := []string{f.Cfg.Listen}
	if len(f.Cfg.Peers) > 0 {
		addresses = append(addresses, f.Cfg.Cluster)
	}
	check := func(x *daemon.Access, address string) error {
		at, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			return err
		}
		return x.Check(at)
	}
	for _, a := range addresses {
		if err := check(x, a); err != nil {
			return refuse(err)
		}
	}
	if f.Cfg.Monitor != "" {
		// The HTTP port of the server has no authentication, whatever the client port has.
		if err := check(&daemon.Access{Insecure: x.Insecure, Log: x.Log}, f.Cfg.Monitor); err != nil {
			return refuse(fmt.Errorf("--http: %w", err))
		}
	}
	return x, nil
}

// trustCluster sets the TLS configuration and the token of a connection from the flags that
// also apply to monitors and hosts (cli.AddTrust). TLS is used if any server has the scheme
// tls:// or auth.Client.Secret asks for it; one configuration then serves all of them.
func trustCluster(ctx context.Context, o *relay.Options) error {
	c, ok := ctx.Value(cli.TrustKey{}).(*auth.Client)
	if !ok {
		return nil
	}
	client := c.FromEnv()
	for _, s := range strings.Split(o.Servers, ",") {
		host, speaks := strings.TrimSpace(s), false
		if u, err := url.Parse(host); err == nil && u.Host != "" {
			host, speaks = u.Host, u.Scheme == "tls"
		}
		token, secure, err := client.Secret(host)
		if err != nil {
			return cli.WithCode(cli.ExitUsage, err)
		}
		o.Token = token
		if !secure && !speaks || o.TLS != nil {
			continue
		}
		if o.TLS, err = client.TLS(); err != nil {
			return cli.WithCode(cli.ExitUsage, err)
		}
	}
	return nil
}

// query connects and calls do: both together for at most 15 s, as they only read the state of
// the cluster.
func (f *ClusterFlags) query(ctx context.Context, command string, do func(context.Context, *relay.Bus) error) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	b, err := f.Dial(ctx, command, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer b.Close()
	return do(ctx, b)
}

const serversUsage = "nodes of the cluster, with commas between them (also WATTMARK_CLUSTER)"

func clusterStatusCmd(a *cli.App) *cobra.Command {
	var f ClusterFlags
	c := cli.Command("status", "Show leaders, replicas, and how far the stores are", cobra.NoArgs,
		func(ctx context.Context, _ []string) error {
			return f.query(ctx, "status", func(ctx context.Context, b *relay.Bus) error {
				return showStatus(a, b.Status(ctx))
			})
		})
	f.Register(c.Flags(), serversUsage, usualServers())
	return a.JSONFlag(c)
}

// showStatus prints one row per stream, then the tasks set aside. It returns an error if a
// stream has no leader, or a replica that is offline or behind.
func showStatus(a *cli.App, list []relay.StreamStatus) error {
	bad := 0
	t := out.NewTable(a.Out, "stream", "leader", "replicas", "tasks", "aside", "bytes", "stores")
	for _, s := range list {
		var replicas, stores []string
		ill := s.Trouble != ""
		for _, r := range s.Replicas {
			text := r.Node
			switch {
			case r.Offline:
				text += " (away)"
			case !r.Current:
				text += fmt.Sprintf(" (%d behind)", r.Lag)
			}
			ill = ill || r.Offline || !r.Current
			replicas = append(replicas, text)
		}
		for _, c := range s.Stores {
			// A task that a store works on is not stored yet: it counts as waiting.
			stores = append(stores, fmt.Sprintf("%s: %d waiting", c.Name, c.Waiting+uint64(c.Working)))
		}
		if ill {
			bad++
		}
		size := cli.SizeText(s.Bytes)
		if s.MaxBytes > 0 {
			size += " of " + cli.SizeText(s.MaxBytes)
		}
		t.AppendRow(out.Row{
			s.Stream, cmp.Or(s.Leader, s.Trouble), strings.Join(replicas, ", "), s.Tasks, s.Aside,
			size, strings.Join(stores, ", "),
		})
	}
	err := a.Print(list, func(w io.Writer) {
		t.Render()
		showAside(w, list)
	})
	if err == nil && bad > 0 {
		err = fmt.Errorf("%d of %d streams are not whole", bad, len(list))
	}
	return err
}

// showAside prints the tasks that the stores could not take, with the reasons. A status
// holds only the first of them, the total is exact.
func showAside(w io.Writer, list []relay.StreamStatus) {
	total := 0
	var some []relay.Aside
	for _, s := range list {
		total += s.Aside
		some = append(some, s.SetAside...)
	}
	if total == 0 {
		return
	}
	fmt.Fprintf(w, "\n%d tasks could not be stored and were set aside; the others go on. Offer one again when "+
		"its cause is mended, with wattmark cluster aside --again TASK,\nor remove it with --give-up TASK: the database "+
		"of its host keeps it.\n", total)
	asideTable(w, some)
	if total > len(some) {
		fmt.Fprintf(w, "%d more: wattmark cluster aside\n", total-len(some))
	}
}

func asideTable(w io.Writer, list []relay.Aside) {
	out.Table(w, out.Row{"task", "user", "name", "store", "when", "why"}, list, func(x relay.Aside) out.Row {
		return out.Row{x.Key, x.User, x.Name, x.Store, x.At.Local().Format(time.DateTime), x.Why}
	})
}

// clusterAsideCmd returns the command that lists tasks set aside, and with a flag returns one
// to the stores or removes it.
func clusterAsideCmd(a *cli.App) *cobra.Command {
	var f ClusterFlags
	var again, drop string
	c := cli.Command("aside", "Show tasks that stores could not take, offer them again, or drop them", cobra.NoArgs,
		func(ctx context.Context, _ []string) error {
			if again != "" && drop != "" {
				return cli.Usagef("either --again or --give-up")
			}
			return f.query(ctx, "aside", func(ctx context.Context, b *relay.Bus) error {
				if key := cmp.Or(again, drop); key != "" {
					// The message goes back into its stream, or with --give-up is removed.
					if err := b.Again(ctx, relay.Key(key), drop != ""); errors.Is(err, relay.ErrNotAside) {
						return cli.WithCode(cli.ExitNotFound, err)
					} else if err != nil {
						return err
					}
				}
				list, err := b.Asides(ctx)
				if err != nil {
					return err
				}
				return a.Print(list, func(w io.Writer) { asideTable(w, list) })
			})
		})
	f.Register(c.Flags(), serversUsage, usualServers())
	c.Flags().StringVar(&again, "again", "", "offer this task to all stores anew")
	c.Flags().StringVar(&drop, "give-up", "", "remove this task from the cluster")
	return a.JSONFlag(c)
}
