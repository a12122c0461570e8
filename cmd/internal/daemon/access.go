package daemon

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
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/api/auth"
	"github.com/wattmark/wattmark/api/auth/pki"
	"github.com/wattmark/wattmark/api/auth/signin"
	"github.com/wattmark/wattmark/api/limits"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/store/cluster"
	"google.golang.org/grpc"
)

// AccessFlags are the flags for the access control of a service: TLS, the callers' tokens and
// certificates, and the audit log.
type AccessFlags struct {
	Dir, cert, key, users, tokens, audit string
	reads                                bool               // audit reading calls too
	insecure                             bool               // serve other machines unprotected
	given                                map[string]*string // values by name of the flags given, also empty ones
}

// AddTo adds the flags to fl, and notes which are given: Open refuses one with an empty value, since an unset shell
// variable must not disable access control.
func (f *AccessFlags) AddTo(fl *pflag.FlagSet) {
	f.given = map[string]*string{}
	name := func(to *string, name, usage string) {
		fl.StringVar(to, name, "", usage)
		flag := fl.Lookup(name)
		flag.Value = cli.Checked{Value: flag.Value, Check: func(string) error { f.given[name] = to; return nil }}
	}
	name(&f.Dir, "auth",
		"folder made by wattmark auth init: speak TLS with its server.crt, and ask for its tokens and certificates")
	name(&f.cert, "serve-cert", "certificate to speak TLS with (default: server.crt of --auth)")
	name(&f.key, "serve-key", "its key, a file that nobody else may read (default: server.key of --auth)")
	name(&f.users, "client-ca", "CA whose certificates say who a client is (default: ca.crt of --auth)")
	name(&f.tokens, "tokens", "file of the tokens that are asked for (default: tokens.json of --auth)")
	fl.StringVar(&f.audit, "audit", "", "file to add who did what to, a JSON object a line (default: the log)")
	fl.BoolVar(&f.reads, "audit-reads", false, "keep there too who reads what: the same once in ten minutes")
	fl.BoolVar(&f.insecure, "insecure", false,
		"serve other machines without TLS, or without asking who they are; the log says so")
}

// Access is the access control of a service. Without a guard callers are not authenticated.
type Access struct {
	guard    *auth.Guard
	Server   *pki.Server // nil without TLS
	Asks     bool        // callers are authenticated
	Insecure bool        // Check allows unprotected addresses
	Audit    *auth.Audit // nil for none
	reads    bool
	Log      *slog.Logger
}

// withFolder returns the flags with those not given set to the files in the folder of --auth
// that exist. The list of tokens is required: it also holds the revoked certificates.
func (f AccessFlags) withFolder() (AccessFlags, error) {
	for _, name := range slices.Sorted(maps.Keys(f.given)) {
		if *f.given[name] == "" {
			return f, fmt.Errorf("--%s is empty: name what it is for, or leave it out, also in the configuration file", name)
		}
	}
	if f.Dir == "" {
		return f, nil
	}
	if s, err := os.Stat(f.Dir); err != nil || !s.IsDir() {
		return f, fmt.Errorf("--auth %s: no such folder: wattmark auth init makes it", f.Dir)
	}
	for _, d := range []struct {
		to   *string
		name string
	}{{&f.cert, pki.ServerCert}, {&f.key, pki.ServerKey}, {&f.users, pki.CACert}, {&f.tokens, pki.Tokens}} {
		path := filepath.Join(f.Dir, d.name)
		if _, err := os.Stat(path); *d.to == "" && !errors.Is(err, fs.ErrNotExist) {
			*d.to = path
		}
	}
	if f.tokens == "" {
		return f, fmt.Errorf("--auth %s: it has no %s, by which callers are known: put it back, or make one: "+
			"wattmark auth init --auth %s --server NAME where there is no CA yet, wattmark auth token NAME --auth %s "+
			"where there is; or name another list with --tokens", f.Dir, pki.Tokens, f.Dir, f.Dir)
	}
	return f, nil
}

