package measure

import (
	"testing"
)

// integrate runs blocks through an integrator and fails the test on any error.
func integrate(t testing.TB, s *Setup, from, to Seconds, e Edges, blocks ...Block) Result {
	t.Helper()
	g, err := NewIntegrator(s, from, to)
	if err != nil {
		t.Fatal(err)
	}
	for i := range blocks {
		if err := g.Add(&blocks[i]); err != nil {
			t.Fatal(err)
		}
	}
	r, err := g.Result(e)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// split cuts a block into blocks of the given lengths, in turn.
func split(tb Timebase, b Block, lengths ...int) []Block {
	var out []Block
	for at, i := 0, 0; at < b.Scans(); i++ {
		end := min(at+lengths[i%len(lengths)], b.Scans())
		out = append(out, b.Slice(tb, at, end))
		at = end
	}
	return out
}
