package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// lists is a file of tokens in a test.
type lists struct {
	*testing.T
	path string
}

func newLists(t *testing.T) lists {
	return lists{t, filepath.Join(t.TempDir(), "tokens.json")}
}

// token adds one to the file.
func (l lists) token(name string, role Role, life time.Duration) string {
	l.Helper()
	text, kept, err := NewToken(name, role, now, life)
	if err == nil {
		err = Change(l.path, func(x *List) error {
			x.Tokens = append(x.Tokens, kept)
			return nil
		})
	}
	if err != nil {
		l.Fatal(err)
	}
	return text
}

func (l lists) registry() *Registry {
	l.Helper()
	r, err := OpenRegistry(l.path, nil)
	if err != nil {
		l.Fatal(err)
	}
	return r
}

func TestTokens(t *testing.T) {
	l := newLists(t)
	ada := l.token("ada", Measurer, time.Hour)
	r := l.registry()
	who, err := r.Token(ada, now)
	if err != nil || who.Name != "ada" || who.Role != Measurer || who.By != ByToken || !who.Expires.Equal(now.Add(time.Hour)) {
		t.Fatalf("%+v %v", who, err)
	}
	kept, err := os.ReadFile(l.path)
	secret := strings.Split(ada, "_")[2]
	if err != nil || bytes.Contains(kept, []byte(secret)) || len(secret) < 50 {
		t.Errorf("the secret %q is in the file: %v", secret, err)
	}
	for _, wrong := range []string{
		"", "wm", "wm__", "wm_" + who.ID + "_", "wm_" + who.ID + "_" + strings.Repeat("a", 52), "wm__" + secret, "xx_" + who.ID + "_" + secret,
		ada + "a", ada[:len(ada)-1], strings.ToUpper(ada), ada + "_x", strings.Repeat("a", 1<<20), "wm_' OR 1=1 --_x",
	} {
		if _, err := r.Token(wrong, now); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "not known here") {
			t.Errorf("%.80q: %v", wrong, err)
		}
	}
	if _, err := r.Token(ada, now.Add(time.Hour)); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "expired at 2026-05-01T13:00:00Z") {
		t.Errorf("expired: %v", err)
	}
	if err := Change(l.path, func(x *List) error {
		if got := x.Revoke("ada", now); len(got) != 1 {
			t.Errorf("revoked %v", got)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Token(ada, now); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("revoked: %v", err)
	}
	if err := r.Valid(who, now); !errors.Is(err, ErrUnknown) {
		t.Errorf("who was in is in still: %v", err)
	}
}

// A list that cannot be read lets nobody in, and tells callers nothing of it.
func TestBrokenListLetsNobodyIn(t *testing.T) {
	l := newLists(t)
	ada := l.token("ada", Admin, time.Hour)
	r := l.registry()
	who, err := r.Token(ada, now)
	if err != nil {
		t.Fatal(err)
	}
	for what, spoil := range map[string]func() error{
		"gone":        func() error { return os.Rename(l.path, l.path+".away") },
		"no JSON":     func() error { return os.WriteFile(l.path, []byte("tokens: none"), 0o600) },
		"another age": func() error { return os.WriteFile(l.path, []byte(`{"version":2}`), 0o600) },
		"open to all": func() error { return os.Chmod(l.path, 0o644) },
		"without hash": func() error {
			return os.WriteFile(l.path, []byte(`{"version":1,"tokens":[{"id":"x","name":"ada","role":"admin","expires":"2030-01-01T00:00:00Z"}]}`), 0o600)
		},
		"no such role": func() error {
			return os.WriteFile(l.path, []byte(`{"version":1,"tokens":[{"id":"x","name":"ada","role":"root"}]}`), 0o600)
		},
	} {
		b, err := os.ReadFile(l.path)
		if err == nil {
			err = spoil()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Token(ada, now); !errors.Is(err, ErrRegistry) || strings.Contains(Status(err).Error(), l.path) {
			t.Errorf("%s: %v", what, err)
		}
		if err := r.Valid(who, now); !errors.Is(err, ErrRegistry) {
			t.Errorf("%s, who is in: %v", what, err)
		}
		_ = os.Remove(l.path)
		if err := WriteNew(l.path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Token(ada, now); err != nil {
			t.Errorf("mended after %s: %v", what, err)
		}
	}
}

func TestModes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if err := WriteNew(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteNew(path, []byte("y"), 0o600); !errors.Is(err, os.ErrExist) {
		t.Errorf("a key was written over: %v", err)
	}
	root := os.Geteuid() == 0
	for mode, want := range map[os.FileMode][2]bool{ // secret, public
		0o600: {true, true}, 0o400: {true, true}, 0o640: {root, true}, 0o644: {false, true}, 0o604: {false, true},
		0o660: {false, false}, 0o602: {false, false}, 0o666: {false, false},
	} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, secret := ReadSecret(path)
		_, public := ReadPublic(path)
		if (secret == nil) != want[0] || (public == nil) != want[1] {
			t.Errorf("%#o: secret %v, public %v", mode, secret, public)
		}
		if secret != nil && (!errors.Is(secret, ErrMode) || !strings.Contains(secret.Error(), "chmod")) {
			t.Errorf("%#o: %v", mode, secret)
		}
	}
}

// A file that is replaced keeps its mode.
func TestReplaceKeepsTheMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	if err := WriteNew(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Replace(path, []byte("y"), 0o644); err != nil {
		t.Fatal(err)
	}
	if s, err := os.Stat(path); err != nil || s.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", s.Mode(), err)
	}
	left, _ := os.ReadDir(filepath.Dir(path))
	if len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

// Many at once add to a list, and none is lost.
func TestChangesAtOnce(t *testing.T) {
	l := newLists(t)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { l.token("ada", Viewer, time.Hour) })
	}
	wg.Wait()
	if x, err := ReadList(l.path); err != nil || len(x.Tokens) != 20 {
		t.Errorf("%d tokens, %v", len(x.Tokens), err)
	}
}

