package auth

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/wattmark/wattmark/internal/backoff"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Config is the sources of identities and the logs of a guard.
type Config struct {
	// Registry has the tokens, and the certificates that were revoked; nil for neither.
	Registry *Registry
	// Accounts are the roles of accounts of this machine, by name, at the other end of a
	// unix socket. Root and this program's own account are admin; others are measurer.
	Accounts map[string]Role
	// Audit logs callers and their calls; nil for nothing.
	Audit *Audit
	// Reads logs reading calls too.
	Reads bool
	// Log gets trouble; nil for silence.
	Log *slog.Logger
	// Now is the clock; nil for the wall clock.
	Now func() time.Time
}

// Guard lets callers in. It is safe for concurrent use.
type Guard struct {
	cfg Config

	accounts sync.Map // uint32 to Identity: a lookup may take its time, and is made once
	calls    sync.Map // *call, those that go on
}

// call is one that goes on.
type call struct {
	who    Identity
	cancel context.CancelCauseFunc
}

// New makes a guard.
func New(cfg Config) *Guard {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Guard{cfg: cfg}
}

// howTo is the remedy in a refusal.
const howTo = "give a token (--token-file, WATTMARK_TOKEN) or a client certificate (--tls-cert, --tls-key)"

// maxHeader is the longest Authorization header that is looked at, in bytes.
const maxHeader = maxToken + len("Bearer ")

// Header identifies the caller by an Authorization header.
func (g *Guard) Header(header string) (Identity, error) {
	scheme, token, _ := strings.Cut(header, " ")
	if len(header) > maxHeader || !strings.EqualFold(scheme, "bearer") || g.cfg.Registry == nil {
		return Identity{}, fmt.Errorf("%w: want an Authorization header of the form: Bearer wm_…", ErrUnknown)
	}
	return g.cfg.Registry.Token(strings.TrimSpace(token), g.cfg.Now())
}

// Certificate identifies the caller by the chains that TLS has verified.
func (g *Guard) Certificate(chains [][]*x509.Certificate) (Identity, error) {
	if len(chains) == 0 || len(chains[0]) == 0 {
		return Identity{}, fmt.Errorf("%w: %s", ErrUnknown, howTo)
	}
	leaf := chains[0][0]
	i := Identity{Name: leaf.Subject.CommonName, By: ByCertificate, ID: Serial(leaf), Expires: leaf.NotAfter}
	if len(leaf.Subject.OrganizationalUnit) == 1 {
		i.Role, _ = ParseRole(leaf.Subject.OrganizationalUnit[0])
	}
	if err := CheckName(i.Name); err != nil || i.Role == Nobody {
		return Identity{}, fmt.Errorf(
			"%w: this certificate names no user with a role: make one with wattmark auth cert", ErrUnknown)
	}
	return i, g.Valid(i)
}

// Serial is a certificate's serial number as it is kept and shown.
func Serial(c *x509.Certificate) string { return fmt.Sprintf("%x", c.SerialNumber) }

// Valid refuses an identity that has expired or was revoked.
func (g *Guard) Valid(i Identity) error {
	if g.cfg.Registry != nil {
		return g.cfg.Registry.Valid(i, g.cfg.Now())
	}
	return valid("this "+string(i.By), i.Expires, time.Time{}, g.cfg.Now())
}

// account returns the identity of an account of this machine.
func (g *Guard) account(uid uint32) Identity {
	if i, known := g.accounts.Load(uid); known {
		return i.(Identity)
	}
	// An account without a name, or with one that cannot be shown, is known by its number.
	number := strconv.FormatUint(uint64(uid), 10)
	i := Identity{Name: "uid-" + number, Role: Measurer, By: ByAccount, ID: number}
	if u, err := user.LookupId(number); err == nil && CheckName(u.Username) == nil {
		i.Name = u.Username
	}
	if role, said := g.cfg.Accounts[i.Name]; said {
		i.Role = role
	}
	if uid == 0 || int(uid) == os.Geteuid() {
		i.Role = Admin
	}
	g.accounts.Store(uid, i)
	return i
}

// recheckEvery bounds the time for which a stream outlives the revocation of its caller.
const recheckEvery = time.Second

// Run ends calls whose callers were revoked, or have expired, until ctx ends.
func (g *Guard) Run(ctx context.Context) {
	for range backoff.Every(ctx.Done(), recheckEvery) {
		g.Recheck()
	}
}

// Recheck ends the running calls of callers that have expired or were revoked. Calls come and go
// meanwhile: Valid may wait for the file of tokens.
func (g *Guard) Recheck() {
	g.calls.Range(func(c, _ any) bool {
		if err := g.Valid(c.(*call).who); err != nil {
			c.(*call).cancel(err)
		}
		return true
	})
}

// Watch returns a context that ends when the caller is revoked or expires; Run checks.
// leave is to be called when the call has ended.
func (g *Guard) Watch(ctx context.Context, who Identity) (watched context.Context, leave func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := &call{who, cancel}
	g.calls.Store(c, nil)
	return ctx, func() {
		g.calls.Delete(c)
		cancel(nil)
	}
}

