-- Know the kind of record that names the exchanges to leave out of all requests.

CREATE OR REPLACE FUNCTION {s}.replaced() RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ARRAY[
        'anchor', 'attempt', 'epoch', 'excluded', 'handle', 'memory', 'meter', 'pins', 'receipt', 'summary', 'window'
    ]
$$;
CREATE OR REPLACE FUNCTION {s}.bare() RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ARRAY['anchor', 'excluded', 'meter', 'pins', 'receipt', 'window']
$$;
