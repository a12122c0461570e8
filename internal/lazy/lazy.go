// Package lazy defers work that a package needs only when it is used, so that a command that does
// not use it starts without it.
package lazy

import (
	"regexp"
	"sync"
)

// Regexp returns a function that compiles expr on its first call and returns the same expression
// on each. It panics, at that call, where expr is not valid. It is safe for concurrent use.
func Regexp(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
