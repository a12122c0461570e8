//go:build !unix

package nidaqmx

import (
	"errors"
	"time"
)

func cpuTime() (time.Duration, error) { return 0, errors.New("getrusage is of Unix") }
