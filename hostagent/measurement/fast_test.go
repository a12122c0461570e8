//go:build !slow

package measurement

// slow is false without the build tag: statistical tests take a sample of their cases,
// with the same bounds (go test -tags slow takes all).
const slow = false
