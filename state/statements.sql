-- Everything that changes the state, in the SQL that SQLite and PostgreSQL share.
--
-- A statement follows its name. `{name}` stands for the statement of that name; `{now}` for the
-- database's clock, in seconds since the epoch; `{each names}` for the texts of a list, which is one
-- parameter; `{postgresql ...}` for what SQLite, which has one writer at a time, does without.


-------------------------------------------------------------------------- what a cell or lease is

-- name: leased
-- Somebody holds a cell (dead holders are removed beforehand).
EXISTS (
    SELECT 1 FROM lease
    WHERE lease.sweep_id = outcome.sweep_id
        AND lease.model = outcome.model AND lease.needs = outcome.needs
)

-- name: unfinished
-- An interrupted run left a cell half done; `verified` is final only where nothing is published.
(
    outcome.status IN ('building', 'built', 'verifying', 'publishing')
    OR outcome.status = 'verified'
        AND (SELECT publish FROM sweep WHERE sweep.id = outcome.sweep_id)
)

-- name: published
outcome.status IN ('published', 'unchanged')

-- name: failed
outcome.status IN (
    'build_failed', 'build_timeout', 'verify_failed', 'publish_failed', 'conflict', 'unsupported'
)

-- name: measurable
-- Work measures a cell that is published and yet to measure.
EXISTS (
    SELECT 1 FROM bench JOIN outcome
        ON outcome.sweep_id = bench.sweep_id AND outcome.cell = bench.cell
    WHERE bench.sweep_id = work.sweep_id AND bench.model = work.model AND bench.needs = work.needs
        AND bench.state = 'wanted' AND {published}
)

-- name: has_open
-- Work has a cell that is to be built or measured.
(
    EXISTS (
        SELECT 1 FROM outcome
        WHERE outcome.sweep_id = work.sweep_id
            AND outcome.model = work.model AND outcome.needs = work.needs
            AND (outcome.status IN ('planned', 'cancelled') OR {unfinished})
    )
    OR {measurable}
)

-- name: this_work
sweep_id = :sweep_id AND model = :model AND needs = :needs

-- name: held
-- Tokens are never given out twice; the rest finds the row by its key.
{this_work} AND token = :token

-- name: late
-- Leases are renewed four times in a term.
lease.renewed_at < {now} - lease.ttl / 2

-- name: spared
-- A lease has had its second term, and was not renewed since. Idle slots look for leases every
-- second: one that ran out half a minute ago and is still here was looked at by nobody. The database
-- was away, or all were.
lease.expires_at > lease.renewed_at + 1.5 * lease.ttl AND lease.expires_at > {now} - 30


------------------------------------------------------------------------------------------- events

-- name: new_event
INSERT INTO event (at, sweep_id, cell, model, kind, status, token, owner, data)
VALUES ({now}, :sweep_id, :cell, :model, :kind, :status, :token, :owner, :data)

-- name: add_event
{new_event} RETURNING id


------------------------------------------------------------------------------------------- leases

-- name: renew
UPDATE lease SET renewed_at = {now}, expires_at = {now} + :ttl, ttl = :ttl WHERE {held}

-- name: set_activity
UPDATE lease SET cell = :cell, activity = :activity WHERE {held}

-- name: give_back
DELETE FROM lease WHERE {held}

-- name: current_token
SELECT token FROM lease WHERE {this_work} {postgresql FOR SHARE}

-- name: is_late
SELECT 1 FROM lease WHERE {held} AND {late}

-- name: spare
-- Gives every lease that was not renewed in time one more term, once.
UPDATE lease SET expires_at = {now} + ttl WHERE {late} AND NOT ({spared})

-- name: clock_set_back
-- After the clock was set back a heartbeat lies in the future and would count for that long. Its
-- holder gets one more term by the new clock: if it lives it renews, if not it expires.
UPDATE lease SET renewed_at = {now}, expires_at = {now} + ttl
WHERE renewed_at > {now} + 1 AND CAST(token AS TEXT) NOT IN {each running}

-- name: one_in_time
SELECT 1 FROM lease WHERE NOT ({late}) AND CAST(token AS TEXT) NOT IN {each dead} LIMIT 1

-- name: take_lost
-- Of holders that are gone, or that are silent and do not run here.
DELETE FROM lease
WHERE expires_at <= {now} AND CAST(token AS TEXT) NOT IN {each running}
    OR CAST(token AS TEXT) IN {each dead}
RETURNING *

