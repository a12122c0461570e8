package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/api/auth"
	"github.com/wattmark/wattmark/api/auth/pki"
	"github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/store"
	"google.golang.org/grpc"
	rpc "google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// siege is a lab that is attacked while somebody measures in it: a monitor and a host
// that speak TLS and ask who calls, as processes.
type siege struct {
	*testing.T
	*rig
	dir  string
	host *process
	at   string // of the host's gRPC
	web  string // of its JSON, https://…
	prey string // the capture that is under way
	pool *x509.CertPool
}

// lab makes the CA, a server's certificate, tokens and users' certificates, by the
// commands that an administrator types.
func (s *siege) lab() {
	s.Helper()
	inside(s.T, "auth", "init", "--auth", s.dir, "--server", "lab").ok(s.T)
	for _, u := range []struct{ name, role string }{{"ada", "measurer"}, {"eve", "measurer"}, {"vic", "viewer"}, {"gpu-host", "operator"}, {"gone", "admin"}} {
		inside(s.T, "auth", "token", u.name, "--role", u.role, "--auth", s.dir, "-o", s.file(u.name+".token")).ok(s.T)
	}
	inside(s.T, "auth", "cert", "eve", "--auth", s.dir, "-o", s.file("eve")).ok(s.T)
	inside(s.T, "auth", "cert", "fired", "--role", "admin", "--auth", s.dir, "-o", s.file("fired")).ok(s.T)
	inside(s.T, "auth", "revoke", "gone", "--auth", s.dir).ok(s.T)
	inside(s.T, "auth", "revoke", "fired", "--auth", s.dir).ok(s.T)
	// The token of yesterday, and another lab's.
	text, old, err := auth.NewToken("ada", auth.Admin, time.Now().Add(-48*time.Hour), 24*time.Hour)
	if err == nil {
		err = errors.Join(os.WriteFile(s.file("old.token"), []byte(text), 0o600), auth.Change(s.file(pki.Tokens), func(l *auth.List) error {
			l.Tokens = append(l.Tokens, old)
			return nil
		}))
	}
	if err != nil {
		s.Fatal(err)
	}
	inside(s.T, "auth", "init", "--auth", s.file("other"), "--server", "lab").ok(s.T)
	inside(s.T, "auth", "cert", "ada", "--role", "admin", "--auth", s.file("other"), "-o", s.file("stranger")).ok(s.T)
	pem, err := os.ReadFile(s.file(pki.CACert))
	if s.pool = x509.NewCertPool(); err != nil || !s.pool.AppendCertsFromPEM(pem) {
		s.Fatal(err)
	}
}

func (s *siege) file(name string) string { return filepath.Join(s.dir, name) }

func (s *siege) token(name string) string {
	s.Helper()
	b, err := os.ReadFile(s.file(name + ".token"))
	if err != nil {
		s.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// dial returns a connection of who has a token; empty for nobody.
func (s *siege) dial(address, token string) *grpc.ClientConn {
	s.Helper()
	o, err := auth.Client{CA: s.file(pki.CACert), Token: token}.DialOptions(address)
	if err != nil {
		s.Fatal(err)
	}
	return s.connect(address, o...)
}

func (s *siege) connect(address string, o ...grpc.DialOption) *grpc.ClientConn {
	s.Helper()
	c, err := grpc.NewClient(address, append(append(wire.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials())), o...)...)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = c.Close() })
	return c
}

func (s *siege) meter(token string) wattmarkv1.MonitorServiceClient {
	s.Helper()
	return wattmarkv1.NewMonitorServiceClient(s.dial(s.address, token))
}

func (s *siege) tasks(token string) wattmarkv1.TaskServiceClient {
	s.Helper()
	return wattmarkv1.NewTaskServiceClient(s.dial(s.at, token))
}

// refused checks that an attack came to what it should.
func (s *siege) refused(what string, err error, want ...rpc.Code) {
	s.Helper()
	for _, c := range want {
		if status.Code(err) == c {
			return
		}
	}
	s.Errorf("%s: %v, want %v", what, err, want)
}

