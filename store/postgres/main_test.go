package postgres_test

import (
	"os"
	"testing"

	"wattmark/store/postgres"
	"wattmark/store/postgres/pgtest"
)

func TestMain(m *testing.M) {
	postgres.Register()
	os.Exit(pgtest.Run(m))
}
