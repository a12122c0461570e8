package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/store"
	"google.golang.org/grpc"
	rpc "google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

// taskTheft: what was measured is its user's.
func (s *siege) taskTheft() {
	db, err := store.Open(s.Context(), s.db)
	if err != nil {
		s.Fatal(err)
	}
	defer db.Close()
	for _, user := range []string{"ada", "eve", "' OR '1'='1"} {
		if _, err := db.BeginTask(s.Context(), store.NewTask{Name: "gemm", User: user}); err != nil {
			s.Fatal(err)
		}
	}
	before, err := db.Users(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := s.within()
	defer cancel()
	id := func(n int64) *wattmarkv1.DeleteTasksRequest {
		return &wattmarkv1.DeleteTasksRequest{By: &wattmarkv1.DeleteTasksRequest_TaskId{TaskId: n}}
	}
	named := func(n string) *wattmarkv1.DeleteTasksRequest {
		return &wattmarkv1.DeleteTasksRequest{By: &wattmarkv1.DeleteTasksRequest_Name{Name: n}}
	}
	of := func(u string) *wattmarkv1.DeleteTasksRequest {
		return &wattmarkv1.DeleteTasksRequest{By: &wattmarkv1.DeleteTasksRequest_User{User: u}}
	}
	for _, c := range []struct {
		who  string
		req  *wattmarkv1.DeleteTasksRequest
		want rpc.Code
	}{
		{"eve", id(1), rpc.PermissionDenied},
		{"eve", id(2), rpc.PermissionDenied},
		{"vic", id(1), rpc.PermissionDenied},
		{"gpu-host", id(1), rpc.PermissionDenied}, // the bench is an operator's, the tasks are not
		{"eve", named("prey"), rpc.PermissionDenied},
		{"eve", named("x' OR '1'='1"), rpc.PermissionDenied},
		{"eve", named("%"), rpc.PermissionDenied},
		{"eve", named("*"), rpc.PermissionDenied},
		{"eve", of("ada"), rpc.PermissionDenied},
		{"eve", of("' OR '1'='1"), rpc.PermissionDenied},
		{"eve", id(99), rpc.NotFound},
		{"eve", id(-1), rpc.InvalidArgument},
	} {
		_, err := s.tasks(s.token(c.who)).DeleteTasks(ctx, c.req)
		s.refused(fmt.Sprintf("%s deletes %v", c.who, c.req), err, c.want)
	}
	if after, err := db.Users(ctx); err != nil || fmt.Sprint(after) != fmt.Sprint(before) {
		s.Errorf("before %v, after %v, %v", before, after, err)
	}
	if r, err := s.tasks(s.token("eve")).DeleteTasks(ctx, named("gemm")); err != nil || r.Deleted != 1 {
		s.Errorf("eve's own: %v, %v", r, err)
	}
}

// texts that a terminal would obey, or a database.
func (s *siege) texts() {
	ctx, cancel := s.within()
	defer cancel()
	const evil = "\x1b]0;owned\x07\x1b[2J"
	c := s.meter(s.token("gpu-host"))
	for _, text := range []string{evil, "a\nb", "\u202eada", "\u009b31m"} {
		_, err := c.StartCapture(ctx, &wattmarkv1.StartCaptureRequest{Holder: text + "@lab", TaskName: "x"})
		s.refused(fmt.Sprintf("the holder %q", text), err, rpc.InvalidArgument)
		_, err = c.StartCapture(ctx, &wattmarkv1.StartCaptureRequest{Holder: "a@lab", TaskName: text})
		s.refused(fmt.Sprintf("the task %q", text), err, rpc.InvalidArgument)
	}
	_, err := c.StopCapture(ctx, &wattmarkv1.StopCaptureRequest{CaptureId: evil}) // into the audit log
	s.refused("a capture of that name", err, rpc.NotFound)
	tasks := s.tasks(s.token("vic"))
	for _, text := range []string{"' OR 1=1 --", "'; DROP TABLE task; --", `") OR ("1"="1`, evil} {
		r, err := tasks.ListTasks(ctx, &wattmarkv1.ListTasksRequest{User: text, Name: text})
		if s.refused(fmt.Sprintf("a list for %q", text), err, rpc.OK, rpc.InvalidArgument); len(r.GetTasks()) > 0 {
			s.Errorf("%q selects %d tasks", text, len(r.Tasks))
		}
	}
	// A database that somebody else has written.
	path := s.file("evil.db")
	db, err := store.Open(ctx, path)
	if err != nil {
		s.Fatal(err)
	}
	if _, err := db.BeginTask(ctx, store.NewTask{Name: "x", User: "y"}); err != nil {
		s.Fatal(err)
	}
	if err := db.Close(); err != nil {
		s.Fatal(err)
	}
	for _, change := range []string{"UPDATE task SET name='%s', gpu='%[1]s', job='%[1]s', reason='%[1]s'", "UPDATE user SET login='%s'"} {
		execSQL(s.T, path, fmt.Sprintf(change, evil))
	}
	for _, command := range [][]string{{"tasks"}, {"show", "1"}, {"users"}, {"export", "1"}, {"delete", "1"}, {"delete", "1", "--yes"}, {"db", "check"}} {
		r := inside(s.T, append(command, "--db", path)...)
		if strings.ContainsAny(r.out+r.err, "\x1b\x07") {
			s.Errorf("%v obeys the database: %q", command, r.out+r.err)
		}
	}
}

// streams: what is too large is refused, and by whom is not known is not even read.
func (s *siege) streams() {
	ctx, cancel := s.within()
	defer cancel()
	_, err := s.meter(s.token("vic")).ReadCapture(ctx, &wattmarkv1.ReadCaptureRequest{CaptureId: s.prey})
	s.refused("it is read", err, rpc.OK)
	large := &wattmarkv1.RenewLeaseRequest{CaptureId: strings.Repeat("x", wire.MaxMessage+1)}
	const renew = "/wattmark.v1.MonitorService/RenewLease"
	ada := s.dial(s.address, s.token("ada"))
	err = ada.Invoke(ctx, renew, large, &wattmarkv1.RenewLeaseResponse{}, grpc.MaxCallSendMsgSize(2*wire.MaxMessage))
	s.refused("a message of 64 MiB", err, rpc.ResourceExhausted)
	err = s.dial(s.address, "").Invoke(ctx, renew, large, &wattmarkv1.RenewLeaseResponse{}, grpc.MaxCallSendMsgSize(2*wire.MaxMessage))
	s.refused("a stranger's message of 64 MiB", err, rpc.Unauthenticated)
	for who, want := range map[string]rpc.Code{"": rpc.Unauthenticated, s.token("ada"): rpc.NotFound} {
		// Messages without end to a call that takes one.
		stream, err := s.dial(s.address, who).NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, renew)
		for err == nil {
			err = stream.SendMsg(&wattmarkv1.RenewLeaseRequest{CaptureId: strings.Repeat("x", 1<<16)})
		}
		if err == io.EOF {
			err = stream.RecvMsg(&wattmarkv1.RenewLeaseResponse{})
		}
		s.refused("an endless stream", err, want, rpc.Internal, rpc.InvalidArgument)
	}
	for _, method := range []string{"/wattmark.v1.MonitorService/Format", "/x", "/wattmark.v1.MonitorService/../TaskService/DeleteTasks"} {
		err := ada.Invoke(ctx, method, &wattmarkv1.GetBenchRequest{}, &wattmarkv1.GetBenchResponse{})
		s.refused(method, err, rpc.PermissionDenied, rpc.Unimplemented)
	}
	flood := metadata.AppendToOutgoingContext(ctx, "x", strings.Repeat("x", 1<<20))
	err = s.dial(s.address, "").Invoke(flood, renew, &wattmarkv1.RenewLeaseRequest{}, &wattmarkv1.RenewLeaseResponse{})
	s.refused("headers of a megabyte", err, rpc.Unauthenticated, rpc.Internal, rpc.Unavailable, rpc.ResourceExhausted)
}

