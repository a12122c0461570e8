package measure

import (
	"math"
	"testing"
)

// Within is within both uncertainties, whatever the meter may have missed; outside is
// outside of them whatever it has; else nobody can tell.
func TestAgainst(t *testing.T) {
	nan := Joule(math.NaN())
	for _, c := range []struct {
		name     string
		e, meter Estimate
		unseen   Joule
		want     Agreement
		word     string
	}{
		{"within the meter's", Estimate{98, 0}, Estimate{100, 2}, 0, Agrees, "within"},
		{"outside of the meter's", Estimate{97.9, 0}, Estimate{100, 2}, 0, Differs, "outside"},
		{"within both", Estimate{97.5, 1.5}, Estimate{100, 2}, 0, Agrees, "within"},
		{"outside of both", Estimate{97.49, 1.5}, Estimate{100, 2}, 0, Differs, "outside"},
		{"none of its own", Estimate{98, nan}, Estimate{100, 2}, 0, Agrees, "within"},
		{"no energy", Estimate{nan, 0}, Estimate{100, 2}, 0, Unknown, ""},
		{"a meter that cannot judge", Estimate{50, 0}, Estimate{100, nan}, 0, Unknown, ""},
		{"low, and the meter misses a rail", Estimate{90, 0}, Estimate{100, 2}, nan, Differs, "outside"},
		{"high, which the rail may be", Estimate{110, 0}, Estimate{100, 2}, nan, Unknown, ""},
		{"high, and more than the rail may be", Estimate{110, 0}, Estimate{100, 2}, 5, Differs, "outside"},
		{"near, with a rail of which nothing is known", Estimate{100, 0}, Estimate{100, 2}, nan, Unknown, ""},
		{"near, with a small rail", Estimate{100, 0}, Estimate{100, 2}, 1, Agrees, "within"},
	} {
		if got := c.e.Against(c.meter, c.unseen); got != c.want || got.Word() != c.word {
			t.Errorf("%s: %s, %q", c.name, got, got.Word())
		}
	}
}
