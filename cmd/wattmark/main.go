// Command wattmark measures what a GPU really draws. It only wires: the parts
// are in the packages that it imports.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	io := streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	if err := run(ctx, os.Args[1:], io); err != nil {
		fmt.Fprintln(os.Stderr, "wattmark:", err)
		os.Exit(exitCode(err))
	}
}
