package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"strings"

	"wattmark/measure"
)

// Launch is one execution of a kernel in a recorded program, on the host's clock.
type Launch struct {
	Start, End          int64 // ns since 1970
	Name, Device        int   // numbers in LaunchTables
	Stream, Correlation uint32
	Graph               uint32 // id of the CUDA graph, 0 for none
	Grid, Block         [3]uint32
}

// LaunchProcess is what one process's log came to.
type LaunchProcess struct {
	PID, CUPTI                 uint32
	Kernels, Reported, Dropped uint64
	Whole                      bool
	Trouble                    string
}

// LaunchDevice is a GPU as a process saw it.
type LaunchDevice struct {
	Process  int
	Ordinal  uint32
	UUID     string // empty where the driver did not tell
	Measured bool   // the GPU that the meter measured
}

// LaunchTables are what launches refer to.
type LaunchTables struct {
	Processes []LaunchProcess
	Names     []string
	Devices   []LaunchDevice
}

// PutLaunches adds launches in one transaction; first counts the ones before.
// The same ones again are no error and no second rows.
func (d *DB) PutLaunches(ctx context.Context, id TaskID, first uint64, l []Launch) error {
	return d.putAll(ctx, "launches", `INSERT OR IGNORE INTO launch VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`, id, len(l), func(i int) []any {
		x := &l[i]
		return []any{
			x.Start, int64(first) + int64(i), x.End, x.Name, x.Device, x.Stream, x.Correlation, x.Graph,
			x.Grid[0], x.Grid[1], x.Grid[2], x.Block[0], x.Block[1], x.Block[2],
		}
	})
}

