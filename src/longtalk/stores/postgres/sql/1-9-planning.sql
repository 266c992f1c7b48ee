-- How all of it is looked up: by an index. A session keeps its plans, and the first ones are made while tables are empty,
-- where to look through a whole table seems cheap. Until it is analyzed, that would stay so while it grows.

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
