package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/wattmark/wattmark/analysis/compare"
	"github.com/wattmark/wattmark/analysis/swings"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/api"
	"github.com/wattmark/wattmark/api/auth"
	"github.com/wattmark/wattmark/api/limits"
	"github.com/wattmark/wattmark/api/metrics"
	"github.com/wattmark/wattmark/api/reports"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/exchange"
	"github.com/wattmark/wattmark/cmd/internal/report"
	comparecmd "github.com/wattmark/wattmark/cmd/internal/study/compare"
	validatecmd "github.com/wattmark/wattmark/cmd/internal/study/validate"
	"github.com/wattmark/wattmark/hostagent/daemon"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/nvml"
	"github.com/wattmark/wattmark/hostagent/live"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/serving"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/store"
	"google.golang.org/grpc"
)

// programs measures for the programs of this machine, over the unix socket. The
// zero value, with link nil, does nothing.
type programs struct {
	listener *daemon.Listener
	monitor  *monitorclient.Client
	link     *daemon.Server
	server   *grpc.Server
	log      *slog.Logger
}

// openPrograms takes the socket and prepares the servers; the monitor need not
// answer yet. With --socket none it returns programs that do nothing. A bad mode
// or role is wrong usage.
func openPrograms(ctx context.Context, s *hostService) (*programs, error) {
	f, db := s.hostFlags, s.db
	if f.socket == "none" {
		return &programs{}, nil
	}
	mode, roles, err := f.socketAccess()
	if err != nil {
		return nil, err
	}
	path, err := filepath.Abs(db.Path())
	if err != nil {
		return nil, err
	}
	p := &programs{log: s.log}
	if p.monitor, err = cli.DialMeter(ctx, f.monitors.List[0],
		monitorclient.Options{Version: cli.Version()}); err != nil {
		return nil, err
	}
	if p.listener, err = daemon.Listen(cmp.Or(f.socket, daemon.DefaultSocket()), mode); err != nil {
		if errors.Is(err, daemon.ErrTaken) {
			err = fmt.Errorf("%w: stop it first", err)
		}
		err = fmt.Errorf("host: %w; or choose another --socket, or --socket none to measure for no programs", err)
		return nil, errors.Join(err, p.monitor.Close())
	}
	p.link = daemon.NewServer(daemon.Config{
		DB: db, Database: path, Monitor: s.gate.Monitor(p.monitor), Owner: store.Owner(), Admit: measurement.WholeGPU,
		Sensor: func(card gpu.Info) (gpu.PowerSensor, func() error, error) {
			d, err := nvml.Open(card.PCIBusID)
			if err != nil {
				return nil, nil, err // d may be a nil pointer
			}
			return d, d.Close, nil
		},
		Version: cli.Version(), Log: s.log,
	})
	// No bound on rate and open calls: a program marks as often as it likes, and may be silent for hours while it
	// computes.
	local := limits.Default()
	local.PeerRate, local.PeerCalls, local.Request = 0, 0, wire.MaxMessage
	limit := limits.New(local)
	p.server = grpc.NewServer(slices.Concat(wire.ServerOptions(),
		s.x.Peers(roles).ServerOptions(nil, limit.Tap), limit.Options())...)
	p.link.Register(p.server)
	api.New(ctx, db, api.Options{}).Register(p.server)
	return p, nil
}

// socketAccess parses --socket-mode and --socket-role; accounts not listed are measurers.
func (f *hostFlags) socketAccess() (fs.FileMode, map[string]auth.Role, error) {
	mode, err := strconv.ParseUint(f.mode, 8, 32)
	if err != nil || mode != 0o600 && mode != 0o660 {
		return 0, nil, cli.Usagef("--socket-mode %s: want 0600 for this user alone, or 0660 for its group too", f.mode)
	}
	roles := map[string]auth.Role{}
	for name, word := range f.roles {
		if roles[name], err = auth.ParseRole(word); err != nil {
			return 0, nil, cli.Usagef("--socket-role %s=%s: %w", name, word, err)
		}
	}
	return fs.FileMode(mode), roles, nil
}

