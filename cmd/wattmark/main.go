// Command wattmark measures what a GPU really draws. It only wires: the parts
// are in the packages that it imports.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"wattmark/measure"
)

func main() {
	ctx, stop := untilAsked(context.Background())
	defer stop()
	io := streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	if err := said(ctx, run(ctx, os.Args[1:], io)); err != nil {
		if !silently(err) {
			fmt.Fprintln(os.Stderr, "wattmark:", printable(err))
		}
		os.Exit(exitCode(err))
	}
}

// printable is an error's text, of which a terminal obeys nothing: it may cite a file or
// a device.
func printable(err error) string {
	lines := strings.Split(err.Error(), "\n")
	for i, l := range lines {
		lines[i] = measure.Printable(l)
	}
	return strings.Join(lines, "\n")
}
