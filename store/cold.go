package store

import (
	"context"

	"wattmark/measure/chunk"
)

func loadCold(ctx context.Context, q querier, id TaskID, sh shape, c *chunk.Chunk) error { return nil }