func TestWhoMay(t *testing.T) {
	none := context.Background()
	as := func(name string, r Role) context.Context { return With(none, Identity{Name: name, Role: r}) }
	for _, c := range []struct {
		ctx      context.Context
		owner    string
		own, may error // Own over operator; May measure
	}{
		{none, "ada", nil, nil}, // nobody is asked
		{as("", Nobody), "", ErrUnknown, ErrUnknown},
		{as("", Nobody), "ada", ErrUnknown, ErrUnknown},
		{as("ada", Viewer), "ada", ErrDenied, ErrDenied},
		{as("ada", Measurer), "ada", nil, nil},
		{as("ada", Measurer), "bob", ErrDenied, nil},
		{as("ada", Measurer), "", ErrDenied, nil},
		{as("ada", Measurer), "Ada", ErrDenied, nil},
		{as("ada", Operator), "bob", nil, nil},
		{as("ada", Admin), "", nil, nil},
	} {
		if err := Own(c.ctx, "capture x", c.owner, Operator); !errors.Is(err, c.own) {
			t.Errorf("%+v own: %v", c, err)
		}
		if err := May(c.ctx, Measurer); !errors.Is(err, c.may) {
			t.Errorf("%+v may: %v", c, err)
		}
	}
	if u := User(as("ada", Measurer), "bob"); u != "ada" {
		t.Errorf("a measurer measures for %s", u)
	}
	if u := User(as("ada", Operator), "bob"); u != "bob" {
		t.Errorf("an operator measures for %s", u)
	}
	if u := User(none, "bob"); u != "bob" {
		t.Errorf("where nobody is asked, %s", u)
	}
	for _, bad := range []string{"", "a b", "a@b", "a/b", "a,b", "a=b", "\x1b[31m", "a\nb", "\u202eada", "\xff", strings.Repeat("a", 65)} {
		if CheckName(bad) == nil {
			t.Errorf("%q is a name", bad)
		}
	}
	for _, good := range []string{"ada", "ада", "gpu-host.lab", "o'neil"} {
		if err := CheckName(good); err != nil {
			t.Error(err)
		}
	}
}

