package api

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

// listing is a request for a page, checked.
type listing struct {
	store.ListQuery
	verdicts []pb.Verdict
	judge    bool     // verdicts are wanted
	mask     []string // the fields wanted; none for all
}

// ListTasks finds tasks, in an order and in pages.
func (s *Service) ListTasks(ctx context.Context, req *pb.ListTasksRequest) (*pb.ListTasksResponse, error) {
	q, err := question(req)
	if err != nil {
		return nil, err
	}
	page, err := s.db.List(ctx, q.ListQuery)
	if err != nil {
		return nil, toStatus("list tasks", err)
	}
	res := &pb.ListTasksResponse{Tasks: make([]*pb.Task, 0, len(page.Tasks))}
	if page.Next != nil {
		res.NextPageToken = pageToken(page.Next, &q.ListQuery)
	}
	for i := range page.Tasks {
		m := taskMessage(&page.Tasks[i])
		if q.judge {
			if m.Verdict, err = s.verdict(ctx, &page.Tasks[i]); err != nil {
				return nil, toStatus("list tasks", err)
			}
		}
		if len(q.verdicts) > 0 && !slices.Contains(q.verdicts, m.Verdict) {
			continue
		}
		if len(q.mask) > 0 {
			prune(m.ProtoReflect(), "", q.mask)
		}
		res.Tasks = append(res.Tasks, m)
	}
	// Over the whole selection, whatever the page and the verdicts.
	if req.GetWithTotals() {
		t, err := s.db.Totals(ctx, q.Filter)
		if err != nil {
			return nil, toStatus("add tasks up", err)
		}
		res.Totals = totals(t)
	}
	return res, nil
}

// verdict judges a task of a list by its full record, which the list does not hold.
func (s *Service) verdict(ctx context.Context, t *store.Brief) (pb.Verdict, error) {
	if t.State == store.Running {
		return pb.Verdict_VERDICT_UNSPECIFIED, nil
	}
	whole, err := s.db.TaskResult(ctx, t.ID, 0)
	if errors.Is(err, store.ErrNotFound) { // it went away meanwhile
		return pb.Verdict_VERDICT_UNSPECIFIED, nil
	}
	if err != nil {
		return 0, err
	}
	v, _ := judge(&whole)
	return v, nil
}

// question validates a request for a page.
func question(req *pb.ListTasksRequest) (q listing, err error) {
	if q.Filter, err = filter(req); err != nil {
		return q, err
	}
	if req.GetPageSize() < 0 {
		return q, invalid("page_size", "%d: must not be negative", req.GetPageSize())
	}
	q.Limit = min(cmp.Or(int(req.GetPageSize()), defaultPage), maxPage)
	for i, v := range req.GetVerdicts() {
		if v < pb.Verdict_VERDICT_GOOD || v > pb.Verdict_VERDICT_VOID {
			return q, invalid(fmt.Sprintf("verdicts[%d]", i), "%v: not a verdict", v)
		}
	}
	if req.GetOrder() < 0 || req.GetOrder() > pb.TaskOrder_TASK_ORDER_NAME {
		return q, invalid("order", "%v: not an order", req.GetOrder())
	}
	if q.mask, err = parseMask(req.GetReadMask()); err != nil {
		return q, err
	}
	q.verdicts = req.GetVerdicts()
	q.judge = len(q.verdicts) > 0 || slices.Contains(q.mask, "verdict")
	// The orders' numbers are the store's.
	q.Order, q.Ascending = max(store.ByID, store.Order(req.GetOrder())), req.GetAscending()
	before := store.TaskID(req.GetBeforeTaskId())
	switch {
	case before < 0 || before > 0 && (q.Order != store.ByID || q.Ascending || req.GetPageToken() != ""):
		return q, invalid("before_task_id", "%d: goes with the order of task_id, descending, and no page_token", before)
	case before > 0:
		q.After = &store.Position{ID: before}
		return q, nil
	}
	q.After, err = parsePageToken(req.GetPageToken(), &q.ListQuery)
	return q, err
}

// taskMessage converts the fields that lists and single tasks share.
func taskMessage(t *store.Brief) *pb.Task {
	m := briefMessage(*t)
	m.Tags = make(map[string]string, len(t.Tags))
	for k, v := range t.Tags {
		m.Tags[wire.Text(k)] = wire.Text(v)
	}
	if t.NVML != nil && !math.IsNaN(float64(*t.NVML)) {
		m.Nvml = &pb.Task_NvmlJ{NvmlJ: float64(*t.NVML)}
	}
	if r := t.Result; r != nil {
		m.Samples, m.Gaps, m.Lost = r.Samples, r.Gaps, r.Lost
		m.DurationS, m.Window = float64(r.To-r.From), wire.Window(&measure.Window{From: r.From, To: r.To})
		m.Energy, m.MeanW, m.PeakW = wire.Energy(r.Total), float64(r.Mean), float64(r.Peak)
	}
	return m
}

