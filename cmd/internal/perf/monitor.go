package perf

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/api/limits"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/daemon"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
)

// monitorNote is a line that the monitor process of a benchmark writes to its
// parent: first when it listens, then in answer to every command.
//
//	usage      processor time and memory used so far
//	allow N    the generator may deliver N scans in all
//	stop       play the stop marker; answered when it can have been seen
type monitorNote struct {
	Address   string  `json:"address,omitempty"` // as gRPC dials it
	UserS     float64 `json:"cpu_user_s"`
	SystemS   float64 `json:"cpu_system_s"`
	RSSBytes  int64   `json:"rss_bytes"`
	HeapBytes uint64  `json:"heap_bytes"`
	BegunNS   int64   `json:"begun_ns"` // wall clock of the first scan
	Scans     int64   `json:"scans"`    // delivered since
	StopS     float64 `json:"stop_s"`   // the last StopCapture, from its arrival to its answer
}

// cpu returns the processor time in s.
func (n monitorNote) cpu() float64 { return n.UserS + n.SystemS }

// benchMonitor is the second process of a benchmark: a monitor whose meter is a generator.
type benchMonitor struct {
	listen, spool, profile string
	access                 daemon.AccessFlags
	rate                   float64
	paced                  bool
	tag                    uint32

	stopNS atomic.Int64 // duration of the last StopCapture
}

// benchMonitorCmd returns the hidden command that a benchmark starts itself again with.
func benchMonitorCmd(a *cli.App) *cobra.Command {
	var b benchMonitor
	c := &cobra.Command{
		Use: "monitor", Hidden: true, Args: cobra.NoArgs,
		Short: "The monitor process of a benchmark; it ends with its standard input",
		RunE:  func(cmd *cobra.Command, _ []string) error { return b.run(cmd.Context(), a.Streams) },
	}
	f := c.Flags()
	f.StringVar(&b.listen, "listen", "", "unix:PATH or tcp:HOST:PORT")
	f.StringVar(&b.spool, "spool", "", "directory of the spool")
	f.StringVar(&b.access.Dir, "auth", "", "speak TLS and ask for tokens, as wattmark monitor does")
	f.StringVar(&b.profile, "profile", "", "write a CPU profile to this file")
	f.Float64Var(&b.rate, "rate", 10e6, "scans a second")
	f.BoolVar(&b.paced, "paced", false, "deliver at that rate; else as fast as taken")
	f.Uint32Var(&b.tag, "tag", 0, "of the markers")
	return c
}

// run serves the monitor and the parent's commands until the standard input ends.
func (b *benchMonitor) run(ctx context.Context, s cli.Streams) error {
	if b.profile != "" {
		stop, err := startProfile(b.profile)
		if err != nil {
			return err
		}
		defer stop()
	}
	network, address, _ := strings.Cut(b.listen, ":")
	l, err := net.Listen(network, address)
	if err != nil {
		return fmt.Errorf("benchmark's monitor: %w", err)
	}
	x, err := b.access.Open(slog.New(slog.DiscardHandler))
	if err != nil {
		return errors.Join(err, l.Close())
	}
	g := NewGenerator(measure.Hertz(b.rate), b.paced)
	g.tag = b.tag
	m, err := monitor.New(monitor.Config{
		Bench: monitor.Bench{Name: "generator", Instrument: g, Setup: g.Setup},
		Dir:   b.spool, Listeners: []net.Listener{l}, Version: cli.Version(),
		ServerOptions: append(x.ServerOptions(limits.New(limits.Default())), grpc.ChainUnaryInterceptor(b.clockStop)),
	})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return m.Run(ctx) })
	group.Go(func() error {
		x.Run(ctx)
		return nil
	})
	group.Go(func() error {
		defer cancel()
		return b.serve(ctx, s, g, dialName(l.Addr()))
	})
	return group.Wait()
}

// clockStop is an interceptor that records the duration of StopCapture inside the monitor.
func (b *benchMonitor) clockStop(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	begin := time.Now()
	resp, err := handle(ctx, req)
	if strings.HasSuffix(info.FullMethod, "/StopCapture") {
		b.stopNS.Store(int64(time.Since(begin)))
	}
	return resp, err
}

// dialName returns a listener's address in the form of gRPC's resolvers.
func dialName(a net.Addr) string {
	if a.Network() == "unix" {
		return "unix:" + a.String()
	}
	return a.String()
}

// serve executes the parent's commands until it closes the pipe. The parent sends one
// question at a time, but goes on to allow scans while the stop marker is played; hence
// answers have goroutines of their own.
func (b *benchMonitor) serve(ctx context.Context, s cli.Streams, g *generator, address string) error {
	out := json.NewEncoder(s.Out)
	if err := out.Encode(monitorNote{Address: address}); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	answers, ctx := errgroup.WithContext(ctx)
	for in := bufio.NewScanner(s.In); ctx.Err() == nil && in.Scan(); {
		verb, arg, _ := strings.Cut(in.Text(), " ")
		switch verb {
		case "usage":
			answers.Go(func() error { return out.Encode(b.note(g)) })
		case "allow":
			n, err := strconv.ParseInt(arg, 10, 64)
			if err != nil {
				return err
			}
			g.allow(n)
		case "stop":
			answers.Go(func() error {
				g.playStop()
				select {
				case <-g.played:
					return out.Encode(b.note(g))
				case <-ctx.Done():
					return nil
				}
			})
		default:
			return fmt.Errorf("benchmark's monitor: no such command: %q", verb)
		}
	}
	stop() // the parent has gone: cancel a pending answer
	return answers.Wait()
}

// note returns this process's usage and the generator's progress.
func (b *benchMonitor) note(g *generator) monitorNote {
	n := processUsage()
	n.StopS = time.Duration(b.stopNS.Load()).Seconds()
	n.BegunNS, n.Scans = g.begun.Load(), g.passed.Load()
	return n
}

// processUsage returns the processor time and memory that this process has used so far.
func processUsage() monitorNote {
	n := monitorNote{RSSBytes: residentBytes()}
	n.UserS, n.SystemS = cpuSeconds()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	n.HeapBytes = m.HeapAlloc
	return n
}

// startProfile writes a CPU profile to a new file until stop is called.
func startProfile(path string) (stop func(), err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { pprof.StopCPUProfile(); _ = f.Close() }, nil
}
