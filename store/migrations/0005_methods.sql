-- What each software method of reading the GPU's own sensor said of a task.
-- docs/methods.md defines the methods.
CREATE TABLE method_result(
  task_id INTEGER NOT NULL REFERENCES task ON DELETE CASCADE,
  ordinal INTEGER NOT NULL,    -- order in which they are shown
  method TEXT NOT NULL,
  from_ns INTEGER NOT NULL, to_ns INTEGER NOT NULL, -- the work, on the host's clock
  energy_j REAL, mean_w REAL,  -- NULL where the method had nothing to say; note tells why
  readings INTEGER NOT NULL,   -- that the energy rests on
  -- its calls, and the time from one's end to the next's: while the energy counter was
  -- not being read, and while it was
  calls INTEGER NOT NULL, call_p50_s REAL, call_p99_s REAL, call_max_s REAL,
  alone INTEGER NOT NULL, alone_p50_s REAL, alone_p99_s REAL, alone_max_s REAL,
  beside INTEGER NOT NULL, beside_p50_s REAL, beside_p99_s REAL, beside_max_s REAL,
  note TEXT NOT NULL DEFAULT '',
  PRIMARY KEY(task_id, method)
) STRICT, WITHOUT ROWID;
