-- Functions that read. They are STABLE, so that all queries of a function see the same state.

-- Kinds of records, as in `transcript/record_kinds.py`: `newest_only`, `own_branch_only`, `may_discard_replaced`, and
-- those without `quotes_entries`.
CREATE FUNCTION {s}.replaced() RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ARRAY['anchor', 'attempt', 'epoch', 'handle', 'memory', 'meter', 'pins', 'receipt', 'summary', 'window']
$$;
CREATE FUNCTION {s}.alone() RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ARRAY['epoch', 'memory']
$$;
CREATE FUNCTION {s}.passing() RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ARRAY['anchor', 'meter']
$$;
CREATE FUNCTION {s}.bare() RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ARRAY['anchor', 'meter', 'pins', 'receipt', 'window']
$$;

CREATE TYPE {s}.head_row AS (
    outcome text, branch text, revision bigint, size int, entry text, token bigint, holder bytea, until bigint,
    held bigint, created bigint, updated bigint, turn text, status text, model text, started bigint, ended bigint,
    finish text, usage bytea[], preamble text, error text, places int[], kinds text[], entries text[], times bigint[], datas bytea[]
);

-- Return the spans of the path of `_size` entries that ends in a segment, the last span first. Spans before the one
-- that contains the position `_start` are left out.
CREATE FUNCTION {s}.path(_segment bigint, _size bigint, _start bigint)
RETURNS TABLE (segment bigint, first int, stop int, depth int) LANGUAGE sql STABLE AS $$
    WITH RECURSIVE walk (id, up, base, stop, depth) AS (
        SELECT s.id, s.up, s.base, _size::int, 0 FROM {s}.segments s WHERE s.id = _segment
        UNION ALL
        SELECT s.id, s.up, s.base, w.base, w.depth + 1 FROM walk w JOIN {s}.segments s ON s.id = w.up
        WHERE w.base > _start
    )
    SELECT w.id, w.base, w.stop, w.depth FROM walk w
$$;

CREATE FUNCTION {s}.branch_at(_owner text, _name text, _branch text) RETURNS {s}.branches
LANGUAGE sql STABLE AS $$
    SELECT b.* FROM {s}.conversations c JOIN {s}.branches b ON b.conversation = c.id AND b.name = _branch
    WHERE c.owner = _owner AND c.name = _name
$$;

CREATE FUNCTION {s}.head_of(_b {s}.branches, _outcome text, _records boolean) RETURNS {s}.head_row
LANGUAGE plpgsql STABLE AS $$
DECLARE
    h {s}.head_row;
BEGIN
    IF _b.id IS NULL THEN
        h.outcome := _outcome;
        RETURN h;
    END IF;
    SELECT _outcome, _b.name, _b.revision, _b.size, _b.entry, _b.token, _b.holder, _b.until, _b.held, c.created,
        _b.updated, t.name, t.status, t.model, t.started, t.ended, t.finish, t.usage, t.preamble, t.error
    INTO h.outcome, h.branch, h.revision, h.size, h.entry, h.token, h.holder, h.until, h.held, h.created,
        h.updated, h.turn, h.status, h.model, h.started, h.ended, h.finish, h.usage, h.preamble, h.error
    FROM {s}.conversations c LEFT JOIN {s}.turns t ON t.id = _b.turn WHERE c.id = _b.conversation;
    IF _records AND cardinality(_b.records) > 0 THEN
        SELECT array_agg(r.place ORDER BY r.id), array_agg(r.kind ORDER BY r.id), array_agg(r.entry ORDER BY r.id),
            array_agg(r.at ORDER BY r.id), array_agg(r.data ORDER BY r.id)
        INTO h.places, h.kinds, h.entries, h.times, h.datas FROM {s}.records r WHERE r.id = ANY (_b.records);
    END IF;
    RETURN h;
END $$;

CREATE FUNCTION {s}.head(_owner text, _name text, _branch text) RETURNS {s}.head_row
LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM {s}.ask(_owner);
    RETURN {s}.head_of({s}.branch_at(_owner, _name, _branch), 'ok', true);
END $$;

CREATE FUNCTION {s}.read(_owner text, _name text, _branch text, _start bigint, _stop bigint)
RETURNS TABLE (turn text, number bigint, parent text, kind text, role text, wire text, at bigint, mark text,
    bound text, tokens bigint, native bytea) LANGUAGE plpgsql STABLE AS $$
DECLARE
    b {s}.branches;
    part record;
    n bigint;
