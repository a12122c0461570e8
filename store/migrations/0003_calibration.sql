-- Calibration records, and results under more than one calibration.
-- docs/format.md explains them.

-- The dated records that a calibration follows, oldest first.
CREATE TABLE calibration_record(
  calibration_id INTEGER NOT NULL REFERENCES calibration ON DELETE CASCADE,
  ordinal INTEGER NOT NULL,
  record_id TEXT NOT NULL,     -- names the record by its content
  text TEXT NOT NULL,          -- the whole record as JSON
  PRIMARY KEY(calibration_id, ordinal)
) STRICT, WITHOUT ROWID;
CREATE INDEX calibration_record_id ON calibration_record(record_id);

-- All results of a task over its window. The one in use, task.result, stands in
-- task, rail_result and budget too.
CREATE TABLE result(
  task_id INTEGER NOT NULL REFERENCES task ON DELETE CASCADE,
  number INTEGER NOT NULL,     -- 1 is the original
  calibration_id INTEGER NOT NULL REFERENCES calibration,
  computed_ns INTEGER,         -- NULL where it was stored before this table
  from_s REAL, to_s REAL,
  samples INTEGER NOT NULL, first_scan INTEGER NOT NULL, gaps INTEGER NOT NULL, lost INTEGER NOT NULL,
  energy_j REAL, energy_u_j REAL, -- expanded uncertainty, k = 2
  mean_w REAL, peak_w REAL,
  PRIMARY KEY(task_id, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX result_calibration ON result(calibration_id);

CREATE TABLE result_rail(
  task_id INTEGER NOT NULL,
  number INTEGER NOT NULL,
  ordinal INTEGER NOT NULL,
  name TEXT NOT NULL,
  role INTEGER NOT NULL,
  energy_j REAL, energy_u_j REAL, mean_w REAL, peak_w REAL,
  PRIMARY KEY(task_id, number, ordinal),
  FOREIGN KEY(task_id, number) REFERENCES result ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE result_budget(
  task_id INTEGER NOT NULL,
  number INTEGER NOT NULL,
  rail INTEGER NOT NULL,       -- -1: the total
  ordinal INTEGER NOT NULL,
  source TEXT NOT NULL,
  u_j REAL,
  systematic INTEGER NOT NULL,
  PRIMARY KEY(task_id, number, rail, ordinal),
  FOREIGN KEY(task_id, number) REFERENCES result ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- The number of the result in use; NULL without one.
ALTER TABLE task ADD COLUMN result INTEGER;

INSERT INTO result SELECT task_id, 1, calibration_id, NULL, from_s, to_s,
  coalesce(samples,0), coalesce(first_scan,0), coalesce(gaps,0), coalesce(lost,0), energy_j, energy_u_j, mean_w, peak_w
  FROM task WHERE has_result=1 AND calibration_id IS NOT NULL;
INSERT INTO result_rail SELECT r.task_id, 1, r.ordinal, r.name, r.role, r.energy_j, r.energy_u_j, r.mean_w, r.peak_w
  FROM rail_result r JOIN result USING(task_id);
INSERT INTO result_budget SELECT b.task_id, 1, b.rail, b.ordinal, b.source, b.u_j, b.systematic
  FROM budget b JOIN result USING(task_id);
UPDATE task SET result=1 WHERE task_id IN (SELECT task_id FROM result);