func (s *siege) within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.Context(), patience)
}

// The lab is measured in while it is attacked in every way that we could think of: each
// attempt is refused with its own status, and the measurement is whole.
func TestAttacksWhileMeasuring(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	s := &siege{T: t, rig: newRig(t), dir: filepath.Join(t.TempDir(), "auth")}
	s.lab()
	s.rig.monitor.stop(t)
	// All attackers and those that they attack come from one address here; the limits of
	// an address have tests of their own.
	s.startMonitor(freeAddress(t), "--limit-peer-connections", "200", "--auth", s.dir, "--audit", s.file("monitor.audit"))
	as := func(name string) []string {
		return []string{"--tls-ca", s.file(pki.CACert), "--token-file", s.file(name + ".token")}
	}
	s.host = start(t, append([]string{
		"host", "--db", s.db, "--limit-peer-connections", "200", "--auth", s.dir, "--audit", s.file("host.audit"), "--listen", "127.0.0.1:0",
		"--http", "127.0.0.1:0", "--socket", "none", "--monitor", s.address,
	}, as("gpu-host")...)...)
	s.at = s.host.await(t, `serving the task database" address=(\S+)`)[1]
	s.web = s.host.await(t, `serving JSON over HTTP" address=(https://[0-9.:]+)`)[1]
	enough := filepath.Join(t.TempDir(), "enough")
	run := s.rig.run(append(as("ada"), "--name", "prey", "--user", "ada", "--", "sh", "-c", "until [ -e "+enough+" ]; do sleep 0.05; done")...)
	eventually(t, "samples are stored while the work runs", func() bool {
		x, ok := onlyTask(t, s.db, 1)
		return ok && x.Chunks >= 1
	})
	x, _ := onlyTask(t, s.db, 1)
	s.prey = x.CaptureID
	// In the siege's own T, so that each helper reports where it belongs.
	for _, a := range []struct {
		name string
		f    func()
	}{
		{"transport", s.transport},
		{"credentials", s.credentials},
		{"captures", s.captureTheft},
		{"tasks", s.taskTheft},
		{"texts", s.texts},
		{"streams", s.streams},
		{"replay", s.replay},
		{"web", s.attackWeb},
		{"slow", s.slow},
	} {
		t.Run(a.name, func(t *testing.T) {
			was := s.T
			s.T = t
			defer func() { s.T = was }()
			a.f()
		})
	}
	select {
	case <-run.ended:
		t.Error("the measurement ended before the attacks did")
	default:
	}
	if err := os.WriteFile(enough, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.whole(run)
	if code := s.host.stop(t); code != 0 {
		t.Errorf("the host ended with %d", code)
	}
}

// whole checks that the measurement that went on is what it would have been.
func (s *siege) whole(run *process) {
	s.Helper()
	if code := run.wait(s.T); code != 0 {
		s.Errorf("the measurement ended with %d", code)
	}
	x, ok := onlyTask(s.T, s.db, 1)
	if !ok || x.State != store.Complete || x.User != "ada" || x.Name != "prey" || x.Result == nil {
		s.Errorf("task %+v", x.State)
	}
	if n := len(chunks(s.T, s.db, 1)); n < 2 {
		s.Errorf("%d chunks", n)
	}
	for _, e := range x.Events {
		s.Errorf("something was lost: %+v", e)
	}
	if l, err := s.meter(s.token("vic")).ListCaptures(s.Context(), &wattmarkv1.ListCapturesRequest{}); err != nil || len(l.Captures) != 0 {
		s.Errorf("left in the spool: %v %v", l, err)
	}
	for _, name := range []string{"monitor.audit", "host.audit"} {
		b, err := os.ReadFile(s.file(name))
		if err != nil || !strings.Contains(string(b), `"code":"PermissionDenied"`) || !strings.Contains(string(b), `"who":"eve"`) {
			s.Errorf("%s does not tell of the attacks: %v", name, err)
		}
		for _, who := range []string{"ada", "eve", "vic", "gone", "old"} {
			if strings.Contains(string(b), strings.Split(s.token(who), "_")[2]) {
				s.Errorf("%s has %s's secret", name, who)
			}
		}
		if strings.ContainsAny(string(b), "\x1b\x07") {
			s.Errorf("%s has an escape sequence", name)
		}
	}
	if b, _ := os.ReadFile(s.file("monitor.audit")); !strings.Contains(string(b), `"what":"/wattmark.v1.MonitorService/ReleaseCapture","code":"OK","who":"ada"`) {
		s.Errorf("ada's own release is not told:\n%s", b)
	}
}

// transport: what does not speak TLS 1.3 with a certificate of ours is not spoken to.
func (s *siege) transport() {
	for name, address := range map[string]string{"monitor": s.address, "host": s.at} {
		bench := func(o ...grpc.DialOption) error {
			ctx, cancel := s.within()
			defer cancel()
			_, err := wattmarkv1.NewMonitorServiceClient(s.connect(address, o...)).GetBench(ctx, &wattmarkv1.GetBenchRequest{})
			return err
		}
		withTLS := func(c *tls.Config) grpc.DialOption { return grpc.WithTransportCredentials(credentials.NewTLS(c)) }
		s.refused(name+": no TLS", bench(), rpc.Unavailable)
		s.refused(name+": TLS 1.2", bench(withTLS(&tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})), rpc.Unavailable)
		for _, file := range []string{"stranger", "server"} {
			pair, err := tls.LoadX509KeyPair(s.file(file+".crt"), s.file(file+".key"))
			if err != nil {
				s.Fatal(err)
			}
			s.refused(name+": the certificate "+file, bench(withTLS(&tls.Config{
				InsecureSkipVerify:   true,
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil },
			})), rpc.Unavailable)
		}
		// A false server: who knows another CA does not tell this one a token.
		o, err := auth.Client{CA: filepath.Join(s.file("other"), pki.CACert), Token: s.token("ada")}.DialOptions(address)
		if err != nil {
			s.Fatal(err)
		}
		s.refused(name+": a server of another CA", bench(o...), rpc.Unavailable)
	}
	r := inside(s.T, "top", "--once", "--monitor", s.address)
	if r.fails(s.T, cli.ExitFailed, "--tls-ca"); strings.Contains(r.err, "GET") {
		s.Error(r.err)
	}
	inside(s.T, "top", "--once", "--monitor", s.address, "--tls-ca", s.file(pki.CACert)).fails(s.T, cli.ExitFailed, "not signed in", "--token-file")
	inside(s.T, "doctor", "--machine", "monitor", "--monitor", s.address, "--auth", s.dir, "--tls-ca", filepath.Join(s.file("other"), pki.CACert)).fails(s.T, cli.ExitFailed)
}

