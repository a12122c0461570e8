-- Least, greatest and mean power over 64, 1024, 16384 and 262144 scans, made while
-- the chunks come in; docs/format.md has a page's layout. It is of the calibration
-- that was in force and can be made anew from the chunks at any time.
CREATE TABLE pyramid(
  task_id bigint NOT NULL REFERENCES task ON DELETE CASCADE,
  level bigint NOT NULL,
  page bigint NOT NULL,       -- 1024 bins
  data bytea NOT NULL,
  PRIMARY KEY(task_id, level, page)
);
-- The tasks whose pyramid covers all of their scans.
CREATE TABLE pyramid_whole(
  task_id bigint PRIMARY KEY REFERENCES task ON DELETE CASCADE,
  calibration_id bigint NOT NULL,
  scans bigint NOT NULL
);
ALTER TABLE pyramid ALTER COLUMN data SET STORAGE EXTERNAL;
