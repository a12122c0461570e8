-- Digests of a task's row, markers and results, by which db check sees that one of these
-- was changed afterwards; NULL for tasks that run, and those that were stored before.
ALTER TABLE task ADD COLUMN seal bytea;

-- The columns of a key come first, as in the file's schema.
ALTER TABLE event RENAME TO event_before;
CREATE TABLE event(
  task_id bigint NOT NULL REFERENCES task ON DELETE CASCADE,
  first_scan bigint NOT NULL,
  kind bigint NOT NULL,       -- 1 gap, 2 over-range, 3 overflow, 4 resync, 5 reopen, 6 note
  channel bigint NOT NULL,    -- -1 for all
  scans bigint NOT NULL,
  detail text COLLATE "C" NOT NULL,
  exact bigint NOT NULL
);
INSERT INTO event(task_id, first_scan, kind, channel, scans, detail, exact)
  SELECT task_id, first_scan, kind, channel, scans, detail, exact FROM event_before;
DROP TABLE event_before;
CREATE UNIQUE INDEX event_once ON event(task_id, first_scan, kind, channel, scans, md5(detail));

ALTER TABLE method_result RENAME TO method_result_before;
CREATE TABLE method_result(
  task_id bigint NOT NULL REFERENCES task ON DELETE CASCADE,
  method text COLLATE "C" NOT NULL,
  ordinal bigint NOT NULL,    -- order in which they are shown
  from_ns bigint NOT NULL, to_ns bigint NOT NULL, -- the work, on the host's clock
  energy_j double precision, mean_w double precision,  -- NULL where the method had nothing to say; note tells why
  readings bigint NOT NULL,   -- that the energy rests on
  -- its calls, and the time from one's end to the next's: while the energy counter was
  -- not being read, and while it was
  calls bigint NOT NULL, call_p50_s double precision, call_p99_s double precision, call_max_s double precision,
  alone bigint NOT NULL, alone_p50_s double precision, alone_p99_s double precision, alone_max_s double precision,
  beside bigint NOT NULL, beside_p50_s double precision, beside_p99_s double precision, beside_max_s double precision,
  note text COLLATE "C" NOT NULL DEFAULT '',
  energy_u_j double precision NOT NULL DEFAULT 0, -- expanded (k = 2), that it states of its energy; 0 for none
  PRIMARY KEY(task_id, method)
);
INSERT INTO method_result(task_id, method, ordinal, from_ns, to_ns, energy_j, mean_w, readings, calls, call_p50_s, call_p99_s, call_max_s,
    alone, alone_p50_s, alone_p99_s, alone_max_s, beside, beside_p50_s, beside_p99_s, beside_max_s, note, energy_u_j)
  SELECT task_id, method, ordinal, from_ns, to_ns, energy_j, mean_w, readings, calls, call_p50_s, call_p99_s, call_max_s,
    alone, alone_p50_s, alone_p99_s, alone_max_s, beside, beside_p50_s, beside_p99_s, beside_max_s, note, energy_u_j FROM method_result_before;
DROP TABLE method_result_before;
