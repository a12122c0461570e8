// Command wattmark measures what a GPU really draws. It only wires: the parts
// are in the packages that it imports.
package main

import (
	"context"
	"fmt"
	"os"
)

func main() {
	ctx, stop := untilAsked(context.Background())
	defer stop()
	io := streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	if err := said(ctx, run(ctx, os.Args[1:], io)); err != nil {
		if !silently(err) {
			fmt.Fprintln(os.Stderr, "wattmark:", err)
		}
		os.Exit(exitCode(err))
	}
}
