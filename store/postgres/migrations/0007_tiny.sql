-- The energy of kernels too short to be bracketed, from a task that holds many
-- launches of one. docs/tiny-kernels.md explains the methods.

CREATE TABLE tiny(
  task_id bigint PRIMARY KEY REFERENCES task ON DELETE CASCADE,
  method text COLLATE "C" NOT NULL,        -- repeat, contrast or fold
  kernel text COLLATE "C" NOT NULL,
  launches bigint NOT NULL,
  energy_j double precision, energy_u_j double precision, -- of one launch; expanded uncertainty
  length_s double precision, gap_s double precision,   -- of one launch, and between two slices of carrier, by the GPU's clock
  carrier_w double precision,              -- power of the carrier; NULL where there is none
  dof bigint NOT NULL, residual_j double precision, -- of contrast's fit
  above_j double precision, above_u_j double precision, -- fold: above the level that surrounds a launch
  plan text COLLATE "C" NOT NULL,          -- how it was played, as JSON
  warnings text COLLATE "C" NOT NULL       -- JSON array
);

CREATE TABLE tiny_budget(
  task_id bigint NOT NULL REFERENCES tiny ON DELETE CASCADE,
  ordinal bigint NOT NULL,
  source text COLLATE "C" NOT NULL,
  u_j double precision,
  systematic bigint NOT NULL,
  PRIMARY KEY(task_id, ordinal)
);

-- A folded profile: power by the time since a launch.
CREATE TABLE tiny_profile(
  task_id bigint NOT NULL REFERENCES tiny ON DELETE CASCADE,
  bin bigint NOT NULL,
  at_s double precision NOT NULL,          -- the bin's middle
  power_w double precision, u_w double precision,      -- standard uncertainty against the other bins
  readings bigint NOT NULL,
  PRIMARY KEY(task_id, bin)
);
