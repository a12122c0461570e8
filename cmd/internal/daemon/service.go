// Package daemon holds the parts that all services share.
//
//	ServiceFlags  configuration file, log level          Notifier    systemd: READY, watchdog
//	AccessFlags → Access  TLS, authentication, audit     OnHangups   reload by SIGHUP
//	LimitFlags  → limits.Guard  connections and calls    Calm        rate limit of a log
//	RoomFlags   → capture.Quota  disk space of a spool   Self        health check of itself
//
// Flags types have AddTo, which adds them to a command, and a method that opens the thing.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/api/auth"
	"github.com/wattmark/wattmark/api/limits"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/cmd/config"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/monitor/capture"
	"github.com/wattmark/wattmark/store"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"
)

// ServiceLog returns a logger to standard error; under systemd without the time, which the
// journal adds.
func ServiceLog(a *cli.App, level *slog.LevelVar) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if os.Getenv("JOURNAL_STREAM") != "" {
		o.ReplaceAttr = func(groups []string, x slog.Attr) slog.Attr {
			if len(groups) == 0 && x.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return x
		}
	}
	return slog.New(slog.NewTextHandler(cli.Raw(a.Err), o))
}

// OnHangups calls f on each SIGHUP and blocks until ctx ends. It registers SIGHUP as a reload
// with cli.UntilAsked's context. An ignored SIGHUP, as under nohup, stays ignored.
func OnHangups(ctx context.Context, f func()) {
	h, ok := ctx.Value(cli.HangupsKey{}).(*cli.Hangups)
	if ok && signal.Ignored(syscall.SIGHUP) {
		<-ctx.Done()
		return
	}
	if ok {
		h.Reload.Store(true)
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	defer signal.Stop(c)
	for {
		select {
		case <-ctx.Done():
			return
		case <-c:
			f()
		}
	}
}

// OnSecond waits for ctx to end, and calls f on the next SIGINT or SIGTERM. It blocks until
// then or until over ends.
func OnSecond(ctx, over context.Context, f func()) {
	select {
	case <-ctx.Done():
	case <-over.Done():
		return
	}
	again, stop := signal.NotifyContext(over, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if <-again.Done(); over.Err() == nil {
		f()
	}
}

// Self is a listener for connections of a service to itself: with the same server and
// handshake as at its address, but not subject to the load and limits there.
type Self struct {
	*bufconn.Listener
	x *Access
}

// NewSelf returns the listener; the service serves it next to its address.
func NewSelf(x *Access) *Self { return &Self{bufconn.Listen(PipeSize), x} }

// Answers calls the service's health check; nil if it answers.
func (s *Self) Answers(ctx context.Context) error {
	secured := cli.Plainly()
	if s.x.Server != nil {
		secured = grpc.WithTransportCredentials(credentials.NewTLS(s.x.Server.Itself()))
	}
	_, err := AskVersion(ctx, "passthrough:///self", "", secured,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.DialContext(ctx) }))
	return err
}

// AskVersion calls the health check of a service by name, empty for the whole server, and
// returns the program version in the response's header. more may override the credentials,
// which are none.
func AskVersion(ctx context.Context, address, service string, more ...grpc.DialOption) (string, error) {
	conn, err := grpc.NewClient(address, append([]grpc.DialOption{cli.Plainly()}, more...)...)
	if err != nil {
		return "", err
	}
	var head metadata.MD
	_, err = grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service},
		grpc.Header(&head))
	return strings.Join(head.Get(wire.VersionHeader), " "), errors.Join(err, conn.Close())
}

// ServiceFlags are the flags that all services have.
type ServiceFlags struct {
	config string
	Level  slog.LevelVar
	// More are the names of global flags that the configuration file may also set.
	More []string
	// fallback is the configuration file without --config, if it exists.
	fallback string
}

// ConfigDir is the folder of an installation's configuration files.
const ConfigDir = "/etc/wattmark/"

// AddTo adds the flags to a command; the default configuration file is ConfigDir/name.yaml.
func (s *ServiceFlags) AddTo(c *cobra.Command, name string) {
	s.fallback = ConfigDir + name + ".yaml"
	c.Flags().StringVar(&s.config, "config", "",
		"configuration file, whose keys are these flags, or none (default: "+s.fallback+", where it is there)")
	c.Flags().TextVar(&s.Level, "log-level", &s.Level, "least of what is logged: debug, info, warn, error")
}

