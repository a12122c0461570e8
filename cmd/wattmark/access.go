package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"wattmark/api/auth"
	"wattmark/api/auth/pki"
	"wattmark/api/auth/signin"
	"wattmark/api/limits"
)

// accessFlags say whom a service lets in.
type accessFlags struct {
	dir, cert, key, users, tokens, audit string
	reads                                bool
	insecure                             bool
	said                                 map[string]*string // what was named, by its flag, also with nothing
}

// pathFlag is a flag for a file or folder. Named with nothing it is refused by open: a variable
// of a shell that is not set must not open a service.
type pathFlag struct {
	f    *accessFlags
	name string
	to   *string
}

// String is part of pflag.Value.
func (p pathFlag) String() string {
	if p.to == nil {
		return ""
	}
	return *p.to
}

// Set is part of pflag.Value.
func (p pathFlag) Set(text string) error {
	p.f.said[p.name], *p.to = p.to, text
	return nil
}

// Type is part of pflag.Value.
func (pathFlag) Type() string { return "string" }

// addTo gives a command the flags.
func (f *accessFlags) addTo(fl *pflag.FlagSet) {
	f.said = map[string]*string{}
	name := func(to *string, name, usage string) { fl.Var(pathFlag{f, name, to}, name, usage) }
	name(&f.dir, "auth", "folder made by wattmark auth init: speak TLS with its server.crt, and ask for its tokens and certificates")
	name(&f.cert, "serve-cert", "certificate to speak TLS with (default: server.crt of --auth)")
	name(&f.key, "serve-key", "its key, a file that nobody else may read (default: server.key of --auth)")
	name(&f.users, "client-ca", "CA whose certificates say who a client is (default: ca.crt of --auth)")
	name(&f.tokens, "tokens", "file of the tokens that are asked for (default: tokens.json of --auth)")
	fl.StringVar(&f.audit, "audit", "", "file to add who did what to, a JSON object a line (default: the log)")
	fl.BoolVar(&f.reads, "audit-reads", false, "keep there too who reads what: the same once in ten minutes")
	fl.BoolVar(&f.insecure, "insecure", false, "serve other machines without TLS, or without asking who they are; the log says so")
}

// access is who is let in. Without a guard nobody is asked who they are.
type access struct {
	guard    *auth.Guard
	server   *pki.Server // nil where TLS is not spoken
	asks     bool
	insecure bool
	audit    *auth.Audit
	reads    bool
	log      *slog.Logger
}

// fill takes what is not said from the folder, as far as it is there. The list of tokens
// must be: it also has which certificates were revoked.
func (f accessFlags) fill() (accessFlags, error) {
	for _, name := range slices.Sorted(maps.Keys(f.said)) {
		if *f.said[name] == "" {
			return f, fmt.Errorf("--%s is empty: name what it is for, or leave it out, also in the configuration file", name)
		}
	}
	if f.dir == "" {
		return f, nil
	}
	if s, err := os.Stat(f.dir); err != nil || !s.IsDir() {
		return f, fmt.Errorf("--auth %s: no such folder: wattmark auth init makes it", f.dir)
	}
	for _, d := range []struct {
		to   *string
		name string
	}{{&f.cert, pki.ServerCert}, {&f.key, pki.ServerKey}, {&f.users, pki.CACert}, {&f.tokens, pki.Tokens}} {
		path := filepath.Join(f.dir, d.name)
		if _, err := os.Stat(path); *d.to == "" && !errors.Is(err, fs.ErrNotExist) {
			*d.to = path
		}
	}
	if f.tokens == "" {
		return f, fmt.Errorf("--auth %s: it has no %s, by which callers are known: put it back, or make one: wattmark auth init --dir %s --host NAME where there is no CA yet, wattmark auth token NAME --dir %s where there is; or name another list with --tokens", f.dir, pki.Tokens, f.dir, f.dir)
	}
	return f, nil
}

// open reads what the flags name.
func (f accessFlags) open(log *slog.Logger) (*access, error) {
	f, err := f.fill()
	if err != nil {
		return nil, withCode(exitUsage, err)
	}
	x := &access{insecure: f.insecure, reads: f.reads, log: log}
	switch {
	case (f.cert == "") != (f.key == ""):
		return nil, withCode(exitUsage, errors.New("--serve-cert and --serve-key belong together: name both"))
	case f.cert != "":
		if x.server, err = pki.OpenServer(f.cert, f.key, f.users, log); err != nil {
			return nil, err
		}
	case f.users != "" && f.dir == "":
		return nil, withCode(exitUsage, errors.New("--client-ca: certificates of clients need TLS: name --serve-cert and --serve-key too"))
	}
	cfg := auth.Config{Log: log}
	if f.tokens != "" {
		if cfg.Registry, err = auth.OpenRegistry(f.tokens, log); err != nil {
			return nil, err
		}
	}
	x.asks = f.tokens != "" || x.server != nil && x.server.Users()
	if f.audit != "" {
		if x.audit, err = auth.OpenAudit(f.audit, log); err != nil {
			return nil, err
		}
	} else if x.asks {
		x.audit = auth.NewAudit(log)
	}
	if f.reads && x.audit == nil {
		return nil, withCode(exitUsage, errors.New("--audit-reads: there is no audit log: nobody is asked who they are; name --auth, or a file with --audit for what comes over the socket"))
	}
	if cfg.Audit, cfg.Reads = x.audit, f.reads; x.asks {
		x.guard = auth.New(cfg)
	}
	return x, nil
}

