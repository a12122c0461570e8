package main

import (
	"fmt"
	"io"
	"strings"
)

// writePage writes docs/licences.md.
func writePage(out io.Writer, modules []module) error {
	var b strings.Builder
	b.WriteString(`# Licences of what is linked

Every module that ` + "`wattmark`" + ` and ` + "`libwattmark`" + ` link, with the licences that the texts in its folder are. Made by
` + "`make licences`" + `, which recognises texts and guesses nothing; a test holds this page against the modules, and the licences against those that
may be linked into a program under Apache-2.0. wattmark itself: [LICENSE](../LICENSE). What tests and tools use is not linked and
not listed ([dependencies.md](dependencies.md)). Go's own library: BSD-3-Clause.

| module | version | licences (SPDX) | texts |
|---|---|---|---|
`)
	for _, m := range modules {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", m.Path, m.Version, strings.Join(m.Licences, ", "), strings.Join(m.Files, ", "))
	}
	_, err := io.WriteString(out, b.String())
	return err
}
