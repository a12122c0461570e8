package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
)

// ImportOptions select the tasks to copy, and the way.
type ImportOptions struct {
	// Tasks are those to copy; nil for all, with all analyses and campaigns.
	Tasks []TaskID
	// KeepIDs gives the copies the numbers that the tasks and groups have, where they are free.
	// The target is a new file.
	KeepIDs bool
	// Analyses copies all analyses, also where Tasks names some tasks.
	Analyses bool
	// Salvage goes on behind rows that cannot be read, and copies also tasks that still run.
	Salvage bool
	// NoSamples leaves the samples and their pyramid out, for a carrier that brings those by
	// other means: TakeTask puts both together again.
	NoSamples bool
	// Progress is called after each task; nil for none.
	Progress func(done, of int)
}

// Imported is the outcome of an import.
type Imported struct {
	Tasks     []CopiedTask
	Running   []TaskID // that still run at the source, and were left out
	Analyses  int
	Campaigns int // of instructions
	// Lost are the places that a salvage could not read; Cut are the tasks here that lost
	// samples by it, and whose results are to be computed anew.
	Lost []Finding
	Cut  []TaskID
}

// Import copies tasks of another database with all that belongs to them: users, calibrations,
// results, kernels, launches, groups, labels, and the analyses that rest on them. A task is
// known as CopyTask knows it: one that is here already is not copied again, so that an import
// can be repeated, and goes on where it was interrupted.
func (d *DB) Import(ctx context.Context, from *DB, opt ImportOptions) (*Imported, error) {
	op := "import from " + from.path
	out := &Imported{}
	// A nil salvage forgives nothing: the same steps serve both.
	var broken *salvage
	if opt.Salvage {
		broken = &salvage{out: out}
	}
	tables, err := copiedTables(ctx, d, nil)
	ids := opt.Tasks
	if err == nil && ids == nil {
		ids, err = broken.taskIDs(ctx, from)
	}
	if err != nil {
		return nil, wrap(op, err)
	}
	// Tasks here by the numbers at the source: analyses refer to tasks.
	copies := map[TaskID]TaskID{}
	for i, id := range ids {
		c := copier{
			from: from, to: d, id: id, tables: tables, reason: importing, keepID: opt.KeepIDs, broken: broken,
			done: CopiedTask{From: id},
		}
		switch err := c.importTask(ctx, opt.NoSamples); {
		case err == nil:
			copies[id] = c.done.To
			out.Tasks = append(out.Tasks, c.done)
		case errors.Is(err, ErrRunning):
			out.Running = append(out.Running, id)
		// A task that a living program stores under way will come by itself.
		case errors.Is(err, errHidden):
		default:
			if err = broken.forgive(err, fmt.Sprintf("task %d", id), id, NoChunk); err != nil {
				return out, wrap(fmt.Sprintf("%s: task %d", op, id), err)
			}
		}
		if opt.Progress != nil {
			opt.Progress(i+1, len(ids))
		}
		// Analyses and campaigns come last, when the copies of their tasks have numbers.
	}
	out.Analyses, err = from.copyAnalyses(ctx, d, copies, opt.Tasks == nil || opt.Analyses)
	if err = broken.forgive(err, "the analyses", 0, NoChunk); err == nil && opt.Tasks == nil {
		out.Campaigns, err = from.CopyCampaigns(ctx, d)
		err = broken.forgive(err, "the campaigns of instructions", 0, NoChunk)
	}
	return out, wrap(op, err)
}

// importTask carries one task; bare leaves the samples out.
// The steps are each one or more transactions, in this order; see copier.
func (c *copier) importTask(ctx context.Context, bare bool) error {
	steps := []func(context.Context) error{c.begin, c.samples, c.conclude}
	if bare {
		// The counts are the source's, since no chunk is here to be counted; TakeTask compares with them.
		steps = []func(context.Context) error{c.begin, func(ctx context.Context) error {
			c.task["cold"] = int64(0)
			return c.concludeCounted(ctx, c.task["chunks"], c.task["scans"])
		}}
	}
	err := c.run(ctx, steps...)
	c.done.Chunks = c.copied
	return err
}

