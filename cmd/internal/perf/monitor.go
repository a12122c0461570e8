package perf

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/api/auth"
	"github.com/wattmark/wattmark/api/auth/pki"
	"github.com/wattmark/wattmark/api/limits"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/daemon"
	"github.com/wattmark/wattmark/cmd/internal/service"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
)

// overTLS is the transport with TLS and a token.
const overTLS = "tls"

// markerTag is the tag of all markers.
const markerTag = 0x5a

// monitorNote is a line that the monitor process of a benchmark writes to its
// parent: first when it listens, then in answer to every command but allow.
//
//	usage      processor time and memory used so far
//	allow N    the generator may deliver N scans in all
//	stop       play the stop marker; answered when it can have been seen
type monitorNote struct {
	Address   string  `json:"address,omitempty"` // as gRPC dials it
	CPUS      float64 `json:"cpu_s"`
	RSSBytes  int64   `json:"rss_bytes"`
	HeapBytes uint64  `json:"heap_bytes"`
	BegunNS   int64   `json:"begun_ns"` // wall clock of the first scan
	Scans     int64   `json:"scans"`    // delivered since
	StopS     float64 `json:"stop_s"`   // the last StopCapture, from its arrival to its answer
}

// monitorProcess is the parent's handle of the benchmark's monitor, a process of its own.
// Its methods are safe for concurrent use.
type monitorProcess struct {
	client *monitorclient.Client
	cmd    *exec.Cmd

	// asking is held from a command to its answer; commands without an answer may be sent
	// meanwhile. writing is held for one line.
	asking  sync.Mutex
	writing sync.Mutex
	in      io.WriteCloser
	out     *json.Decoder
}

// monitorOptions configure the monitor process: spool and socket are in dir, rate is in scans/s.
type monitorOptions struct {
	benchFlagsShared
	rate  float64
	paced bool
}

// startBenchMonitor starts this program again as a monitor with a generator, and connects
// to it. The caller must call stop.
func startBenchMonitor(ctx context.Context, o monitorOptions, stderr io.Writer) (*monitorProcess, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start the monitor process: %w", err)
	}
	listen := "tcp:127.0.0.1:0"
	if o.transport == "unix" {
		listen = "unix:" + filepath.Join(o.dir, "m.sock")
	}
	args := []string{
		"bench", "monitor", "--listen", listen, "--spool", filepath.Join(o.dir, "spool"), fmt.Sprint("--rate=", o.rate),
		fmt.Sprint("--tag=", markerTag), fmt.Sprint("--paced=", o.paced),
	}
	var known auth.Client
	if o.transport == overTLS {
		lab := filepath.Join(o.dir, "auth")
		if known, err = benchLab(lab); err != nil {
			return nil, err
		}
		args = append(args, "--auth", lab)
	}
	if o.profile != "" {
		args = append(args, "--cpu-profile", o.profile+".monitor")
	}
	p := &monitorProcess{cmd: exec.CommandContext(ctx, exe, args...)}
	p.cmd.Stderr, p.cmd.WaitDelay = stderr, 5*time.Second
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = json.NewDecoder(out)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the monitor process: %w", err)
	}
	if err := p.connect(known); err != nil {
		return nil, errors.Join(fmt.Errorf("start the monitor process: %w", err), p.stop())
	}
	return p, nil
}

// connect reads the monitor's first line, its address, and dials it.
func (p *monitorProcess) connect(known auth.Client) error {
	var n monitorNote
	if err := p.out.Decode(&n); err != nil {
		return err
	}
	o, err := known.DialOptions(n.Address)
	if err == nil {
		p.client, err = monitorclient.Dial(n.Address, monitorclient.Options{Version: cli.Version(), Dial: o})
	}
	return err
}

// begin starts a capture, with the markers that fit the bench.
func (p *monitorProcess) begin(ctx context.Context) (id string, spec marker.Spec, err error) {
	bench, err := p.client.GetBench(ctx)
	if err != nil {
		return "", spec, err
	}
	spec = marker.ProfileFor(bench.Setup, markerTag)
	_, holder := cli.Whoami()
	started, err := p.client.Start(ctx, session.Request{Holder: holder, TaskName: "bench", Marker: spec})
	return started.CaptureID, spec, err
}

func (p *monitorProcess) stop() (err error) {
	if p.client != nil {
		err = p.client.Close()
	}
	p.in.Close() // its end is the signal
	if ended := p.cmd.Wait(); ended != nil {
		err = errors.Join(err, fmt.Errorf("monitor process: %w", ended))
	}
	return err
}

// ask sends a command and returns the answer. It blocks while another command is answered.
func (p *monitorProcess) ask(verb string) (n monitorNote, err error) {
	p.asking.Lock()
	defer p.asking.Unlock()
	if err = p.send(verb); err == nil {
		err = p.out.Decode(&n)
	}
	if err != nil {
		return n, fmt.Errorf("monitor process: %s: %w", verb, err)
	}
	return n, nil
}

