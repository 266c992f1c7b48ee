-- Make all functions use indexes. A session keeps its query plans, and the first plans are made while the tables are
-- empty and a sequential scan seems cheap. Without these settings, scans would remain until the tables are analyzed.

ALTER FUNCTION {s}.head SET enable_seqscan = off;
ALTER FUNCTION {s}.read SET enable_seqscan = off;
ALTER FUNCTION {s}.pick SET enable_seqscan = off;
ALTER FUNCTION {s}.write SET enable_seqscan = off;
ALTER FUNCTION {s}.renew SET enable_seqscan = off;
ALTER FUNCTION {s}.describe SET enable_seqscan = off;
ALTER FUNCTION {s}.redact SET enable_seqscan = off;
ALTER FUNCTION {s}.remove SET enable_seqscan = off;
ALTER FUNCTION {s}.unread SET enable_seqscan = off;
ALTER FUNCTION {s}.learn SET enable_seqscan = off;
ALTER FUNCTION {s}.holding SET enable_seqscan = off;
ALTER FUNCTION {s}.candidates SET enable_seqscan = off;
ALTER FUNCTION {s}.turns SET enable_seqscan = off;
ALTER FUNCTION {s}.manifests SET enable_seqscan = off;
ALTER FUNCTION {s}.manifest SET enable_seqscan = off;
ALTER FUNCTION {s}.records SET enable_seqscan = off;
ALTER FUNCTION {s}.metas SET enable_seqscan = off;
ALTER FUNCTION {s}.requests SET enable_seqscan = off;
ALTER FUNCTION {s}.branches SET enable_seqscan = off;
ALTER FUNCTION {s}.summary SET enable_seqscan = off;
ALTER FUNCTION {s}.conversations SET enable_seqscan = off;
ALTER FUNCTION {s}.kept SET enable_seqscan = off;
