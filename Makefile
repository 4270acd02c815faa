# Every target prints what it does, can be repeated and leaves no process behind. `make help` lists them.
.DEFAULT_GOAL := help
.PHONY: help setup setup-dev setup-browser setup-mysql run run-mysql dev test test-long test-standin test-browser test-daemon test-ways test-jvms simulate test-install test-cluster conformance conformance-short test-engines test-kafka laws histories lint bench bench-kafka bench-curves docs screenshots lock clean

PY := .venv/bin/python
PYTEST := $(PY) -m pytest
# where it is set, each of a thousand processes of the tests would compile the package anew
unexport PYTHONDONTWRITEBYTECODE

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## System packages (only if missing), .venv, locked Python packages
	@.ci/setup.sh run

setup-dev: ## The same, with what the tests need
	@.ci/setup.sh dev

run: setup ## The whole story once: stand-in server, live workload, capture through Dagster, summary
	@$(PY) -m demo run

run-mysql: setup-mysql ## The story on a MariaDB of its own, by Debezium's MySQL connector; ends with a summary
	@$(PY) -m demo mysql

setup-mysql: ## System packages and .venv, with MariaDB's programs (no service is started) and Debezium's connectors
	@.ci/setup.sh mysql

dev: setup ## Dagster's web pages with sensors on, a stand-in server and a live workload
	@$(PY) -m demo dev

test: setup-dev ## Lint-free fast tests: units, contracts, Spark, Dagster in process; two workers for each of two processors (WORKERS), since one waits a third of its time; nine minutes
	$(PYTEST) -q -n $${WORKERS:-4} --dist loadfile --no-loadscope-reorder

test-long: setup-dev ## Combinations and longer stories, which `make test` leaves out, and on delta-rs what that plays on quick tables; half an hour
	CDC_DELTA_RS=1 $(PYTEST) -q -n $${WORKERS:-4} --dist loadfile --no-loadscope-reorder -m "long or quick"

test-standin: setup-dev ## The stand-in's own tests; half a minute
	$(PYTEST) -q -n $${WORKERS:-2} --dist loadfile standin/tests

laws: setup-dev ## Incremental snapshots in bad weather, ten thousand broken signals, changing structures, tables of any shape, a hundred times (CDC_LAW_EXAMPLES); minutes
	CDC_LAW_EXAMPLES=$${CDC_LAW_EXAMPLES:-100} $(PYTEST) -q -m '' cdc_assets_tests/unit/incremental/test_law.py \
		cdc_assets_tests/unit/signals/test_nonsense_law.py cdc_assets_tests/unit/streaming/test_cut_law.py \
		cdc_assets_tests/unit/streaming/test_law.py
	CDC_SHAPES=$$(($${CDC_LAW_EXAMPLES:-100} * 10)) $(PYTEST) -q -m '' cdc_assets_tests/contract/clients/test_shapes_law.py
	CDC_LAW_EXAMPLES=$${CDC_LAW_EXAMPLES:-100} $(PYTEST) -q -m '' cdc_assets_tests/unit/mirror/test_fold_law.py
	CDC_MIRROR_SEEDS=$${CDC_LAW_EXAMPLES:-100} $(PYTEST) -q -m '' cdc_assets_tests/contract/test_mirror_law.py
	CDC_LAW_EXAMPLES=$${CDC_LAW_EXAMPLES:-100} $(PYTEST) -q -m '' cdc_assets_tests/unit/retention/test_law.py
	CDC_SOAK_SECONDS=$${CDC_LAW_EXAMPLES:-100} $(PYTEST) -q -m '' cdc_assets_tests/contract/test_mirror_soak.py
	CDC_SCHEMA_SEEDS=$${CDC_LAW_EXAMPLES:-100} $(PYTEST) -q -m '' cdc_assets_tests/contract/test_schema_law.py
	CDC_MOMENT_LAGS=0,1.5,5 $(PYTEST) -q -m '' cdc_assets_tests/unit/snapshot/test_moment.py

histories: setup-dev ## Random histories of two databases in bad weather: runs killed, asleep and woken, capture jobs that lag, structures changed, stores that lose answers; with CDC_HISTORIES_SPARK=1 on Spark, whose processes are killed (CDC_HISTORIES, CDC_HISTORIES_LAG); the better part of an hour
	CDC_HISTORIES=$${CDC_HISTORIES:-200} CDC_HISTORIES_LAG=$${CDC_HISTORIES_LAG:-30} $(PYTEST) -q -m law -n $${WORKERS:-2} cdc_assets_tests/contract/test_histories.py