// filter validates and returns a request's selection.
func filter(req *pb.ListTasksRequest) (f store.Filter, err error) {
	f = filterOf(req)
	err = cmp.Or(validText("user", f.User), validText("name", f.Name), validText("job", f.Job), validText("gpu", f.GPU))
	if err != nil {
		return f, err
	}
	if err := f.Check(); err != nil {
		return f, invalid("name", "%v", err)
	}
	if err := labels(req, &f); err != nil {
		return f, err
	}
	if f.Group < 0 {
		return f, invalid("group_id", "%d: groups are numbered from 1", f.Group)
	}
	err = cmp.Or(limits("energy_j", req.GetMinEnergyJ(), req.GetMaxEnergyJ()),
		limits("duration_s", req.GetMinDurationS(), req.GetMaxDurationS()))
	if err != nil {
		return f, err
	}
	if f.States, err = states(req.GetStates()); err != nil {
		return f, err
	}
	if f.Since, err = wire.ParseTime("since", req.GetSince()); err != nil {
		return f, invalid("since", "%v", err)
	}
	if f.Until, err = wire.ParseTime("until", req.GetUntil()); err != nil {
		return f, invalid("until", "%v", err)
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return f, invalid("until", "%v is not after since, %v", f.Until, f.Since)
	}
	return f, nil
}

// limits refuses a least and a greatest value that cannot be.
func limits(of string, least, greatest float64) error {
	for i, v := range []float64{least, greatest} {
		if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			return invalid([]string{"min_", "max_"}[i]+of, "%v: want a number that is not negative, or 0 for no limit",
				v)
		}
	}
	if greatest != 0 && least > greatest {
		return invalid("max_"+of, "%v is less than min_%s, %v", greatest, of, least)
	}
	return nil
}

// states converts the states asked for, in order and each once; their numbers are the store's.
func states(asked []pb.TaskState) (out []store.State, err error) {
	for i, s := range asked {
		if s < pb.TaskState_TASK_STATE_RUNNING || s > pb.TaskState_TASK_STATE_FAILED {
			return nil, invalid(fmt.Sprintf("states[%d]", i), "%v: not a state", s)
		}
		if state := store.State(s); !slices.Contains(out, state) {
			out = append(out, state)
		}
	}
	slices.Sort(out)
	return out, nil
}

// validText refuses texts longer than wire.MaxText.
func validText(field, s string) error {
	if len(s) > wire.MaxText {
		return invalid(field, "%d bytes long: at most %d", len(s), wire.MaxText)
	}
	return nil
}

// Rows of Aggregate.
const (
	defaultRows = 100
	maxRows     = 10000
)

// maxOffsetMin is a day and a bit: no clock on land is further from Greenwich.
const maxOffsetMin = 26 * 60

// Aggregate adds tasks up: by user, day, GPU, kernel, job or a tag.
func (s *Service) Aggregate(ctx context.Context, req *pb.AggregateRequest) (*pb.AggregateResponse, error) {
	f, err := filter(&pb.ListTasksRequest{
		User: req.GetUser(), Name: req.GetName(), Job: req.GetJob(), Gpu: req.GetGpu(), Since: req.GetSince(),
		Until: req.GetUntil(), States: req.GetStates(), GroupId: req.GetGroupId(), MinEnergyJ: req.GetMinEnergyJ(),
		MaxEnergyJ: req.GetMaxEnergyJ(), MinDurationS: req.GetMinDurationS(), MaxDurationS: req.GetMaxDurationS(),
		Search: req.GetSearch(), Tags: req.GetTags(), WithoutTags: req.GetWithoutTags(),
	})
	if err != nil {
		return nil, err
	}
	limit, err := amount{"limit", req.GetLimit(), defaultRows, maxRows}.bounded()
	if err != nil {
		return nil, err
	}
	if by := req.GetBy(); by < pb.AggregateBy_AGGREGATE_BY_USER || by > pb.AggregateBy_AGGREGATE_BY_TAG {
		return nil, invalid("by", "%v: want user, day, GPU, kernel, job or tag", by)
	}
	key, byTag := req.GetTagKey(), req.GetBy() == pb.AggregateBy_AGGREGATE_BY_TAG
	if key != "" && !byTag {
		return nil, invalid("tag_key", "%q goes with AGGREGATE_BY_TAG alone", key)
	}
	if err := store.CheckTags(map[string]string{key: ""}); byTag && err != nil {
		return nil, invalid("tag_key", "%v", err)
	}
	offset := req.GetUtcOffsetMin()
	if offset < -maxOffsetMin || offset > maxOffsetMin {
		return nil, invalid("utc_offset_min", "%d: want minutes east of Greenwich, at most %d either way", offset,
			maxOffsetMin)
	}
	// The groupings' numbers are the store's.
	rows, err := s.db.Aggregate(ctx, store.AggregateQuery{
		Filter: f, By: store.Grouping(req.GetBy()), Offset: measure.Seconds(60 * float64(offset)), Tag: key,
	})
	if err != nil {
		return nil, toStatus("add tasks up", err)
	}
	sum, err := s.db.Totals(ctx, f)
	if err != nil {
		return nil, toStatus("add tasks up", err)
	}
	return &pb.AggregateResponse{
		RowCount: uint64(len(rows)), Totals: totals(sum), Rows: lists.Map(rows[:min(limit, len(rows))], rowMessage),
	}, nil
}

