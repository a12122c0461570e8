package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/api/auth"
	"github.com/wattmark/wattmark/api/auth/pki"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/daemon"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/measure"
)

// AuthFlags are the flags of the auth commands: the folder, and the credential to
// make.
type AuthFlags struct {
	Dir, role, out string
	// Life is the validity of a new credential, at most longestLife.
	Life  Days
	hosts []string
	named bool // the folder was given by --auth or WATTMARK_AUTH
}

// Days is a duration flag that accepts days, as in 90d, beside Go's units.
type Days time.Duration

func (d *Days) String() string {
	if t := time.Duration(*d); t%(24*time.Hour) != 0 {
		return t.String()
	}
	return fmt.Sprintf("%dd", time.Duration(*d)/(24*time.Hour))
}

func (d *Days) Set(s string) error {
	var n int
	var unit string
	// Only the plain form NUMBERd is days; all else is Go's syntax.
	if k, _ := fmt.Sscanf(s+" ", "%d%1s", &n, &unit); k == 2 && s == fmt.Sprintf("%dd", n) {
		*d = Days(time.Duration(n) * 24 * time.Hour)
		return nil
	}
	t, err := time.ParseDuration(s)
	*d = Days(t)
	return err
}

func (d *Days) Type() string { return "days" }

const (
	day         = Days(24 * time.Hour)
	longestLife = 10 * 365 * day
)

// AuthDir returns the default folder of the credentials: WATTMARK_AUTH, else
// /etc/wattmark/auth if it exists or this is root, else wattmark/auth in the
// user's configuration.
func AuthDir() string {
	if d := os.Getenv("WATTMARK_AUTH"); d != "" {
		return d
	}
	installed := filepath.Join(daemon.ConfigDir, "auth")
	if _, err := os.Stat(installed); err == nil || os.Geteuid() == 0 {
		return installed
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "auth"
	}
	return filepath.Join(dir, "wattmark", "auth")
}

// register defines --auth and, with a name for the credential, --valid with the default
// life.
func (f *AuthFlags) register(fl *pflag.FlagSet, life Days, what string) {
	fl.StringVar(&f.Dir, "auth", "",
		"folder of the CA and the tokens (also WATTMARK_AUTH; default /etc/wattmark/auth, or wattmark/auth in your "+
			"configuration)")
	f.Life = life
	if what != "" {
		fl.Var(&f.Life, "valid", "how long "+what+" holds, as in 90d or 12h")
	}
}

// check validates the life and sets the folder's default. It must run before the
// other methods.
func (f *AuthFlags) check() error {
	if f.Life <= 0 || f.Life > longestLife {
		return cli.Usagef("--valid %v: want more than 0, and at most %v", &f.Life, new(longestLife))
	}
	f.named = f.Dir != "" || os.Getenv("WATTMARK_AUTH") != ""
	f.Dir = cmp.Or(f.Dir, AuthDir())
	return nil
}

// tokens returns the path of the list of tokens and certificates.
func (f *AuthFlags) tokens() string { return filepath.Join(f.Dir, pki.Tokens) }

// has returns an error with exit code ExitNotFound unless the folder holds the
// file. A credential in a folder that no server reads would admit nothing.
func (f *AuthFlags) has(file string) error {
	_, err := os.Stat(filepath.Join(f.Dir, file))
	if errors.Is(err, fs.ErrNotExist) {
		return cli.NotFoundf("no %s in %s: name the folder that the services use with --auth (or WATTMARK_AUTH), or make "+
			"one: wattmark auth init --auth %s --server NAME", file, f.Dir, f.Dir)
	}
	return err
}

// existing is check for a folder that must hold a list of tokens.
func (f *AuthFlags) existing() error {
	if err := f.check(); err != nil {
		return err
	}
	return f.has(pki.Tokens)
}

