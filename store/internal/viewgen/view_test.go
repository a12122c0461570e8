package viewgen

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write view.sql")

func TestGeneratedViewIsCurrent(t *testing.T) {
	const path = "../../view.sql"
	if *update {
		if err := os.WriteFile(path, []byte(viewSQL()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != viewSQL() {
		t.Error("view.sql differs from the generator: run go generate ./store")
	}
}
