package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestCalm(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	h := calm(slog.New(slog.NewTextHandler(&out, nil))).With("who", "x").Handler()
	at := time.Now()
	for i := range 100 {
		if err := h.Handle(t.Context(), slog.NewRecord(at.Add(time.Duration(i)*time.Millisecond), slog.LevelWarn, "trouble", 0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Handle(t.Context(), slog.NewRecord(at.Add(time.Second), slog.LevelWarn, "more", 0)); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != mostTold+1 || !strings.Contains(out.String(), "lines_left_out=95") {
		t.Errorf("%d lines:\n%s", n, &out)
	}
}