// send writes a command and does not wait for an answer.
func (p *monitorProcess) send(line string) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	_, err := fmt.Fprintln(p.in, line)
	return err
}

// benchLab creates a CA, a server certificate and a token in dir, for the TLS transport,
// and returns the client's part of them.
func benchLab(dir string) (auth.Client, error) {
	now := time.Now()
	ca, err := pki.NewCA(dir, now)
	if err != nil {
		return auth.Client{}, err
	}
	p, err := ca.Server([]string{"localhost"}, now, time.Hour)
	if err != nil {
		return auth.Client{}, err
	}
	f := service.AuthFlags{Dir: dir, Life: service.Days(time.Hour)}
	text, err := f.AddToken("bench", auth.Measurer, now, "")
	return auth.Client{CA: filepath.Join(dir, pki.CACert), Token: text}, errors.Join(err,
		auth.WriteNew(filepath.Join(dir, pki.ServerKey), p.Key, 0o600),
		auth.WriteNew(filepath.Join(dir, pki.ServerCert), p.Cert, 0o644))
}

// benchMonitor is the second process of a benchmark: a monitor whose meter is a generator.
type benchMonitor struct {
	listen, spool, profile string
	access                 daemon.AccessFlags
	rate                   float64
	paced                  bool
	tag                    uint32

	g      *generator
	stopNS atomic.Int64 // duration of the last StopCapture
}

// benchMonitorCmd returns the hidden command that a benchmark starts itself again with.
func benchMonitorCmd(a *cli.App) *cobra.Command {
	var b benchMonitor
	c := cli.Command("monitor", "The monitor process of a benchmark; it ends with its standard input", cobra.NoArgs,
		func(ctx context.Context, _ []string) error { return b.run(ctx, a.Streams) })
	c.Hidden = true
	f := c.Flags()
	f.StringVar(&b.listen, "listen", "", "unix:PATH or tcp:HOST:PORT")
	f.StringVar(&b.spool, "spool", "", "directory of the spool")
	f.StringVar(&b.access.Dir, "auth", "", "speak TLS and ask for tokens, as wattmark monitor does")
	f.StringVar(&b.profile, "cpu-profile", "", "write a CPU profile to this file")
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
	b.g = NewGenerator(measure.Hertz(b.rate), b.paced)
	b.g.tag = b.tag
	m, err := monitor.New(monitor.Config{
		Bench: monitor.Bench{Name: "generator", Instrument: b.g, Setup: b.g.Setup},
		Dir:   b.spool, Listeners: []net.Listener{l}, Version: cli.Version(),
		ServerOptions: append(x.ServerOptions(limits.New(limits.Default())), grpc.ChainUnaryInterceptor(b.clockStop)),
	})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	dial := l.Addr().String() // in the form of gRPC's resolvers
	if network == "unix" {
		dial = "unix:" + dial
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
		return b.serve(ctx, s, dial)
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

// serve executes the parent's commands until it closes the pipe. The parent sends one
// question at a time, but goes on to allow scans while the stop marker is played; hence
// answers have goroutines of their own.
func (b *benchMonitor) serve(ctx context.Context, s cli.Streams, address string) error {
	out := json.NewEncoder(s.Out)
	if err := out.Encode(monitorNote{Address: address}); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	answers, ctx := errgroup.WithContext(ctx)
	answer := func() error {
		n := processUsage()
		n.StopS, n.BegunNS, n.Scans = time.Duration(b.stopNS.Load()).Seconds(), b.g.begun.Load(), b.g.passed.Load()
		return out.Encode(n)
	}
	for in := bufio.NewScanner(s.In); ctx.Err() == nil && in.Scan(); {
		verb, arg, _ := strings.Cut(in.Text(), " ")
		switch verb {
		case "usage":
			answers.Go(answer)
		case "allow":
			n, err := strconv.ParseInt(arg, 10, 64)
			if err != nil {
				return err
			}
			b.g.allow(n)
		case "stop":
			answers.Go(func() error {
				b.g.asked.Store(true)
				select {
				case <-b.g.played:
					return answer()
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

// processUsage returns the processor time that this process has used so far, of its own and of
// the system for it (getrusage), and its memory.
func processUsage() monitorNote {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	var size, resident int64 // in pages
	b, _ := os.ReadFile("/proc/self/statm")
	_, _ = fmt.Sscan(string(b), &size, &resident)
	var r unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &r) // fails only for bad arguments
	cpu := float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9
	return monitorNote{CPUS: cpu, RSSBytes: resident * int64(os.Getpagesize()), HeapBytes: m.HeapAlloc}
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
