//go:build slow

package measure

// slow lets the statistical tests take as many cases as their claims need.
const slow = true
