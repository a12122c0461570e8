// Package lists converts slices.
package lists

import "slices"

// Map returns what f makes of each item of list, in its order; nil for an empty list.
func Map[A, B any](list []A, f func(A) B) []B {
	out := slices.Grow([]B(nil), len(list))
	for _, a := range list {
		out = append(out, f(a))
	}
	return out
}