// Command returns the command of a service. It reads the configuration file and calls run,
// which blocks while the service runs, with the logger and the reloader of the flags.
func (s *ServiceFlags) Command(a *cli.App, use, short string,
	run func(context.Context, *config.Reloader, *slog.Logger) error,
) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			log := ServiceLog(a, &s.Level)
			r := config.NewReloader(s.Flags(cmd), log)
			if r.File, err = s.Load(cmd); err != nil {
				return err
			}
			if r.File != nil {
				log.Info("configuration", "file", r.File.Name(), "keys", r.File.Len())
			}
			err = run(cmd.Context(), r, log)
			if err != nil && r.File != nil && s.config == "" {
				err = fmt.Errorf("%w\nSettings of %s count, too: --config none leaves them out", err, s.fallback)
			}
			if asked, ok := context.Cause(cmd.Context()).(cli.Asked); ok {
				log.Info("ended", "signal", asked.Name())
			}
			return err
		},
	}
}

// Flags returns the flags that the configuration file may set: the command's own and More.
func (s *ServiceFlags) Flags(c *cobra.Command) *pflag.FlagSet {
	set := pflag.NewFlagSet(c.Name(), pflag.ContinueOnError)
	set.AddFlagSet(c.LocalFlags())
	for _, name := range s.More {
		set.AddFlag(c.Flags().Lookup(name))
	}
	return set
}

// Load reads the configuration file and sets the flags that the command line does not. It
// returns nil without an error if there is no file, or none is asked for; errors of the file are usage errors.
func (s *ServiceFlags) Load(c *cobra.Command) (*config.File, error) {
	name := s.config
	switch name {
	case "none", os.DevNull:
		return nil, nil
	case "":
		if _, err := os.Stat(s.fallback); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		name = s.fallback
	}
	flags := s.Flags(c)
	file, err := config.Read(name, flags)
	if err == nil {
		err = file.Apply(flags)
	}
	return file, cli.WithCode(cli.ExitUsage, err)
}

// Notifier sends a service's state to the service manager: sd_notify(3), a datagram to the
// socket of NOTIFY_SOCKET. Without that variable it does nothing.
type Notifier struct {
	socket string
	every  time.Duration // between signs of life: half of WATCHDOG_USEC; 0 for none
	log    *slog.Logger
}

// NewNotifier reads the variables of the service manager and removes them from the
// environment: child processes must not inherit them.
func NewNotifier(log *slog.Logger) *Notifier {
	n := &Notifier{socket: os.Getenv("NOTIFY_SOCKET"), log: log}
	usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if pid := os.Getenv("WATCHDOG_PID"); err == nil && usec > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		n.every = time.Duration(usec) * time.Microsecond / 2
	}
	for _, v := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		_ = os.Unsetenv(v)
	}
	return n
}

// Tell sends a state: READY=1, STOPPING=1, STATUS=… A failure is logged as a warning.
func (n *Notifier) Tell(state string) {
	if n.socket == "" {
		return
	}
	// net writes the leading @ of an abstract address as the zero byte that it stands for.
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err == nil {
		_, err = c.Write([]byte(state))
		_ = c.Close()
	}
	if err != nil {
		n.log.Warn("the service manager cannot be told", "state", state, "error", err)
	}
}

// Watchdog calls alive at the interval of the service manager's watchdog and sends a sign of
// life if it returns nil in time. It blocks until ctx ends; without a watchdog it returns.
func (n *Notifier) Watchdog(ctx context.Context, alive func(context.Context) error) {
	if n.socket == "" || n.every <= 0 {
		return
	}
	for range backoff.Every(ctx.Done(), n.every) {
		check, cancel := context.WithTimeout(ctx, n.every)
		err := alive(check)
		cancel()
		if err == nil {
			n.Tell("WATCHDOG=1")
		} else if ctx.Err() == nil {
			n.log.Error("this service does not answer itself", "error", err)
		}
	}
}

// recordsPerSecond is the limit of Calm.
const recordsPerSecond = 5

// Calm returns a logger that passes at most five records a second to log, so that repeated
// malformed connections cannot fill the disk. The next record that passes has the number of
// records dropped as lines_left_out.
func Calm(log *slog.Logger) *slog.Logger {
	return slog.New(rateLimited{log.Handler(), rate.NewLimiter(recordsPerSecond, recordsPerSecond), new(atomic.Int64)})
}

// rateLimited is the handler of Calm. Those derived from it share its limit and its count.
type rateLimited struct {
	slog.Handler
	limit   *rate.Limiter
	dropped *atomic.Int64 // records since the last one that passed
}

func (h rateLimited) Handle(ctx context.Context, r slog.Record) error {
	if !h.limit.AllowN(r.Time, 1) {
		h.dropped.Add(1)
		return nil
	}
	if n := h.dropped.Swap(0); n > 0 {
		r.AddAttrs(slog.Int64("lines_left_out", n))
	}
	return h.Handler.Handle(ctx, r)
}

func (h rateLimited) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

func (h rateLimited) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}

// PipeSize is the buffer between the JSON gateway and the gRPC server, in bytes.
const PipeSize = 256 << 10

