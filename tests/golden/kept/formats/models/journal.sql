CREATE INDEX accepted ON requests (correct, election ->> 'risk')
    WHERE correct IS NOT NULL AND election ->> 'accept' = 1
CREATE INDEX elections ON requests (request_id) WHERE election IS NOT NULL
CREATE TABLE requests (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    time TEXT NOT NULL,           -- of the answer, UTC
    request_id TEXT NOT NULL,
    caller TEXT NOT NULL,         -- name of the key, '' without one
    path TEXT NOT NULL,
    status INTEGER NOT NULL,      -- 499: the caller did not wait
    milliseconds REAL NOT NULL,
    request TEXT NOT NULL,        -- the body as it was sent
    response TEXT NOT NULL,
    election TEXT,                -- as `ElectionRecord`; NULL for what is none
    correct INTEGER               -- whether its answer was right, as far as somebody said so
)
CREATE TABLE sqlite_sequence(name,seq)
CREATE VIEW verdicts AS
    SELECT id, time, request_id, caller, path, response ->> 'strategy' AS strategy, response ->> 'answer' AS answer,
           response ->> 'decided_by' AS decided_by, response ->> 'tie' AS tie, response ->> 'margin' AS margin,
           response ->> 'model' AS model
    FROM requests WHERE status = 200 AND path LIKE '/vote%' AND path <> '/vote/compare'
(1, '2026-01-31T12:00:00Z', '0', '', '/vote/prm', 200, 1.5, '{}', '{"strategy":"prm","answer":"4"}', None, None)
(1, '2026-01-31T12:00:00Z', '0', '', '/vote/prm', 'prm', '4', None, None, None, None)
