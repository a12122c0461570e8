-- Calibration records, and results under more than one calibration.
-- docs/format.md explains them.

-- The dated records that a calibration follows, oldest first.
CREATE TABLE calibration_record(
  calibration_id bigint NOT NULL REFERENCES calibration ON DELETE CASCADE,
  ordinal bigint NOT NULL,
  record_id text COLLATE "C" NOT NULL,     -- names the record by its content
  text text COLLATE "C" NOT NULL,          -- the whole record as JSON
  PRIMARY KEY(calibration_id, ordinal)
);
CREATE INDEX calibration_record_id ON calibration_record(record_id);

-- All results of a task over its window. The one in use, task.result, stands in
-- task, rail_result and budget too.
CREATE TABLE result(
  task_id bigint NOT NULL REFERENCES task ON DELETE CASCADE,
  number bigint NOT NULL,     -- 1 is the original
  calibration_id bigint NOT NULL REFERENCES calibration,
  computed_ns bigint,         -- NULL where it was stored before this table
  from_s double precision, to_s double precision,
  samples bigint NOT NULL, first_scan bigint NOT NULL, gaps bigint NOT NULL, lost bigint NOT NULL,
  energy_j double precision, energy_u_j double precision, -- expanded uncertainty, k = 2
  mean_w double precision, peak_w double precision,
  PRIMARY KEY(task_id, number)
);
CREATE INDEX result_calibration ON result(calibration_id);

CREATE TABLE result_rail(
  task_id bigint NOT NULL,
  number bigint NOT NULL,
  ordinal bigint NOT NULL,
  name text COLLATE "C" NOT NULL,
  role bigint NOT NULL,
  energy_j double precision, energy_u_j double precision, mean_w double precision, peak_w double precision,
  PRIMARY KEY(task_id, number, ordinal),
  FOREIGN KEY(task_id, number) REFERENCES result ON DELETE CASCADE
);

CREATE TABLE result_budget(
  task_id bigint NOT NULL,
  number bigint NOT NULL,
  rail bigint NOT NULL,       -- -1: the total
  ordinal bigint NOT NULL,
  source text COLLATE "C" NOT NULL,
  u_j double precision,
  systematic bigint NOT NULL,
  PRIMARY KEY(task_id, number, rail, ordinal),
  FOREIGN KEY(task_id, number) REFERENCES result ON DELETE CASCADE
);

-- The number of the result in use; NULL without one.
ALTER TABLE task ADD COLUMN result bigint;

INSERT INTO result SELECT task_id, 1, calibration_id, NULL, from_s, to_s,
  coalesce(samples,0), coalesce(first_scan,0), coalesce(gaps,0), coalesce(lost,0), energy_j, energy_u_j, mean_w, peak_w
  FROM task WHERE has_result=1 AND calibration_id IS NOT NULL;
INSERT INTO result_rail SELECT r.task_id, 1, r.ordinal, r.name, r.role, r.energy_j, r.energy_u_j, r.mean_w, r.peak_w
  FROM rail_result r JOIN result USING(task_id);
INSERT INTO result_budget SELECT b.task_id, 1, b.rail, b.ordinal, b.source, b.u_j, b.systematic
  FROM budget b JOIN result USING(task_id);
UPDATE task SET result=1 WHERE task_id IN (SELECT task_id FROM result);
