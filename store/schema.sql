-- The task database in SQLite, schema 26. docs/format.md explains it.
-- Times named *_ns are nanoseconds since 1970-01-01 UTC on the host's clock; times named *_s
-- are seconds of device time, counted from the first scan of the capture.
-- The order of columns is part of the schema: rows are inserted by position.

CREATE TABLE user(
  user_id INTEGER PRIMARY KEY,
  login TEXT NOT NULL UNIQUE
) STRICT;

-- What turns counts into watts: a dated record that is never changed. Tasks
-- that were measured with the same setup share one.
CREATE TABLE calibration(
  calibration_id INTEGER PRIMARY KEY,
  digest BLOB NOT NULL UNIQUE, -- SHA-256 of the record's content
  name TEXT NOT NULL,          -- identity that the monitor gave it
  bench TEXT NOT NULL,
  since_ns INTEGER NOT NULL,   -- launch of the first task that used it
  tick_hz REAL NOT NULL,
  u_tick_rel REAL NOT NULL,
  ticks_per_scan REAL NOT NULL,
  stamped INTEGER NOT NULL,    -- 1: each chunk has a last column of time residuals
  channels INTEGER NOT NULL,
  tau_s REAL, window_s REAL, update_s REAL, -- response of the instrument
  missing TEXT NOT NULL,       -- JSON array of rails that the bench does not measure
  one_a_role INTEGER NOT NULL  -- 1: no two rails share a role (the view's fast branch)
) STRICT;

-- value = offset + gain * count, in unit; uncertainties are standard ones (k = 1).
CREATE TABLE channel(
  calibration_id INTEGER NOT NULL REFERENCES calibration ON DELETE CASCADE,
  ordinal INTEGER NOT NULL,    -- column of the chunks
  name TEXT NOT NULL,
  unit TEXT NOT NULL,          -- V, A, W
  gain REAL NOT NULL, "offset" REAL NOT NULL,
  u_gain_rel REAL NOT NULL, u_offset REAL NOT NULL, noise REAL NOT NULL,
  min_count INTEGER NOT NULL, max_count INTEGER NOT NULL,
  skew_s REAL NOT NULL,
  PRIMARY KEY(calibration_id, ordinal)
) STRICT, WITHOUT ROWID;

-- With x and y the counts of its channels: I = i0 + ix*x + iy*y, V = v0 + vy*y, P = I*V.
CREATE TABLE rail(
  calibration_id INTEGER NOT NULL REFERENCES calibration ON DELETE CASCADE,
  ordinal INTEGER NOT NULL,
  name TEXT NOT NULL,
  role INTEGER NOT NULL,       -- 1 PSU, 2 PCIe 3.3 V, 3 PCIe 12 V, 4 whole GPU
  wiring INTEGER NOT NULL,     -- 1 shunt, 2 clamp, 3 assumed voltage, 4 reads watts
  x INTEGER NOT NULL, y INTEGER NOT NULL, -- channel ordinals, -1 for none
  shunt_ohm REAL NOT NULL, u_shunt_rel REAL NOT NULL,
  assumed_v REAL NOT NULL, u_assumed_v REAL NOT NULL,
  i0 REAL NOT NULL, ix REAL NOT NULL, iy REAL NOT NULL, v0 REAL NOT NULL, vy REAL NOT NULL,
  PRIMARY KEY(calibration_id, ordinal)
) STRICT, WITHOUT ROWID;

-- Dated records that a calibration follows, oldest first.
CREATE TABLE calibration_record(
  calibration_id INTEGER NOT NULL REFERENCES calibration ON DELETE CASCADE,
  ordinal INTEGER NOT NULL,
  record_id TEXT NOT NULL,     -- names the record by its content
  text TEXT NOT NULL,          -- the whole record as JSON
  PRIMARY KEY(calibration_id, ordinal)
) STRICT, WITHOUT ROWID;
CREATE INDEX calibration_record_id ON calibration_record(record_id);

CREATE TABLE task(
  task_id INTEGER PRIMARY KEY AUTOINCREMENT, -- ids are never used again
  user_id INTEGER NOT NULL REFERENCES user,
  name TEXT NOT NULL,
  launched_ns INTEGER,
  launched TEXT,               -- the same, ISO 8601, UTC
  state INTEGER NOT NULL,      -- 1 running, 2 complete, 3 incomplete, 4 untrimmed, 5 failed, 6 partial
  reason TEXT NOT NULL DEFAULT '',
  -- where the rest can be fetched after a restart
  monitor TEXT NOT NULL, capture_id TEXT NOT NULL,
  gpu TEXT NOT NULL, gpu_uuid TEXT NOT NULL, driver TEXT NOT NULL,
  marker_code INTEGER NOT NULL, marker_chip_s REAL NOT NULL, marker_guard INTEGER NOT NULL,
  marker_tag_bits INTEGER NOT NULL, marker_tag INTEGER NOT NULL,
  -- the stream's header; calibration_id is NULL until it has come
  calibration_id INTEGER REFERENCES calibration,
  instrument_kind TEXT, instrument_model TEXT, instrument_serial TEXT,
  instrument_firmware TEXT, instrument_address TEXT,
  started_ns INTEGER,          -- monitor's clock at device time zero
  -- what is stored, also outside the window
  chunks INTEGER NOT NULL DEFAULT 0, scans INTEGER NOT NULL DEFAULT 0,
  -- clock fit t_meter = a + b * (t_host - origin); NULL without one
  clock_origin_s REAL, clock_a_s REAL, clock_b REAL,
  clock_var_a REAL, clock_var_b REAL, clock_cov_ab REAL, clock_rms_s REAL,
  clock_used INTEGER, clock_rejected INTEGER,
  -- the result over the window; has_result is 0 until there is one
  has_result INTEGER NOT NULL DEFAULT 0,
  from_s REAL, to_s REAL,
  samples INTEGER, first_scan INTEGER, gaps INTEGER, lost INTEGER,
  end_scan INTEGER,            -- one past the window's last stored scan
  energy_j REAL, energy_u_j REAL, -- expanded uncertainty, k = 2
  mean_w REAL, peak_w REAL,
  nvml_j REAL,                 -- by the GPU's own sensor over the same window
  result INTEGER,              -- number of the result in use; NULL without one
  bench_gpu TEXT,              -- UUID of the GPU that the bench measures; NULL where it is unknown
  job TEXT,                    -- job that the task is part of, on however many hosts; NULL for none
  pinned INTEGER NOT NULL DEFAULT 0, -- 1: retention leaves it
  cold INTEGER NOT NULL DEFAULT 0,   -- 1: its chunks are in chunk_cold; 2: hidden, see state 6
  tags TEXT,                   -- rows of task_tag as a JSON object, keys in order; NULL for none
  stored_ns INTEGER,           -- when it came into this database: age for retention; NULL: unknown
  failure TEXT, exit_code INTEGER, -- why the work failed, and the program's exit code; else NULL
  owner TEXT,                  -- process that measures or stores the task; NULL: unknown
  nvml_method TEXT,            -- method whose readings nvml_j integrates, as reading.method
  seal BLOB                    -- digests of row, markers and results at the end; see db check
) STRICT;
-- Each order of lists, of all tasks and of one user's, has an index: no page is sorted.
CREATE INDEX task_user ON task(user_id, task_id, name);
CREATE INDEX task_name ON task(name, task_id);
CREATE INDEX task_user_name ON task(user_id, name, task_id);
CREATE INDEX task_launched ON task(launched_ns, task_id);
CREATE INDEX task_running ON task(task_id) WHERE state = 1;
CREATE INDEX task_calibration ON task(calibration_id);
CREATE INDEX task_energy ON task(energy_j, task_id);
CREATE INDEX task_length ON task((to_s-from_s), task_id);
CREATE INDEX task_user_launched ON task(user_id, launched_ns, task_id);
CREATE INDEX task_user_energy ON task(user_id, energy_j, task_id);
CREATE INDEX task_user_length ON task(user_id, (to_s-from_s), task_id);
CREATE INDEX task_unusual ON task(task_id) WHERE state<>2;
CREATE INDEX task_job ON task(job, task_id) WHERE job IS NOT NULL;
CREATE INDEX task_stored ON task(stored_ns, task_id);
-- The columns by which a copy recognizes a task.
CREATE INDEX task_capture ON task(capture_id, launched_ns);
CREATE INDEX task_cold ON task(task_id) WHERE cold=1;

CREATE TABLE chunk(
  task_id INTEGER NOT NULL REFERENCES task ON DELETE CASCADE,
  chunk_no INTEGER NOT NULL,
  first_scan INTEGER NOT NULL, -- since the capture began; jumps over lost scans
  n INTEGER NOT NULL,          -- scans
  first_tick INTEGER NOT NULL,
  crc INTEGER NOT NULL,        -- CRC-32C of the fixed header and the payload
  PRIMARY KEY(task_id, chunk_no)
) STRICT, WITHOUT ROWID;

-- dir stands before data, so that reading it touches only the row's first pages.
CREATE TABLE chunk_column(
  task_id INTEGER NOT NULL,
  chunk_no INTEGER NOT NULL,
  col INTEGER NOT NULL,
  dir BLOB NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY(task_id, chunk_no, col),
  FOREIGN KEY(task_id, chunk_no) REFERENCES chunk ON DELETE CASCADE
) STRICT;

-- All columns of a chunk of a cold task, coded tighter. Its row in chunk stays.
CREATE TABLE chunk_cold(
  task_id INTEGER NOT NULL,
  chunk_no INTEGER NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY(task_id, chunk_no),
  FOREIGN KEY(task_id, chunk_no) REFERENCES chunk ON DELETE CASCADE
) STRICT;

-- The columns of a key come first: the integrity_check of SQLite 3.40.1 and its like takes a
-- column between those of a key without rowid for NULL.
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

CREATE TABLE marker(
  task_id INTEGER NOT NULL REFERENCES task ON DELETE CASCADE,
  ordinal INTEGER NOT NULL,
  kind INTEGER NOT NULL,       -- 1 start, 2 stop
  t_s REAL, u_s REAL, begin_s REAL, end_s REAL,
  correlation REAL, pslr_db REAL, step_w REAL, tau_s REAL,
  tag INTEGER NOT NULL, tag_ok INTEGER NOT NULL, fallback INTEGER NOT NULL,
  PRIMARY KEY(task_id, ordinal)
) STRICT, WITHOUT ROWID;

CREATE TABLE marker_edge(
  task_id INTEGER NOT NULL,
  ordinal INTEGER NOT NULL,
  edge INTEGER NOT NULL,
  chip INTEGER NOT NULL,
  t_s REAL, u_s REAL,
  PRIMARY KEY(task_id, ordinal, edge),
  FOREIGN KEY(task_id, ordinal) REFERENCES marker ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- Marker edges as the host played them. number counts markers around single kernels from 1;
-- 0 is the one around the whole work.
CREATE TABLE played(
  task_id INTEGER NOT NULL REFERENCES task ON DELETE CASCADE,
  kind INTEGER NOT NULL,
  number INTEGER NOT NULL,
  chip INTEGER NOT NULL,
  at_ns INTEGER NOT NULL,
  PRIMARY KEY(task_id, kind, number, chip)
) STRICT, WITHOUT ROWID;

-- When the work ran as a whole; it bounds the window.
CREATE TABLE kernel(
  task_id INTEGER NOT NULL REFERENCES task ON DELETE CASCADE,
  start_ns INTEGER NOT NULL,
  end_ns INTEGER NOT NULL,
  name TEXT NOT NULL,
  PRIMARY KEY(task_id, start_ns, end_ns, name)
) STRICT, WITHOUT ROWID;

-- Readings by software: watts, or joules where the method is a counter.
CREATE TABLE reading(
  task_id INTEGER NOT NULL REFERENCES task ON DELETE CASCADE,
  method TEXT NOT NULL,
  at_ns INTEGER NOT NULL,
  value REAL,                  -- NULL where the sensor gave none
  PRIMARY KEY(task_id, method, at_ns)
) STRICT, WITHOUT ROWID;

-- Rails of the result in use.
CREATE TABLE rail_result(
  task_id INTEGER NOT NULL REFERENCES task ON DELETE CASCADE,
  ordinal INTEGER NOT NULL,
  name TEXT NOT NULL,
  role INTEGER NOT NULL,
  energy_j REAL, energy_u_j REAL, mean_w REAL, peak_w REAL,
  PRIMARY KEY(task_id, ordinal)
) STRICT, WITHOUT ROWID;

-- Lines of the uncertainty budgets; rail -1 is the total.
CREATE TABLE budget(
  task_id INTEGER NOT NULL REFERENCES task ON DELETE CASCADE,
  rail INTEGER NOT NULL,
  ordinal INTEGER NOT NULL,
  source TEXT NOT NULL,
  u_j REAL,                    -- standard uncertainty (k = 1)
  systematic INTEGER NOT NULL,
  PRIMARY KEY(task_id, rail, ordinal)
) STRICT, WITHOUT ROWID;

-- All results of a task over its window. The one in use, task.result, stands in task,
-- rail_result and budget too.
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

-- Kernels of a program that was recorded from within (wattmark run --auto): the processes
-- that left a log, names, devices, and one row an execution, on the host's clock.
CREATE TABLE launch_process(
  task_id INTEGER NOT NULL REFERENCES task ON DELETE CASCADE,
  process INTEGER NOT NULL,    -- from 0
  pid INTEGER NOT NULL,
  cupti INTEGER NOT NULL,      -- version of CUPTI's interface; 0 where it was not found
  kernels INTEGER NOT NULL,    -- stored
  reported INTEGER NOT NULL,   -- handed out by CUPTI
  dropped INTEGER NOT NULL,    -- lost within CUPTI
  whole INTEGER NOT NULL,      -- 0: the log was cut short
  trouble TEXT NOT NULL,
  PRIMARY KEY(task_id, process)
) STRICT, WITHOUT ROWID;

CREATE TABLE launch_name(
  task_id INTEGER NOT NULL REFERENCES task ON DELETE CASCADE,
  name_no INTEGER NOT NULL,    -- from 0
  name TEXT NOT NULL,          -- as the compiler made it
  PRIMARY KEY(task_id, name_no)
) STRICT, WITHOUT ROWID;

CREATE TABLE launch_device(
  task_id INTEGER NOT NULL REFERENCES task ON DELETE CASCADE,
  device_no INTEGER NOT NULL,  -- from 0
  process INTEGER NOT NULL,
  ordinal INTEGER NOT NULL,    -- the process's CUDA ordinal
  uuid TEXT NOT NULL,          -- empty where the driver did not tell
  measured INTEGER NOT NULL,   -- 1: it is the GPU that the meter measured
  PRIMARY KEY(task_id, device_no)
) STRICT, WITHOUT ROWID;

CREATE TABLE launch(
  task_id INTEGER NOT NULL REFERENCES task ON DELETE CASCADE,
  start_ns INTEGER NOT NULL,
  launch_no INTEGER NOT NULL,  -- in the order of the logs, from 0
  end_ns INTEGER NOT NULL,
  name_no INTEGER NOT NULL,
  device_no INTEGER NOT NULL,
  stream INTEGER NOT NULL,
  correlation INTEGER NOT NULL, -- the launch that it came from; nodes of a graph share one
  graph INTEGER NOT NULL,       -- id of the CUDA graph, 0 for none
  grid_x INTEGER NOT NULL, grid_y INTEGER NOT NULL, grid_z INTEGER NOT NULL,
  block_x INTEGER NOT NULL, block_y INTEGER NOT NULL, block_z INTEGER NOT NULL,
  PRIMARY KEY(task_id, start_ns, launch_no)
) STRICT, WITHOUT ROWID;

-- The window's energy by kernel name, for each result.
CREATE TABLE kernel_energy(
  task_id INTEGER NOT NULL,
  number INTEGER NOT NULL,     -- of the result
  ordinal INTEGER NOT NULL,
  class INTEGER NOT NULL,      -- 1 kernel, 2 active idle, 3 idle
  name TEXT NOT NULL,          -- empty but for kernels
  launches INTEGER NOT NULL,
  short INTEGER NOT NULL,      -- of these, shorter than the meter resolves
  busy_s REAL, share_s REAL,   -- durations; time by the rule of equal shares
  energy_j REAL, energy_u_j REAL, -- expanded uncertainty, k = 2
  PRIMARY KEY(task_id, number, ordinal),
  FOREIGN KEY(task_id, number) REFERENCES result ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- Energy and mean power by each software method of reading the GPU's own sensor.
-- docs/sensor.md defines the methods.
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

-- Energies of single instructions: measurements, not results. docs/kernels.md explains
-- the method. One campaign is one run of the command: all its programs, over its passes.
CREATE TABLE instruction_campaign(
  campaign_id INTEGER PRIMARY KEY AUTOINCREMENT,
  gpu TEXT NOT NULL, gpu_uuid TEXT NOT NULL, driver TEXT NOT NULL,
  started_ns INTEGER NOT NULL,
  seed INTEGER NOT NULL,       -- of the order; 64 bits, the top one is the sign
  host TEXT NOT NULL, version TEXT NOT NULL,
  UNIQUE(gpu_uuid, started_ns)
) STRICT;

-- One program measured once. Unsigned numbers of 64 bits keep their bits.
CREATE TABLE instruction_run(
  campaign_id INTEGER NOT NULL REFERENCES instruction_campaign ON DELETE CASCADE,
  number INTEGER NOT NULL,     -- from 1, as they ran
  pass INTEGER NOT NULL,
  instruction TEXT NOT NULL, layout TEXT NOT NULL,
  level INTEGER NOT NULL, steps INTEGER NOT NULL,
  block INTEGER NOT NULL,      -- 0: without the instructions, or idle
  base TEXT NOT NULL,          -- names the program without the block
  turns INTEGER NOT NULL, threads INTEGER NOT NULL,
  time_s REAL NOT NULL, cycles INTEGER NOT NULL,
  x INTEGER NOT NULL, checked INTEGER NOT NULL,
  reads_hz REAL NOT NULL,
  sm_hz REAL, celsius REAL,    -- NULL where the GPU does not tell
  error TEXT NOT NULL,
  PRIMARY KEY(campaign_id, number)
) STRICT, WITHOUT ROWID;

-- Mean power of a run, by one method.
CREATE TABLE instruction_power(
  campaign_id INTEGER NOT NULL,
  number INTEGER NOT NULL,
  method TEXT NOT NULL,
  watts REAL NOT NULL,
  PRIMARY KEY(campaign_id, number, method),
  FOREIGN KEY(campaign_id, number) REFERENCES instruction_run ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- Energy of kernels too short to be bracketed, from a task that holds many launches of one.
-- docs/kernels.md explains the methods.
CREATE TABLE tiny(
  task_id INTEGER PRIMARY KEY REFERENCES task ON DELETE CASCADE,
  method TEXT NOT NULL,        -- repeat, contrast or fold
  kernel TEXT NOT NULL,
  launches INTEGER NOT NULL,
  energy_j REAL, energy_u_j REAL, -- of one launch; expanded uncertainty
  length_s REAL, gap_s REAL,   -- of one launch, and between two slices of carrier, by the GPU's clock
  carrier_w REAL,              -- power of the carrier; NULL where there is none
  dof INTEGER NOT NULL, residual_j REAL, -- of contrast's fit
  above_j REAL, above_u_j REAL, -- fold: above the level that surrounds a launch
  plan TEXT NOT NULL,          -- how it was played, as JSON
  warnings TEXT NOT NULL       -- JSON array
) STRICT;

CREATE TABLE tiny_budget(
  task_id INTEGER NOT NULL REFERENCES tiny ON DELETE CASCADE,
  ordinal INTEGER NOT NULL,
  source TEXT NOT NULL,
  u_j REAL,
  systematic INTEGER NOT NULL,
  PRIMARY KEY(task_id, ordinal)
) STRICT, WITHOUT ROWID;

-- A folded profile: power by the time since a launch.
CREATE TABLE tiny_profile(
  task_id INTEGER NOT NULL REFERENCES tiny ON DELETE CASCADE,
  bin INTEGER NOT NULL,
  at_s REAL NOT NULL,          -- the bin's middle
  power_w REAL, u_w REAL,      -- standard uncertainty against the other bins
  readings INTEGER NOT NULL,
  PRIMARY KEY(task_id, bin)
) STRICT, WITHOUT ROWID;

-- Measurements of several GPUs at once.
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

-- Results of analyses that are used again: device profiles, fitted models, calibrations of
-- predictions. docs/format.md lists the kinds. A record is never changed: a new one is a
-- new version.
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

-- Least, greatest and mean power over 128, 1024, 8192, 65536 and 524288 scans, made while the
-- chunks come in; docs/format.md has a page's layout. A pyramid is of the calibration in use
-- and can be made anew from the chunks at any time.
CREATE TABLE pyramid(
  task_id INTEGER NOT NULL REFERENCES task ON DELETE CASCADE,
  level INTEGER NOT NULL,
  page INTEGER NOT NULL,       -- 1024 bins
  data BLOB NOT NULL,
  PRIMARY KEY(task_id, level, page)
) STRICT;

-- The tasks whose pyramid covers all of their scans.
CREATE TABLE pyramid_whole(
  task_id INTEGER PRIMARY KEY REFERENCES task ON DELETE CASCADE,
  calibration_id INTEGER NOT NULL,
  scans INTEGER NOT NULL
) STRICT;

-- Labels. task_tag is authoritative; task.tags repeats it for lists.
CREATE TABLE task_tag(
  task_id INTEGER NOT NULL REFERENCES task ON DELETE CASCADE,
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY(task_id, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX task_tag_value ON task_tag(key, value, task_id);

CREATE TABLE task_note(
  task_id INTEGER NOT NULL REFERENCES task ON DELETE CASCADE,
  number INTEGER NOT NULL,     -- from 1, in the order in which they came
  at_ns INTEGER NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY(task_id, number)
) STRICT, WITHOUT ROWID;

-- Origin of a task. GPU, driver, bench and calibration stand in task; the clocks are readings.
CREATE TABLE provenance(
  task_id INTEGER PRIMARY KEY REFERENCES task ON DELETE CASCADE,
  host TEXT NOT NULL, os TEXT NOT NULL,
  version TEXT NOT NULL, monitor_version TEXT NOT NULL, -- of wattmark
  directory TEXT NOT NULL,     -- where the command was given
  git_commit TEXT NOT NULL,    -- empty outside of a repository
  git_dirty INTEGER,           -- NULL where there is no commit
  command TEXT,                -- JSON array of words; NULL where it was not to be kept
  trace_id TEXT                -- OpenTelemetry trace of the run: 32 hexadecimal digits; NULL for none
) STRICT;

-- Rows that a repair set aside because they were damaged: deleted only with their task.
CREATE TABLE damage(
  damage_id INTEGER PRIMARY KEY,
  task_id INTEGER REFERENCES task ON DELETE CASCADE, -- NULL where there is no such task
  chunk_no INTEGER,
  at_ns INTEGER NOT NULL,
  kind TEXT NOT NULL,
  what TEXT NOT NULL,
  content TEXT NOT NULL        -- JSON; blobs in hexadecimal
) STRICT;
CREATE INDEX damage_task ON damage(task_id);

-- Full text over names, notes and tags, by task_id.
CREATE VIRTUAL TABLE task_text USING fts5(name, notes, tags);
CREATE TRIGGER task_text_begin AFTER INSERT ON task BEGIN
  INSERT INTO task_text(rowid, name, notes, tags) VALUES(new.task_id, new.name, '', '');
END;
CREATE TRIGGER task_text_name AFTER UPDATE OF name ON task BEGIN
  UPDATE task_text SET name=new.name WHERE rowid=new.task_id;
END;
CREATE TRIGGER task_text_end AFTER DELETE ON task BEGIN
  DELETE FROM task_text WHERE rowid=old.task_id;
END;
CREATE TRIGGER task_text_tag_insert AFTER INSERT ON task_tag BEGIN
  UPDATE task_text SET tags=coalesce((SELECT group_concat(key || ' ' || value, ' ') FROM task_tag WHERE task_id=new.task_id), '') WHERE rowid=new.task_id;
END;
CREATE TRIGGER task_text_tag_update AFTER UPDATE ON task_tag BEGIN
  UPDATE task_text SET tags=coalesce((SELECT group_concat(key || ' ' || value, ' ') FROM task_tag WHERE task_id=new.task_id), '') WHERE rowid=new.task_id;
END;
CREATE TRIGGER task_text_tag_delete AFTER DELETE ON task_tag BEGIN
  UPDATE task_text SET tags=coalesce((SELECT group_concat(key || ' ' || value, ' ') FROM task_tag WHERE task_id=old.task_id), '') WHERE rowid=old.task_id;
END;
CREATE TRIGGER task_text_note_insert AFTER INSERT ON task_note BEGIN
  UPDATE task_text SET notes=coalesce((SELECT group_concat(text, ' ') FROM task_note WHERE task_id=new.task_id), '') WHERE rowid=new.task_id;
END;
CREATE TRIGGER task_text_note_update AFTER UPDATE ON task_note BEGIN
  UPDATE task_text SET notes=coalesce((SELECT group_concat(text, ' ') FROM task_note WHERE task_id=new.task_id), '') WHERE rowid=new.task_id;
END;
CREATE TRIGGER task_text_note_delete AFTER DELETE ON task_note BEGIN
  UPDATE task_text SET notes=coalesce((SELECT group_concat(text, ' ') FROM task_note WHERE task_id=old.task_id), '') WHERE rowid=old.task_id;
END;

-- task.tags follows task_tag.
CREATE TRIGGER task_tags_insert AFTER INSERT ON task_tag BEGIN
  UPDATE task SET tags=(SELECT json_group_object(key,value) FROM (SELECT key, value FROM task_tag g WHERE g.task_id=new.task_id ORDER BY key)) WHERE task_id=new.task_id;
END;
CREATE TRIGGER task_tags_update AFTER UPDATE ON task_tag BEGIN
  UPDATE task SET tags=(SELECT json_group_object(key,value) FROM (SELECT key, value FROM task_tag g WHERE g.task_id=new.task_id ORDER BY key)) WHERE task_id=new.task_id;
END;
CREATE TRIGGER task_tags_delete AFTER DELETE ON task_tag BEGIN
  UPDATE task SET tags=(SELECT nullif(json_group_object(key,value),'{}') FROM (SELECT key, value FROM task_tag g WHERE g.task_id=old.task_id ORDER BY key)) WHERE task_id=old.task_id;
END;
