-- The energy of kernels too short to be bracketed, from a task that holds many
-- launches of one. docs/tiny-kernels.md explains the methods.

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
