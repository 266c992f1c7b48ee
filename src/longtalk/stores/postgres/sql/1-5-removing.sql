-- Functions that replace metadata, and that redact and delete permanently.

CREATE FUNCTION {s}.describe(_owner text, _name text, _turn text, _number bigint, _meta bytea) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    c bigint;
BEGIN
    PERFORM {s}.ask(_owner);
    SELECT x.id INTO c FROM {s}.conversations x WHERE x.owner = _owner AND x.name = _name FOR NO KEY UPDATE;
    IF _turn IS NULL THEN
        UPDATE {s}.conversations x SET meta = _meta WHERE x.id = c;
    ELSE
        INSERT INTO {s}.entry_meta AS m (segment, place, owner, meta)
        SELECT e.segment, e.place, _owner, _meta FROM {s}.entries e
        WHERE e.conversation = c AND e.turn = _turn AND e.number = _number
        ON CONFLICT (segment, place) DO UPDATE SET meta = excluded.meta;
    END IF;
    RETURN FOUND;
END $$;

CREATE FUNCTION {s}.redact(_owner text, _name text, _turn text, _number bigint, _native bytea, _crc bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    c bigint;
    e record;
    is_there boolean := false;
BEGIN
    PERFORM {s}.ask(_owner);
    SELECT x.id INTO c FROM {s}.conversations x WHERE x.owner = _owner AND x.name = _name FOR NO KEY UPDATE;
    FOR e IN SELECT x.segment, x.place FROM {s}.entries x
        WHERE x.conversation = c AND x.turn = _turn AND x.number = _number
    LOOP
        is_there := true;
        UPDATE {s}.entries x SET native = _native, crc = _crc, text = NULL
        WHERE x.segment = e.segment AND x.place = e.place;
        DELETE FROM {s}.words x WHERE x.segment = e.segment AND x.place = e.place;
        DELETE FROM {s}.entry_meta x WHERE x.segment = e.segment AND x.place = e.place;
        UPDATE {s}.segments x SET indexed = least(x.indexed, e.place) WHERE x.id = e.segment;
        WITH RECURSIVE behind (id) AS (
            SELECT x.id FROM {s}.segments x WHERE x.conversation = c AND x.up = e.segment AND x.base > e.place
            UNION ALL
            SELECT x.id FROM behind JOIN {s}.segments x ON x.conversation = c AND x.up = behind.id
        )
        DELETE FROM {s}.records r WHERE r.kind <> ALL ({s}.bare())
            AND ((r.segment = e.segment AND r.place >= e.place) OR r.segment IN (SELECT b.id FROM behind b));
    END LOOP;
    IF is_there THEN
        UPDATE {s}.branches b SET revision = b.revision + 1, stale = true WHERE b.conversation = c;
        PERFORM {s}.refresh(c, NULL);
    END IF;
    RETURN is_there;
END $$;

-- Delete a conversation and return the numbers of deleted rows. With `_only`, delete it only if it still has this id.
CREATE FUNCTION {s}.remove(_owner text, _name text, _only bigint)
RETURNS TABLE (id bigint, entries bigint, turns bigint, records bigint, branches bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    c {s}.conversations;
    parts bigint[];
BEGIN
    PERFORM {s}.ask(_owner);
    SELECT * INTO c FROM {s}.conversations x
    WHERE x.owner = _owner AND x.name = _name AND x.id = coalesce(_only, x.id) FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    parts := ARRAY(SELECT x.id FROM {s}.segments x WHERE x.conversation = c.id);
    id := c.id;
    entries := c.entries;
    DELETE FROM {s}.words x WHERE x.segment = ANY (parts);
    DELETE FROM {s}.entry_meta x WHERE x.segment = ANY (parts);
    DELETE FROM {s}.entries x WHERE x.segment = ANY (parts);
    DELETE FROM {s}.records x WHERE x.segment = ANY (parts);
    GET DIAGNOSTICS records = ROW_COUNT;
    DELETE FROM {s}.requests x WHERE x.conversation = c.id;
    DELETE FROM {s}.turns x WHERE x.conversation = c.id;
    GET DIAGNOSTICS turns = ROW_COUNT;
    DELETE FROM {s}.branches x WHERE x.conversation = c.id;
    GET DIAGNOSTICS branches = ROW_COUNT;
    DELETE FROM {s}.segments x WHERE x.conversation = c.id;
    DELETE FROM {s}.conversations x WHERE x.id = c.id;
    RETURN NEXT;
END $$;
