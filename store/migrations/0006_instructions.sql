-- Energies of single instructions: what was measured, not what follows from it.
-- docs/instructions.md explains the method.

-- One campaign is one run of the command: all its programs, over its passes.
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
