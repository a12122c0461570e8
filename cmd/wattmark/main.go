// Command wattmark measures what a GPU really draws. It only wires: each family of
// commands is a package of cmd/internal.
package main

import (
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

// families are the packages that bring the commands.
var families = []cli.Family{
	run.Commands,
	task.Commands,
	exchange.Commands,
	db.Commands,
	bench.Commands,
	service.Commands,
	cluster.Commands,
	top.Commands,
	doctor.Commands,
	validate.Commands,
	sensor.Commands,
	correct.Commands,
	compare.Commands,
	total.Commands,
	roofline.Commands,
	model.Commands,
	predict.Commands,
	tiny.Commands,
	instructions.Commands,
	perf.Commands,
}

func main() { cli.Main(families...) }
