-- Row policies, which limit each transaction to the rows of the owner in the setting `longtalk.owner`. After a
-- transaction that has set it, the setting is empty, so an empty setting means that there is no owner. The owner with
-- the empty name is set as \x01, which can't be a name.

CREATE FUNCTION {s}.asking() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE current_setting('longtalk.owner', true) WHEN '' THEN NULL WHEN E'\x01' THEN ''
        ELSE current_setting('longtalk.owner', true) END
$$;
CREATE FUNCTION {s}.ask(_owner text) RETURNS text LANGUAGE sql AS $$
    SELECT set_config('longtalk.owner', CASE _owner WHEN '' THEN E'\x01' ELSE _owner END, true)
$$;

ALTER TABLE {s}.conversations ENABLE ROW LEVEL SECURITY;
ALTER TABLE {s}.conversations FORCE ROW LEVEL SECURITY;
CREATE POLICY owned ON {s}.conversations USING (owner = {s}.asking()) WITH CHECK (owner = {s}.asking());

ALTER TABLE {s}.branches ENABLE ROW LEVEL SECURITY;
ALTER TABLE {s}.branches FORCE ROW LEVEL SECURITY;
CREATE POLICY owned ON {s}.branches USING (owner = {s}.asking()) WITH CHECK (owner = {s}.asking());

ALTER TABLE {s}.segments ENABLE ROW LEVEL SECURITY;
ALTER TABLE {s}.segments FORCE ROW LEVEL SECURITY;
CREATE POLICY owned ON {s}.segments USING (owner = {s}.asking()) WITH CHECK (owner = {s}.asking());

ALTER TABLE {s}.entries ENABLE ROW LEVEL SECURITY;
ALTER TABLE {s}.entries FORCE ROW LEVEL SECURITY;
CREATE POLICY owned ON {s}.entries USING (owner = {s}.asking()) WITH CHECK (owner = {s}.asking());

ALTER TABLE {s}.entry_meta ENABLE ROW LEVEL SECURITY;
ALTER TABLE {s}.entry_meta FORCE ROW LEVEL SECURITY;
CREATE POLICY owned ON {s}.entry_meta USING (owner = {s}.asking()) WITH CHECK (owner = {s}.asking());

ALTER TABLE {s}.turns ENABLE ROW LEVEL SECURITY;
ALTER TABLE {s}.turns FORCE ROW LEVEL SECURITY;
CREATE POLICY owned ON {s}.turns USING (owner = {s}.asking()) WITH CHECK (owner = {s}.asking());

ALTER TABLE {s}.requests ENABLE ROW LEVEL SECURITY;
ALTER TABLE {s}.requests FORCE ROW LEVEL SECURITY;
CREATE POLICY owned ON {s}.requests USING (owner = {s}.asking()) WITH CHECK (owner = {s}.asking());

ALTER TABLE {s}.records ENABLE ROW LEVEL SECURITY;
ALTER TABLE {s}.records FORCE ROW LEVEL SECURITY;
CREATE POLICY owned ON {s}.records USING (owner = {s}.asking()) WITH CHECK (owner = {s}.asking());

ALTER TABLE {s}.words ENABLE ROW LEVEL SECURITY;
ALTER TABLE {s}.words FORCE ROW LEVEL SECURITY;
CREATE POLICY owned ON {s}.words USING (owner = {s}.asking()) WITH CHECK (owner = {s}.asking());
