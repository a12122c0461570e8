package instructions

import (
	"regexp"
	"strings"
)

// Counts is what a program's text holds.
type Counts struct {
	// Loop is the number of instructions between the loop's label and its branch,
	// the branch included.
	Loop int
}

var ptxComment = regexp.MustCompile(`(?s)//[^\n]*|/\*.*?\*/`)

// Count counts instructions in PTX text: statements that end in a semicolon and
// are no declaration.
func Count(ptx []byte) (c Counts) {
	text := ptxComment.ReplaceAllString(strings.TrimRight(string(ptx), "\x00"), "")
	_, text, _ = strings.Cut(text, "LOOP:")
	loop, _, found := strings.Cut(text, "bra LOOP;")
	if !found {
		return c
	}
	for s := range strings.SplitSeq(loop, ";") {
		if s = strings.TrimSpace(s); s != "" && !strings.HasPrefix(s, ".") {
			c.Loop++
		}
	}
	return c // the branch's own guard is the last statement, without its semicolon
}

// Result computes x after so many turns of a loop of steps, for thread 0. Only
// for instructions that have Next.
func (i Instruction) Result(turns uint64, steps int) uint64 {
	x := i.Seeds[0]
	for range turns {
		for n := range steps {
			x = i.Next(x, i.Seeds[1+n%operands], i.Seeds[1+operands])
		}
	}
	return x
}
