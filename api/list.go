package api

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"time"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

// listing is a request for a page, checked.
type listing struct {
	store.ListQuery
	verdicts []pb.Verdict
	judge    bool // verdicts are wanted
	mask     mask
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
		if q.mask != nil {
			q.mask.prune(m.ProtoReflect())
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
	switch q.Limit = int(req.GetPageSize()); {
	case q.Limit < 0:
		return q, invalid("page_size", "%d: must not be negative", q.Limit)
	case q.Limit == 0:
		q.Limit = defaultPage
	case q.Limit > maxPage:
		q.Limit = maxPage
	}
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
	_, named := q.mask["verdict"]
	q.verdicts, q.judge = req.GetVerdicts(), named || len(req.GetVerdicts()) > 0
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
	for k, v := range t.Tags {
		if m.Tags == nil {
			m.Tags = make(map[string]string, len(t.Tags))
		}
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
	f = store.Filter{
		User: req.GetUser(), Name: req.GetName(), Job: req.GetJob(), GPU: req.GetGpu(),
		Group:     store.GroupID(req.GetGroupId()),
		MinEnergy: measure.Joule(req.GetMinEnergyJ()), MaxEnergy: measure.Joule(req.GetMaxEnergyJ()),
		MinDuration: measure.Seconds(req.GetMinDurationS()), MaxDuration: measure.Seconds(req.GetMaxDurationS()),
	}
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

// states converts the states asked for, each once; their numbers are the store's.
func states(asked []pb.TaskState) (out []store.State, err error) {
	for i, s := range asked {
		if s < pb.TaskState_TASK_STATE_RUNNING || s > pb.TaskState_TASK_STATE_FAILED {
			return nil, invalid(fmt.Sprintf("states[%d]", i), "%v: not a state", s)
		}
		if state := store.State(s); !slices.Contains(out, state) {
			out = append(out, state)
		}
	}
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
	res := &pb.AggregateResponse{RowCount: uint64(len(rows)), Totals: totals(sum)}
	for _, r := range rows[:min(limit, len(rows))] {
		res.Rows = append(res.Rows, &pb.AggregateRow{
			Key: wire.Text(r.Key), Label: wire.Text(r.Label), Totals: totals(r.Totals), Launches: r.Launches,
		})
	}
	return res, nil
}

// Page sizes of ListTasks.
const (
	defaultPage = 100
	maxPage     = 1000
)

// tokenVersion is the first byte of a token: the layout of the rest.
const tokenVersion = 3

const tokenHead = 1 + 8 + 8 + 1 + 8 // version, hash, id, none, key; then the text

// pageToken makes the token for the page behind a place. It is opaque to
// callers: the place, and a hash that binds it to the question, so that a
// token that was cut, made up or taken from another question is refused
// instead of answered wrongly. It is no secret and protects nothing.
func pageToken(at *store.Position, q *store.ListQuery) string {
	b := append(make([]byte, 0, tokenHead+len(at.Text)), tokenVersion)
	b = binary.BigEndian.AppendUint64(b, 0) // the hash's place
	b = binary.BigEndian.AppendUint64(b, uint64(at.ID))
	key := uint64(at.Nanos)
	if at.Number != 0 {
		key = math.Float64bits(at.Number)
	}
	b = binary.BigEndian.AppendUint64(append(b, byte(bit(at.None))), key)
	b = append(b, at.Text...)
	binary.BigEndian.PutUint64(b[1:], questionHash(b[9:], q))
	return base64.RawURLEncoding.EncodeToString(b)
}

// parsePageToken returns the place behind which the page begins; nil for no token.
func parsePageToken(token string, q *store.ListQuery) (*store.Position, error) {
	if token == "" {
		return nil, nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) < 1 || b[0] == tokenVersion && len(b) < tokenHead {
		return nil, invalid("page_token", "not a token of this service: pass next_page_token unchanged")
	}
	if b[0] != tokenVersion {
		return nil, invalid("page_token", "made by another version of this service: begin with the first page again")
	}
	at := &store.Position{
		ID: store.TaskID(binary.BigEndian.Uint64(b[9:])), None: b[17] == 1, Text: string(b[tokenHead:]),
	}
	if at.ID <= 0 || b[17] > 1 || binary.BigEndian.Uint64(b[1:]) != questionHash(b[9:], q) {
		return nil, invalid("page_token",
			"belongs to another question: keep all but page_size, with_totals and read_mask from page to page")
	}
	key := binary.BigEndian.Uint64(b[18:])
	switch q.Order {
	case store.ByLaunched:
		at.Nanos = int64(key)
	case store.ByEnergy, store.ByDuration:
		at.Number = math.Float64frombits(key)
	}
	return at, nil
}

// questionHash binds a place to the query.
func questionHash(place []byte, q *store.ListQuery) uint64 {
	h := fnv.New64a()
	number := func(v uint64) { _, _ = h.Write(binary.BigEndian.AppendUint64(nil, v)) }
	text := func(s string) {
		number(uint64(len(s)))
		_, _ = h.Write([]byte(s))
	}
	number(tokenVersion)
	text(string(place))
	for _, s := range []string{q.User, q.Name, q.Job, q.GPU, q.Search} {
		text(s)
	}
	for _, list := range [][]store.Tag{q.Tags, q.Without} {
		number(uint64(len(list)))
		for _, t := range list {
			text(t.Key)
			text(t.Value)
		}
	}
	number(instant(q.Since))
	number(instant(q.Until))
	for _, f := range []float64{
		float64(q.MinEnergy), float64(q.MaxEnergy), float64(q.MinDuration), float64(q.MaxDuration),
	} {
		number(math.Float64bits(f))
	}
	var states uint64
	for _, s := range q.States {
		states |= 1 << s
	}
	for _, v := range []uint64{states, uint64(q.Group), uint64(q.Order), bit(q.Ascending)} {
		number(v)
	}
	return h.Sum64()
}

func bit(set bool) uint64 {
	if set {
		return 1
	}
	return 0
}

// instant is a time as a number; all that counts is that equal times are equal.
func instant(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(t.Unix())*1e9 + uint64(t.Nanosecond())
}

// maxPaths bounds a field mask.
const maxPaths = 256

// mask is a tree of the fields wanted: one without branches is wanted as a whole.
// A nil mask wants all.
type mask map[protoreflect.Name]mask

// parseMask reads the fields of Task that are wanted; nil for all.
func parseMask(m *fieldmaskpb.FieldMask) (mask, error) {
	paths := m.GetPaths()
	if len(paths) == 0 {
		return nil, nil
	}
	if len(paths) > maxPaths {
		return nil, invalid("read_mask", "%d paths: at most %d", len(paths), maxPaths)
	}
	root := mask{}
	for _, path := range paths {
		if !root.add((*pb.Task)(nil).ProtoReflect().Descriptor(), path) {
			return nil, invalid("read_mask", "%q is not a field of Task: name fields as in task_id or energy.energy_j",
				path)
		}
	}
	return root, nil
}

// add adds a path; it is false for one that there is not.
func (m mask) add(message protoreflect.MessageDescriptor, path string) bool {
	name, rest, deeper := strings.Cut(path, ".")
	f := message.Fields().ByName(protoreflect.Name(name))
	if f == nil || deeper && (f.Message() == nil || f.IsList() || f.IsMap()) {
		return false
	}
	sub, there := m[f.Name()]
	switch {
	case !deeper:
		m[f.Name()] = nil // the whole field includes its named parts
		return true
	case !there:
		sub = mask{}
		m[f.Name()] = sub
	case sub == nil:
		sub = mask{} // it is wanted as a whole already: only check the path
	}
	return sub.add(f.Message(), rest)
}

// prune clears the fields of a message that are not in the tree, and goes down where the
// tree does. m is not nil.
func (m mask) prune(message protoreflect.Message) {
	message.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch sub, wanted := m[f.Name()]; {
		case !wanted:
			message.Clear(f)
		case sub != nil:
			sub.prune(v.Message())
		}
		return true
	})
}