// Detach writes tasks, with all that belongs to them, into a new file to carry away: under the
// same numbers, without a log, with the view data. Tasks that still run are left out. The file
// takes its name when it is whole.
func (d *DB) Detach(ctx context.Context, path string, ids []TaskID, progress func(done, of int)) (*Imported, error) {
	return fill(ctx, path, d, ImportOptions{Tasks: ids, KeepIDs: true, Progress: progress}, "detach to "+path)
}

// Extract is Detach with all analyses of the database, for a reader without access to it.
func (d *DB) Extract(ctx context.Context, path string, ids []TaskID) (*Imported, error) {
	return fill(ctx, path, d, ImportOptions{Tasks: ids, KeepIDs: true, Analyses: true}, "extract to "+path)
}

// Salvage writes the readable part of a broken file, which may be cut off, into a new one. The old one stays as it is.
func Salvage(ctx context.Context, broken, path string, progress func(done, of int)) (*Imported, error) {
	op := "salvage " + broken
	from, err := openReadOnly(ctx, broken, true)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	defer from.Close()
	return fill(ctx, path, from, ImportOptions{KeepIDs: true, Salvage: true, Progress: progress}, op)
}

// fill makes a new file of tasks of a database.
func fill(ctx context.Context, path string, from *DB, opt ImportOptions, op string) (out *Imported, err error) {
	err = makeFile(ctx, path, op, func(part string) error {
		to, err := Open(ctx, part)
		if err == nil {
			out, err = to.Import(ctx, from, opt)
			// Close folds the log of the new file in; its error would be a torn copy.
			err = errors.Join(err, to.Close())
		}
		if err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
		return nil
	})
	return out, err
}

// salvage collects the losses of an import from a broken file. A nil one forgives nothing.
type salvage struct {
	out  *Imported
	gone int64 // chunks of the present task that could not be read
}

// forgive records damage of the source as a loss and returns nil; other errors it returns. A nil
// salvage returns every error.
func (s *salvage) forgive(err error, what string, id TaskID, no ChunkNo) error {
	if err == nil || s == nil || !isCorrupt(err) {
		return err
	}
	s.out.Lost = append(s.out.Lost, Finding{
		Kind: BadPage, Task: id, Chunk: no, What: fmt.Sprintf("%s could not be read: %v", what, err),
		Remedy: "it is not in the new file; look for it in a backup",
	})
	return nil
}

// taskIDs lists the tasks of a database. Of a broken file it joins the numbers that the table
// yields from both ends, and those of its indexes.
func (s *salvage) taskIDs(ctx context.Context, from *DB) ([]TaskID, error) {
	if s == nil {
		return from.TaskIDs(ctx)
	}
	// A broken page ends a walk: from the other end, and along indexes whose pages are intact, tasks
	// behind it may be reached.
	seen := map[TaskID]bool{}
	for _, q := range []string{
		"task NOT INDEXED ORDER BY task_id", "task NOT INDEXED ORDER BY task_id DESC",
		"task INDEXED BY task_user ORDER BY user_id", "task INDEXED BY task_name ORDER BY name",
	} {
		err := eachNumber(ctx, from, "SELECT task_id FROM "+q, func(id int64) { seen[TaskID(id)] = true })
		// A walk that came to its end has seen all there are.
		if err == nil {
			break
		}
		if err := s.forgive(err, "a part of the table of tasks", 0, NoChunk); err != nil {
			return nil, err
		}
	}
	return slices.Sorted(maps.Keys(seen)), nil
}

// eachNumber calls f for the readable rows of a query.
func eachNumber(ctx context.Context, from *DB, query string, f func(int64), args ...any) error {
	s := from.reading(ctx)
	for rows := range s.rows(query, args...) {
		var n int64
		// A row that cannot be scanned is passed over.
		if rows.Scan(&n) == nil {
			f(n)
		}
	}
	return s.err
}

// salvageBatch is the number of chunks in one transaction of a salvage.
const salvageBatch = 16