-- name: open_needs
SELECT DISTINCT needs FROM work WHERE sweep_id = :sweep_id AND state IN ('todo', 'leased')

-- name: next_work
-- Two sweeps never build the same model at once; to measure one keeps nobody from building it.
SELECT work.model, work.needs, work.attempts FROM work
WHERE work.sweep_id = :sweep_id AND work.state IN ('todo', 'leased')
    AND NOT EXISTS (
        SELECT 1 FROM lease
        WHERE lease.model = work.model AND (
            lease.sweep_id = work.sweep_id AND lease.needs = work.needs
            OR lease.sweep_id <> work.sweep_id
                AND lease.needs NOT LIKE '%"bench:%' AND lease.needs NOT LIKE '%"bench-emulated:%'
                AND work.needs NOT LIKE '%"bench:%' AND work.needs NOT LIKE '%"bench-emulated:%'
        )
    )
    AND (CAST(:among AS TEXT) IS NULL OR work.model IN {each among})
    AND (CAST(:served AS TEXT) IS NULL OR work.needs IN {each served})
ORDER BY work.position LIMIT 1 {postgresql FOR UPDATE OF work SKIP LOCKED}

-- name: one_at_a_time
-- PostgreSQL: of two sweeps that take the same model at the same moment, one waits here.
SELECT pg_advisory_xact_lock(hashtextextended(:model, 0))

-- name: built_elsewhere
SELECT 1 FROM lease
WHERE model = :model AND sweep_id <> :sweep_id
    AND needs NOT LIKE '%"bench:%' AND needs NOT LIKE '%"bench-emulated:%'

-- name: take
INSERT INTO lease (
    sweep_id, model, needs, token, owner, host, pid, pid_started,
    taken_at, renewed_at, expires_at, ttl
)
VALUES (
    :sweep_id, :model, :needs, :token, :owner, :host, :pid, :started,
    {now}, {now}, {now} + :ttl, :ttl
)
ON CONFLICT DO NOTHING RETURNING model


--------------------------------------------------------------------------------------------- work

-- name: lease_work
UPDATE work SET state = 'leased', attempts = :attempts WHERE {this_work}

-- name: set_work
UPDATE work SET state = :state WHERE {this_work}

-- name: lost_work
SELECT lost, evidence FROM work WHERE {this_work} {postgresql FOR UPDATE}

-- name: lose_work
UPDATE work SET state = 'todo', lost = :lost, evidence = :evidence WHERE {this_work}

-- name: set_evidence
UPDATE work SET evidence = :evidence WHERE {this_work}

-- name: close_work
UPDATE work SET state = 'done' WHERE sweep_id = :sweep_id AND state = 'todo' AND NOT {has_open}

-- name: open_work
UPDATE work SET state = 'todo', lost = 0, evidence = NULL
WHERE sweep_id = :sweep_id AND state IN ('done', 'poison') AND {has_open}

-- name: open_benches
-- What waits to be measured can be leased, now that its cell is published.
UPDATE work SET state = 'todo'
WHERE sweep_id = :sweep_id AND model = :model AND state = 'done' AND {measurable}

-- name: lock_work
-- Nobody leases cells of this sweep until the end of the transaction.
SELECT model FROM work WHERE sweep_id = :sweep_id {postgresql FOR UPDATE}

-- name: drop_work
-- What no cell makes any more, unless it is held.
DELETE FROM work
WHERE sweep_id = :sweep_id
    AND NOT EXISTS (
        SELECT 1 FROM outcome
        WHERE outcome.sweep_id = work.sweep_id
            AND outcome.model = work.model AND outcome.needs = work.needs
    )
    AND NOT EXISTS (
        SELECT 1 FROM bench
        WHERE bench.sweep_id = work.sweep_id
            AND bench.model = work.model AND bench.needs = work.needs
    )
    AND NOT EXISTS (
        SELECT 1 FROM lease
        WHERE lease.sweep_id = work.sweep_id
            AND lease.model = work.model AND lease.needs = work.needs
    )

-- name: carriers
SELECT DISTINCT 0 AS measures, model, needs FROM outcome WHERE sweep_id = :sweep_id
UNION ALL SELECT DISTINCT 1 AS measures, model, needs FROM bench WHERE sweep_id = :sweep_id

-- name: put_work
INSERT INTO work (sweep_id, model, needs, state, position, estimate, attempts, lost)
VALUES (:sweep_id, :model, :needs, 'todo', :position, :estimate, 0, 0)
ON CONFLICT (sweep_id, model, needs)
DO UPDATE SET position = excluded.position, estimate = excluded.estimate

