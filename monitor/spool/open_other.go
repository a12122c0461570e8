//go:build !unix

package spool

import "io/fs"

const noFollow = 0

// safe knows no owners here.
func safe(string, fs.FileMode) error { return nil }

func safeInfo(string, fs.FileInfo, fs.FileMode) error { return nil }