// ca loads the folder's CA with its key, which may be kept on another machine.
func (f *AuthFlags) ca() (*pki.CA, error) {
	if err := f.has(pki.CACert); err != nil {
		return nil, err
	}
	ca, err := pki.LoadCA(f.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: make certificates where the key is kept", err)
	}
	return ca, err
}

// authInitCmd returns auth init: CA, server certificate and administrator's token.
func authInitCmd(a *cli.App) *cobra.Command {
	var f AuthFlags
	c := cli.Command("init --server NAME…", "Make a CA, a server's certificate and an administrator's token", cobra.NoArgs,
		func(_ context.Context, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			if len(f.hosts) == 0 {
				return cli.Usagef("name the servers with --server, as clients will dial them")
			}
			now := time.Now()
			cert := filepath.Join(f.Dir, pki.CACert)
			// Refuse before anything is written: a folder that has a CA, an output file that exists.
			if _, err := os.Stat(cert); err == nil {
				return fmt.Errorf("%s has a CA already: wattmark auth cert and wattmark auth token add to it", f.Dir)
			}
			if _, err := os.Lstat(f.out); f.out != "" && err == nil {
				return fmt.Errorf("%s exists: name a new file for the token with -o", f.out)
			}
			ca, err := pki.NewCA(f.Dir, now)
			if err != nil {
				return err
			}
			pair, err := ca.Server(f.hosts, now, time.Duration(f.Life))
			if err := issueCredential(f, filepath.Join(f.Dir, "server"), pair, err); err != nil {
				return err
			}
			text, err := f.AddToken("admin", auth.Admin, now, f.out)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.Out,
				"CA       %s\nserver   %s\nadmin    %s\n\nservices: --auth %s\nclients:  --tls-ca %s --token-file %s\n",
				cert, filepath.Join(f.Dir, pki.ServerCert), cmp.Or(f.out, text), f.Dir, cert, cmp.Or(f.out, "FILE"))
			return err
		})
	f.register(c.Flags(), 397*day, "the server's certificate and the token")
	c.Flags().StringSliceVar(&f.hosts, "server", nil, "a name or address of a server (repeatable)")
	c.Flags().StringVarP(&f.out, "output", "o", "",
		"new file for the administrator's token, which nobody else can read (default: standard output)")
	return c
}

// issueCredential writes the pair of a certificate, base.key (mode 0600) and base.crt, and
// records it for revocation; err is that of making the pair. A server's pair in its default
// place is replaced; other files must be new.
func issueCredential(f AuthFlags, base string, p pki.Pair, err error) error {
	if err != nil {
		return err
	}
	if len(f.hosts) > 0 && f.out == "" { // renewed in place
		err = errors.Join(auth.Replace(base+".key", p.Key, 0o600), auth.Replace(base+".crt", p.Cert, 0o644))
	} else if err = auth.WriteNew(base+".key", p.Key, 0o600); err == nil {
		err = auth.WriteNew(base+".crt", p.Cert, 0o644)
	}
	if err != nil {
		return err
	}
	return auth.Change(f.tokens(), func(l *auth.List) error {
		l.Certificates = append(l.Certificates, p.Kept)
		return nil
	})
}

// AddToken creates a token and adds its hash to the list; the text is returned and
// kept nowhere else. With out it is written to that new file, mode 0600. Either
// both writes succeed or neither remains: a token without its text would be
// useless.
func (f *AuthFlags) AddToken(name string, role auth.Role, now time.Time, out string) (text string, err error) {
	text, t, err := auth.NewToken(name, role, now, time.Duration(f.Life))
	if err != nil {
		return "", cli.WithCode(cli.ExitUsage, err)
	}
	if out != "" {
		if err := auth.WriteNew(out, []byte(text+"\n"), 0o600); err != nil {
			return "", err
		}
	}
	err = auth.Change(f.tokens(), func(l *auth.List) error {
		l.Tokens = append(l.Tokens, t)
		return nil
	})
	if err != nil && out != "" {
		err = errors.Join(err, os.Remove(out))
	}
	return text, err
}

