-- Digests of a task's row, markers and results, by which db check sees that one of these
-- was changed afterwards; NULL for tasks that run, and those that were stored before.
ALTER TABLE task ADD COLUMN seal BLOB;

-- The columns of a key come first: the integrity_check of SQLite 3.40.1 and its like takes
-- a column between those of a key without rowid for NULL.
ALTER TABLE event RENAME TO event_before;
CREATE TABLE event(
  task_id INTEGER NOT NULL REFERENCES task ON DELETE CASCADE,
  first_scan INTEGER NOT NULL,
  kind INTEGER NOT NULL,       -- 1 gap, 2 over-range, 3 overflow, 4 resync, 5 reopen, 6 note
  channel INTEGER NOT NULL,    -- -1 for all
  scans INTEGER NOT NULL,
  detail TEXT NOT NULL,
  exact INTEGER NOT NULL,
  PRIMARY KEY(task_id, first_scan, kind, channel, scans, detail)
) STRICT, WITHOUT ROWID;
INSERT INTO event(task_id, first_scan, kind, channel, scans, detail, exact)
  SELECT task_id, first_scan, kind, channel, scans, detail, exact FROM event_before;
DROP TABLE event_before;

ALTER TABLE method_result RENAME TO method_result_before;
CREATE TABLE method_result(
  task_id INTEGER NOT NULL REFERENCES task ON DELETE CASCADE,
  method TEXT NOT NULL,
  ordinal INTEGER NOT NULL,    -- order in which they are shown
  from_ns INTEGER NOT NULL, to_ns INTEGER NOT NULL, -- the work, on the host's clock
  energy_j REAL, mean_w REAL,  -- NULL where the method had nothing to say; note tells why
  readings INTEGER NOT NULL,   -- that the energy rests on
  -- its calls, and the time from one's end to the next's: while the energy counter was
  -- not being read, and while it was
  calls INTEGER NOT NULL, call_p50_s REAL, call_p99_s REAL, call_max_s REAL,
  alone INTEGER NOT NULL, alone_p50_s REAL, alone_p99_s REAL, alone_max_s REAL,
  beside INTEGER NOT NULL, beside_p50_s REAL, beside_p99_s REAL, beside_max_s REAL,
  note TEXT NOT NULL DEFAULT '',
  energy_u_j REAL NOT NULL DEFAULT 0, -- expanded (k = 2), that it states of its energy; 0 for none
  PRIMARY KEY(task_id, method)
) STRICT, WITHOUT ROWID;
INSERT INTO method_result(task_id, method, ordinal, from_ns, to_ns, energy_j, mean_w, readings, calls, call_p50_s, call_p99_s, call_max_s,
    alone, alone_p50_s, alone_p99_s, alone_max_s, beside, beside_p50_s, beside_p99_s, beside_max_s, note, energy_u_j)
  SELECT task_id, method, ordinal, from_ns, to_ns, energy_j, mean_w, readings, calls, call_p50_s, call_p99_s, call_max_s,
    alone, alone_p50_s, alone_p99_s, alone_max_s, beside, beside_p50_s, beside_p99_s, beside_max_s, note, energy_u_j FROM method_result_before;
DROP TABLE method_result_before;
