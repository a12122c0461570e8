package relays

import (
	"testing"
	"time"

	"wattmark/cmd/campaign/play"
)

// Tasks come to a store whole or not at all, for as many schedules as there is time for.
func TestRelays(t *testing.T) {
	if testing.Short() {
		t.Skip("store/relay looks for races")
	}
	const n = 44
	r, err := Run(t.Context(), Options{Options: play.Options{Seed: 1, Schedules: n, Until: time.Now().Add(25 * time.Second)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v\n%s", &r, Table(&r))
	for _, v := range r.Violated {
		t.Error(v)
	}
}

// A product that breaks its word is caught, within a few schedules in which it keeps it as
// it is.
func TestBrokenBuildsAreCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("it is caught without -short")
	}
	for _, c := range []struct {
		name   string
		broken Broken
		seed   uint64 // of a schedule in which it has the chance
	}{
		{"published half", PublishHalf, 0},
		{"tried for ever", KeepTrying, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got, want := Draw(c.seed, false).kind, map[Broken]kind{PublishHalf: kinds[0], KeepTrying: kinds[7]}[c.broken]; got != want {
				t.Fatalf("seed %d is of %q", c.seed, got.name)
			}
			for try := range uint64(10) {
				s := Draw(c.seed+11*try, false)
				o := Options{Options: play.Options{Dir: play.Scratch()}, Broken: c.broken, Patience: 10 * time.Second}
				r, err := Play(t.Context(), o, s)
				if err != nil {
					t.Fatal(err)
				}
				if len(r.Violations) == 0 {
					continue
				}
				t.Logf("caught by schedule %d: %v", try+1, r)
				o.Broken, o.Patience = Whole, 0
				if r, err = Play(t.Context(), o, s); err != nil || len(r.Violations) > 0 {
					t.Errorf("the product as it is breaks its word in the same schedule: %v, %v", r, err)
				}
				return
			}
			t.Error("not caught by 10 schedules")
		})
	}
}
