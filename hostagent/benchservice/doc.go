// Package benchservice is wattmark.v1.BenchService over a relay of benches: both
// have types of their own, and meet here.
package benchservice
