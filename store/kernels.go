package store

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/wattmark/wattmark/measure"
)

// putAll writes one row for each of n values in one transaction.
// The statement begins with the task's number. A missing task is ErrNotFound, and nothing is written then.
func (d *DB) putAll(ctx context.Context, op, query string, id TaskID, n int, row func(i int) []any) error {
	return d.write(ctx, fmt.Sprintf("store %s of task %d", op, id), func(s *session) {
		s.mustHave(id)
		for i := range n {
			s.exec(query, append([]any{id}, row(i)...)...)
		}
	})
}

// mustHave fails with ErrNotFound for a missing task. The foreign key alone would report it as a
// constraint, which differs between kinds of databases.
func (s *session) mustHave(id TaskID) {
	if one[int](s, `SELECT count(*) FROM task WHERE task_id=?`, id) == 0 {
		s.fail(ErrNotFound)
	}
}

// PutReadings adds readings by software methods. A reading of the same method at the same nanosecond
// replaces the stored one, so that a batch can be put again.
func (d *DB) PutReadings(ctx context.Context, id TaskID, r []Reading) error {
	return d.putAll(ctx, "readings", upsert("reading", "task_id,method,at_ns", "value"), id, len(r), func(i int) []any {
		return []any{r[i].Method, r[i].At.UnixNano(), r[i].Value}
	})
}

// PutKernels adds kernels; the same kernel again is no error and no second row.
func (d *DB) PutKernels(ctx context.Context, id TaskID, k []Kernel) error {
	return d.putAll(ctx, "kernels", `INSERT INTO kernel VALUES(?,?,?,?) ON CONFLICT DO NOTHING`, id, len(k),
		func(i int) []any { return []any{k[i].Start.UnixNano(), k[i].End.UnixNano(), k[i].Name} })
}

// PutPlayed adds marker edges as played; the same marker and chip again replace.
func (d *DB) PutPlayed(ctx context.Context, id TaskID, p []Played) error {
	return d.putAll(ctx, "played markers", upsert("played", "task_id,kind,number,chip", "at_ns"), id, len(p),
		func(i int) []any { return []any{p[i].Kind, p[i].Number, p[i].Chip, p[i].At.UnixNano()} })
}

// list reads rows with scan; a task that does not exist is ErrNotFound.
func list[T any](ctx context.Context, d *DB, op, query string, id TaskID, scan func(*sql.Rows, *T) error) ([]T, error) {
	s := d.reading(ctx)
	d.shown(s, id)
	out := all(s, scan, query, id)
	return out, wrap(fmt.Sprintf("read %s of task %d", op, id), s.err)
}

// Readings returns the software readings, by method and time.
func (d *DB) Readings(ctx context.Context, id TaskID) ([]Reading, error) {
	return list(ctx, d, "readings", `SELECT method, at_ns, value FROM reading WHERE task_id=? ORDER BY method, at_ns`,
		id, scanReading)
}

// ReadingsWithin returns a method's readings between two times, with the last one before and the first one behind,
// by time.
func (d *DB) ReadingsWithin(ctx context.Context, id TaskID, method string, from, to time.Time) ([]Reading, error) {
	const of = ` FROM reading WHERE task_id=?1 AND method=?2 AND at_ns`
	return collect(ctx, d, fmt.Sprintf("read readings of task %d", id), scanReading,
		`SELECT method, at_ns, value`+of+`>=coalesce((SELECT max(at_ns)`+of+`<=?3), ?3)
			AND at_ns<=coalesce((SELECT min(at_ns)`+of+`>=?4), ?4) ORDER BY at_ns`,
		id, method, from.UnixNano(), to.UnixNano())
}

func scanReading(rows *sql.Rows, r *Reading) error {
	return rows.Scan((*text)(&r.Method), (*moment)(&r.At), (*real)(&r.Value))
}

// Kernels returns the kernels, by start.
func (d *DB) Kernels(ctx context.Context, id TaskID) ([]Kernel, error) {
	return list(ctx, d, "kernels",
		`SELECT name, start_ns, end_ns FROM kernel WHERE task_id=? ORDER BY start_ns, end_ns, name`, id,
		func(rows *sql.Rows, k *Kernel) error {
			return rows.Scan((*text)(&k.Name), (*moment)(&k.Start), (*moment)(&k.End))
		})
}