// authTokenCmd returns auth token; the token's text is shown once and kept nowhere.
func authTokenCmd(a *cli.App) *cobra.Command {
	var f AuthFlags
	c := cli.Command("token NAME", "Make a token for a user", cobra.ExactArgs(1),
		func(_ context.Context, args []string) error {
			role, err := auth.ParseRole(f.role)
			if err = errors.Join(err, f.check()); err != nil {
				return cli.WithCode(cli.ExitUsage, err)
			}
			// Servers read the tokens of a folder with a CA, and of one that was named and has a list of tokens, as
			// beside certificates of a site's own CA.
			if !f.named || f.has(pki.Tokens) != nil {
				if err := f.has(pki.CACert); err != nil {
					return err
				}
			}
			text, err := f.AddToken(args[0], role, time.Now(), f.out)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.Err, "token of %s (%v), known to services that read\n%s\n", args[0], role, f.tokens())
			if f.out == "" {
				fmt.Fprintln(a.Out, text)
			}
			return nil
		})
	f.register(c.Flags(), 90*day, "the token")
	c.Flags().StringVar(&f.role, "role", auth.Measurer.String(), "viewer, measurer, operator or admin")
	c.Flags().StringVarP(&f.out, "output", "o", "",
		"new file for the token, which nobody else can read (default: standard output)")
	return c
}

// authCertCmd returns auth cert, for a user or for the servers of the given hosts.
func authCertCmd(a *cli.App) *cobra.Command {
	var f AuthFlags
	c := cli.Command("cert NAME | --server NAME…", "Make a certificate for a user, or a server's anew",
		cobra.MaximumNArgs(1), func(_ context.Context, args []string) error {
			role, err := auth.ParseRole(f.role)
			if err = errors.Join(err, f.check()); err != nil {
				return cli.WithCode(cli.ExitUsage, err)
			}
			server := len(f.hosts) > 0
			if server != (len(args) == 0) {
				return cli.Usagef("name a user, or the names of a server with --server")
			}
			now := time.Now()
			ca, err := f.ca()
			if err != nil {
				return err
			}
			base, pair := f.out, pki.Pair{}
			if server {
				base = cmp.Or(base, filepath.Join(f.Dir, "server"))
				pair, err = ca.Server(f.hosts, now, time.Duration(f.Life))
			} else {
				base = cmp.Or(base, args[0])
				pair, err = ca.User(args[0], role, now, time.Duration(f.Life))
			}
			if err := issueCredential(f, base, pair, err); err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.Out, "CA            %s\ncertificate   %s.crt\nkey           %s.key\n",
				filepath.Join(f.Dir, pki.CACert), base, base)
			return err
		})
	f.register(c.Flags(), 397*day, "the certificate")
	fl := c.Flags()
	fl.StringVar(&f.role, "role", auth.Measurer.String(), "viewer, measurer, operator or admin")
	fl.StringVarP(&f.out, "output", "o", "",
		"new files, without .crt and .key (default: NAME here, or server in the folder)")
	fl.StringSliceVar(&f.hosts, "server", nil, "a name or address of a server (repeatable)")
	return c
}

// CredentialReport is a token or certificate in JSON. State is valid, expires
// soon, expired or revoked.
type CredentialReport struct {
	Kind    string     `json:"kind"`
	ID      string     `json:"id"`
	Name    string     `json:"name"`
	Role    string     `json:"role,omitempty"`
	Expires time.Time  `json:"expires"`
	Revoked *time.Time `json:"revoked,omitempty"`
	State   string     `json:"state"`
}

// newCredentialReport derives the state at now; revoked outranks expired.
func newCredentialReport(kind, id, name string, role auth.Role, expires, revoked, now time.Time) CredentialReport {
	r := CredentialReport{Kind: kind, ID: id, Name: measure.Printable(name), Expires: expires, State: "valid"}
	if role != auth.Nobody {
		r.Role = role.String()
	}
	switch {
	case !revoked.IsZero():
		r.Revoked, r.State = &revoked, "revoked"
	case !now.Before(expires):
		r.State = "expired"
	case expires.Sub(now) < daemon.Expiring:
		r.State = "expires soon"
	}
	return r
}

