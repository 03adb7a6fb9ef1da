BEGIN TRANSACTION;
CREATE TABLE bench (
	sweep_id INTEGER NOT NULL,
	protocol TEXT NOT NULL,
	cell TEXT NOT NULL,
	model TEXT NOT NULL,
	needs TEXT NOT NULL,
	state TEXT NOT NULL,
	message TEXT,
	CONSTRAINT pk_bench PRIMARY KEY (sweep_id, cell),
	CONSTRAINT fk_bench_outcome FOREIGN KEY(sweep_id, cell) REFERENCES outcome (sweep_id, cell),
	CONSTRAINT ck_bench_failed CHECK (state <> 'failed' OR message IS NOT NULL),
	CONSTRAINT ck_bench_state CHECK (state IN ('wanted', 'measured', 'failed'))
);
CREATE TABLE event (
	sweep_id INTEGER NOT NULL,
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	at FLOAT NOT NULL,
	cell TEXT,
	model TEXT,
	kind TEXT NOT NULL,
	status TEXT,
	token INTEGER,
	owner TEXT,
	data JSON,
	CONSTRAINT ck_event_kind CHECK (kind IN ('status', 'seeded', 'unseeded', 'resumed', 'retry', 'handed_back', 'leased', 'released', 'lost', 'poison', 'begun', 'started', 'notice', 'interrupted', 'index', 'ended')),
	CONSTRAINT ck_event_status CHECK (status IN ('planned', 'building', 'built', 'verifying', 'verified', 'publishing', 'published', 'unchanged', 'build_failed', 'build_timeout', 'verify_failed', 'publish_failed', 'conflict', 'unsupported', 'skipped', 'cancelled')),
	CONSTRAINT fk_event_sweep FOREIGN KEY(sweep_id) REFERENCES sweep (id)
);
CREATE TABLE lease (
	pid_started TEXT NOT NULL,
	ttl FLOAT NOT NULL,
	model TEXT NOT NULL,
	needs TEXT NOT NULL,
	sweep_id INTEGER NOT NULL,
	token INTEGER NOT NULL,
	owner TEXT NOT NULL,
	host TEXT NOT NULL,
	pid INTEGER NOT NULL,
	taken_at FLOAT NOT NULL,
	renewed_at FLOAT NOT NULL,
	expires_at FLOAT NOT NULL,
	cell TEXT,
	activity TEXT,
	CONSTRAINT pk_lease PRIMARY KEY (model, needs, sweep_id),
	CONSTRAINT fk_lease_work FOREIGN KEY(sweep_id, model, needs) REFERENCES work (sweep_id, model, needs),
	CONSTRAINT ck_lease_times CHECK (expires_at >= renewed_at AND ttl >= 0)
);
CREATE TABLE measurement (
	raw BLOB,
	kind TEXT NOT NULL,
	tree TEXT NOT NULL,
	cell TEXT NOT NULL,
	stamp TEXT NOT NULL,
	component TEXT NOT NULL,
	runtime TEXT NOT NULL,
	provider TEXT NOT NULL,
	device TEXT NOT NULL,
	version TEXT NOT NULL,
	emulated BOOLEAN NOT NULL,
	machine TEXT NOT NULL,
	protocol JSON NOT NULL,
	percentiles JSON NOT NULL,
	detail JSON NOT NULL,
	id INTEGER NOT NULL,
	at FLOAT NOT NULL,
	CONSTRAINT pk_measurement PRIMARY KEY (id),
	CONSTRAINT ck_measurement_tree CHECK (length(tree) = 64),
	CONSTRAINT ck_measurement_kind CHECK (kind IN ('benchmark', 'trace', 'comparison'))
);
CREATE TABLE modelmill_schema (
	version_num VARCHAR(32)
);
INSERT INTO "modelmill_schema" VALUES('0004');
CREATE TABLE outcome (
	sweep_id INTEGER NOT NULL,
	cell TEXT NOT NULL,
	model TEXT NOT NULL,
	target TEXT NOT NULL,
	precision TEXT NOT NULL,
	package TEXT NOT NULL,
	version TEXT NOT NULL,
	needs TEXT NOT NULL,
	status TEXT NOT NULL,
	tree TEXT,
	failure TEXT,
	stage TEXT,
	exit_code INTEGER,
	message TEXT,
	hint TEXT,
	log_tail TEXT,
	retryable BOOLEAN,
	attempts INTEGER NOT NULL,
	token INTEGER,
	started_at FLOAT,
	ended_at FLOAT,
	published_at FLOAT,
	bytes INTEGER,
	seconds FLOAT,
	evidence JSON,
	detail JSON,
	CONSTRAINT pk_outcome PRIMARY KEY (sweep_id, cell),
	CONSTRAINT ck_outcome_failed CHECK ((status IN ('build_failed', 'build_timeout', 'verify_failed', 'publish_failed', 'conflict', 'unsupported')) = (failure IS NOT NULL AND retryable IS NOT NULL)),
	CONSTRAINT ck_outcome_running CHECK (NOT (status IN ('building', 'built', 'verifying', 'verified', 'publishing')) OR (token IS NOT NULL AND started_at IS NOT NULL)),
	CONSTRAINT ck_outcome_ended CHECK (status = 'verified' OR (status IN ('planned', 'building', 'built', 'verifying', 'publishing')) = (ended_at IS NULL)),
	CONSTRAINT ck_outcome_published CHECK (status <> 'published' OR published_at IS NOT NULL),
	CONSTRAINT ck_outcome_content CHECK (status NOT IN ('published', 'unchanged') OR tree IS NOT NULL),
	CONSTRAINT ck_outcome_skipped CHECK (status <> 'skipped' OR message IS NOT NULL),
	CONSTRAINT ck_outcome_tree CHECK (length(tree) = 64),
	CONSTRAINT ck_outcome_attempts CHECK (attempts >= 0),
	CONSTRAINT ck_outcome_status CHECK (status IN ('planned', 'building', 'built', 'verifying', 'verified', 'publishing', 'published', 'unchanged', 'build_failed', 'build_timeout', 'verify_failed', 'publish_failed', 'conflict', 'unsupported', 'skipped', 'cancelled')),
	CONSTRAINT ck_outcome_failure CHECK (failure IN ('EXPORT', 'OPTIMIZE', 'QUANTIZE', 'COMPILE', 'VERIFY', 'PUBLISH', 'TIMEOUT', 'MEMORY', 'DISK', 'NETWORK', 'AUTH', 'CRASH', 'UNSUPPORTED', 'UNKNOWN')),
	CONSTRAINT fk_outcome_sweep FOREIGN KEY(sweep_id) REFERENCES sweep (id)
);
CREATE TABLE stage_key (
	"key" TEXT NOT NULL,
	parts JSON NOT NULL,
	CONSTRAINT pk_stage_key PRIMARY KEY ("key")
);
CREATE TABLE stage_run (
	sweep_id INTEGER NOT NULL,
	"key" TEXT NOT NULL,
	id INTEGER NOT NULL,
	at FLOAT NOT NULL,
	model TEXT NOT NULL,
	cell TEXT NOT NULL,
	target TEXT NOT NULL,
	component TEXT NOT NULL,
	stage TEXT NOT NULL,
	reused BOOLEAN NOT NULL,
	seconds FLOAT NOT NULL,
	bytes INTEGER NOT NULL,
	peak_memory INTEGER NOT NULL,
	CONSTRAINT pk_stage_run PRIMARY KEY (id),
	CONSTRAINT ck_stage_run_costs CHECK (seconds >= 0 AND bytes >= 0 AND peak_memory >= 0),
	CONSTRAINT fk_stage_run_sweep FOREIGN KEY(sweep_id) REFERENCES sweep (id),
	CONSTRAINT fk_stage_run_stage_key FOREIGN KEY("key") REFERENCES stage_key ("key")
);
CREATE TABLE sweep (
	id INTEGER NOT NULL,
	stamp TEXT NOT NULL,
	feed TEXT NOT NULL,
	publish BOOLEAN NOT NULL,
	settings JSON NOT NULL,
	selection JSON NOT NULL,
	created_at FLOAT NOT NULL,
	begun_at FLOAT NOT NULL,
	ended_at FLOAT,
	exit_code INTEGER,
	CONSTRAINT pk_sweep PRIMARY KEY (id),
	CONSTRAINT uq_sweep UNIQUE (stamp, feed),
	CONSTRAINT ck_sweep_ended CHECK ((exit_code IS NULL) = (ended_at IS NULL))
);
CREATE TABLE trial (
	tuning_id INTEGER NOT NULL,
	"key" TEXT NOT NULL,
	position INTEGER NOT NULL,
	phase TEXT NOT NULL,
	detail JSON NOT NULL,
	verdict TEXT,
	tree TEXT,
	CONSTRAINT pk_trial PRIMARY KEY (tuning_id, "key"),
	CONSTRAINT ck_trial_built CHECK (NOT (verdict IN ('better', 'no difference', 'worse', 'too noisy', 'inaccurate', 'same')) OR tree IS NOT NULL),
	CONSTRAINT ck_trial_tree CHECK (length(tree) = 64),
	CONSTRAINT ck_trial_phase CHECK (phase IN ('baseline', 'single', 'combination')),
	CONSTRAINT ck_trial_verdict CHECK (verdict IN ('better', 'no difference', 'worse', 'too noisy', 'inaccurate', 'build failed', 'crashed', 'timed out', 'same', 'skipped')),
	CONSTRAINT fk_trial_tuning FOREIGN KEY(tuning_id) REFERENCES tuning (id)
);
CREATE TABLE trial_session (
	raw BLOB NOT NULL,
	tuning_id INTEGER NOT NULL,
	trial TEXT NOT NULL,
	kind TEXT NOT NULL,
	component TEXT NOT NULL,
	number INTEGER NOT NULL,
	detail JSON NOT NULL,
	at FLOAT NOT NULL,
	CONSTRAINT pk_trial_session PRIMARY KEY (tuning_id, trial, kind, component, number),
	CONSTRAINT fk_trial_session_trial FOREIGN KEY(tuning_id, trial) REFERENCES trial (tuning_id, "key"),
	CONSTRAINT ck_trial_session_number CHECK (number >= 1),
	CONSTRAINT ck_trial_session_kind CHECK (kind IN ('screen', 'comparison', 'confirmation'))
);
CREATE TABLE tuning (
	name TEXT NOT NULL,
	model TEXT NOT NULL,
	target TEXT NOT NULL,
	detail JSON NOT NULL,
	position INTEGER NOT NULL,
	status TEXT NOT NULL,
	message TEXT,
	created_at FLOAT NOT NULL,
	began_at FLOAT,
	ended_at FLOAT,
	id INTEGER NOT NULL,
	CONSTRAINT pk_tuning PRIMARY KEY (id),
	CONSTRAINT uq_tuning UNIQUE (name, model, target),
	CONSTRAINT ck_tuning_ended CHECK ((status IN ('done', 'out of time', 'failed')) = (ended_at IS NOT NULL)),
	CONSTRAINT ck_tuning_failed CHECK (status <> 'failed' OR message IS NOT NULL),
	CONSTRAINT ck_tuning_status CHECK (status IN ('planned', 'running', 'done', 'out of time', 'failed'))
);
CREATE TABLE work (
	sweep_id INTEGER NOT NULL,
	model TEXT NOT NULL,
	needs TEXT NOT NULL,
	state TEXT NOT NULL,
	position INTEGER NOT NULL,
	estimate FLOAT NOT NULL,
	attempts INTEGER NOT NULL,
	lost INTEGER NOT NULL,
	evidence JSON,
	CONSTRAINT pk_work PRIMARY KEY (sweep_id, model, needs),
	CONSTRAINT ck_work_state CHECK (state IN ('todo', 'leased', 'done', 'poison')),
	CONSTRAINT ck_work_counts CHECK (attempts >= 0 AND lost >= 0),
	CONSTRAINT ck_work_poison CHECK (state <> 'poison' OR evidence IS NOT NULL),
	CONSTRAINT fk_work_sweep FOREIGN KEY(sweep_id) REFERENCES sweep (id)
);
CREATE INDEX ix_measurement_tree ON measurement (tree);
CREATE INDEX ix_outcome_status ON outcome (sweep_id, status);
CREATE INDEX ix_outcome_model ON outcome (sweep_id, model);
CREATE INDEX ix_event_sweep ON event (sweep_id, id);
CREATE INDEX ix_work_order ON work (sweep_id, position, state);
CREATE INDEX ix_stage_run_sweep ON stage_run (sweep_id, cell);
CREATE INDEX ix_stage_run_model ON stage_run (model, stage, id);
CREATE INDEX ix_bench_work ON bench (sweep_id, model, needs);
DELETE FROM "sqlite_sequence";
COMMIT;
