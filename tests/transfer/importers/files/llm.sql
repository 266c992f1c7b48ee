-- Made with llm 0.36, llm-echo 0.5.
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
','2026-11-16 03:57:55','-');
CREATE TABLE "messages" (
   "hash" TEXT PRIMARY KEY,
   "parent_hash" TEXT REFERENCES "messages"("hash"),
   "role" TEXT,
   "provider_metadata" TEXT
);
INSERT INTO "messages" VALUES('b2:e33c2a470747ae208619d2c187a89e26',NULL,'system',NULL);
INSERT INTO "messages" VALUES('b2:c7fb0f84e4e0168f3959da224581b104','b2:e33c2a470747ae208619d2c187a89e26','user',NULL);
INSERT INTO "messages" VALUES('b2:238b8c6e9f913bddb169802f89fedffe','b2:c7fb0f84e4e0168f3959da224581b104','assistant',NULL);
INSERT INTO "messages" VALUES('b2:fe7b304bfab831fe7eb863a29fb742d2','b2:238b8c6e9f913bddb169802f89fedffe','user',NULL);
INSERT INTO "messages" VALUES('b2:66d63bdcab1ef654ec2fda93d897efa4','b2:fe7b304bfab831fe7eb863a29fb742d2','assistant',NULL);
INSERT INTO "messages" VALUES('b2:01c6fd947f16b6aeb4e40cc840c71c53','b2:66d63bdcab1ef654ec2fda93d897efa4','user',NULL);
INSERT INTO "messages" VALUES('b2:4aa0d7faf1c250fb4c1fc0690bafe3e9','b2:01c6fd947f16b6aeb4e40cc840c71c53','assistant',NULL);
INSERT INTO "messages" VALUES('b2:dba3896051f3c6dbe52854f21c3c871b','b2:4aa0d7faf1c250fb4c1fc0690bafe3e9','tool',NULL);
INSERT INTO "messages" VALUES('b2:ea52ea792fb89b134409656e783a9a3e','b2:dba3896051f3c6dbe52854f21c3c871b','assistant',NULL);
INSERT INTO "messages" VALUES('b2:2b691ed8fa5a0d0579c6b6ba60d816d5','b2:ea52ea792fb89b134409656e783a9a3e','user',NULL);
INSERT INTO "messages" VALUES('b2:2157584b8b516716e6cf616d2be45c32','b2:2b691ed8fa5a0d0579c6b6ba60d816d5','assistant',NULL);
INSERT INTO "messages" VALUES('b2:aa6046bb744b889cc17fd1d87f9047cd','b2:2157584b8b516716e6cf616d2be45c32','tool',NULL);
INSERT INTO "messages" VALUES('b2:9adbda7f0b597d69a5a195d3b7c90ce1','b2:aa6046bb744b889cc17fd1d87f9047cd','assistant',NULL);
INSERT INTO "messages" VALUES('b2:88375e664605ceabba813be4ed560faa',NULL,'user',NULL);
INSERT INTO "messages" VALUES('b2:c2e7b9360eb3fc30fa4e00a9ae2c5005','b2:88375e664605ceabba813be4ed560faa','assistant',NULL);
INSERT INTO "messages" VALUES('b2:ef62fb6788aa2279c3882f1e245f0eda','b2:c2e7b9360eb3fc30fa4e00a9ae2c5005','user',NULL);
INSERT INTO "messages" VALUES('b2:7a4753e94145cb4981c93dca006f729b','b2:ef62fb6788aa2279c3882f1e245f0eda','assistant',NULL);
CREATE TABLE "part_attachments" (
   "part_id" INTEGER REFERENCES "parts"("id"),
   "attachment_id" TEXT REFERENCES "attachments"("id"),
   "order" INTEGER,
   PRIMARY KEY ("part_id", "attachment_id", "order")
);
INSERT INTO "part_attachments" VALUES(19,'d9c9bcbbba3f78d5acb0e0223861c44f79e918c161d4ea7b571f5cc6df50797f',0);
INSERT INTO "part_attachments" VALUES(20,'83424294f35a9a307bf4772ec476b6b7f2204bfb9cb8f9e8d8d410d8cc8cc033',0);
CREATE TABLE "part_fragments" (
   "part_id" INTEGER REFERENCES "parts"("id"),
   "fragment_id" INTEGER REFERENCES "fragments"("id"),
   "order" INTEGER,
   PRIMARY KEY ("part_id", "fragment_id", "order")
);
INSERT INTO "part_fragments" VALUES(16,1,0);
CREATE TABLE "parts" (
   "id" INTEGER PRIMARY KEY,
   "message_hash" TEXT REFERENCES "messages"("hash"),
   "position" INTEGER,
   "type" TEXT,
   "tool_name" TEXT,
   "text" TEXT,
   "payload" TEXT
);
INSERT INTO "parts" VALUES(1,'b2:e33c2a470747ae208619d2c187a89e26',0,'text',NULL,'You teach the violin.',NULL);
INSERT INTO "parts" VALUES(2,'b2:c7fb0f84e4e0168f3959da224581b104',0,'text',NULL,'How do I hold the bow?',NULL);
INSERT INTO "parts" VALUES(3,'b2:238b8c6e9f913bddb169802f89fedffe',0,'text',NULL,'{
  "prompt": "How do I hold the bow?",
  "system": "You teach the violin.",
  "attachments": [],
  "stream": true,
  "previous": []
}',NULL);
INSERT INTO "parts" VALUES(4,'b2:fe7b304bfab831fe7eb863a29fb742d2',0,'text',NULL,'And the thumb?',NULL);
INSERT INTO "parts" VALUES(5,'b2:66d63bdcab1ef654ec2fda93d897efa4',0,'text',NULL,'{
  "prompt": "And the thumb?",
  "system": "",
  "attachments": [],
  "stream": true,
  "previous": []
}',NULL);
INSERT INTO "parts" VALUES(6,'b2:01c6fd947f16b6aeb4e40cc840c71c53',0,'text',NULL,'{"tool_calls": [{"name": "rosin", "arguments": {"kind": "amber"}}]}',NULL);
INSERT INTO "parts" VALUES(7,'b2:4aa0d7faf1c250fb4c1fc0690bafe3e9',0,'text',NULL,'{
  "prompt": "",
  "system": "",
  "attachments": [],
  "stream": true,
  "previous": []
}',NULL);
INSERT INTO "parts" VALUES(8,'b2:4aa0d7faf1c250fb4c1fc0690bafe3e9',1,'tool_call','rosin',NULL,'{"name": "rosin", "arguments": {"kind": "amber"}, "tool_call_id": "tc_01m7h826p2xfw0ppm6ksy15f7p"}');
INSERT INTO "parts" VALUES(9,'b2:dba3896051f3c6dbe52854f21c3c871b',0,'tool_result','rosin',NULL,'{"name": "rosin", "output": "amber rosin", "tool_call_id": "tc_01m7h826p2xfw0ppm6ksy15f7p"}');
INSERT INTO "parts" VALUES(10,'b2:ea52ea792fb89b134409656e783a9a3e',0,'text',NULL,'{
  "prompt": "",
  "system": "",
  "attachments": [],
  "stream": true,
  "previous": [
    {
      "prompt": "{\"tool_calls\": [{\"name\": \"rosin\", \"arguments\": {\"kind\": \"amber\"}}]}"
    }
  ],
  "tool_results": [
    {
      "name": "rosin",
      "output": "amber rosin",
      "tool_call_id": "tc_01m7h826p2xfw0ppm6ksy15f7p"
    }
  ]
}',NULL);
INSERT INTO "parts" VALUES(11,'b2:2b691ed8fa5a0d0579c6b6ba60d816d5',0,'text',NULL,'{"tool_calls": [{"name": "rosin", "arguments": {"kind": "none"}}]}',NULL);
INSERT INTO "parts" VALUES(12,'b2:2157584b8b516716e6cf616d2be45c32',0,'text',NULL,'{
  "prompt": "",
  "system": "",
  "attachments": [],
  "stream": true,
  "previous": []
}',NULL);
INSERT INTO "parts" VALUES(13,'b2:2157584b8b516716e6cf616d2be45c32',1,'tool_call','rosin',NULL,'{"name": "rosin", "arguments": {"kind": "none"}, "tool_call_id": "tc_01m7h827eq6jg9hr06vqpq5yh2"}');
INSERT INTO "parts" VALUES(14,'b2:aa6046bb744b889cc17fd1d87f9047cd',0,'tool_result','rosin',NULL,'{"name": "rosin", "output": "Error: no such rosin", "tool_call_id": "tc_01m7h827eq6jg9hr06vqpq5yh2", "exception": "ValueError: no such rosin"}');
INSERT INTO "parts" VALUES(15,'b2:9adbda7f0b597d69a5a195d3b7c90ce1',0,'text',NULL,'{
  "prompt": "",
  "system": "",
  "attachments": [],
  "stream": true,
  "previous": [
    {
      "prompt": "{\"tool_calls\": [{\"name\": \"rosin\", \"arguments\": {\"kind\": \"none\"}}]}"
    }
  ],
  "tool_results": [
    {
      "name": "rosin",
      "output": "Error: no such rosin",
      "tool_call_id": "tc_01m7h827eq6jg9hr06vqpq5yh2"
    }
  ]
}',NULL);
INSERT INTO "parts" VALUES(16,'b2:88375e664605ceabba813be4ed560faa',0,'text',NULL,NULL,'{"text_ref": [{"fragment": 1}, {"literal": "\nWhat is this about?"}]}');
INSERT INTO "parts" VALUES(17,'b2:c2e7b9360eb3fc30fa4e00a9ae2c5005',0,'text',NULL,'{
  "prompt": "The chaconne is in D minor.\n\nWhat is this about?",
  "system": "",
  "attachments": [],
  "stream": true,
  "previous": []
}',NULL);
INSERT INTO "parts" VALUES(18,'b2:ef62fb6788aa2279c3882f1e245f0eda',0,'text',NULL,'What is in the picture?',NULL);
INSERT INTO "parts" VALUES(19,'b2:ef62fb6788aa2279c3882f1e245f0eda',1,'attachment',NULL,NULL,'{"attachment": {"id": "d9c9bcbbba3f78d5acb0e0223861c44f79e918c161d4ea7b571f5cc6df50797f"}}');
INSERT INTO "parts" VALUES(20,'b2:ef62fb6788aa2279c3882f1e245f0eda',2,'attachment',NULL,NULL,'{"attachment": {"id": "83424294f35a9a307bf4772ec476b6b7f2204bfb9cb8f9e8d8d410d8cc8cc033"}}');
INSERT INTO "parts" VALUES(21,'b2:7a4753e94145cb4981c93dca006f729b',0,'text',NULL,'{
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
  "previous": []
}',NULL);
CREATE TABLE "prompt_attachments" (
   "response_id" TEXT REFERENCES "responses"("id"),
   "attachment_id" TEXT REFERENCES "attachments"("id"),
   "order" INTEGER,
   PRIMARY KEY ("response_id", "attachment_id")
);
CREATE TABLE "prompt_fragments" (
   "response_id" TEXT REFERENCES "responses"("id"),
   "fragment_id" INTEGER REFERENCES "fragments"("id"),
   "order" INTEGER,
   PRIMARY KEY ("response_id", "fragment_id", "order")
);
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
, "resolved_model" TEXT, "reasoning" TEXT);
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
CREATE TABLE "threads" (
   "id" TEXT PRIMARY KEY,
   "name" TEXT,
   "tip_message_hash" TEXT REFERENCES "messages"("hash"),
   "forked_from" TEXT REFERENCES "threads"("id"),
   "datetime_utc" TEXT
);
INSERT INTO "threads" VALUES('01m7h824y96ksfpw0p71as6zmk','How do I hold the bow?','b2:9adbda7f0b597d69a5a195d3b7c90ce1',NULL,'2026-11-16 03:57:52.459154+00:00');
INSERT INTO "threads" VALUES('01m7h8292dsx2y35hf35w8m9r9','The chaconne is in D minor. Wha…','b2:7a4753e94145cb4981c93dca006f729b',NULL,'2026-11-16 03:57:56.688001+00:00');
CREATE TABLE "tool_calls" (
   "id" INTEGER PRIMARY KEY,
   "response_id" TEXT REFERENCES "responses"("id"),
   "tool_id" INTEGER REFERENCES "tools"("id"),
   "name" TEXT,
   "arguments" TEXT,
   "tool_call_id" TEXT
);
CREATE TABLE "tool_instances" (
   "id" INTEGER PRIMARY KEY,
   "plugin" TEXT,
   "name" TEXT,
   "arguments" TEXT
);
CREATE TABLE "tool_instantiations" (
   "turn_id" TEXT REFERENCES "turns"("id"),
   "tool_call_id" TEXT,
   "instance_id" INTEGER REFERENCES "tool_instances"("id"),
   PRIMARY KEY ("turn_id", "tool_call_id")
);
CREATE TABLE "tool_responses" (
   "tool_id" INTEGER REFERENCES "tools"("id"),
   "response_id" TEXT REFERENCES "responses"("id"),
   PRIMARY KEY ("tool_id", "response_id")
);
CREATE TABLE "tool_results" (
   "id" INTEGER PRIMARY KEY,
   "response_id" TEXT REFERENCES "responses"("id"),
   "tool_id" INTEGER REFERENCES "tools"("id"),
   "name" TEXT,
   "output" TEXT,
   "tool_call_id" TEXT,
   "instance_id" INTEGER REFERENCES "tool_instances"("id")
, "exception" TEXT);
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
CREATE TABLE "turn_fragments" (
   "turn_id" TEXT REFERENCES "turns"("id"),
   "fragment_id" INTEGER REFERENCES "fragments"("id"),
   "order" INTEGER,
   "kind" TEXT,
   PRIMARY KEY ("turn_id", "fragment_id", "kind", "order")
);
INSERT INTO "turn_fragments" VALUES('01m7h8292fzjsybw9gvzdd6vex',1,0,'prompt');
CREATE TABLE "turn_search" (
   "id" INTEGER PRIMARY KEY,
   "turn_id" TEXT REFERENCES "turns"("id"),
   "prompt" TEXT,
   "response" TEXT
);
INSERT INTO "turn_search" VALUES(1,'01m7h824yar0seank6881k6nxe','How do I hold the bow?','{
  "prompt": "How do I hold the bow?",
  "system": "You teach the violin.",
  "attachments": [],
  "stream": true,
  "previous": []
}');
INSERT INTO "turn_search" VALUES(2,'01m7h825x50hm725k91zbvn6fz','And the thumb?','{
  "prompt": "And the thumb?",
  "system": "",
  "attachments": [],
  "stream": true,
  "previous": []
}');
INSERT INTO "turn_search" VALUES(3,'01m7h826p2xfw0ppm6ksy15f7n','{"tool_calls": [{"name": "rosin", "arguments": {"kind": "amber"}}]}','{
  "prompt": "",
  "system": "",
  "attachments": [],
  "stream": true,
  "previous": []
}');
INSERT INTO "turn_search" VALUES(4,'01m7h826p2xfw0ppm6ksy15f7q','','{
  "prompt": "",
  "system": "",
  "attachments": [],
  "stream": true,
  "previous": [
    {
      "prompt": "{\"tool_calls\": [{\"name\": \"rosin\", \"arguments\": {\"kind\": \"amber\"}}]}"
    }
  ],
  "tool_results": [
    {
      "name": "rosin",
      "output": "amber rosin",
      "tool_call_id": "tc_01m7h826p2xfw0ppm6ksy15f7p"
    }
  ]
}');
INSERT INTO "turn_search" VALUES(5,'01m7h827eq6jg9hr06vqpq5yh1','{"tool_calls": [{"name": "rosin", "arguments": {"kind": "none"}}]}','{
  "prompt": "",
  "system": "",
  "attachments": [],
  "stream": true,
  "previous": []
}');
INSERT INTO "turn_search" VALUES(6,'01m7h827ertmftb4p64etwcxw2','','{
  "prompt": "",
  "system": "",
  "attachments": [],
  "stream": true,
  "previous": [
    {
      "prompt": "{\"tool_calls\": [{\"name\": \"rosin\", \"arguments\": {\"kind\": \"none\"}}]}"
    }
  ],
  "tool_results": [
    {
      "name": "rosin",
      "output": "Error: no such rosin",
      "tool_call_id": "tc_01m7h827eq6jg9hr06vqpq5yh2"
    }
  ]
}');
INSERT INTO "turn_search" VALUES(7,'01m7h8292fzjsybw9gvzdd6vex','
What is this about?','{
  "prompt": "The chaconne is in D minor.\n\nWhat is this about?",
  "system": "",
  "attachments": [],
  "stream": true,
  "previous": []
}');
INSERT INTO "turn_search" VALUES(8,'01m7h829wr09wvzx5zw83s71t7','What is in the picture?','{
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
  "previous": []
}');
CREATE TABLE "turn_tools" (
   "turn_id" TEXT REFERENCES "turns"("id"),
   "tool_id" INTEGER REFERENCES "tools"("id"),
   "instance_id" INTEGER REFERENCES "tool_instances"("id"),
   PRIMARY KEY ("turn_id", "tool_id")
);
INSERT INTO "turn_tools" VALUES('01m7h826p2xfw0ppm6ksy15f7n',1,NULL);
INSERT INTO "turn_tools" VALUES('01m7h826p2xfw0ppm6ksy15f7q',1,NULL);
INSERT INTO "turn_tools" VALUES('01m7h827eq6jg9hr06vqpq5yh1',1,NULL);
INSERT INTO "turn_tools" VALUES('01m7h827ertmftb4p64etwcxw2',1,NULL);
CREATE TABLE "turns" (
   "id" TEXT PRIMARY KEY,
   "thread_id" TEXT REFERENCES "threads"("id"),
   "parent_message_hash" TEXT REFERENCES "messages"("hash"),
   "tip_message_hash" TEXT REFERENCES "messages"("hash"),
   "model" TEXT,
   "resolved_model" TEXT,
   "options_json" TEXT,
   "schema_id" TEXT REFERENCES "schemas"("id"),
   "input_tokens" INTEGER,
   "output_tokens" INTEGER,
   "token_details" TEXT,
   "duration_ms" INTEGER,
   "datetime_utc" TEXT
, "response_json" TEXT);
INSERT INTO "turns" VALUES('01m7h824yar0seank6881k6nxe','01m7h824y96ksfpw0p71as6zmk','b2:c7fb0f84e4e0168f3959da224581b104','b2:238b8c6e9f913bddb169802f89fedffe','echo',NULL,NULL,NULL,10,20,NULL,0,'2026-11-16T03:57:52.458502+00:00',NULL);
INSERT INTO "turns" VALUES('01m7h825x50hm725k91zbvn6fz','01m7h824y96ksfpw0p71as6zmk','b2:fe7b304bfab831fe7eb863a29fb742d2','b2:66d63bdcab1ef654ec2fda93d897efa4','echo',NULL,NULL,NULL,3,14,NULL,0,'2026-11-16T03:57:53.445416+00:00',NULL);
INSERT INTO "turns" VALUES('01m7h826p2xfw0ppm6ksy15f7n','01m7h824y96ksfpw0p71as6zmk','b2:01c6fd947f16b6aeb4e40cc840c71c53','b2:4aa0d7faf1c250fb4c1fc0690bafe3e9','echo',NULL,NULL,NULL,6,12,NULL,0,'2026-11-16T03:57:54.242162+00:00',NULL);
INSERT INTO "turns" VALUES('01m7h826p2xfw0ppm6ksy15f7q','01m7h824y96ksfpw0p71as6zmk','b2:dba3896051f3c6dbe52854f21c3c871b','b2:ea52ea792fb89b134409656e783a9a3e','echo',NULL,NULL,NULL,2,34,NULL,0,'2026-11-16T03:57:54.242450+00:00',NULL);
INSERT INTO "turns" VALUES('01m7h827eq6jg9hr06vqpq5yh1','01m7h824y96ksfpw0p71as6zmk','b2:2b691ed8fa5a0d0579c6b6ba60d816d5','b2:2157584b8b516716e6cf616d2be45c32','echo',NULL,NULL,NULL,6,12,NULL,0,'2026-11-16T03:57:55.031758+00:00',NULL);
INSERT INTO "turns" VALUES('01m7h827ertmftb4p64etwcxw2','01m7h824y96ksfpw0p71as6zmk','b2:aa6046bb744b889cc17fd1d87f9047cd','b2:9adbda7f0b597d69a5a195d3b7c90ce1','echo',NULL,NULL,NULL,4,36,NULL,0,'2026-11-16T03:57:55.032089+00:00',NULL);
INSERT INTO "turns" VALUES('01m7h8292fzjsybw9gvzdd6vex','01m7h8292dsx2y35hf35w8m9r9','b2:88375e664605ceabba813be4ed560faa','b2:c2e7b9360eb3fc30fa4e00a9ae2c5005','echo',NULL,NULL,NULL,10,20,NULL,0,'2026-11-16T03:57:56.687146+00:00',NULL);
INSERT INTO "turns" VALUES('01m7h829wr09wvzx5zw83s71t7','01m7h8292dsx2y35hf35w8m9r9','b2:ef62fb6788aa2279c3882f1e245f0eda','b2:7a4753e94145cb4981c93dca006f729b','echo',NULL,NULL,NULL,5,37,NULL,0,'2026-11-16T03:57:57.528316+00:00',NULL);