// Played returns the marker edges as played, by kind, number and chip.
func (d *DB) Played(ctx context.Context, id TaskID) ([]Played, error) {
	return list(ctx, d, "played markers",
		`SELECT kind, number, chip, at_ns FROM played WHERE task_id=? ORDER BY kind, number, chip`, id,
		func(rows *sql.Rows, p *Played) error {
			return rows.Scan(&p.Kind, &p.Number, &p.Chip, (*moment)(&p.At))
		})
}

// Launch is one execution of a kernel in a recorded program, on the host's clock.
type Launch struct {
	Start, End          int64 // ns since 1970
	Name, Device        int   // numbers in LaunchTables
	Stream, Correlation uint32
	Graph               uint32 // id of the CUDA graph, 0 for none
	Grid, Block         [3]uint32
}

// LaunchProcess summarizes the log of one process.
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
	UUID     string // empty where the driver did not report it
	Measured bool   // the GPU that the meter measured
}

// LaunchTables are the processes, names and devices that launches refer to by index.
type LaunchTables struct {
	Processes []LaunchProcess
	Names     []string
	Devices   []LaunchDevice
}

// PutLaunches adds launches in one transaction; first counts the ones before. The same ones again are no
// error and no second rows. The number first+i is a part of the primary key (task_id, start_ns, launch_no):
// launches of equal start differ by it, and a batch that is put again conflicts with itself alone.
func (d *DB) PutLaunches(ctx context.Context, id TaskID, first uint64, l []Launch) error {
	return d.putAll(ctx, "launches", `INSERT INTO launch VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING`,
		id, len(l), func(i int) []any {
			x := &l[i]
			return []any{
				x.Start, int64(first) + int64(i), x.End, x.Name, x.Device, x.Stream, x.Correlation, x.Graph,
				x.Grid[0], x.Grid[1], x.Grid[2], x.Block[0], x.Block[1], x.Block[2],
			}
		})
}

// PutLaunchTables stores the tables of a task's launches, in place of earlier ones.
func (d *DB) PutLaunchTables(ctx context.Context, id TaskID, t LaunchTables) error {
	return d.write(ctx, fmt.Sprintf("store launch tables of task %d", id), func(s *session) {
		s.lock(id)
		s.clear(id, "launch_process", "launch_name", "launch_device")
		for i, p := range t.Processes {
			s.insert("launch_process", id, i, p.PID, p.CUPTI, p.Kernels, p.Reported, p.Dropped, p.Whole, p.Trouble)
		}
		for i, n := range t.Names {
			s.insert("launch_name", id, i, n)
		}
		for i, x := range t.Devices {
			s.insert("launch_device", id, i, x.Process, x.Ordinal, x.UUID, x.Measured)
		}
	})
}

