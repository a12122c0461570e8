package main

import (
	"context"
	"fmt"

	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"

	"wattmark/api/auth"
	"wattmark/api/limits"
	"wattmark/monitor/capture"
	"wattmark/store"
)

// size is a flag for bytes, as people write them.
type size int64

// String is in units of 1000, as all sizes that are shown, but for what was clearly
// counted in the others.
func (s *size) String() string {
	switch n := int64(*s); {
	case n == 0:
		return "0"
	case n%(1<<20) == 0:
		return humanize.IBytes(uint64(n))
	default:
		return sizeText(n)
	}
}
func (s *size) Type() string { return "size" }

func (s *size) Set(text string) error {
	n, err := humanize.ParseBytes(text)
	if err != nil || n > 1<<60 {
		return fmt.Errorf("%q is not a size: write 50GB, 500MiB or 0", text)
	}
	*s = size(n)
	return nil
}

// sizeText writes an amount of bytes for a person.
func sizeText[N int64 | uint64 | float64](n N) string { return humanize.Bytes(uint64(max(n, 0))) }

// limitFlags say what one peer of a service may take.
type limitFlags struct {
	limits.Config
	request size
}

// addTo gives a service the flags.
func (f *limitFlags) addTo(fl *pflag.FlagSet) {
	d := limits.Default()
	f.request = size(d.Request)
	fl.IntVar(&f.Connections, "limit-connections", d.Connections, "connections from other machines at once; 0 for no limit, as with all of these")
	fl.IntVar(&f.Strangers, "limit-strangers", d.Strangers, "connections that made no call yet that was let in, half of them of one address or account; the oldest makes room")
	fl.IntVar(&f.PeerConnections, "limit-peer-connections", d.PeerConnections, "connections of one user, address or account of this machine at once")
	fl.IntVar(&f.PeerCalls, "limit-peer-calls", d.PeerCalls, "calls of one of these that are open at once")
	fl.Float64Var(&f.PeerRate, "limit-peer-rate", d.PeerRate, "calls a second of one of these in the long run")
	fl.IntVar(&f.PeerBurst, "limit-peer-burst", d.PeerBurst, "calls of one of these that may come at once")
	fl.Uint32Var(&f.Streams, "limit-streams", d.Streams, "calls open on one connection; more wait in the client")
	fl.Var(&f.request, "limit-request", "size of a request")
	fl.DurationVar(&f.Handshake, "limit-handshake", d.Handshake, "how long a new connection may take to its first call that is let in")
	fl.DurationVar(&f.RequestTime, "limit-request-time", d.RequestTime, "how long a request may take to arrive")
	fl.DurationVar(&f.Stall, "limit-stall", d.Stall, "how long a stream's reader may take nothing")
	fl.DurationVar(&f.Idle, "limit-idle", d.Idle, "how long a connection may have no call")
	fl.DurationVar(&f.Age, "limit-age", d.Age, "how old a connection may grow; it ends with its calls")
}

// callerOf names whose limits a call counts against: the user's, where callers are asked
// who they are.
func callerOf(ctx context.Context) (name string, stranger bool) {
	who, asked := auth.From(ctx)
	if !asked {
		return limits.Origin(ctx), false
	}
	return limits.Named(who.Name, limits.Origin(ctx))
}

// guard makes a guard of the flags.
func (f *limitFlags) guard() (*limits.Guard, error) {
	f.Request = int(f.request)
	if err := f.Check(); err != nil {
		return nil, withCode(exitUsage, err)
	}
	f.Peer = callerOf
	return limits.New(f.Config), nil
}

// roomFlags say what captures may take of the spool.
type roomFlags struct {
	quota, free size
	perHolder   int
}

// defaultFree is what a disk must have left for another capture: the doctor calls
// less than that full.
const defaultFree = 200_000_000

func (f *roomFlags) addTo(fl *pflag.FlagSet) {
	f.free = defaultFree
	fl.Var(&f.quota, "spool-quota", "what the captures in the spool may take; 0 for no limit")
	fl.Var(&f.free, "spool-free", "what must be free on the spool's disk for a capture to begin; one that runs ends at half of it")
	fl.IntVar(&f.perHolder, "spool-captures", 256, "captures of one holder in the spool; 0 for no limit")
}

func (f *roomFlags) room() capture.Room {
	return capture.Room{Quota: int64(f.quota), Free: int64(f.free), PerHolder: f.perHolder}
}

// databaseFlags say when a database takes no new tasks.
type databaseFlags struct {
	quota, free size
	offered     bool // commands without these flags keep the default
}

func (f *databaseFlags) addTo(fl *pflag.FlagSet) {
	f.free, f.offered = defaultFree, true
	fl.Var(&f.quota, "db-quota", "size of the database from which it takes no new tasks; 0 for no limit")
	fl.Var(&f.free, "db-free", "what must be free on the database's disk for a new task")
}

func (f *databaseFlags) limits() store.Limits {
	if !f.offered {
		return store.Limits{Free: defaultFree}
	}
	return store.Limits{Bytes: int64(f.quota), Free: int64(f.free)}
}