// Page sizes of ListTasks.
const (
	defaultPage = 100
	maxPage     = 1000
)

// A token is opaque to callers: a place to go on from, and a hash that binds it to what was asked,
// so that a token that was cut, made up or taken from another question is refused instead of
// answered wrongly. It is no secret and protects nothing.
type token[P any] struct {
	Version int
	Hash    uint64
	Place   P
}

// tokenVersion is the layout of tokens.
const tokenVersion = 4

var (
	errToken = errors.New("not a token of this version of the service")
	errOther = errors.New("belongs to another question")
)

// writeToken makes the token of a place, bound to a question. Both consist of what JSON can hold.
func writeToken[P any](place P, question any) string {
	b, _ := json.Marshal([]any{tokenVersion, place, question})
	b, _ = json.Marshal(token[P]{tokenVersion, bytesHash(b), place})
	return base64.RawURLEncoding.EncodeToString(b)
}

// readToken returns the place of a token that writeToken made of it and the question.
func readToken[P any](text string, question any) (place P, err error) {
	var t token[P]
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	switch {
	case err != nil || json.Unmarshal(b, &t) != nil || t.Version != tokenVersion:
		return place, errToken
	case writeToken(t.Place, question) != text:
		return place, errOther
	}
	return t.Place, nil
}

// position is a store.Position in a token, to the last bit: JSON has no infinities, and no text
// that is not UTF-8.
type position struct {
	ID     store.TaskID
	None   bool
	Nanos  int64
	Number uint64
	Text   []byte
}

// pageToken makes the token for the page behind a place.
func pageToken(at *store.Position, q *store.ListQuery) string {
	return writeToken(position{at.ID, at.None, at.Nanos, math.Float64bits(at.Number), []byte(at.Text)}, asked(q))
}

// parsePageToken returns the place behind which the page begins; nil for no token.
func parsePageToken(token string, q *store.ListQuery) (*store.Position, error) {
	if token == "" {
		return nil, nil
	}
	at, err := readToken[position](token, asked(q))
	switch err {
	case errToken:
		return nil, invalid("page_token", "%v: pass next_page_token unchanged, or begin with the first page again", err)
	case errOther:
		return nil, invalid("page_token", "%v: keep all but page_size, with_totals and read_mask from page to page", err)
	}
	return &store.Position{
		ID: at.ID, None: at.None, Nanos: at.Nanos, Number: math.Float64frombits(at.Number), Text: string(at.Text),
	}, nil
}

// asked is the part of a query that a page's token belongs to.
func asked(q *store.ListQuery) store.ListQuery {
	return store.ListQuery{Filter: q.Filter, Order: q.Order, Ascending: q.Ascending}
}

// maxPaths bounds a field mask.
const maxPaths = 256

// parseMask returns the paths of the fields of Task that are wanted; none for all.
func parseMask(m *fieldmaskpb.FieldMask) ([]string, error) {
	paths := m.GetPaths()
	if len(paths) > maxPaths {
		return nil, invalid("read_mask", "%d paths: at most %d", len(paths), maxPaths)
	}
	for _, path := range paths {
		if _, err := fieldmaskpb.New((*pb.Task)(nil), path); err != nil {
			return nil, invalid("read_mask", "%q is not a field of Task: name fields as in task_id or energy.energy_j",
				path)
		}
	}
	return paths, nil
}

// prune clears the fields of a message at a path, "" or one that ends in a dot, that no path wanted
// names or begins with.
func prune(m protoreflect.Message, at string, wanted []string) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		path := at + string(f.Name())
		switch {
		case slices.Contains(wanted, path):
		case slices.ContainsFunc(wanted, func(w string) bool { return strings.HasPrefix(w, path+".") }):
			prune(v.Message(), path+".", wanted)
		default:
			m.Clear(f)
		}
		return true
	})
}
