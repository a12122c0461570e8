package perf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/wattmark/wattmark/api"
	"github.com/wattmark/wattmark/api/client"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/cluster"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/relay"
	"google.golang.org/grpc"
)

// relayReport is the result of the relay benchmark.
type relayReport struct {
	Machine machineReport `json:"machine"`
	Bytes   uint64        `json:"bytes"` // of coded samples
	Scans   uint64        `json:"scans"`
	Direct  relayLine     `json:"direct_grpc"`
	Cluster []relayLine   `json:"cluster"`
}

// relayLine is one way of the same task from one database to another.
type relayLine struct {
	Way   string `json:"way"`
	Nodes int    `json:"nodes,omitempty"`
	Sync  string `json:"sync,omitempty"`
	// PublishedS is until the last acknowledgement, StoredS from there to the last
	// transaction of the store; of direct gRPC both are one.
	PublishedS       float64 `json:"published_s,omitempty"`
	StoredS          float64 `json:"stored_s"`
	PublishedBytesPS float64 `json:"published_bytes_per_s,omitempty"`
	StoredBytesPS    float64 `json:"stored_bytes_per_s"`
	// Ratio is the time of direct gRPC to that of publishing, and of both steps.
	PublishedRatio float64 `json:"published_to_direct,omitempty"`
	WholeRatio     float64 `json:"whole_to_direct,omitempty"`
	// Monitor: the samples were published by a monitor; HostS is the time that the host then took for
	// the rest, and counts to the whole.
	Monitor bool    `json:"by_monitor,omitempty"`
	HostS   float64 `json:"host_s,omitempty"`
}

func benchRelay(ctx context.Context, log io.Writer, dir string, bytes, chunkScans int) (*relayReport, error) {
	host, err := store.Open(ctx, filepath.Join(dir, "host.db"))
	if err != nil {
		return nil, err
	}
	defer host.Close()
	r := &relayReport{Machine: describeMachine(dir)}
	id, err := r.fill(ctx, host, uint64(bytes), chunkScans)
	if err != nil {
		return nil, err
	}
	if r.Direct, err = r.direct(ctx, host, id, filepath.Join(dir, "direct.db")); err != nil {
		return nil, fmt.Errorf("direct gRPC: %w", err)
	}
	for i, w := range []relayLine{
		{Nodes: 1, Sync: "2m"},
		{Nodes: 1, Sync: "always"},
		{Nodes: 3, Sync: "2m"},
		{Nodes: 3, Sync: "always"},
		{Nodes: 3, Sync: "always", Monitor: true},
	} {
		if w.Way = fmt.Sprintf("cluster of %d", w.Nodes); w.Monitor {
			w.Way += ", by the monitor"
		}
		at := filepath.Join(dir, fmt.Sprint("cluster", i))
		if err := benchCluster(ctx, log, r, &w, host, id, at); err != nil {
			return nil, fmt.Errorf("%s, sync %s: %w", w.Way, w.Sync, err)
		}
		r.Cluster = append(r.Cluster, w)
		_ = os.RemoveAll(at) // the scratch directory goes in any case
	}
	return r, nil
}

// fill makes the task: noise of four counts on steps, as bench ingest has it.
func (r *relayReport) fill(ctx context.Context, db *store.DB, bytes uint64, scans int) (store.TaskID, error) {
	setup := measure.Setup{Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 10}}
	for c := range 6 {
		unit := []measure.Unit{measure.UnitAmpere, measure.UnitVolt}[c%2]
		setup.Channels = append(setup.Channels, measure.Channel{Name: fmt.Sprint("c", c), Unit: unit, Gain: 1e-3})
	}
	for i, role := range []measure.Role{measure.RolePSU, measure.RolePCIe3V3, measure.RolePCIe12V} {
		setup.Rails = append(setup.Rails, measure.Rail{
			Name: fmt.Sprint("rail", i), Role: role,
			Wiring: measure.WiringClamp, X: 2 * i, Y: 2*i + 1,
		})
	}
	id, err := db.BeginTask(ctx, store.NewTask{
		Name: "bench", User: "bench", Launched: time.Now(), Monitor: "bench",
		CaptureID: "bench",
	})
	if err == nil {
		err = db.PutHeader(ctx, id, store.Header{
			Bench: "bench", Setup: setup, CalibrationID: "bench",
			Started: time.Now(),
		})
	}
	if err != nil {
		return 0, err
	}
	e, err := chunk.NewEncoder(setup.Timebase, 6, scans)
	if err != nil {
		return 0, err
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for no := uint64(0); r.Bytes < bytes; no++ {
		b := measure.Block{FirstScan: r.Scans, FirstTick: int64(10 * r.Scans), Counts: make([][]measure.Count, 6)}
		for c := range b.Counts {
			b.Counts[c] = make([]measure.Count, scans)
			for i := range b.Counts[c] {
				b.Counts[c][i] = measure.Count(4000*(c+1) + int(math.Round(4*rng.NormFloat64())))
			}
		}
		if _, err := e.Append(&b); err != nil {
			return 0, err
		}
		x := e.Flush(no)
		if err := db.AppendChunks(ctx, id, []*chunk.Chunk{x}, nil); err != nil {
			return 0, err
		}
		r.Scans += uint64(scans)
		r.Bytes += uint64(chunk.PayloadSize(x))
	}
	return id, db.Finish(ctx, id, store.Outcome{State: store.Complete})
}