-- name: forgive_work
UPDATE work SET lost = 0, evidence = NULL WHERE sweep_id = :sweep_id AND state <> 'poison'


-------------------------------------------------------------------------------------------- cells

-- name: cells_of_work
-- That a holder left half done; `waiting`: and those that nobody began.
SELECT cell, model FROM outcome
WHERE {this_work} AND ({unfinished} OR :waiting AND status IN ('planned', 'cancelled'))
ORDER BY cell {postgresql FOR UPDATE}

-- name: free_cells
SELECT cell, model FROM outcome
WHERE sweep_id = :sweep_id AND ({unfinished} OR :planned AND status = 'planned') AND NOT {leased}
ORDER BY cell {postgresql FOR UPDATE}

-- name: cancelled_cells
SELECT cell, model FROM outcome
WHERE sweep_id = :sweep_id AND status = 'cancelled' AND cell IN {each cells} AND NOT {leased}
ORDER BY cell {postgresql FOR UPDATE}

-- name: failed_cells
SELECT cell, model FROM outcome
WHERE sweep_id = :sweep_id AND {failed}
    AND (CAST(:classes AS TEXT) IS NULL OR failure IN {each classes})
    AND (CAST(:among AS TEXT) IS NULL OR cell IN {each among})
ORDER BY cell {postgresql FOR UPDATE}

-- name: cells_with
SELECT cell, model FROM outcome
WHERE sweep_id = :sweep_id AND status = :status AND cell IN {each cells}
ORDER BY cell {postgresql FOR UPDATE}

-- name: unlisted_cells
-- Published before a listing of the feed began that does not have them.
SELECT cell, model FROM outcome
WHERE sweep_id = :sweep_id AND status = 'published' AND ended_at < :listed_at
    AND cell IN {each cells} AND NOT {leased}
ORDER BY cell {postgresql FOR UPDATE}

-- name: seedable_cells
-- A conflict stays: that the version exists in the feed is exactly what is wrong with it.
SELECT cell, model, version, status, tree FROM outcome
WHERE sweep_id = :sweep_id AND NOT {leased}
    AND (status IN ('planned', 'cancelled', 'verified', 'published') OR {failed})
    AND status <> 'conflict'
ORDER BY cell {postgresql FOR UPDATE}

-- name: forgotten
failure = NULL, stage = NULL, exit_code = NULL, message = NULL, hint = NULL, log_tail = NULL,
retryable = NULL, started_at = NULL, seconds = NULL, evidence = NULL, detail = NULL

-- name: plan_again
-- Of what happened only the attempts and the events remain.
UPDATE outcome SET
    {forgotten}, status = 'planned', ended_at = NULL, published_at = NULL, tree = NULL, bytes = NULL
WHERE sweep_id = :sweep_id AND cell = :cell

-- name: cancel
UPDATE outcome SET status = 'cancelled', ended_at = {now}
WHERE sweep_id = :sweep_id AND cell = :cell

-- name: skip
UPDATE outcome SET status = 'skipped', message = :message, ended_at = {now}
WHERE sweep_id = :sweep_id AND cell = :cell

-- name: poison
UPDATE outcome SET
    status = 'build_failed', failure = 'CRASH', retryable = FALSE, message = :message,
    hint = :hint, detail = :detail, ended_at = {now}
WHERE sweep_id = :sweep_id AND cell = :cell

-- name: seed
UPDATE outcome SET
    {forgotten}, status = 'published', tree = :tree, ended_at = {now},
    published_at = coalesce(:published_at, {now})
WHERE sweep_id = :sweep_id AND cell = :cell

-- name: correct_tree
UPDATE outcome SET tree = :tree WHERE sweep_id = :sweep_id AND cell = :cell

-- name: standing
SELECT status, token, model, needs FROM outcome WHERE sweep_id = :sweep_id AND cell = :cell

-- name: of_lease
(CAST(:model AS TEXT) IS NULL OR model = :model AND needs = :needs)

