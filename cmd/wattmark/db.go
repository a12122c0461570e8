package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"wattmark/store"
)

func (a *app) dbCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "db", Short: "Check, repair, back up, carry, merge, pack and prune the task database",
		Long: `Care of the task database: docs/database.md has the whole of it.

  wattmark db check                    is everything sound?
  wattmark db repair                   what would be mended; --yes does it
  wattmark db backup power-2026.db     a copy while captures come in, verified
  wattmark db detach trip.db --task 42 a file to carry away
  wattmark db import other.db          the tasks of another database
  wattmark db retain --older-than 90d  delete what is old
  wattmark db compact --older-than 7d  pack what is cold`,
	}
	c.AddCommand(a.dbCheckCmd(), a.dbRepairCmd(), a.dbBackupCmd(), a.dbDetachCmd(), a.dbImportCmd(), a.dbVacuumCmd(), a.dbRetainCmd(), a.dbCompactCmd(), a.dbExpandCmd())
	return c
}

// findingReport is one damage as our JSON shows it.
type findingReport struct {
	Kind     string `json:"kind"`
	TaskID   int64  `json:"task_id,omitempty"`
	Chunk    *int64 `json:"chunk,omitempty"`
	What     string `json:"what"`
	Remedy   string `json:"remedy"`
	Mendable bool   `json:"mendable"`
}

type soundReport struct {
	Database string          `json:"database"`
	Sound    bool            `json:"sound"`
	Quick    bool            `json:"quick,omitempty"`
	Tasks    uint64          `json:"tasks"`
	Chunks   uint64          `json:"chunks"`
	Scans    uint64          `json:"samples"`
	Pages    uint64          `json:"pyramid_pages"`
	Findings []findingReport `json:"findings"`
}

func newFindings(list []store.Finding) []findingReport {
	out := []findingReport{}
	for _, f := range list {
		r := findingReport{Kind: string(f.Kind), TaskID: int64(f.Task), What: f.What, Remedy: f.Remedy, Mendable: f.Mendable}
		if f.Chunk != store.NoChunk {
			r.Chunk = &f.Chunk
		}
		out = append(out, r)
	}
	return out
}

func (a *app) dbCheckCmd() *cobra.Command {
	var opt store.CheckOptions
	c := &cobra.Command{
		Use: "check", Short: "Look for damage: pages, checksums, counts, holes, results, pyramids", Args: cobra.NoArgs,
		Long: `Look for damage, and change nothing: SQLite's own checks, the schema, foreign
keys, calibrations against their digests, every chunk against its checksum,
numbers and counts, holes against recorded losses, results and pyramids against
the chunks, markers and results against the digests of when their task ended.

--quick leaves the chunks' contents and what is compared with them out, and asks
SQLite for its quick check. With --task one task is checked, and not the file.
Exit code 6 says that there is damage.`,
		Example: "  wattmark db check\n  wattmark db check --task 42 --json\n  wattmark db check --quick",
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.dbCheck(cmd.Context(), opt) },
	}
	c.Flags().Int64Var((*int64)(&opt.Task), "task", 0, "only this task")
	c.Flags().BoolVar(&opt.Quick, "quick", false, "do not read the chunks")
	return a.jsonFlag(c)
}

// openToLook opens the database as it is, and changes nothing, of whatever version it is.
func (a *app) openToLook(ctx context.Context) (*store.DB, error) {
	if _, err := os.Stat(a.db); errors.Is(err, os.ErrNotExist) {
		return nil, withCode(exitNotFound, fmt.Errorf("no task database at %s: name one with --db", a.db))
	}
	db, err := store.OpenSource(ctx, a.db)
	if errors.Is(err, store.ErrCorrupt) {
		err = withCode(exitDamaged, fmt.Errorf("%w\nSave what can be read: wattmark db repair --salvage NEW.db", err))
	}
	return db, err
}

func (a *app) dbCheck(ctx context.Context, opt store.CheckOptions) error {
	db, err := a.openToLook(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	r, err := db.Check(ctx, opt)
	if errors.Is(err, store.ErrNotFound) {
		return withCode(exitNotFound, fmt.Errorf("no task %d in %s: list them with wattmark tasks", opt.Task, a.db))
	}
	if err != nil {
		return err
	}
	if err := a.printCheck(r, opt.Quick); err != nil {
		return err
	}
	return damaged(r.Findings)
}

func damaged(list []store.Finding) error {
	if len(list) == 0 {
		return nil
	}
	return withCode(exitDamaged, fmt.Errorf("the database is damaged: %d finding(s)", len(list)))
}

func (a *app) printCheck(r *store.CheckReport, quick bool) error {
	if a.json {
		return a.printJSON(soundReport{a.db, len(r.Findings) == 0, quick, r.Tasks, r.Chunks, r.Scans, r.Pages, newFindings(r.Findings)})
	}
	a.printFindings(r.Findings)
	verdict := "sound"
	if len(r.Findings) > 0 {
		verdict = fmt.Sprintf("%d finding(s)", len(r.Findings))
	}
	if quick {
		verdict += ", by a quick look"
	}
	fmt.Fprintf(a.out, "%s: %d task(s), %d chunks, %d samples, %d pyramid pages: %s\n", a.db, r.Tasks, r.Chunks, r.Scans, r.Pages, verdict)
	return nil
}

func (a *app) printFindings(list []store.Finding) {
	for _, f := range list {
		where := "file"
		if f.Task != 0 {
			where = fmt.Sprintf("task %d", f.Task)
		}
		if f.Chunk != store.NoChunk {
			where += fmt.Sprintf(", chunk %d", f.Chunk)
		}
		fmt.Fprintf(a.out, "%s: %s: %s\n    → %s\n", where, f.Kind, f.What, f.Remedy)
	}
}
