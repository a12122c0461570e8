-- What each software method of reading the GPU's own sensor said of a task.
-- docs/methods.md defines the methods.
CREATE TABLE method_result(
  task_id bigint NOT NULL REFERENCES task ON DELETE CASCADE,
  ordinal bigint NOT NULL,    -- order in which they are shown
  method text COLLATE "C" NOT NULL,
  from_ns bigint NOT NULL, to_ns bigint NOT NULL, -- the work, on the host's clock
  energy_j double precision, mean_w double precision,  -- NULL where the method had nothing to say; note tells why
  readings bigint NOT NULL,   -- that the energy rests on
  -- its calls, and the time from one's end to the next's: while the energy counter was
  -- not being read, and while it was
  calls bigint NOT NULL, call_p50_s double precision, call_p99_s double precision, call_max_s double precision,
  alone bigint NOT NULL, alone_p50_s double precision, alone_p99_s double precision, alone_max_s double precision,
  beside bigint NOT NULL, beside_p50_s double precision, beside_p99_s double precision, beside_max_s double precision,
  note text COLLATE "C" NOT NULL DEFAULT '',
  PRIMARY KEY(task_id, method)
);
