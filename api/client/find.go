package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
	"wattmark/measure"
)

// Verdict is how far a result may be trusted; the gravest reason decides. The
// numbers are those of the protocol.
type Verdict uint8

// The verdicts, from best to worst; NotJudged is that of a task that runs.
const (
	NotJudged Verdict = 0
	Good      Verdict = 1
	Usable    Verdict = 2
	Doubtful  Verdict = 3
	Void      Verdict = 4
)

var verdictNames = [...]string{"not judged", "good", "usable", "doubtful", "void"}

func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict(%d)", uint8(v))
}

// Reason is one thing that was noticed of a result.
type Reason struct {
	Cause   string // names the rule: "clipped", "lost scans" …
	Verdict Verdict
	Subject string // channel, rail or marker; empty for the whole
	Text    string // one sentence, with what to do
}

func parseReasons(p []*wattmarkv1.VerdictReason) (out []Reason) {
	for _, r := range p {
		out = append(out, Reason{Cause: r.GetCause(), Verdict: Verdict(r.GetVerdict()), Subject: r.GetSubject(), Text: r.GetText()})
	}
	return out
}

// Order is what tasks are ordered by.
type Order uint8

// The orders.
const (
	ByID       Order = 1 // as they were begun
	ByLaunched Order = 2
	ByEnergy   Order = 3
	ByDuration Order = 4 // of the window
	ByName     Order = 5
)

// Totals is what several tasks come to.
type Totals struct {
	Tasks, Measured uint64           // Measured have a window
	Energy          measure.Estimate // with what errors the tasks share
	Duration        measure.Seconds
	Samples         uint64
}

func parseTotals(p *wattmarkv1.Totals) (Totals, error) {
	energy, err := wire.ParseEnergy(p.GetEnergy())
	return Totals{
		Tasks: p.GetTasks(), Measured: p.GetMeasured(), Energy: energy, Duration: measure.Seconds(p.GetDurationS()), Samples: p.GetSamples(),
	}, err
}

// request is the query as ListTasks asks it.
func (q Query) request() *wattmarkv1.ListTasksRequest {
	req := &wattmarkv1.ListTasksRequest{
		User: q.User, Name: q.Name, Job: q.Job, Since: wire.Time(q.Since), Until: wire.Time(q.Until), PageSize: int32(min(q.Page, 1000)),
		Gpu: q.GPU, GroupId: q.Group, States: protoStates(q.States),
		MinEnergyJ: float64(q.MinEnergy), MaxEnergyJ: float64(q.MaxEnergy), MinDurationS: float64(q.MinDuration), MaxDurationS: float64(q.MaxDuration),
		Order: wattmarkv1.TaskOrder(q.Order), Ascending: q.Ascending, Tags: q.Tags, WithoutTags: q.WithoutTags, Search: q.Search,
	}
	for _, v := range q.Verdicts {
		req.Verdicts = append(req.Verdicts, wattmarkv1.Verdict(v))
	}
	return req
}

func protoStates(states []State) (out []wattmarkv1.TaskState) {
	for _, s := range states {
		out = append(out, wattmarkv1.TaskState(s))
	}
	return out
}

// Totals adds up all tasks that a query selects, whatever their verdicts.
func (c *Client) Totals(ctx context.Context, q Query) (Totals, error) {
	req := q.request()
	req.Verdicts, req.PageSize, req.WithTotals = nil, 1, true
	res, err := c.stub.ListTasks(ctx, req)
	if err != nil {
		return Totals{}, err
	}
	return parseTotals(res.Totals)
}

// Grouping is what tasks are added up by.
type Grouping uint8

// The groupings.
const (
	PerUser   Grouping = 1
	PerDay    Grouping = 2 // UTC
	PerGPU    Grouping = 3
	PerKernel Grouping = 4 // names of recorded kernels
	PerJob    Grouping = 5
)