-- name: record
-- Matches no row where a status must not follow the one before, or where the cell is not one of the
-- lease. What is published twice with the same content (a repeated settle) is still published. What
-- is not known leaves what was recorded before.
UPDATE outcome SET
    status = :status, failure = :failure, retryable = :retryable,
    token = coalesce(:token, token), tree = coalesce(:tree, tree),
    stage = coalesce(:stage, stage), exit_code = coalesce(:exit_code, exit_code),
    message = coalesce(:message, message), hint = coalesce(:hint, hint),
    log_tail = coalesce(:log_tail, log_tail), bytes = coalesce(:bytes, bytes),
    seconds = coalesce(:seconds, seconds), evidence = coalesce(:evidence, evidence),
    detail = coalesce(:detail, detail),
    published_at = CASE WHEN :status = 'published'
        THEN coalesce(:published_at, published_at, {now})
        ELSE coalesce(:published_at, published_at) END,
    started_at = CASE WHEN :running AND status NOT IN {each while_running}
        THEN {now} ELSE started_at END,
    attempts = attempts + CASE
        WHEN :status = 'building' OR :running AND status NOT IN {each while_running}
        THEN 1 ELSE 0 END,
    ended_at = CASE WHEN :running AND :status <> 'verified' THEN NULL ELSE {now} END
WHERE sweep_id = :sweep_id AND cell = :cell AND {of_lease}
    AND (
        status IN {each sources}
        OR status = 'published' AND :status = 'published' AND tree = :tree
    )
RETURNING model

-- name: record_planned
UPDATE outcome SET {forgotten}, status = 'planned', ended_at = NULL, published_at = NULL
WHERE sweep_id = :sweep_id AND cell = :cell AND {of_lease} AND status IN {each sources}
RETURNING model

-- name: add_key
INSERT INTO stage_key (key, parts) VALUES (:key, :parts) ON CONFLICT DO NOTHING

-- name: add_run
INSERT INTO stage_run (
    at, sweep_id, model, cell, target, stage, component, key, reused, seconds, bytes, peak_memory
)
VALUES (
    {now}, :sweep_id, :model, :cell, :target, :stage, :component, :key, :reused, :seconds, :bytes,
    :peak_memory
)


------------------------------------------------------------------------------------------- sweeps

-- name: new_sweep
INSERT INTO sweep (stamp, feed, publish, settings, selection, created_at, begun_at)
VALUES (:stamp, :feed, :publish, :settings, :selection, {now}, {now})
ON CONFLICT DO NOTHING RETURNING id

-- name: sweep_of
SELECT id FROM sweep WHERE stamp = :stamp AND feed = :feed

-- name: begin
-- Also the lock that keeps two runs apart that begin the same sweep.
UPDATE sweep SET
    publish = :publish, settings = :settings, selection = :selection, begun_at = {now},
    ended_at = NULL, exit_code = NULL
WHERE id = :sweep_id

-- name: end
UPDATE sweep SET ended_at = {now}, exit_code = :exit_code WHERE id = :sweep_id

-- name: keep_plan
INSERT INTO plan (sweep_id, digest, run, plan) VALUES (:sweep_id, :digest, :run, :plan)
ON CONFLICT (sweep_id, digest) DO UPDATE SET run = excluded.run

-- name: known_cells
SELECT cell, status, package, version, precision, needs, {leased} AS leased
FROM outcome WHERE sweep_id = :sweep_id {postgresql FOR UPDATE OF outcome}

-- name: new_cell
INSERT INTO outcome (
    sweep_id, cell, model, target, precision, package, version, needs, status, message, attempts,
    ended_at
)
VALUES (
    :sweep_id, :cell, :model, :target, :precision, :package, :version, :needs, :status, :message, 0,
    CASE WHEN :status = 'skipped' THEN {now} END
)

-- name: change_cell
UPDATE outcome SET
    package = :package, version = :version, precision = :precision, needs = :needs
WHERE sweep_id = :sweep_id AND cell = :cell

-- name: drop_benches
DELETE FROM bench WHERE sweep_id = :sweep_id AND cell IN {each cells}

-- name: put_bench
-- What is measured by the same protocol stays so, what failed is tried again.
INSERT INTO bench (sweep_id, cell, model, needs, state, protocol)
VALUES (:sweep_id, :cell, :model, :needs, 'wanted', :protocol)
ON CONFLICT (sweep_id, cell) DO UPDATE SET
    needs = excluded.needs, protocol = excluded.protocol, message = NULL,
    state = CASE WHEN bench.state = 'measured' AND bench.protocol = excluded.protocol
        THEN bench.state ELSE excluded.state END

-- name: fail_benches
UPDATE bench SET state = 'failed', message = :message WHERE {this_work} AND state = 'wanted'

-- name: settle_bench
UPDATE bench SET state = :state, message = :message WHERE {this_work} AND cell = :cell