// replay: the bytes of a real conversation, release included, are worth nothing later.
func (s *siege) replay() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.Fatal(err)
	}
	var mu sync.Mutex
	var heard bytes.Buffer
	var wg sync.WaitGroup
	wg.Go(func() {
		victim, err := l.Accept()
		if err != nil {
			return
		}
		monitor, err := net.Dial("tcp", s.address)
		if err != nil {
			_ = victim.Close()
			return
		}
		wg.Go(func() {
			defer victim.Close()
			_, _ = io.Copy(victim, monitor)
		})
		_, _ = io.Copy(io.MultiWriter(monitor, locked{&mu, &heard}), victim)
		_ = monitor.Close()
	})
	ctx, cancel := s.within()
	defer cancel()
	conn := s.dial(l.Addr().String(), s.token("ada"))
	_, err = wattmarkv1.NewMonitorServiceClient(conn).ReleaseCapture(ctx, &wattmarkv1.ReleaseCaptureRequest{CaptureId: s.prey})
	s.refused("the release that is overheard", err, rpc.FailedPrecondition)
	_, _ = conn.Close(), l.Close()
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	if heard.Len() < 500 || bytes.Contains(heard.Bytes(), []byte(s.token("ada"))) || bytes.Contains(heard.Bytes(), []byte("ReleaseCapture")) {
		s.Errorf("%d bytes were overheard, or could be read", heard.Len())
	}
	again, err := net.Dial("tcp", s.address)
	if err != nil {
		s.Fatal(err)
	}
	defer again.Close()
	_ = again.SetDeadline(time.Now().Add(patience))
	_, _ = again.Write(heard.Bytes()) // it may be cut while we speak
	answer, _ := io.ReadAll(again)
	if l, err := s.meter(s.token("vic")).ListCaptures(ctx, &wattmarkv1.ListCapturesRequest{}); err != nil || len(l.Captures) != 1 {
		s.Errorf("after the replay: %v %v, answer of %d bytes", l, err, len(answer))
	}
}

