package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"wattmark/measure"
)

// InstructionCampaigns lists the campaigns, newest first.
func (d *DB) InstructionCampaigns(ctx context.Context) ([]InstructionCampaign, error) {
	return d.campaigns(ctx, "list campaigns", "ORDER BY c.started_ns DESC, c.campaign_id DESC")
}

// InstructionCampaign returns one campaign. ErrNoCampaign where there is none.
func (d *DB) InstructionCampaign(ctx context.Context, id CampaignID) (InstructionCampaign, error) {
	op := fmt.Sprintf("read campaign %d", id)
	list, err := d.campaigns(ctx, op, "WHERE c.campaign_id=?", id)
	if err == nil && len(list) == 0 {
		return InstructionCampaign{}, fmt.Errorf("%s: %w", op, ErrNoCampaign)
	} else if err != nil {
		return InstructionCampaign{}, err
	}
	return list[0], nil
}

func (d *DB) campaigns(ctx context.Context, op, tail string, args ...any) ([]InstructionCampaign, error) {
	out, err := collect(ctx, d.reader, func(rows *sql.Rows, c *InstructionCampaign) error {
		var started, seed int64
		err := rows.Scan(&c.ID, textTo(&c.GPU), textTo(&c.GPUUUID), textTo(&c.Driver), &started, &seed, textTo(&c.Host), textTo(&c.Version), &c.Runs, &c.Passes)
		c.Started, c.Seed = time.Unix(0, started).UTC(), uint64(seed)
		return err
	}, `SELECT c.campaign_id, c.gpu, c.gpu_uuid, c.driver, c.started_ns, c.seed, c.host, c.version,
		(SELECT count(*) FROM instruction_run r WHERE r.campaign_id=c.campaign_id),
		(SELECT count(DISTINCT pass) FROM instruction_run r WHERE r.campaign_id=c.campaign_id)
		FROM instruction_campaign c `+tail, args...)
	return out, wrap(op, err)
}

// Instructions returns a campaign's runs in the order in which they ran.
func (d *DB) Instructions(ctx context.Context, id CampaignID) ([]InstructionRun, error) {
	op := fmt.Sprintf("read runs of campaign %d", id)
	if err := campaignExists(ctx, d.reader, id); err != nil {
		return nil, wrap(op, err)
	}
	out, err := collect(ctx, d.reader, scanInstruction, `SELECT pass, instruction, layout, level, steps, block, base,
		turns, threads, time_s, cycles, x, checked, reads_hz, coalesce(sm_hz,0), coalesce(celsius,0), error
		FROM instruction_run WHERE campaign_id=? ORDER BY number`, id)
	if err != nil {
		return nil, wrap(op, err)
	}
	type power struct {
		number int
		method string
		watts  measure.Watt
	}
	// Runs are numbered from 1 without holes: they are only ever added.
	powers, err := collect(ctx, d.reader, func(rows *sql.Rows, p *power) error {
		return rows.Scan(&p.number, textTo(&p.method), realTo(&p.watts))
	}, `SELECT number, method, watts FROM instruction_power WHERE campaign_id=?`, id)
	for _, p := range powers {
		if p.number < 1 || p.number > len(out) {
			continue // came in between the two queries
		}
		r := &out[p.number-1]
		if r.Power == nil {
			r.Power = map[string]measure.Watt{}
		}
		r.Power[p.method] = p.watts
	}
	return out, wrap(op, err)
}

func scanInstruction(rows *sql.Rows, r *InstructionRun) error {
	var turns, threads, cycles, x int64
	err := rows.Scan(&r.Pass, textTo(&r.Instruction), textTo(&r.Layout), &r.Level, &r.Steps, &r.Block, textTo(&r.Base),
		&turns, &threads, realTo(&r.Time), &cycles, &x, &r.Checked, realTo(&r.Reads), realTo(&r.SM), &r.Celsius, textTo(&r.Error))
	r.Turns, r.Threads, r.Cycles, r.X = uint64(turns), uint64(threads), uint64(cycles), uint64(x)
	return err
}

// DeleteInstructions deletes a campaign with its runs.
func (d *DB) DeleteInstructions(ctx context.Context, id CampaignID) error {
	return d.write(ctx, fmt.Sprintf("delete campaign %d", id), func(tx *sql.Tx) error {
		if err := campaignExists(ctx, tx, id); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `DELETE FROM instruction_campaign WHERE campaign_id=?`, id)
		return err
	})
}
