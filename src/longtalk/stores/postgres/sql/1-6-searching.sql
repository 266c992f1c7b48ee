-- Functions that index and search.

-- Return at most `_most` entries that are not indexed yet, of one conversation or of all conversations of the owner:
-- for each conversation the entries of one branch, in order. For a conversation without such entries but with a branch
-- that is marked as stale, return a row without an entry.
CREATE FUNCTION {s}.unread(_owner text, _name text, _most bigint)
RETURNS TABLE (conversation bigint, segment bigint, place int, role text, wire text, kind text, crc bigint,
    native bytea) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
    b {s}.branches;
    part record;
    room bigint := _most;
    n bigint;
    done bigint;
BEGIN
    PERFORM {s}.ask(_owner);
    FOR b IN SELECT x.* FROM {s}.branches x JOIN {s}.conversations c ON c.id = x.conversation
        WHERE x.owner = _owner AND x.stale AND (_name IS NULL OR c.name = _name) ORDER BY x.conversation, x.id
    LOOP
        EXIT WHEN room <= 0;
        CONTINUE WHEN b.conversation = done;
        FOR part IN SELECT p.segment, p.stop, s.indexed FROM {s}.path(b.segment, b.size, -1) p
            JOIN {s}.segments s ON s.id = p.segment WHERE s.indexed < p.stop ORDER BY p.depth DESC
        LOOP
            RETURN QUERY SELECT b.conversation, e.segment, e.place, e.role, e.wire, e.kind, e.crc, e.native
                FROM {s}.entries e WHERE e.segment = part.segment AND e.place >= part.indexed AND e.place < part.stop
                ORDER BY e.segment, e.place LIMIT room;
            GET DIAGNOSTICS n = ROW_COUNT;
            room := room - n;
            done := b.conversation;
            EXIT WHEN room <= 0;
        END LOOP;
        IF done IS DISTINCT FROM b.conversation THEN
            RETURN QUERY SELECT b.conversation, NULL::bigint, NULL::int, '', '', '', NULL::bigint, NULL::bytea;
            room := room - 1;
        END IF;
    END LOOP;
END $$;

-- Index entries, except those that have changed since they were read. Return whether more entries have to be indexed.
CREATE FUNCTION {s}.learn(_owner text, _conversation bigint, _segments bigint[], _places bigint[], _sums bigint[],
    _tools boolean[], _sizes bigint[], _lexemes text[], _texts text[]) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {s}.ask(_owner);
    -- This lock prevents a redaction in the meantime.
    PERFORM 1 FROM {s}.conversations c WHERE c.id = _conversation AND c.owner = _owner FOR NO KEY UPDATE;
    INSERT INTO {s}.words (segment, place, owner, conversation, tool, size, vector, text)
    SELECT x.segment, x.place, _owner, _conversation, x.tool, x.size,
        array_to_tsvector(string_to_array(x.lexemes, ' ')), x.text
    FROM unnest(_segments, _places, _sums, _tools, _sizes, _lexemes, _texts)
        x (segment, place, crc, tool, size, lexemes, text)
    JOIN {s}.entries e ON e.segment = x.segment AND e.place = x.place AND e.crc = x.crc
    WHERE x.size > 0 ON CONFLICT DO NOTHING;
    IF coalesce(cardinality(_places), 0) <> (SELECT count(*) FROM unnest(_segments, _places, _sums) x (segment, place, crc)
        JOIN {s}.entries e ON e.segment = x.segment AND e.place = x.place AND e.crc = x.crc) THEN
        -- An entry was redacted since it was read, and has to be read again.
        RETURN true;
    END IF;
    UPDATE {s}.segments s SET indexed = y.stop
    FROM (
        SELECT x.segment, min(x.place) AS start, max(x.place) + 1 AS stop
        FROM unnest(_segments, _places) x (segment, place) GROUP BY x.segment
    ) y WHERE s.id = y.segment AND s.indexed BETWEEN y.start AND y.stop;
    UPDATE {s}.branches b SET stale = false
    WHERE b.conversation = _conversation AND b.stale AND NOT EXISTS (
        SELECT 1 FROM {s}.path(b.segment, b.size, -1) p JOIN {s}.segments s ON s.id = p.segment
        WHERE s.indexed < p.stop
    );
    RETURN EXISTS (SELECT 1 FROM {s}.branches b WHERE b.conversation = _conversation AND b.stale);
