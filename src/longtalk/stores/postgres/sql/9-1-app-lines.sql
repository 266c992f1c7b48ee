-- Know the kind of records that has the lines of the app that left a brief, and find the conversations that have them.

CREATE OR REPLACE FUNCTION {s}.replaced() RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ARRAY[
        'anchor', 'app_lines', 'attempt', 'epoch', 'excluded', 'handle', 'memory', 'meter', 'pins', 'receipt',
        'settings', 'suffix', 'summary', 'window'
    ]
$$;
CREATE OR REPLACE FUNCTION {s}.alone() RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ARRAY['app_lines', 'epoch', 'excluded', 'memory', 'pins', 'settings']
$$;

-- No other branch sees a record of a kind that is for its own branch only, so the other heads needn't be refreshed. This
-- changes one line of the function `write`.
DO $$
DECLARE
    old text := 'shared := shared OR at_place < new_base OR at_place < forked;';
    new text := 'shared := shared OR of_kind <> ALL ({s}.alone()) AND (at_place < new_base OR at_place < forked);';
    body text := pg_get_functiondef('{s}.write'::regproc);
BEGIN
    IF strpos(body, old) = 0 THEN
        RAISE 'the function write of this schema is not the expected one';
    END IF;
    EXECUTE replace(body, old, new);
END $$;

-- Return the names of the conversations that have a branch whose head includes a record of this kind.
CREATE FUNCTION {s}.conversations_with(_owner text, _kind text) RETURNS SETOF text LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM {s}.ask(_owner);
    RETURN QUERY SELECT c.name FROM {s}.conversations c WHERE c.owner = _owner AND EXISTS (
        SELECT FROM {s}.branches b JOIN {s}.records r ON r.id = ANY (b.records)
        WHERE b.conversation = c.id AND r.kind = _kind
    );
END $$;
