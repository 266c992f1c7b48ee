-- Return the number of the lock that `service_lock` takes.
CREATE FUNCTION {s}.service_lock_number(_label text, _name bytea) RETURNS bigint LANGUAGE sql AS $$
    SELECT hashtextextended('{s} ' || _label || ' ' || encode(_name, 'base64'), 0)
$$;

-- Append to many logs as `service_append` does, and delete documents, in one transaction. Return which appends were made.
-- The locks are taken in the order of their numbers, so transactions that take several can't wait for each other.
CREATE FUNCTION {s}.service_append_all(
    _runs bytea[], _firsts bigint[], _counts bigint[], _data bytea[], _ended boolean[], _at bigint, _channel text,
    _kinds bytea[], _keys bytea[]
) RETURNS boolean[] LANGUAGE plpgsql AS $$
DECLARE
    _made boolean[] := '{}';
BEGIN
    PERFORM pg_advisory_xact_lock(number) FROM (
        SELECT {s}.service_lock_number('log', run) AS number FROM unnest(_runs) run
        UNION
        SELECT {s}.service_lock_number('document', kind || '\x00'::bytea || key) FROM unnest(_kinds, _keys) d (kind, key)
        ORDER BY number
    ) locks;
    FOR i IN 1 .. cardinality(_runs) LOOP
        _made[i] := {s}.service_append(_runs[i], _firsts[i], _counts[i], _data[i], _ended[i], _at, _channel);
    END LOOP;
    FOR i IN 1 .. cardinality(_kinds) LOOP
        PERFORM {s}.service_delete(_kinds[i], _keys[i], NULL, _at);
    END LOOP;
    RETURN _made;
END
$$;
