CREATE TABLE cs_revision (version_num VARCHAR(32) NOT NULL, CONSTRAINT cs_revision_pkc PRIMARY KEY (version_num));
INSERT INTO cs_revision VALUES ('0005');
CREATE TABLE cs_collections (number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, table_name TEXT NOT NULL, created_at BIGINT NOT NULL, options TEXT DEFAULT '{}' NOT NULL, UNIQUE (name));
INSERT INTO cs_collections VALUES (1, 'Things', 'cs_1_things', 1700000000000001, '{"cursor_key":"0123456789abcdef0123456789abcdef","body_index":true,"counter":1}'), (3, 'empty', 'cs_3_empty', 1700000000000003, '{"cursor_key":"fedcba9876543210fedcba9876543210","body_index":true,"counter":1}');
CREATE TABLE cs_1_things (seq INTEGER NOT NULL, id TEXT NOT NULL, body TEXT NOT NULL, version BIGINT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, expires_at BIGINT, ttl BIGINT, PRIMARY KEY (seq), UNIQUE (id));
INSERT INTO cs_1_things VALUES (1, 'b', '{"x":[1,{"y":"é"}]}', 1, 1700000000000004, 1700000000000004, NULL, NULL), (7, 'a', 'null', 5, 1700000000000005, 1700000000000006, NULL, NULL);
CREATE TABLE cs_3_empty (seq INTEGER NOT NULL, id TEXT NOT NULL, body TEXT NOT NULL, version BIGINT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, expires_at BIGINT, ttl BIGINT, PRIMARY KEY (seq), UNIQUE (id));
CREATE INDEX "cs_1$x" ON cs_1_things (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX "cs_3$x" ON cs_3_empty (expires_at) WHERE expires_at IS NOT NULL;
