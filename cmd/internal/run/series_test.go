package run

import (
	"slices"
	"testing"
)

// A command line is split as by a shell, which expands nothing.
func TestWords(t *testing.T) {
	for text, want := range map[string][]string{
		`./gemm 4096`:                  {"./gemm", "4096"},
		` sh -c 'a | b > "c" $x' `:     {"sh", "-c", `a | b > "c" $x`},
		`a "b c"'d' \$e ''`:            {"a", "b cd", "$e", ""},
		`a "say \"it\""`:               {"a", `say "it"`},
		"--benchmark half\t--pulse 1s": {"--benchmark", "half", "--pulse", "1s"},
		``:                             nil,
	} {
		if got, err := words(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{`a | b`, `a > b`, `a $HOME`, `a *.c`, `a; b`, `a "b`, `a 'b`, `a \`} {
		if got, err := words(text); err == nil {
			t.Errorf("%s: %q", text, got)
		}
	}
}