// SweepPartial deletes the parts of tasks whose import was interrupted, and logs a damaged
// write-ahead log of the database.
func SweepPartial(ctx context.Context, db *store.DB, log *slog.Logger) error {
	if loss := db.LogLoss(); loss != "" {
		log.Warn("the database's write-ahead log was damaged while no program had it open: wattmark db check says more",
			"loss", loss)
	}
	n, err := db.Sweep(ctx)
	if n > 0 {
		log.Info("deleted what interrupted imports left", "tasks", n)
	}
	return err
}

// LimitFlags are the flags for the limits of connections, calls and requests of a service.
type LimitFlags struct {
	limits.Config
	request cli.Size
}

func (f *LimitFlags) AddTo(fl *pflag.FlagSet) {
	d := limits.Default()
	f.request = cli.Size(d.Request)
	fl.IntVar(&f.Connections, "limit-connections", d.Connections,
		"connections from other machines at once; 0 for no limit, as with all of these")
	fl.IntVar(&f.Strangers, "limit-strangers", d.Strangers, "connections that made no call yet that was let in, half "+
		"of them of one address or account; the oldest makes room")
	fl.IntVar(&f.PeerConnections, "limit-peer-connections", d.PeerConnections,
		"connections of one user, address or account of this machine at once")
	fl.IntVar(&f.PeerCalls, "limit-peer-calls", d.PeerCalls, "calls of one of these that are open at once")
	fl.Float64Var(&f.PeerRate, "limit-peer-rate", d.PeerRate, "calls a second of one of these in the long run")
	fl.IntVar(&f.PeerBurst, "limit-peer-burst", d.PeerBurst, "calls of one of these that may come at once")
	fl.Uint32Var(&f.Streams, "limit-streams", d.Streams, "calls open on one connection; more wait in the client")
	fl.Var(&f.request, "limit-request", "size of a request")
	fl.DurationVar(&f.Handshake, "limit-handshake", d.Handshake,
		"how long a new connection may take to its first call that is let in")
	fl.DurationVar(&f.RequestTime, "limit-request-time", d.RequestTime, "how long a request may take to arrive")
	fl.DurationVar(&f.Stall, "limit-stall", d.Stall, "how long a stream's reader may take nothing")
	fl.DurationVar(&f.Idle, "limit-idle", d.Idle, "how long a connection may have no call")
	fl.DurationVar(&f.Age, "limit-age", d.Age, "how old a connection may grow; it ends with its calls")
}

func (f *LimitFlags) Guard() (*limits.Guard, error) {
	f.Request = int(f.request)
	if err := f.Check(); err != nil {
		return nil, cli.WithCode(cli.ExitUsage, err)
	}
	// Calls count against the user if callers are authenticated, else against their origin: address or account.
	f.Peer = func(ctx context.Context) (name string, stranger bool) {
		if who, asked := auth.From(ctx); asked {
			return limits.Named(who.Name, limits.Origin(ctx))
		}
		return limits.Origin(ctx), false
	}
	return limits.New(f.Config), nil
}

// RoomFlags are the flags for the disk space of a monitor's spool.
type RoomFlags struct {
	quota, free cli.Size
	perHolder   int
}

func (f *RoomFlags) AddTo(fl *pflag.FlagSet) {
	f.free = session.DefaultFree
	fl.Var(&f.quota, "spool-quota", "what the captures in the spool may take; 0 for no limit")
	fl.Var(&f.free, "spool-free",
		"what must be free on the spool's disk for a capture to begin; one that runs ends at half of it")
	fl.IntVar(&f.perHolder, "spool-captures", 256, "captures of one holder in the spool; 0 for no limit")
}

func (f *RoomFlags) Room() capture.Quota {
	return capture.Quota{Bytes: int64(f.quota), Free: int64(f.free), PerHolder: f.perHolder}
}

// Addresses is the pflag.Value of a list of addresses: the flag may be repeated, or have
// several values separated by commas. The first value given replaces the default.
type Addresses struct {
	List []string
	set  bool // List is no longer the default
}

var _ pflag.SliceValue = (*Addresses)(nil)

func (a *Addresses) String() string { return strings.Join(a.List, ",") }

func (a *Addresses) Type() string { return "list of addresses" }

// Set adds addresses, except those already in the list. An empty one is an error.
func (a *Addresses) Set(text string) error {
	var add []string
	for s := range strings.SplitSeq(text, ",") {
		if s = strings.TrimSpace(s); s == "" {
			return errors.New("an address is empty")
		}
		add = append(add, s)
	}
	if !a.set {
		a.List, a.set = nil, true
	}
	for _, s := range add {
		a.List = lists.AddNew(a.List, s)
	}
	return nil
}

func (a *Addresses) Append(s string) error { return a.Set(s) }

// Replace sets the list as a new default.
func (a *Addresses) Replace(list []string) error {
	a.List, a.set = slices.Clone(list), false
	return nil
}

func (a *Addresses) GetSlice() []string { return slices.Clone(a.List) }
