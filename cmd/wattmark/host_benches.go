package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"wattmark/analysis/validate"
	"wattmark/api/reports"
	"wattmark/hostagent/benchservice"
	"wattmark/hostagent/benchwatch"
	"wattmark/hostagent/monitorclient"
	"wattmark/store"
)

// monitors is the part of a host that looks at its monitors for others.
type monitors struct {
	relay   *benchwatch.Relay
	clients []*monitorclient.Client
}

// benchPatience is how long a monitor that is silent is waited for.
const benchPatience = 5 * time.Second

// openMonitors prepares to watch monitors; they need not be there.
func openMonitors(ctx context.Context, db *store.DB, list []string) (*monitors, error) {
	m := &monitors{}
	cfg := benchwatch.Config{TaskOf: db.TaskOfCapture}
	for _, address := range list {
		c, err := dialMeter(ctx, address, monitorclient.Options{Version: version(), Call: benchPatience})
		if err != nil {
			return nil, errors.Join(withCode(exitUsage, fmt.Errorf("--monitor: %w", err)), m.close())
		}
		m.clients = append(m.clients, c)
		cfg.Monitors = append(cfg.Monitors, c)
	}
	m.relay = benchwatch.New(cfg)
	return m, nil
}

// register adds BenchService to a server.
func (m *monitors) register(server *grpc.Server) { benchservice.New(m.relay).Register(server) }

func (m *monitors) close() error {
	var errs []error
	for _, c := range m.clients {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// openReports makes ReportService over a database; validations are those of
// wattmark validate.
func (a *app) openReports(db *store.DB) *reports.Service {
	return reports.New(reports.Config{DB: db, ValidationKind: validationKind, Subject: func(ctx context.Context, id store.TaskID) (validate.Subject, error) {
		var out validate.Subject
		var err error
		for out, err = range a.taskSubjects(ctx, db, []store.TaskID{id}, &validateFlags{}) {
			break
		}
		return out, err
	}})
}
