package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"wattmark/measure"
	"wattmark/measure/marker"
)

// readSetup reads a calibration; number 0 is none.
func readSetup(ctx context.Context, tx *sql.Tx, cal int64, s *measure.Setup) error {
	if cal == 0 {
		return nil
	}
	var missing string
	tb, r := &s.Timebase, &s.Response
	err := tx.QueryRowContext(ctx, `SELECT tick_hz, u_tick_rel, ticks_per_scan, stamped, tau_s, window_s, update_s, missing
		FROM calibration WHERE calibration_id=?`, cal).Scan(&tb.TickHz, &tb.UTickHz, &tb.TicksPerScan, &tb.Stamped,
		realTo(&r.Tau), realTo(&r.Window), realTo(&r.Update), &missing)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(missing), &s.Missing); err != nil {
		return fmt.Errorf("%w: missing rails: %w", ErrCorrupt, err)
	}
	for i, name := range s.Missing {
		s.Missing[i] = measure.Printable(name)
	}
	if len(s.Missing) == 0 {
		s.Missing = nil
	}
	if s.Channels, err = collect(ctx, tx, scanChannel, `SELECT name, unit, gain, "offset", u_gain_rel, u_offset, noise,
		min_count, max_count, skew_s FROM channel WHERE calibration_id=? ORDER BY ordinal`, cal); err != nil {
		return err
	}
	if s.Rails, err = collect(ctx, tx, scanRail, `SELECT name, role, wiring, x, y, shunt_ohm, u_shunt_rel, assumed_v, u_assumed_v
		FROM rail WHERE calibration_id=? ORDER BY ordinal`, cal); err != nil {
		return err
	}
	s.Records, err = collect(ctx, tx, func(rows *sql.Rows, r *measure.CalibrationRecord) error {
		return rows.Scan(&r.ID, &r.Text)
	}, `SELECT record_id, text FROM calibration_record WHERE calibration_id=? ORDER BY ordinal`, cal)
	return err
}

func scanChannel(rows *sql.Rows, c *measure.Channel) error {
	return rows.Scan(textTo(&c.Name), &c.Unit, &c.Gain, &c.Offset, &c.UGain, &c.UOffset, &c.Noise, &c.MinCount, &c.MaxCount, &c.Skew)
}

func scanRail(rows *sql.Rows, r *measure.Rail) error {
	return rows.Scan(textTo(&r.Name), &r.Role, &r.Wiring, &r.X, &r.Y, &r.Shunt, &r.UShunt, &r.Assumed, &r.UAssumed)
}

func readMarkers(ctx context.Context, tx *sql.Tx, t *Task) (err error) {
	t.Markers, err = collect(ctx, tx, func(rows *sql.Rows, m *marker.Found) error {
		return rows.Scan(&m.Kind, realTo(&m.T), realTo(&m.U), realTo(&m.Begin), realTo(&m.End),
			realTo(&m.Correlation), realTo(&m.PSLR), realTo(&m.Step), realTo(&m.Tau), &m.Tag, &m.TagOK, &m.Fallback)
	}, `SELECT kind, t_s, u_s, begin_s, end_s, correlation, pslr_db, step_w, tau_s, tag, tag_ok, fallback
		FROM marker WHERE task_id=? ORDER BY ordinal`, int64(t.ID))
	for i := 0; i < len(t.Markers) && err == nil; i++ {
		t.Markers[i].Edges, err = collect(ctx, tx, func(rows *sql.Rows, e *marker.Edge) error {
			return rows.Scan(&e.Chip, realTo(&e.T), realTo(&e.U))
		}, `SELECT chip, t_s, u_s FROM marker_edge WHERE task_id=? AND ordinal=? ORDER BY edge`, int64(t.ID), i)
	}
	return err
}

func readEvents(ctx context.Context, tx *sql.Tx, t *Task) (err error) {
	t.Events, err = collect(ctx, tx, func(rows *sql.Rows, e *measure.Event) error {
		return rows.Scan(&e.Kind, &e.FirstScan, &e.Scans, &e.Exact, &e.Channel, textTo(&e.Detail))
	}, `SELECT kind, first_scan, scans, exact, channel, detail FROM event WHERE task_id=? ORDER BY first_scan, kind, channel`, int64(t.ID))
	return err
}

// readRails reads the rails and all budgets of the result in use.
func readRails(ctx context.Context, tx *sql.Tx, t *Task) error {
	return collectRails(ctx, tx, t, "rail_result", "budget", "task_id=?", int64(t.ID))
}

// collectRails reads a result's rails and budgets from two tables.
func collectRails(ctx context.Context, tx *sql.Tx, t *Task, rails, budget, where string, key ...any) (err error) {
	if t.Result == nil {
		return nil
	}
	t.Result.Rails, err = collect(ctx, tx, func(rows *sql.Rows, r *measure.RailResult) error {
		return rows.Scan(textTo(&r.Name), &r.Role, realTo(&r.Energy.Energy), realTo(&r.Energy.U), realTo(&r.Mean), realTo(&r.Peak))
	}, `SELECT name, role, energy_j, energy_u_j, mean_w, peak_w FROM `+rails+` WHERE `+where+` ORDER BY ordinal`, key...)
	if err != nil {
		return err
	}
	type line struct {
		rail int
		measure.Contribution
	}
	lines, err := collect(ctx, tx, func(rows *sql.Rows, l *line) error {
		return rows.Scan(&l.rail, textTo(&l.Source), realTo(&l.U), &l.Systematic)
	}, `SELECT rail, source, u_j, systematic FROM `+budget+` WHERE `+where+` ORDER BY rail, ordinal`, key...)
	for _, l := range lines {
		if l.rail < 0 {
			t.Result.Budget = append(t.Result.Budget, l.Contribution)
		} else if l.rail < len(t.Result.Rails) {
			r := &t.Result.Rails[l.rail]
			r.Budget = append(r.Budget, l.Contribution)
		}
	}
	return err
}
