-- Know the kind of record that has passages which were recalled in the present epoch.

CREATE OR REPLACE FUNCTION {s}.replaced() RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ARRAY[
        'anchor', 'app_lines', 'attempt', 'epoch', 'excluded', 'handle', 'memory', 'meter', 'passages', 'pins', 'recall',
        'receipt', 'settings', 'suffix', 'summary', 'window'
    ]
$$;
CREATE OR REPLACE FUNCTION {s}.passing() RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ARRAY['anchor', 'meter', 'passages']
$$;
