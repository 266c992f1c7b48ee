-- A redaction also removes the texts of errors, which may quote the entry, and the digest of the request for its turn.

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
        UPDATE {s}.turns t SET error = '[redacted]' WHERE t.conversation = c AND t.error <> '';
        UPDATE {s}.requests q SET body = '' FROM {s}.turns t
        WHERE q.conversation = c AND t.id = q.turn AND t.conversation = c AND t.name = _turn;
        UPDATE {s}.branches b SET revision = b.revision + 1, stale = true WHERE b.conversation = c;
        PERFORM {s}.refresh(c, NULL);
    END IF;
    RETURN is_there;
END $$;
