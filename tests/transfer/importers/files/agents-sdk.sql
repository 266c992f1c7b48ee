-- Made with openai-agents 0.24.0.
CREATE TABLE agent_messages (
                id INTEGER PRIMARY KEY AUTOINCREMENT,
                session_id TEXT NOT NULL,
                message_data TEXT NOT NULL,
                created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
                FOREIGN KEY (session_id) REFERENCES agent_sessions (session_id)
                    ON DELETE CASCADE
            );
INSERT INTO "agent_messages" VALUES(1,'ada','{"content": "Have you amber rosin?", "role": "user"}','2026-11-16 03:58:07');
INSERT INTO "agent_messages" VALUES(2,'ada','{"arguments": "{\"kind\":\"amber\"}", "call_id": "call_1", "name": "rosin", "type": "function_call", "id": "call_1"}','2026-11-16 03:58:07');
INSERT INTO "agent_messages" VALUES(3,'ada','{"call_id": "call_1", "output": "amber: 3 left", "type": "function_call_output"}','2026-11-16 03:58:07');
INSERT INTO "agent_messages" VALUES(4,'ada','{"id": "scripted-message", "content": [{"annotations": [], "text": "Three are left.", "type": "output_text", "logprobs": []}], "role": "assistant", "status": "completed", "type": "message"}','2026-11-16 03:58:07');
INSERT INTO "agent_messages" VALUES(5,'ada','{"content": "Thank you!", "role": "user"}','2026-11-16 03:58:07');
INSERT INTO "agent_messages" VALUES(6,'ada','{"id": "scripted-message", "content": [{"annotations": [], "text": "With pleasure.", "type": "output_text", "logprobs": []}], "role": "assistant", "status": "completed", "type": "message"}','2026-11-16 03:58:07');
INSERT INTO "agent_messages" VALUES(7,'bob','{"content": "I''m Bob.", "role": "user"}','2026-11-16 03:58:07');
INSERT INTO "agent_messages" VALUES(8,'bob','{"id": "scripted-message", "content": [{"annotations": [], "text": "Hello, Bob.", "type": "output_text", "logprobs": []}], "role": "assistant", "status": "completed", "type": "message"}','2026-11-16 03:58:07');
CREATE TABLE agent_sessions (
                session_id TEXT PRIMARY KEY,
                created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
                updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP
            );
INSERT INTO "agent_sessions" VALUES('ada','2026-11-16 03:58:07','2026-11-16 03:58:07');
INSERT INTO "agent_sessions" VALUES('bob','2026-11-16 03:58:07','2026-11-16 03:58:07');
