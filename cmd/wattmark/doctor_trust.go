package main

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"wattmark/api/auth"
	"wattmark/api/auth/pki"
)

// distrusted judges a service that is there, and does not let us in, or that we do not
// trust.
func distrusted(name, address string, err error) (finding, bool) {
	text := firstLineOf(err)
	switch {
	case strings.Contains(text, "not signed in"):
		return failed(name, "give a token (--token-file, WATTMARK_TOKEN) or a certificate (--tls-cert, --tls-key); wattmark auth token makes one", "answers at %s, and asks who you are: %s", address, text), true
	case strings.Contains(text, "handshake failed"), strings.Contains(text, "server preface"):
		return failed(name, "name the CA of its certificate (--tls-ca), and dial a name that is in it; without TLS leave --tls-ca out", "somebody answers at %s, but not as we speak: %s", address, text), true
	}
	return finding{}, false
}

// access looks at the CA, the certificates and the tokens of this machine.
func (d *doctor) access(now time.Time) (out []finding) {
	if d.auth == "" || !d.exists(d.auth) {
		return nil
	}
	for _, name := range []string{pki.CACert, pki.ServerCert} {
		out = append(out, certificateFinding(filepath.Join(d.auth, name), now)...)
	}
	if key := filepath.Join(d.auth, pki.ServerKey); d.exists(key) {
		if _, err := auth.ReadSecret(key); err != nil && !errors.Is(err, fs.ErrPermission) {
			out = append(out, failed("access", "let its owner alone read it", "%v", err))
		}
	}
	l, err := auth.ReadList(filepath.Join(d.auth, pki.Tokens))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return out
	case errors.Is(err, fs.ErrPermission):
		return append(out, ok("access", "the tokens in %s are not this user's to read", d.auth))
	case err != nil:
		return append(out, failed("access", "services let nobody in until this was mended", "%v", err))
	}
	return append(out, tokenFindings(l, now)...)
}

func certificateFinding(path string, now time.Time) []finding {
	b, err := auth.ReadPublic(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	var c *x509.Certificate
	if err == nil {
		if block, _ := pem.Decode(b); block != nil {
			c, err = x509.ParseCertificate(block.Bytes)
		} else {
			err = errors.New(path + " is no certificate")
		}
	}
	const remedy = "wattmark auth cert --server makes a new one, which needs no restart"
	switch {
	case err != nil:
		return []finding{failed("access", "wattmark auth cert makes one", "%v", err)}
	case !now.Before(c.NotAfter):
		return []finding{failed("access", remedy, "%s expired at %s", path, c.NotAfter.Format(time.DateOnly))}
	case c.NotAfter.Sub(now) < expiring:
		return []finding{warn("access", remedy, "%s expires at %s", path, c.NotAfter.Format(time.DateOnly))}
	}
	return []finding{ok("access", "%s holds until %s", path, c.NotAfter.Format(time.DateOnly))}
}

func tokenFindings(l *auth.List, now time.Time) (out []finding) {
	valid := 0
	for _, t := range l.Tokens {
		switch {
		case !t.Revoked.IsZero() || !now.Before(t.Expires):
		case t.Expires.Sub(now) < expiring/4:
			out = append(out, warn("access", "wattmark auth token makes a new one", "the token %s of %s expires at %s", t.ID, t.Name, t.Expires.Format(time.DateOnly)))
		default:
			valid++
		}
	}
	return append(out, ok("access", "%s, and %s that expire soon", plural(valid, "valid token"), plural(len(out), "token")))
}
