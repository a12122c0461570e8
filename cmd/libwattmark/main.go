//go:build cgo

// Command libwattmark is the C library libwattmark.so (go build -buildmode=c-shared).
package main

import "C"

func main() {}
