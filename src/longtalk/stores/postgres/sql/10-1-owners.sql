-- List the owners. A transaction that asks for all of them may read only the table of conversations, and change nothing.
-- The setting \x01* can't be the name of an owner.

CREATE POLICY listed ON {s}.conversations FOR SELECT USING (current_setting('longtalk.owner', true) = E'\x01*');

-- Return the owners that have a conversation, by name. Each is found by one look-up in the index of owners.
CREATE FUNCTION {s}.owners() RETURNS SETOF text LANGUAGE plpgsql STABLE AS $$
DECLARE
    last text;
BEGIN
    PERFORM set_config('longtalk.owner', E'\x01*', true);
    SELECT min(c.owner) INTO last FROM {s}.conversations c;
    WHILE last IS NOT NULL LOOP
        RETURN NEXT last;
        SELECT min(c.owner) INTO last FROM {s}.conversations c WHERE c.owner > last;
    END LOOP;
END $$;
