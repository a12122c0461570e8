-- Labels of tasks, where they came from, what was found damaged, and tasks that
-- are packed tighter. docs/format.md and docs/database.md explain them.

ALTER TABLE task ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0; -- 1: retention leaves it
ALTER TABLE task ADD COLUMN cold INTEGER NOT NULL DEFAULT 0;   -- 1: its chunks are in chunk_cold

-- By what an import knows a task again.
CREATE INDEX task_capture ON task(capture_id, launched_ns);

CREATE TABLE task_tag(
  task_id INTEGER NOT NULL REFERENCES task ON DELETE CASCADE,
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY(task_id, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX task_tag_value ON task_tag(key, value, task_id);

CREATE TABLE task_note(
  task_id INTEGER NOT NULL REFERENCES task ON DELETE CASCADE,
  number INTEGER NOT NULL,     -- from 1, in the order in which they came
  at_ns INTEGER NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY(task_id, number)
) STRICT, WITHOUT ROWID;

-- What a task was run from. GPU, driver, bench and calibration stand in task; the
-- clocks are readings.
CREATE TABLE provenance(
  task_id INTEGER PRIMARY KEY REFERENCES task ON DELETE CASCADE,
  host TEXT NOT NULL, os TEXT NOT NULL,
  version TEXT NOT NULL, monitor_version TEXT NOT NULL, -- of wattmark
  directory TEXT NOT NULL,     -- where the command was given
  git_commit TEXT NOT NULL,    -- empty outside of a repository
  git_dirty INTEGER,           -- NULL where there is no commit
  command TEXT                 -- JSON array of words; NULL where it was not to be kept
) STRICT;

-- What was set aside because it was damaged: never deleted but with its task.
CREATE TABLE damage(
  damage_id INTEGER PRIMARY KEY,
  task_id INTEGER REFERENCES task ON DELETE CASCADE, -- NULL where there is no such task
  chunk_no INTEGER,
  at_ns INTEGER NOT NULL,
  kind TEXT NOT NULL,
  what TEXT NOT NULL,
  content TEXT NOT NULL        -- JSON; blobs in hexadecimal
) STRICT;
CREATE INDEX damage_task ON damage(task_id);

-- The columns of a cold task's chunk, coded tighter. Its row in chunk stays.
CREATE TABLE chunk_cold(
  task_id INTEGER NOT NULL,
  chunk_no INTEGER NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY(task_id, chunk_no),
  FOREIGN KEY(task_id, chunk_no) REFERENCES chunk ON DELETE CASCADE
) STRICT;

-- Full text over names, notes and tags, by task_id.
CREATE VIRTUAL TABLE task_text USING fts5(name, notes, tags);
INSERT INTO task_text(rowid, name, notes, tags) SELECT task_id, name, '', '' FROM task;
CREATE TRIGGER task_text_begin AFTER INSERT ON task BEGIN
  INSERT INTO task_text(rowid, name, notes, tags) VALUES(new.task_id, new.name, '', '');
END;
CREATE TRIGGER task_text_name AFTER UPDATE OF name ON task BEGIN
  UPDATE task_text SET name=new.name WHERE rowid=new.task_id;
END;
CREATE TRIGGER task_text_end AFTER DELETE ON task BEGIN
  DELETE FROM task_text WHERE rowid=old.task_id;
END;
CREATE TRIGGER task_text_tag_insert AFTER INSERT ON task_tag BEGIN
  UPDATE task_text SET tags=coalesce((SELECT group_concat(key || ' ' || value, ' ') FROM task_tag WHERE task_id=new.task_id), '') WHERE rowid=new.task_id;
END;
CREATE TRIGGER task_text_tag_update AFTER UPDATE ON task_tag BEGIN
  UPDATE task_text SET tags=coalesce((SELECT group_concat(key || ' ' || value, ' ') FROM task_tag WHERE task_id=new.task_id), '') WHERE rowid=new.task_id;
END;
CREATE TRIGGER task_text_tag_delete AFTER DELETE ON task_tag BEGIN
  UPDATE task_text SET tags=coalesce((SELECT group_concat(key || ' ' || value, ' ') FROM task_tag WHERE task_id=old.task_id), '') WHERE rowid=old.task_id;
END;
CREATE TRIGGER task_text_note_insert AFTER INSERT ON task_note BEGIN
  UPDATE task_text SET notes=coalesce((SELECT group_concat(text, ' ') FROM task_note WHERE task_id=new.task_id), '') WHERE rowid=new.task_id;
END;
CREATE TRIGGER task_text_note_update AFTER UPDATE ON task_note BEGIN
  UPDATE task_text SET notes=coalesce((SELECT group_concat(text, ' ') FROM task_note WHERE task_id=new.task_id), '') WHERE rowid=new.task_id;
END;
CREATE TRIGGER task_text_note_delete AFTER DELETE ON task_note BEGIN
  UPDATE task_text SET notes=coalesce((SELECT group_concat(text, ' ') FROM task_note WHERE task_id=old.task_id), '') WHERE rowid=old.task_id;
END;

-- The view of 0002, but for cold tasks: SQL cannot read those. Each is one row
-- without values, and stands in the view cold with what to do.
DROP VIEW data;
CREATE VIEW data AS
SELECT tid taskID, nm taskName, us user,
  coalesce((i01+ix1*x1+iy1*y1)*(v01+vy1*y1),0.0)+coalesce((i02+ix2*x2+iy2*y2)*(v02+vy2*y2),0.0)
  +coalesce((i03+ix3*x3+iy3*y3)*(v03+vy3*y3),0.0)+coalesce((i04+ix4*x4+iy4*y4)*(v04+vy4*y4),0.0) power,
  (i01+ix1*x1+iy1*y1)*g1 current1, (i02+ix2*x2+iy2*y2)*g2 current2, (i03+ix3*x3+iy3*y3)*g3 current3,
  (v01+vy1*y1)*g1 voltage1, (v02+vy2*y2)*g2 voltage2, (v03+vy3*y3)*g3 voltage3,
  tm taskTime, CAST(seq AS INTEGER) seqNum FROM (
SELECT tid,
  nm,
  us,
  tm,
  f+s.i seq,
  i01,
  ix1,
  iy1,
  v01,
  vy1,
  g1,
  i02,
  ix2,
  iy2,
  v02,
  vy2,
  g2,
  i03,
  ix3,
  iy3,
  v03,
  vy3,
  g3,
  i04,
  ix4,
  iy4,
  v04,
  vy4,
  bx1+CASE WHEN wx1<=9 THEN ((SELECT v FROM _u16 WHERE b=substr(dx1,((s.i*wx1)>>3)+1,2))>>((s.i*wx1)&7))&((1<<wx1)-1)
    WHEN wx1<=25 THEN (((SELECT v FROM _u16 WHERE b=substr(dx1,((s.i*wx1)>>3)+1,2))|((SELECT v FROM _u16 WHERE b=substr(dx1,((s.i*wx1)>>3)+3,2))<<16))>>((s.i*wx1)&7))&((1<<wx1)-1)
    WHEN wx1<=32 THEN (((SELECT v FROM _u16 WHERE b=substr(dx1,((s.i*wx1)>>3)+1,2))|((SELECT v FROM _u16 WHERE b=substr(dx1,((s.i*wx1)>>3)+3,2))<<16)|((SELECT v FROM _u16 WHERE b=substr(dx1,((s.i*wx1)>>3)+5,2))<<32))>>((s.i*wx1)&7))&((1<<wx1)-1) ELSE 0 END x1,
  by1+CASE WHEN wy1<=9 THEN ((SELECT v FROM _u16 WHERE b=substr(dy1,((s.i*wy1)>>3)+1,2))>>((s.i*wy1)&7))&((1<<wy1)-1)
    WHEN wy1<=25 THEN (((SELECT v FROM _u16 WHERE b=substr(dy1,((s.i*wy1)>>3)+1,2))|((SELECT v FROM _u16 WHERE b=substr(dy1,((s.i*wy1)>>3)+3,2))<<16))>>((s.i*wy1)&7))&((1<<wy1)-1)
    WHEN wy1<=32 THEN (((SELECT v FROM _u16 WHERE b=substr(dy1,((s.i*wy1)>>3)+1,2))|((SELECT v FROM _u16 WHERE b=substr(dy1,((s.i*wy1)>>3)+3,2))<<16)|((SELECT v FROM _u16 WHERE b=substr(dy1,((s.i*wy1)>>3)+5,2))<<32))>>((s.i*wy1)&7))&((1<<wy1)-1) ELSE 0 END y1,
  bx2+CASE WHEN wx2<=9 THEN ((SELECT v FROM _u16 WHERE b=substr(dx2,((s.i*wx2)>>3)+1,2))>>((s.i*wx2)&7))&((1<<wx2)-1)
    WHEN wx2<=25 THEN (((SELECT v FROM _u16 WHERE b=substr(dx2,((s.i*wx2)>>3)+1,2))|((SELECT v FROM _u16 WHERE b=substr(dx2,((s.i*wx2)>>3)+3,2))<<16))>>((s.i*wx2)&7))&((1<<wx2)-1)
    WHEN wx2<=32 THEN (((SELECT v FROM _u16 WHERE b=substr(dx2,((s.i*wx2)>>3)+1,2))|((SELECT v FROM _u16 WHERE b=substr(dx2,((s.i*wx2)>>3)+3,2))<<16)|((SELECT v FROM _u16 WHERE b=substr(dx2,((s.i*wx2)>>3)+5,2))<<32))>>((s.i*wx2)&7))&((1<<wx2)-1) ELSE 0 END x2,
  by2+CASE WHEN wy2<=9 THEN ((SELECT v FROM _u16 WHERE b=substr(dy2,((s.i*wy2)>>3)+1,2))>>((s.i*wy2)&7))&((1<<wy2)-1)
    WHEN wy2<=25 THEN (((SELECT v FROM _u16 WHERE b=substr(dy2,((s.i*wy2)>>3)+1,2))|((SELECT v FROM _u16 WHERE b=substr(dy2,((s.i*wy2)>>3)+3,2))<<16))>>((s.i*wy2)&7))&((1<<wy2)-1)
    WHEN wy2<=32 THEN (((SELECT v FROM _u16 WHERE b=substr(dy2,((s.i*wy2)>>3)+1,2))|((SELECT v FROM _u16 WHERE b=substr(dy2,((s.i*wy2)>>3)+3,2))<<16)|((SELECT v FROM _u16 WHERE b=substr(dy2,((s.i*wy2)>>3)+5,2))<<32))>>((s.i*wy2)&7))&((1<<wy2)-1) ELSE 0 END y2,
  bx3+CASE WHEN wx3<=9 THEN ((SELECT v FROM _u16 WHERE b=substr(dx3,((s.i*wx3)>>3)+1,2))>>((s.i*wx3)&7))&((1<<wx3)-1)
    WHEN wx3<=25 THEN (((SELECT v FROM _u16 WHERE b=substr(dx3,((s.i*wx3)>>3)+1,2))|((SELECT v FROM _u16 WHERE b=substr(dx3,((s.i*wx3)>>3)+3,2))<<16))>>((s.i*wx3)&7))&((1<<wx3)-1)
    WHEN wx3<=32 THEN (((SELECT v FROM _u16 WHERE b=substr(dx3,((s.i*wx3)>>3)+1,2))|((SELECT v FROM _u16 WHERE b=substr(dx3,((s.i*wx3)>>3)+3,2))<<16)|((SELECT v FROM _u16 WHERE b=substr(dx3,((s.i*wx3)>>3)+5,2))<<32))>>((s.i*wx3)&7))&((1<<wx3)-1) ELSE 0 END x3,
  by3+CASE WHEN wy3<=9 THEN ((SELECT v FROM _u16 WHERE b=substr(dy3,((s.i*wy3)>>3)+1,2))>>((s.i*wy3)&7))&((1<<wy3)-1)
    WHEN wy3<=25 THEN (((SELECT v FROM _u16 WHERE b=substr(dy3,((s.i*wy3)>>3)+1,2))|((SELECT v FROM _u16 WHERE b=substr(dy3,((s.i*wy3)>>3)+3,2))<<16))>>((s.i*wy3)&7))&((1<<wy3)-1)
    WHEN wy3<=32 THEN (((SELECT v FROM _u16 WHERE b=substr(dy3,((s.i*wy3)>>3)+1,2))|((SELECT v FROM _u16 WHERE b=substr(dy3,((s.i*wy3)>>3)+3,2))<<16)|((SELECT v FROM _u16 WHERE b=substr(dy3,((s.i*wy3)>>3)+5,2))<<32))>>((s.i*wy3)&7))&((1<<wy3)-1) ELSE 0 END y3,
  bx4+CASE WHEN wx4<=9 THEN ((SELECT v FROM _u16 WHERE b=substr(dx4,((s.i*wx4)>>3)+1,2))>>((s.i*wx4)&7))&((1<<wx4)-1)
    WHEN wx4<=25 THEN (((SELECT v FROM _u16 WHERE b=substr(dx4,((s.i*wx4)>>3)+1,2))|((SELECT v FROM _u16 WHERE b=substr(dx4,((s.i*wx4)>>3)+3,2))<<16))>>((s.i*wx4)&7))&((1<<wx4)-1)
    WHEN wx4<=32 THEN (((SELECT v FROM _u16 WHERE b=substr(dx4,((s.i*wx4)>>3)+1,2))|((SELECT v FROM _u16 WHERE b=substr(dx4,((s.i*wx4)>>3)+3,2))<<16)|((SELECT v FROM _u16 WHERE b=substr(dx4,((s.i*wx4)>>3)+5,2))<<32))>>((s.i*wx4)&7))&((1<<wx4)-1) ELSE 0 END x4,
  by4+CASE WHEN wy4<=9 THEN ((SELECT v FROM _u16 WHERE b=substr(dy4,((s.i*wy4)>>3)+1,2))>>((s.i*wy4)&7))&((1<<wy4)-1)
    WHEN wy4<=25 THEN (((SELECT v FROM _u16 WHERE b=substr(dy4,((s.i*wy4)>>3)+1,2))|((SELECT v FROM _u16 WHERE b=substr(dy4,((s.i*wy4)>>3)+3,2))<<16))>>((s.i*wy4)&7))&((1<<wy4)-1)
    WHEN wy4<=32 THEN (((SELECT v FROM _u16 WHERE b=substr(dy4,((s.i*wy4)>>3)+1,2))|((SELECT v FROM _u16 WHERE b=substr(dy4,((s.i*wy4)>>3)+3,2))<<16)|((SELECT v FROM _u16 WHERE b=substr(dy4,((s.i*wy4)>>3)+5,2))<<32))>>((s.i*wy4)&7))&((1<<wy4)-1) ELSE 0 END y4
FROM (
SELECT t.task_id tid,
  t.name nm,
  u.login us,
  t.launched tm,
  c.first_scan+256*p.i-coalesce(t.first_scan,(SELECT first_scan FROM chunk WHERE task_id=t.task_id ORDER BY chunk_no LIMIT 1)) f,
  max(0,coalesce(t.first_scan,0)-c.first_scan-256*p.i) lo,
  min(256,c.n-256*p.i,coalesce(t.end_scan-c.first_scan-256*p.i,256)) hi,
  r1.i0 i01,
  r1.ix ix1,
  r1.iy iy1,
  r1.v0 v01,
  r1.vy vy1,
  CASE WHEN r1.wiring<>4 THEN 1 END g1,
  r2.i0 i02,
  r2.ix ix2,
  r2.iy iy2,
  r2.v0 v02,
  r2.vy vy2,
  CASE WHEN r2.wiring<>4 THEN 1 END g2,
  r3.i0 i03,
  r3.ix ix3,
  r3.iy iy3,
  r3.v0 v03,
  r3.vy vy3,
  CASE WHEN r3.wiring<>4 THEN 1 END g3,
  r4.i0 i04,
  r4.ix ix4,
  r4.iy iy4,
  r4.v0 v04,
  r4.vy vy4,
  coalesce(((SELECT v FROM _u16 WHERE b=substr(x1.dir,8*p.i+1,2))|((SELECT v FROM _u16 WHERE b=substr(x1.dir,8*p.i+3,2))<<16))-(((SELECT v FROM _u16 WHERE b=substr(x1.dir,8*p.i+3,2))>>15)<<32),0) bx1,
  (SELECT v FROM _u16 WHERE b=substr(x1.dir,8*p.i+5,2)) wx1,
  substr(x1.data,1+32*(SELECT v FROM _u16 WHERE b=substr(x1.dir,8*p.i+7,2)),32*(SELECT v FROM _u16 WHERE b=substr(x1.dir,8*p.i+5,2))+8) dx1,
  coalesce(((SELECT v FROM _u16 WHERE b=substr(y1.dir,8*p.i+1,2))|((SELECT v FROM _u16 WHERE b=substr(y1.dir,8*p.i+3,2))<<16))-(((SELECT v FROM _u16 WHERE b=substr(y1.dir,8*p.i+3,2))>>15)<<32),0) by1,
  (SELECT v FROM _u16 WHERE b=substr(y1.dir,8*p.i+5,2)) wy1,
  substr(y1.data,1+32*(SELECT v FROM _u16 WHERE b=substr(y1.dir,8*p.i+7,2)),32*(SELECT v FROM _u16 WHERE b=substr(y1.dir,8*p.i+5,2))+8) dy1,
  coalesce(((SELECT v FROM _u16 WHERE b=substr(x2.dir,8*p.i+1,2))|((SELECT v FROM _u16 WHERE b=substr(x2.dir,8*p.i+3,2))<<16))-(((SELECT v FROM _u16 WHERE b=substr(x2.dir,8*p.i+3,2))>>15)<<32),0) bx2,
  (SELECT v FROM _u16 WHERE b=substr(x2.dir,8*p.i+5,2)) wx2,
  substr(x2.data,1+32*(SELECT v FROM _u16 WHERE b=substr(x2.dir,8*p.i+7,2)),32*(SELECT v FROM _u16 WHERE b=substr(x2.dir,8*p.i+5,2))+8) dx2,
  coalesce(((SELECT v FROM _u16 WHERE b=substr(y2.dir,8*p.i+1,2))|((SELECT v FROM _u16 WHERE b=substr(y2.dir,8*p.i+3,2))<<16))-(((SELECT v FROM _u16 WHERE b=substr(y2.dir,8*p.i+3,2))>>15)<<32),0) by2,
  (SELECT v FROM _u16 WHERE b=substr(y2.dir,8*p.i+5,2)) wy2,
  substr(y2.data,1+32*(SELECT v FROM _u16 WHERE b=substr(y2.dir,8*p.i+7,2)),32*(SELECT v FROM _u16 WHERE b=substr(y2.dir,8*p.i+5,2))+8) dy2,
  coalesce(((SELECT v FROM _u16 WHERE b=substr(x3.dir,8*p.i+1,2))|((SELECT v FROM _u16 WHERE b=substr(x3.dir,8*p.i+3,2))<<16))-(((SELECT v FROM _u16 WHERE b=substr(x3.dir,8*p.i+3,2))>>15)<<32),0) bx3,
  (SELECT v FROM _u16 WHERE b=substr(x3.dir,8*p.i+5,2)) wx3,
  substr(x3.data,1+32*(SELECT v FROM _u16 WHERE b=substr(x3.dir,8*p.i+7,2)),32*(SELECT v FROM _u16 WHERE b=substr(x3.dir,8*p.i+5,2))+8) dx3,
  coalesce(((SELECT v FROM _u16 WHERE b=substr(y3.dir,8*p.i+1,2))|((SELECT v FROM _u16 WHERE b=substr(y3.dir,8*p.i+3,2))<<16))-(((SELECT v FROM _u16 WHERE b=substr(y3.dir,8*p.i+3,2))>>15)<<32),0) by3,
  (SELECT v FROM _u16 WHERE b=substr(y3.dir,8*p.i+5,2)) wy3,
  substr(y3.data,1+32*(SELECT v FROM _u16 WHERE b=substr(y3.dir,8*p.i+7,2)),32*(SELECT v FROM _u16 WHERE b=substr(y3.dir,8*p.i+5,2))+8) dy3,
  coalesce(((SELECT v FROM _u16 WHERE b=substr(x4.dir,8*p.i+1,2))|((SELECT v FROM _u16 WHERE b=substr(x4.dir,8*p.i+3,2))<<16))-(((SELECT v FROM _u16 WHERE b=substr(x4.dir,8*p.i+3,2))>>15)<<32),0) bx4,
  (SELECT v FROM _u16 WHERE b=substr(x4.dir,8*p.i+5,2)) wx4,
  substr(x4.data,1+32*(SELECT v FROM _u16 WHERE b=substr(x4.dir,8*p.i+7,2)),32*(SELECT v FROM _u16 WHERE b=substr(x4.dir,8*p.i+5,2))+8) dx4,
  coalesce(((SELECT v FROM _u16 WHERE b=substr(y4.dir,8*p.i+1,2))|((SELECT v FROM _u16 WHERE b=substr(y4.dir,8*p.i+3,2))<<16))-(((SELECT v FROM _u16 WHERE b=substr(y4.dir,8*p.i+3,2))>>15)<<32),0) by4,
  (SELECT v FROM _u16 WHERE b=substr(y4.dir,8*p.i+5,2)) wy4,
  substr(y4.data,1+32*(SELECT v FROM _u16 WHERE b=substr(y4.dir,8*p.i+7,2)),32*(SELECT v FROM _u16 WHERE b=substr(y4.dir,8*p.i+5,2))+8) dy4
FROM task t CROSS JOIN user u ON u.user_id=t.user_id AND t.cold=0
CROSS JOIN calibration k ON k.calibration_id=t.calibration_id AND k.one_a_role=1
LEFT JOIN rail r1 ON r1.calibration_id=k.calibration_id AND r1.role=1
LEFT JOIN rail r2 ON r2.calibration_id=k.calibration_id AND r2.role=2
LEFT JOIN rail r3 ON r3.calibration_id=k.calibration_id AND r3.role=3
LEFT JOIN rail r4 ON r4.calibration_id=k.calibration_id AND r4.role=4
CROSS JOIN chunk c ON c.task_id=t.task_id AND (t.has_result=0 OR (c.first_scan<t.end_scan AND c.first_scan+c.n>t.first_scan))
LEFT JOIN chunk_column x1 ON x1.task_id=c.task_id AND x1.chunk_no=c.chunk_no AND x1.col=r1.x
LEFT JOIN chunk_column y1 ON y1.task_id=c.task_id AND y1.chunk_no=c.chunk_no AND y1.col=r1.y
LEFT JOIN chunk_column x2 ON x2.task_id=c.task_id AND x2.chunk_no=c.chunk_no AND x2.col=r2.x
LEFT JOIN chunk_column y2 ON y2.task_id=c.task_id AND y2.chunk_no=c.chunk_no AND y2.col=r2.y
LEFT JOIN chunk_column x3 ON x3.task_id=c.task_id AND x3.chunk_no=c.chunk_no AND x3.col=r3.x
LEFT JOIN chunk_column y3 ON y3.task_id=c.task_id AND y3.chunk_no=c.chunk_no AND y3.col=r3.y
LEFT JOIN chunk_column x4 ON x4.task_id=c.task_id AND x4.chunk_no=c.chunk_no AND x4.col=r4.x
LEFT JOIN chunk_column y4 ON y4.task_id=c.task_id AND y4.chunk_no=c.chunk_no AND y4.col=r4.y
CROSS JOIN _seq p ON p.i<(c.n+255)/256 AND p.i>=max(0,coalesce((t.first_scan-c.first_scan)/256,0))
UNION ALL SELECT 0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0 WHERE 0) CROSS JOIN _seq s ON s.i>=lo AND s.i<hi
UNION ALL SELECT 0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0 WHERE 0)
UNION ALL
SELECT tid, nm, us, json_extract(e.value,'$[0]'),
  json_extract(e.value,'$[1]')*g1, json_extract(e.value,'$[2]')*g2, json_extract(e.value,'$[3]')*g3,
  json_extract(e.value,'$[4]')*g1, json_extract(e.value,'$[5]')*g2, json_extract(e.value,'$[6]')*g3,
  tm, CAST(f+lo+e.key AS INTEGER) FROM (
SELECT tid,
  nm,
  us,
  tm,
  f,
  lo,
  g1,
  g2,
  g3,
  (SELECT json_group_array(json(q)) FROM (
SELECT json_array(sum(a*v),
  sum(CASE role WHEN 1 THEN a END),sum(CASE role WHEN 2 THEN a END),sum(CASE role WHEN 3 THEN a END),
  CASE count(CASE role WHEN 1 THEN 1 END) WHEN 1 THEN sum(CASE role WHEN 1 THEN v END) ELSE sum(CASE role WHEN 1 THEN a*v END)/sum(CASE role WHEN 1 THEN a END) END,
  CASE count(CASE role WHEN 2 THEN 1 END) WHEN 1 THEN sum(CASE role WHEN 2 THEN v END) ELSE sum(CASE role WHEN 2 THEN a*v END)/sum(CASE role WHEN 2 THEN a END) END,
  CASE count(CASE role WHEN 3 THEN 1 END) WHEN 1 THEN sum(CASE role WHEN 3 THEN v END) ELSE sum(CASE role WHEN 3 THEN a*v END)/sum(CASE role WHEN 3 THEN a END) END) q FROM (
SELECT i,
  role,
  i0+ix*x+iy*y a,
  v0+vy*y v
FROM (
SELECT s.i,
  role,
  i0,
  ix,
  iy,
  v0,
  vy,
  bx+CASE WHEN wx<=9 THEN ((SELECT v FROM _u16 WHERE b=substr(dx,((s.i*wx)>>3)+1,2))>>((s.i*wx)&7))&((1<<wx)-1)
    WHEN wx<=25 THEN (((SELECT v FROM _u16 WHERE b=substr(dx,((s.i*wx)>>3)+1,2))|((SELECT v FROM _u16 WHERE b=substr(dx,((s.i*wx)>>3)+3,2))<<16))>>((s.i*wx)&7))&((1<<wx)-1)
    WHEN wx<=32 THEN (((SELECT v FROM _u16 WHERE b=substr(dx,((s.i*wx)>>3)+1,2))|((SELECT v FROM _u16 WHERE b=substr(dx,((s.i*wx)>>3)+3,2))<<16)|((SELECT v FROM _u16 WHERE b=substr(dx,((s.i*wx)>>3)+5,2))<<32))>>((s.i*wx)&7))&((1<<wx)-1) ELSE 0 END x,
  by+CASE WHEN wy<=9 THEN ((SELECT v FROM _u16 WHERE b=substr(dy,((s.i*wy)>>3)+1,2))>>((s.i*wy)&7))&((1<<wy)-1)
    WHEN wy<=25 THEN (((SELECT v FROM _u16 WHERE b=substr(dy,((s.i*wy)>>3)+1,2))|((SELECT v FROM _u16 WHERE b=substr(dy,((s.i*wy)>>3)+3,2))<<16))>>((s.i*wy)&7))&((1<<wy)-1)
    WHEN wy<=32 THEN (((SELECT v FROM _u16 WHERE b=substr(dy,((s.i*wy)>>3)+1,2))|((SELECT v FROM _u16 WHERE b=substr(dy,((s.i*wy)>>3)+3,2))<<16)|((SELECT v FROM _u16 WHERE b=substr(dy,((s.i*wy)>>3)+5,2))<<32))>>((s.i*wy)&7))&((1<<wy)-1) ELSE 0 END y
FROM (
SELECT r.role,
  r.i0,
  r.ix,
  r.iy,
  r.v0,
  r.vy,
  coalesce(((SELECT v FROM _u16 WHERE b=substr(x.dir,8*g.pi+1,2))|((SELECT v FROM _u16 WHERE b=substr(x.dir,8*g.pi+3,2))<<16))-(((SELECT v FROM _u16 WHERE b=substr(x.dir,8*g.pi+3,2))>>15)<<32),0) bx,
  (SELECT v FROM _u16 WHERE b=substr(x.dir,8*g.pi+5,2)) wx,
  substr(x.data,1+32*(SELECT v FROM _u16 WHERE b=substr(x.dir,8*g.pi+7,2)),32*(SELECT v FROM _u16 WHERE b=substr(x.dir,8*g.pi+5,2))+8) dx,
  coalesce(((SELECT v FROM _u16 WHERE b=substr(y.dir,8*g.pi+1,2))|((SELECT v FROM _u16 WHERE b=substr(y.dir,8*g.pi+3,2))<<16))-(((SELECT v FROM _u16 WHERE b=substr(y.dir,8*g.pi+3,2))>>15)<<32),0) by,
  (SELECT v FROM _u16 WHERE b=substr(y.dir,8*g.pi+5,2)) wy,
  substr(y.data,1+32*(SELECT v FROM _u16 WHERE b=substr(y.dir,8*g.pi+7,2)),32*(SELECT v FROM _u16 WHERE b=substr(y.dir,8*g.pi+5,2))+8) dy
FROM rail r CROSS JOIN chunk_column x ON x.task_id=g.tid AND x.chunk_no=g.cn AND x.col=r.x
LEFT JOIN chunk_column y ON y.task_id=g.tid AND y.chunk_no=g.cn AND y.col=r.y WHERE r.calibration_id=g.kid
UNION ALL SELECT 0,0,0,0,0,0,0,0,0,0,0,0 WHERE 0) CROSS JOIN _seq s ON s.i>=g.lo AND s.i<g.hi
UNION ALL SELECT 0,0,0,0,0,0,0,0,0 WHERE 0)
UNION ALL SELECT 0,0,0,0 WHERE 0) GROUP BY i ORDER BY i)) q
FROM (
SELECT t.task_id tid,
  t.name nm,
  u.login us,
  t.launched tm,
  c.first_scan+256*p.i-coalesce(t.first_scan,(SELECT first_scan FROM chunk WHERE task_id=t.task_id ORDER BY chunk_no LIMIT 1)) f,
  max(0,coalesce(t.first_scan,0)-c.first_scan-256*p.i) lo,
  min(256,c.n-256*p.i,coalesce(t.end_scan-c.first_scan-256*p.i,256)) hi,
  k.calibration_id kid,
  c.chunk_no cn,
  p.i pi,
  (SELECT CASE WHEN max(wiring=4)=0 THEN 1 END FROM rail WHERE calibration_id=k.calibration_id AND role=1) g1,
  (SELECT CASE WHEN max(wiring=4)=0 THEN 1 END FROM rail WHERE calibration_id=k.calibration_id AND role=2) g2,
  (SELECT CASE WHEN max(wiring=4)=0 THEN 1 END FROM rail WHERE calibration_id=k.calibration_id AND role=3) g3
FROM task t CROSS JOIN user u ON u.user_id=t.user_id AND t.cold=0
CROSS JOIN calibration k ON k.calibration_id=t.calibration_id AND k.one_a_role=0
CROSS JOIN chunk c ON c.task_id=t.task_id AND (t.has_result=0 OR (c.first_scan<t.end_scan AND c.first_scan+c.n>t.first_scan))
CROSS JOIN _seq p ON p.i<(c.n+255)/256 AND p.i>=max(0,coalesce((t.first_scan-c.first_scan)/256,0))
UNION ALL SELECT 0,0,0,0,0,0,0,0,0,0,0,0,0 WHERE 0) g
UNION ALL SELECT 0,0,0,0,0,0,0,0,0,0 WHERE 0) b CROSS JOIN json_each(b.q) e
UNION ALL
SELECT t.task_id, t.name, u.login, NULL, NULL, NULL, NULL, NULL, NULL, NULL, t.launched, NULL
FROM task t CROSS JOIN user u ON u.user_id=t.user_id WHERE t.cold=1;

CREATE VIEW cold AS SELECT task_id taskID, name taskName,
  'packed: wattmark reads it as it is; wattmark db expand ' || task_id || ' brings it back for other programs' message
FROM task WHERE cold=1;
CREATE INDEX task_cold ON task(task_id) WHERE cold=1;
