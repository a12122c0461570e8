-- The view data decodes the chunks (docs/format.md) into the paper's twelve columns.

-- The first n counts of a block of 256 of a column: base and width stand in the
-- directory, and so does where the block's bytes begin. Only those are fetched of
-- the column's data. A column that is not there has no counts.
CREATE FUNCTION wattmark_counts(dir bytea, data bytea, block integer, n integer) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE COST 1000 AS $$
DECLARE
  e bytea := substring(dir FROM 8*block+1 FOR 8);
  base bigint := get_byte(e,0) | (get_byte(e,1)<<8) | (get_byte(e,2)<<16);
  w integer := get_byte(e,4) | (get_byte(e,5)<<8);
  mask bigint := (1::bigint<<w)-1;
  d bytea;
BEGIN
  -- The base is signed: its upper bit weighs -2^31. Every shift stands in brackets,
  -- for here it binds no tighter than an or.
  base := (base | (get_byte(e,3)::bigint<<24)) - (get_byte(e,3)>>7)::bigint*4294967296;
  IF w = 0 THEN
    RETURN array_fill(base, ARRAY[n]);
  END IF;
  d := substring(data FROM 1+32*(get_byte(e,6) | (get_byte(e,7)<<8)) FOR 32*w) || '\x0000000000'::bytea;
  IF w <= 9 THEN -- within two bytes, wherever a value begins in the first
    RETURN ARRAY(SELECT base + ((get_byte(d,p>>3) | (get_byte(d,(p>>3)+1)<<8))>>(p&7) & mask::integer)
      FROM generate_series(0, w*(n-1), w) p);
  ELSIF w <= 17 THEN
    RETURN ARRAY(SELECT base + ((get_byte(d,p>>3) | (get_byte(d,(p>>3)+1)<<8) | (get_byte(d,(p>>3)+2)<<16))>>(p&7) & mask::integer)
      FROM generate_series(0, w*(n-1), w) p);
  END IF;
  RETURN ARRAY(SELECT base + ((get_byte(d,p>>3) | (get_byte(d,(p>>3)+1)<<8) | (get_byte(d,(p>>3)+2)<<16)
      | (get_byte(d,(p>>3)+3)::bigint<<24) | (get_byte(d,(p>>3)+4)::bigint<<32))>>(p&7) & mask)
    FROM generate_series(0, w*(n-1), w) p);
END $$;

-- The blocks of warm tasks' chunks that the window touches. seq is the sequence number of the
-- block's first scan; scans lo to hi of the block are in the window.
CREATE VIEW wattmark_block AS
SELECT t.task_id, t.name, u.login, t.launched, k.calibration_id, k.one_a_role, c.chunk_no, p.i AS block,
  c.first_scan + 256*p.i - coalesce(t.first_scan, (SELECT first_scan FROM chunk WHERE task_id=t.task_id ORDER BY chunk_no LIMIT 1)) AS seq,
  greatest(0, coalesce(t.first_scan,0) - c.first_scan - 256*p.i) AS lo,
  least(256, c.n - 256*p.i, coalesce(t.end_scan - c.first_scan - 256*p.i, 256))::integer AS hi
FROM task t JOIN "user" u ON u.user_id=t.user_id
JOIN calibration k ON k.calibration_id=t.calibration_id
JOIN chunk c ON c.task_id=t.task_id AND (t.has_result=0 OR (c.first_scan<t.end_scan AND c.first_scan+c.n>t.first_scan))
CROSS JOIN LATERAL generate_series(greatest(0, coalesce((t.first_scan-c.first_scan)/256, 0))::integer,
  least((c.n-1)/256, coalesce((t.end_scan-1-c.first_scan)/256, c.n))::integer) p(i)
WHERE t.cold=0;

