// Package proftrace reads the traces of profilers, and writes them with the energy of what is in them:
//
//	Read   trace ──▶ Trace: kernels, the calls that launched them, ranges
//	Write  trace, Marks ──▶ the same trace with arguments and counters more
//
// A trace is the Trace Event JSON of torch.profiler (Kineto) and others, plain or compressed by gzip. Nsight
// Systems' SQLite export becomes such a trace by Convert, rocprofv3's tables by ConvertRocprof. Events stream: memory
// grows with the kernels, calls and ranges, not with the file.
package proftrace

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/url"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/attribute"
	_ "modernc.org/sqlite" // the driver of Nsight Systems' export
)

// ErrTrace is wrapped by errors about what is no trace, or one that cannot be used.
var ErrTrace = errors.New("not a profiler's trace")

// event is the part of a trace's event that is used.
type event struct {
	Ph   string          `json:"ph"`
	Cat  string          `json:"cat"`
	Name string          `json:"name"`
	PID  json.RawMessage `json:"pid"`
	TID  json.RawMessage `json:"tid"`
	TS   json.Number     `json:"ts"`
	Dur  json.Number     `json:"dur"`
	Args struct {
		Correlation *uint32     `json:"correlation"`
		Device      *uint32     `json:"device"`
		Stream      *uint32     `json:"stream"`
		Grid        [3]uint32   `json:"grid"`
		Block       [3]uint32   `json:"block"`
		External    json.Number `json:"External id"`
	} `json:"args"`
}

// Read reads a trace. Errors wrap ErrTrace.
func Read(r io.Reader) (*attribute.Trace, error) {
	b := &builder{
		Trace:   attribute.Trace{Calls: map[uint32]attribute.Call{}, Devices: map[uint32]bool{}},
		threads: map[string]int{}, begun: map[int][]attribute.Range{},
	}
	err := walk(r, func(key string, value json.RawMessage) error {
		if key != "baseTimeNanoseconds" {
			return nil
		}
		b.HostClock = true
		return json.Unmarshal(value, &b.base)
	}, b.event)
	if err == nil {
		err = b.end()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTrace, err)
	}
	return &b.Trace, nil
}

// builder makes a Trace.
type builder struct {
	attribute.Trace
	base    int64
	n       int
	threads map[string]int
	begun   map[int][]attribute.Range // by thread: ranges of events B without their E
}

func (b *builder) event(raw json.RawMessage) error {
	n := b.n
	b.n++
	var e event
	if err := json.Unmarshal(raw, &e); err != nil {
		// A number that is none ends the reading: the category may stand behind it.
		_ = json.Unmarshal(raw, &struct {
			Cat *string `json:"cat"`
		}{&e.Cat})
		if e.Cat != "kernel" {
			return nil // of a form that is of no interest here
		}
		return fmt.Errorf("event %d: %w", n, err)
	}
	if e.Ph != "X" && e.Ph != "B" && e.Ph != "E" {
		return nil
	}
	at, err := nanos(e.TS)
	if err != nil {
		return fmt.Errorf("event %d: %w", n, err)
	}
	thread := b.thread(e.PID, e.TID)
	if e.Ph == "E" {
		if open := b.begun[thread]; len(open) > 0 {
			last := open[len(open)-1]
			last.To, b.begun[thread] = at, open[:len(open)-1]
			b.Ranges = append(b.Ranges, last)
		}
		return nil
	}
	length, err := nanos(e.Dur)
	if err != nil || length < 0 {
		return fmt.Errorf("event %d: a length of %q", n, e.Dur)
	}
	return b.slice(&e, n, thread, at, at+length)
}

// slice takes an event with a length, or the begin of one.
func (b *builder) slice(e *event, n, thread int, from, to int64) error {
	switch e.Cat {
	case "kernel":
		if e.Args.Correlation == nil || e.Args.Device == nil {
			return fmt.Errorf("event %d: a kernel without correlation and device", n)
		}
		k := attribute.Profiled{
			Event: n, Start: from, End: to, Name: e.Name, Device: *e.Args.Device, Correlation: *e.Args.Correlation,
			Grid: e.Args.Grid, Block: e.Args.Block,
		}
		if e.Args.Stream != nil {
			k.Stream = *e.Args.Stream
		}
		b.Kernels = append(b.Kernels, k)
		b.Devices[k.Device] = true
	case "cuda_runtime", "cuda_driver":
		if c := e.Args.Correlation; c != nil {
			b.Calls[*c] = attribute.Call{Thread: thread, At: from}
		}
	case "user_annotation", "cpu_op", "nvtx":
		r := attribute.Range{Event: n, From: from, To: to, Thread: thread, Name: e.Name, Op: e.Cat == "cpu_op"}
		r.External, _ = e.Args.External.Int64()
		if e.Ph == "B" {
			b.begun[thread] = append(b.begun[thread], r)
			return nil
		}
		b.Ranges = append(b.Ranges, r)
	}
	return nil
}

