package main

import (
	"os"
	"testing"
)

func TestMigrationIsWhatTheGeneratorWrites(t *testing.T) {
	got, err := os.ReadFile("../../migrations/0017_view.sql")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != Migration() {
		t.Error("migrations/0017_view.sql differs from the generator: run go generate ./store, or undo the change if the migration was released")
	}
}