-- Two branches, of which a task takes one: rails of different roles (the usual
-- bench), or several rails in a role. Within a role currents and powers are added,
-- and the voltage is the one that makes their product right. A rail that reads
-- watts has neither current nor voltage.
CREATE VIEW wattmark_warm AS
SELECT b.task_id AS taskID, b.name AS taskName, b.login AS "user",
  coalesce((r1.i0+r1.ix*s.x1+r1.iy*coalesce(s.y1,0))*(r1.v0+r1.vy*coalesce(s.y1,0)), 0)
  + coalesce((r2.i0+r2.ix*s.x2+r2.iy*coalesce(s.y2,0))*(r2.v0+r2.vy*coalesce(s.y2,0)), 0)
  + coalesce((r3.i0+r3.ix*s.x3+r3.iy*coalesce(s.y3,0))*(r3.v0+r3.vy*coalesce(s.y3,0)), 0)
  + coalesce((r4.i0+r4.ix*s.x4+r4.iy*coalesce(s.y4,0))*(r4.v0+r4.vy*coalesce(s.y4,0)), 0) AS power,
  CASE WHEN r1.wiring<>4 THEN r1.i0+r1.ix*s.x1+r1.iy*coalesce(s.y1,0) END AS current1,
  CASE WHEN r2.wiring<>4 THEN r2.i0+r2.ix*s.x2+r2.iy*coalesce(s.y2,0) END AS current2,
  CASE WHEN r3.wiring<>4 THEN r3.i0+r3.ix*s.x3+r3.iy*coalesce(s.y3,0) END AS current3,
  CASE WHEN r1.wiring<>4 THEN r1.v0+r1.vy*coalesce(s.y1,0) END AS voltage1,
  CASE WHEN r2.wiring<>4 THEN r2.v0+r2.vy*coalesce(s.y2,0) END AS voltage2,
  CASE WHEN r3.wiring<>4 THEN r3.v0+r3.vy*coalesce(s.y3,0) END AS voltage3,
  b.launched AS taskTime, b.seq+s.i-1 AS seqNum
FROM wattmark_block b
LEFT JOIN rail r1 ON r1.calibration_id=b.calibration_id AND r1.role=1
LEFT JOIN rail r2 ON r2.calibration_id=b.calibration_id AND r2.role=2
LEFT JOIN rail r3 ON r3.calibration_id=b.calibration_id AND r3.role=3
LEFT JOIN rail r4 ON r4.calibration_id=b.calibration_id AND r4.role=4
LEFT JOIN chunk_column x1 ON x1.task_id=b.task_id AND x1.chunk_no=b.chunk_no AND x1.col=r1.x
LEFT JOIN chunk_column y1 ON y1.task_id=b.task_id AND y1.chunk_no=b.chunk_no AND y1.col=r1.y
LEFT JOIN chunk_column x2 ON x2.task_id=b.task_id AND x2.chunk_no=b.chunk_no AND x2.col=r2.x
LEFT JOIN chunk_column y2 ON y2.task_id=b.task_id AND y2.chunk_no=b.chunk_no AND y2.col=r2.y
LEFT JOIN chunk_column x3 ON x3.task_id=b.task_id AND x3.chunk_no=b.chunk_no AND x3.col=r3.x
LEFT JOIN chunk_column y3 ON y3.task_id=b.task_id AND y3.chunk_no=b.chunk_no AND y3.col=r3.y
LEFT JOIN chunk_column x4 ON x4.task_id=b.task_id AND x4.chunk_no=b.chunk_no AND x4.col=r4.x
LEFT JOIN chunk_column y4 ON y4.task_id=b.task_id AND y4.chunk_no=b.chunk_no AND y4.col=r4.y
CROSS JOIN LATERAL unnest(
  wattmark_counts(x1.dir, x1.data, b.block, b.hi), wattmark_counts(y1.dir, y1.data, b.block, b.hi),
  wattmark_counts(x2.dir, x2.data, b.block, b.hi), wattmark_counts(y2.dir, y2.data, b.block, b.hi),
  wattmark_counts(x3.dir, x3.data, b.block, b.hi), wattmark_counts(y3.dir, y3.data, b.block, b.hi),
  wattmark_counts(x4.dir, x4.data, b.block, b.hi), wattmark_counts(y4.dir, y4.data, b.block, b.hi)
) WITH ORDINALITY s(x1, y1, x2, y2, x3, y3, x4, y4, i)
WHERE b.one_a_role=1 AND s.i>b.lo
UNION ALL
SELECT b.task_id, b.name, b.login, s.power,
  CASE WHEN s.g1 THEN s.a1 END, CASE WHEN s.g2 THEN s.a2 END, CASE WHEN s.g3 THEN s.a3 END,
  CASE WHEN s.g1 THEN CASE s.n1 WHEN 1 THEN s.v1 ELSE s.p1/nullif(s.a1,0) END END,
  CASE WHEN s.g2 THEN CASE s.n2 WHEN 1 THEN s.v2 ELSE s.p2/nullif(s.a2,0) END END,
  CASE WHEN s.g3 THEN CASE s.n3 WHEN 1 THEN s.v3 ELSE s.p3/nullif(s.a3,0) END END,
  b.launched, b.seq+s.i-1
