package cluster

import (
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/wattmark/wattmark/store/relay"
)

// Access authenticates the clients of a node. Clients and nodes use TLS, from the first byte on.
type Access struct {
	// Clients is the TLS of publishers and stores, Nodes that between nodes, where both
	// ends have a certificate of their own.
	Clients, Nodes *tls.Config
	// Admit authenticates a client by its certificate or token. It is called at the same time
	// for several clients.
	Admit func(c *tls.ConnectionState, token string) (Guest, error)
}

// Guest is a client that was admitted.
type Guest struct {
	Name  string
	Right Right
	full  bool // it has too much in the streams, and may read only
	// Valid returns the reason to disconnect the client, or nil. It is called every second.
	Valid func() error
}

// Right of a client; each includes those before it.
type Right int

// The rights.
const (
	Reads     Right = iota + 1 // tasks, and the state of the nodes
	Publishes                  // tasks and samples of its own user
	Takes                      // as a store, and frees; publishes for all users
	Runs                       // everything
)

// The subjects that a client may send to, for each right that has others than those below it.
var (
	reads = []string{
		"$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.MSG.GET.*", "$JS.API.DIRECT.GET.>",
		"$JS.API.CONSUMER.LIST.*", "$JS.API.CONSUMER.NAMES.*", "$JS.API.CONSUMER.INFO.>",
	}
	takes = []string{createConsumer + ">", nextMessage, "$JS.API.STREAM.PURGE.*", "$JS.ACK.>"}
)

// nextMessage is answered more than once.
const nextMessage = "$JS.API.CONSUMER.MSG.NEXT.>"

// served returns the subject at which the global account serves a guest's subject.
func served(subject string) string {
	if subject == createConsumer+">" {
		return nodeConsumer + ">"
	}
	return subject
}

// export makes the global account serve the subjects of guests.
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

// user returns the server's user for a guest, whose account is made where there is none.
//
// Each user without the right Runs has an account of the server, shared by its connections. The streams are
// in the global account, which exports the subjects above as services; an account imports those of its
// guest. The server sends an answer to the reply subject of a request within the account of the request:
// there it reaches only the guest's own subscriptions, or an import, to which the guest may send anyway.
// Permissions alone would not do: the server does not check reply subjects against them, and would put its
// answers into the streams, or take them for requests of its own.
func (d *door) user(g *Guest) (*server.User, error) {
	if g.Right >= Runs {
		return &server.User{Username: g.Name}, nil
	}
	kind, subjects := relay.Reader, reads
	switch {
	case g.full:
		kind = relay.Full
	case g.Right == Publishes:
		kind, subjects = relay.Measurer, append(relay.UserSubjects(g.Name), reads...)
	case g.Right == Takes:
		kind, subjects = relay.Operator, slices.Concat(reads, relay.AllSubjects(), takes)
	}
	d.accounts.Lock()
	defer d.accounts.Unlock()
	a, fresh := d.server.LookupOrRegisterAccount(kind.Of(g.Name))
	if fresh {
		for _, s := range subjects {
			if err := a.AddServiceImport(d.server.GlobalAccount(), s, served(s)); err != nil {
				return nil, fmt.Errorf("account %s, subject %s: %w", a.Name, s, err)
			}
		}
	}
	return &server.User{Username: g.Name, Account: a, Permissions: &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: append(slices.Clone(subjects), relay.WhoAmI)},
		Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
	}}, nil
}

// door admits clients, and disconnects those whose right has ended.
type door struct {
	access *Access
	log    *slog.Logger
	// secret is the password of the node as a client of itself; no other process has it.
	secret string

	server   *server.Server
	accounts sync.Mutex // one is made at a time
	// usage counts the users' messages, once the streams are there; limit bounds the bytes of each user.
	usage atomic.Pointer[relay.Usage]
	limit uint64

	mu     sync.Mutex
	inside map[uint64]Guest // by the number of their connection
}

