-- The task database, first form. docs/format.md explains it.
-- Times named *_ns are nanoseconds since 1970-01-01 UTC on the host's clock;
-- times named *_s are seconds of device time, from the first scan of the capture.

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

CREATE TABLE task(
  task_id INTEGER PRIMARY KEY AUTOINCREMENT, -- ids are never used again
  user_id INTEGER NOT NULL REFERENCES user,
  name TEXT NOT NULL,
  launched_ns INTEGER,
  launched TEXT,               -- the same, ISO 8601, UTC
  state INTEGER NOT NULL,      -- 1 running, 2 complete, 3 incomplete, 4 untrimmed
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
  nvml_j REAL                  -- by the GPU's own sensor over the same window
) STRICT;
CREATE INDEX task_user ON task(user_id, task_id);
CREATE INDEX task_name ON task(name, task_id);
CREATE INDEX task_user_name ON task(user_id, name, task_id);
CREATE INDEX task_launched ON task(launched_ns, task_id);
CREATE INDEX task_running ON task(task_id) WHERE state = 1;
CREATE INDEX task_calibration ON task(calibration_id);

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

CREATE TABLE event(
  task_id INTEGER NOT NULL REFERENCES task ON DELETE CASCADE,
  first_scan INTEGER NOT NULL,
  kind INTEGER NOT NULL,       -- 1 gap, 2 over-range, 3 overflow, 4 resync, 5 reopen, 6 note
  scans INTEGER NOT NULL,
  exact INTEGER NOT NULL,
  channel INTEGER NOT NULL,    -- -1 for all
  detail TEXT NOT NULL,
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

-- Marker edges as the host played them.
CREATE TABLE played(
  task_id INTEGER NOT NULL REFERENCES task ON DELETE CASCADE,
  kind INTEGER NOT NULL,
  chip INTEGER NOT NULL,
  at_ns INTEGER NOT NULL,
  PRIMARY KEY(task_id, kind, chip)
) STRICT, WITHOUT ROWID;

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
