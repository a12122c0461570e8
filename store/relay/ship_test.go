package relay_test

import (
	"context"
	"errors"
	"testing"

	"wattmark/store/relay"
)

// Captures are released once their tasks are published, and kept where their monitor
// does not answer.
func TestShipperReleases(t *testing.T) {
	noRaces(t)
	bus := alone(t, relay.StreamOptions{})
	host := open(t, "host.db")
	p := &relay.Publisher{DB: host, Bus: bus}
	for i, monitor := range []string{"", "lab:7551", "away:7551"} {
		id := fill(t, host, string(rune('a'+i)), 1, 500, uint64(i))
		if monitor != "" {
			ok(t, p.Hold(t.Context(), id, monitor))
		}
	}
	away := errors.New("it is away")
	var released []string
	s := &relay.Shipper{Publisher: p, Release: func(_ context.Context, monitor, capture string) error {
		if monitor == "away:7551" {
			return away
		}
		released = append(released, monitor+" "+capture)
		return nil
	}}
	if err := s.All(t.Context()); !errors.Is(err, away) {
		t.Errorf("%v", err)
	}
	if len(released) != 1 || released[0] != "lab:7551 b" {
		t.Errorf("released: %v", released)
	}
	if left := must(host.Untagged(t.Context(), relay.TagReplicated, 10))(t); len(left) != 0 {
		t.Errorf("not published: %v", left)
	}
	if held := must(host.Tagged(t.Context(), relay.TagHeld))(t); len(held) != 1 || held[3] != "away:7551" {
		t.Errorf("held: %v", held)
	}
	ok(t, s.All(t.Context())) // the monitor that is away is left alone for a while
}
