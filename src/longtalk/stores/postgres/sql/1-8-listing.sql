-- Functions that list what a running turn doesn't need. OFFSET 0 makes the planner look up the inner query in an index
-- for each outer row. Its own estimates are too often wrong, because the sizes of conversations differ widely.

-- Return the turns that begin at the positions `_start` to `_stop - 1` of a path.
CREATE FUNCTION {s}.begun(_b {s}.branches, _start bigint, _stop bigint) RETURNS TABLE (place int, turn {s}.turns)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY SELECT x.place, t.turn FROM (
        SELECT e.turn, min(e.place) AS place FROM {s}.path(_b.segment, _b.size, _start) p CROSS JOIN LATERAL (
            SELECT y.turn, y.place FROM {s}.entries y WHERE y.segment = p.segment
                AND y.place >= greatest(p.first, _start) AND y.place < least(p.stop, _stop) OFFSET 0
        ) e GROUP BY e.turn
    ) x CROSS JOIN LATERAL (
        SELECT y AS turn FROM {s}.turns y WHERE y.conversation = _b.conversation AND y.name = x.turn OFFSET 0
    ) t WHERE _start <= 0 OR {s}.begins(_b.conversation, x.turn, _b.segment, _b.size) = x.place ORDER BY x.place;
END $$;

CREATE FUNCTION {s}.turns(_owner text, _name text, _branch text, _start bigint, _stop bigint)
RETURNS TABLE (place int, name text, status text, model text, started bigint, ended bigint, finish text, usage bytea[],
    preamble text, error text) LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM {s}.ask(_owner);
    RETURN QUERY SELECT x.place, (x.turn).name, (x.turn).status, (x.turn).model, (x.turn).started, (x.turn).ended,
        (x.turn).finish, (x.turn).usage, (x.turn).preamble, (x.turn).error
        FROM {s}.begun({s}.branch_at(_owner, _name, _branch), _start, _stop) x;
END $$;

CREATE FUNCTION {s}.manifests(_owner text, _name text, _branch text, _start bigint, _stop bigint)
RETURNS TABLE (turn text, manifest bytea) LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM {s}.ask(_owner);
    RETURN QUERY SELECT (x.turn).name, (x.turn).manifest
        FROM {s}.begun({s}.branch_at(_owner, _name, _branch), _start, _stop) x WHERE (x.turn).manifest IS NOT NULL;
END $$;

CREATE FUNCTION {s}.manifest(_owner text, _name text, _turn text) RETURNS bytea LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM {s}.ask(_owner);
    RETURN (
        SELECT t.manifest FROM {s}.conversations c JOIN {s}.turns t ON t.conversation = c.id AND t.name = _turn
        WHERE c.owner = _owner AND c.name = _name
    );
END $$;

CREATE FUNCTION {s}.records(_owner text, _name text, _branch text, _kind text)
RETURNS TABLE (place int, kind text, entry text, at bigint, data bytea) LANGUAGE plpgsql STABLE AS $$
DECLARE
    b {s}.branches;
BEGIN
    PERFORM {s}.ask(_owner);
    b := {s}.branch_at(_owner, _name, _branch);
    RETURN QUERY SELECT r.place, r.kind, r.entry, r.at, r.data FROM {s}.path(b.segment, b.size, -1) p
        CROSS JOIN LATERAL (
            SELECT * FROM {s}.records x WHERE x.segment = p.segment AND x.place < p.stop OFFSET 0
        ) r WHERE _kind IS NULL OR r.kind = _kind ORDER BY r.id;
END $$;

CREATE FUNCTION {s}.metas(_owner text, _name text, _branch text, _start bigint, _stop bigint)
RETURNS TABLE (place int, meta bytea) LANGUAGE plpgsql STABLE AS $$
DECLARE
    b {s}.branches;
BEGIN
    PERFORM {s}.ask(_owner);
    b := {s}.branch_at(_owner, _name, _branch);
    RETURN QUERY SELECT m.place, m.meta FROM {s}.path(b.segment, b.size, _start) p CROSS JOIN LATERAL (
            SELECT * FROM {s}.entry_meta x WHERE x.segment = p.segment AND x.place >= greatest(p.first, _start)
                AND x.place < least(p.stop, _stop) OFFSET 0
        ) m ORDER BY m.place;
END $$;

-- Return the turn with an idempotency key, or all turns with a key. Each comes with a branch that has the turn on its
-- path: preferably the branch that the turn was made on.
CREATE FUNCTION {s}.requests(_owner text, _name text, _key text)
RETURNS TABLE (key text, body text, branch text, place int, name text, status text, model text, started bigint,
    ended bigint, finish text, usage bytea[], preamble text, error text) LANGUAGE plpgsql STABLE AS $$
