-- Know the kind of records that has segments of the recall index.

CREATE OR REPLACE FUNCTION {s}.replaced() RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ARRAY[
        'anchor', 'app_lines', 'attempt', 'epoch', 'excluded', 'handle', 'memory', 'meter', 'pins', 'recall', 'receipt',
        'settings', 'suffix', 'summary', 'window'
    ]
$$;
