-- Know the kinds of records that say how a conversation is held, and what followed the message of a turn.

CREATE OR REPLACE FUNCTION {s}.replaced() RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ARRAY[
        'anchor', 'attempt', 'epoch', 'excluded', 'handle', 'memory', 'meter', 'pins', 'receipt', 'settings', 'suffix',
        'summary', 'window'
    ]
$$;
CREATE OR REPLACE FUNCTION {s}.alone() RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ARRAY['epoch', 'excluded', 'memory', 'pins', 'settings']
$$;
