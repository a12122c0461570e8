package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/api/auth"
	"github.com/wattmark/wattmark/cmd/config"
	"github.com/wattmark/wattmark/cmd/internal/cli"
)

// A repeatable flag takes a list, or one value with commas, from a file; parsing the file
// does not set it.
func TestConfigTakesLists(t *testing.T) {
	for _, c := range []struct{ text, want, fault string }{
		{"monitor: a:1\n", "a:1", ""},
		{"monitor: a:1, b:2\n", "a:1,b:2", ""},
		{"monitor: [a:1, b:2, a:1]\n", "a:1,b:2", ""},
		{"monitor:\n  - a:1\n  - 'b:2'\n", "a:1,b:2", ""},
		{"listen: x\n", "default:1", ""},
		{"monitor: []\n", "", "x.yaml:1:1: monitor: the list is empty"},
		{"monitor: [a:1, [b:2]]\n", "", "x.yaml:1:16: monitor: want one value behind each dash"},
		{"monitor: [a:1, '']\n", "", "x.yaml:1:1: monitor: an address is empty"},
		{"listen: [a, b]\n", "", "want one value behind the colon"},
	} {
		set := pflag.NewFlagSet("x", pflag.ContinueOnError)
		set.String("listen", "default:1", "")
		a := Addresses{List: []string{"default:1"}}
		set.Var(&a, "monitor", "")
		file, err := config.Parse("x.yaml", []byte(c.text), set)
		if a.String() != "default:1" || set.Changed("monitor") {
			t.Errorf("%q: reading it set %v", c.text, a.List)
		}
		if c.fault != "" {
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%q: got %v, want %s", c.text, err, c.fault)
			}
			continue
		}
		if err == nil {
			err = file.Apply(set)
		}
		if err != nil || a.String() != c.want {
			t.Errorf("%q: %v, %v, want %s", c.text, a.List, err, c.want)
		}
	}
	var a Addresses
	set := pflag.NewFlagSet("x", pflag.ContinueOnError)
	a.List = []string{"default:1"}
	set.Var(&a, "monitor", "")
	if err := set.Parse([]string{"--monitor", "a:1", "--monitor", "b:2,c:3"}); err != nil ||
		a.String() != "a:1,b:2,c:3" {
		t.Errorf("%v, %v", a.List, err)
	}
}

// The file that a service takes without --config is logged, and named where the service fails; none leaves it out.
func TestConfigurationInForce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(file, []byte("log_level: info\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args          []string
		logged, named bool
	}{
		{nil, true, true},
		{[]string{"--config", file}, true, false},
		{[]string{"--config", "none"}, false, false},
		{[]string{"--config", os.DevNull}, false, false},
	} {
		var said bytes.Buffer
		var s ServiceFlags
		cmd := s.Command(&cli.App{Streams: cli.Streams{Err: &said}}, "x", "", func(context.Context, *config.Reloader, *slog.Logger) error {
			return syscall.EADDRINUSE
		})
		s.AddTo(cmd, "x")
		s.fallback = file
		cmd.SetArgs(c.args)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		err := cmd.ExecuteContext(t.Context())
		if !errors.Is(err, syscall.EADDRINUSE) || strings.Contains(err.Error(), file) != c.named {
			t.Errorf("%v: %v", c.args, err)
		}
		if strings.Contains(said.String(), file) != c.logged {
			t.Errorf("%v: %s", c.args, &said)
		}
	}
}

func TestCalm(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	h := Calm(slog.New(slog.NewTextHandler(&out, nil))).With("who", "x").Handler()
	at := time.Now()
	for i := range 100 {
		if err := h.Handle(t.Context(),
			slog.NewRecord(at.Add(time.Duration(i)*time.Millisecond), slog.LevelWarn, "trouble", 0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Handle(t.Context(), slog.NewRecord(at.Add(time.Second), slog.LevelWarn, "more", 0)); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != recordsPerSecond+1 ||
		!strings.Contains(out.String(), "lines_left_out=95") {
		t.Errorf("%d lines:\n%s", n, &out)
	}
}

// A file that the service's user may not open, or that others may, is not tried again every five seconds.
func TestFilesOfOthers(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
		want string
	}{
		{&fs.PathError{Op: "open", Path: "/etc/server.crt", Err: fs.ErrPermission}, cli.ExitUsage, "/etc/server.crt: permission denied: the service runs as user"},
		{fmt.Errorf("server.key: %w: chmod go= server.key", auth.ErrMode), cli.ExitUsage, "chmod go= server.key"},
		{fs.ErrNotExist, cli.ExitFailed, "file does not exist"},
	} {
		if err := ofOwner(c.err); cli.ExitCode(err) != c.code || !strings.Contains(err.Error(), c.want) || !errors.Is(err, c.err) {
			t.Errorf("%v: %v, code %d", c.err, err, cli.ExitCode(err))
		}
	}
	if err := ofOwner(nil); err != nil {
		t.Error(err)
	}
}

// 0.0.0.0 is IPv4 alone, and not [::].
func TestListensWhereItIsTold(t *testing.T) {
	x := &Access{Insecure: true, Log: slog.New(slog.DiscardHandler)}
	l, err := x.Listen(t.Context(), "0.0.0.0:0", "")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if at := l.Addr().String(); !strings.HasPrefix(at, "0.0.0.0:") {
		t.Errorf("told 0.0.0.0, listens at %s", at)
	}
}