DECLARE
    c bigint;
BEGIN
    PERFORM {s}.ask(_owner);
    SELECT x.id INTO c FROM {s}.conversations x WHERE x.owner = _owner AND x.name = _name;
    RETURN QUERY SELECT DISTINCT ON (r.key) r.key, r.body, coalesce(x.name, r.branch), coalesce(x.place, r.place),
        t.name, t.status, t.model, t.started, t.ended, t.finish, t.usage, t.preamble, t.error
        FROM {s}.requests r JOIN {s}.turns t ON t.id = r.turn
        LEFT JOIN LATERAL (
            SELECT b.name, {s}.begins(c, t.name, b.segment, b.size) AS place FROM {s}.branches b
            WHERE b.conversation = c
        ) x ON x.place IS NOT NULL
        WHERE r.conversation = c AND (_key IS NULL OR r.key = _key) ORDER BY r.key, x.name <> r.branch, x.name;
END $$;

CREATE FUNCTION {s}.branches(_owner text, _name text) RETURNS SETOF {s}.head_row LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM {s}.ask(_owner);
    RETURN QUERY SELECT h.* FROM {s}.conversations c JOIN {s}.branches b ON b.conversation = c.id
        CROSS JOIN LATERAL {s}.head_of(b, 'ok', false) h WHERE c.owner = _owner AND c.name = _name ORDER BY b.name;
END $$;

CREATE TYPE {s}.summary_row AS (
    name text, created bigint, updated bigint, entries bigint, meta bytea, branches text[]
);

CREATE FUNCTION {s}.summary(_owner text, _name text) RETURNS SETOF {s}.summary_row LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM {s}.ask(_owner);
    RETURN QUERY SELECT c.name, c.created, c.updated, c.entries, c.meta,
        ARRAY(SELECT b.name FROM {s}.branches b WHERE b.conversation = c.id ORDER BY b.name)
        FROM {s}.conversations c WHERE c.owner = _owner AND c.name = _name;
END $$;

-- Return conversations, the most recently changed first, after the one with this time and name.
CREATE FUNCTION {s}.conversations(_owner text, _at bigint, _name text, _most bigint) RETURNS SETOF {s}.summary_row
LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM {s}.ask(_owner);
    RETURN QUERY SELECT c.name, c.created, c.updated, c.entries, c.meta,
        ARRAY(SELECT b.name FROM {s}.branches b WHERE b.conversation = c.id ORDER BY b.name)
        FROM {s}.conversations c
        WHERE c.owner = _owner AND c.updated <= _at AND (c.updated < _at OR c.name > _name)
        ORDER BY c.updated DESC, c.name LIMIT _most;
END $$;

-- Return all rows that an integrity check needs: see `verify.py`.
CREATE FUNCTION {s}.kept(_owner text, _name text)
RETURNS TABLE (what text, segment bigint, place int, number bigint, name text, data bytea)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
    c {s}.conversations;
BEGIN
    PERFORM {s}.ask(_owner);
    SELECT * INTO c FROM {s}.conversations x WHERE x.owner = _owner AND x.name = _name;
    -- The position at which a segment starts, and the position before which no entry may be missing.
    RETURN QUERY SELECT 'segment', s.id, s.base, greatest(s.base,
            (SELECT max(b.size) FROM {s}.branches b WHERE b.conversation = c.id AND b.segment = s.id),
            (SELECT max(t.base) FROM {s}.segments t WHERE t.conversation = c.id AND t.up = s.id))::bigint,
        NULL, NULL::bytea FROM {s}.segments s WHERE s.conversation = c.id ORDER BY s.id;
    RETURN QUERY SELECT 'entry', s.id, e.place, e.crc, NULL, e.native FROM {s}.segments s CROSS JOIN LATERAL (
            SELECT * FROM {s}.entries x WHERE x.segment = s.id OFFSET 0
        ) e WHERE s.conversation = c.id ORDER BY s.id, e.place;
    RETURN QUERY SELECT 'branch', NULL::bigint, NULL::int, NULL::bigint, b.name, b.holder
        FROM {s}.branches b WHERE b.conversation = c.id AND b.holder IS NOT NULL;
    RETURN QUERY SELECT 'data on', NULL::bigint, NULL::int, NULL::bigint, c.name, c.meta WHERE c.id IS NOT NULL;
    RETURN QUERY SELECT 'data on the entry at place', NULL::bigint, NULL::int, NULL::bigint, m.place::text, m.meta
        FROM {s}.segments s CROSS JOIN LATERAL (
            SELECT * FROM {s}.entry_meta x WHERE x.segment = s.id OFFSET 0
        ) m WHERE s.conversation = c.id;
END $$;
