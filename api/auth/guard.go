package auth

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Config is what a guard knows people by.
type Config struct {
	// Registry has the tokens, and the certificates that were revoked; nil for neither.
	Registry *Registry
	// Accounts are the roles of accounts of this machine, by name, at the other end of a
	// unix socket. Root and this program's own account are admin; others are measurer.
	Accounts map[string]Role
	// Audit keeps who did what; nil for nothing.
	Audit *Audit
	// Reads keeps there who reads what, too.
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

	mu    sync.Mutex
	calls map[*call]struct{}
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
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Guard{cfg: cfg, calls: map[*call]struct{}{}}
}

// howTo tells who was not let in what to do.
const howTo = "give a token (--token-file, WATTMARK_TOKEN) or a client certificate (--tls-cert, --tls-key)"

// maxHeader is the longest Authorization header that is looked at, in bytes.
const maxHeader = maxToken + len("Bearer ")

// Header says who asks by an Authorization header.
func (g *Guard) Header(header string) (Identity, error) {
	scheme, token, _ := strings.Cut(header, " ")
	if len(header) > maxHeader || !strings.EqualFold(scheme, "bearer") || g.cfg.Registry == nil {
		return Identity{}, fmt.Errorf("%w: want an Authorization header of the form: Bearer wm_…", ErrUnknown)
	}
	return g.cfg.Registry.Token(strings.TrimSpace(token), g.cfg.Now())
}

// Certificate says who asks by the chains that TLS has verified.
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
		return Identity{}, fmt.Errorf("%w: this certificate names no user with a role: make one with wattmark auth cert", ErrUnknown)
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

// account is who an account of this machine is.
func (g *Guard) account(uid uint32) Identity {
	if i, known := g.accounts.Load(uid); known {
		return i.(Identity)
	}
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

// recheckEvery is how long somebody who was revoked may go on reading at most.
const recheckEvery = time.Second

// Run ends calls whose callers were revoked, or have expired, until ctx ends.
func (g *Guard) Run(ctx context.Context) {
	tick := time.NewTicker(recheckEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			g.Recheck()
		}
	}
}

// Recheck ends the calls that go on of who may not go on.
func (g *Guard) Recheck() {
	g.mu.Lock()
	all := make([]*call, 0, len(g.calls))
	for c := range g.calls {
		all = append(all, c)
	}
	g.mu.Unlock()
	for _, c := range slices.Clip(all) {
		if err := g.Valid(c.who); err != nil {
			c.cancel(err)
		}
	}
}

// Watch returns a context that ends when who asks is revoked or expires; Run looks.
// leave is to be called when the call has ended.
func (g *Guard) Watch(ctx context.Context, who Identity) (watched context.Context, leave func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := &call{who, cancel}
	g.mu.Lock()
	g.calls[c] = struct{}{}
	g.mu.Unlock()
	return ctx, func() {
		g.mu.Lock()
		delete(g.calls, c)
		g.mu.Unlock()
		cancel(nil)
	}
}

// Audit is where the guard keeps who did what.
func (g *Guard) Audit() *Audit { return g.cfg.Audit }
