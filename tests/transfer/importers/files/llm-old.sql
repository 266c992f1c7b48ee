-- Made with llm 0.27.1, llm-echo 0.4.
CREATE TABLE "attachments" (
   "id" TEXT PRIMARY KEY,
   "type" TEXT,
   "path" TEXT,
   "url" TEXT,
   "content" BLOB
);
INSERT INTO "attachments" VALUES('d9c9bcbbba3f78d5acb0e0223861c44f79e918c161d4ea7b571f5cc6df50797f','image/png',NULL,NULL,X'89504E470D0A1A0A0000000000000000');
INSERT INTO "attachments" VALUES('83424294f35a9a307bf4772ec476b6b7f2204bfb9cb8f9e8d8d410d8cc8cc033','image/png',NULL,'https://example.com/bow.png',NULL);
CREATE TABLE "conversations" (
   "id" TEXT PRIMARY KEY,
   "name" TEXT,
   "model" TEXT
);
INSERT INTO "conversations" VALUES('01m7h82cq2r9z356jwvg39qgwy','How do I hold the bow?','echo');
INSERT INTO "conversations" VALUES('01m7h82gx8p8yebdf7z7vpjgq5','The chaconne is in D minor. Wha…','echo');
CREATE TABLE "fragment_aliases" (
   "alias" TEXT PRIMARY KEY,
   "fragment_id" INTEGER REFERENCES "fragments"("id")
);
INSERT INTO "fragment_aliases" VALUES('bach',1);
CREATE TABLE "fragments" (
   "id" INTEGER PRIMARY KEY,
   "hash" TEXT,
   "content" TEXT,
   "datetime_utc" TEXT,
   "source" TEXT
);
INSERT INTO "fragments" VALUES(1,'da1a560636fc8bdd8ce6e0bc2ef8f5165ee09ff28815c31b7cf878c2a7b24acb','The chaconne is in D minor.
','2026-11-16 03:58:03','-');
CREATE TABLE "prompt_attachments" (
   "response_id" TEXT REFERENCES "responses"("id"),
   "attachment_id" TEXT REFERENCES "attachments"("id"),
   "order" INTEGER,
   PRIMARY KEY ("response_id", "attachment_id")
);
INSERT INTO "prompt_attachments" VALUES('01m7h82hqd4ywkx98xazyvvv7j','d9c9bcbbba3f78d5acb0e0223861c44f79e918c161d4ea7b571f5cc6df50797f',0);
INSERT INTO "prompt_attachments" VALUES('01m7h82hqd4ywkx98xazyvvv7j','83424294f35a9a307bf4772ec476b6b7f2204bfb9cb8f9e8d8d410d8cc8cc033',1);
CREATE TABLE "prompt_fragments" (
   "response_id" TEXT REFERENCES "responses"("id"),
   "fragment_id" INTEGER REFERENCES "fragments"("id"),
   "order" INTEGER,
   PRIMARY KEY ("response_id", "fragment_id", "order")
);
INSERT INTO "prompt_fragments" VALUES('01m7h82gx8p8yebdf7z7vpjgq4',1,0);
CREATE TABLE "responses" (
   "id" TEXT PRIMARY KEY,
   "model" TEXT,
   "prompt" TEXT,
   "system" TEXT,
   "prompt_json" TEXT,
   "options_json" TEXT,
   "response" TEXT,
   "response_json" TEXT,
   "conversation_id" TEXT REFERENCES "conversations"("id"),
   "duration_ms" INTEGER,
   "datetime_utc" TEXT,
   "input_tokens" INTEGER,
   "output_tokens" INTEGER,
   "token_details" TEXT,
   "schema_id" TEXT REFERENCES "schemas"("id")
, "resolved_model" TEXT);
INSERT INTO "responses" VALUES('01m7h82cq16c63gdcjkn9b7hfv','echo','How do I hold the bow?','You teach the violin.',NULL,'{}','{
  "prompt": "How do I hold the bow?",
  "system": "You teach the violin.",
  "attachments": [],
  "stream": true,
  "previous": []
}',NULL,'01m7h82cq2r9z356jwvg39qgwy',0,'2026-11-16T03:58:00.417942+00:00',6,20,NULL,NULL,NULL);
INSERT INTO "responses" VALUES('01m7h82djgd64ks4g09g23r7d7','echo','And the thumb?',NULL,NULL,'{}','{
  "prompt": "And the thumb?",
  "system": "",
  "attachments": [],
  "stream": true,
  "previous": [
    {
      "prompt": "How do I hold the bow?"
    }
  ]
}',NULL,'01m7h82cq2r9z356jwvg39qgwy',0,'2026-11-16T03:58:01.296431+00:00',3,24,NULL,NULL,NULL);
INSERT INTO "responses" VALUES('01m7h82ebq02m3fstyfpq14bsj','echo','{"tool_calls": [{"name": "rosin", "arguments": {"kind": "amber"}}]}',NULL,NULL,'{}','{
  "prompt": "",
  "system": "",
  "attachments": [],
  "stream": true,
  "previous": [
    {
      "prompt": "How do I hold the bow?"
    },
    {
      "prompt": "And the thumb?"
    }
  ]
}',NULL,'01m7h82cq2r9z356jwvg39qgwy',0,'2026-11-16T03:58:02.103952+00:00',6,28,NULL,NULL,NULL);
INSERT INTO "responses" VALUES('01m7h82ebr6xs5xann8jk41hdb','echo','',NULL,NULL,'{}','{
  "prompt": "",
  "system": "",
  "attachments": [],
  "stream": true,
  "previous": [
    {
      "prompt": "How do I hold the bow?"
    },
    {
      "prompt": "And the thumb?"
    },
    {
      "prompt": "{\"tool_calls\": [{\"name\": \"rosin\", \"arguments\": {\"kind\": \"amber\"}}]}"
    }
  ],
  "tool_results": [
    {
      "name": "rosin",
      "output": "amber rosin",
      "tool_call_id": null
    }
  ]
}',NULL,'01m7h82cq2r9z356jwvg39qgwy',0,'2026-11-16T03:58:02.104104+00:00',0,49,NULL,NULL,NULL);
INSERT INTO "responses" VALUES('01m7h82f8yar065gdz25whdrb8','echo','{"tool_calls": [{"name": "rosin", "arguments": {"kind": "none"}}]}',NULL,NULL,'{}','{
  "prompt": "",
  "system": "",
  "attachments": [],
  "stream": true,
  "previous": [
    {
      "prompt": "How do I hold the bow?"
    },
    {
      "prompt": "And the thumb?"
    },
    {
      "prompt": "{\"tool_calls\": [{\"name\": \"rosin\", \"arguments\": {\"kind\": \"amber\"}}]}"
    },
    {
      "prompt": ""
    }
  ]
}',NULL,'01m7h82cq2r9z356jwvg39qgwy',0,'2026-11-16T03:58:03.038478+00:00',6,41,NULL,NULL,NULL);
INSERT INTO "responses" VALUES('01m7h82f8yar065gdz25whdrb9','echo','',NULL,NULL,'{}','{
  "prompt": "",
  "system": "",
  "attachments": [],
  "stream": true,
  "previous": [
    {
      "prompt": "How do I hold the bow?"
    },
    {
      "prompt": "And the thumb?"
    },
    {
      "prompt": "{\"tool_calls\": [{\"name\": \"rosin\", \"arguments\": {\"kind\": \"amber\"}}]}"
    },
    {
      "prompt": ""
    },
    {
      "prompt": "{\"tool_calls\": [{\"name\": \"rosin\", \"arguments\": {\"kind\": \"none\"}}]}"
    }
  ],
  "tool_results": [
    {
      "name": "rosin",
      "output": "Error: no such rosin",
      "tool_call_id": null
    }
  ]
}',NULL,'01m7h82cq2r9z356jwvg39qgwy',0,'2026-11-16T03:58:03.038652+00:00',0,64,NULL,NULL,NULL);
INSERT INTO "responses" VALUES('01m7h82gx8p8yebdf7z7vpjgq4','echo','What is this about?',NULL,NULL,'{}','{
  "prompt": "The chaconne is in D minor.\n\nWhat is this about?",
  "system": "",
  "attachments": [],
  "stream": true,
  "previous": []
}',NULL,'01m7h82gx8p8yebdf7z7vpjgq5',0,'2026-11-16T03:58:04.712599+00:00',10,20,NULL,NULL,NULL);
INSERT INTO "responses" VALUES('01m7h82hqd4ywkx98xazyvvv7j','echo','What is in the picture?',NULL,NULL,'{}','{
  "prompt": "What is in the picture?",
  "system": "",
  "attachments": [
    {
      "type": "image/png",
      "path": null,
      "url": null,
      "id": "d9c9bcbbba3f78d5acb0e0223861c44f79e918c161d4ea7b571f5cc6df50797f"
    },
    {
      "type": "image/png",
      "path": null,
      "url": "https://example.com/bow.png",
      "id": "83424294f35a9a307bf4772ec476b6b7f2204bfb9cb8f9e8d8d410d8cc8cc033"
    }
  ],
  "stream": true,
  "previous": [
    {
      "prompt": "The chaconne is in D minor.\n\nWhat is this about?"
    }
  ]
}',NULL,'01m7h82gx8p8yebdf7z7vpjgq5',0,'2026-11-16T03:58:05.549578+00:00',5,50,NULL,NULL,NULL);
CREATE TABLE "schemas" (
   "id" TEXT PRIMARY KEY,
   "content" TEXT
);
CREATE TABLE "system_fragments" (
   "response_id" TEXT REFERENCES "responses"("id"),
   "fragment_id" INTEGER REFERENCES "fragments"("id"),
   "order" INTEGER,
   PRIMARY KEY ("response_id", "fragment_id", "order")
);
CREATE TABLE "tool_calls" (
   "id" INTEGER PRIMARY KEY,
   "response_id" TEXT REFERENCES "responses"("id"),
   "tool_id" INTEGER REFERENCES "tools"("id"),
   "name" TEXT,
   "arguments" TEXT,
   "tool_call_id" TEXT
);
INSERT INTO "tool_calls" VALUES(1,'01m7h82ebq02m3fstyfpq14bsj',1,'rosin','{"kind": "amber"}',NULL);
INSERT INTO "tool_calls" VALUES(2,'01m7h82f8yar065gdz25whdrb8',1,'rosin','{"kind": "none"}',NULL);
CREATE TABLE "tool_instances" (
   "id" INTEGER PRIMARY KEY,
   "plugin" TEXT,
   "name" TEXT,
   "arguments" TEXT
);
CREATE TABLE "tool_responses" (
   "tool_id" INTEGER REFERENCES "tools"("id"),
   "response_id" TEXT REFERENCES "responses"("id"),
   PRIMARY KEY ("tool_id", "response_id")
);
INSERT INTO "tool_responses" VALUES(1,'01m7h82ebq02m3fstyfpq14bsj');
INSERT INTO "tool_responses" VALUES(1,'01m7h82ebr6xs5xann8jk41hdb');
INSERT INTO "tool_responses" VALUES(1,'01m7h82f8yar065gdz25whdrb8');
INSERT INTO "tool_responses" VALUES(1,'01m7h82f8yar065gdz25whdrb9');
CREATE TABLE "tool_results" (
   "id" INTEGER PRIMARY KEY,
   "response_id" TEXT REFERENCES "responses"("id"),
   "tool_id" INTEGER REFERENCES "tools"("id"),
   "name" TEXT,
   "output" TEXT,
   "tool_call_id" TEXT,
   "instance_id" INTEGER REFERENCES "tool_instances"("id")
, "exception" TEXT);
INSERT INTO "tool_results" VALUES(1,'01m7h82ebr6xs5xann8jk41hdb',1,'rosin','amber rosin',NULL,NULL,NULL);
INSERT INTO "tool_results" VALUES(2,'01m7h82f8yar065gdz25whdrb9',1,'rosin','Error: no such rosin',NULL,NULL,'ValueError: no such rosin');
CREATE TABLE "tool_results_attachments" (
   "tool_result_id" INTEGER REFERENCES "tool_results"("id"),
   "attachment_id" TEXT REFERENCES "attachments"("id"),
   "order" INTEGER,
   PRIMARY KEY ("tool_result_id", "attachment_id")
);
CREATE TABLE "tools" (
   "id" INTEGER PRIMARY KEY,
   "hash" TEXT,
   "name" TEXT,
   "description" TEXT,
   "input_schema" TEXT
, "plugin" TEXT);
INSERT INTO "tools" VALUES(1,'4feea7a3f2a77c13e7dbc0737d1401ea69a99c044c9ac79298db4917703c09d3','rosin','Which rosin?','{"properties": {"kind": {"type": "string"}}, "required": ["kind"], "type": "object"}',NULL);
