package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"wattmark/measure"
)

// ErrNoCampaign: there is no such campaign of instructions.
var ErrNoCampaign = errors.New("no such campaign")

// CampaignID identifies a campaign of instructions.
type CampaignID int64

// InstructionCampaign is one measurement of many instructions.
type InstructionCampaign struct {
	ID                   CampaignID
	GPU, GPUUUID, Driver string
	Started              time.Time
	Seed                 uint64
	Host, Version        string
	Runs, Passes         uint64 // that are stored
}

// InstructionRun is one program of a campaign, measured once.
type InstructionRun struct {
	Pass                int
	Instruction, Layout string
	Level, Steps        int
	Block               bool
	Base                string
	Turns, Threads      uint64
	Time                measure.Seconds
	Cycles, X           uint64
	Checked             bool
	Reads               measure.Hertz
	SM                  measure.Hertz // zero where it is not known
	Celsius             float64       // zero where it is not known
	Error               string
	// Power is the mean by each method.
	Power map[string]measure.Watt
}

// BeginInstructions records a campaign. One of the same GPU that began at the
// same instant is ErrConflict.
func (d *DB) BeginInstructions(ctx context.Context, c InstructionCampaign) (id CampaignID, err error) {
	err = d.write(ctx, "begin campaign", func(tx *sql.Tx) error {
		id, err = beginInstructions(ctx, tx, c)
		return err
	})
	return id, err
}

// ImportInstructions records a whole campaign, or nothing of it.
func (d *DB) ImportInstructions(ctx context.Context, c InstructionCampaign, runs []InstructionRun) (id CampaignID, err error) {
	err = d.write(ctx, "import campaign", func(tx *sql.Tx) error {
		if id, err = beginInstructions(ctx, tx, c); err != nil {
			return err
		}
		for n := range runs {
			if err := putInstruction(ctx, tx, id, n+1, &runs[n]); err != nil {
				return err
			}
		}
		return nil
	})
	return id, err
}

func beginInstructions(ctx context.Context, tx *sql.Tx, c InstructionCampaign) (id CampaignID, err error) {
	if err := errors.Join(measure.CheckText("GPU", c.GPU), measure.CheckText("GPU", c.GPUUUID), measure.CheckText("host", c.Host)); err != nil {
		return 0, err
	}
	err = tx.QueryRowContext(ctx, `SELECT campaign_id FROM instruction_campaign WHERE gpu_uuid=? AND started_ns=?`,
		c.GPUUUID, c.Started.UnixNano()).Scan(&id)
	if err == nil {
		return 0, fmt.Errorf("%w: it is campaign %d already", ErrConflict, id)
	} else if !errors.Is(err, sql.ErrNoRows) {
		return 0, err
	}
	err = tx.QueryRowContext(ctx, `INSERT INTO instruction_campaign(gpu, gpu_uuid, driver, started_ns, seed, host, version)
		VALUES(?,?,?,?,?,?,?) RETURNING campaign_id`,
		c.GPU, c.GPUUUID, c.Driver, c.Started.UnixNano(), int64(c.Seed), c.Host, c.Version).Scan(&id)
	return id, err
}

// AddInstruction adds a run to a campaign and returns its number, from 1. It is
// on disk when this returns.
func (d *DB) AddInstruction(ctx context.Context, id CampaignID, r InstructionRun) (number int, err error) {
	err = d.write(ctx, fmt.Sprintf("store run of campaign %d", id), func(tx *sql.Tx) error {
		if err := campaignExists(ctx, tx, id); err != nil {
			return err
		}
		if err := tx.QueryRowContext(ctx, `SELECT coalesce(max(number),0)+1 FROM instruction_run WHERE campaign_id=?`, id).Scan(&number); err != nil {
			return err
		}
		return putInstruction(ctx, tx, id, number, &r)
	})
	return number, err
}

func putInstruction(ctx context.Context, tx *sql.Tx, id CampaignID, number int, r *InstructionRun) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO instruction_run VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,nullif(?,0.0),nullif(?,0.0),?)`,
		id, number, r.Pass, r.Instruction, r.Layout, r.Level, r.Steps, r.Block, r.Base, int64(r.Turns), int64(r.Threads),
		float64(r.Time), int64(r.Cycles), int64(r.X), r.Checked, float64(r.Reads), float64(r.SM), r.Celsius, r.Error)
	if err != nil {
		return err
	}
	for m, w := range r.Power {
		if err := putInstructionPower(ctx, tx, id, number, m, w); err != nil {
			return err
		}
	}
	return nil
}

func putInstructionPower(ctx context.Context, tx *sql.Tx, id CampaignID, number int, method string, w measure.Watt) error {
	_, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO instruction_power VALUES(?,?,?,?)`, id, number, method, float64(w))
	return err
}

// AddInstructionPowers adds what one more method says of runs, by their numbers.
func (d *DB) AddInstructionPowers(ctx context.Context, id CampaignID, method string, watts map[int]measure.Watt) error {
	return d.write(ctx, fmt.Sprintf("store powers of campaign %d", id), func(tx *sql.Tx) error {
		if err := campaignExists(ctx, tx, id); err != nil {
			return err
		}
		for number, w := range watts {
			if err := putInstructionPower(ctx, tx, id, number, method, w); err != nil {
				return err
			}
		}
		return nil
	})
}

func campaignExists(ctx context.Context, q querier, id CampaignID) error {
	n, err := collect(ctx, q, func(rows *sql.Rows, n *int) error { return rows.Scan(n) },
		`SELECT 1 FROM instruction_campaign WHERE campaign_id=?`, id)
	if err == nil && len(n) == 0 {
		return ErrNoCampaign
	}
	return err
}