simulate: setup-dev ## Random histories of everything at once, in memory, against one law, for so many MINUTES (CDC_SIMULATE_FROM: first seed)
	CDC_SIMULATE_MINUTES=$${MINUTES:-10} $(PYTEST) -q -s -n 2 cdc_assets_tests/simulation -k minutes

setup-browser: ## What the tests need, and Chromium from the system's packages
	@.ci/setup.sh browser

test-browser: setup-browser ## A page of Dagster in a headless browser, without a daemon; less than a minute
	$(PYTEST) -q -m browser cdc_assets_tests/dagster/test_browser.py

test-daemon: setup-browser ## The real Dagster daemon, killed runs, web pages in a headless browser
	$(PYTEST) -q -m "daemon or browser"

test-ways: setup-dev ## Each way in which a capture can be broken, and how soon page, command, checks and metrics say so; an hour (CDC_WAYS_SOON_S, CDC_WAYS_TABLE)
	$(PYTEST) -q -m ways

test-jvms: setup-dev ## Spark sessions that die, sessions of others, an object store, a small cluster: tests that start JVMs of their own; minutes
	$(PYTEST) -q -n $${WORKERS:-2} -m jvms

test-install: setup-dev ## The wheel, installed by pip from the package index into an empty environment; three minutes
	CDC_TEST_INSTALL=1 $(PYTEST) -q cdc_assets_tests/dagster/test_library.py --timeout 1800

test-cluster: setup-dev ## A Spark cluster whose workers are hosts of their own (network namespaces, needs root), and Spark Connect; minutes (CDC_CLUSTER_PATIENCE)
	$(PYTEST) -q -m cluster

conformance: setup-dev ## The real Debezium connector against the stand-in, and against us (CDC_CONFORMANCE_SEED, _TRANSACTIONS)
	$(PYTEST) -q -m conformance

conformance-short: setup-dev ## The same over few transactions and two configurations; a minute and a half
	CDC_CONFORMANCE_TRANSACTIONS=200 $(PYTEST) -q -n $${WORKERS:-2} -m conformance -k "test_standin or test_blocking or default or transactions-and or nanoseconds-string"

test-engines: setup-dev ## Debezium's MySQL and PostgreSQL connectors against real servers (mariadb-server, postgresql), runs killed; minutes (CDC_ENGINE_ROUNDS, _SEED)
	$(PYTEST) -q -m engines

test-kafka: setup-dev ## Events from the topics of a real Kafka broker (Java; fetched once from Maven Central), runs killed; minutes
	$(PYTEST) -q -m kafka

lint: setup-dev ## ruff, ruff format, mypy
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	$(PY) -m mypy

bench: setup-dev ## A snapshot and a backlog beside the real connector and PySpark's JDBC reader, cold and warm; ratios; minutes
	$(PY) -m benchmarks versus

bench-kafka: setup-dev ## The same events in the topics of a real broker, beside the real connector in Kafka Connect; a quarter of an hour
	$(PY) -m benchmarks kafka

bench-curves: setup-dev ## Rates over tasks, tables, sizes of transactions; cost of commits over windows; half an hour
	$(PY) -m benchmarks curves

screenshots: setup-browser ## The pictures in docs/_images, taken by the tests of Dagster's pages
	CDC_SCREENSHOTS=docs/_images $(PYTEST) -q -m daemon cdc_assets_tests/e2e/test_pages.py

docs: setup-dev ## The pages as a site in build/docs, with search; a warning is an error, and a test says what must be found
	$(PY) -m sphinx -W --keep-going -q -b html docs build/docs
	$(PYTEST) -q -m site

lock: ## Write requirements*.txt anew from pyproject.toml (needs uv)
	uv pip compile pyproject.toml standin/pyproject.toml --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate --no-strip-extras -q --extra web -o requirements.txt
	uv pip compile pyproject.toml standin/pyproject.toml --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate --no-strip-extras -q --all-extras -o requirements-dev.txt

clean: ## Remove the lake, Dagster's state and the stand-in's data (var/)
	rm -rf var
