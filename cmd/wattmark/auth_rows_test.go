package main

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/api"
	"github.com/wattmark/wattmark/api/auth"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/perf"
	"github.com/wattmark/wattmark/cmd/internal/service"
	"github.com/wattmark/wattmark/hostagent/daemon"
	"github.com/wattmark/wattmark/monitor"
	"github.com/wattmark/wattmark/store"
	"google.golang.org/grpc"
)

// Every call of every service that is served has a row, and every row has a call: what
// has none would be refused to everybody.
func TestEveryCallHasItsRow(t *testing.T) {
	t.Parallel()
	g := perf.NewGenerator(1000, true)
	m, err := monitor.New(monitor.Config{Bench: monitor.Bench{Name: "x", Instrument: g, Setup: g.Setup}, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(t.Context(), t.TempDir()+"/power.db")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	host, programs := grpc.NewServer(), grpc.NewServer()
	service_ := api.New(t.Context(), db, api.Options{})
	defer service_.Close()
	service_.Register(host)
	monitors, err := service.OpenMonitors(t.Context(), db, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer monitors.Close()
	monitors.Register(host)
	service.OpenReports(t.Context(), (&cli.App{}), db).Register(host)
	daemon.NewServer(daemon.Config{DB: db}).Register(programs)
	api.New(t.Context(), db, api.Options{}).Register(programs)

	rows := maps.Clone(auth.Rows)
	for _, s := range []*grpc.Server{m.NewServer(), host, programs} {
		for name, service := range s.GetServiceInfo() {
			for _, c := range service.Methods {
				full := "/" + name + "/" + c.Name
				row, ok := auth.Rows[full]
				delete(rows, full)
				changes := !slices.ContainsFunc([]string{"Get", "List", "Read", "Watch", "Aggregate", "Describe", "Check", "RenewLease", "ServerReflection"}, func(p string) bool { return strings.HasPrefix(c.Name, p) })
				switch {
				case !ok:
					t.Errorf("%s has no row in auth.Rows", full)
				case row.Role == auth.Nobody && full != "/grpc.health.v1.Health/Check":
					t.Errorf("%s is open to everybody", full)
				case changes && (row.Role < auth.Measurer || !row.Changes):
					t.Errorf("%s changes something: %+v", full, row)
				}
			}
		}
	}
	for left := range rows {
		t.Errorf("%s is served nowhere", left)
	}
}
