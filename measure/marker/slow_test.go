//go:build slow

package marker

// slow lets the statistical tests take as many cases as their claims need.
const slow = true