// Audit returns the guard's log of callers and calls.
func (g *Guard) Audit() *Audit { return g.cfg.Audit }

// ServerOptions make a gRPC server authenticate its callers; c is nil without TLS. A caller is
// admitted or refused before anything that it sends is read, and then passed to the handlers of
// then, since a server takes one tap. The time limit of handshakes is api/limits'.
func (g *Guard) ServerOptions(c *tls.Config, then ...tap.ServerInHandle) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(Handshakes(c)),
		grpc.InTapHandle(func(ctx context.Context, info *tap.Info) (context.Context, error) {
			ctx, err := g.admit(ctx, info)
			for i := 0; i < len(then) && err == nil; i++ {
				ctx, err = then[i](ctx, info)
			}
			return ctx, err
		}),
		grpc.ChainUnaryInterceptor(g.unary),
		grpc.ChainStreamInterceptor(g.stream),
	}
}

// admit looks at a call before its messages.
func (g *Guard) admit(ctx context.Context, info *tap.Info) (context.Context, error) {
	// A tap runs before the request is read: a stranger costs a header, and no decoding.
	row, known := Rows[info.FullMethodName]
	if known && row.Role == Nobody {
		return With(ctx, Identity{}), nil
	}
	who, from, err := g.caller(ctx, info.Header)
	switch {
	case err != nil:
	case !known:
		err = fmt.Errorf("%w: %s is no call of this server", ErrDenied, shown(info.FullMethodName))
	case who.Role < row.Role:
		err = who.less(row.Role)
	}
	if err != nil {
		err = Status(err)
		g.cfg.Audit.Keep(ctx, Entry{
			Who: who, From: from, What: info.FullMethodName, Code: status.Code(err).String(),
			Why: status.Convert(err).Message(),
		})
		return ctx, err
	}
	return WithFrom(ctx, who, from), nil
}

// caller returns the identity and the address of a caller.
func (g *Guard) caller(ctx context.Context, header metadata.MD) (who Identity, from string, err error) {
	p, _ := peer.FromContext(ctx)
	if p == nil {
		return who, "", fmt.Errorf("%w: %s", ErrUnknown, howTo)
	}
	if p.Addr != nil {
		from = p.Addr.String()
	}
	said := header.Get("authorization")
	switch info := p.AuthInfo.(type) {
	case local:
		switch info.kind {
		case inside:
			return relayed(header)
		case account:
			return g.account(info.uid), fmt.Sprintf("uid %d", info.uid), nil
		}
	case credentials.TLSInfo:
		if len(said) == 0 {
			who, err = g.Certificate(info.State.VerifiedChains)
			return who, from, err
		}
	}
	if len(said) == 1 {
		who, err = g.Header(said[0])
		return who, from, err
	}
	return who, from, fmt.Errorf("%w: %s", ErrUnknown, howTo)
}

// Status turns a refusal into a gRPC status; other errors stay as they are.
func Status(err error) error {
	switch {
	case errors.Is(err, ErrUnknown):
		return status.Error(codes.Unauthenticated, err.Error())
	case errors.Is(err, ErrDenied):
		return status.Error(codes.PermissionDenied, err.Error())
	case errors.Is(err, ErrRegistry): // its path is not disclosed
		return status.Error(codes.Unavailable, ErrRegistry.Error()+": the server's log says why")
	}
	return err
}

// relayHeader carries the caller within this program, as JSON; names need not be ASCII.
// From elsewhere it is ignored.
const relayHeader = "wattmark-relayed-bin"

// relayed reads relayHeader: the identity and the address of the caller at the other end
// of the program.
func relayed(header metadata.MD) (Identity, string, error) {
	said := header.Get(relayHeader)
	if len(said) != 1 {
		return Identity{}, "", fmt.Errorf("%w: %s", ErrUnknown, howTo)
	}
	var c caller
	if err := json.Unmarshal([]byte(said[0]), &c); err != nil {
		return Identity{}, "", fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return c.Who, c.From, nil
}

// RelayOptions dial the other end of a listener that is Inside: calls are made for who
// asks by the context that they are made with. A call whose context ends since its caller is no longer known is
// Unauthenticated, not Canceled.
func RelayOptions() []grpc.DialOption {
	tell := func(ctx context.Context) context.Context {
		c, known := ctx.Value(callerKey{}).(caller)
		if !known {
			return ctx
		}
		b, err := json.Marshal(c)
		if err != nil { // a stranger has no role to be written
			return ctx
		}
		return metadata.AppendToOutgoingContext(ctx, relayHeader, string(b))
	}
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			invoke grpc.UnaryInvoker, o ...grpc.CallOption,
		) error {
			return ended(ctx, invoke(tell(ctx), method, req, reply, cc, o...))
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn,
			method string, open grpc.Streamer, o ...grpc.CallOption,
		) (grpc.ClientStream, error) {
			s, err := open(tell(ctx), d, cc, method, o...)
			return relayedStream{s, ctx}, ended(ctx, err)
		}),
	}
}

