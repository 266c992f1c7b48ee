-- Functions that apply a commit and renew a lease.

-- Update the records and the last turn in the heads of a conversation, except that of the branch `_beside`.
CREATE FUNCTION {s}.refresh(_conversation bigint, _beside bigint) RETURNS void LANGUAGE sql AS $$
    UPDATE {s}.branches b
    SET records = {s}.shown_on(b.segment, b.size), turn = {s}.turn_on(b.segment, b.size)
    WHERE b.conversation = _conversation AND b.id IS DISTINCT FROM _beside
$$;

CREATE FUNCTION {s}.write(
    _owner text, _name text, _branch text, _expect bigint, _stamp bigint, _at bigint, _source text, _from bigint,
    _behind text, _cut bigint, _meta bytea, _token bigint, _holder bytea, _until bigint, _parent text,
    -- Entries: their turns; kind, role, wire, mark and bound of each; number, time, tokens and checksum of each.
    _turns text[], _shapes text[], _figures bigint[], _texts text[], _natives bytea[], _noted bigint[], _notes bytea[],
    -- Name, status, model, finish, preamble and error; start, end, calls, and tokens in, out, cached and written.
    _turn text[], _counts bigint[], _usage bytea[], _manifest bytea, _cost double precision, _key text, _body text,
    -- Records: kind and entry of each; position, time and tokens of each. Obsolete records: kind and entry, and time.
    _r_names text[], _r_figures bigint[], _r_datas bytea[], _d_names text[], _d_times bigint[], _d_datas bytea[]
) RETURNS {s}.head_row LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    c {s}.conversations;
    b {s}.branches;
    s {s}.branches;
    o {s}.branches;
    h {s}.head_row;
    n int := coalesce(cardinality(_natives), 0);
    many int := coalesce(cardinality(_r_datas), 0);
    fresh boolean := false;
    tip bigint;       -- the segment to which the commit appends
    new_base int;
    new_size int;
    start int;
    up_to bigint;
    last text;
    new_turn bigint;
    held bigint;
    first int;
    late boolean := false;
    shared boolean := false;
    shown bigint[];
    forked int;
    own int;
    made bigint;
    holder bigint;
    at_place int;
    of_kind text;
