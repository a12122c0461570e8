//go:build !slow

package attribute

// slow is false without the build tag: statistical tests take a sample of their cases.
const slow = false
