package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/fold"
)

// Analysis is a result that is worked out from tasks or files and used again: a sensor profile,
// a fitted model. It is never changed; a new one of the same kind and name is a new version.
type Analysis struct {
	Kind    string // docs/format.md lists the kinds
	Name    string // of its subject, or chosen by its maker
	Version int    // from 1 within kind and name; set by PutAnalysis
	Made    time.Time
	Maker   string // program and version
	Content json.RawMessage
	Tasks   []TaskID // that it rests on; they may be gone
}

// PutAnalysis records an analysis as the newest version of its kind and name, and returns the
// version. a.Version is ignored. An empty kind or name and content that is not JSON are errors.
func (d *DB) PutAnalysis(ctx context.Context, a Analysis) (version int, err error) {
	// The version is found and used in one transaction; on a server a second writer of the same version
	// breaks the UNIQUE index and is run again.
	err = d.write(ctx, fmt.Sprintf("store the %s %q", a.Kind, a.Name), func(s *session) {
		if a.Kind == "" || a.Name == "" {
			s.fail(errors.New("it has no kind or no name"))
		} else if !json.Valid(a.Content) {
			s.fail(errors.New("its content is not JSON"))
		}
		version = one[int](s, `SELECT coalesce(max(version),0)+1 FROM analysis WHERE kind=? AND name=?`, a.Kind, a.Name)
		id := one[int64](s, `INSERT INTO analysis(kind, name, version, made_ns, maker, content) VALUES(?,?,?,?,?,?)
			RETURNING analysis_id`, a.Kind, a.Name, version, a.Made.UnixNano(), a.Maker, string(a.Content))
		for _, t := range a.Tasks {
			// A task named twice is linked once.
			s.exec(`INSERT INTO analysis_task VALUES(?,?) ON CONFLICT DO NOTHING`, id, t)
		}
	})
	return version, err
}

// linkAnalysis adds tasks that an analysis rests on.
func (d *DB) linkAnalysis(ctx context.Context, a *Analysis, tasks []TaskID) error {
	if len(tasks) == 0 {
		return nil
	}
	// By kind, name and version, which are the same in every database; the number of the row is not.
	return d.write(ctx, fmt.Sprintf("link the %s %q to its tasks", a.Kind, a.Name), func(s *session) {
		for _, t := range tasks {
			s.exec(`INSERT INTO analysis_task SELECT analysis_id, ? FROM analysis WHERE kind=? AND name=? AND version=?
				ON CONFLICT DO NOTHING`, t, a.Kind, a.Name, a.Version)
		}
	})
}

// Analyses returns the recorded analyses of a kind, or of all kinds where it is empty, ordered
// by kind, name and version.
func (d *DB) Analyses(ctx context.Context, kind string) ([]Analysis, error) {
	return d.analyses(ctx, fmt.Sprintf("list the analyses %q", kind), `WHERE ?='' OR kind=?`, kind, kind)
}

