//go:build slow

package measurement

// slow lets the statistical tests take as many cases as their claims need.
const slow = true
