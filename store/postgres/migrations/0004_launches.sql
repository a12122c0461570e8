-- The kernels of a program that was recorded from within (wattmark run --auto),
-- and the energy by their names. docs/format.md explains them. The table kernel
-- says when the work ran as a whole; it bounds the window.

-- The processes that left a log.
CREATE TABLE launch_process(
  task_id bigint NOT NULL REFERENCES task ON DELETE CASCADE,
  process bigint NOT NULL,    -- from 0
  pid bigint NOT NULL,
  cupti bigint NOT NULL,      -- version of CUPTI's interface; 0 where it was not found
  kernels bigint NOT NULL,    -- stored
  reported bigint NOT NULL,   -- handed out by CUPTI
  dropped bigint NOT NULL,    -- lost within CUPTI
  whole bigint NOT NULL,      -- 0: the log was cut short
  trouble text COLLATE "C" NOT NULL,
  PRIMARY KEY(task_id, process)
);

CREATE TABLE launch_name(
  task_id bigint NOT NULL REFERENCES task ON DELETE CASCADE,
  name_no bigint NOT NULL,    -- from 0
  name text COLLATE "C" NOT NULL,          -- as the compiler made it
  PRIMARY KEY(task_id, name_no)
);

CREATE TABLE launch_device(
  task_id bigint NOT NULL REFERENCES task ON DELETE CASCADE,
  device_no bigint NOT NULL,  -- from 0
  process bigint NOT NULL,
  ordinal bigint NOT NULL,    -- the process's CUDA ordinal
  uuid text COLLATE "C" NOT NULL,          -- empty where the driver did not tell
  measured bigint NOT NULL,   -- 1: it is the GPU that the meter measured
  PRIMARY KEY(task_id, device_no)
);

-- One row an execution, on the host's clock.
CREATE TABLE launch(
  task_id bigint NOT NULL REFERENCES task ON DELETE CASCADE,
  start_ns bigint NOT NULL,
  launch_no bigint NOT NULL,  -- in the order of the logs, from 0
  end_ns bigint NOT NULL,
  name_no bigint NOT NULL,
  device_no bigint NOT NULL,
  stream bigint NOT NULL,
  correlation bigint NOT NULL, -- the launch that it came from; nodes of a graph share one
  graph bigint NOT NULL,       -- id of the CUDA graph, 0 for none
  grid_x bigint NOT NULL, grid_y bigint NOT NULL, grid_z bigint NOT NULL,
  block_x bigint NOT NULL, block_y bigint NOT NULL, block_z bigint NOT NULL,
  PRIMARY KEY(task_id, start_ns, launch_no)
);

-- The window's energy by kernel name, for each result.
CREATE TABLE kernel_energy(
  task_id bigint NOT NULL,
  number bigint NOT NULL,     -- of the result
  ordinal bigint NOT NULL,
  class bigint NOT NULL,      -- 1 kernel, 2 active idle, 3 idle
  name text COLLATE "C" NOT NULL,          -- empty but for kernels
  launches bigint NOT NULL,
  short bigint NOT NULL,      -- of these, shorter than the meter resolves
  busy_s double precision, share_s double precision,   -- durations; time by the rule of equal shares
  energy_j double precision, energy_u_j double precision, -- expanded uncertainty, k = 2
  PRIMARY KEY(task_id, number, ordinal),
  FOREIGN KEY(task_id, number) REFERENCES result ON DELETE CASCADE
);