// thread numbers the thread of an event.
func (b *builder) thread(pid, tid json.RawMessage) int {
	key := string(pid) + " " + string(tid)
	t, ok := b.threads[key]
	if !ok {
		t = len(b.threads)
		b.threads[key] = t
	}
	return t
}

// end moves the times to the host's clock, and refuses ranges that never end.
func (b *builder) end() error {
	for _, open := range b.begun {
		for _, r := range open {
			return fmt.Errorf("the range %q begins and never ends", measure.Shorten(r.Name, 60))
		}
	}
	if len(b.Kernels) == 0 {
		return errors.New("it has no kernels: was the GPU's activity recorded (ProfilerActivity.CUDA)?")
	}
	b.Move(b.base)
	return nil
}

// nanos is a number of µs in ns: exactly, where it is written out, as a float64 of µs since 1970 has no ns left.
// Nothing is zero.
func nanos(us json.Number) (int64, error) {
	text := string(us)
	whole, part, _ := strings.Cut(text, ".")
	if text == "" {
		return 0, nil
	}
	if !strings.ContainsAny(text, "eE") && len(part) <= 15 {
		digits := (part + "000")[:3]
		w, err := strconv.ParseInt(whole, 10, 64)
		p, fault := strconv.ParseInt(digits, 10, 64)
		if err == nil && fault == nil && w > -math.MaxInt64/2000 && w < math.MaxInt64/2000 {
			if strings.HasPrefix(whole, "-") {
				p = -p
			}
			return w*1000 + p, nil
		}
	}
	v, err := us.Float64()
	if err != nil || math.Abs(v) > math.MaxInt64/2000 {
		return 0, fmt.Errorf("a time of %q µs", measure.Shorten(text, 40))
	}
	return int64(math.Round(v * 1000)), nil
}

// walk hands on a trace's events, and the other values of its outer object, in order. A plain array is a trace of
// events alone.
func walk(r io.Reader, value func(key string, raw json.RawMessage) error, event func(json.RawMessage) error) error {
	in, err := plain(r)
	if err != nil {
		return err
	}
	d := json.NewDecoder(in)
	first, err := d.Token()
	if err != nil {
		return err
	}
	events := func() error {
		for d.More() {
			var raw json.RawMessage
			if err := d.Decode(&raw); err != nil {
				return err
			}
			if err := event(raw); err != nil {
				return err
			}
		}
		_, err := d.Token()
		return err
	}
	switch first {
	case json.Delim('['):
		return events()
	case json.Delim('{'):
	default:
		return fmt.Errorf("it begins with %v", first)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		if key == "traceEvents" {
			if open, err := d.Token(); err != nil || open != json.Delim('[') {
				return fmt.Errorf("traceEvents is no array: %w", err)
			}
			if err := events(); err != nil {
				return err
			}
			continue
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return err
		}
		if err := value(key.(string), raw); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	_, err = d.Token()
	return err
}

// plain decompresses what is compressed by gzip.
func plain(r io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(r, 1<<16)
	if head, _ := b.Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		return gzip.NewReader(b)
	}
	return b, nil
}

// Convert writes Nsight Systems' SQLite export (nsys export --type sqlite) as a trace: kernels, the calls that
// launched them, and the ranges of NVTX. Errors wrap ErrTrace. Tables and columns are those of its documented
// schema.
func Convert(ctx context.Context, w io.Writer, path string) (err error) {
	db, err := sql.Open("sqlite", "file:"+url.PathEscape(path)+"?mode=ro&immutable=1")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrTrace, err)
	}
	defer db.Close()
	c := &converter{ctx: ctx, db: db, out: bufio.NewWriterSize(w, 1<<16)}
	base := int64(0)
	if err := db.QueryRowContext(ctx, `SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME`).Scan(&base); err != nil {
		return fmt.Errorf("%w: %s has no time of its begin: is it a SQLite export of Nsight Systems? %w", ErrTrace, path, err)
	}
	fmt.Fprintf(c.out, `{"baseTimeNanoseconds":%d,"displayTimeUnit":"ms","traceEvents":[`, base)
	c.kernels()
	c.calls()
	c.ranges()
	if c.err != nil {
		return fmt.Errorf("%w: %s: %w", ErrTrace, path, c.err)
	}
	c.out.WriteString("\n]}\n")
	return c.out.Flush()
}

// converter writes events; its first error stays.
type converter struct {
	ctx  context.Context
	db   *sql.DB
	out  *bufio.Writer
	some bool
	err  error
}

// rows yields the rows of a query, up to the first error.
func (c *converter) rows(query string) iter.Seq[*sql.Rows] {
	return func(yield func(*sql.Rows) bool) {
		if c.err != nil {
			return
		}
		rows, err := c.db.QueryContext(c.ctx, query)
		if err != nil {
			c.err = err
			return
		}
		defer rows.Close()
		for rows.Next() && yield(rows) && c.err == nil {
		}
		c.err = cmp.Or(c.err, rows.Err())
	}
}