// newDoor returns a door with a secret of its own, and puts it before a server.
func newDoor(a *Access, log *slog.Logger, o *server.Options) *door {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	d := &door{access: a, log: log, secret: hex.EncodeToString(b[:]), inside: map[uint64]Guest{}}
	o.TLSConfig, o.TLSHandshakeFirst, o.TLSTimeout = a.Clients, true, handshakeWithin.Seconds()
	o.CustomClientAuthentication = d
	if o.Cluster.Name != "" {
		o.Cluster.TLSConfig, o.Cluster.TLSTimeout = a.Nodes, handshakeWithin.Seconds()
		// Clients are configured with the nodes' names as in their certificates; the server
		// would advertise addresses.
		o.Cluster.NoAdvertise = true
	}
	return d
}

// handshakeWithin bounds a TLS handshake on a busy machine.
const handshakeWithin = 5 * time.Second

// Check is part of server.Authentication. It is called at the same time for several clients.
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

// full reports whether a user has too much in the streams to publish more. A user that had may
// publish again at nine tenths of the limit.
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

// recheckEvery is the longest time for which a client stays after its right has ended.
const recheckEvery = time.Second

// recheck disconnects each client whose right has ended or changed. Clients whose right to publish
// has changed reconnect by themselves, into the account of their new right.
func (d *door) recheck(s *server.Server) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, g := range d.inside {
		full := d.full(&g)
		switch {
		case s.GetClient(id) == nil:
		case full != g.full: // it comes back by itself, with other rights
			messages, bytes := d.usage.Load().Of(g.Name)
			d.log.Warn("a user's right to publish changes",
				"who", g.Name, "may publish", !full, "messages", messages, "bytes", bytes, "limit", d.limit)
		default:
			err := g.Valid()
			if err == nil {
				continue
			}
			d.log.Warn("a client has to go", "who", g.Name, "error", err)
		}
		_ = s.DisconnectClientByID(id) // it may have gone by itself
		delete(d.inside, id)
	}
}

// Stores request their consumers at the server's own subject, which their accounts map to one of the
// nodes'. A node passes on the fields that a store needs, and no others: a consumer that delivers by itself
// could deliver stored messages to any subject, for one as requests to the server.
const (
	createConsumer = "$JS.API.CONSUMER.CREATE."
	nodeConsumer   = "wattmark-node.consumer."
)

// createWithin bounds the making of a consumer by the server.
const createWithin = 5 * time.Second

// serveConsumers serves stores until the connection that it returns is closed.
func serveConsumers(s *server.Server, secret string) (*nats.Conn, error) {
	nc, err := nats.Connect("", nats.InProcessServer(s), nats.UserInfo(relay.User, secret),
		nats.MaxReconnects(-1), nats.Name("wattmark node"))
	if err != nil {
		return nil, err
	}
	_, err = nc.QueueSubscribe(nodeConsumer+">", "nodes", func(m *nats.Msg) {
		go func() { _ = m.Respond(makeConsumer(nc, m)) }() // a store that has gone asks again
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return nc, nil
}

// makeConsumer passes a request on, stripped, and returns the server's answer or a refusal.
func makeConsumer(nc *nats.Conn, m *nats.Msg) []byte {
	var request struct {
		Stream string                   `json:"stream_name"`
		Config jetstream.ConsumerConfig `json:"config"`
		Action string                   `json:"action,omitempty"`
	}
	err := json.Unmarshal(m.Data, &request)
	c := request.Config
	if err == nil {
		err = relay.CheckName(c.Durable)
	}
	if err != nil {
		return refusal(err)
	}
	request.Config = jetstream.ConsumerConfig{
		Name: c.Durable, Durable: c.Durable, Description: c.Description, FilterSubject: c.FilterSubject,
		DeliverPolicy: c.DeliverPolicy, AckPolicy: c.AckPolicy, AckWait: c.AckWait,
		MaxAckPending: c.MaxAckPending, MaxDeliver: c.MaxDeliver,
	}
	content, err := json.Marshal(request)
	if err != nil {
		return refusal(err)
	}
	answer, err := nc.Request(createConsumer+strings.TrimPrefix(m.Subject, nodeConsumer), content, createWithin)
	if err != nil {
		return refusal(err)
	}
	return answer.Data
}

// refusal returns a server's answer of an error.
func refusal(err error) []byte {
	b, _ := json.Marshal(map[string]any{ // of texts and numbers there is no error
		"type":  "io.nats.jetstream.api.v1.consumer_create_response",
		"error": jetstream.APIError{Code: 403, Description: fmt.Sprintf("this consumer is not made: %v", err)},
	})
	return b
}