// serve serves the socket until ctx ends, then abandons the measurements under way
// and informs their programs within 20 s.
func (p *programs) serve(ctx context.Context) error {
	if p.link == nil {
		return nil
	}
	p.log.Info("measuring for programs", "socket", p.listener.Path(), "monitor", p.monitor.Address())
	done := make(chan error, 1)
	go func() { done <- p.server.Serve(p.listener) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	// ctx has ended; the goodbye needs a context of its own.
	bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	err := p.link.Close(bye)
	stopServer(p.server)
	return errors.Join(err, <-done)
}

// close releases the socket and the monitor's connection.
func (p *programs) close() error {
	if p.link == nil {
		return nil
	}
	p.server.Stop()
	return errors.Join(p.listener.Close(), p.monitor.Close())
}

// notOurs is a store whose Unfinished leaves out the tasks that programs are being measured
// for by link: recovery must not finish them.
type notOurs struct {
	*store.DB
	link *daemon.Server // nil: no task is left out
}

func (n notOurs) Unfinished(ctx context.Context) ([]store.Row, error) {
	all, err := n.DB.Unfinished(ctx)
	if n.link == nil || err != nil {
		return all, err
	}
	return slices.DeleteFunc(all, func(t store.Row) bool { return n.link.Owns(t.ID) }), nil
}

// monitors relays the benches of --monitor to the viewers of this host, with one
// connection each.
type monitors struct {
	relay   *live.Relay
	clients []*monitorclient.Client
}

// watchPower passes the averages of all benches to see, until ctx ends.
func (m *monitors) watchPower(ctx context.Context, idle bool, see func(metrics.Bench, session.Moment)) error {
	return m.relay.Watch(ctx, "", live.Options{Every: metrics.PowerEvery, Idle: idle}, named(see))
}

// named returns a viewer that passes moments to see with their bench. Those that come before the monitor has
// answered what its bench is are left out: under its address the bench would be counted twice.
func named(see func(metrics.Bench, session.Moment)) func(live.News) error {
	benches := map[string]metrics.Bench{} // by address
	return func(n live.News) error {
		if s := n.State; s != nil && s.Bench.Instrument.Kind != "" {
			benches[n.Address] = metrics.Bench{Name: cmp.Or(s.Bench.Name, n.Address), GPU: s.Bench.GPU}
		}
		if b, ok := benches[n.Address]; ok && n.Moment != nil {
			see(b, n.Moment.Moment)
		}
		return nil
	}
}

// OpenMonitors prepares to relay the monitors at the addresses; none needs to
// answer. r may be nil. A malformed address is wrong usage.
func OpenMonitors(ctx context.Context, db *store.DB, list []string, r *measurement.Recorder) (*monitors, error) {
	m := &monitors{}
	cfg := live.Config{TaskOf: db.TaskOfCapture}
	if r != nil {
		cfg.Recorder = recorder{r}
	}
	for _, address := range list {
		// A silent monitor is waited for no longer than 5 s.
		c, err := cli.DialMeter(ctx, address, monitorclient.Options{Version: cli.Version(), Call: 5 * time.Second})
		if err != nil {
			return nil, errors.Join(cli.Usagef("--monitor: %w", err), m.Close())
		}
		m.clients = append(m.clients, c)
		cfg.Monitors = append(cfg.Monitors, c)
	}
	m.relay = live.New(cfg)
	return m, nil
}

// recorder records benches as tasks of the caller, or of this process's account where callers are not identified.
type recorder struct{ *measurement.Recorder }

func (r recorder) Start(ctx context.Context, address, name string) (store.TaskID, error) {
	who, known := auth.From(ctx)
	if account, err := user.Current(); !known && err == nil {
		who.Name = account.Username
	}
	id, err := r.Recorder.Start(ctx, address, name, who.Name)
	return id, refused(err)
}

func (r recorder) Stop(ctx context.Context, address string) (store.TaskID, error) {
	id, err := r.Recorder.Stop(ctx, address)
	return id, refused(err)
}

// refused marks the errors that only say what a bench is doing, or that it is away.
func refused(err error) error {
	for _, e := range []error{measurement.ErrRecording, measurement.ErrNotRecording, monitorclient.ErrBusy, monitorclient.ErrUnreachable} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", live.ErrRefused, err)
		}
	}
	return err
}

