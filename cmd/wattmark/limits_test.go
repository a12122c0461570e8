package main

import (
	"testing"

	"github.com/spf13/pflag"

	"wattmark/store"
)

// A command that offers no flags for the database's room keeps the guard on its disk.
func TestDatabaseKeepsRoomWithoutFlags(t *testing.T) {
	var none databaseFlags
	if got := none.limits(); got != (store.Limits{Free: defaultFree}) {
		t.Errorf("without flags %+v", got)
	}
	var f databaseFlags
	fl := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.addTo(fl)
	if got := f.limits(); got != (store.Limits{Free: defaultFree}) {
		t.Errorf("with flags left alone %+v", got)
	}
	if err := fl.Parse([]string{"--db-quota=3GB", "--db-free=0"}); err != nil {
		t.Fatal(err)
	}
	if got := f.limits(); got != (store.Limits{Bytes: 3e9}) {
		t.Errorf("with both given %+v", got)
	}
}
