-- The column `text` of the table `entries` has the whole text instead of an outline or a beginning. `migrate.py` replaces
-- the texts of existing rows, because it takes a wire to read them.

COMMENT ON COLUMN {s}.entries.text IS 'what the entry says; NULL after a redaction';