// listen opens a listener, unless it would let everybody in from elsewhere. remedy is
// for an address that cannot be had.
func (x *access) listen(ctx context.Context, address, remedy string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, remedy)
	}
	if err := x.check(l.Addr()); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (x *access) check(at net.Addr) error {
	if a, ok := at.(*net.TCPAddr); ok && a.IP.IsLoopback() {
		return nil
	}
	var lacks string
	switch {
	case x.server == nil:
		lacks = "TLS"
	case !x.asks:
		lacks = "asking who they are"
	default:
		return nil
	}
	if !x.insecure {
		return withCode(exitUsage, fmt.Errorf("%s can be reached from other machines, and would be served without %s: wattmark auth init makes what --auth DIR wants; or keep to 127.0.0.1 and use a tunnel; or, where everybody on the network may do everything, --insecure", at, lacks))
	}
	x.log.Warn("INSECURE: other machines are served without "+lacks+", because of --insecure", "address", at.String())
	return nil
}

// serverOptions are what a gRPC server is made with.
func (x *access) serverOptions(limit *limits.Guard) []grpc.ServerOption {
	var c *tls.Config
	if x.server != nil {
		c = x.server.Config()
	}
	switch {
	case x.guard != nil:
		return append(x.guard.ServerOptions(c, limit.Tap), limit.Options()...)
	case c != nil: // encrypted, and everybody's
		return append(limit.ServerOptions(), grpc.Creds(auth.Handshakes(c)))
	}
	return limit.ServerOptions()
}

// insideOptions are what the gRPC server behind a pipe of this program is made with.
func (x *access) insideOptions(limit *limits.Guard) []grpc.ServerOption {
	if x.guard == nil {
		return limit.Inside()
	}
	return append(x.guard.ServerOptions(nil), limit.Inside()...)
}

// web makes a listener speak TLS, where that is spoken.
func (x *access) web(l net.Listener) (net.Listener, string) {
	if x.server == nil {
		return l, "http://"
	}
	return tls.NewListener(l, x.server.Config("h2", "http/1.1")), "https://"
}

// ask puts the question who is there before a site, and names who makes a request to it,
// for its limits; both are nil where nobody is asked.
func (x *access) ask() (before func(http.Handler) http.Handler, user func(*http.Request) string) {
	if x.guard == nil {
		return nil, nil
	}
	var h *signin.Handler
	before = func(next http.Handler) http.Handler {
		h = signin.New(x.guard, next, nil)
		return h
	}
	return before, func(r *http.Request) string { return h.User(r) }
}

// itself dials this very service.
func (x *access) itself() grpc.DialOption {
	if x.server == nil {
		return grpc.WithTransportCredentials(insecure.NewCredentials())
	}
	return grpc.WithTransportCredentials(credentials.NewTLS(x.server.Itself()))
}

// peers let in who is at the other end of a unix socket.
func (x *access) peers(roles map[string]auth.Role) *auth.Guard {
	return auth.New(auth.Config{Accounts: roles, Audit: x.audit, Reads: x.reads, Log: x.log})
}

// expiring is how long before its end a certificate or a token is warned of.
const expiring = 30 * 24 * time.Hour

// run ends calls of who was revoked, and warns of a certificate that is about to
// expire, until ctx ends.
func (x *access) run(ctx context.Context) {
	var g sync.WaitGroup
	defer g.Wait()
	if x.guard != nil {
		g.Go(func() { x.guard.Run(ctx) })
	}
	day := time.NewTicker(24 * time.Hour)
	defer day.Stop()
	for {
		x.warnOfExpiry()
		select {
		case <-ctx.Done():
			return
		case <-day.C:
		}
	}
}

func (x *access) warnOfExpiry() {
	if x.server == nil {
		return
	}
	at, err := x.server.Expires()
	if err == nil && time.Until(at) < expiring {
		x.log.Warn("the server's certificate expires soon: wattmark auth cert --server makes a new one, which needs no restart", "expires", at.UTC().Format(time.RFC3339))
	}
}

// reopen follows an audit log that was moved away.
func (x *access) reopen() {
	if err := x.audit.Reopen(); err != nil {
		x.log.Error("reload: the audit log stays where it is", "error", err)
	}
}
