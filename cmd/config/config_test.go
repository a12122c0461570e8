package config

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// someFlags are flags as a service has them.
type someFlags struct {
	listen string
	drain  time.Duration
	retry  int
	level  slog.LevelVar
	set    *pflag.FlagSet
}

func newFlags() *someFlags {
	f := &someFlags{set: pflag.NewFlagSet("x", pflag.ContinueOnError)}
	f.set.StringVar(&f.listen, "listen", "default:1", "")
	f.set.DurationVar(&f.drain, "drain-time", time.Minute, "")
	f.set.IntVar(&f.retry, "retry", 3, "")
	f.set.TextVar(&f.level, "log-level", &f.level, "debug, info or error")
	f.set.Func("spool-free", "bytes", func(s string) error { return fmt.Errorf("%q is not a size", s) })
	f.set.String("config", "", "")
	return f
}

func TestConfigSetsFlags(t *testing.T) {
	f := newFlags()
	if err := f.set.Parse([]string{"--retry", "9"}); err != nil {
		t.Fatal(err)
	}
	c, err := Parse("x.yaml", []byte("# a comment\nlisten: \":7551\" # all\ndrain_time: 90s\nretry: 4\nlog_level: debug\n"), f.set)
	if err != nil {
		t.Fatal(err)
	}
	if f.listen != "default:1" || f.drain != time.Minute {
		t.Error("reading a file set flags")
	}
	if err := c.Apply(f.set); err != nil {
		t.Fatal(err)
	}
	if f.listen != ":7551" || f.drain != 90*time.Second || f.level.Level() != slog.LevelDebug {
		t.Errorf("%+v", f)
	}
	if f.retry != 9 {
		t.Errorf("retry %d: the command line wins", f.retry)
	}
}

// One key is read without the flags of the command that the file belongs to.
func TestValueOfAKey(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(name, []byte("# a comment\nspool: /var/spool # all\nretry: 4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"spool": "/var/spool", "retry": "", "listen": ""} {
		if got := Value(name, key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	if got := Value(name+".none", "spool"); got != "" {
		t.Error(got)
	}
}

func TestConfigNothingSaid(t *testing.T) {
	for _, text := range []string{"", "\n", "# only a comment\n", "---\n"} {
		if c, err := Parse("x.yaml", []byte(text), newFlags().set); err != nil || c.Len() != 0 {
			t.Errorf("%q: %v, %v", text, c, err)
		}
	}
}

var configFaults = []struct{ text, at, words string }{
	{"listen: a\nlisteen: b\n", "2:1", `no such key: "listeen"; there are drain_time, listen, log_level, retry, spool_free`},
	{"drain-time: 1s\n", "1:1", `no such key: "drain-time"`},
	{"config: other.yaml\n", "1:1", "no such key"},
	{"listen: a\ndrain_time: soon\n", "2:13", `drain_time: "soon": want a time with its unit`},
	{"retry: many\n", "1:8", `retry: "many": want a whole number`},
	{"log_level: loud\n", "1:12", `log_level: slog: level string "loud": unknown name (debug, info or error)`},
	{"spool_free: lots\n", "1:13", `spool_free: "lots" is not a size (bytes)`},
	{"listen: [a, b]\n", "1:1", "want one value"},
	{"listen:\n  host: a\n", "1:", "want one value"},
	{"listen:\n", "1:", "want one value"},
	{"listen: a\nretry: 1\nlisten: b\n", "3:1", ""},
	{"- listen\n", "1:1", "want lines of the form key: value"},
	{"listen: a\n---\nretry: 1\n", "3:", "a second document"},
	{"listen: \"a\nretry: 1\n", "1:", ""},
	{"\tlisten: a\n", "1:7", "a tab: YAML wants spaces"},
}

func TestConfigFaultsHaveAPlace(t *testing.T) {
	for _, c := range configFaults {
		f := newFlags()
		_, err := Parse("x.yaml", []byte(c.text), f.set)
		if err == nil || !strings.HasPrefix(err.Error(), "x.yaml:"+c.at) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%q: got %v, want %s … %s", c.text, err, c.at, c.words)
		}
		if f.listen != "default:1" || f.drain != time.Minute || f.retry != 3 || f.level.Level() != slog.LevelInfo || f.set.Changed("retry") {
			t.Errorf("%q: a bad file changed flags: %+v", c.text, f)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("listen: \":7551\"\ndrain_time: 90s\n"))
	f.Add([]byte("listen: |\n  a\nretry: &x 1\nlog_level: *x\n"))
	for _, c := range configFaults {
		f.Add([]byte(c.text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		flags := newFlags()
		c, err := Parse("x.yaml", data, flags.set)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without words")
			}
			return
		}
		if err := c.Apply(flags.set); err != nil {
			t.Errorf("a file that was found sound cannot be applied: %v", err)
		}
	})
}

func TestReload(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := newFlags()
	if err := f.set.Parse([]string{"--retry", "9"}); err != nil {
		t.Fatal(err)
	}
	write("listen: a\ndrain_time: 1s\n")
	var said bytes.Buffer
	r := NewReloader(f.set, slog.New(slog.NewTextHandler(&said, nil)))
	applied, always := 0, 0
	r.Live["drain-time"] = func() { applied++ }
	r.Always = func() error { always++; return nil }
	var err error
	if r.File, err = Read(name, f.set); err != nil {
		t.Fatal(err)
	}
	if err := r.File.Apply(f.set); err != nil {
		t.Fatal(err)
	}
	reload := func(text string, words ...string) {
		t.Helper()
		write(text)
		said.Reset()
		r.Reload()
		for _, w := range words {
			if !strings.Contains(said.String(), w) {
				t.Errorf("%q is not told:\n%s", w, &said)
			}
		}
	}
	reload("listen: b\ndrain_time: 5s\nretry: 2\n", "drain-time=5s", "need a restart", "settings=listen", "command line sets these", "settings=retry")
	if f.drain != 5*time.Second || f.listen != "a" || f.retry != 9 || applied != 1 {
		t.Errorf("%+v, applied %d", f, applied)
	}
	reload("listen: b\ndrain_time: 5s\nretry: 2\n", "settings=listen") // it still does
	if applied != 1 {
		t.Error("what did not change was applied again")
	}
	reload("listen: b\ndrain_time: never\n", "stays as it is", ":2:13")
	if f.drain != 5*time.Second {
		t.Errorf("a bad file changed %v", f.drain)
	}
	reload("listen: a\n", "drain-time=1m0s") // back to the default
	if f.drain != time.Minute || strings.Contains(said.String(), "restart") {
		t.Errorf("%v\n%s", f.drain, &said)
	}
	if always != 4 {
		t.Errorf("%d of 4 reloads looked at the bench", always)
	}
}