-- name: want_benches
UPDATE bench SET state = 'wanted', message = NULL
WHERE sweep_id = :sweep_id AND cell IN {each cells}

-- name: add_measurement
INSERT INTO measurement (
    at, kind, tree, cell, stamp, component, runtime, provider, device, version, emulated, machine,
    protocol, percentiles, detail, raw
)
VALUES (
    {now}, :kind, :tree, :cell, :stamp, :component, :runtime, :provider, :device, :version,
    :emulated, :machine, :protocol, :percentiles, :detail, :raw
)
RETURNING id


------------------------------------------------------------------------------------------ pruning

-- name: newest_published
-- The sweeps with the newest record of a published cell on their feed.
SELECT DISTINCT sweep_id FROM (
    SELECT outcome.sweep_id, row_number() OVER (
        PARTITION BY sweep.feed, outcome.cell ORDER BY sweep.created_at DESC, sweep.id DESC
    ) AS age
    FROM outcome JOIN sweep ON sweep.id = outcome.sweep_id
    WHERE {published}
) AS newest WHERE age = 1

-- name: ended_sweep
-- `begin` waits.
SELECT stamp FROM sweep WHERE id = :sweep_id AND exit_code IS NOT NULL {postgresql FOR UPDATE}

-- name: goes_on
-- Somebody works on the sweep, or a tuning of its name may go on.
SELECT 1 FROM lease WHERE sweep_id = :sweep_id
UNION ALL SELECT 1 FROM tuning WHERE name = :stamp AND status <> 'done'

-- name: keep_costs
-- The last real run of a stage leaves the sweep if another sweep reuses its result.
UPDATE stage_run SET sweep_id = NULL
WHERE sweep_id = :sweep_id
    AND id IN (SELECT max(id) FROM stage_run WHERE NOT reused GROUP BY key)
    AND key IN (SELECT key FROM stage_run WHERE sweep_id <> :sweep_id)

-- name: drop_costs
DELETE FROM stage_run
WHERE sweep_id IS NULL AND (
    id NOT IN (SELECT max(id) FROM stage_run WHERE NOT reused GROUP BY key)
    OR key NOT IN (SELECT key FROM stage_run WHERE sweep_id <> :sweep_id)
)

-- name: remove_benches
DELETE FROM bench WHERE sweep_id = :sweep_id

-- name: remove_work
DELETE FROM work WHERE sweep_id = :sweep_id

-- name: remove_cells
DELETE FROM outcome WHERE sweep_id = :sweep_id

-- name: remove_plans
DELETE FROM plan WHERE sweep_id = :sweep_id

-- name: remove_events
DELETE FROM event WHERE sweep_id = :sweep_id

-- name: remove_runs
DELETE FROM stage_run WHERE sweep_id = :sweep_id

-- name: remove_sweep
DELETE FROM sweep WHERE id = :sweep_id


------------------------------------------------------------------------------------------ tunings

-- name: tuning_of_name
SELECT 1 FROM tuning WHERE name = :name LIMIT 1

-- name: new_tuning
INSERT INTO tuning (name, model, target, position, status, created_at, detail)
VALUES (:name, :model, :target, :position, 'planned', {now}, :detail)

-- name: keep_tuning
UPDATE tuning SET
    status = :status, message = :message, detail = :detail,
    began_at = CASE WHEN :status = 'running' THEN coalesce(began_at, {now}) ELSE began_at END,
    ended_at = CASE WHEN :over THEN {now} END
WHERE id = :id

-- name: keep_trial
INSERT INTO trial (tuning_id, key, position, phase, verdict, tree, detail)
VALUES (:tuning_id, :key, :position, :phase, :verdict, :tree, :detail)
ON CONFLICT (tuning_id, key) DO UPDATE SET
    position = excluded.position, phase = excluded.phase, verdict = excluded.verdict,
    tree = excluded.tree, detail = excluded.detail

-- name: keep_session
INSERT INTO trial_session (tuning_id, trial, kind, component, number, at, detail, raw)
VALUES (:tuning_id, :trial, :kind, :component, :number, {now}, :detail, :raw)
ON CONFLICT (tuning_id, trial, kind, component, number) DO UPDATE SET
    at = excluded.at, detail = excluded.detail, raw = excluded.raw

-- name: drop_sessions
DELETE FROM trial_session WHERE tuning_id = :tuning_id

-- name: drop_trials
DELETE FROM trial WHERE tuning_id = :tuning_id
