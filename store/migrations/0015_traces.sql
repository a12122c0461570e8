-- The OpenTelemetry trace of a task's run: 32 hexadecimal digits; NULL where none
-- was recorded.
ALTER TABLE provenance ADD COLUMN trace_id TEXT;