END $$;

-- For each term, return the last `_most` positions of a path that match it, and the number of all matches. `_queries`
-- are index queries. If a query is not exact, `_forms` has strings, one per line, of which the text must contain one.
CREATE FUNCTION {s}.holding(_owner text, _name text, _branch text, _queries text[], _forms text[], _most bigint)
RETURNS TABLE (number bigint, places int[], count bigint) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
    b {s}.branches;
BEGIN
    PERFORM {s}.ask(_owner);
    b := {s}.branch_at(_owner, _name, _branch);
    RETURN QUERY SELECT q.i, (array_agg(w.place ORDER BY w.place DESC))[1:_most], count(*)
        FROM unnest(_queries, _forms) WITH ORDINALITY q (query, forms, i)
        JOIN {s}.words w ON w.vector @@ ('''c' || b.conversation || '.'' & (' || q.query || ')')::tsquery
        JOIN {s}.path(b.segment, b.size, -1) p ON p.segment = w.segment AND w.place < p.stop
        WHERE w.conversation = b.conversation AND NOT w.tool AND (q.forms IS NULL OR EXISTS (
            SELECT 1 FROM unnest(string_to_array(q.forms, chr(10))) f WHERE strpos(w.text, f) > 0
        ))
        GROUP BY q.i;
END $$;

-- Return the entries that contain any of the terms, ranked by BM25. `_query` and `_owned` are index queries; `_forms`
-- are the normalized terms, which are counted in the text.
CREATE FUNCTION {s}.candidates(_owner text, _name text, _forms text[], _query text, _owned text, _most bigint)
RETURNS TABLE (conversation text, branch text, place int, turn text, number bigint, role text, wire text, kind text,
    at bigint, native bytea) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
    whose text := _owned;
    query tsquery;
BEGIN
    PERFORM {s}.ask(_owner);
    IF _name IS NOT NULL THEN
        whose := (SELECT '''c' || c.id || '.''' FROM {s}.conversations c WHERE c.owner = _owner AND c.name = _name);
    END IF;
    query := whose || ' & (' || _query || ')';
    RETURN QUERY WITH terms AS (
        SELECT * FROM unnest(_forms) WITH ORDINALITY t (form, i)
    ), found AS MATERIALIZED (
        SELECT w.conversation, w.segment, w.place, w.size, t.i,
            (length(w.text) - length(replace(w.text, t.form, ''))) / length(t.form) AS times
        FROM {s}.words w CROSS JOIN terms t
        WHERE w.owner = _owner AND strpos(w.text, t.form) > 0 AND w.vector @@ query
    ), rarity AS (
        SELECT f.i, ln(1 + (greatest(a.number - count(*), 0) + 0.5) / (count(*) + 0.5)) AS weight
        FROM found f CROSS JOIN (
            SELECT coalesce(sum(c.entries), 0) AS number FROM {s}.conversations c
            WHERE c.owner = _owner AND (_name IS NULL OR c.name = _name)
        ) a GROUP BY f.i, a.number
    ), ranked AS (
        SELECT f.conversation, f.segment, f.place,
            sum(r.weight * f.times / (f.times + 1.2 * (0.25 + 0.75 * f.size / m.size))) AS score
        FROM found f JOIN rarity r ON r.i = f.i CROSS JOIN (SELECT avg(size) AS size FROM found) m
        GROUP BY f.conversation, f.segment, f.place
    ), reach AS (
        SELECT b.conversation, b.name, p.segment, p.stop
        FROM (SELECT DISTINCT conversation FROM ranked) x JOIN {s}.branches b ON b.conversation = x.conversation
        CROSS JOIN LATERAL {s}.path(b.segment, b.size, -1) p
    ), one AS (
        SELECT DISTINCT ON (k.segment, k.place) k.*, r.name AS branch
        FROM ranked k JOIN reach r ON r.segment = k.segment AND k.place < r.stop
        ORDER BY k.segment, k.place, r.name <> 'main', r.name
    )
    SELECT c.name, o.branch, o.place, e.turn, e.number, e.role, e.wire, e.kind, e.at, e.native
    FROM one o JOIN {s}.entries e ON e.segment = o.segment AND e.place = o.place
    JOIN {s}.conversations c ON c.id = o.conversation
    ORDER BY o.score DESC, e.at DESC, c.name, o.place LIMIT _most;
END $$;