// direct reads the task's chunks from a TaskService over loopback TCP and stores them.
func (r *relayReport) direct(ctx context.Context, host *store.DB, id store.TaskID, path string) (out relayLine,
	err error,
) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return out, err
	}
	server := grpc.NewServer(wire.ServerOptions()...)
	api.New(ctx, host, api.Options{}).Register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() {
		server.Stop()
		err = errors.Join(err, <-served)
	}()
	c, err := client.Dial(l.Addr().String())
	if err != nil {
		return out, err
	}
	defer c.Close()
	db, err := store.Open(ctx, path)
	if err != nil {
		return out, err
	}
	defer db.Close()
	began := time.Now()
	if err := r.receive(ctx, c, host, id, db); err != nil {
		return out, err
	}
	out.Way, out.StoredS = "gRPC alone", time.Since(began).Seconds()
	out.StoredBytesPS = float64(r.Bytes) / out.StoredS
	return out, nil
}

func (r *relayReport) receive(ctx context.Context, c *client.Client, host *store.DB, id store.TaskID,
	db *store.DB,
) error {
	t, err := host.Task(ctx, id)
	if err != nil {
		return err
	}
	to, err := db.BeginTask(ctx, t.NewTask)
	if err == nil {
		err = db.PutHeader(ctx, to, t.Header)
	}
	if err != nil {
		return err
	}
	var batch []*chunk.Chunk
	size := 0
	for item, err := range c.Chunks(ctx, int64(id), &t.Setup, client.Range{}) {
		if err != nil {
			return err
		}
		if item.Chunk == nil {
			continue
		}
		batch = append(batch, item.Chunk.Clone())
		if size += chunk.PayloadSize(item.Chunk); size >= 8<<20 {
			if err := db.AppendChunks(ctx, to, batch, nil); err != nil {
				return err
			}
			batch, size = batch[:0], 0
		}
	}
	if err := db.AppendChunks(ctx, to, batch, nil); err != nil {
		return err
	}
	return db.Finish(ctx, to, store.Outcome{State: store.Complete})
}

// startTrial starts the nodes of a cluster on free ports and blocks until the streams exist.
// stop ends the nodes and waits for them; after an error there is nothing to stop.
func startTrial(ctx context.Context, log io.Writer, dir, sync string, nodes int) (b *relay.Bus, stop func() error,
	err error,
) {
	var port int
	for range 20 { // another process may have one of the ports that follow
		if port, err = freeFrom(nodes); err == nil {
			break
		}
	}
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- cli.Run(ctx, []string{
			"cluster", "trial", "--dir", dir, "--sync", sync, "--streams", "1", "--size", fmt.Sprint(nodes),
			"--port", fmt.Sprint(port),
		}, cli.Streams{Out: log, Err: log}, cluster.Commands)
	}()
	stop = func() error {
		cancel()
		return <-ended
	}
	var servers []string
	for i := range nodes {
		servers = append(servers, fmt.Sprintf("nats://127.0.0.1:%d", port+i))
	}
	b, err = relay.Dial(ctx, relay.Options{Servers: strings.Join(servers, ","), Name: "wattmark trial"})
	if err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return b, stop, nil
}