// Analysis returns one version of an analysis, the newest where version is 0. Errors wrap ErrNotFound.
func (d *DB) Analysis(ctx context.Context, kind, name string, version int) (*Analysis, error) {
	op := fmt.Sprintf("read the %s %q", kind, name)
	list, err := d.analyses(ctx, op, `WHERE kind=? AND name=? AND (version=? OR ?=0)`, kind, name, version, version)
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("%s: %w", op, ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	return &list[len(list)-1], nil
}

// DeleteAnalysis removes one version of an analysis, all of them where version
// is 0, and returns how many. Errors wrap ErrNotFound.
func (d *DB) DeleteAnalysis(ctx context.Context, kind, name string, version int) (n int64, err error) {
	op := fmt.Sprintf("delete the %s %q", kind, name)
	err = d.write(ctx, op, func(s *session) {
		n = s.exec(`DELETE FROM analysis WHERE kind=? AND name=? AND (version=? OR ?=0)`, kind, name, version, version)
		if n == 0 {
			s.fail(ErrNotFound)
		}
	})
	return n, err
}

// analyses reads the analyses of a condition, each with its tasks, as they stood at one moment.
// Content that is not JSON wraps ErrCorrupt.
func (d *DB) analyses(ctx context.Context, op, where string, args ...any) ([]Analysis, error) {
	var list []Analysis
	err := d.view(ctx, op, func(s *session) {
		// The tasks are read behind the list, in the same transaction: rows of one query are closed before
		// the next begins.
		var ids []int64
		list = all(s, func(rows *sql.Rows, a *Analysis) error {
			var id, made int64
			var content string
			err := rows.Scan(&id, (*text)(&a.Kind), (*text)(&a.Name), &a.Version, &made, (*text)(&a.Maker), (*text)(&content))
			a.Made, a.Content, ids = time.Unix(0, made), json.RawMessage(content), append(ids, id)
			if err == nil && !json.Valid(a.Content) {
				err = fmt.Errorf("%w: version %d is not JSON", ErrCorrupt, a.Version)
			}
			return err
		}, `SELECT analysis_id, kind, name, version, made_ns, maker, content FROM analysis `+where+`
			ORDER BY kind, name, version`, args...)
		for i := range list {
			list[i].Tasks = values[TaskID](s, `SELECT task_id FROM analysis_task WHERE analysis_id=? ORDER BY task_id`, ids[i])
		}
	})
	return list, err
}

// Tiny is the energy of one launch of a kernel that was too short to be
// bracketed, worked out of a task that holds many launches.
type Tiny struct {
	Method, Kernel string
	Launches       int
	Energy         measure.Estimate // of one launch
	// standard uncertainties, J; Systematic lines do not shrink with more launches
	Budget      []measure.Contribution
	Length, Gap measure.Seconds // of one launch; between two slices of the carrier
	Carrier     measure.Watt    // NaN where there is none
	DOF         int
	Residual    measure.Joule
	// Above is a fold's energy above the level around a launch; NaN for the others.
	Above    measure.Estimate
	Profile  []TinyBin
	Plan     json.RawMessage
	Warnings []string
}

// TinyBin is one point of a folded profile.
type TinyBin = fold.Bin

// PutTiny records the energy of a tiny kernel that a task yields, in place of an earlier record.
// Errors wrap ErrNotFound.
func (d *DB) PutTiny(ctx context.Context, id TaskID, t Tiny) error {
	return d.write(ctx, fmt.Sprintf("store the tiny kernel of task %d", id), func(s *session) {
		if !json.Valid(t.Plan) {
			s.fail(errors.New("its plan is not JSON"))
		}
		warnings := s.json(append([]string{}, t.Warnings...))
		s.mustHave(id)
		// Its budget and profile go with it, by ON DELETE CASCADE.
		s.clear(id, "tiny")
		s.insert("tiny", id, t.Method, t.Kernel, t.Launches, t.Energy.Energy, t.Energy.U, t.Length, t.Gap, t.Carrier, t.DOF,
			t.Residual, t.Above.Energy, t.Above.U, string(t.Plan), warnings)
		for i, c := range t.Budget {
			s.insert("tiny_budget", id, i, c.Source, c.U, c.Systematic)
		}
		for i, b := range t.Profile {
			s.insert("tiny_profile", id, i, b.At, b.Power, b.U, b.Readings)
		}
	})
}

// Tiny returns the energy of a tiny kernel that a task yields; nil where the task was not measured for one.
func (d *DB) Tiny(ctx context.Context, id TaskID) (out *Tiny, err error) {
	err = d.view(ctx, fmt.Sprintf("read the tiny kernel of task %d", id), func(s *session) {
		var t Tiny
		var plan, warnings string
		if !s.row(`SELECT method, kernel, launches, energy_j, energy_u_j, length_s, gap_s, carrier_w, dof, residual_j,
			above_j, above_u_j, plan, warnings FROM tiny WHERE task_id=?`, id).found((*text)(&t.Method),
			(*text)(&t.Kernel), &t.Launches, (*real)(&t.Energy.Energy), (*real)(&t.Energy.U), (*real)(&t.Length),
			(*real)(&t.Gap), (*real)(&t.Carrier), &t.DOF, (*real)(&t.Residual), (*real)(&t.Above.Energy),
			(*real)(&t.Above.U), (*text)(&plan), (*text)(&warnings)) {
			return
		}
		t.Plan = json.RawMessage(plan)
		if err := json.Unmarshal([]byte(warnings), &t.Warnings); err != nil || !json.Valid(t.Plan) {
			s.fail(fmt.Errorf("%w: its plan or its warnings are not JSON", ErrCorrupt))
		}
		t.Budget = all(s, func(rows *sql.Rows, c *measure.Contribution) error {
			return rows.Scan((*text)(&c.Source), (*real)(&c.U), &c.Systematic)
		}, `SELECT source, u_j, systematic FROM tiny_budget WHERE task_id=? ORDER BY ordinal`, id)
		t.Profile = all(s, func(rows *sql.Rows, b *TinyBin) error {
			return rows.Scan((*real)(&b.At), (*real)(&b.Power), (*real)(&b.U), &b.Readings)
		}, `SELECT at_s, power_w, u_w, readings FROM tiny_profile WHERE task_id=? ORDER BY bin`, id)
		out = &t
	})
	return out, err
}

// ErrNoCampaign: there is no such campaign of instructions.
var ErrNoCampaign = errors.New("no such campaign")

// CampaignID identifies a campaign of instructions.
type CampaignID int64

// InstructionCampaign is one measurement of many instructions.
type InstructionCampaign struct {
	ID      CampaignID `json:"campaign"`
	Started time.Time  `json:"started"`
	GPU     string     `json:"gpu"`
	GPUUUID string     `json:"gpu_uuid"`
	Driver  string     `json:"driver"`
	Host    string     `json:"host"`
	Version string     `json:"version"`
	Seed    uint64     `json:"seed"` // of the order of the runs
	// Passes and Runs are those that are stored.
	Passes uint64 `json:"passes"`
	Runs   uint64 `json:"runs"`
}

// InstructionRun is one program of a campaign, measured once.
type InstructionRun struct {
	Pass                int
	Instruction, Layout string
	Level, Steps        int
	ProgramRun
}

// ProgramRun is the run of a program, and what was measured of it.
type ProgramRun struct {
	// Block is false for the program without the instructions under test, loop and glue alone, or with none: idle.
	Block bool `json:"block"`
	// Base names the program without them by its content; empty for idle.
	Base string `json:"base,omitempty"`
	// Turns of the loop, threads that ran it, time from launch to synchronisation,
	// and cycles of thread 0.
	Turns   uint64          `json:"turns"`
	Threads uint64          `json:"threads"`
	Time    measure.Seconds `json:"time_s"`
	Cycles  uint64          `json:"cycles"`
	// X is the register of thread 0 at the end; Checked: it is the value that Go computes.
	X       uint64 `json:"x"`
	Checked bool   `json:"checked"`
	// Power is the mean by each method, Reads how often a second it was read.
	Power   map[string]measure.Watt `json:"power_w"`
	Reads   measure.Hertz           `json:"reads_hz"`
	SM      measure.Hertz           `json:"sm_hz,omitempty"`   // zero where it is not known
	Celsius float64                 `json:"celsius,omitempty"` // of the GPU, zero where it is not known
	Error   string                  `json:"error,omitempty"`
}

// BeginInstructions records a campaign. One of the same GPU that began at the same instant is ErrConflict.
func (d *DB) BeginInstructions(ctx context.Context, c InstructionCampaign) (id CampaignID, err error) {
	err = d.write(ctx, "begin campaign", func(s *session) { id = beginInstructions(s, c) })
	return id, err
}

// ImportInstructions records a whole campaign, or nothing of it.
func (d *DB) ImportInstructions(ctx context.Context, c InstructionCampaign,
	runs []InstructionRun,
) (id CampaignID, err error) {
	// One transaction: an import that is interrupted leaves nothing.
	err = d.write(ctx, "import campaign", func(s *session) {
		id = beginInstructions(s, c)
		for n := range runs {
			putInstruction(s, id, n+1, &runs[n])
		}
	})
	return id, err
}

// beginInstructions inserts a campaign. The GPU and the instant of its begin identify it:
// another one of both is ErrConflict.
func beginInstructions(s *session, c InstructionCampaign) (id CampaignID) {
	s.fail(errors.Join(measure.CheckText("GPU", c.GPU), measure.CheckText("GPU", c.GPUUUID),
		measure.CheckText("host", c.Host)))
	if s.row(`SELECT campaign_id FROM instruction_campaign WHERE gpu_uuid=? AND started_ns=?`, c.GPUUUID,
		c.Started.UnixNano()).found(&id) {
		s.fail(fmt.Errorf("%w: it is campaign %d already", ErrConflict, id))
	}
	return one[CampaignID](s, `INSERT INTO instruction_campaign(gpu, gpu_uuid, driver, started_ns, seed, host, version)
		VALUES(?,?,?,?,?,?,?) RETURNING campaign_id`,
		c.GPU, c.GPUUUID, c.Driver, c.Started.UnixNano(), c.Seed, c.Host, c.Version)
}

// AddInstruction adds a run to a campaign and returns its number, from 1. It is on disk when this returns.
func (d *DB) AddInstruction(ctx context.Context, id CampaignID, r InstructionRun) (number int, err error) {
	err = d.write(ctx, fmt.Sprintf("store run of campaign %d", id), func(s *session) {
		s.mustHaveCampaign(id)
		number = one[int](s, `SELECT coalesce(max(number),0)+1 FROM instruction_run WHERE campaign_id=?`, id)
		putInstruction(s, id, number, &r)
	})
	return number, err
}

// putInstruction inserts a run with its powers.
func putInstruction(s *session, id CampaignID, number int, r *InstructionRun) {
	// Zeros of SM clock and temperature mean unknown, and are stored as NULL.
	s.exec(`INSERT INTO instruction_run VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,nullif(?,0.0),nullif(?,0.0),?)`, id,
		number, r.Pass, r.Instruction, r.Layout, r.Level, r.Steps, r.Block, r.Base, r.Turns, r.Threads, r.Time, r.Cycles,
		r.X, r.Checked, r.Reads, r.SM, r.Celsius, r.Error)
	for method, w := range r.Power {
		putInstructionPower(s, id, number, method, w)
	}
}

// putInstructionPower stores one mean power in W, in place of an earlier one.
func putInstructionPower(s *session, id CampaignID, number int, method string, w measure.Watt) {
	s.exec(upsert("instruction_power", "campaign_id,number,method", "watts"), id, number, method, w)
}

// AddInstructionPowers adds the mean powers by one more method to runs, by their numbers.
func (d *DB) AddInstructionPowers(ctx context.Context, id CampaignID, method string, watts map[int]measure.Watt) error {
	return d.write(ctx, fmt.Sprintf("store powers of campaign %d", id), func(s *session) {
		s.mustHaveCampaign(id)
		for number, w := range watts {
			putInstructionPower(s, id, number, method, w)
		}
	})
}

// mustHaveCampaign fails with ErrNoCampaign for a campaign that is not there.
func (s *session) mustHaveCampaign(id CampaignID) {
	if one[int](s, `SELECT count(*) FROM instruction_campaign WHERE campaign_id=?`, id) == 0 {
		s.fail(ErrNoCampaign)
	}
}

// InstructionCampaigns lists the campaigns, newest first.
func (d *DB) InstructionCampaigns(ctx context.Context) ([]InstructionCampaign, error) {
	return d.campaigns(ctx, "list campaigns", "ORDER BY c.started_ns DESC, c.campaign_id DESC")
}

// InstructionCampaign returns one campaign. ErrNoCampaign where there is none.
func (d *DB) InstructionCampaign(ctx context.Context, id CampaignID) (InstructionCampaign, error) {
	op := fmt.Sprintf("read campaign %d", id)
	list, err := d.campaigns(ctx, op, "WHERE c.campaign_id=?", id)
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("%s: %w", op, ErrNoCampaign)
	}
	if err != nil {
		return InstructionCampaign{}, err
	}
	return list[0], nil
}

