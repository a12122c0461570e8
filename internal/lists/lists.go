// Package lists converts and groups slices, and chooses from lists of times.
package lists

import (
	"slices"
	"time"
)

// Latest returns the latest of one or more times.
func Latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// Earliest returns the earliest of one or more times.
func Earliest(times ...time.Time) time.Time { return slices.MinFunc(times, time.Time.Compare) }

// Map returns what f makes of each item of list, in its order; nil for an empty list.
func Map[A, B any](list []A, f func(A) B) []B {
	out := slices.Grow([]B(nil), len(list))
	for _, a := range list {
		out = append(out, f(a))
	}
	return out
}

// Order returns the numbers from 0 to n-1 in the order of compare; equal ones in their own.
func Order(n int, compare func(a, b int) int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	slices.SortStableFunc(out, compare)
	return out
}

// Groups are items by a key. The zero value is ready.
type Groups[K comparable, T any] struct {
	Keys []K // in the order in which they came
	Of   map[K][]T
}

// Add adds an item to the group of a key.
func (g *Groups[K, T]) Add(key K, item T) {
	if g.Of == nil {
		g.Of = map[K][]T{}
	}
	if g.Of[key] == nil {
		g.Keys = append(g.Keys, key)
	}
	g.Of[key] = append(g.Of[key], item)
}

// AddNew appends x to a list that does not contain it.
func AddNew[T comparable](list []T, x T) []T {
	if slices.Contains(list, x) {
		return list
	}
	return append(list, x)
}

// Filter returns those of a list that are wanted, in a list of their own.
func Filter[T any](list []T, want func(*T) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), func(x T) bool { return !want(&x) })
}
