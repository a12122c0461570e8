package cluster

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Access says who a node lets in. Clients and nodes speak TLS then, from the first byte on.
type Access struct {
	// Clients is the TLS of who publishes and takes, Nodes that between nodes, where both
	// ends have a certificate of their own.
	Clients, Nodes *tls.Config
	// Admit says who a client is, by the certificate that it showed or by its token.
	Admit func(c *tls.ConnectionState, token string) (Guest, error)
}

// Guest is a client that was let in.
type Guest struct {
	Name  string
	Right Right
	// Valid tells, as often as it is asked, why the client must go; nil for it may stay.
	Valid func() error
}

// Right is what a client may do; each includes those before it.
type Right int

// The rights.
const (
	Reads     Right = iota + 1 // what there is, and how the nodes are
	Publishes                  // tasks and samples
	Takes                      // as a store: what was taken by all is removed
	Runs                       // everything
)

// What a client may send for each right. Answers come to its inbox.
var allowed = map[Right][]string{
	Reads:     {"$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.MSG.GET.*", "$JS.API.DIRECT.GET.>", "$JS.API.CONSUMER.LIST.*", "$JS.API.CONSUMER.NAMES.*", "$JS.API.CONSUMER.INFO.>"},
	Publishes: {"wattmark.>"},
	Takes:     {"$JS.API.CONSUMER.CREATE.>", "$JS.API.CONSUMER.MSG.NEXT.>", "$JS.API.STREAM.PURGE.*", "$JS.ACK.>"},
}

// permissions are what the server holds each message against; nil for all.
func (r Right) permissions() *server.Permissions {
	if r >= Runs {
		return nil
	}
	p := &server.Permissions{
		Publish: &server.SubjectPermission{}, Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
	}
	for x := Reads; x <= r; x++ {
		p.Publish.Allow = append(p.Publish.Allow, allowed[x]...)
	}
	return p
}

// door lets clients in, and shows those out that may not stay.
type door struct {
	access *Access
	log    *slog.Logger
	// secret is known to this process alone: the node is a client of itself.
	secret string

	mu     sync.Mutex
	inside map[uint64]Guest // by the number of their connection
}

func newDoor(a *Access, log *slog.Logger) *door {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return &door{access: a, log: log, secret: hex.EncodeToString(b[:]), inside: map[uint64]Guest{}}
}

// guard makes a server ask.
func (d *door) guard(o *server.Options) {
	o.TLSConfig, o.TLSHandshakeFirst, o.TLSTimeout = d.access.Clients, true, handshakeWithin.Seconds()
	o.CustomClientAuthentication = d
	if o.Cluster.Name != "" {
		o.Cluster.TLSConfig, o.Cluster.TLSTimeout = d.access.Nodes, handshakeWithin.Seconds()
		// Clients are told of the nodes by who sets them up, by the names that are in the
		// nodes' certificates.
		o.Cluster.NoAdvertise = true
	}
}

// handshakeWithin is how long a handshake may take on a busy machine.
const handshakeWithin = 5 * time.Second

// Check is part of server.Authentication.
func (d *door) Check(c server.ClientAuthentication) bool {
	state := c.GetTLSConnectionState()
	o := c.GetOpts()
	if state == nil { // only from within this process
		return subtle.ConstantTimeCompare([]byte(o.Password), []byte(d.secret)) == 1
	}
	g, err := d.access.Admit(state, o.Token)
	if err == nil && g.Right < Reads {
		err = fmt.Errorf("%s has no right here", g.Name)
	}
	if err != nil {
		d.log.Warn("a client was not let in", "from", c.RemoteAddress().String(), "error", err)
		return false
	}
	c.RegisterUser(&server.User{Username: g.Name, Permissions: g.Right.permissions()})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inside[c.GetID()] = g
	return true
}

// recheckEvery is how long a client whose right has ended may stay at most.
const recheckEvery = time.Second

// run shows clients out until the context ends.
func (d *door) run(ctx context.Context, s *server.Server) {
	tick := time.NewTicker(recheckEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			d.recheck(s)
		}
	}
}

func (d *door) recheck(s *server.Server) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, g := range d.inside {
		if s.GetClient(id) == nil {
			delete(d.inside, id)
		} else if err := g.Valid(); err != nil {
			d.log.Warn("a client has to go", "who", g.Name, "error", err)
			_ = s.DisconnectClientByID(id) // it may have gone by itself
			delete(d.inside, id)
		}
	}
}
