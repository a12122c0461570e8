//go:build !linux

package doctor

import (
	"errors"
	"math"
	"runtime"
	"time"
)

var errOnlyLinux = errors.New("not known on " + runtime.GOOS)

func diskFree(string) (uint64, error) { return math.MaxInt64, nil }

func readClock() (clockState, error) { return clockState{}, errOnlyLinux }

func stepWatch() func() time.Duration { return func() time.Duration { return 0 } }

func readLimits() (limitState, error) { return limitState{}, errOnlyLinux }