// LaunchTables returns the tables of a task's launches; all empty for a task that was not recorded.
func (d *DB) LaunchTables(ctx context.Context, id TaskID) (t LaunchTables, err error) {
	if t.Processes, err = list(ctx, d, "launch processes", `SELECT pid, cupti, kernels, reported, dropped, whole,
		trouble FROM launch_process WHERE task_id=? ORDER BY process`, id,
		func(rows *sql.Rows, p *LaunchProcess) error {
			return rows.Scan(&p.PID, &p.CUPTI, &p.Kernels, &p.Reported, &p.Dropped, &p.Whole, (*text)(&p.Trouble))
		}); err != nil {
		return t, err
	}
	if t.Names, err = list(ctx, d, "launch names", `SELECT name FROM launch_name WHERE task_id=? ORDER BY name_no`, id,
		func(rows *sql.Rows, n *string) error { return rows.Scan((*text)(n)) }); err != nil {
		return t, err
	}
	t.Devices, err = list(ctx, d, "launch devices",
		`SELECT process, ordinal, uuid, measured FROM launch_device WHERE task_id=? ORDER BY device_no`, id,
		func(rows *sql.Rows, x *LaunchDevice) error {
			return rows.Scan(&x.Process, &x.Ordinal, (*text)(&x.UUID), &x.Measured)
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
		// The place of the last row is the key of the next page: a row value comparison walks the
		// primary key, and rows that are added meanwhile shift nothing.
		start, no := int64(-1)<<63, int64(-1)
		for {
			page, err := collect(ctx, d, fmt.Sprintf("read launches of task %d", id), scan,
				`SELECT start_ns, launch_no, end_ns, name_no, device_no, stream, correlation, graph,
				grid_x, grid_y, grid_z, block_x, block_y, block_z FROM launch
				WHERE task_id=? AND (start_ns, launch_no) > (?,?) ORDER BY start_ns, launch_no LIMIT ?`,
				id, start, no, launchPage)
			if err != nil {
				yield(Launch{}, err)
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

// EnergyClass is the class of a line of energy. The numbers are stored.
type EnergyClass uint8

// The classes.
const (
	KernelEnergy     EnergyClass = 1
	ActiveIdleEnergy EnergyClass = 2 // between two kernels
	IdleEnergy       EnergyClass = 3 // before the first and after the last
)

// fitted is added to the stored class of a line whose energy is by least squares.
const fitted EnergyClass = 10

// NameEnergy is the energy of all kernels of one name, or of the time without.
type NameEnergy struct {
	Class EnergyClass
	// Fitted: the energy is by least squares over the whole trace, else by the edges of the launches.
	Fitted bool
	// Name is of KernelEnergy. Names that the readings do not tell apart are one line, with Together between them.
	Name            string
	Launches, Short uint64 // Short: of these, shorter than the meter resolves
	Busy, Share     measure.Seconds
	Energy          measure.Estimate // k = 2
}

// Together separates the names of a group; a symbol has no spaces.
const Together = " + "

// PutNameEnergies stores the energies by name of one of a task's results, in place of earlier ones.
func (d *DB) PutNameEnergies(ctx context.Context, id TaskID, result int, e []NameEnergy) error {
	return d.write(ctx, fmt.Sprintf("store kernel energies of task %d", id), func(s *session) {
		s.exec(`DELETE FROM kernel_energy WHERE task_id=? AND number=?`, id, result)
		if one[int](s, `SELECT count(*) FROM result WHERE task_id=? AND number=?`, id, result) == 0 {
			s.fail(fmt.Errorf("%w: result %d", ErrNotFound, result))
		}
		for i, x := range e {
			if x.Fitted {
				x.Class += fitted
			}
			s.insert("kernel_energy", id, result, i, x.Class, x.Name, x.Launches, x.Short, x.Busy, x.Share, x.Energy.Energy,
				x.Energy.U)
		}
	})
}

// NameEnergies returns the stored energies by name of a result; none where there are none.
func (d *DB) NameEnergies(ctx context.Context, id TaskID, result int) ([]NameEnergy, error) {
	s := d.reading(ctx)
	out := all(s, func(rows *sql.Rows, x *NameEnergy) error {
		err := rows.Scan(&x.Class, (*text)(&x.Name), &x.Launches, &x.Short, (*real)(&x.Busy), (*real)(&x.Share),
			(*real)(&x.Energy.Energy), (*real)(&x.Energy.U))
		if x.Fitted = x.Class > fitted; x.Fitted {
			x.Class -= fitted
		}
		return err
	}, `SELECT class, name, launches, short, busy_s, share_s, energy_j, energy_u_j FROM kernel_energy
		WHERE task_id=? AND number=? ORDER BY ordinal`, id, result)
	return out, s.err
}

// MethodResult is the energy of a task by one software method of reading the GPU's own sensor.
// docs/sensor.md defines the methods.
type MethodResult struct {
	// Method is "sma", "mtsm", "papi", "average", "instant", "counter", "counter-ends", or "nvidia-smi "
	// and a column of its log; or a field and "corrected", "deconvolved" or "corrected by kernels".
	Method   string
	From, To time.Time     // of the work, on the host's wall clock
	Energy   measure.Joule // NaN where the method has no value: Note holds the cause
	U        measure.Joule // that the method states of it (k = 2); 0 where it states none
	Mean     measure.Watt  // Energy over the time
	Readings uint64        // that the energy rests on
	// Call is the duration of its calls. Alone and Beside are the time from one's
	// end to the next's, while the energy counter was not being read and while it was.
	Call, Alone, Beside Timing
	Note                string
}

// Timing is a distribution of durations; NaN where there were none.
type Timing struct {
	N   uint64          `json:"n"`
	P50 measure.Seconds `json:"p50_s"`
	P99 measure.Seconds `json:"p99_s"`
	Max measure.Seconds `json:"max_s"`
}

// IsZero reports whether there were no durations, for the option omitzero of a JSON tag.
func (t Timing) IsZero() bool { return t.N == 0 }

// PutMethods stores the results of methods for a task. A result of the same method replaces the
// stored one; new methods come behind those that are there. Errors wrap ErrNotFound, or
// measure.ErrText for a name that cannot be printed.
func (d *DB) PutMethods(ctx context.Context, id TaskID, m []MethodResult) error {
	return d.write(ctx, fmt.Sprintf("store methods of task %d", id), func(s *session) {
		s.mustHave(id)
		for _, x := range m {
			s.fail(measure.CheckText("method", x.Method))
			row := []any{
				id, x.Method, id, x.From.UnixNano(), x.To.UnixNano(), x.Energy, x.Mean, x.Readings,
			}
			// Twelve columns in the order of methodColumns: number, median, 99 % and maximum of each.
			for _, t := range []Timing{x.Call, x.Alone, x.Beside} {
				row = append(row, t.N, t.P50, t.P99, t.Max)
			}
			// The place is one more than the greatest; a result that replaces another keeps its place.
			s.exec(`INSERT INTO method_result(task_id,method,ordinal,`+methodColumns+`)
				VALUES(?,?,(SELECT coalesce(max(ordinal)+1,0) FROM method_result WHERE task_id=?),?,?,?,?,?, ?,?,?,?,
				?,?,?,?, ?,?,?,?, ?,?)`+replacing("task_id,method", methodColumns),
				append(row, measure.Printable(x.Note), x.U)...)
		}
	})
}

// methodColumns are the columns of method_result behind task_id, method and ordinal.
const methodColumns = `from_ns,to_ns,energy_j,mean_w,readings,
	calls,call_p50_s,call_p99_s,call_max_s,alone,alone_p50_s,alone_p99_s,alone_max_s,
	beside,beside_p50_s,beside_p99_s,beside_max_s,note,energy_u_j`

// Methods returns the results of software methods for a task, in the order in which they were stored.
func (d *DB) Methods(ctx context.Context, id TaskID) ([]MethodResult, error) {
	return list(ctx, d, "methods", `SELECT method, `+methodColumns+`
		FROM method_result WHERE task_id=? ORDER BY ordinal, method`, id,
		func(rows *sql.Rows, x *MethodResult) error {
			into := []any{
				(*text)(&x.Method), (*moment)(&x.From), (*moment)(&x.To), (*real)(&x.Energy), (*real)(&x.Mean), &x.Readings,
			}
			for _, t := range []*Timing{&x.Call, &x.Alone, &x.Beside} {
				into = append(into, &t.N, (*real)(&t.P50), (*real)(&t.P99), (*real)(&t.Max))
			}
			return rows.Scan(append(into, (*text)(&x.Note), (*real)(&x.U))...)
		})
}

// MethodError compares one software method with the meter, for one task.
type MethodError struct {
	Task                 TaskID
	GPU, GPUUUID, Driver string
	Method               string
	// Said is the method's mean power over the work, Truth the meter's over the window.
	Said, Truth measure.Watt
	// Partial: the meter misses a rail of the card.
	Partial bool
}

// MethodErrors compares software methods with the meter, for the newest tasks that were measured
// with a meter other than the GPU's own sensor, newest task first. It returns the number of
// tasks, at most limit, and whether there are older ones.
func (d *DB) MethodErrors(ctx context.Context, limit int) (list []MethodError, tasks int, more bool, err error) {
	list, err = collect(ctx, d, "list what methods said", func(rows *sql.Rows, x *MethodError) error {
		return rows.Scan(&x.Task, (*text)(&x.GPU), (*text)(&x.GPUUUID), (*text)(&x.Driver), (*text)(&x.Method),
			(*real)(&x.Said), (*real)(&x.Truth), &x.Partial)
	}, `SELECT t.task_id, t.gpu, t.gpu_uuid, t.driver, m.method, m.mean_w, t.mean_w,
		coalesce(k.missing,'[]') NOT IN ('[]','null','')
		FROM (SELECT task_id, gpu, gpu_uuid, driver, mean_w, calibration_id FROM task
			WHERE state<>6 AND has_result=1 AND mean_w>0
				AND instrument_kind NOT IN ('`+strings.Join(measure.OwnSensors, `','`)+`') AND EXISTS
				(SELECT 1 FROM method_result x WHERE x.task_id=task.task_id AND x.mean_w IS NOT NULL)
			ORDER BY task_id DESC LIMIT ?) t
		JOIN method_result m ON m.task_id=t.task_id LEFT JOIN calibration k ON k.calibration_id=t.calibration_id
		WHERE m.mean_w IS NOT NULL ORDER BY t.task_id DESC, m.ordinal, m.method`, limit+1)
	if err != nil {
		return nil, 0, false, err
	}
	// The inner query took limit+1 tasks: the rows of the last one only show that there are older ones.
	var last TaskID
	for i, x := range list {
		if x.Task == last {
			continue
		}
		if last = x.Task; tasks == limit {
			return list[:i], tasks, true, nil
		}
		tasks++
	}
	return list, tasks, false, nil
}