// credentials: who is not known, or not any more, is let in nowhere.
func (s *siege) credentials() {
	stolen := strings.Split(s.token("ada"), "_")
	for what, token := range map[string]string{
		"nobody": "", "revoked": s.token("gone"), "expired": s.token("old"), "half": strings.Join(stolen[:2], "_"),
		"one letter off": s.token("ada")[:len(s.token("ada"))-1], "another's secret": stolen[0] + "_" + stolen[1] + "_" + strings.Split(s.token("vic"), "_")[2],
		"SQL": "wm_' OR '1'='1_x", "long": "wm_" + strings.Repeat("a", 1<<14) + "_x",
	} {
		ctx, cancel := s.within()
		_, err := s.meter(token).GetBench(ctx, &wattmarkv1.GetBenchRequest{})
		s.refused(what+" at the monitor", err, rpc.Unauthenticated)
		_, err = s.tasks(token).ListTasks(ctx, &wattmarkv1.ListTasksRequest{})
		s.refused(what+" at the host", err, rpc.Unauthenticated)
		cancel()
	}
	for file, want := range map[string]rpc.Code{"eve": rpc.OK, "fired": rpc.Unauthenticated} {
		o, err := auth.Client{CA: s.file(pki.CACert), Cert: s.file(file + ".crt"), Key: s.file(file + ".key")}.DialOptions(s.address)
		if err != nil {
			s.Fatal(err)
		}
		_, err = wattmarkv1.NewMonitorServiceClient(s.connect(s.address, o...)).GetBench(s.Context(), &wattmarkv1.GetBenchRequest{})
		s.refused("the certificate "+file, err, want)
	}
	// A token that is revoked while it is in use is refused with the next call.
	inside(s.T, "auth", "token", "temp", "--role", "viewer", "--auth", s.dir, "-o", s.file("temp.token")).ok(s.T)
	c := s.meter(s.token("temp"))
	ctx, cancel := s.within()
	defer cancel()
	watch, err := c.WatchRails(ctx, &wattmarkv1.WatchRailsRequest{})
	if err == nil {
		_, err = watch.Recv()
	}
	if err != nil {
		s.Fatal(err)
	}
	inside(s.T, "auth", "revoke", "temp", "--auth", s.dir).ok(s.T)
	_, err = c.GetBench(ctx, &wattmarkv1.GetBenchRequest{})
	s.refused("a token that was just revoked", err, rpc.Unauthenticated)
	for err = nil; err == nil; {
		_, err = watch.Recv()
	}
	s.refused("its watch", err, rpc.Unauthenticated)
}

