package main_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/api/auth"
	"github.com/wattmark/wattmark/api/auth/pki"
	"github.com/wattmark/wattmark/internal/coverage"
)

// A program that is told so by its environment, and a daemon, measure at a monitor that
// speaks TLS and asks who they are; without a token they are told what to do.
func TestBehindTLS(t *testing.T) {
	coverage.Long(t)
	library(t)
	for _, mode := range []string{"embedded", "daemon"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "auth")
			now := time.Now()
			ca, err := pki.NewCA(dir, now)
			if err != nil {
				t.Fatal(err)
			}
			p, err := ca.Server([]string{"localhost"}, now, time.Hour)
			text, token, tokenErr := auth.NewToken("lab", auth.Measurer, now, time.Hour)
			err = errors.Join(err, tokenErr, auth.WriteNew(filepath.Join(dir, pki.ServerKey), p.Key, 0o600), auth.WriteNew(filepath.Join(dir, pki.ServerCert), p.Cert, 0o644),
				auth.WriteNew(filepath.Join(dir, "token"), []byte(text), 0o600), auth.Change(filepath.Join(dir, pki.Tokens), func(l *auth.List) error {
					l.Tokens = append(l.Tokens, token)
					return nil
				}))
			if err != nil {
				t.Fatal(err)
			}
			registry, err := auth.OpenRegistry(filepath.Join(dir, pki.Tokens), nil)
			if err != nil {
				t.Fatal(err)
			}
			s, err := pki.OpenServer(filepath.Join(dir, pki.ServerCert), filepath.Join(dir, pki.ServerKey), "", nil)
			if err != nil {
				t.Fatal(err)
			}
			r := newRig(t, auth.New(auth.Config{Registry: registry}).ServerOptions(s.Config())...)
			r.more = []string{"WATTMARK_TLS_CA=" + filepath.Join(dir, pki.CACert)}
			if mode == "embedded" {
				o := r.drive("plain")
				if !strings.Contains(o.out+o.err, "not signed in") {
					t.Errorf("without a token: %s%s", o.out, o.err)
				}
			}
			r.more = append(r.more, "WATTMARK_TOKEN_FILE="+filepath.Join(dir, "token"))
			if mode == "daemon" {
				r.startHost()
			}
			got := parse(t, r.drive("plain"))
			if len(got) != 1 {
				t.Fatalf("got %+v", got)
			}
			r.holds(r.open(), got[0])
		})
	}
}
