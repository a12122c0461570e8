package cluster

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"wattmark/store/relay"
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
	full  bool // it has too much in the streams, and may read alone
	// Valid tells, as often as it is asked, why the client must go; nil for it may stay.
	Valid func() error
}

// Right is what a client may do; each includes those before it.
type Right int

// The rights.
const (
	Reads     Right = iota + 1 // what there is, and how the nodes are
	Publishes                  // tasks and samples, under the own name
	Takes                      // as a store: what was taken by all is removed; publishes for all
	Runs                       // everything
)

// The subjects that a client may send to, for each right that has others than those below it.
var (
	reads = []string{"$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.MSG.GET.*", "$JS.API.DIRECT.GET.>", "$JS.API.CONSUMER.LIST.*", "$JS.API.CONSUMER.NAMES.*", "$JS.API.CONSUMER.INFO.>"}
	takes = []string{createConsumer + ">", nextMessage, "$JS.API.STREAM.PURGE.*", "$JS.ACK.>"}
)

// nextMessage is answered more than once.
const nextMessage = "$JS.API.CONSUMER.MSG.NEXT.>"

// subjects are what a guest may send to.
func (g *Guest) subjects() []string {
	switch {
	case g.full:
		return reads
	case g.Right == Publishes:
		return append(relay.UserSubjects(g.Name), reads...)
	case g.Right == Takes:
		return slices.Concat(reads, relay.AllSubjects(), takes)
	default:
		return reads
	}
}

// Each client but those that may do everything has an account of the server to itself, shared with
// its other connections. The streams are in the global account, which exports the subjects
// above as services; an account imports those of its guest. The server sends an answer
// to the reply subject of a request within the account that asked: there it reaches nothing but the
// guest's own subscriptions, or an import, which the guest may send to anyway.
// Permissions alone would not do: the server does not hold reply subjects against them, and would
// put its answers into the streams, or take them for requests of its own.
func (d *door) account(g *Guest) (*server.Account, error) {
	name := map[Right]relay.Account{Reads: relay.Reader, Publishes: relay.Measurer, Takes: relay.Operator}[g.Right].Of(g.Name)
	if g.full {
		name = relay.Full.Of(g.Name)
	}
	d.accounts.Lock()
	defer d.accounts.Unlock()
	a, fresh := d.server.LookupOrRegisterAccount(name)
	if !fresh {
		return a, nil
	}
	for _, s := range g.subjects() {
		if err := a.AddServiceImport(d.server.GlobalAccount(), s, served(s)); err != nil {
			return nil, fmt.Errorf("account %s, subject %s: %w", name, s, err)
		}
	}
	return a, nil
}

// served is the subject at which the global account serves what guests send to another.
func served(subject string) string {
	if subject == createConsumer+">" {
		return nodeConsumer + ">"
	}
	return subject
}

// export makes the global account offer what guests may send to.
func (d *door) export(s *server.Server) error {
	d.server = s
	for _, subject := range slices.Concat(reads, takes, relay.AllSubjects()) {
		answers := server.Singleton
		if subject == nextMessage {
			answers = server.Streamed
		}
		if err := s.GlobalAccount().AddServiceExportWithResponse(served(subject), answers, nil); err != nil {
			return fmt.Errorf("export %s: %w", subject, err)
		}
	}
	return nil
}

// user is what the server knows a guest by.
func (d *door) user(g *Guest) (*server.User, error) {
	if g.Right >= Runs {
		return &server.User{Username: g.Name}, nil
	}
	a, err := d.account(g)
	if err != nil {
		return nil, err
	}
	return &server.User{Username: g.Name, Account: a, Permissions: &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: append(g.subjects(), relay.WhoAmI)},
		Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
	}}, nil
}

// door lets clients in, and shows those out that may not stay.
type door struct {
	access *Access
	log    *slog.Logger
	// secret is known to this process alone: the node is a client of itself.
	secret string

	server   *server.Server
	accounts sync.Mutex // one is made at a time
	// usage is what users have in the streams, once the node knows; limit is how many bytes that
	// may be.
	usage atomic.Pointer[relay.Usage]
	limit uint64

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
	var user *server.User
	if err == nil {
		g.full = d.full(&g)
		user, err = d.user(&g)
	}
	if err != nil {
		d.log.Warn("a client was not let in", "from", c.RemoteAddress().String(), "error", err)
		return false
	}
	c.RegisterUser(user)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inside[c.GetID()] = g
	return true
}

// full reports whether a user has too much in the streams to publish more. Who had may
// publish again at nine tenths of that.
func (d *door) full(g *Guest) bool {
	u := d.usage.Load()
	if u == nil || g.Right != Publishes || d.limit == 0 {
		return false
	}
	messages, bytes := u.Of(g.Name)
	if g.full {
		return messages > relay.MostMessages/10*9 || bytes > d.limit/10*9
	}
	return messages >= relay.MostMessages || bytes >= d.limit
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
		} else if full := d.full(&g); full != g.full { // it comes back by itself, with other rights
			messages, bytes := d.usage.Load().Of(g.Name)
			d.log.Warn("what a user may publish changes", "who", g.Name, "may publish", !full, "messages", messages, "bytes", bytes, "limit", d.limit)
			_ = s.DisconnectClientByID(id)
			delete(d.inside, id)
		} else if err := g.Valid(); err != nil {
			d.log.Warn("a client has to go", "who", g.Name, "error", err)
			_ = s.DisconnectClientByID(id) // it may have gone by itself
			delete(d.inside, id)
		}
	}
}
