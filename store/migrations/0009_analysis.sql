-- What was worked out from tasks or files and is to be used again: device
-- profiles, fitted models, calibrations of predictions. docs/format.md lists the
-- kinds. A record is never changed: making it again adds a version.

CREATE TABLE analysis(
  analysis_id INTEGER PRIMARY KEY AUTOINCREMENT,
  kind TEXT NOT NULL,          -- what it is, as in "sensor-profile"
  name TEXT NOT NULL,          -- what it is of, or what its maker called it
  version INTEGER NOT NULL,    -- counts from 1 within kind and name
  made_ns INTEGER NOT NULL,
  maker TEXT NOT NULL,         -- program and version
  content TEXT NOT NULL,       -- JSON
  UNIQUE(kind, name, version)
) STRICT;

-- The tasks that an analysis rests on. It outlives them.
CREATE TABLE analysis_task(
  analysis_id INTEGER NOT NULL REFERENCES analysis ON DELETE CASCADE,
  task_id INTEGER NOT NULL,
  PRIMARY KEY(analysis_id, task_id)
) STRICT, WITHOUT ROWID;
