-- Each branch has its own pins and exclusions from the point where it forks.

CREATE OR REPLACE FUNCTION {s}.alone() RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ARRAY['epoch', 'excluded', 'memory', 'pins']
$$;