// locked writes under a lock.
type locked struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// browser sends a request to the host's site and returns status and body.
func (s *siege) browser(method, path, body string, header map[string]string) (int, string, *http.Response) {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), method, s.web+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	for k, v := range header {
		if k == "Host" {
			req.Host = v
		}
		req.Header.Set(k, v)
	}
	t := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.pool, MinVersion: tls.VersionTLS13}, DisableKeepAlives: true, ForceAttemptHTTP2: header["X"] == ""}
	c := http.Client{Transport: t, Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := c.Do(req)
	if err != nil {
		s.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		s.Fatalf("%s %s: %v", method, path, err)
	}
	return res.StatusCode, string(b), res
}

// attackWeb: the site, with cookies, headers and paths.
func (s *siege) attackWeb() {
	bearer := func(who string) map[string]string {
		return map[string]string{"Authorization": "Bearer " + s.token(who)}
	}
	code, _, res := s.browser("POST", "/v1/session", `{"token":"`+s.token("ada")+`"}`, map[string]string{"Content-Type": "application/json"})
	if code != 200 || len(res.Cookies()) != 1 {
		s.Fatalf("signing in: %d", code)
	}
	cookie := res.Cookies()[0].Name + "=" + res.Cookies()[0].Value
	json := "application/json"
	all := `{"user":"ada"}`
	for _, c := range []struct {
		method, path, body string
		header             map[string]string
		want               int
	}{
		{"GET", "/v1/tasks", "", nil, 401},
		{"GET", "/v1/tasks", "", bearer("gone"), 401},
		{"GET", "/v1/tasks", "", bearer("old"), 401},
		{"GET", "/v1/tasks", "", bearer("vic"), 200},
		{"GET", "/v1/tasks:watch", "", bearer("gone"), 401},
		{"GET", "/metrics", "", nil, 401},
		{"GET", "/openapi.json", "", nil, 401},
		{"GET", "/debug/pprof/", "", bearer("ada"), 403},
		{"DELETE", "/v1/tasks/1", "", nil, 401},
		{"DELETE", "/v1/tasks/1", "", bearer("vic"), 403},
		{"DELETE", "/v1/tasks/1", "", bearer("eve"), 403},
		// Another site's page in ada's browser.
		{"DELETE", "/v1/tasks/1", "", map[string]string{"Cookie": cookie}, 403},
		{"DELETE", "/v1/tasks/1", "", map[string]string{"Cookie": cookie, "Origin": "https://evil.example"}, 403},
		{"DELETE", "/v1/tasks/1", "", map[string]string{"Cookie": cookie, "Sec-Fetch-Site": "cross-site"}, 403},
		{"DELETE", "/v1/tasks/1", "", map[string]string{"Cookie": cookie, "Origin": "null"}, 403},
		{"POST", "/v1/tasks:delete", all, map[string]string{"Cookie": cookie, "Content-Type": "text/plain", "Origin": s.web}, 415},
		{"POST", "/v1/tasks:delete", "user=ada", map[string]string{"Cookie": cookie, "Content-Type": "application/x-www-form-urlencoded"}, 415},
		{"POST", "/v1/tasks:delete", all, map[string]string{"Cookie": cookie, "Content-Type": json, "Origin": "https://evil.example"}, 403},
		{"POST", "/v1/session", `{"token":"x"}`, map[string]string{"Content-Type": json, "Origin": "https://evil.example"}, 403},
		{"POST", "/v1/tasks/1", "{}", map[string]string{"Cookie": cookie, "Content-Type": json, "Origin": s.web, "X-HTTP-Method-Override": "DELETE"}, 405},
		{"GET", "/v1/tasks", "", map[string]string{"Authorization": bearer("vic")["Authorization"], "Host": "evil.example"}, 421},
		{"GET", "/v1/tasks", "", map[string]string{"Grpc-Metadata-Wattmark-Relayed-Bin": `{"who":{"name":"root","role":"admin"}}`}, 401},
		{"GET", "/v1/tasks", "", map[string]string{"Cookie": "__Host-wattmark=" + s.token("ada")}, 401},
		{"GET", "/v1/tasks", "", map[string]string{"Cookie": strings.Replace(cookie, "__Host-", "", 1)}, 401},
		// Paths and texts.
		{"GET", "/v1/tasks/..%2f..%2f..%2fetc%2fpasswd", "", bearer("vic"), 404},
		{"GET", "/%2e%2e/%2e%2e/etc/passwd", "", bearer("vic"), 404},
		{"GET", "/signin/..%2ftokens.json", "", bearer("vic"), 404},
		{"GET", "/signin/%2e%2e%2fpage/signin.html", "", nil, 404},
		{"GET", "/v1/tasks?name=%27%20OR%201%3D1%20--", "", bearer("vic"), 200},
		{"GET", "/v1/tasks?name=" + strings.Repeat("a", 33<<10), "", bearer("vic"), 414},
		{"GET", "/v1/tasks", "", map[string]string{"Authorization": bearer("vic")["Authorization"], "X": strings.Repeat("x", 70<<10)}, 431},
		{"POST", "/v1/tasks:delete", `{"name":"` + strings.Repeat("x", 1<<20) + `"}`, map[string]string{"Authorization": bearer("eve")["Authorization"], "Content-Type": json}, 413},
	} {
		got, body, res := s.browser(c.method, c.path, c.body, c.header)
		if got != c.want {
			s.Errorf("%s %.60s %.200v: %d %.200s, want %d", c.method, c.path, c.header, got, body, c.want)
		}
		if strings.Contains(body, "root:") || strings.Contains(body, "sha256") {
			s.Errorf("%s %s tells a file", c.method, c.path)
		}
		if csp := res.Header.Get("Content-Security-Policy"); got != 431 && (csp == "" || strings.Contains(csp, "unsafe")) {
			s.Errorf("%s %s: policy %q", c.method, c.path, csp)
		}
	}
}

