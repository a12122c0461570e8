package main

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"wattmark/api"
	"wattmark/api/auth"
	"wattmark/hostagent/hostlink"
	"wattmark/monitor"
	"wattmark/store"
)

// Every call of every service that is served has a row, and every row has a call: what
// has none would be refused to everybody.
func TestEveryCallHasItsRow(t *testing.T) {
	t.Parallel()
	g := newGenerator(1000, true)
	m, err := monitor.New(monitor.Config{Bench: monitor.Bench{Name: "x", Instrument: g, Setup: g.setup}, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(t.Context(), t.TempDir()+"/power.db")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	host, programs := grpc.NewServer(), grpc.NewServer()
	service := api.New(db)
	defer service.Close()
	service.Register(host)
	monitors, err := openMonitors(t.Context(), db, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer monitors.close()
	monitors.register(host)
	(&app{}).openReports(db).Register(host)
	hostlink.NewServer(hostlink.Config{DB: db}).Register(programs)
	api.Register(programs, db)

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