// salvageSamples copies the readable chunks after a number. The others become recorded gaps.
func (c *copier) salvageSamples(ctx context.Context, after int64) error {
	c.broken.gone = 0
	// Numbers from both ends; the ones in between lie on broken pages.
	var numbers []int64
	for _, order := range []string{"ASC", "DESC"} {
		err := eachNumber(ctx, c.from,
			`SELECT chunk_no FROM chunk WHERE task_id=? AND chunk_no>? ORDER BY chunk_no `+order,
			func(no int64) { numbers = append(numbers, no) }, c.id, after)
		// The ascending walk came to its end: it has all numbers.
		if err == nil && order == "ASC" {
			break
		}
		if err := c.broken.forgive(err, "some of its chunks", c.id, NoChunk); err != nil {
			return err
		}
	}
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	// Batches keep a transaction small, and a salvage that is stopped keeps those that are done.
	for part := range slices.Chunk(numbers, salvageBatch) {
		err := c.to.write(ctx, "salvage samples", func(s *session) {
			for _, no := range part {
				c.salvageChunk(s, no)
			}
		})
		if err != nil {
			return err
		}
	}
	c.copied = uint64(len(numbers))
	return nil
}

// salvageChunk copies one chunk. One with a column that cannot be read becomes a gap.
func (c *copier) salvageChunk(s *session, no int64) {
	// The columns are read once without a use: an error must come before a row is written.
	const where = "task_id=? AND chunk_no=?"
	from := c.from.reading(s.ctx)
	for range copied(from, copiedTable{"chunk_column", []string{"dir", "data"}}, where, c.id, no) {
	}
	if from.err == nil {
		c.chunkRows(s, where, c.id, no)
		return
	}
	s.fail(c.broken.forgive(from.err, "its samples", c.id, ChunkNo(no)))
	c.broken.gone++
	// The chunk's head holds the number of scans that are lost.
	from = c.from.reading(s.ctx)
	for head := range copied(from, copiedTable{"chunk", []string{"first_scan", "n"}}, where, c.id, no) {
		s.exec(putEvent, c.new, head[0], measure.EventGap, head[1], 1, -1,
			fmt.Sprintf("chunk %d could not be salvaged from a broken database", no))
	}
	s.fail(c.broken.forgive(from.err, "the head of a chunk", c.id, ChunkNo(no)))
}

// verdict returns the state and reason of a salvaged task of which so many chunks are here. One
// that lost chunks is noted as cut.
func (s *salvage) verdict(c *copier, here int64) (state, reason any) {
	state, reason = c.task["state"], c.task["reason"]
	there, _ := c.task["chunks"].(int64)
	// Running tasks keep their state; so do tasks of which nothing is missing.
	if state == int64(Running) || s.gone == 0 && here >= there {
		return state, reason
	}
	s.out.Cut = lists.AddNew(s.out.Cut, c.new)
	if state != int64(Failed) {
		state = int64(Incomplete)
	}
	// The reason names the larger of the counts: chunks lost on reading, and chunks missing at the end.
	lost := fmt.Sprintf("%d of %d chunks could not be salvaged from a broken database; %s", max(there-here, s.gone),
		there, reason)
	return state, strings.TrimSuffix(lost, "; ")
}

// Arriving are the samples of a task that come by other means than its other rows.
type Arriving struct {
	// CRCs are the checksums of the task's chunks, in order of their numbers.
	CRCs []uint32
	// Chunks yields the chunks from a number on, in order, each valid until the next.
	Chunks func(ctx context.Context, from uint64) iter.Seq2[*chunk.Chunk, error]
}

// TakeTask stores a task of which from has all but the samples, as an import with NoSamples
// wrote it. A task is known as CopyTask knows it: one that is here whole is left as it is, and
// one whose taking was interrupted is finished. Until all chunks are here, read back and equal
// to CRCs, the task is Partial. Errors wrap ErrConflict or ErrCorrupt where the samples are not
// those of CRCs: nothing of the task stays then.
func (d *DB) TakeTask(ctx context.Context, from *DB, id TaskID, a Arriving) (CopiedTask, error) {
	op := fmt.Sprintf("take task %d", id)
	if d.writer == nil {
		return CopiedTask{}, fmt.Errorf("%s: %w", op, ErrReadOnly)
	}
	c := copier{from: from, to: d, id: id, reason: unfinishedCopy, done: CopiedTask{From: id}}
	var err error
	if c.tables, err = copiedTables(ctx, from, d); err == nil {
		// As CopyTask, but that the chunks come from a and are compared with its checksums.
		err = c.run(ctx, c.begin, func(ctx context.Context) error { return c.takeSamples(ctx, a) },
			func(ctx context.Context) error { return c.checksums(ctx, a.CRCs) },
			func(ctx context.Context) error {
				c.task["cold"] = int64(0) // the chunks came unpacked, but for sums of deleted samples
				if held := d.reading(ctx); one[int](held, `SELECT count(*) FROM chunk_cold WHERE task_id=?`, c.new) > 0 {
					c.task["cold"] = int64(1)
				} else if held.err != nil {
					return held.err
				}
				return c.concludeCounted(ctx, int64(c.done.Chunks), int64(c.done.Scans))
			})
	}
	if err == nil && !c.done.Known {
		// A pyramid that cannot be made now is made from the chunks when it is needed.
		_ = d.finishPyramid(ctx, c.new)
		d.emptyLog(ctx)
	}
	return c.done, wrap(op, err)
}

