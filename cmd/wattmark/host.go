package main

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"wattmark/cmd/config"
)

// The ports that the two machines listen on unless told otherwise.
const (
	defaultMonitor = "127.0.0.1:7551"
	defaultHost    = "127.0.0.1:7552"
)

// hostFlags say where a host serves, and what it measures with.
type hostFlags struct {
	serviceFlags
	listen, socket, mode string
	monitors             addresses // the first is the one that programs are measured with
	retry, retainEvery   time.Duration
	keep                 retainFlags
	http                 webFlags
	otlp                 string
	access               accessFlags
	roles                map[string]string // of accounts, on the socket
	cluster              gateFlags
	limits               limitFlags
	room                 databaseFlags
}

const hostLong = `Serve the task database over gRPC (TaskService, health, reflection), and finish
the tasks that an interrupted run left behind: what the monitor still holds is
fetched, what it no longer holds is marked incomplete with the reason. With
--retain-older-than or --retain-keep-size old tasks are deleted now and then, as by
wattmark db retain.

Programs on this machine that use libwattmark measure through its unix socket
(HostService): monitor and database are then the host's, the GPU, its context
and its streams stay the program's. A program finds the socket by itself, or by
WATTMARK_HOST=unix:PATH; with WATTMARK_HOST=none it measures on its own. When a
program dies, its measurement is given up at once.

The benches of --monitor are shown live to those who look at this host
(BenchService): however many they are, a monitor sees one viewer, and none while
nobody looks on. Programs are measured with the first of them.

With --cluster tasks are published to a cluster (wattmark cluster), and the captures
of those that programs measure here, or that were interrupted, are released only when
the cluster has them (docs/scale.md).

With --http there is a page for the browser (docs/page.md), and the calls are served
as JSON and gRPC-Web too, with an OpenAPI file, health and metrics for Prometheus
(docs/json-api.md).

Who is let in: on this machine everybody, unless --auth names the folder of wattmark
auth init; other machines over TLS alone, with a token or a certificate
(docs/security.md). On the unix socket a task's user is the account at the other end.`

const hostExample = `  wattmark host --listen 127.0.0.1:7552
  wattmark host --socket /run/wattmark/host.sock --socket-mode 0660 --monitor meter:7551
  wattmark host --config /etc/wattmark/host.yaml
  wattmark host --monitor lab-a:7551 --monitor lab-b:7551 --http 127.0.0.1:7553
  grpcurl -plaintext 127.0.0.1:7552 wattmark.v1.TaskService/ListUsers
  wattmark host --http 127.0.0.1:7553
  curl 'http://127.0.0.1:7553/v1/tasks?name=gemm*&order=TASK_ORDER_ENERGY'`

func (a *app) hostCmd() *cobra.Command {
	var f hostFlags
	c := &cobra.Command{
		Use: "host", Short: "Serve the task database on the GPU machine, and measure for its programs", Args: cobra.NoArgs,
		Long: hostLong, Example: hostExample,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := a.serviceLog(&f.level)
			r := config.NewReloader(f.flags(cmd), log)
			var err error
			if r.File, err = f.load(cmd); err != nil {
				return err
			}
			if err := f.check(); err != nil {
				return err
			}
			return a.host(cmd.Context(), &f, r, log)
		},
	}
	f.more = append([]string{"db"}, trustFlags...)
	f.register(c.Flags())
	f.addTo(c, "host")
	return c
}

// check refuses what cannot be meant.
func (f *hostFlags) check() error {
	if f.retry <= 0 {
		return withCode(exitUsage, errors.New("--recover-every: want more than 0"))
	}
	if err := f.http.check(); err != nil {
		return err
	}
	_, err := f.keep.options(time.Now())
	return err
}

// register gives the command its flags.
func (f *hostFlags) register(fl *pflag.FlagSet) {
	fl.StringVar(&f.listen, "listen", defaultHost, "address to serve on; another one than this machine's own wants --auth")
	fl.StringVar(&f.socket, "socket", "", "unix socket to measure for programs on, or none (default $XDG_RUNTIME_DIR/wattmark/host.sock, /run/wattmark/host.sock or /tmp/wattmark-UID/host.sock)")
	fl.StringVar(&f.mode, "socket-mode", "0600", "who may use the socket: 0600 this user, 0660 its group too")
	f.monitors.list = strings.Split(firstOf(os.Getenv("WATTMARK_MONITOR"), defaultMonitor), ",")
	fl.Var(&f.monitors, "monitor", "monitor to show live, several times for several; programs are measured with the first (also WATTMARK_MONITOR)")
	fl.StringToStringVar(&f.roles, "socket-role", nil, "roles of accounts on the socket, as in ada=operator; others measure for themselves, root and this user may all")
	f.access.addTo(fl)
	f.http.addTo(fl, "also serve a page and JSON over HTTP on this address, as in 127.0.0.1:7553; empty for not")
	otlpFlag(fl, &f.otlp)
	f.cluster.addTo(fl)
	fl.DurationVar(&f.retry, "recover-every", time.Minute, "how often to look for unfinished tasks")
	f.keep.register(fl, "retain-")
	fl.DurationVar(&f.retainEvery, "retain-every", time.Hour, "how often to look for tasks that are too old")
	f.limits.addTo(fl)
	f.room.addTo(fl)
}

// reloads says what of the flags changes while the host runs, and returns how often
// to look for unfinished tasks, now and after each change.
func (f *hostFlags) reloads(r *config.Reloader, log *slog.Logger) <-chan time.Duration {
	every := make(chan time.Duration, 1)
	every <- f.retry
	r.Live["log-level"] = func() {} // the flag is the level
	r.Live["recover-every"] = func() {
		if f.retry <= 0 {
			log.Error("reload: recover_every must be more than 0: it stays as it was")
			return
		}
		select {
		case <-every: // not taken yet
		default:
		}
		every <- f.retry
	}
	return every
}