BEGIN
    PERFORM {s}.ask(_owner);
    b := {s}.branch_at(_owner, _name, _branch);
    -- One query per span, so that the planner always reads one range of an index.
    FOR part IN SELECT * FROM {s}.path(b.segment, b.size, greatest(_start, 0)) p ORDER BY p.depth DESC LOOP
        RETURN QUERY SELECT e.turn, e.number, e.parent, e.kind, e.role, e.wire, e.at, e.mark, e.bound, e.tokens,
            e.native FROM {s}.entries e
            WHERE e.segment = part.segment AND e.place >= greatest(_start, part.first)
                AND e.place < least(_stop, part.stop)
            ORDER BY e.segment, e.place;
        GET DIAGNOSTICS n = ROW_COUNT;
        IF n < least(_stop, part.stop) - greatest(_start, part.first) THEN
            RAISE 'entries are missing' USING ERRCODE = 'LT500';
        END IF;
    END LOOP;
END $$;

-- Return the entries of several ranges of a path, each with the number of its range.
CREATE FUNCTION {s}.pick(_owner text, _name text, _branch text, _starts bigint[], _stops bigint[])
RETURNS TABLE (part bigint, turn text, number bigint, parent text, kind text, role text, wire text, at bigint, mark text,
    bound text, tokens bigint, native bytea) LANGUAGE plpgsql STABLE AS $$
DECLARE
    b {s}.branches;
    span record;
    n bigint;
    wanted bigint;
BEGIN
    PERFORM {s}.ask(_owner);
    b := {s}.branch_at(_owner, _name, _branch);
    FOR span IN SELECT * FROM {s}.path(b.segment, b.size, greatest(_starts[1], 0)) p ORDER BY p.depth DESC LOOP
        RETURN QUERY SELECT r.i, e.turn, e.number, e.parent, e.kind, e.role, e.wire, e.at, e.mark, e.bound, e.tokens,
            e.native FROM unnest(_starts, _stops) WITH ORDINALITY r (start, stop, i)
            JOIN {s}.entries e ON e.segment = span.segment AND e.place >= greatest(r.start, span.first)
                AND e.place < least(r.stop, span.stop)
            ORDER BY r.i, e.place;
        GET DIAGNOSTICS n = ROW_COUNT;
        SELECT sum(greatest(0, least(r.stop, span.stop) - greatest(r.start, span.first))) INTO wanted
        FROM unnest(_starts, _stops) r (start, stop);
        IF n < wanted THEN
            RAISE 'entries are missing' USING ERRCODE = 'LT500';
        END IF;
    END LOOP;
END $$;

CREATE FUNCTION {s}.entry_at(_segment bigint, _size bigint) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT e.turn || '-' || e.number FROM {s}.path(_segment, _size, _size - 1) p
    JOIN {s}.entries e ON e.segment = p.segment AND e.place = _size - 1 WHERE p.first < _size AND p.stop >= _size
$$;

-- Return the last turn that has an entry on a path.
CREATE FUNCTION {s}.turn_on(_segment bigint, _size bigint) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    part record;
    found_turn bigint;
BEGIN
    FOR part IN SELECT * FROM {s}.path(_segment, _size, -1) p ORDER BY p.depth LOOP
        SELECT t.id INTO found_turn FROM {s}.entries e
            JOIN {s}.turns t ON t.conversation = e.conversation AND t.name = e.turn
            WHERE e.segment = part.segment AND e.place >= part.first AND e.place < part.stop
            ORDER BY e.segment DESC, e.place DESC LIMIT 1;
        IF FOUND THEN
            RETURN found_turn;
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

-- Return the position of a turn's first entry on a path.
CREATE FUNCTION {s}.begins(_conversation bigint, _turn text, _segment bigint, _size bigint) RETURNS int
LANGUAGE sql STABLE AS $$
    SELECT min(e.place) FROM {s}.path(_segment, _size, -1) p
    JOIN {s}.entries e ON e.segment = p.segment AND e.place < p.stop
    WHERE e.conversation = _conversation AND e.turn = _turn
$$;

-- Return the ids of the records that belong to the head of a path.
CREATE FUNCTION {s}.shown_on(_segment bigint, _size bigint) RETURNS bigint[] LANGUAGE sql STABLE AS $$
    SELECT coalesce(array_agg(x.id ORDER BY x.id), ARRAY[]::bigint[]) FROM (
        SELECT r.id, r.kind, row_number() OVER (PARTITION BY r.kind ORDER BY r.id DESC) AS newest
        FROM {s}.path(_segment, _size, -1) p JOIN {s}.records r ON r.segment = p.segment AND r.place < p.stop
    ) x WHERE x.newest = 1 OR x.kind <> ALL ({s}.replaced())
$$;
