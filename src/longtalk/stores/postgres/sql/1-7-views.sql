-- Functions and views for people who query the tables. With `security_invoker`, the row policies apply to views too.

CREATE FUNCTION {s}.moment(_at bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT to_timestamp(_at / 1000.0)
$$;

-- Return JSON as `jsonb`, or NULL if PostgreSQL can't represent it.
CREATE FUNCTION {s}.json(_data bytea) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN replace(convert_from(_data, 'UTF8'), '\u0000', '\ufffd')::jsonb;
EXCEPTION WHEN others THEN
    RETURN NULL;
END $$;

CREATE VIEW {s}.briefs WITH (security_invoker = true) AS
SELECT b.owner, c.name AS conversation, b.name AS branch, {s}.json(r.data) #> '{notes,lines}' AS brief, r.tokens, r.at
FROM {s}.branches b JOIN {s}.conversations c ON c.id = b.conversation
JOIN {s}.records r ON r.id = ANY (b.records) AND r.kind = 'memory';

-- The metrics that `Archive.metrics` returns. A long manifest refers to its epoch instead of repeating the epoch's
-- runs.
CREATE VIEW {s}.metrics WITH (security_invoker = true) AS
SELECT t.owner, c.name AS conversation, t.name AS turn, t.started AS at, t.model, t.status, t.calls,
    coalesce((m.j ->> 'tokens')::bigint, 0) AS total,
    coalesce(own.history, 0) + coalesce(before.history, 0) AS history,
    coalesce((m.j ->> 'summary')::bigint, 0) AS summary, coalesce((m.j ->> 'brief')::bigint, 0) AS brief,
    coalesce((m.j ->> 'outline')::bigint, 0) AS outline, coalesce((m.j ->> 'recall')::bigint, 0) AS recall,
    coalesce(own.left_out, 0) + coalesce(before.left_out, 0) AS left_out,
    t.input, t.output, t.cached, t.written, t.cost
FROM {s}.turns t JOIN {s}.conversations c ON c.id = t.conversation
CROSS JOIN LATERAL (SELECT coalesce({s}.json(t.manifest), '{}') AS j) m
CROSS JOIN LATERAL (
    SELECT sum((run ->> 2)::bigint) FILTER (WHERE coalesce(run ->> 3, 'sent') IN ('sent', 'held')) AS history,
        sum((run ->> 2)::bigint) FILTER (WHERE run ->> 3 NOT IN ('sent', 'held', 'recalled')) AS left_out
    FROM jsonb_array_elements(coalesce(m.j -> 'runs', '[]')) run
) own
LEFT JOIN LATERAL (
    SELECT {s}.json(r.data) AS j FROM {s}.records r
    WHERE r.conversation = t.conversation AND r.kind = 'epoch'
        AND coalesce({s}.json(r.data) ->> 'start', '0') = coalesce(m.j ->> 'epoch', '0')
    ORDER BY r.id DESC LIMIT 1
) epoch ON t.manifest IS NOT NULL
LEFT JOIN LATERAL (
    SELECT sum((run ->> 'tokens')::bigint) FILTER (WHERE run ->> 'verdict' IN ('sent', 'held')) AS history,
        sum((run ->> 'tokens')::bigint) FILTER (WHERE run ->> 'verdict' NOT IN ('sent', 'held', 'recalled')) AS left_out
    FROM jsonb_array_elements(coalesce(epoch.j -> 'runs', '[]')) run
    WHERE (run ->> 'last')::bigint < coalesce(m.j #> '{runs,0}' ->> 0, epoch.j ->> 'start', '0')::bigint
) before ON true;
