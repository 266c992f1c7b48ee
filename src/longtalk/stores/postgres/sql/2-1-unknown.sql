-- Tokens that no provider has reported are unknown, not none at all. Who owns the table changes the rows of all.

ALTER TABLE {s}.turns ALTER input DROP NOT NULL, ALTER output DROP NOT NULL, ALTER cached DROP NOT NULL,
    ALTER written DROP NOT NULL;
ALTER TABLE {s}.turns NO FORCE ROW LEVEL SECURITY;
UPDATE {s}.turns SET input = NULL, output = NULL, cached = NULL, written = NULL WHERE calls = 0;
ALTER TABLE {s}.turns FORCE ROW LEVEL SECURITY;