BEGIN
    PERFORM {s}.ask(_owner);
    LOOP
        SELECT * INTO c FROM {s}.conversations x WHERE x.owner = _owner AND x.name = _name FOR NO KEY UPDATE;
        EXIT WHEN FOUND;
        IF _expect <> 0 THEN
            RETURN {s}.head_of(NULL, 'moved', true);
        END IF;
        INSERT INTO {s}.conversations (owner, name, created, updated, entries, meta)
        VALUES (_owner, _name, _at, _at, n, coalesce(_meta, '{}')) ON CONFLICT DO NOTHING RETURNING * INTO c;
        fresh := FOUND;
        EXIT WHEN FOUND;
    END LOOP;

    SELECT * INTO b FROM {s}.branches x WHERE x.conversation = c.id AND x.name = _branch;
    IF coalesce(b.revision, 0) <> _expect THEN
        IF _stamp = ANY (b.stamps) THEN
            -- The client sends this commit again because the first reply was lost. Return the head as it was after the
            -- commit, even if the branch has grown since.
            h := {s}.head_of(b, 'ok', true);
            h.revision := _expect + 1;
            IF n > 0 THEN
                h.entry := _turns[n] || '-' || _figures[4 * n - 3];
                SELECT e.place + 1 INTO h.size FROM {s}.entries e
                WHERE e.conversation = c.id AND e.turn = _turns[n] AND e.number = _figures[4 * n - 3] LIMIT 1;
            END IF;
            RETURN h;
        END IF;
        RETURN {s}.head_of(b, 'moved', true);
    END IF;
    IF b.id IS NULL AND _source IS NOT NULL THEN
        SELECT * INTO s FROM {s}.branches x WHERE x.conversation = c.id AND x.name = _source;
        IF _behind IS NOT NULL AND s.id IS NOT NULL AND _from > s.size THEN
            RETURN {s}.head_of(s, 'moved', true);
        END IF;
        IF s.id IS NULL OR _from < 0 OR _from > s.size THEN
            RAISE 'a branch can''t begin where there is nothing' USING ERRCODE = 'LT422';
        END IF;
        IF _behind IS NOT NULL AND _behind IS DISTINCT FROM {s}.entry_at(s.segment, _from) THEN
            RETURN {s}.head_of(s, 'moved', true);
        END IF;
    ELSIF _source IS NOT NULL THEN
        RAISE 'a branch that is there has its source' USING ERRCODE = 'LT422';
    END IF;
    new_size := coalesce(b.size, _from, 0);
    start := coalesce(_cut, new_size);
    IF start < 0 OR start > new_size THEN
        RAISE 'a path can''t be cut behind its end' USING ERRCODE = 'LT422';
    END IF;

    -- The segment to append to.
    IF b.id IS NOT NULL AND start = new_size THEN
        tip := b.segment;
        new_base := b.base;
        last := b.entry;
        new_turn := b.turn;
        shown := b.records;
    ELSE
        o := CASE WHEN b.id IS NULL THEN s ELSE b END;
        -- Even a path that is cut to no entries keeps the records that are attached before its first entry. Segments
        -- that add nothing to the path before this position are skipped; otherwise, every cut would make the path
        -- longer.
        SELECT x.segment INTO up_to FROM (
            SELECT p.segment, p.depth, p.first < start + (EXISTS (
                SELECT 1 FROM {s}.records r WHERE r.segment = p.segment AND r.kind = ANY ({s}.alone())
            ))::int AS tells FROM {s}.path(o.segment, o.size, -1) p
        ) x ORDER BY x.tells DESC, CASE WHEN x.tells THEN x.depth ELSE -x.depth END LIMIT 1;
        INSERT INTO {s}.segments (owner, conversation, up, base, indexed) VALUES (_owner, c.id, up_to, start, start)
        RETURNING id INTO tip;
        new_base := start;
        new_size := start;
        last := {s}.entry_at(tip, start);
        new_turn := {s}.turn_on(tip, start);
        shown := {s}.shown_on(tip, start);
    END IF;
    IF many > 0 THEN
        SELECT coalesce(max(x.base), -1) INTO forked FROM {s}.segments x WHERE x.conversation = c.id AND x.up = tip;
        SELECT min(_r_figures[3 * i - 2]) INTO own FROM generate_series(1, many) i
        WHERE _r_names[2 * i - 1] = ANY ({s}.alone());
        IF own < forked THEN
            -- Another branch forks off after the position of a record that only this branch may see.
            INSERT INTO {s}.segments (owner, conversation, up, base, indexed)
            VALUES (_owner, c.id, tip, new_size, new_size) RETURNING id INTO tip;
            new_base := new_size;
            forked := -1;
        END IF;
    END IF;

    -- The entries.
    start := new_size;
    IF n > 0 THEN
        IF _parent IS DISTINCT FROM last THEN
            RAISE 'the parent of the first entry is %, and the entry before it is %', _parent, last
            USING ERRCODE = 'LT422';
        END IF;
        INSERT INTO {s}.entries (segment, place, owner, conversation, turn, number, parent, kind, role, wire, mark,
            bound, at, tokens, crc, text, native)
        SELECT tip, start + i - 1, _owner, c.id, _turns[i], _figures[4 * i - 3],
            CASE i WHEN 1 THEN _parent ELSE _turns[i - 1] || '-' || _figures[4 * i - 7] END,
            _shapes[5 * i - 4], _shapes[5 * i - 3], _shapes[5 * i - 2], _shapes[5 * i - 1], _shapes[5 * i],
            _figures[4 * i - 2], _figures[4 * i - 1], _figures[4 * i], _texts[i], _natives[i]
        FROM generate_series(1, n) i;
        new_size := start + n;
        last := _turns[n] || '-' || _figures[4 * n - 3];
        IF _noted IS NOT NULL THEN
            INSERT INTO {s}.entry_meta (segment, place, owner, meta)
            SELECT tip, start + x.i, _owner, x.meta FROM unnest(_noted, _notes) x (i, meta);
        END IF;
    END IF;

    -- The turn.
    IF _turn IS NOT NULL THEN
        first := start + array_position(_turns, _turn[1]) - 1;
        UPDATE {s}.turns t SET status = _turn[2], model = _turn[3], finish = _turn[4], preamble = _turn[5],
            error = _turn[6], started = _counts[1], ended = _counts[2], calls = _counts[3], input = _counts[4],
            output = _counts[5], cached = _counts[6], written = _counts[7], usage = coalesce(_usage, '{}'),
            manifest = coalesce(_manifest, t.manifest), cost = CASE WHEN _manifest IS NULL THEN t.cost ELSE _cost END
        WHERE t.conversation = c.id AND t.name = _turn[1] RETURNING t.id INTO held;
        IF NOT FOUND THEN
            late := EXISTS (SELECT 1 FROM {s}.entries e WHERE e.conversation = c.id AND e.turn = _turn[1]
                AND (e.segment <> tip OR e.place < start));
            IF late THEN
                first := {s}.begins(c.id, _turn[1], tip, new_size);
            END IF;
            IF first IS NULL THEN
                RAISE 'the turn % can''t begin without an entry', quote_literal(_turn[1]) USING ERRCODE = 'LT422';
            END IF;
            INSERT INTO {s}.turns (owner, conversation, name, status, model, finish, preamble, error, started, ended,
                calls, input, output, cached, written, usage, manifest, cost)
            VALUES (_owner, c.id, _turn[1], _turn[2], _turn[3], _turn[4], _turn[5], _turn[6], _counts[1], _counts[2],
                _counts[3], _counts[4], _counts[5], _counts[6], _counts[7], coalesce(_usage, '{}'), _manifest, _cost)
            RETURNING id INTO held;
        END IF;
        IF _key IS NOT NULL THEN
            SELECT x.turn INTO made FROM {s}.requests x WHERE x.conversation = c.id AND x.key = _key;
            IF NOT FOUND THEN
                INSERT INTO {s}.requests (conversation, key, owner, body, branch, turn, place)
                VALUES (c.id, _key, _owner, _body, _branch, held,
                    coalesce({s}.begins(c.id, _turn[1], tip, new_size), first, 0));
            ELSIF made <> held THEN
                RAISE 'the key is taken' USING ERRCODE = 'LT409';
            END IF;
        END IF;
    END IF;
    IF late THEN
        new_turn := {s}.turn_on(tip, new_size);
    ELSIF n > 0 AND _turns[n] = _turn[1] THEN
        new_turn := held;
    ELSIF n > 0 THEN
        SELECT coalesce((
            SELECT t.id FROM unnest(_turns) WITH ORDINALITY x (name, i)
            JOIN {s}.turns t ON t.conversation = c.id AND t.name = x.name ORDER BY x.i DESC LIMIT 1
        ), new_turn) INTO new_turn;
    END IF;

    -- The records.
    IF _d_datas IS NOT NULL THEN
        shown := ARRAY(
            SELECT r.id FROM {s}.records r WHERE r.id = ANY (shown) AND NOT EXISTS (
                SELECT 1 FROM generate_series(1, cardinality(_d_datas)) i
                WHERE (_d_names[2 * i - 1], _d_names[2 * i], _d_times[i], _d_datas[i]) = (r.kind, r.entry, r.at, r.data)
            ) ORDER BY r.id
        );
    END IF;
    FOR i IN 1 .. many LOOP
        at_place := _r_figures[3 * i - 2];
        of_kind := _r_names[2 * i - 1];
        IF at_place < -1 OR at_place >= new_size THEN
            RAISE 'a record can''t hold up to an entry that is not there' USING ERRCODE = 'LT422';
        END IF;
        holder := tip;
        IF at_place < new_base AND of_kind <> ALL ({s}.alone()) THEN
            SELECT p.segment INTO holder FROM {s}.path(tip, new_size, -1) p
            ORDER BY p.first > at_place, CASE WHEN p.first > at_place THEN -p.depth ELSE p.depth END LIMIT 1;
        END IF;
        INSERT INTO {s}.records (owner, conversation, segment, place, kind, entry, at, tokens, data)
        VALUES (_owner, c.id, holder, at_place, of_kind, _r_names[2 * i], _r_figures[3 * i - 1], _r_figures[3 * i],
            _r_datas[i])
        RETURNING id INTO made;
        IF of_kind = ANY ({s}.passing()) THEN
            -- Discard the replaced record, unless another branch has it in its head.
            DELETE FROM {s}.records r
            WHERE r.id = ANY (shown) AND r.kind = of_kind AND r.place >= new_base AND r.place >= forked;
        END IF;
        IF of_kind = ANY ({s}.replaced()) THEN
            shown := ARRAY(SELECT r.id FROM {s}.records r WHERE r.id = ANY (shown) AND r.kind <> of_kind ORDER BY r.id);
        END IF;
        shown := shown || made;
        shared := shared OR at_place < new_base OR at_place < forked;
    END LOOP;

    -- The branch.
    IF b.id IS NULL THEN
        INSERT INTO {s}.branches (owner, conversation, name, revision, segment, base, size, entry, turn, records, token,
            holder, until, held, stale, stamps, updated)
        VALUES (_owner, c.id, _branch, 1, tip, new_base, new_size, last, new_turn, shown, coalesce(_token, 0), _holder,
            _until, _token, true, ARRAY[_stamp], _at) RETURNING * INTO b;
    ELSE
        UPDATE {s}.branches x SET revision = b.revision + 1, segment = tip, base = new_base, size = new_size,
            entry = last, turn = new_turn, records = shown, token = greatest(x.token, _token), holder = _holder,
            until = _until, held = _token, stale = x.stale OR n > 0 OR tip <> b.segment,
            stamps = _stamp || x.stamps[1:7], updated = _at
        WHERE x.id = b.id RETURNING * INTO b;
    END IF;
    IF NOT fresh THEN
        UPDATE {s}.conversations x SET updated = greatest(x.updated, _at), entries = x.entries + n,
            meta = coalesce(_meta, x.meta) WHERE x.id = c.id;
    END IF;
    IF shared OR late THEN
        PERFORM {s}.refresh(c.id, b.id);
    END IF;
    RETURN {s}.head_of(b, 'ok', true);
END $$;

CREATE FUNCTION {s}.renew(_owner text, _name text, _branch text, _token bigint, _until bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {s}.ask(_owner);
    UPDATE {s}.branches b SET until = _until FROM {s}.conversations c
    WHERE c.owner = _owner AND c.name = _name AND b.conversation = c.id AND b.name = _branch AND b.held = _token;
    RETURN FOUND;
END $$;