// Open reads certificate, key, CA and tokens of the flags and opens the audit log. Invalid
// combinations, and files of the wrong owner or mode, are usage errors. The caller closes Audit, and
// calls Run while the service runs.
func (f AccessFlags) Open(log *slog.Logger) (*Access, error) {
	f, err := f.withFolder()
	if err != nil {
		return nil, cli.WithCode(cli.ExitUsage, err)
	}
	x, err := f.open(log)
	return x, ofOwner(err)
}

// ofOwner makes an error of a file's owner or mode a usage error, since a restart does not mend it.
func ofOwner(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return cli.Usagef("%w: the service runs as user %d, give the file to it: chown -R USER: FOLDER; the packages' "+
			"services run as wattmark", err, os.Geteuid())
	case errors.Is(err, auth.ErrMode):
		return cli.WithCode(cli.ExitUsage, err)
	}
	return err
}

// open is Open with the flags of withFolder.
func (f AccessFlags) open(log *slog.Logger) (_ *Access, err error) {
	x := &Access{Insecure: f.insecure, reads: f.reads, Log: log}
	switch {
	case (f.cert == "") != (f.key == ""):
		return nil, cli.Usagef("--serve-cert and --serve-key belong together: name both")
	case f.cert != "":
		if x.Server, err = pki.OpenServer(f.cert, f.key, f.users, log); err != nil {
			return nil, err
		}
	case f.users != "" && f.Dir == "":
		return nil, cli.Usagef("--client-ca: certificates of clients need TLS: name --serve-cert and --serve-key too")
	}
	cfg := auth.Config{Log: log}
	if f.tokens != "" {
		if cfg.Registry, err = auth.OpenRegistry(f.tokens, log); err != nil {
			return nil, err
		}
	}
	x.Asks = f.tokens != "" || x.Server != nil && x.Server.Users()
	if f.audit != "" {
		if x.Audit, err = auth.OpenAudit(f.audit, log); err != nil {
			return nil, err
		}
	} else if x.Asks {
		x.Audit = auth.NewAudit(log)
	}
	if f.reads && x.Audit == nil {
		return nil, cli.Usagef("--audit-reads: there is no audit log: nobody is asked " +
			"who they are; name --auth, or a file with --audit for what comes over the socket")
	}
	if cfg.Audit, cfg.Reads = x.Audit, f.reads; x.Asks {
		x.guard = auth.New(cfg)
	}
	return x, nil
}

// Listen opens a TCP listener on an address that Check allows. remedy is added to the error
// of an address that is not available.
func (x *Access) Listen(ctx context.Context, address, remedy string) (net.Listener, error) {
	network := "tcp"
	if strings.HasPrefix(address, "0.0.0.0:") {
		network = "tcp4" // net listens at all IPv6 addresses, too, for tcp
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, remedy)
	}
	if err := x.Check(l.Addr()); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Check returns a usage error if a service at an address would accept other machines without
// TLS or without authentication. Insecure turns the error into a warning in the log.
func (x *Access) Check(at net.Addr) error {
	if a, ok := at.(*net.TCPAddr); ok && a.IP.IsLoopback() {
		return nil
	}
	var lacks string
	switch {
	case x.Server == nil:
		lacks = "TLS"
	case !x.Asks:
		lacks = "asking who they are"
	default:
		return nil
	}
	if !x.Insecure {
		return cli.Usagef("%s can be reached from other machines, and would be served "+
			"without %s: wattmark auth init makes what --auth DIR wants; or keep to 127.0.0.1 and use a tunnel; or, "+
			"where everybody on the network may do everything, --insecure", at, lacks)
	}
	x.Log.Warn("INSECURE: other machines are served without "+lacks+", because of --insecure", "address", at.String())
	return nil
}

// ServerOptions returns the options of the gRPC server: TLS, authentication and limits.
func (x *Access) ServerOptions(limit *limits.Guard) []grpc.ServerOption {
	var c *tls.Config
	if x.Server != nil {
		c = x.Server.Config()
	}
	switch {
	case x.guard != nil:
		return append(x.guard.ServerOptions(c, limit.Tap), limit.Options()...)
	case c != nil: // TLS without authentication
		return append(limit.ServerOptions(), grpc.Creds(auth.Handshakes(c)))
	}
	return limit.ServerOptions()
}

