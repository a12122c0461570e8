package bench

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed examples/*.yaml
var examples embed.FS

// Examples lists the kinds of instrument that have a ready-made bench file.
func Examples() []string {
	entries, _ := fs.ReadDir(examples, "examples")
	var out []string
	for _, e := range entries {
		out = append(out, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return out
}

// Example is a ready-made bench file for a kind of instrument, to be edited.
func Example(kind string) ([]byte, error) {
	b, err := examples.ReadFile("examples/" + kind + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("no example for %q: want one of %s", kind, strings.Join(Examples(), ", "))
	}
	return b, nil
}
