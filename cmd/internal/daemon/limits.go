package daemon

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/api/auth"
	"github.com/wattmark/wattmark/api/limits"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/monitor/capture"
)

// LimitFlags are the flags for the limits of connections, calls and requests of a service.
type LimitFlags struct {
	limits.Config
	request cli.Size
}

// AddTo adds the flags to fl.
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

// Guard returns the guard that enforces the limits.
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

// AddTo adds the flags to fl.
func (f *RoomFlags) AddTo(fl *pflag.FlagSet) {
	f.free = session.DefaultFree
	fl.Var(&f.quota, "spool-quota", "what the captures in the spool may take; 0 for no limit")
	fl.Var(&f.free, "spool-free",
		"what must be free on the spool's disk for a capture to begin; one that runs ends at half of it")
	fl.IntVar(&f.perHolder, "spool-captures", 256, "captures of one holder in the spool; 0 for no limit")
}

// Room returns the quota of captures.
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

// String returns the list separated by commas.
func (a *Addresses) String() string { return strings.Join(a.List, ",") }

// Type returns the type for the help text.
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
		if !slices.Contains(a.List, s) {
			a.List = append(a.List, s)
		}
	}
	return nil
}

// Append implements pflag.SliceValue.
func (a *Addresses) Append(s string) error { return a.Set(s) }

// Replace sets the list as a new default. It implements pflag.SliceValue.
func (a *Addresses) Replace(list []string) error {
	a.List, a.set = slices.Clone(list), false
	return nil
}

// GetSlice returns a copy of the list. It implements pflag.SliceValue.
func (a *Addresses) GetSlice() []string { return slices.Clone(a.List) }
