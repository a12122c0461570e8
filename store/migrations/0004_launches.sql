-- The kernels of a program that was recorded from within (wattmark run --auto),
-- and the energy by their names. docs/format.md explains them. The table kernel
-- says when the work ran as a whole; it bounds the window.

-- The processes that left a log.
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

-- One row an execution, on the host's clock.
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
