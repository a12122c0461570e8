-- Measurements of several GPUs at once. docs/format.md explains them.

CREATE TABLE task_group(
  group_id INTEGER PRIMARY KEY AUTOINCREMENT, -- ids are never used again
  name TEXT NOT NULL,
  user TEXT NOT NULL,
  launched_ns INTEGER
) STRICT;

-- One GPU of a group. Its task, and the monitor that measured it, may be missing.
CREATE TABLE group_member(
  group_id INTEGER NOT NULL REFERENCES task_group ON DELETE CASCADE,
  ordinal INTEGER NOT NULL,
  gpu TEXT NOT NULL, gpu_uuid TEXT NOT NULL,
  monitor TEXT NOT NULL,
  task_id INTEGER UNIQUE REFERENCES task ON DELETE SET NULL,
  reason TEXT NOT NULL,        -- why there is no task
  PRIMARY KEY(group_id, ordinal)
) STRICT, WITHOUT ROWID;

-- The GPU that the bench says it measures; NULL where it does not say.
ALTER TABLE task ADD COLUMN bench_gpu TEXT;