// campaigns reads the campaigns of the end of a statement, with the numbers of their runs and passes.
func (d *DB) campaigns(ctx context.Context, op, tail string, args ...any) ([]InstructionCampaign, error) {
	return collect(ctx, d, op, func(rows *sql.Rows, c *InstructionCampaign) error {
		var seed int64
		err := rows.Scan(&c.ID, (*text)(&c.GPU), (*text)(&c.GPUUUID), (*text)(&c.Driver), (*moment)(&c.Started), &seed,
			(*text)(&c.Host), (*text)(&c.Version), &c.Runs, &c.Passes)
		c.Seed = uint64(seed)
		return err
	}, `SELECT c.campaign_id, c.gpu, c.gpu_uuid, c.driver, c.started_ns, c.seed, c.host, c.version,
		(SELECT count(*) FROM instruction_run r WHERE r.campaign_id=c.campaign_id),
		(SELECT count(DISTINCT pass) FROM instruction_run r WHERE r.campaign_id=c.campaign_id)
		FROM instruction_campaign c `+tail, args...)
}

// Instructions returns a campaign's runs in the order in which they ran.
func (d *DB) Instructions(ctx context.Context, id CampaignID) ([]InstructionRun, error) {
	s := d.reading(ctx)
	s.mustHaveCampaign(id)
	out := all(s, func(rows *sql.Rows, r *InstructionRun) error {
		var turns, threads, cycles, x int64
		err := rows.Scan(&r.Pass, (*text)(&r.Instruction), (*text)(&r.Layout), &r.Level, &r.Steps, &r.Block, (*text)(&r.Base),
			&turns, &threads, (*real)(&r.Time), &cycles, &x, &r.Checked, (*real)(&r.Reads), (*real)(&r.SM), &r.Celsius,
			(*text)(&r.Error))
		r.Turns, r.Threads, r.Cycles, r.X = uint64(turns), uint64(threads), uint64(cycles), uint64(x)
		return err
	}, `SELECT pass, instruction, layout, level, steps, block, base, turns, threads, time_s,
		cycles, x, checked, reads_hz, coalesce(sm_hz,0), coalesce(celsius,0), error
		FROM instruction_run WHERE campaign_id=? ORDER BY number`, id)
	for rows := range s.rows(`SELECT number, method, watts FROM instruction_power WHERE campaign_id=?`, id) {
		var number int
		var method string
		var w measure.Watt
		s.fail(rows.Scan(&number, (*text)(&method), (*real)(&w)))
		// Runs are numbered from 1 without holes: they are only ever added. One that came in between the
		// two queries is not in out.
		if number >= 1 && number <= len(out) {
			r := &out[number-1]
			if r.Power == nil {
				r.Power = map[string]measure.Watt{}
			}
			r.Power[method] = w
		}
	}
	return out, wrap(fmt.Sprintf("read runs of campaign %d", id), s.err)
}

