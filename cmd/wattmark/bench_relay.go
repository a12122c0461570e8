package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"wattmark/api"
	"wattmark/api/client"
	"wattmark/api/wire"
	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/store"
	"wattmark/store/relay"
)

// relayReport is what bench relay prints.
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
	// Monitor: the samples were published by a monitor; HostS is what the host then took for
	// the rest, and counts to the whole.
	Monitor bool    `json:"by_monitor,omitempty"`
	HostS   float64 `json:"host_s,omitempty"`
}

func (a *app) benchRelayCmd() *cobra.Command {
	var dir string
	var megabytes, chunkScans int
	c := &cobra.Command{
		Use: "relay", Short: "Tasks over a cluster on this machine, beside gRPC alone", Args: cobra.NoArgs,
		Long: `Carry one task of six 16-bit channels from a database to another: over gRPC alone
(raw chunks of TaskService), and over a cluster of one and of three nodes on this
machine, each node a process, with every write brought to the disk before it is
acknowledged and without. All nodes, the host and the store share this machine's
processors and disk, which nodes on machines of their own do not.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if megabytes < 1 || chunkScans < 256 || chunkScans > chunk.MaxScans {
				return withCode(exitUsage, fmt.Errorf("want --megabytes from 1 on, and --chunk from 256 to %d scans", chunk.MaxScans))
			}
			f := benchFlagsShared{dir: dir, transport: "tcp"}
			scratch, remove, err := f.scratch()
			if err != nil {
				return err
			}
			defer remove()
			r, err := a.benchRelay(cmd.Context(), scratch, megabytes<<20, chunkScans)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(r)
			}
			r.render(a)
			return nil
		},
	}
	c.Flags().StringVar(&dir, "dir", os.TempDir(), "directory for databases and streams, on the disk that is to be measured")
	c.Flags().IntVar(&megabytes, "megabytes", 128, "size of the task, of coded samples")
	c.Flags().IntVar(&chunkScans, "chunk", 16384, "scans of a chunk")
	return a.jsonFlag(c)
}

func (a *app) benchRelay(ctx context.Context, dir string, bytes, chunkScans int) (*relayReport, error) {
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
	for i, w := range []relayLine{{Nodes: 1, Sync: "2m"}, {Nodes: 1, Sync: "always"}, {Nodes: 3, Sync: "2m"}, {Nodes: 3, Sync: "always"}, {Nodes: 3, Sync: "always", Monitor: true}} {
		if w.Way = fmt.Sprintf("cluster of %d", w.Nodes); w.Monitor {
			w.Way += ", by the monitor"
		}
		at := filepath.Join(dir, fmt.Sprint("cluster", i))
		if err := a.benchCluster(ctx, r, &w, host, id, at); err != nil {
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
		setup.Rails = append(setup.Rails, measure.Rail{Name: fmt.Sprint("rail", i), Role: role, Wiring: measure.WiringClamp, X: 2 * i, Y: 2*i + 1})
	}
	id, err := db.BeginTask(ctx, store.NewTask{Name: "bench", User: "bench", Launched: time.Now(), Monitor: "bench", CaptureID: "bench"})
	if err == nil {
		err = db.PutHeader(ctx, id, store.Header{Bench: "bench", Setup: setup, CalibrationID: "bench", Started: time.Now()})
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
func (r *relayReport) direct(ctx context.Context, host *store.DB, id store.TaskID, path string) (out relayLine, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return out, err
	}
	server := grpc.NewServer(wire.ServerOptions()...)
	api.Register(server, host)
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

func (r *relayReport) receive(ctx context.Context, c *client.Client, host *store.DB, id store.TaskID, db *store.DB) error {
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

// benchCluster carries the task over a cluster of its own.
func (a *app) benchCluster(ctx context.Context, r *relayReport, w *relayLine, host *store.DB, id store.TaskID, dir string) (err error) {
	f := &nodeFlags{sync: w.Sync}
	f.cfg.Dir, f.cfg.Streams.Partitions = dir, 1
	b, stop, err := a.startTrial(ctx, f, w.Nodes)
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

func (r *relayReport) render(a *app) {
	fmt.Fprintf(a.out, "%s of coded samples, %d scans of six channels\n", sizeText(r.Bytes), r.Scans)
	t := newTable(a.out)
	t.AppendHeader(table.Row{"way", "sync", "published MB/s", "of direct", "stored MB/s", "both, of direct"})
	t.AppendRow(table.Row{r.Direct.Way, "", "", "", fmt.Sprintf("%.0f", r.Direct.StoredBytesPS/1e6), "1"})
	for _, w := range r.Cluster {
		t.AppendRow(table.Row{
			w.Way, w.Sync, fmt.Sprintf("%.0f", w.PublishedBytesPS/1e6), fmt.Sprintf("%.2f", w.PublishedRatio),
			fmt.Sprintf("%.0f", w.StoredBytesPS/1e6), fmt.Sprintf("%.2f", w.WholeRatio),
		})
	}
	t.Render()
	for _, w := range r.Cluster {
		if w.Monitor {
			fmt.Fprintf(a.out, "Of the last, the host's part took %.2f s: it sent no samples.\n", w.HostS)
		}
	}
}
