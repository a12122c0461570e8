-- Lists in each of their orders, of all tasks and of a user's, without sorting; and
-- the few tasks that are not complete (state 2) among the many that are.
CREATE INDEX task_energy ON task(energy_j, task_id);
CREATE INDEX task_length ON task((to_s-from_s), task_id);
CREATE INDEX task_user_launched ON task(user_id, launched_ns, task_id);
CREATE INDEX task_user_energy ON task(user_id, energy_j, task_id);
CREATE INDEX task_user_length ON task(user_id, (to_s-from_s), task_id);
CREATE INDEX task_unusual ON task(task_id) WHERE state<>2;

-- Functions that SQLite has, and the lists and sums ask for. A pattern of glob is
-- what package store makes: [*], [?] and [[] are the signs themselves.
CREATE FUNCTION glob(pattern text, value text) RETURNS boolean LANGUAGE sql IMMUTABLE STRICT AS $$
  SELECT value LIKE replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(pattern,
    '\', '\\'), '%', '\%'), '_', '\_'), '[*]', chr(1)), '[?]', chr(2)), '[[]', '['), '*', '%'), '?', '_'), chr(1), '*'), chr(2), '?') ESCAPE '\'
$$;
CREATE FUNCTION instr(value text, part text) RETURNS integer LANGUAGE sql IMMUTABLE STRICT AS $$ SELECT strpos(value, part) $$;