// DeleteInstructions deletes a campaign with its runs.
func (d *DB) DeleteInstructions(ctx context.Context, id CampaignID) error {
	return d.write(ctx, fmt.Sprintf("delete campaign %d", id), func(s *session) {
		s.mustHaveCampaign(id)
		// Runs and powers go with it, by ON DELETE CASCADE.
		s.exec(`DELETE FROM instruction_campaign WHERE campaign_id=?`, id)
	})
}

// rangesKind is the kind of the analyses that hold a task's energy by range; their name is the task's number.
const rangesKind = "ranges"

// MostSpans bounds the single spans that are stored of a task: the longest.
const MostSpans = 20_000

// Ranges is the energy of a task by the ranges that its program named.
type Ranges struct {
	Result int           `json:"result"` // number of the result that it rests on
	Ranges []RangeEnergy `json:"ranges"`
	Spans  []RangeSpan   `json:"spans,omitempty"`          // by their begin, enclosing ones first
	Left   int           `json:"spans_left_out,omitempty"` // of the spans, the shortest
	Notes  []string      `json:"notes,omitempty"`
}

// RangeEnergy is the energy of the kernels that were launched in the ranges of one name. U is at k = 2.
type RangeEnergy struct {
	Path     string          `json:"path"` // with the ranges around it: step/forward
	Ranges   int             `json:"ranges"`
	Launches uint64          `json:"launches"`
	Busy     measure.Seconds `json:"gpu_busy_s"`
	measure.Estimate
}