// takenBytes is about how much one transaction takes: enough that the wait for the disk does not count.
const takenBytes = 8 << 20

// takeSamples stores the chunks behind those that are here.
func (c *copier) takeSamples(ctx context.Context, a Arriving) error {
	id := c.new
	// Behind the last stored one: the taking may have been interrupted.
	from, _, err := c.to.NextChunk(ctx, id)
	if err != nil {
		return err
	}
	var batch []*chunk.Chunk
	size := 0
	for x, err := range a.Chunks(ctx, from) {
		if err != nil {
			return err
		}
		// The chunk is valid until the next one; the batch outlives it.
		batch = append(batch, x.Clone())
		if size += chunk.PayloadSize(x); size < takenBytes {
			continue
		}
		if err := c.to.AppendChunks(ctx, id, batch, nil); err != nil {
			return err
		}
		batch, size = batch[:0], 0
	}
	if len(batch) == 0 {
		return nil
	}
	return c.to.AppendChunks(ctx, id, batch, nil)
}

// CopyAnalyses copies analyses as newest versions; one of the same content and moment is known.
// tasks are the copies' numbers by the originals'. It returns the number of new ones.
func (d *DB) CopyAnalyses(ctx context.Context, to *DB, tasks map[TaskID]TaskID) (n int, err error) {
	return d.copyAnalyses(ctx, to, tasks, true)
}

// copyAnalyses copies all analyses, or those that rest on one of the tasks.
func (d *DB) copyAnalyses(ctx context.Context, to *DB, tasks map[TaskID]TaskID, all bool) (n int, err error) {
	list, err := d.Analyses(ctx, "")
	if err != nil {
		return 0, err
	}
	there, err := to.Analyses(ctx, "")
	if err != nil {
		return 0, err
	}
	for _, a := range list {
		var ids []TaskID
		// Numbers of tasks differ here and there; those that were not copied are left out.
		for _, id := range a.Tasks {
			if to, copied := tasks[id]; copied {
				ids = append(ids, to)
			}
		}
		if !all && len(ids) == 0 {
			continue
		}
		a.Tasks = ids
		// The content is compared as bytes: both sides store the text as it came.
		i := slices.IndexFunc(there, func(b Analysis) bool {
			return a.Kind == b.Kind && a.Name == b.Name && a.Made.Equal(b.Made) && a.Maker == b.Maker &&
				string(a.Content) == string(b.Content)
		})
		if i >= 0 {
			if err := to.linkAnalysis(ctx, &there[i], ids); err != nil {
				return n, err
			}
			continue
		}
		if _, err := to.PutAnalysis(ctx, a); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// CopyCampaigns copies campaigns of instructions; one of the same GPU and moment is known. It
// returns the number of new ones.
func (d *DB) CopyCampaigns(ctx context.Context, to *DB) (n int, err error) {
	list, err := d.InstructionCampaigns(ctx)
	if err != nil {
		return 0, err
	}
	for _, c := range slices.Backward(list) { // oldest first
		runs, err := d.Instructions(ctx, c.ID)
		if err != nil {
			return n, err
		}
		// ErrConflict: a campaign of this GPU and moment is there.
		_, err = to.ImportInstructions(ctx, c, runs)
		if errors.Is(err, ErrConflict) {
			continue
		} else if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}
