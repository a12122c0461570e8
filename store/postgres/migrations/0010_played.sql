-- A program's kernels may be bracketed by markers of their own, so a task can have
-- many of one kind. number counts them from 1; 0 are those around the whole work.
ALTER TABLE played RENAME TO played_once;
CREATE TABLE played(
  task_id bigint NOT NULL REFERENCES task ON DELETE CASCADE,
  kind bigint NOT NULL,
  number bigint NOT NULL,
  chip bigint NOT NULL,
  at_ns bigint NOT NULL,
  PRIMARY KEY(task_id, kind, number, chip)
);
INSERT INTO played SELECT task_id, kind, 0, chip, at_ns FROM played_once;
DROP TABLE played_once;
