//go:build slow

package attribute

// slow lets the statistical tests take as many cases as their claims need.
const slow = true
