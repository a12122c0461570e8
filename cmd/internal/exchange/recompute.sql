-- Recomputes E ± U of every task of this dataset from its samples, with DuckDB alone:
--     cd DATASET && duckdb < recompute.sql
-- Energy: for each rail the trapezoid over its power between from_s and to_s, linear between two scans. Its values lie
-- behind_s after their scan's t_s (columns.parquet).
-- U: coverage_factor times the root of the sum of the squares of the budget's lines.
WITH powers AS (
  UNPIVOT (
    SELECT regexp_extract(filename, 'task-(\d+)', 1)::BIGINT AS task, scan, t_s, COLUMNS('.+_power_w(_\d+)?$')
    FROM read_parquet('task-*/rails.parquet', filename = true, union_by_name = true)
  ) ON COLUMNS('.+_power_w(_\d+)?$') INTO NAME rail_column VALUE power_w
),
scans AS (
  SELECT
    task, rail_column, t_s + behind_s AS t, power_w, lead(t_s + behind_s) OVER next AS next_t,
    lead(power_w) OVER next AS next_w
  FROM powers JOIN read_parquet('columns.parquet') USING (task, rail_column)
  WINDOW next AS (PARTITION BY task, rail_column ORDER BY scan)
),
pieces AS (
  SELECT
    r.task, power_w, t, (next_w - power_w) / (next_t - t) AS slope,
    greatest(t, r.from_s) AS a, least(next_t, r.to_s) AS b
  FROM scans s JOIN read_parquet('results.parquet') r USING (task)
  WHERE next_t > r.from_s AND t < r.to_s
),
energy AS (
  SELECT task, fsum((b - a) * (power_w + slope * ((a + b) / 2 - t))) AS energy_j
  FROM pieces GROUP BY task
),
budget AS (
  SELECT task, sqrt(fsum(u_j * u_j)) AS u_j
  FROM read_parquet('budget.parquet') GROUP BY task
)
SELECT
  task, r.name, e.energy_j, r.coverage_factor * b.u_j AS energy_u_j,
  abs(e.energy_j / r.energy_j - 1) AS energy_differs,
  abs(r.coverage_factor * b.u_j / r.energy_u_j - 1) AS u_differs,
  r.scans_lost, r.gaps
FROM read_parquet('results.parquet') r JOIN energy e USING (task) JOIN budget b USING (task)
ORDER BY task;