// relayedStream is a stream made for who asks by a context.
type relayedStream struct {
	grpc.ClientStream
	ctx context.Context
}

// RecvMsg is part of grpc.ClientStream.
func (s relayedStream) RecvMsg(m any) error { return ended(s.ctx, s.ClientStream.RecvMsg(m)) }

// notes are the attributes of a call, for the audit log.
type notes struct {
	mu    sync.Mutex
	attrs []slog.Attr
}

type notesKey struct{}

// Note adds an attribute to the audit log's entry of a call: its task, its capture.
func Note(ctx context.Context, key, value string) {
	n, ok := ctx.Value(notesKey{}).(*notes)
	if !ok {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.attrs = append(n.attrs, slog.String(key, shown(value)))
}

// mostNoted is how many fields of a request are noted.
const mostNoted = 8

// request notes the plain fields of a request: they name its subject.
func (n *notes) request(req any) {
	m, ok := req.(proto.Message)
	if !ok || m == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	m.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		id := strings.HasSuffix(string(f.Name()), "_id") && f.Kind() != protoreflect.BytesKind
		if !f.IsList() && !f.IsMap() && (id || f.Kind() == protoreflect.StringKind) {
			n.attrs = append(n.attrs, slog.String(string(f.Name()), shown(v.String())))
		}
		return len(n.attrs) < mostNoted
	})
}

// unary audits a call, and ends it where its caller is revoked meanwhile.
func (g *Guard) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if Rows[info.FullMethod].Role == Nobody {
		return handle(ctx, req)
	}
	n := &notes{}
	who, _ := From(ctx)
	ctx, leave := g.Watch(context.WithValue(ctx, notesKey{}, n), who)
	defer leave()
	resp, err := handle(ctx, req)
	err = ended(ctx, err)
	if kept(info.FullMethod, err) {
		n.request(req)
		g.cfg.Audit.Keep(ctx, entry(ctx, info.FullMethod, n, err))
	} else if g.cfg.Reads && Rows[info.FullMethod].Reads {
		n.request(req)
		g.cfg.Audit.KeepRead(ctx, entry(ctx, info.FullMethod, n, err))
	}
	return resp, err
}

// stream does the same for streams; a client's messages in one are not noted.
func (g *Guard) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if Rows[info.FullMethod].Role == Nobody {
		return handle(srv, s)
	}
	n := &notes{}
	who, _ := From(s.Context())
	ctx, leave := g.Watch(context.WithValue(s.Context(), notesKey{}, n), who)
	defer leave()
	x := &guarded{ServerStream: s, ctx: ctx}
	// A read is logged with its first answer, or at its end where none came: a stream lasts for days.
	var once sync.Once
	read := func(err error) {
		once.Do(func() { g.cfg.Audit.KeepRead(ctx, entry(ctx, info.FullMethod, n, err)) })
	}
	if g.cfg.Reads && Rows[info.FullMethod].Reads {
		x.notes, x.first = n, func() { read(nil) }
	}
	err := ended(ctx, handle(srv, x))
	switch {
	case kept(info.FullMethod, err):
		g.cfg.Audit.Keep(ctx, entry(ctx, info.FullMethod, n, err))
	case x.first != nil:
		read(err) // it ended with nothing
	}
	return err
}

// guarded is a stream that ends once its caller was revoked.
type guarded struct {
	grpc.ServerStream
	ctx   context.Context
	notes *notes // of a stream whose reading is kept; nil otherwise
	first func() // is called with the first answer: a stream can go on for days
}

// RecvMsg is part of grpc.ServerStream.
func (s *guarded) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil && s.notes != nil {
		s.notes.request(m)
	}
	return err
}

// Context is part of grpc.ServerStream.
func (s *guarded) Context() context.Context { return s.ctx }

// SendMsg is part of grpc.ServerStream.
func (s *guarded) SendMsg(m any) error {
	if s.ctx.Err() != nil {
		return Status(context.Cause(s.ctx))
	}
	if s.first != nil {
		s.first()
	}
	return s.ServerStream.SendMsg(m)
}

// ended returns the cause of a call whose context ended since its caller is no longer known, else err.
func ended(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	if cause := Status(context.Cause(ctx)); status.Code(cause) == codes.Unauthenticated {
		return cause
	}
	return err
}

// kept reports whether a call belongs into the audit log, whatever it reads.
func kept(method string, err error) bool {
	c := status.Code(err)
	return c == codes.Unauthenticated || c == codes.PermissionDenied || Rows[method].Changes
}

// entry makes the log entry of a call with its outcome.
func entry(ctx context.Context, method string, n *notes, err error) Entry {
	c, _ := ctx.Value(callerKey{}).(caller)
	n.mu.Lock()
	defer n.mu.Unlock()
	e := Entry{Who: c.Who, From: c.From, What: method, Code: status.Code(err).String(), On: n.attrs}
	if err != nil {
		e.Why = status.Convert(err).Message()
	}
	return e
}
