//go:build !unix

package spool

import (
	"io/fs"
	"math"
	"os"
)

const noFollow = 0

// freeBytes returns no limit: writing fails when the disk is full.
func freeBytes(string) (int64, error) { return math.MaxInt64, nil }

// lock does nothing where there is no flock: the administrator must not give one spool
// to two monitors there.
func lock(*os.File) error { return nil }

// safe and safeInfo accept everything: there are no owners to check.
func safe(string, fs.FileMode) error { return nil }

func safeInfo(string, fs.FileInfo, fs.FileMode) error { return nil }