// authListCmd returns auth list, in the order of creation; revoked and expired ones stay listed.
func authListCmd(a *cli.App) *cobra.Command {
	var f AuthFlags
	c := cli.Command("list", "List tokens and certificates, and until when they hold", cobra.NoArgs,
		func(_ context.Context, _ []string) error {
			if err := f.existing(); err != nil {
				return err
			}
			l, err := auth.ReadList(f.tokens())
			if err != nil {
				return err
			}
			all, now := []CredentialReport{}, time.Now() // never null in JSON; in the order of their creation
			for _, t := range l.Tokens {
				all = append(all, newCredentialReport("token", t.ID, t.Name, t.Role, t.Expires, t.Revoked, now))
			}
			for _, c := range l.Certificates {
				all = append(all, newCredentialReport("certificate", c.Serial, c.Name, c.Role, c.Expires, c.Revoked, now))
			}
			return a.Print(map[string]any{"credentials": all}, func(w io.Writer) {
				t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
				fmt.Fprintln(t, "KIND\tID\tNAME\tROLE\tEXPIRES\tSTATE")
				for _, c := range all { // those without a role are servers'
					fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", c.Kind, measure.Printable(c.ID), c.Name, cmp.Or(c.Role, "server"),
						c.Expires.Local().Format("2006-01-02"), c.State)
				}
				_ = t.Flush()
			})
		})
	f.register(c.Flags(), day, "")
	return a.JSONFlag(c)
}

// authRevokeCmd returns auth revoke. Services watch the list and end open calls of
// a revoked credential within a second.
func authRevokeCmd(a *cli.App) *cobra.Command {
	var f AuthFlags
	c := cli.Command("revoke ID|NAME", "Revoke a token or a certificate, or all of a user", cobra.ExactArgs(1),
		func(_ context.Context, args []string) error {
			if err := f.existing(); err != nil {
				return err
			}
			var revoked []string
			err := auth.Change(f.tokens(), func(l *auth.List) error {
				if revoked = l.Revoke(args[0], time.Now()); len(revoked) == 0 {
					return cli.NotFoundf("%s has nothing of %q to revoke: wattmark auth list shows what there is",
						f.Dir, args[0])
				}
				return nil
			})
			for _, r := range revoked {
				fmt.Fprintln(a.Out, "revoked", measure.Printable(r))
			}
			return err
		})
	f.register(c.Flags(), day, "")
	return c
}

// takeoverCmd returns takeover, which ends the capture of another user; the
// monitor requires the role operator.
func takeoverCmd(a *cli.App) *cobra.Command {
	var address, why, capture string
	c := cli.Command("takeover --reason WHY", "Take the bench from its holder, as an operator", cobra.NoArgs,
		func(ctx context.Context, _ []string) error {
			if why == "" {
				return cli.Usagef("say why with --reason: the holder reads it")
			}
			_, by := cli.Whoami()
			m, err := cli.DialMeter(ctx, address, monitorclient.Options{Version: cli.Version()})
			if err != nil {
				return err
			}
			defer m.Close()
			id, holder, reason, err := m.End(ctx, capture, by, why)
			if err != nil {
				return err
			}
			return a.Print(map[string]string{"capture_id": id, "holder": holder, "reason": reason}, func(w io.Writer) {
				fmt.Fprintf(w, "capture %s of %s has ended: %s\n", id, holder, reason)
			})
		})
	fl := c.Flags()
	cli.MonitorFlag(fl, &address, "address of the monitor")
	fl.StringVar(&why, "reason", "", "why, for the holder to read")
	fl.StringVar(&capture, "capture", "", "capture to end (default: the one that has the bench)")
	return a.JSONFlag(c)
}
