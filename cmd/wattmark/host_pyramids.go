package main

import (
	"context"
	"log/slog"

	"wattmark/store"
)

// makePyramids makes what finished tasks lack to be drawn fast, once: those that an older
// version measured. Until then they are drawn from their samples.
func makePyramids(ctx context.Context, db *store.DB, log *slog.Logger) error {
	made := 0
	err := db.BuildPyramids(ctx, func(id store.TaskID, err error) {
		if err != nil {
			log.Warn("could not make a task's pyramid: it is drawn from its samples", "task", int64(id), "error", err)
			return
		}
		made++
	})
	if made > 0 {
		log.Info("made pyramids of older tasks", "tasks", made)
	}
	if err != nil && ctx.Err() == nil {
		log.Warn("could not make pyramids", "error", err)
	}
	return nil
}
