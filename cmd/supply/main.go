// Command supply tells what the programs are made of: the licence of every module
// that is linked, as a page, and a bill of materials of a built program in
// CycloneDX's JSON.
//
//	go run ./cmd/supply licences >docs/licences.md
//	go run ./cmd/supply sbom bin/wattmark >bin/wattmark.cdx.json
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "supply:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, args []string) error {
	switch {
	case len(args) == 1 && args[0] == "licences":
		modules, err := linked(programs...)
		if err != nil {
			return err
		}
		return writePage(out, modules)
	case len(args) == 2 && args[0] == "sbom":
		return writeBill(out, args[1])
	}
	return errors.New("usage: supply licences, or supply sbom PROGRAM")
}
