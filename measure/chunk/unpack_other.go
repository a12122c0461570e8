//go:build !amd64

package chunk

// Other processors take a value at a time.
const vector = false

func unpackAVX2(*[BlockScans]int32, *byte, int32, uint) {}
