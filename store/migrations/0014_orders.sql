-- Lists in each of their orders, of all tasks and of a user's, without sorting; and
-- the few tasks that are not complete (state 2) among the many that are.
CREATE INDEX task_energy ON task(energy_j, task_id);
CREATE INDEX task_length ON task((to_s-from_s), task_id);
CREATE INDEX task_user_launched ON task(user_id, launched_ns, task_id);
CREATE INDEX task_user_energy ON task(user_id, energy_j, task_id);
CREATE INDEX task_user_length ON task(user_id, (to_s-from_s), task_id);
CREATE INDEX task_unusual ON task(task_id) WHERE state<>2;
