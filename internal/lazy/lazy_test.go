package lazy

import "testing"

func TestRegexpIsCompiledOnce(t *testing.T) {
	digits := Regexp(`^\d+$`)
	first := digits()
	if !first.MatchString("42") || first.MatchString("x") || first != digits() {
		t.Error("not one and the same expression")
	}
	bad := Regexp(`(`) // no panic before its first use
	defer func() {
		if recover() == nil {
			t.Error("an expression that is not valid was taken")
		}
	}()
	bad()
}
