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

-- Return the heads of the branches of some conversations that were changed last, at most `_most` of each. The outcome of
-- each head is the name of its conversation.
CREATE FUNCTION {s}.heads(_owner text, _names text[], _most bigint) RETURNS SETOF {s}.head_row LANGUAGE plpgsql STABLE
AS $$
BEGIN
    PERFORM {s}.ask(_owner);
    RETURN QUERY SELECT h.* FROM unnest(_names) WITH ORDINALITY AS wanted (name, number)
        JOIN {s}.conversations c ON c.owner = _owner AND c.name = wanted.name
        CROSS JOIN LATERAL (
            SELECT b.* FROM {s}.branches b WHERE b.conversation = c.id ORDER BY b.updated DESC, b.name LIMIT _most
        ) newest
        CROSS JOIN LATERAL {s}.head_of(newest::{s}.branches, c.name, true) h
        ORDER BY wanted.number, newest.updated DESC, newest.name;
END $$;
ALTER FUNCTION {s}.heads SET enable_seqscan = off;
