// Command wattmark measures what a GPU really draws. It only wires: each family of
// commands is a package of cmd/internal.
package main

import (
	"os"
	"slices"
	"strings"

	"github.com/wattmark/wattmark/cmd/internal/bench"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/cluster"
	"github.com/wattmark/wattmark/cmd/internal/db"
	"github.com/wattmark/wattmark/cmd/internal/doctor"
	"github.com/wattmark/wattmark/cmd/internal/exchange"
	"github.com/wattmark/wattmark/cmd/internal/perf"
	"github.com/wattmark/wattmark/cmd/internal/run"
	"github.com/wattmark/wattmark/cmd/internal/service"
	"github.com/wattmark/wattmark/cmd/internal/study/compare"
	"github.com/wattmark/wattmark/cmd/internal/study/correct"
	"github.com/wattmark/wattmark/cmd/internal/study/instructions"
	"github.com/wattmark/wattmark/cmd/internal/study/model"
	"github.com/wattmark/wattmark/cmd/internal/study/predict"
	"github.com/wattmark/wattmark/cmd/internal/study/roofline"
	"github.com/wattmark/wattmark/cmd/internal/study/sensor"
	"github.com/wattmark/wattmark/cmd/internal/study/tiny"
	"github.com/wattmark/wattmark/cmd/internal/study/total"
	"github.com/wattmark/wattmark/cmd/internal/study/validate"
	"github.com/wattmark/wattmark/cmd/internal/task"
	"github.com/wattmark/wattmark/cmd/internal/top"
)

// families are the packages that bring the commands, with the names of these.
var families = []struct {
	names    string
	commands cli.Family
}{
	{"demo pulse run", run.Commands},
	{"delete note pin show tag tasks trim unpin users", task.Commands},
	{"export import", exchange.Commands},
	{"db", db.Commands},
	{"calibrate emulate instruments powersensor3 recalculate replay", bench.Commands},
	{"auth host monitor takeover", service.Commands},
	{"cluster relay store", cluster.Commands},
	{"top", top.Commands},
	{"doctor", doctor.Commands},
	{"validate", validate.Commands},
	{"sensor", sensor.Commands},
	{"correct", correct.Commands},
	{"compare", compare.Commands},
	{"total", total.Commands},
	{"roofline", roofline.Commands},
	{"model", model.Commands},
	{"predict", predict.Commands},
	{"tiny", tiny.Commands},
	{"instructions", instructions.Commands},
	{"bench", perf.Commands},
}

// familiesFor returns the families that a command line needs: that of its first word, none for the version, and all
// where the first word is a global flag, help or no command. To build all commands takes 2 ms and a megabyte, and the
// garbage collection that follows as much again.
func familiesFor(args []string) (all []cli.Family) {
	if len(args) == 1 && (args[0] == "version" || args[0] == "--version") {
		return nil
	}
	for _, f := range families {
		if len(args) > 0 && slices.Contains(strings.Fields(f.names), args[0]) {
			return []cli.Family{f.commands}
		}
		all = append(all, f.commands)
	}
	return all
}

func main() { cli.Main(familiesFor(os.Args[1:])...) }
