-- Least, greatest and mean power over 64, 1024, 16384 and 262144 scans, made while
-- the chunks come in; docs/format.md has a page's layout. It is of the calibration
-- that was in force and can be made anew from the chunks at any time.
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
