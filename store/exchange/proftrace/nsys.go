package proftrace

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/url"

	_ "modernc.org/sqlite" // the driver of Nsight Systems' export
)

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

// each runs a query and has its rows read.
func (c *converter) each(query string, read func(*sql.Rows) error) {
	if c.err != nil {
		return
	}
	rows, err := c.db.QueryContext(c.ctx, query)
	if err != nil {
		c.err = err
		return
	}
	defer rows.Close()
	for rows.Next() && c.err == nil {
		c.err = read(rows)
	}
	if c.err == nil {
		c.err = rows.Err()
	}
}

// has reports whether the export has a table: those without content are left out.
func (c *converter) has(table string) (ok bool) {
	c.each(`SELECT 1 FROM sqlite_master WHERE type='table' AND name='`+table+`'`, func(*sql.Rows) error {
		ok = true
		return nil
	})
	return ok
}

func (c *converter) event(format string, a ...any) {
	if c.some {
		c.out.WriteByte(',')
	}
	c.some = true
	c.out.WriteByte('\n')
	fmt.Fprintf(c.out, format, a...)
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
	c.each(`SELECT k.start, k.end, k.deviceId, k.streamId, k.correlationId, coalesce(s.value,'?'),
		k.gridX, k.gridY, k.gridZ, k.blockX, k.blockY, k.blockZ
		FROM CUPTI_ACTIVITY_KIND_KERNEL k LEFT JOIN StringIds s ON s.id=k.demangledName ORDER BY k.start`,
		func(rows *sql.Rows) error {
			var start, end int64
			var device, stream, correlation uint32
			var name string
			var g, b [3]uint32
			err := rows.Scan(&start, &end, &device, &stream, &correlation, &name, &g[0], &g[1], &g[2], &b[0], &b[1], &b[2])
			c.event(`{"ph":"X","cat":"kernel","name":%s,"pid":"GPU %d","tid":"stream %d","ts":%s,"dur":%s,`+
				`"args":{"device":%d,"stream":%d,"correlation":%d,"grid":[%d,%d,%d],"block":[%d,%d,%d]}}`,
				quoted(name), device, stream, micros(start), micros(end-start), device, stream, correlation,
				g[0], g[1], g[2], b[0], b[1], b[2])
			return err
		})
}

// thread is the process and the thread of a globalTid: 24 bits each below the host's and the hypervisor's.
func thread(global int64) (pid, tid int64) { return global >> 24 & 0xffffff, global & 0xffffff }

func (c *converter) calls() {
	if c.err != nil || !c.has("CUPTI_ACTIVITY_KIND_RUNTIME") {
		return
	}
	c.each(`SELECT r.start, r.end, r.correlationId, r.globalTid, coalesce(s.value,'?') FROM CUPTI_ACTIVITY_KIND_RUNTIME r
		LEFT JOIN StringIds s ON s.id=r.nameId
		WHERE r.correlationId IN (SELECT correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL) ORDER BY r.start`,
		func(rows *sql.Rows) error {
			var start, end, global int64
			var correlation uint32
			var name string
			err := rows.Scan(&start, &end, &correlation, &global, &name)
			pid, tid := thread(global)
			c.event(`{"ph":"X","cat":"cuda_runtime","name":%s,"pid":%d,"tid":%d,"ts":%s,"dur":%s,"args":{"correlation":%d}}`,
				quoted(name), pid, tid, micros(start), micros(end-start), correlation)
			return err
		})
}

// The types of events of NVTX that are ranges: of a thread, and of the process.
const nsysPushPop, nsysStartEnd = 59, 60

func (c *converter) ranges() {
	if c.err != nil || !c.has("NVTX_EVENTS") {
		return
	}
	c.each(fmt.Sprintf(`SELECT n.start, n.end, n.globalTid, coalesce(n.text, s.value, '?') FROM NVTX_EVENTS n
		LEFT JOIN StringIds s ON s.id=n.textId WHERE n.eventType IN (%d,%d) ORDER BY n.start`, nsysPushPop, nsysStartEnd),
		func(rows *sql.Rows) error {
			var start, global int64
			var end sql.NullInt64
			var name string
			if err := rows.Scan(&start, &end, &global, &name); err != nil {
				return err
			}
			if !end.Valid {
				return fmt.Errorf("the range %q begins and never ends", name)
			}
			pid, tid := thread(global)
			c.event(`{"ph":"X","cat":"nvtx","name":%s,"pid":%d,"tid":%d,"ts":%s,"dur":%s}`,
				quoted(name), pid, tid, micros(start), micros(end.Int64-start))
			return nil
		})
}
