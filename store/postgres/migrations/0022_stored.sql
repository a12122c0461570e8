-- When a task came into this database, by whatever way: what retention counts its age from.
-- NULL is not known, and no age.
ALTER TABLE task ADD COLUMN stored_ns bigint;

-- Of tasks that are here already: a measured task came when it was launched, and not before
-- those that came before it. A recording that was imported or replayed may be much older
-- than its row, so it counts as stored now.
UPDATE task SET stored_ns = CASE WHEN task.capture_id='' OR task.gpu='recorded' THEN n.now ELSE least(coalesce(s.ns, n.now), n.now) END
FROM (SELECT task_id, max(launched_ns) OVER (ORDER BY task_id) AS ns FROM task) s,
  (SELECT CAST(extract(epoch FROM now())*1000000 AS bigint)*1000 AS now) n
WHERE s.task_id=task.task_id;

CREATE INDEX task_stored ON task(stored_ns, task_id);
