-- A task's row carries its tags as a JSON object, keys in order, so that a list finds them
-- in the row; NULL where it has none. task_tag is what counts, and what filters ask.
ALTER TABLE task ADD COLUMN tags TEXT;
CREATE TRIGGER task_tags_insert AFTER INSERT ON task_tag BEGIN
  UPDATE task SET tags=(SELECT json_group_object(key,value) FROM (SELECT key, value FROM task_tag g WHERE g.task_id=new.task_id ORDER BY key)) WHERE task_id=new.task_id;
END;
CREATE TRIGGER task_tags_update AFTER UPDATE ON task_tag BEGIN
  UPDATE task SET tags=(SELECT json_group_object(key,value) FROM (SELECT key, value FROM task_tag g WHERE g.task_id=new.task_id ORDER BY key)) WHERE task_id=new.task_id;
END;
CREATE TRIGGER task_tags_delete AFTER DELETE ON task_tag BEGIN
  UPDATE task SET tags=(SELECT nullif(json_group_object(key,value),'{}') FROM (SELECT key, value FROM task_tag g WHERE g.task_id=old.task_id ORDER BY key)) WHERE task_id=old.task_id;
END;
UPDATE task SET tags=(SELECT json_group_object(key,value) FROM (SELECT key, value FROM task_tag g WHERE g.task_id=task.task_id ORDER BY key))
WHERE task_id IN (SELECT task_id FROM task_tag);