// has reports whether the export has a table: those without content are left out.
func (c *converter) has(table string) (ok bool) {
	for range c.rows(`SELECT 1 FROM sqlite_master WHERE type='table' AND name='` + table + `'`) {
		ok = true
	}
	return ok
}

func (c *converter) event(format string, a ...any) {
	c.next()
	fmt.Fprintf(c.out, format, a...)
}

// next parts an event from the one before.
func (c *converter) next() {
	if c.some {
		c.out.WriteByte(',')
	}
	c.some = true
	c.out.WriteByte('\n')
}

func quoted(s string) string {
	b, _ := json.Marshal(s) // a string always can be
	return string(b)
}

func (c *converter) kernels() {
	if !c.has("CUPTI_ACTIVITY_KIND_KERNEL") {
		c.err = fmt.Errorf("it has no kernels: was CUDA traced (nsys profile --trace=cuda)?")
		return
	}
	for rows := range c.rows(`SELECT k.start, k.end, k.deviceId, k.streamId, k.correlationId, coalesce(s.value,'?'),
		k.gridX, k.gridY, k.gridZ, k.blockX, k.blockY, k.blockZ
		FROM CUPTI_ACTIVITY_KIND_KERNEL k LEFT JOIN StringIds s ON s.id=k.demangledName ORDER BY k.start`) {
		var k attribute.Profiled
		g, b := &k.Grid, &k.Block
		c.err = rows.Scan(&k.Start, &k.End, &k.Device, &k.Stream, &k.Correlation, &k.Name,
			&g[0], &g[1], &g[2], &b[0], &b[1], &b[2])
		c.kernel(&k, "stream")
	}
}

// kernel writes a kernel; queue is the word for its stream.
func (c *converter) kernel(k *attribute.Profiled, queue string) {
	g, b := k.Grid, k.Block
	c.event(`{"ph":"X","cat":"kernel","name":%s,"pid":"GPU %d","tid":"%s %d","ts":%s,"dur":%s,`+
		`"args":{"device":%d,"stream":%d,"correlation":%d,"grid":[%d,%d,%d],"block":[%d,%d,%d]}}`,
		quoted(k.Name), k.Device, queue, k.Stream, micros(k.Start), micros(k.End-k.Start), k.Device, k.Stream,
		k.Correlation, g[0], g[1], g[2], b[0], b[1], b[2])
}

// thread is the process and the thread of a globalTid: 24 bits each below the host's and the hypervisor's.
func thread(global int64) (pid, tid int64) { return global >> 24 & 0xffffff, global & 0xffffff }

func (c *converter) calls() {
	if c.err != nil || !c.has("CUPTI_ACTIVITY_KIND_RUNTIME") {
		return
	}
	for rows := range c.rows(`SELECT r.start, r.end, r.correlationId, r.globalTid, coalesce(s.value,'?') FROM CUPTI_ACTIVITY_KIND_RUNTIME r
		LEFT JOIN StringIds s ON s.id=r.nameId
		WHERE r.correlationId IN (SELECT correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL) ORDER BY r.start`) {
		var start, end, global int64
		var correlation uint32
		var name string
		c.err = rows.Scan(&start, &end, &correlation, &global, &name)
		pid, tid := thread(global)
		c.event(`{"ph":"X","cat":"cuda_runtime","name":%s,"pid":%d,"tid":%d,"ts":%s,"dur":%s,"args":{"correlation":%d}}`,
			quoted(name), pid, tid, micros(start), micros(end-start), correlation)
	}
}

// The types of events of NVTX that are ranges: of a thread, and of the process.
const nsysPushPop, nsysStartEnd = 59, 60

func (c *converter) ranges() {
	if c.err != nil || !c.has("NVTX_EVENTS") {
		return
	}
	for rows := range c.rows(fmt.Sprintf(`SELECT n.start, n.end, n.globalTid, coalesce(n.text, s.value, '?') FROM NVTX_EVENTS n
		LEFT JOIN StringIds s ON s.id=n.textId WHERE n.eventType IN (%d,%d) ORDER BY n.start`, nsysPushPop, nsysStartEnd)) {
		var start, global int64
		var end sql.NullInt64
		var name string
		if c.err = rows.Scan(&start, &end, &global, &name); c.err == nil && !end.Valid {
			c.err = fmt.Errorf("the range %q begins and never ends", name)
		}
		pid, tid := thread(global)
		c.event(`{"ph":"X","cat":"nvtx","name":%s,"pid":%d,"tid":%d,"ts":%s,"dur":%s}`,
			quoted(name), pid, tid, micros(start), micros(end.Int64-start))
	}
}
