-- The method whose readings nvml_j integrates, as reading.method has it; NULL where no
-- energy of the GPU's own sensor was kept, or the task is older than this column.
ALTER TABLE task ADD COLUMN nvml_method text COLLATE "C";
