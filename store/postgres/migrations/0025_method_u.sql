-- The expanded uncertainty (k = 2) that a software method states of its own energy; 0 where
-- it states none.
ALTER TABLE method_result ADD COLUMN energy_u_j double precision NOT NULL DEFAULT 0;