func (m *monitors) Register(server *grpc.Server) { m.relay.Register(server) }

func (m *monitors) Close() error {
	return errors.Join(lists.Map(m.clients, (*monitorclient.Client).Close)...)
}

// OpenReports returns the ReportService over a database. A task's validation is
// the one that wattmark validate would make with default flags.
func OpenReports(ctx context.Context, a *cli.App, db *store.DB) *reports.Service {
	return reports.New(ctx, reports.Config{
		DB: db, ValidationKind: validatecmd.ValidationKind,
		Subject: func(ctx context.Context, id store.TaskID) (validate.Subject, error) {
			flags := &validatecmd.ValidateFlags{}
			for out, err := range validatecmd.TaskSubjects(a, ctx, db, []store.TaskID{id}, flags) {
				return out, err
			}
			return validate.Subject{}, nil
		},
		Compare: func(ctx context.Context, a, b []store.TaskID, work []string) ([]byte, error) {
			r, err := comparecmd.Stored(ctx, db, a, b, work)
			return answer(r, err)
		},
		Swings: func(ctx context.Context, id store.TaskID, step string) ([]byte, error) {
			t, err := db.Task(ctx, id)
			if err != nil {
				return nil, err
			}
			r, err := report.Swings(ctx, db, &t, step, func(int) {})
			return answer(r, err)
		},
	})
}

// answer returns what was found as JSON; errors that are the asker's are marked.
func answer(found any, err error) ([]byte, error) {
	if err == nil {
		return json.Marshal(found)
	}
	code := cli.ExitCode(err)
	if code == cli.ExitUsage || code == cli.ExitIncomplete || errors.Is(err, compare.ErrRuns) || errors.Is(err, swings.ErrShort) {
		err = fmt.Errorf("%w: %w", reports.ErrRequest, err)
	}
	return nil, err
}

// works returns what the task service calls beside the database: the commands trim and export, and
// the energy by the GPU's own sensor.
func works(db *store.DB) api.Works {
	return api.Works{
		Trim: func(ctx context.Context, id store.TaskID, w measure.Window) error {
			// The energies by kernel follow from the window.
			if err := measurement.Retrim(ctx, db, id, w); err != nil {
				return err
			}
			return report.ShareAgain(ctx, db, id)
		},
		Export: func(ctx context.Context, w io.Writer, t *store.Task, format string, span measure.Window) error {
			err := exchange.Stream(ctx, w, db, t, format, span)
			if cli.ExitCode(err) == cli.ExitUsage {
				err = fmt.Errorf("%w: %w", api.ErrRequest, err)
			}
			return err
		},
		Formats: exchange.Streamed,
		Sensed: func(ctx context.Context, t *store.Task, w measure.Window) (*measure.Joule, string, error) {
			return measurement.Sensed(ctx, db, t, w)
		},
		AddWindows: func(ctx context.Context, id store.TaskID, w []serving.Window) error {
			return measurement.AddWindows(ctx, db, id, measurement.ServedWindows{Windows: w})
		},
		Windows: func(ctx context.Context, id store.TaskID) ([]serving.Window, int, []string, error) {
			w, err := measurement.Windows(ctx, db, id)
			if w == nil {
				return nil, 0, nil, err
			}
			if errors.Is(err, measurement.ErrNoShares) {
				w.Notes, err = append(w.Notes, err.Error()), nil
			}
			return w.Windows, w.Result, w.Notes, err
		},
	}
}
