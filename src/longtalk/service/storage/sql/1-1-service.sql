-- The documents and event logs of the service. Names are `bytea`: a text can't have NUL or unpaired surrogates.

CREATE TABLE {s}.service_documents (
    kind bytea NOT NULL,
    key bytea NOT NULL,
    version bigint NOT NULL,
    expires bigint,
    stamp bigint NOT NULL, -- a random number of the call that put the document
    value bytea NOT NULL,
    PRIMARY KEY (kind, key)
);
CREATE INDEX service_documents_expires ON {s}.service_documents (expires) WHERE expires IS NOT NULL;
CREATE SEQUENCE {s}.service_versions;

CREATE TABLE {s}.service_events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run bytea NOT NULL,
    first bigint NOT NULL,
    count bigint NOT NULL,
    ended boolean NOT NULL,
    at bigint NOT NULL,
    data bytea NOT NULL -- the events of one append, as a MessagePack array
);
CREATE INDEX service_events_run ON {s}.service_events (run, first, id);

-- Let one transaction at a time change a document or a log, also one that does not exist. Names that happen to have the
-- same hash wait for each other without harm, because a transaction holds only one such lock.
CREATE FUNCTION {s}.service_lock(_label text, _name bytea) RETURNS void LANGUAGE sql AS $$
    SELECT pg_advisory_xact_lock(hashtextextended('{s} ' || _label || ' ' || encode(_name, 'base64'), 0))
$$;

-- Store a document and return its new version, or NULL if it doesn't have the version that is expected. A call that is
-- repeated has the same stamp, and returns the version that it has made before.
CREATE FUNCTION {s}.service_put(
    _kind bytea, _key bytea, _value bytea, _expect bigint, _expires bigint, _now bigint, _stamp bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    _old record;
    _version bigint := 0;
BEGIN
    PERFORM {s}.service_lock('document', _kind || '\x00'::bytea || _key);
    SELECT version, stamp, expires INTO _old FROM {s}.service_documents WHERE kind = _kind AND key = _key;
    IF FOUND THEN
        IF _old.stamp = _stamp THEN
            RETURN _old.version;
        END IF;
        IF _old.expires IS NULL OR _old.expires > _now THEN
            _version := _old.version;
        END IF;
    END IF;
    IF _expect <> _version THEN
        RETURN NULL;
    END IF;
    -- Numbers are drawn under the lock, so they only increase for each document.
    _version := nextval('{s}.service_versions');
    INSERT INTO {s}.service_documents (kind, key, version, expires, stamp, value)
        VALUES (_kind, _key, _version, _expires, _stamp, _value)
        ON CONFLICT (kind, key) DO UPDATE SET version = _version, expires = _expires, stamp = _stamp, value = _value;
    RETURN _version;
END
$$;

CREATE FUNCTION {s}.service_delete(_kind bytea, _key bytea, _expect bigint, _now bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {s}.service_lock('document', _kind || '\x00'::bytea || _key);
    DELETE FROM {s}.service_documents WHERE kind = _kind AND key = _key AND version = coalesce(_expect, version)
        AND (expires IS NULL OR expires > _now);
    RETURN FOUND;
END
$$;

-- Append events if the log has exactly `_first` events and has not ended, and notify those who listen. The payload is
-- the run's name after an x, or empty if the name is too long for it.
CREATE FUNCTION {s}.service_append(
    _run bytea, _first bigint, _count bigint, _data bytea, _ended boolean, _at bigint, _channel text
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    _last record;
BEGIN
    PERFORM {s}.service_lock('log', _run);
    SELECT first + count AS size, ended INTO _last FROM {s}.service_events WHERE run = _run
        ORDER BY first DESC, id DESC LIMIT 1;
    IF NOT FOUND THEN
        IF _first <> 0 THEN
            RETURN false;
        END IF;
    ELSIF _last.ended OR _last.size <> _first THEN
        RETURN false;
    ELSIF _count = 0 AND NOT _ended THEN
        RETURN true;
    END IF;
    INSERT INTO {s}.service_events (run, first, count, ended, at, data)
        VALUES (_run, _first, _count, _ended, _at, _data);
    PERFORM pg_notify(_channel, CASE WHEN octet_length(_run) <= 3000 THEN 'x' || encode(_run, 'hex') ELSE '' END);
    RETURN true;
END
$$;

-- Return the size of a log and whether it has ended, with each batch that has events of the page. There is at least one
-- row for a log that exists.
CREATE FUNCTION {s}.service_read(_run bytea, _after bigint, _limit bigint)
RETURNS TABLE (size bigint, ended boolean, first bigint, data bytea) LANGUAGE sql STABLE AS $$
    SELECT l.first + l.count, l.ended, e.first, e.data
    FROM (
        SELECT x.first, x.count, x.ended FROM {s}.service_events x WHERE x.run = _run
        ORDER BY x.first DESC, x.id DESC LIMIT 1
    ) l LEFT JOIN {s}.service_events e ON e.run = _run AND _after + 1 < l.first + l.count
        AND e.first <= _after + _limit
        AND e.first >= coalesce(
            (SELECT max(y.first) FROM {s}.service_events y WHERE y.run = _run AND y.first <= _after + 1), 0)
    ORDER BY e.first, e.id
$$;

-- Rows are nearly in the order of time, so the first recent row ends the search for old logs.
CREATE FUNCTION {s}.service_purge(_now bigint, _before bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    _count bigint;
    _run bytea;
BEGIN
    DELETE FROM {s}.service_documents WHERE expires < _now;
    GET DIAGNOSTICS _count = ROW_COUNT;
    FOR _run IN SELECT DISTINCT run FROM {s}.service_events WHERE id < coalesce(
        (SELECT id FROM {s}.service_events WHERE at >= _before ORDER BY id LIMIT 1), 9223372036854775807)
    LOOP
        IF (SELECT at FROM {s}.service_events WHERE run = _run ORDER BY first DESC, id DESC LIMIT 1) < _before THEN
            DELETE FROM {s}.service_events WHERE run = _run;
            _count := _count + 1;
        END IF;
    END LOOP;
    RETURN _count;
END
$$;
