package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"wattmark/api/auth"
	"wattmark/api/auth/pki"
)

// authFlags say what is made, and where.
type authFlags struct {
	dir, role, out string
	life           days
	hosts          []string
	server         bool
	named          bool // the folder was, by --dir or WATTMARK_AUTH
}

// days is a time that is said in days, or as Go says it.
type days time.Duration

// String is part of pflag.Value.
func (d *days) String() string {
	if t := time.Duration(*d); t%(24*time.Hour) != 0 {
		return t.String()
	}
	return fmt.Sprintf("%dd", time.Duration(*d)/(24*time.Hour))
}

// Set is part of pflag.Value.
func (d *days) Set(s string) error {
	var n int
	var unit string
	if k, _ := fmt.Sscanf(s+" ", "%d%1s", &n, &unit); k == 2 && s == fmt.Sprintf("%dd", n) {
		*d = days(time.Duration(n) * 24 * time.Hour)
		return nil
	}
	t, err := time.ParseDuration(s)
	*d = days(t)
	return err
}

// Type is part of pflag.Value.
func (d *days) Type() string { return "duration" }

const (
	day         = days(24 * time.Hour)
	longestLife = 10 * 365 * day
)

// authDir is where the files are unless told otherwise.
func authDir() string {
	if d := os.Getenv("WATTMARK_AUTH"); d != "" {
		return d
	}
	installed := filepath.Join(configDir, "auth")
	if _, err := os.Stat(installed); err == nil || os.Geteuid() == 0 {
		return installed
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "auth"
	}
	return filepath.Join(dir, "wattmark", "auth")
}

func (f *authFlags) register(fl *pflag.FlagSet, life days, what string) {
	fl.StringVar(&f.dir, "dir", "", "folder of the CA and the tokens (also WATTMARK_AUTH; default /etc/wattmark/auth, or wattmark/auth in your configuration)")
	f.life = life
	if what != "" {
		fl.Var(&f.life, "expires", "how long "+what+" holds, as in 90d or 12h")
	}
}

func (f *authFlags) check() error {
	if f.life <= 0 || f.life > longestLife {
		return withCode(exitUsage, fmt.Errorf("--expires %v: want more than 0, and at most %v", &f.life, new(longestLife)))
	}
	f.named = f.dir != "" || os.Getenv("WATTMARK_AUTH") != ""
	f.dir = firstOf(f.dir, authDir())
	return nil
}

func (f *authFlags) tokens() string { return filepath.Join(f.dir, pki.Tokens) }

// has fails unless the folder holds the file: what is added to a folder that no server
// reads lets nobody in.
func (f *authFlags) has(file string) error {
	_, err := os.Stat(filepath.Join(f.dir, file))
	if errors.Is(err, fs.ErrNotExist) {
		return withCode(exitNotFound, fmt.Errorf("no %s in %s: name the folder that the services use with --dir (or WATTMARK_AUTH), or make one: wattmark auth init --dir %s --host NAME", file, f.dir, f.dir))
	}
	return err
}

// forTokens fails unless servers may be reading the folder's tokens: it has a CA, or, where
// it was named, a list of tokens, as beside certificates of a site's own CA.
func (f *authFlags) forTokens() error {
	if f.named && f.has(pki.Tokens) == nil {
		return nil
	}
	return f.has(pki.CACert)
}

// ca returns the folder's CA, with its key.
func (f *authFlags) ca() (*pki.CA, error) {
	if err := f.has(pki.CACert); err != nil {
		return nil, err
	}
	ca, err := pki.LoadCA(f.dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: make certificates where the key is kept", err)
	}
	return ca, err
}

func (a *app) authCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "auth", Short: "Say who may do what: a private CA, certificates, tokens",
		Long: `Make what TLS and signing in need: a private CA with certificates for servers and
users, and tokens. A user has a role: viewer reads; measurer measures, and deletes
what is their own; operator also ends and releases captures of others; admin also
deletes what others measured.

docs/security.md shows how to set up a lab.`,
	}
	c.AddCommand(a.authInitCmd(), a.authTokenCmd(), a.authCertCmd(), a.authListCmd(), a.authRevokeCmd())
	return c
}

func (a *app) authInitCmd() *cobra.Command {
	var f authFlags
	c := &cobra.Command{
		Use: "init --host NAME…", Short: "Make a CA, a server's certificate and an administrator's token", Args: cobra.NoArgs,
		Long: `Make a private CA and a certificate for servers of the names and addresses given,
in one folder, and a first token, of the role admin. Services are started with
--auth FOLDER; clients need ca.crt and a token.

The token is printed, once, or written to the file that -o names. It is in no file of
the folder, which goes to the machines that serve. ca.key is needed only to make
certificates: keep it off these machines.`,
		Example: "  wattmark auth init --dir /etc/wattmark/auth --host gpu-host --host lab-monitor --host 192.0.2.7 -o admin.token\n  wattmark monitor --auth /etc/wattmark/auth --bench bench.yaml --listen :7551",
		RunE: func(*cobra.Command, []string) error {
			if err := f.check(); err != nil {
				return err
			}
			if len(f.hosts) == 0 {
				return withCode(exitUsage, errors.New("name the servers with --host, as clients will dial them"))
			}
			return a.authInit(f)
		},
	}
	f.register(c.Flags(), 397*day, "the server's certificate and the token")
	c.Flags().StringSliceVar(&f.hosts, "host", nil, "a name or address of a server (repeatable)")
	c.Flags().StringVarP(&f.out, "output", "o", "", "new file for the administrator's token, which nobody else can read (default: standard output)")
	return c
}

func (a *app) authInit(f authFlags) error {
	now := time.Now()
	if _, err := os.Stat(filepath.Join(f.dir, pki.CACert)); err == nil {
		return fmt.Errorf("%s has a CA already: wattmark auth cert and wattmark auth token add to it", f.dir)
	}
	if _, err := os.Lstat(f.out); f.out != "" && err == nil {
		return fmt.Errorf("%s exists: name a new file for the token with -o", f.out)
	}
	ca, err := pki.NewCA(f.dir, now)
	if err != nil {
		return err
	}
	f.server = true
	if err := a.issue(ca, f, filepath.Join(f.dir, "server"), func() (pki.Pair, error) { return ca.Server(f.hosts, now, time.Duration(f.life)) }); err != nil {
		return err
	}
	text, err := f.addToken("admin", auth.Admin, now, f.out)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.out, "CA       %s\nserver   %s\nadmin    %s\n\nservices: --auth %s\nclients:  --tls-ca %s --token-file %s\n",
		filepath.Join(f.dir, pki.CACert), filepath.Join(f.dir, pki.ServerCert), firstOf(f.out, text), f.dir, filepath.Join(f.dir, pki.CACert), firstOf(f.out, "FILE"))
	return nil
}

// issue makes a certificate, writes base.crt and base.key, and keeps that it did.
func (a *app) issue(_ *pki.CA, f authFlags, base string, make func() (pki.Pair, error)) error {
	p, err := make()
	if err != nil {
		return err
	}
	if f.server && f.out == "" { // renewed in place
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

// addToken makes a token, and writes it to a new file unless out is empty: a token that
// cannot be given to anybody is not kept either.
func (f *authFlags) addToken(name string, role auth.Role, now time.Time, out string) (text string, err error) {
	text, t, err := auth.NewToken(name, role, now, time.Duration(f.life))
	if err != nil {
		return "", withCode(exitUsage, err)
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