// RangeSpan is one of the ranges of a name: when its thread was in it, in device time.
type RangeSpan struct {
	Range    int             `json:"range"`  // an index of Ranges.Ranges
	Thread   int             `json:"thread"` // the system's number
	From     measure.Seconds `json:"from_s"`
	To       measure.Seconds `json:"to_s"`
	Launches uint64          `json:"launches"`
	measure.Estimate
}

// Add appends the ranges of another process.
func (r *Ranges) Add(ranges []RangeEnergy, spans []RangeSpan) {
	for _, s := range spans {
		s.Range += len(r.Ranges)
		r.Spans = append(r.Spans, s)
	}
	r.Ranges = append(r.Ranges, ranges...)
}

// Within leaves of the spans the n longest that reach into a span of device time.
func (r *Ranges) Within(from, to measure.Seconds, n int) {
	r.Spans = slices.DeleteFunc(r.Spans, func(s RangeSpan) bool { return s.To < from || s.From > to })
	if len(r.Spans) > n {
		slices.SortFunc(r.Spans, func(a, b RangeSpan) int { return cmp.Compare(b.To-b.From, a.To-a.From) })
		r.Left, r.Spans = r.Left+len(r.Spans)-n, r.Spans[:n]
	}
	slices.SortStableFunc(r.Spans, func(a, b RangeSpan) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(b.To, a.To))
	})
}

