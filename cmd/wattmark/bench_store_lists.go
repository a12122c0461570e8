package main

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"wattmark/api"
	"wattmark/api/client"
	"wattmark/api/wire"
	"wattmark/measure"
	"wattmark/store"
)

// listsReport is what pages of tasks took.
type listsReport struct {
	Tasks int          `json:"tasks"`
	MadeS float64      `json:"made_s"`
	Bytes float64      `json:"database_bytes"`
	Pages []pageReport `json:"pages"`
}

// pageReport is one question, asked again and again.
type pageReport struct {
	Database string  `json:"database"` // file or server
	Over     string  `json:"over"`     // process (a call of the store) or gRPC
	Question string  `json:"question"`
	Page     int     `json:"page"`
	Tasks    int     `json:"tasks"` // on it
	Calls    int     `json:"calls"`
	LeastS   float64 `json:"least_s"` // what it takes where nothing else runs
	P50S     float64 `json:"p50_s"`
	P99S     float64 `json:"p99_s"`

	// Of the calls with the processor to themselves: a fixed piece of work just before and
	// just after took at most quietRatio of its least. 0 where there are fewer than fewQuiet.
	QuietCalls int     `json:"quiet_calls"`
	QuietP50S  float64 `json:"quiet_p50_s"`
	QuietP99S  float64 `json:"quiet_p99_s"`
}

const (
	pageSize = 50
	farPage  = 5000
)

// listQuestion is a question for pages; goal marks those that the goals are about.
type listQuestion struct {
	name string
	q    store.ListQuery
	goal bool
}

var listQuestions = []listQuestion{
	{"all, newest first", store.ListQuery{}, true},
	{"of a user with 30 %", store.ListQuery{Filter: store.Filter{User: madeLab}}, true},
	{"of a user with 0.07 %", store.ListQuery{Filter: store.Filter{User: madeOther}}, true},
	{"gemm-* (40 %), newest first", store.ListQuery{Filter: store.Filter{Name: "gemm-*"}}, true},
	{"gemm-* by name", store.ListQuery{Filter: store.Filter{Name: "gemm-*"}, Order: store.ByName}, true},
	{"gemm-11* (1.8 %) by name", store.ListQuery{Filter: store.Filter{Name: "gemm-11*"}, Order: store.ByName}, true},
	{"gemm-11* (1.8 %), newest first", store.ListQuery{Filter: store.Filter{Name: "gemm-11*"}}, true},
	{"gemm-117 (0.16 %), newest first", store.ListQuery{Filter: store.Filter{Name: "gemm-117"}}, false},
	{"of a user, gemm-*", store.ListQuery{Filter: store.Filter{User: madeLab, Name: "gemm-*"}}, false},
	{"by energy", store.ListQuery{Order: store.ByEnergy}, false},
	{"of a user by energy", store.ListQuery{Filter: store.Filter{User: madeLab}, Order: store.ByEnergy}, false},
	{"by length", store.ListQuery{Order: store.ByDuration}, false},
	{"by launch", store.ListQuery{Order: store.ByLaunched}, false},
	{"incomplete ones (1 %)", store.ListQuery{Filter: store.Filter{States: []store.State{store.Incomplete}}}, false},
}

// benchLists makes tasks and asks for pages of them, of a file and, where its address
// is given, of a server.
func benchLists(ctx context.Context, dir, address string, tasks, calls int) (*listsReport, error) {
	r := &listsReport{Tasks: tasks}
	made, err := r.ask(ctx, "file", filepath.Join(dir, "tasks.db"), tasks, calls)
	if err != nil {
		return nil, err
	}
	r.MadeS = made.Seconds()
	if address != "" {
		_, err = r.ask(ctx, "server", address, tasks, calls)
	}
	return r, err
}

func (r *listsReport) ask(ctx context.Context, kind, address string, tasks, calls int) (made time.Duration, err error) {
	db, err := store.Open(ctx, address)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	if page, err := db.List(ctx, store.ListQuery{Limit: 1}); err != nil {
		return 0, err
	} else if len(page.Tasks) > 0 {
		return 0, withCode(exitUsage, fmt.Errorf("%s holds tasks: a benchmark wants an empty database: name another", store.Conceal(address)))
	}
	if made, err = makeUpTasks(ctx, address, tasks); err != nil {
		return 0, err
	}
	if kind == "file" {
		if err := db.SQL().QueryRowContext(ctx, databaseSize).Scan(&r.Bytes); err != nil {
			return 0, err
		}
	}
	remote, stop, err := listServer(db)
	if err != nil {
		return 0, err
	}
	defer stop()
	for _, question := range listQuestions {
		q := question.q
		q.Limit = pageSize
		for page := 1; page <= farPage; page += farPage - 1 {
			if q.After, err = placeBehind(ctx, db, q, (page-1)*pageSize); err != nil {
				return 0, err
			}
			if page > 1 && q.After == nil {
				continue // there is no such page
			}
			p, err := timePages(ctx, calls, func() (int, error) {
				page, err := db.List(ctx, q)
				return len(page.Tasks), err
			})
			if err != nil {
				return 0, err
			}
			r.add(p, kind, "process", question.name, page)
			if page > 1 {
				continue // gRPC's tokens are opaque; what it adds is the same
			}
			if p, err = timePages(ctx, calls, func() (int, error) { return remotePage(ctx, remote, q) }); err != nil {
				return 0, err
			}
			r.add(p, kind, "gRPC", question.name, page)
		}
	}
	return made, nil
}

func (r *listsReport) add(p pageReport, kind, over, question string, page int) {
	p.Database, p.Over, p.Question, p.Page = kind, over, question, page
	r.Pages = append(r.Pages, p)
}

// placeBehind returns the place behind which the tasks after the first n begin; nil where
// there are none, and for n of 0.
func placeBehind(ctx context.Context, db *store.DB, q store.ListQuery, n int) (at *store.Position, err error) {
	for q.After = nil; n > 0; n -= q.Limit {
		q.Limit = min(n, 1000)
		page, err := db.List(ctx, q)
		if err != nil || page.Next == nil {
			return nil, err
		}
		at, q.After = page.Next, page.Next
	}
	return at, nil
}

// listServer serves the database over gRPC on loopback TCP, as wattmark host does.
func listServer(db *store.DB) (c *client.Client, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	server := grpc.NewServer(wire.ServerOptions()...)
	service := api.New(db)
	service.Register(server)
	go func() { _ = server.Serve(l) }() // it ends with Stop
	c, err = client.Dial(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		server.Stop()
		return nil, nil, err
	}
	return c, func() { _ = c.Close(); service.Close(); server.Stop() }, nil
}

// remotePage asks for the first page over gRPC.
func remotePage(ctx context.Context, c *client.Client, q store.ListQuery) (n int, err error) {
	states := make([]client.State, len(q.States))
	for i, s := range q.States {
		states[i] = client.State(s)
	}
	ask := client.Query{User: q.User, Name: q.Name, States: states, Order: client.Order(q.Order), Page: q.Limit}
	for _, err := range c.Tasks(ctx, ask) {
		if err != nil {
			return n, err
		}
		if n++; n == q.Limit {
			break // the client would ask for the next page
		}
	}
	return n, nil
}

// slowest is the longest time of the goals' questions.
func (r *listsReport) slowest(database, over string, of func(pageReport) float64) measure.Seconds {
	worst := 0.0
	for _, p := range r.Pages {
		for _, q := range listQuestions {
			if q.goal && q.name == p.Question && p.Database == database && p.Over == over {
				worst = max(worst, of(p))
			}
		}
	}
	return measure.Seconds(worst)
}
