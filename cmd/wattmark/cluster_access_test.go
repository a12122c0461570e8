package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/api/auth"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/cluster"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/store/relay"
)

// issued runs wattmark auth, and returns the path of a file that it has made.
func issued(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if got := wattmark(t, append([]string{"auth"}, args...)...); got.code != 0 {
		t.Fatalf("auth %v: %s", args, got.err)
	}
	return path
}

// secured makes a CA with a certificate for this machine, and for other addresses, and a
// token for each role.
func secured(t *testing.T, more ...string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "auth")
	args := []string{"init", "--auth", dir, "--server", "localhost"}
	for _, host := range more {
		args = append(args, "--server", host)
	}
	issued(t, dir, "", args...)
	for _, role := range []string{"viewer", "measurer", "operator"} {
		issued(t, dir, "", "token", role, "--auth", dir, "--role", role, "-o", filepath.Join(dir, role+".token"))
	}
	return dir
}

// as connects as somebody.
func (l *lab) as(c auth.Client, within time.Duration) (*relay.Bus, error) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(cli.Trusting(l.t.Context(), &c), within)
	defer cancel()
	return (&cluster.ClusterFlags{Servers: l.servers()}).Dial(ctx, "test", nil)
}

// Nodes that speak TLS let in who has a token or a certificate of their CA, and no others;
// they know each other by certificates; each role may do its part, and a revoked token ends.
func TestClusterAsksWhoCalls(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	if testing.Short() {
		t.Skip("elections take their time")
	}
	dir, strangers := secured(t), secured(t)
	l := newLab(t, false, "--auth", dir)
	ca := filepath.Join(dir, "ca.crt")
	token := func(role string) auth.Client {
		return auth.Client{CA: ca, TokenFile: filepath.Join(dir, role+".token")}
	}

	for name, c := range map[string]auth.Client{
		"no token":        {CA: ca},
		"another CA":      {CA: filepath.Join(strangers, "ca.crt"), TokenFile: filepath.Join(dir, "operator.token")},
		"another's token": {CA: ca, TokenFile: filepath.Join(strangers, "operator.token")},
		"a certificate of another CA": {
			CA: ca, Cert: issued(t, strangers, "eve.crt", "cert", "eve", "--auth", strangers, "--role", "admin", "-o", filepath.Join(strangers, "eve")), Key: filepath.Join(strangers, "eve.key"),
		},
	} {
		if b, err := l.as(c, patience); !errors.Is(err, relay.ErrRefused) {
			t.Errorf("%s: %v, %v", name, b, err)
		}
	}
	if b, err := l.as(auth.Client{}, 2*time.Second); err == nil || !strings.Contains(err.Error(), "--tls-ca") {
		t.Errorf("no TLS: %v, %v", b, err)
	}
	l.strangers(strangers)
	l.throughTLS(dir)
	l.viewer(token("viewer"))

	b, err := l.as(token("operator"), patience)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	issued(t, dir, "", "revoke", "operator", "--auth", dir)
	l.says("a client has to go")
	if b, err := l.as(token("operator"), patience); !errors.Is(err, relay.ErrRefused) {
		t.Errorf("revoked: %v, %v", b, err)
	}
}

// strangers try to be a node of the cluster, by a certificate of another CA.
func (l *lab) strangers(dir string) {
	l.t.Helper()
	path, err := program()
	if err != nil {
		l.t.Fatal(err)
	}
	var peers []string
	for i := range l.nodes {
		peers = append(peers, l.peer(i))
	}
	p := startCommand(l.t, nil, exec.Command(path, "cluster", "node", "--name", "n9", "--dir", l.t.TempDir(), "--streams", "1",
		"--listen", "127.0.0.1:0", "--nodes", "127.0.0.1:0", "--peers", strings.Join(peers, ","), "--auth", dir))
	p.await(l.t, `TLS (route )?handshake error|certificate`)
	p.kill(l.t)
}

