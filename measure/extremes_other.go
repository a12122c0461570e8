//go:build !amd64

package measure

// Other processors take a scan at a time.
const vector = false

func swingFMA(*swing, *Count, *Count, int, int, *float32, *distance) {}

func boundsAVX(*float32, int, *distance) {}

func swingPackedFMA(*swing, *byte, uint, *byte, uint, *float32, *distance) {}
