package main

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/service"
	"github.com/wattmark/wattmark/internal/coverage"
)

// What an administrator types makes files that only they can read, and tells what there
// is.
func TestAuthCommands(t *testing.T) {
	t.Parallel()
	dir, out := filepath.Join(t.TempDir(), "auth"), t.TempDir()
	at := func(args ...string) []string { return append(append([]string{"auth"}, args...), "--auth", dir) }
	inside(t, at("list")...).fails(t, cli.ExitNotFound, "tokens.json", "auth init --auth "+dir)
	inside(t, at("init")...).fails(t, cli.ExitUsage, "--server")
	admin := filepath.Join(out, "admin.token")
	if got := inside(t, at("init", "--server", "lab", "--server", "192.0.2.7", "-o", admin)...).ok(t).out; !strings.Contains(got, "--auth "+dir) || strings.Contains(got, "wm_") {
		t.Error(got)
	}
	if got := inside(t, "auth", "init", "--auth", filepath.Join(out, "second"), "--server", "lab").ok(t).out; strings.Count(got, "wm_") != 1 {
		t.Errorf("an administrator's token that no file has is not printed once: %s", got)
	}
	for _, folder := range []string{dir, filepath.Join(out, "second")} {
		files, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if b, err := os.ReadFile(filepath.Join(folder, f.Name())); err != nil || strings.Contains(string(b), "wm_") {
				t.Errorf("%s, which goes to the machines that serve, has a token: %v", f.Name(), err)
			}
		}
	}
	inside(t, at("init", "--server", "lab")...).fails(t, cli.ExitFailed, "has a CA already")
	made := inside(t, at("token", "ada", "--valid", "2d")...).ok(t)
	if !strings.Contains(made.err, filepath.Join(dir, "tokens.json")) {
		t.Errorf("where the token is known is not said: %q", made.err)
	}
	token := strings.TrimSpace(made.out)
	if !regexp.MustCompile(`^wm_[a-z2-7]{8}_[a-z2-7]{52}$`).MatchString(token) {
		t.Errorf("a token %q", token)
	}
	bob := filepath.Join(out, "bob.token")
	if got := inside(t, at("token", "bob", "--role", "viewer", "-o", bob)...).ok(t).out; got != "" {
		t.Errorf("a token that goes into a file is told: %s", got)
	}
	inside(t, at("token", "bob", "-o", bob)...).fails(t, cli.ExitFailed, "exists")
	inside(t, at("cert", "ada", "--role", "operator", "-o", filepath.Join(out, "ada"))...).ok(t)
	for _, wrong := range [][]string{{"token", "a b"}, {"token", "ada", "--role", "king"}, {"token", "ada", "--valid", "0d"}, {"token", "ada", "--valid", "9999d"}, {"cert"}, {"cert", "--server"}, {"cert", "ada", "--server", "x"}} {
		if r := inside(t, at(wrong...)...); r.code != cli.ExitUsage {
			t.Errorf("%v: %d %s", wrong, r.code, r.err)
		}
	}
	for name, mode := range map[string]os.FileMode{
		dir + "/ca.key": 0o600, dir + "/server.key": 0o600, dir + "/tokens.json": 0o600, admin: 0o600, bob: 0o600,
		filepath.Join(out, "ada.key"): 0o600, dir + "/ca.crt": 0o644,
	} {
		if s, err := os.Stat(name); err != nil || s.Mode().Perm()&^mode != 0 {
			t.Errorf("%s: %v %v", name, s.Mode(), err)
		}
	}
	kept, err := os.ReadFile(dir + "/tokens.json")
	if err != nil || strings.Contains(string(kept), strings.Split(token, "_")[2]) {
		t.Errorf("the secret is kept: %v", err)
	}
	var l struct {
		Credentials []service.CredentialReport `json:"credentials"`
	}
	list := func() (states string) {
		t.Helper()
		l.Credentials = nil
		object(t, inside(t, at("list", "--json")...).ok(t).out, &l)
		for _, c := range l.Credentials {
			states += c.Name + ":" + cmp.Or(c.Role, "server") + ":" + c.State + " "
		}
		return states
	}
	const before = "admin:admin:valid ada:measurer:expires soon bob:viewer:valid lab,192.0.2.7:server:valid ada:operator:valid "
	if got := list(); got != before {
		t.Errorf("listed %s", got)
	}
	if got := inside(t, at("list")...).ok(t).out; !strings.Contains(got, "expires soon") || strings.Contains(got, "sha256") {
		t.Error(got)
	}
	if got := inside(t, at("revoke", "ada")...).ok(t).out; strings.Count(got, "revoked") != 2 {
		t.Error(got)
	}
	inside(t, at("revoke", "ada")...).fails(t, cli.ExitNotFound, "nothing of", "auth list")
	if got := list(); strings.Count(got, ":revoked") != 2 || !strings.Contains(got, "bob:viewer:valid") {
		t.Errorf("listed %s", got)
	}
	inside(t, at("cert", "--server", "lab2")...).ok(t) // in place of the old one
	if err := os.Remove(dir + "/ca.key"); err != nil {
		t.Fatal(err)
	}
	inside(t, at("cert", "carl", "-o", filepath.Join(out, "carl"))...).fails(t, cli.ExitFailed, "where the key is kept")
	if _, err := os.Stat(dir + "/ca.key"); err == nil {
		t.Error("a key was made for somebody else's CA")
	}
}