// throughTLS publishes with the token of a measurer whose tasks they are, and stores by an operator's certificate.
func (l *lab) throughTLS(dir string) {
	l.t.Helper()
	ca := filepath.Join(dir, "ca.crt")
	l.measured(3, 2)
	relay := func(token string) result {
		return wattmark(l.t, "relay", "--once", "--db", l.host, "--cluster", l.servers(), "--tls-ca", ca, "--token-file", token)
	}
	if got := relay(filepath.Join(dir, "measurer.token")); got.code == 0 || !strings.Contains(got.err, "it is ada's") {
		l.t.Errorf("a measurer publishes another's tasks: %d %s", got.code, got.err)
	}
	if got := relay(issued(l.t, dir, "ada.token", "token", "ada", "--auth", dir, "--role", "measurer", "-o", filepath.Join(dir, "ada.token"))); got.code != 0 {
		l.t.Fatalf("relay: %s", got.err)
	}
	cert := issued(l.t, dir, "shelf.crt", "cert", "shelf", "--auth", dir, "--role", "operator", "-o", filepath.Join(dir, "shelf"))
	path := filepath.Join(l.dir, "there.db")
	there := openThere(l.t, path)
	p := start(l.t, "store", "--db", path, "--cluster", l.servers(), "--name", "lab", "--tls-ca", ca, "--tls-cert", cert, "--tls-key", filepath.Join(dir, "shelf.key"), "--free-every", "100ms")
	l.arrived(patience, there)
	p.await(l.t, "freed what all stores have") // which takes an operator
	p.kill(l.t)
}

// viewer sees how the cluster is, and publishes nothing.
func (l *lab) viewer(c auth.Client) {
	l.t.Helper()
	b, err := l.as(c, patience)
	if err != nil {
		l.t.Fatal(err)
	}
	defer b.Close()
	before := b.Status(l.t.Context())[0]
	if before.Trouble != "" || len(before.Replicas) != 3 {
		l.t.Errorf("a viewer sees %+v", before)
	}
	l.measured(1, 1)
	p := &relay.Publisher{DB: l.db, Bus: b}
	ids, err := l.db.Untagged(l.t.Context(), relay.TagReplicated, 1)
	if err != nil || len(ids) != 1 {
		l.t.Fatal(ids, err)
	}
	if _, err := p.Replicate(l.t.Context(), ids[0]); !errors.Is(err, relay.ErrReader) {
		l.t.Errorf("a viewer publishes: %v", err)
	}
	if after := b.Status(l.t.Context())[0]; after.Messages != before.Messages {
		l.t.Errorf("a viewer has put %d messages there", after.Messages-before.Messages)
	}
}

// says waits until one of the nodes says something.
func (l *lab) says(text string) {
	l.t.Helper()
	eventually(l.t, "a node says "+text, func() bool {
		for _, n := range l.nodes {
			if said, _ := n.err.read(); strings.Contains(said, text) {
				return true
			}
		}
		return false
	})
}

// A node that other machines can reach is refused without TLS and a question who calls.
func TestOpenClusterIsRefused(t *testing.T) {
	t.Parallel()
	dir := secured(t)
	_ = os.Remove(filepath.Join(dir, "tokens.json"))
	node := func(more ...string) result {
		return wattmark(t, append([]string{"cluster", "node", "--dir", t.TempDir(), "--name", "n0"}, more...)...)
	}
	peers := "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"
	for what, got := range map[string]result{
		"clients":            node("--listen", "0.0.0.0:0"),
		"nodes":              node("--listen", "127.0.0.1:0", "--nodes", "0.0.0.0:0", "--peers", peers),
		"its state":          node("--listen", "127.0.0.1:0", "--http", "0.0.0.0:0"),
		"by a password":      node("--listen", "0.0.0.0:0", "--password-file", filepath.Join(dir, "operator.token")),
		"both":               node("--listen", "127.0.0.1:0", "--auth", dir, "--password-file", filepath.Join(dir, "operator.token")),
		"a certificate only": node("--listen", "127.0.0.1:0", "--serve-cert", filepath.Join(dir, "server.crt"), "--serve-key", filepath.Join(dir, "server.key")),
	} {
		if got.code != cli.ExitUsage || got.err == "" {
			t.Errorf("%s: exit code %d\n%s", what, got.code, got.err)
		}
	}
}