// What others say is kept on one line, without what a terminal obeys, and strangers
// cannot fill the log.
func TestAudit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	a, err := OpenAudit(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	clock := now
	a.now = func() time.Time { return clock }
	for range 100 {
		a.Keep(t.Context(), Entry{From: "192.0.2.1:1", What: "GET /\x1b[2J\n" + strings.Repeat("x", 1000), Code: "Unauthenticated", Why: "no"})
	}
	a.Keep(t.Context(), Entry{Who: Identity{Name: "ada\u009b", Role: Viewer, By: ByToken, ID: "x"}, What: "Delete", Code: "OK", On: []slog.Attr{slog.String("task_id", "3")}})
	clock = clock.Add(time.Second)
	a.Keep(t.Context(), Entry{From: "192.0.2.1:1", What: "GET /", Code: "Unauthenticated"})
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := a.Reopen(); err != nil {
		t.Fatal(err)
	}
	a.Keep(t.Context(), Entry{Who: Identity{Name: "bob"}, What: "sign in", Code: "OK"})
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path + ".1")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if len(lines) != strangersASec+2 || strings.ContainsAny(string(b), "\x1b\u009b") || len(lines[0]) > 600 {
		t.Errorf("%d lines, %.800s", len(lines), b)
	}
	var last struct {
		LeftOut int `json:"refusals_left_out"`
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.LeftOut != 80 {
		t.Errorf("%v, %d left out", err, last.LeftOut)
	}
	if !strings.Contains(lines[strangersASec], `"task_id":"3"`) {
		t.Error(lines[strangersASec])
	}
	s, err := os.Stat(path)
	if b, _ := os.ReadFile(path); err != nil || s.Mode().Perm() != 0o600 || !strings.Contains(string(b), `"who":"bob"`) {
		t.Errorf("after the move: %v %s", err, b)
	}
}

// Who reads is kept once in a while for the same, and not without bound.
func TestAuditOfReads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	a, err := OpenAudit(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	clock := now
	a.now = func() time.Time { return clock }
	lines := func() []string {
		t.Helper()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(string(b)), "\n")
	}
	read := func(who string, task int) {
		a.KeepRead(t.Context(), Entry{Who: Identity{Name: who}, What: "Read", Code: "OK", On: []slog.Attr{slog.String("part", "x"), slog.Int("task_id", task)}})
	}
	for range 100 {
		read("ada", 1)
		read("bob", 1)
	}
	if got := lines(); len(got) != 2 || !strings.Contains(got[1], `"who":"bob"`) {
		t.Errorf("two readers of a task: %q", got)
	}
	clock = clock.Add(readAgain)
	read("ada", 1)
	if got := lines(); len(got) != 3 {
		t.Errorf("%d lines after a while", len(got))
	}
	for task := range 3 * readsASec {
		read("eve", task)
	}
	clock = clock.Add(time.Second)
	read("eve", 10000)
	got := lines()
	if last := got[len(got)-1]; len(got) != 2+readsASec+1 || !strings.Contains(last, `"reads_left_out":101`) {
		t.Errorf("%d lines of who reads all, the last %s", len(got), last)
	}
	for task := range 3 * mostReaders {
		clock = clock.Add(time.Second)
		read("eve", task)
	}
	if n := len(a.seen); n > mostReaders {
		t.Errorf("%d are remembered", n)
	}
}