// PutLaunchTables stores what the launches refer to, in place of what was there.
func (d *DB) PutLaunchTables(ctx context.Context, id TaskID, t LaunchTables) error {
	return d.write(ctx, fmt.Sprintf("store launch tables of task %d", id), func(tx *sql.Tx) error {
		if err := mustExist(tx.ExecContext(ctx, `UPDATE task SET state=state WHERE task_id=?`, int64(id))); err != nil {
			return err
		}
		put := func(table string, row ...any) error {
			_, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO `+table+` VALUES(?`+strings.Repeat(",?", len(row))+`)`, append([]any{int64(id)}, row...)...) // #nosec G202 -- the callers below name the table
			return err
		}
		var errs []error
		for i, p := range t.Processes {
			errs = append(errs, put("launch_process", i, p.PID, p.CUPTI, int64(p.Kernels), int64(p.Reported), int64(p.Dropped), p.Whole, p.Trouble))
		}
		for i, n := range t.Names {
			errs = append(errs, put("launch_name", i, n))
		}
		for i, x := range t.Devices {
			errs = append(errs, put("launch_device", i, x.Process, x.Ordinal, x.UUID, x.Measured))
		}
		return errors.Join(errs...)
	})
}

// LaunchTables returns what a task's launches refer to; all empty for a task that
// was not recorded.
func (d *DB) LaunchTables(ctx context.Context, id TaskID) (t LaunchTables, err error) {
	if t.Processes, err = list(ctx, d, "launch processes", `SELECT pid, cupti, kernels, reported, dropped, whole, trouble
		FROM launch_process WHERE task_id=? ORDER BY process`, id, func(rows *sql.Rows, p *LaunchProcess) error {
		return rows.Scan(&p.PID, &p.CUPTI, &p.Kernels, &p.Reported, &p.Dropped, &p.Whole, textTo(&p.Trouble))
	}); err != nil {
		return t, err
	}
	if t.Names, err = list(ctx, d, "launch names", `SELECT name FROM launch_name WHERE task_id=? ORDER BY name_no`, id,
		func(rows *sql.Rows, n *string) error { return rows.Scan(textTo(n)) }); err != nil {
		return t, err
	}
	t.Devices, err = list(ctx, d, "launch devices", `SELECT process, ordinal, uuid, measured FROM launch_device WHERE task_id=? ORDER BY device_no`, id,
		func(rows *sql.Rows, x *LaunchDevice) error {
			return rows.Scan(&x.Process, &x.Ordinal, textTo(&x.UUID), &x.Measured)
		})
	return t, err
}

// launchPage is how many launches are read at a time.
const launchPage = 4096

// Launches yields a task's launches in order of their begin. They are read page by
// page, so a slow reader holds nothing open. The sequence ends after an error.
func (d *DB) Launches(ctx context.Context, id TaskID) iter.Seq2[Launch, error] {
	type row struct {
		Launch
		no int64
	}
	scan := func(rows *sql.Rows, r *row) error {
		return rows.Scan(&r.Start, &r.no, &r.End, &r.Name, &r.Device, &r.Stream, &r.Correlation, &r.Graph,
			&r.Grid[0], &r.Grid[1], &r.Grid[2], &r.Block[0], &r.Block[1], &r.Block[2])
	}
	return func(yield func(Launch, error) bool) {
		start, no := int64(-1)<<63, int64(-1)
		for {
			page, err := collect(ctx, d.reader, scan, `SELECT start_ns, launch_no, end_ns, name_no, device_no, stream, correlation, graph,
				grid_x, grid_y, grid_z, block_x, block_y, block_z FROM launch
				WHERE task_id=? AND (start_ns, launch_no) > (?,?) ORDER BY start_ns, launch_no LIMIT ?`, int64(id), start, no, launchPage)
			if err != nil {
				yield(Launch{}, wrap(fmt.Sprintf("read launches of task %d", id), err))
				return
			}
			for _, r := range page {
				if !yield(r.Launch, nil) {
					return
				}
				start, no = r.Start, r.no
			}
			if len(page) < launchPage {
				return
			}
		}
	}
}

// EnergyClass says what a line of energy belongs to. The numbers are stored.
type EnergyClass uint8

// The classes.
const (
	KernelEnergy     EnergyClass = 1
	ActiveIdleEnergy EnergyClass = 2 // between two kernels
	IdleEnergy       EnergyClass = 3 // before the first and after the last
)

// NameEnergy is the energy of all kernels of one name, or of the time without.
type NameEnergy struct {
	Class           EnergyClass
	Name            string // of KernelEnergy
	Launches, Short uint64 // Short: of these, shorter than the meter resolves
	Busy, Share     measure.Seconds
	Energy          measure.Estimate // k = 2
}

// PutNameEnergies stores the energies by name of one of a task's results, in place
// of what was there.
func (d *DB) PutNameEnergies(ctx context.Context, id TaskID, result int, e []NameEnergy) error {
	return d.write(ctx, fmt.Sprintf("store kernel energies of task %d", id), func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM kernel_energy WHERE task_id=? AND number=?`, int64(id), result); err != nil {
			return err
		}
		var exists bool
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM result WHERE task_id=? AND number=?`, int64(id), result).Scan(&exists); err != nil {
			return err
		}
		if !exists {
			return fmt.Errorf("%w: result %d", ErrNotFound, result)
		}
		for i, x := range e {
			if _, err := tx.ExecContext(ctx, `INSERT INTO kernel_energy VALUES(?,?,?,?,?,?,?,?,?,?,?)`, int64(id), result, i, x.Class, x.Name,
				int64(x.Launches), int64(x.Short), number(x.Busy), number(x.Share), number(x.Energy.Energy), number(x.Energy.U)); err != nil {
				return err
			}
		}
		return nil
	})
}

// NameEnergies returns what PutNameEnergies stored; none where nothing was.
func (d *DB) NameEnergies(ctx context.Context, id TaskID, result int) ([]NameEnergy, error) {
	return collect(ctx, d.reader, func(rows *sql.Rows, x *NameEnergy) error {
		return rows.Scan(&x.Class, textTo(&x.Name), &x.Launches, &x.Short, realTo(&x.Busy), realTo(&x.Share),
			realTo(&x.Energy.Energy), realTo(&x.Energy.U))
	}, `SELECT class, name, launches, short, busy_s, share_s, energy_j, energy_u_j FROM kernel_energy
		WHERE task_id=? AND number=? ORDER BY ordinal`, int64(id), result)
}