// freeFrom lets the system choose a free port and checks the ports that follow from it, by
// listening on all of them at once.
func freeFrom(nodes int) (port int, err error) {
	first, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer first.Close()
	port = first.Addr().(*net.TCPAddr).Port
	for i := range nodes {
		for _, p := range []int{port + i, port + 10 + i} {
			if p == port {
				continue
			}
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
			if err != nil {
				return 0, err
			}
			defer l.Close()
		}
	}
	return port, nil
}

// benchCluster carries the task over a cluster of its own.
func benchCluster(ctx context.Context, log io.Writer, r *relayReport, w *relayLine, host *store.DB, id store.TaskID,
	dir string,
) (err error) {
	b, stop, err := startTrial(ctx, log, dir, w.Sync, w.Nodes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	defer b.Close()
	if err := w.publish(ctx, &relay.Publisher{DB: host, Bus: b}, id); err != nil {
		return err
	}
	db, err := store.Open(ctx, filepath.Join(dir, "store.db"))
	if err != nil {
		return err
	}
	defer db.Close()
	taking, cancel := context.WithCancel(ctx)
	defer cancel()
	began := time.Now()
	c := &relay.Consumer{Bus: b, DB: db, Name: "bench", Taken: func(relay.Taken) { cancel() }}
	if err := c.Run(taking); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	w.StoredS = time.Since(began).Seconds()
	w.PublishedBytesPS, w.StoredBytesPS = float64(r.Bytes)/w.PublishedS, float64(r.Bytes)/w.StoredS
	w.PublishedRatio, w.WholeRatio = r.Direct.StoredS/w.PublishedS, r.Direct.StoredS/(w.PublishedS+w.HostS+w.StoredS)
	return nil
}

// publish publishes the task: by its host alone, or the samples by a monitor before.
func (w *relayLine) publish(ctx context.Context, p *relay.Publisher, id store.TaskID) error {
	began := time.Now()
	if w.Monitor {
		if err := publishCapture(ctx, p, id); err != nil {
			return err
		}
		w.PublishedS = time.Since(began).Seconds()
		began = time.Now()
	}
	_, err := p.Replicate(ctx, id)
	if took := time.Since(began).Seconds(); w.Monitor {
		w.HostS = took
	} else {
		w.PublishedS = took
	}
	return err
}

// publishCapture publishes a task's samples as their monitor would.
func publishCapture(ctx context.Context, p *relay.Publisher, id store.TaskID) error {
	t, err := p.DB.Task(ctx, id)
	if err != nil {
		return err
	}
	c, err := p.Capture(ctx, relay.CaptureHeader{Header: t.Header, Task: t.NewTask})
	if err != nil {
		return err
	}
	var buf []byte
	for x, err := range p.DB.Chunks(ctx, id, 0) {
		if err != nil {
			return err
		}
		buf = chunk.AppendPayload(buf[:0], x)
		if err := c.Chunk(x, buf); err != nil {
			return err
		}
	}
	again, err := c.Published(ctx)
	if err == nil && again {
		err = errors.New("samples are gone that were just published")
	}
	return err
}

func (r *relayReport) render(w io.Writer) {
	fmt.Fprintf(w, "%s of coded samples, %d scans of six channels\n", cli.SizeText(r.Bytes), r.Scans)
	t := out.NewTable(w)
	t.AppendHeader(table.Row{"way", "sync", "published MB/s", "of direct", "stored MB/s", "both, of direct"})
	t.AppendRow(table.Row{r.Direct.Way, "", "", "", fmt.Sprintf("%.0f", r.Direct.StoredBytesPS/1e6), "1"})
	for _, l := range r.Cluster {
		t.AppendRow(table.Row{
			l.Way, l.Sync, fmt.Sprintf("%.0f", l.PublishedBytesPS/1e6), fmt.Sprintf("%.2f", l.PublishedRatio),
			fmt.Sprintf("%.0f", l.StoredBytesPS/1e6), fmt.Sprintf("%.2f", l.WholeRatio),
		})
	}
	t.Render()
	for _, l := range r.Cluster {
		if l.Monitor {
			fmt.Fprintf(w, "Of the last, the host's part took %.2f s: it sent no samples.\n", l.HostS)
		}
	}
}