func TestClientFromEnvironment(t *testing.T) {
	for _, name := range []string{"CA", "CERT", "KEY"} {
		t.Setenv("WATTMARK_TLS_"+name, name)
	}
	t.Setenv("WATTMARK_TOKEN_FILE", "file")
	t.Setenv("WATTMARK_TOKEN", "secret")
	if c := (Client{}).FromEnv(); c != (Client{"CA", "CERT", "KEY", "file", "secret"}) {
		t.Errorf("%+v", c)
	}
	if c := (Client{CA: "mine", TokenFile: "mine"}).FromEnv(); c.CA != "mine" || c.TokenFile != "mine" || c.Token != "" {
		t.Errorf("what was said goes first: %+v", c)
	}
	if o, err := (Client{}).DialOptions("lab:1"); err != nil || len(o) != 0 {
		t.Errorf("nothing said: %d options, %v", len(o), err)
	}
	if o, err := (Client{Token: "x"}).DialOptions("unix:/x"); err != nil || len(o) != 0 {
		t.Errorf("a token goes into a socket: %d options, %v", len(o), err)
	}
	if o, err := (Client{Token: "x"}).DialOptions("127.0.0.1:1"); err != nil || len(o) != 1 {
		t.Errorf("on this machine: %d options, %v", len(o), err)
	}
	if o, err := (Client{Token: "x"}).DialOptions("lab:1"); err != nil || len(o) != 2 {
		t.Errorf("elsewhere a token goes over TLS: %d options, %v", len(o), err)
	}
	for _, c := range []Client{{TokenFile: "/nowhere"}, {CA: "/nowhere"}, {Cert: "x"}, {Key: "x"}, {Cert: "/nowhere", Key: "/nowhere"}} {
		if _, err := c.DialOptions("lab:1"); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}

func FuzzToken(f *testing.F) {
	f.Add("wm_abc_def")
	f.Add("wm__")
	l := &List{Tokens: []Token{{ID: "abc", Hash: digest("right")}}}
	f.Fuzz(func(t *testing.T, text string) {
		id, secret, ok := parseToken(text)
		if !ok {
			return
		}
		if strings.Join([]string{tokenPrefix, id, secret}, "_") != text {
			t.Errorf("%q was read as %q and %q", text, id, secret)
		}
		if x := l.token(id); x != nil && x.matches(secret) != (secret == "right") {
			t.Errorf("%q matches %v", secret, x.matches(secret))
		}
	})
}

func FuzzList(f *testing.F) {
	f.Add([]byte(`{"version":1,"tokens":[{"id":"a","name":"ada","role":"viewer","sha256":"` + digest("x") + `","expires":"2030-01-01T00:00:00Z"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := parseList("x", b)
		if err != nil {
			return
		}
		for _, x := range l.Tokens {
			if x.Role < Viewer || x.Role > Admin || x.Expires.IsZero() {
				t.Errorf("%+v was taken", x)
			}
		}
	})
}

// A pipe in the place of a file that is read while serving keeps nobody waiting.
func TestPipeInPlaceOfAFile(t *testing.T) {
	l := newLists(t)
	token := l.token("ada", Viewer, time.Hour)
	r := l.registry()
	kept := l.path + ".kept"
	if err := errors.Join(os.Rename(l.path, kept), syscall.Mkfifo(l.path, 0o600)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := r.Token(token, now); !errors.Is(err, ErrRegistry) {
			t.Errorf("with a pipe: %v", err)
		}
	}
	if _, err := OpenAudit(l.path, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a pipe that nobody reads is an audit log")
	}
	if err := os.Rename(kept, l.path); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Token(token, now); err != nil {
		t.Errorf("put back: %v", err)
	}
}

func TestIsLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:1": true, "localhost:1": true, "[::1]:1": true, "0.0.0.0:1": false, ":1": false, "192.168.1.2:1": false, "lab:1": false, "127.0.0.1": false,
	} {
		if IsLoopback(address) != want {
			t.Errorf("%s: loopback %v", address, !want)
		}
	}
}
