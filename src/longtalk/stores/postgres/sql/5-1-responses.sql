-- Store what the responses of the provider said besides the message and the usage. A redaction removes it, because it
-- may quote the entry.

ALTER TABLE {s}.turns ADD responses bytea[] NOT NULL DEFAULT '{}';
ALTER TYPE {s}.head_row ADD ATTRIBUTE responses bytea[];

-- The function `write` gets the responses after the usage reports, in the same array; `calls` is the number of reports.
CREATE FUNCTION {s}.split_responses() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- A row that is copied from another table has them apart already.
    IF TG_OP = 'UPDATE' OR cardinality(NEW.usage) > NEW.calls THEN
        NEW.responses := coalesce(NEW.usage[NEW.calls + 1 :], '{}');
        NEW.usage := coalesce(NEW.usage[: NEW.calls], '{}');
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER split_responses BEFORE INSERT OR UPDATE OF usage ON {s}.turns
FOR EACH ROW EXECUTE FUNCTION {s}.split_responses();

CREATE OR REPLACE FUNCTION {s}.head_of(_b {s}.branches, _outcome text, _records boolean) RETURNS {s}.head_row
LANGUAGE plpgsql STABLE AS $$
DECLARE
    h {s}.head_row;
BEGIN
    IF _b.id IS NULL THEN
        h.outcome := _outcome;
        RETURN h;
    END IF;
    SELECT _outcome, _b.name, _b.revision, _b.size, _b.entry, _b.token, _b.holder, _b.until, _b.held, c.created,
        _b.updated, t.name, t.status, t.model, t.started, t.ended, t.finish, t.usage, t.preamble, t.error,
        t.responses
    INTO h.outcome, h.branch, h.revision, h.size, h.entry, h.token, h.holder, h.until, h.held, h.created,
        h.updated, h.turn, h.status, h.model, h.started, h.ended, h.finish, h.usage, h.preamble, h.error,
        h.responses
    FROM {s}.conversations c LEFT JOIN {s}.turns t ON t.id = _b.turn WHERE c.id = _b.conversation;
    IF _records AND cardinality(_b.records) > 0 THEN
        SELECT array_agg(r.place ORDER BY r.id), array_agg(r.kind ORDER BY r.id), array_agg(r.entry ORDER BY r.id),
            array_agg(r.at ORDER BY r.id), array_agg(r.data ORDER BY r.id)
        INTO h.places, h.kinds, h.entries, h.times, h.datas FROM {s}.records r WHERE r.id = ANY (_b.records);
    END IF;
    RETURN h;
END $$;

DROP FUNCTION {s}.turns(text, text, text, bigint, bigint);
CREATE FUNCTION {s}.turns(_owner text, _name text, _branch text, _start bigint, _stop bigint)
RETURNS TABLE (place int, name text, status text, model text, started bigint, ended bigint, finish text, usage bytea[],
    preamble text, error text, responses bytea[]) LANGUAGE plpgsql STABLE SET enable_seqscan = off AS $$
BEGIN
    PERFORM {s}.ask(_owner);
    RETURN QUERY SELECT x.place, (x.turn).name, (x.turn).status, (x.turn).model, (x.turn).started, (x.turn).ended,
        (x.turn).finish, (x.turn).usage, (x.turn).preamble, (x.turn).error, (x.turn).responses
        FROM {s}.begun({s}.branch_at(_owner, _name, _branch), _start, _stop) x;
END $$;

DROP FUNCTION {s}.requests(text, text, text);
-- Return the turn with an idempotency key, or all turns with a key. Each comes with a branch that has the turn on its
-- path: preferably the branch that the turn was made on.
CREATE FUNCTION {s}.requests(_owner text, _name text, _key text)
RETURNS TABLE (key text, body text, branch text, place int, name text, status text, model text, started bigint,
    ended bigint, finish text, usage bytea[], preamble text, error text, responses bytea[])
LANGUAGE plpgsql STABLE SET enable_seqscan = off AS $$
DECLARE
    c bigint;
BEGIN
    PERFORM {s}.ask(_owner);
    SELECT x.id INTO c FROM {s}.conversations x WHERE x.owner = _owner AND x.name = _name;
    RETURN QUERY SELECT DISTINCT ON (r.key) r.key, r.body, coalesce(x.name, r.branch), coalesce(x.place, r.place),
        t.name, t.status, t.model, t.started, t.ended, t.finish, t.usage, t.preamble, t.error, t.responses
        FROM {s}.requests r JOIN {s}.turns t ON t.id = r.turn
        LEFT JOIN LATERAL (
            SELECT b.name, {s}.begins(c, t.name, b.segment, b.size) AS place FROM {s}.branches b
            WHERE b.conversation = c
        ) x ON x.place IS NOT NULL
        WHERE r.conversation = c AND (_key IS NULL OR r.key = _key) ORDER BY r.key, x.name <> r.branch, x.name;
END $$;

-- Remove the responses and the texts of errors, which may quote the entry, and the digest of the request for its turn.
CREATE OR REPLACE FUNCTION {s}.redact(_owner text, _name text, _turn text, _number bigint, _native bytea, _crc bigint)
RETURNS boolean LANGUAGE plpgsql SET enable_seqscan = off AS $$
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
        UPDATE {s}.turns t SET error = CASE t.error WHEN '' THEN '' ELSE '[redacted]' END, responses = '{}'
        WHERE t.conversation = c AND (t.error <> '' OR t.responses <> '{}');
        UPDATE {s}.requests q SET body = '' FROM {s}.turns t
        WHERE q.conversation = c AND t.id = q.turn AND t.conversation = c AND t.name = _turn;
        UPDATE {s}.branches b SET revision = b.revision + 1, stale = true WHERE b.conversation = c;
        PERFORM {s}.refresh(c, NULL);
    END IF;
    RETURN is_there;
END $$;
