// Package cudatest serves an emulated board to the stand-in for libcuda
// (testdata/fakecuda.c of libwattmark), for tests of programs without a GPU.
package cudatest

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/monitor/emulator/board"
)

// Serve serves the board on a Unix socket until the test ends. A request is a line: "P ns load ns
// load ns ..." lays loads of those lengths down at once and is answered with when the first really
// begins; "C ns" takes back what begins later. A line that is neither fails the test.
func Serve(t *testing.T, socket string, live *board.Live) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				if err := converse(c, live); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

// converse answers the requests of one connection until the program closes it.
func converse(c net.Conn, live *board.Live) error {
	defer c.Close()
	for in := bufio.NewScanner(c); in.Scan(); {
		at, err := obey(strings.Fields(in.Text()), live)
		if err != nil {
			return fmt.Errorf("the stand-in GPU's line %q: %w", in.Text(), err)
		}
		if _, err := fmt.Fprintln(c, at.UnixNano()); err != nil {
			return nil // the program was killed
		}
	}
	return nil
}

// obey carries out one request, and returns the time that answers it.
func obey(words []string, live *board.Live) (time.Time, error) {
	if len(words) < 2 || len(words)%2 != 0 || words[0] != "P" && words[0] != "C" {
		return time.Time{}, errors.New("want P or C, a time, and pairs of load and length")
	}
	var n []int64
	for _, w := range words[1:] {
		x, err := strconv.ParseInt(w, 10, 64)
		if err != nil {
			return time.Time{}, err
		}
		n = append(n, x)
	}
	at := time.Unix(0, n[0])
	if words[0] == "C" {
		live.Cancel(at)
		return at, nil
	}
	var steps []load.Step
	for i := 1; i < len(n); i += 2 {
		steps = append(steps, load.Step{Load: load.State(n[i]), For: time.Duration(n[i+1])})
	}
	return live.SetSteps(at, steps)
}
