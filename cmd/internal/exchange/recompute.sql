-- Recomputes E ± U of every task of this dataset from its samples, with DuckDB alone:
--     cd DATASET && duckdb < recompute.sql
-- Energy: the trapezoid over power_w between from_s and to_s, linear between two scans.
-- U: coverage_factor times the root of the sum of the squares of the budget's lines.
WITH scans AS (
  SELECT
    regexp_extract(filename, 'task-(\d+)', 1)::BIGINT AS task,
    t_s, power_w,
    lead(t_s) OVER next AS next_t,
    lead(power_w) OVER next AS next_w
  FROM read_parquet('task-*/rails.parquet', filename = true, union_by_name = true)
  WINDOW next AS (PARTITION BY filename ORDER BY scan)
),
pieces AS (
  SELECT
    r.task, power_w, t_s, (next_w - power_w) / (next_t - t_s) AS slope,
    greatest(t_s, r.from_s) AS a, least(next_t, r.to_s) AS b
  FROM scans s JOIN read_parquet('results.parquet') r USING (task)
  WHERE next_t > r.from_s AND t_s < r.to_s
),
energy AS (
  SELECT task, fsum((b - a) * (power_w + slope * ((a + b) / 2 - t_s))) AS energy_j
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
