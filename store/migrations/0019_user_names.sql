-- A user's tasks in their order carry their names, so that those whose names are asked for
-- are picked out of the index alone.
DROP INDEX task_user;
CREATE INDEX task_user ON task(user_id, task_id, name);
