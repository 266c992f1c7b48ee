-- Store token counts that no provider has reported as NULL instead of 0. FORCE ROW LEVEL SECURITY is off meanwhile, so
-- that the owner of the table can change the rows of all owners.

ALTER TABLE {s}.turns ALTER input DROP NOT NULL, ALTER output DROP NOT NULL, ALTER cached DROP NOT NULL,
    ALTER written DROP NOT NULL;
ALTER TABLE {s}.turns NO FORCE ROW LEVEL SECURITY;
UPDATE {s}.turns SET input = NULL, output = NULL, cached = NULL, written = NULL WHERE calls = 0;
ALTER TABLE {s}.turns FORCE ROW LEVEL SECURITY;
