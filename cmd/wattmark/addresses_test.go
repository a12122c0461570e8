package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"wattmark/cmd/config"
)

// A flag that may be said several times takes a list, or one value with commas, and
// reading a file does not set it.
func TestConfigTakesLists(t *testing.T) {
	for _, c := range []struct{ text, want, fault string }{
		{"monitor: a:1\n", "a:1", ""},
		{"monitor: a:1, b:2\n", "a:1,b:2", ""},
		{"monitor: [a:1, b:2, a:1]\n", "a:1,b:2", ""},
		{"monitor:\n  - a:1\n  - 'b:2'\n", "a:1,b:2", ""},
		{"listen: x\n", "default:1", ""},
		{"monitor: []\n", "", "x.yaml:1:1: monitor: the list is empty"},
		{"monitor: [a:1, [b:2]]\n", "", "x.yaml:1:16: monitor: want one value behind each dash"},
		{"monitor: [a:1, '']\n", "", `x.yaml:1:1: monitor: "a:1,": want a list of addresses`},
		{"listen: [a, b]\n", "", "want one value behind the colon"},
	} {
		set := pflag.NewFlagSet("x", pflag.ContinueOnError)
		set.String("listen", "default:1", "")
		a := addresses{list: []string{"default:1"}}
		set.Var(&a, "monitor", "")
		file, err := config.Parse("x.yaml", []byte(c.text), set)
		if a.String() != "default:1" || set.Changed("monitor") {
			t.Errorf("%q: reading it set %v", c.text, a.list)
		}
		if c.fault != "" {
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%q: got %v, want %s", c.text, err, c.fault)
			}
			continue
		}
		if err == nil {
			err = file.Apply(set)
		}
		if err != nil || a.String() != c.want {
			t.Errorf("%q: %v, %v, want %s", c.text, a.list, err, c.want)
		}
	}
	var a addresses
	set := pflag.NewFlagSet("x", pflag.ContinueOnError)
	a.list = []string{"default:1"}
	set.Var(&a, "monitor", "")
	if err := set.Parse([]string{"--monitor", "a:1", "--monitor", "b:2,c:3"}); err != nil || a.String() != "a:1,b:2,c:3" {
		t.Errorf("%v, %v", a.list, err)
	}
}
