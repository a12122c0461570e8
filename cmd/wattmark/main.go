// Command wattmark measures what a GPU really draws. It only wires: each family of
// commands is a package of cmd/internal.
package main

import (
	"os"

	"github.com/wattmark/wattmark/cmd/internal/bench"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/client"
	"github.com/wattmark/wattmark/cmd/internal/cluster"
	"github.com/wattmark/wattmark/cmd/internal/db"
	"github.com/wattmark/wattmark/cmd/internal/doctor"
	"github.com/wattmark/wattmark/cmd/internal/exchange"
	"github.com/wattmark/wattmark/cmd/internal/perf"
	"github.com/wattmark/wattmark/cmd/internal/ptd"
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
var families = []cli.Named{
	{Names: "demo pulse run", Commands: run.Commands},
	{Names: "delete note pin show tag tasks trim unpin users", Commands: task.Commands},
	{Names: "annotate export import publish", Commands: exchange.Commands},
	{Names: "db", Commands: db.Commands},
	{Names: "calibrate emulate instruments powersensor3 recalculate replay", Commands: bench.Commands},
	{Names: "auth host monitor takeover", Commands: service.Commands},
	{Names: "cluster relay store", Commands: cluster.Commands},
	{Names: "top", Commands: top.Commands},
	{Names: "ptd", Commands: ptd.Commands},
	{Names: "doctor", Commands: doctor.Commands},
	{Names: "validate", Commands: validate.Commands},
	{Names: "certificate sensor", Commands: sensor.Commands},
	{Names: "correct", Commands: correct.Commands},
	{Names: "compare", Commands: compare.Commands},
	{Names: "total", Commands: total.Commands},
	{Names: "roofline", Commands: roofline.Commands},
	{Names: "model", Commands: model.Commands},
	{Names: "predict", Commands: predict.Commands},
	{Names: "tiny", Commands: tiny.Commands},
	{Names: "instructions", Commands: instructions.Commands},
	{Names: "bench", Commands: perf.Commands},
	{Names: "config", Commands: client.Commands},
}

func main() { cli.Main(cli.FamiliesFor(os.Args[1:], families)...) }