// slow: who says nothing, or almost nothing, or does not stop, is hung up on; others
// are served meanwhile.
func (s *siege) slow() {
	web := strings.TrimPrefix(s.web, "https://")
	var held []net.Conn
	hold := func(address, say string, secure bool) {
		c, err := net.Dial("tcp", address)
		if err != nil {
			s.Fatal(err)
		}
		if secure {
			c = tls.Client(c, &tls.Config{RootCAs: s.pool, ServerName: "lab", MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}})
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(c, say)
		held = append(held, c)
	}
	for range 30 {
		hold(s.address, "", false)
		hold(s.at, "\x16\x03\x01\x02", false) // the begin of a hello
		hold(web, "", false)
		hold(web, "GET /v1/tasks HTTP/1.1\r\nHost: localhost\r\nX-A: b\r\n", true)
	}
	begun := fmt.Sprintf("POST /v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{", 1000)
	hold(web, begun, true)
	hold(web, strings.Replace(begun, "application/json", "text/plain", 1), true)
	hold(web, strings.Replace(begun, "localhost", "evil.example", 1), true)
	hold(web, strings.Replace(begun, "POST", "DELETE", 1), true)
	hold(web, strings.Replace(begun, "Content-Length: 1000", "Transfer-Encoding: chunked", 1), true)
	ctx, cancel := s.within()
	defer cancel()
	if _, err := s.meter(s.token("vic")).GetBench(ctx, &wattmarkv1.GetBenchRequest{}); err != nil {
		s.Errorf("others are not served: %v", err)
	}
	if code, body, _ := s.browser("GET", "/v1/tasks", "", map[string]string{"Authorization": "Bearer " + s.token("vic")}); code != 200 {
		s.Errorf("others are not served: %d %s", code, body)
	}
	s.endless(web)
	for _, c := range held {
		if _, err := io.Copy(io.Discard, c); err != nil && isTimeout(err) {
			s.Errorf("%v is held for ever", c.RemoteAddr())
		}
		_ = c.Close()
	}
}

func isTimeout(err error) bool {
	n, ok := err.(net.Error)
	return ok && n.Timeout()
}

// endless sends a body without end.
func (s *siege) endless(web string) {
	c, err := tls.Dial("tcp", web, &tls.Config{RootCAs: s.pool, MinVersion: tls.VersionTLS13})
	if err != nil {
		s.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	_, err = io.WriteString(c, "POST /v1/tasks:delete HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
	part := fmt.Sprintf("%x\r\n%s\r\n", 1<<16, strings.Repeat("x", 1<<16))
	answered := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(c).ReadString('\n')
		answered <- line
	}()
	for err == nil {
		_, err = io.WriteString(c, part)
	}
	if line := <-answered; isTimeout(err) || line != "" && !strings.Contains(line, "413") {
		s.Errorf("a body without end: %v, %q", err, line)
	}
}
