package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"wattmark/api/auth"
	"wattmark/api/auth/pki"
	"wattmark/measure"
)

func (a *app) authTokenCmd() *cobra.Command {
	var f authFlags
	c := &cobra.Command{
		Use: "token NAME", Short: "Make a token for a user", Args: cobra.ExactArgs(1),
		Long: `Make a token for a user and print it, once: only its hash is kept, in tokens.json of
the folder that wattmark auth init made. Services that read this file know the token
at once.`,
		Example: "  wattmark auth token ada --role measurer -o ada.token\n  wattmark auth token gpu-host --role operator --expires 365d -o host.token",
		RunE: func(_ *cobra.Command, args []string) error {
			role, err := auth.ParseRole(f.role)
			if err = errors.Join(err, f.check()); err != nil {
				return withCode(exitUsage, err)
			}
			if err := f.forTokens(); err != nil {
				return err
			}
			text, err := f.addToken(args[0], role, time.Now(), f.out)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.err, "token of %s (%v): known to services that read %s\n", args[0], role, f.tokens())
			if f.out == "" {
				fmt.Fprintln(a.out, text)
			}
			return nil
		},
	}
	f.register(c.Flags(), 90*day, "the token")
	c.Flags().StringVar(&f.role, "role", auth.Measurer.String(), "viewer, measurer, operator or admin")
	c.Flags().StringVarP(&f.out, "output", "o", "", "new file for the token, which nobody else can read (default: standard output)")
	return c
}

func (a *app) authCertCmd() *cobra.Command {
	var f authFlags
	c := &cobra.Command{
		Use: "cert NAME | --server --host NAME…", Short: "Make a certificate for a user, or a server's anew", Args: cobra.MaximumNArgs(1),
		Long: `Make a certificate of the private CA that wattmark auth init made: for a user, with
their name and role in it, or with --server for services.

A server's is put in place of the one that is there: services that run take it
from the next connection on.`,
		Example: "  wattmark auth cert ada --role measurer -o ada       # ada.crt, ada.key\n  wattmark auth cert --server --host gpu-host --host 192.0.2.7",
		RunE: func(_ *cobra.Command, args []string) error {
			role, err := auth.ParseRole(f.role)
			if err = errors.Join(err, f.check()); err != nil {
				return withCode(exitUsage, err)
			}
			if f.server != (len(args) == 0) || f.server != (len(f.hosts) > 0) {
				return withCode(exitUsage, errors.New("name a user, or --server and its names with --host"))
			}
			return a.authCert(f, role, args)
		},
	}
	f.register(c.Flags(), 397*day, "the certificate")
	fl := c.Flags()
	fl.StringVar(&f.role, "role", auth.Measurer.String(), "viewer, measurer, operator or admin")
	fl.StringVarP(&f.out, "output", "o", "", "new files, without .crt and .key (default: NAME here, or server in the folder)")
	fl.BoolVar(&f.server, "server", false, "a certificate for services")
	fl.StringSliceVar(&f.hosts, "host", nil, "a name or address of the server (repeatable)")
	return c
}

func (a *app) authCert(f authFlags, role auth.Role, args []string) error {
	now := time.Now()
	ca, err := f.ca()
	if err != nil {
		return err
	}
	base, life := firstOf(f.out, filepath.Join(f.dir, "server")), time.Duration(f.life)
	issue := func() (pki.Pair, error) { return ca.Server(f.hosts, now, life) }
	if !f.server {
		base = firstOf(f.out, args[0])
		issue = func() (pki.Pair, error) { return ca.User(args[0], role, now, life) }
	}
	if err := a.issue(ca, f, base, issue); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "CA            %s\ncertificate   %s.crt\nkey           %s.key\n", filepath.Join(f.dir, pki.CACert), base, base)
	return nil
}

// credentialReport is a token or a certificate, as it is listed.
type credentialReport struct {
	Kind    string     `json:"kind"`
	ID      string     `json:"id"`
	Name    string     `json:"name"`
	Role    string     `json:"role,omitempty"`
	Expires time.Time  `json:"expires"`
	Revoked *time.Time `json:"revoked,omitempty"`
	State   string     `json:"state"`
}

func newCredentialReport(kind, id, name string, role auth.Role, expires, revoked, now time.Time) credentialReport {
	r := credentialReport{Kind: kind, ID: id, Name: measure.Printable(name), Expires: expires, State: "valid"}
	if role != auth.Nobody {
		r.Role = role.String()
	}
	switch {
	case !revoked.IsZero():
		r.Revoked, r.State = &revoked, "revoked"
	case !now.Before(expires):
		r.State = "expired"
	case expires.Sub(now) < expiring:
		r.State = "expires soon"
	}
	return r
}

func listCredentials(l *auth.List, now time.Time) (out []credentialReport) {
	for _, t := range l.Tokens {
		out = append(out, newCredentialReport("token", t.ID, t.Name, t.Role, t.Expires, t.Revoked, now))
	}
	for _, c := range l.Certificates {
		out = append(out, newCredentialReport("certificate", c.Serial, c.Name, c.Role, c.Expires, c.Revoked, now))
	}
	return out
}

func (a *app) authListCmd() *cobra.Command {
	var f authFlags
	c := &cobra.Command{
		Use: "list", Short: "List tokens and certificates, and until when they hold", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := f.check(); err != nil {
				return err
			}
			if err := f.has(pki.Tokens); err != nil {
				return err
			}
			l, err := auth.ReadList(f.tokens())
			if err != nil {
				return err
			}
			all := listCredentials(l, time.Now())
			if a.json {
				return a.printJSON(struct {
					Credentials []credentialReport `json:"credentials"`
				}{append([]credentialReport{}, all...)})
			}
			renderCredentials(a.out, all)
			return nil
		},
	}
	f.register(c.Flags(), day, "")
	return a.jsonFlag(c)
}

func renderCredentials(w io.Writer, all []credentialReport) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KIND\tID\tNAME\tROLE\tEXPIRES\tSTATE")
	for _, c := range all {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", c.Kind, measure.Printable(c.ID), c.Name, firstOf(c.Role, "server"), c.Expires.Local().Format("2006-01-02"), c.State)
	}
	_ = t.Flush()
}

func (a *app) authRevokeCmd() *cobra.Command {
	var f authFlags
	c := &cobra.Command{
		Use: "revoke ID|NAME", Short: "Revoke a token or a certificate, or all of a user", Args: cobra.ExactArgs(1),
		Long: `Revoke what has an id or a serial number, or all that a user has. Services that
read the same file refuse it from the next call on, and end within a second what
goes on; another machine's copy of the file must be renewed too.`,
		Example: "  wattmark auth revoke mfrggzdf\n  wattmark auth revoke ada",
		RunE: func(_ *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			if err := f.has(pki.Tokens); err != nil {
				return err
			}
			var revoked []string
			err := auth.Change(f.tokens(), func(l *auth.List) error {
				if revoked = l.Revoke(args[0], time.Now()); len(revoked) == 0 {
					return withCode(exitNotFound, fmt.Errorf("%s has nothing of %q to revoke: wattmark auth list shows what there is", f.dir, args[0]))
				}
				return nil
			})
			for _, r := range revoked {
				fmt.Fprintln(a.out, "revoked", measure.Printable(r))
			}
			return err
		},
	}
	f.register(c.Flags(), day, "")
	return c
}