// InsideOptions returns the options of the gRPC server behind a pipe within this process:
// authentication and the limits of calls, without TLS and limits of connections.
func (x *Access) InsideOptions(limit *limits.Guard) []grpc.ServerOption {
	if x.guard == nil {
		return limit.Inside()
	}
	return append(x.guard.ServerOptions(nil), limit.Inside()...)
}

// Web returns the listener of a website, with TLS if the service has it, and its URL scheme.
func (x *Access) Web(l net.Listener) (net.Listener, string) {
	if x.Server == nil {
		return l, "http://"
	}
	return tls.NewListener(l, x.Server.Config("h2", "http/1.1")), "https://"
}

// Ask returns a middleware that authenticates requests to a website, and a function that
// returns a request's user, for limits. Both are nil without authentication; user works only
// after before was called. Sessions end with ctx.
func (x *Access) Ask(ctx context.Context) (before func(http.Handler) http.Handler, user func(*http.Request) string) {
	if x.guard == nil {
		return nil, nil
	}
	var h *signin.Handler
	before = func(next http.Handler) http.Handler {
		h = signin.New(ctx, x.guard, next, nil)
		return h
	}
	return before, func(r *http.Request) string { return h.User(r) }
}

// Peers returns a guard for a Unix socket, which identifies callers by their account.
func (x *Access) Peers(roles map[string]auth.Role) *auth.Guard {
	return auth.New(auth.Config{Accounts: roles, Audit: x.Audit, Reads: x.reads, Log: x.Log})
}

// Expiring is the time before the expiry of a certificate or token at which warnings begin.
const Expiring = 30 * 24 * time.Hour

// Run ends the calls of revoked callers, and warns once a day of a server certificate that
// expires soon. It blocks until ctx ends.
func (x *Access) Run(ctx context.Context) {
	var g sync.WaitGroup
	defer g.Wait()
	if x.guard != nil {
		g.Go(func() { x.guard.Run(ctx) })
	}
	for range backoff.Rounds(ctx.Done(), 24*time.Hour) {
		if x.Server == nil {
			continue
		}
		if at, err := x.Server.Expires(); err == nil && time.Until(at) < Expiring {
			x.Log.Warn("the server's certificate expires soon: wattmark auth cert --server makes a new one, which "+
				"needs no restart", "expires", at.UTC().Format(time.RFC3339))
		}
	}
}

// Reopen opens the audit log again by its name, after log rotation.
func (x *Access) Reopen() error {
	err := x.Audit.Reopen()
	if err != nil {
		x.Log.Error("reload: the audit log stays where it is", "error", err)
	}
	return err
}

// rights are the rights of the roles in a cluster. Hosts and monitors publish; a store also
// removes tasks that all stores have taken.
var rights = map[auth.Role]cluster.Right{
	auth.Viewer: cluster.Reads, auth.Measurer: cluster.Publishes, auth.Operator: cluster.Takes,
	auth.Admin: cluster.Runs,
}

// Cluster returns the access control of a cluster node: by token if there is one, else by
// the verified certificate. It requires TLS; an error without a CA.
func (x *Access) Cluster() (*cluster.Access, error) {
	nodes, err := x.Server.Nodes()
	if err != nil {
		return nil, err
	}
	return &cluster.Access{
		Clients: x.Server.Config(), Nodes: nodes,
		Admit: func(c *tls.ConnectionState, token string) (cluster.Guest, error) {
			var who auth.Identity
			var err error
			if token != "" {
				who, err = x.guard.Header("Bearer " + token)
			} else {
				who, err = x.guard.Certificate(c.VerifiedChains)
			}
			return cluster.Guest{
				Name: who.Name, Right: rights[who.Role],
				Valid: func() error { return x.guard.Valid(who) },
			}, err
		},
	}, nil
}
