package compare

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/stat/combin"
)

// Permutation is a permutation test of the difference of two means: how many of
// the ways to call the runs A and B make a difference as large. It takes the runs
// as they are, without the meter's errors and without any distribution.
type Permutation struct {
	P float64
	// Ways is how many were looked at; Exact says that these are all.
	Ways  int
	Exact bool
}

// mostWays is how many are looked at; of more a random choice is.
const mostWays = 20_000

// permute makes the test. The random choice is the same for the same numbers of
// runs, so that a result can be repeated.
func permute(a, b []float64) *Permutation {
	all := append(append([]float64(nil), a...), b...)
	var total float64
	for _, v := range all {
		total += v
	}
	na, nb := float64(len(a)), float64(len(b))
	difference := func(sum float64) float64 { return math.Abs((total-sum)/nb - sum/na) }
	var sum float64
	for _, v := range a {
		sum += v
	}
	seen := difference(sum)
	seen -= 1e-9 * (seen + math.Abs(total)*1e-6) // the same difference, added up in another order
	p := &Permutation{Ways: mostWays}
	extreme := 0
	if n := combin.GeneralizedBinomial(na+nb, na); n <= mostWays {
		p.Exact, p.Ways = true, int(math.Round(n))
		g := combin.NewCombinationGenerator(len(all), len(a))
		pick := make([]int, len(a))
		for g.Next() {
			sum := 0.0
			for _, i := range g.Combination(pick) {
				sum += all[i]
			}
			if difference(sum) >= seen {
				extreme++
			}
		}
		p.P = float64(extreme) / float64(p.Ways)
		return p
	}
	rng := rand.New(rand.NewPCG(uint64(len(a)), uint64(len(b))))
	for range mostWays - 1 {
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		sum := 0.0
		for _, v := range all[:len(a)] {
			sum += v
		}
		if difference(sum) >= seen {
			extreme++
		}
	}
	p.P = float64(extreme+1) / mostWays // what was seen is one of the ways
	return p
}
