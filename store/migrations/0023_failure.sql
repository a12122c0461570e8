-- Why the work of a task failed, and with which exit code where it was a program; NULL
-- where it did not fail. Such a task ends in state 5, failed.
ALTER TABLE task ADD COLUMN failure TEXT;
ALTER TABLE task ADD COLUMN exit_code INTEGER;

-- The process that measures, by which it is known whether it still runs; NULL where
-- nobody said.
ALTER TABLE task ADD COLUMN owner TEXT;