// captureTheft: the capture that runs is ada's.
func (s *siege) captureTheft() {
	ctx, cancel := s.within()
	defer cancel()
	for _, who := range []string{"eve", "vic"} {
		c := s.meter(s.token(who))
		_, err := c.StopCapture(ctx, &wattmarkv1.StopCaptureRequest{CaptureId: s.prey})
		s.refused(who+" stops it", err, rpc.PermissionDenied)
		_, err = c.ReleaseCapture(ctx, &wattmarkv1.ReleaseCaptureRequest{CaptureId: s.prey})
		s.refused(who+" releases it", err, rpc.PermissionDenied)
		_, err = c.RenewLease(ctx, &wattmarkv1.RenewLeaseRequest{CaptureId: s.prey})
		s.refused(who+" renews it", err, rpc.PermissionDenied)
	}
	_, err := s.meter(s.token("eve")).StartCapture(ctx, &wattmarkv1.StartCaptureRequest{Holder: "ada@lab"})
	s.refused("the bench is busy", err, rpc.FailedPrecondition)
	_, err = s.meter(s.token("vic")).StartCapture(ctx, &wattmarkv1.StartCaptureRequest{Holder: "ada@lab"})
	s.refused("a viewer starts one", err, rpc.PermissionDenied)
	_, err = s.meter(s.token("ada")).ReleaseCapture(ctx, &wattmarkv1.ReleaseCaptureRequest{CaptureId: s.prey})
	s.refused("it is released while it runs", err, rpc.FailedPrecondition)
	for _, id := range []string{"../../../etc", "..", s.prey + "/..", s.prey + "\x00", "' OR 1=1 --", strings.Repeat("9", 1<<16)} {
		_, err := s.meter(s.token("gpu-host")).StopCapture(ctx, &wattmarkv1.StopCaptureRequest{CaptureId: id})
		s.refused(fmt.Sprintf("%.40q is stopped", id), err, rpc.NotFound)
		_, err = s.meter(s.token("eve")).ReadCapture(ctx, &wattmarkv1.ReadCaptureRequest{CaptureId: id})
		s.refused(fmt.Sprintf("%.40q is read", id), err, rpc.OK) // a stream: its end tells, and there is none to wait for
	}
	if _, err := os.Stat(filepath.Join(s.spool, s.prey)); err != nil {
		s.Error(err)
	}
}