// In a folder that no service reads nothing is made: a token or a certificate of it would
// let nobody in.
func TestAuthWantsAFolderOfServices(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	empty, missing := t.TempDir(), filepath.Join(out, "none")
	for _, dir := range []string{empty, missing} {
		for _, args := range [][]string{
			{"token", "ada"},
			{"token", "ada", "-o", filepath.Join(out, "ada.token")},
			{"cert", "ada", "-o", filepath.Join(out, "ada")},
			{"cert", "--server", "lab"},
			{"list"},
			{"revoke", "ada"},
		} {
			r := inside(t, append(append([]string{"auth"}, args...), "--auth", dir)...).fails(t, cli.ExitNotFound, dir, "--auth", "wattmark auth init")
			if r.out != "" {
				t.Errorf("%v in %s: %s", args, dir, r.out)
			}
		}
	}
	for _, dir := range []string{empty, out} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("made in %s: %v %v", dir, left, err)
		}
	}
	// Beside a site's own certificates stands a list of tokens alone.
	site := filepath.Join(out, "auth")
	inside(t, "auth", "init", "--auth", site, "--server", "lab").ok(t)
	for _, f := range []string{"ca.crt", "ca.key", "server.crt", "server.key"} {
		if err := os.Remove(filepath.Join(site, f)); err != nil {
			t.Fatal(err)
		}
	}
	inside(t, "auth", "token", "ada", "--auth", site).ok(t)
	inside(t, "auth", "cert", "ada", "--auth", site).fails(t, cli.ExitNotFound, "ca.crt")
}

// What a service will not serve with.
func TestAccessFlags(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "auth")
	inside(t, "auth", "init", "--auth", dir, "--server", "lab").ok(t)
	host := func(more ...string) result {
		t.Helper()
		return inside(t, append([]string{"host", "--db", filepath.Join(t.TempDir(), "x.db"), "--listen", "127.0.0.1:0", "--socket", "none"}, more...)...)
	}
	host("--auth", "/nowhere").fails(t, cli.ExitUsage, "wattmark auth init")
	host("--auth", t.TempDir()).fails(t, cli.ExitUsage, "no tokens.json", "wattmark auth init")
	host("--auth", "").fails(t, cli.ExitUsage, "--auth is empty")
	host("--tokens", "").fails(t, cli.ExitUsage, "--tokens is empty")
	for _, gone := range []string{"tokens.json", "ca.crt"} { // what a restore forgot
		if err := os.Rename(filepath.Join(dir, gone), filepath.Join(dir, "away-"+gone)); err != nil {
			t.Fatal(err)
		}
		host("--auth", dir).fails(t, cli.ExitUsage, "no tokens.json")
		host("--auth", dir, "--insecure").fails(t, cli.ExitUsage, "no tokens.json")
	}
	for _, back := range []string{"tokens.json", "ca.crt"} {
		if err := os.Rename(filepath.Join(dir, "away-"+back), filepath.Join(dir, back)); err != nil {
			t.Fatal(err)
		}
	}
	empty := filepath.Join(t.TempDir(), "host.yaml")
	if err := os.WriteFile(empty, []byte("auth: \"\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	host("--config", empty).fails(t, cli.ExitUsage, "--auth is empty")
	host("--serve-cert", dir+"/server.crt").fails(t, cli.ExitUsage, "--serve-key")
	host("--client-ca", dir+"/ca.crt").fails(t, cli.ExitUsage, "--serve-cert")
	host("--serve-cert", dir+"/server.crt", "--serve-key", dir+"/ca.key").fails(t, cli.ExitFailed, "does not match")
	host("--tokens", "/nowhere").fails(t, cli.ExitFailed, "list of tokens")
	host("--socket-role", "ada=king", "--socket", filepath.Join(t.TempDir(), "s")).fails(t, cli.ExitUsage, "king")
	host("--audit", "/nowhere/audit").fails(t, cli.ExitFailed, "audit log")
	if err := os.Chmod(dir+"/server.key", 0o644); err != nil {
		t.Fatal(err)
	}
	host("--auth", dir).fails(t, cli.ExitUsage, "server.key", "chmod")
}