// PutRanges stores the energy by range of a task's result in use; nothing where there are none.
func (d *DB) PutRanges(ctx context.Context, id TaskID, r Ranges) error {
	if len(r.Ranges) == 0 {
		return nil
	}
	t, err := d.Task(ctx, id)
	if err != nil {
		return err
	}
	r.Result = t.ResultNumber
	r.Within(measure.Seconds(math.Inf(-1)), measure.Seconds(math.Inf(1)), MostSpans)
	content, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = d.PutAnalysis(ctx, Analysis{
		Kind: rangesKind, Name: fmt.Sprint(id), Made: time.Now(), Content: content, Tasks: []TaskID{id},
	})
	return err
}

// Ranges returns the energy by range of a task; nil for one whose program named none. Errors wrap ErrCorrupt.
func (d *DB) Ranges(ctx context.Context, t *Task) (*Ranges, error) {
	a, err := d.Analysis(ctx, rangesKind, fmt.Sprint(t.ID), 0)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := new(Ranges)
	err = json.Unmarshal(a.Content, r)
	if err == nil && slices.ContainsFunc(r.Spans, func(s RangeSpan) bool { return s.Range < 0 || s.Range >= len(r.Ranges) }) {
		err = errors.New("a span of no range")
	}
	if err != nil {
		return nil, fmt.Errorf("ranges of task %d: %w: %w", t.ID, ErrCorrupt, err)
	}
	if r.Result != t.ResultNumber {
		r.Notes = append(r.Notes, fmt.Sprintf("they rest on result %d, not on the one shown", r.Result))
	}
	return r, nil
}