// Row is one user, day, GPU, kernel, job or value of a tag.
type Row struct {
	// Key is the login, the day as in 2026-01-31, the GPU's UUID, the kernel's name,
	// the job or the tag's value; empty for what nobody told. Label is the GPU's model.
	Key, Label string
	Totals
	Launches uint64 // of a kernel
}

// Aggregate adds up the tasks that a query selects, the greatest energy first,
// days newest first; its order, verdicts and page are not looked at. It returns at
// most the first 10 000 rows.
func (c *Client) Aggregate(ctx context.Context, q Query, by Grouping) ([]Row, error) {
	return c.aggregate(ctx, q, by, "")
}

// AggregateByTag is Aggregate by the value of a tag; a row with an empty key has the
// tasks without it.
func (c *Client) AggregateByTag(ctx context.Context, q Query, key string) ([]Row, error) {
	return c.aggregate(ctx, q, perTag, key)
}

const perTag Grouping = 6

func (c *Client) aggregate(ctx context.Context, q Query, by Grouping, tag string) ([]Row, error) {
	l := q.request()
	res, err := c.stub.Aggregate(ctx, &wattmarkv1.AggregateRequest{
		Tags: l.Tags, WithoutTags: l.WithoutTags, Search: l.Search, TagKey: tag,
		User: l.User, Name: l.Name, Since: l.Since, Until: l.Until, By: wattmarkv1.AggregateBy(by), Limit: 10000, Job: l.Job, Gpu: l.Gpu,
		States: l.States, GroupId: l.GroupId, MinEnergyJ: l.MinEnergyJ, MaxEnergyJ: l.MaxEnergyJ, MinDurationS: l.MinDurationS, MaxDurationS: l.MaxDurationS,
	})
	if err != nil {
		return nil, err
	}
	var out []Row
	for _, r := range res.Rows {
		t, err := parseTotals(r.GetTotals())
		if err != nil {
			return nil, err
		}
		out = append(out, Row{Key: r.GetKey(), Label: r.GetLabel(), Totals: t, Launches: r.GetLaunches()})
	}
	return out, nil
}

// EventKind is what happened to a task.
type EventKind uint8

// The kinds.
const (
	Watching EventKind = 1 // nothing: the watch has begun
	Added    EventKind = 2
	Changed  EventKind = 3 // its state, its result or its labels
	Deleted  EventKind = 4 // the task has its ID only
	ListAnew EventKind = 5 // something changed that cannot be told: list the tasks anew
)

// Event is what happened to a task.
type Event struct {
	Kind EventKind
	Task *Task // nil for Watching and ListAnew
	// Resume is where to go on from behind this event.
	Resume string
}

// Watch is which tasks are watched.
type Watch struct {
	User, Name, Job   string   // as in Query
	Tags, WithoutTags []string // as in Query
	// Resume is from the last event that was seen, to be told what happened since;
	// empty from now on.
	Resume string
}

// Watch yields new tasks and what becomes of them, until ctx ends or the loop is
// left. An error is the last thing it yields; UNAVAILABLE says that the server
// stopped: go on with the last event's Resume once it is back.
func (c *Client) Watch(ctx context.Context, w Watch) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := c.stub.WatchTasks(ctx, &wattmarkv1.WatchTasksRequest{User: w.User, Name: w.Name, Job: w.Job, ResumeToken: w.Resume, Tags: w.Tags, WithoutTags: w.WithoutTags})
		if err != nil {
			yield(Event{}, err)
			return
		}
		for {
			m, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return
			}
			var e Event
			if err == nil {
				e, err = parseEvent(m)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

func parseEvent(m *wattmarkv1.WatchTasksResponse) (Event, error) {
	e := Event{Kind: EventKind(m.GetEvent()), Resume: m.GetResumeToken()}
	switch {
	case e.Kind == Deleted:
		e.Task = &Task{ID: m.GetTask().GetTaskId()}
	case m.GetTask() != nil:
		t, err := parseTask(m.GetTask())
		if err != nil {
			return Event{}, err
		}
		e.Task = &t
	}
	return e, nil
}
