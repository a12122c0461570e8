-- The job that a task is part of, on however many hosts; NULL where it was not said.
ALTER TABLE task ADD COLUMN job text COLLATE "C";
CREATE INDEX task_job ON task(job, task_id) WHERE job IS NOT NULL;
