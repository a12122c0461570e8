package monitor

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"wattmark/api/wattmarkv1"
	"wattmark/monitor/instrument/registry"
)

// answers serves an instrument that answers every question alike.
func answers(t *testing.T, line string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				in := bufio.NewScanner(c)
				for in.Scan() {
					if strings.Contains(in.Text(), "?") {
						_, _ = io.WriteString(c, line+"\n")
					}
				}
			}()
		}
	}()
	return "tcp:" + l.Addr().String()
}

// A meter that says what is no text takes neither GetBench nor its explanation away.
func TestWhatAMeterSays(t *testing.T) {
	tried := 0
	for _, k := range registry.Kinds() {
		if k.Accept == nil || !strings.Contains(k.Address, "tcp") {
			continue
		}
		tried++
		for name, line := range map[string]string{
			"no text": "EVIL\xff\x1b[2J,MOD\xfeEL,S\x00N,1.0", "long": strings.Repeat("EVIL", 25000) + ",MODEL,SN,1.0",
		} {
			t.Run(k.Name+" "+name, func(t *testing.T) {
				ins, err := k.New(registry.Env{}, answers(t, line), k.Options())
				if err != nil {
					t.Fatal(err)
				}
				cfg := rampConfig(t.TempDir())
				cfg.Bench.Instrument = ins
				client, _, stop := serve(t, cfg)
				defer stop()
				b, err := client.GetBench(t.Context(), &wattmarkv1.GetBenchRequest{Ask: true})
				if err != nil {
					t.Fatal(err)
				}
				if b.Trouble == "" || !utf8.ValidString(b.Trouble) || strings.ContainsAny(b.Trouble, "\x1b\x00") || len(b.Trouble) > 2048 || proto.Size(b) > 8192 {
					t.Errorf("%d bytes: %.300q", proto.Size(b), b.Trouble)
				}
				if err := ins.Open(t.Context()); err == nil || len(err.Error()) > 1024 || !utf8.ValidString(err.Error()) {
					t.Errorf("%.200q", errors.Unwrap(err))
				}
			})
		}
	}
	if tried < 4 {
		t.Errorf("%d kinds were tried", tried)
	}
}