FROM wattmark_block b CROSS JOIN LATERAL (
  SELECT q.i, sum(f.a*f.v) AS power,
    sum(f.a) FILTER (WHERE r.role=1) AS a1, sum(f.a) FILTER (WHERE r.role=2) AS a2, sum(f.a) FILTER (WHERE r.role=3) AS a3,
    sum(f.v) FILTER (WHERE r.role=1) AS v1, sum(f.v) FILTER (WHERE r.role=2) AS v2, sum(f.v) FILTER (WHERE r.role=3) AS v3,
    sum(f.a*f.v) FILTER (WHERE r.role=1) AS p1, sum(f.a*f.v) FILTER (WHERE r.role=2) AS p2, sum(f.a*f.v) FILTER (WHERE r.role=3) AS p3,
    count(*) FILTER (WHERE r.role=1) AS n1, count(*) FILTER (WHERE r.role=2) AS n2, count(*) FILTER (WHERE r.role=3) AS n3,
    bool_and(r.wiring<>4) FILTER (WHERE r.role=1) AS g1, bool_and(r.wiring<>4) FILTER (WHERE r.role=2) AS g2,
    bool_and(r.wiring<>4) FILTER (WHERE r.role=3) AS g3
  FROM rail r
  JOIN chunk_column x ON x.task_id=b.task_id AND x.chunk_no=b.chunk_no AND x.col=r.x
  LEFT JOIN chunk_column y ON y.task_id=b.task_id AND y.chunk_no=b.chunk_no AND y.col=r.y
  CROSS JOIN LATERAL unnest(wattmark_counts(x.dir, x.data, b.block, b.hi), wattmark_counts(y.dir, y.data, b.block, b.hi))
    WITH ORDINALITY q(x, y, i)
  CROSS JOIN LATERAL (SELECT r.i0+r.ix*q.x+r.iy*coalesce(q.y,0) AS a, r.v0+r.vy*coalesce(q.y,0) AS v) f
  WHERE r.calibration_id=b.calibration_id GROUP BY q.i ORDER BY q.i) s
WHERE b.one_a_role=0 AND s.i>b.lo;

-- Cold tasks cannot be read in SQL: each is one row without values, and stands in the view
-- cold with the way out.
CREATE VIEW data AS SELECT * FROM wattmark_warm
UNION ALL
SELECT t.task_id, t.name, u.login, NULL, NULL, NULL, NULL, NULL, NULL, NULL, t.launched, NULL
FROM task t JOIN "user" u ON u.user_id=t.user_id WHERE t.cold=1;

CREATE VIEW cold AS SELECT task_id AS taskID, name AS taskName,
  'packed: wattmark reads it as it is; wattmark db expand ' || task_id || ' brings it back for other programs' AS message
FROM task WHERE cold=1;
