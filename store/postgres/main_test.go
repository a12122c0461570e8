package postgres_test

import (
	"os"
	"sync"
	"testing"

	"wattmark/store/postgres"
	"wattmark/store/postgres/pgtest"
)

// waits is what users are told.
var waits told

type told struct {
	mu   sync.Mutex
	text string
}

func (s *told) add(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text += text + "\n"
}

// take returns what was said since it was last called.
func (s *told) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.text = "" }()
	return s.text
}

func TestMain(m *testing.M) {
	postgres.Register(waits.add)
	os.Exit(pgtest.Run(m))
}
