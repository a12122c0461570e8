// Stepgen drafts the migrations that PostgreSQL's schema lacks out of those of
// the file's schema. What is there is never touched: read a new draft, mend what
// the two databases do in different ways, and commit it.
package main

import (
	"flag"
	"log"
	"os"
	"path/filepath"

	"wattmark/store/postgres/internal/dialect"
)

func main() {
	from := flag.String("from", "", "folder of the file's migrations")
	to := flag.String("to", "", "folder of PostgreSQL's migrations")
	flag.Parse()
	if err := draft(*from, *to); err != nil {
		log.Fatal(err)
	}
}

func draft(from, to string) error {
	steps, err := filepath.Glob(filepath.Join(from, "*.sql"))
	if err != nil {
		return err
	}
	for _, step := range steps {
		out := filepath.Join(to, filepath.Base(step))
		if _, err := os.Stat(out); err == nil {
			continue
		}
		text, err := os.ReadFile(step)
		if err != nil {
			return err
		}
		if err := os.WriteFile(out, []byte(dialect.Step(string(text))), 0o644); err != nil { // #nosec G703 -- steps of a folder of this tree
			return err
		}
	}
	return nil
}
