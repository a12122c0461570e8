-- A task's row carries its tags as a JSON object, keys in order, so that a list finds them
-- in the row; NULL where it has none. task_tag is what counts, and what filters ask.
ALTER TABLE task ADD COLUMN tags text COLLATE "C";
CREATE FUNCTION wattmark_listed_tags() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE id bigint := CASE WHEN TG_OP='DELETE' THEN old.task_id ELSE new.task_id END;
BEGIN
  UPDATE task SET tags=(SELECT json_object_agg(key,value ORDER BY key)::text FROM task_tag WHERE task_id=id) WHERE task_id=id;
  RETURN NULL;
END $$;
CREATE TRIGGER task_tags AFTER INSERT OR UPDATE OR DELETE ON task_tag FOR EACH ROW EXECUTE FUNCTION wattmark_listed_tags();
UPDATE task SET tags=g.tags FROM (SELECT task_id, json_object_agg(key,value ORDER BY key)::text AS tags FROM task_tag GROUP BY task_id) g
WHERE g.task_id=task.task_id;
