package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc"

	"wattmark/api"
	"wattmark/api/auth"
	"wattmark/api/limits"
	"wattmark/api/wire"
	"wattmark/hostagent"
	"wattmark/hostagent/gpus"
	"wattmark/hostagent/hostlink"
	"wattmark/hostagent/hostsocket"
	"wattmark/hostagent/measurement"
	"wattmark/hostagent/monitorclient"
	"wattmark/hostagent/nvml"
	"wattmark/store"
)

// noSocket, as a socket's path, is a host that measures for nobody.
const noSocket = "none"

// goodbye is how long the programs that are being measured may take to be told of
// the host's end.
const goodbye = 20 * time.Second

// programs is the part of a host that measures for the programs of its machine;
// nothing but a name where that is not asked for.
type programs struct {
	listener *hostsocket.Listener
	monitor  *monitorclient.Client
	link     *hostlink.Server
	server   *grpc.Server
	log      *slog.Logger
}

// openPrograms takes the socket, and prepares all that needs no answer of others.
func (a *app) openPrograms(ctx context.Context, db *store.DB, f *hostFlags, x *access, gate *gate, traces *tracing, log *slog.Logger) (*programs, error) {
	if f.socket == noSocket {
		return &programs{}, nil
	}
	mode, err := strconv.ParseUint(f.mode, 8, 32)
	if err != nil || mode != 0o600 && mode != 0o660 {
		return nil, withCode(exitUsage, fmt.Errorf("--socket-mode %s: want 0600 for this user alone, or 0660 for its group too", f.mode))
	}
	roles, err := parseRoles(f.roles)
	if err != nil {
		return nil, withCode(exitUsage, err)
	}
	path, err := filepath.Abs(db.Path())
	if err != nil {
		return nil, err
	}
	p := &programs{log: log}
	if p.monitor, err = dialMeter(ctx, f.monitors.list[0], monitorclient.Options{Version: version(), Dial: traces.dial()}); err != nil {
		return nil, err
	}
	if p.listener, err = hostsocket.Listen(firstOf(f.socket, hostsocket.Default()), fs.FileMode(mode)); err != nil {
		if errors.Is(err, hostsocket.ErrTaken) {
			err = fmt.Errorf("%w: stop it first", err)
		}
		return nil, errors.Join(fmt.Errorf("host: %w; or choose another --socket, or --socket none to measure for no programs", err), p.monitor.Close())
	}
	p.link = hostlink.NewServer(hostlink.Config{
		DB: db, Database: path, Monitor: gate.monitor(p.monitor), Owner: store.Owner(), Admit: gpus.Whole, Sensor: sensorOf, Version: version(), Log: log,
	})
	limit := programLimits()
	p.server = grpc.NewServer(slices.Concat(wire.ServerOptions(), traces.server(), x.peers(roles).ServerOptions(nil, limit.Tap), limit.Options())...)
	p.link.Register(p.server)
	api.Register(p.server, db)
	return p, nil
}

// parseRoles reads which accounts have another role than measurer on the socket.
func parseRoles(said map[string]string) (map[string]auth.Role, error) {
	out := map[string]auth.Role{}
	for name, word := range said {
		role, err := auth.ParseRole(word)
		if err != nil {
			return nil, fmt.Errorf("--socket-role %s=%s: %w", name, word, err)
		}
		out[name] = role
	}
	return out, nil
}

// programLimits are for the programs of this machine that may use the socket: they
// mark as often as they like, and one that computes for hours says nothing meanwhile.
func programLimits() *limits.Guard {
	c := limits.Default()
	c.PeerRate, c.PeerCalls, c.Request = 0, 0, wire.MaxMessage
	return limits.New(c)
}

// sensorOf opens the own sensor of a program's GPU.
func sensorOf(gpu hostagent.Info) (hostagent.PowerSensor, func() error, error) {
	d, err := nvml.Open(gpu.PCIBusID)
	if err != nil {
		return nil, nil, err
	}
	return d, d.Close, nil
}

// serve serves until the context ends, and gives up then what is being measured.
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
	bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer cancel()
	err := p.link.Close(bye)
	stopServer(p.server)
	return errors.Join(err, <-done)
}

// close gives the socket back.
func (p *programs) close() error {
	if p.link == nil {
		return nil
	}
	p.server.Stop()
	return errors.Join(p.listener.Close(), p.monitor.Close())
}

// others are the tasks that programs are not being measured for right now.
func (p *programs) others(db *store.DB) measurement.Store { return notOurs{db, p.link} }

// notOurs is a database as it looks to those who finish what others left.
type notOurs struct {
	*store.DB
	link *hostlink.Server // nil for none
}

func (n notOurs) Unfinished(ctx context.Context) ([]store.Row, error) {
	all, err := n.DB.Unfinished(ctx)
	if n.link == nil || err != nil {
		return all, err
	}
	return slices.DeleteFunc(all, func(t store.Row) bool { return n.link.Owns(t.ID) }), nil
}
