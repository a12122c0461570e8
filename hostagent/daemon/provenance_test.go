package daemon

import (
	"errors"
	"os"
	"strings"
	"testing"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/store"
)

// A command line is cut by the program, and one that was not is refused.
func TestProvenanceIsBounded(t *testing.T) {
	s := NewServer(Config{Version: "daemon"})
	long := make([]string, 5000)
	for _, c := range []*store.Provenance{
		{Command: long}, {Command: []string{"a", strings.Repeat("x", 100_000), "b"}}, {Version: "lib"},
	} {
		got, err := s.provenance(provenance(c))
		if err != nil || len(got.Command) > maxWords+1 || len(c.Command) > 0 &&
			got.Command[len(got.Command)-1] != "…" || got.Version == "" {
			t.Errorf("%d words: %v", len(c.Command), err)
		}
	}
	for _, p := range []*pb.Provenance{
		{Command: long}, {Command: []string{strings.Repeat("x", 100_000)}}, {Directory: strings.Repeat("d", 5000)},
	} {
		if _, err := s.provenance(p); !errors.Is(err, wire.ErrMessage) {
			t.Errorf("taken, or refused with %v", err)
		}
	}
	host, _ := os.Hostname()
	if got, err := s.provenance(nil); err != nil || got.Host != host || got.Version != "daemon" ||
		provenance(nil) != nil {
		t.Errorf("of a program that says nothing: %+v %v", got, err)
	}
}
