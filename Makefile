# Every target makes the environment it needs, from nothing but python3 and make.
PYTHON ?= python3
BIN    := .venv/bin
# Each process of the tests reads what pip or an earlier one has compiled, also where the environment forbids to write that.
CACHED := PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=
QUICK  := tests/agents tests/channels tests/gateway tests/skills tests/tools tests/test_house.py tests/stories/test_walkthrough.py

# $(1): which, $(2): more options. A test waits longer than it computes: six share two cores. What fails in the crowd is run
# once more, alone, and by name: a race of a test is seen then, and what is broken stays red.
PROCESSES ?= 6
tested = $(CACHED) $(BIN)/python -m pytest -rs -n $(PROCESSES) --dist worksteal -m "$(1)" $(2) || { \
	echo "These failed among the others. Once more, alone:"; \
	$(CACHED) $(BIN)/python -m pytest -v --show-capture=no --last-failed --last-failed-no-failures=none -m "$(1)" $(2); }

.PHONY: run demo ready test test-all quick check size bench chaos screenshots fix docs env browser lock clean

run: .venv/.run            ## serve ./config.yaml
	@$(BIN)/python -m gateway serve

demo: .venv/.run           ## one message through the gateway, offline; ARGS='--full' for every layer, '--api mistral --channel telegram'
	@$(BIN)/python -m tests.demo $(ARGS)

test: ready                ## what a change must pass
	@$(call tested,not long)

test-all: ready            ## the long ones too: every kill point, 200 examples a property, every wall
	@$(call tested,,--hypothesis-profile=long)

quick: .venv/.dev          ## what to run all day: no browser, kills, PostgreSQL, processes, properties, and of the stories the walkthrough
	$(CACHED) $(BIN)/python -m pytest -m "not slow and not long and not hypothesis" -n auto --dist worksteal $(QUICK)

check: .venv/.dev          ## style, types, import direction, size of each room
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.size --check

size: .venv/bin/python     ## lines that serve, functions, the largest file, lines of tests
	@$(BIN)/python -m tests.size

bench: .venv/.dev          ## speed against a bare bot, on this machine; ARGS='--side feishu --no-postgres'
	$(BIN)/python -m tests.bench $(ARGS)

chaos: .venv/.dev          ## kill it at every point and count; ARGS='--kills 5 --seed 1'
	$(BIN)/python -m tests.chaos $(ARGS)

screenshots: browser       ## docs/images/web-*.png and console-*.png, the pages as they look
	$(BIN)/python -m tests.browser.screenshots

fix: .venv/.dev            ## what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/.run           ## docs/config.md and the JSON schema, from the models; docs/texts.md, from the code
	$(BIN)/python -m gateway.config.reference docs
	$(BIN)/python -m tests.texts

# What else the tests need is fetched side by side.
ready: .venv/.dev
	@$(MAKE) --no-print-directory -j4 .venv/.judges .venv/.npm .venv/.compiled browser

env: .venv/.dev .venv/.judges .venv/.npm ## the environment alone

browser: .venv/.dev        ## a Chromium for the browser tests, where this is Debian and we are root
	@$(BIN)/python -m tests.browser.chromium

lock: .venv/.dev           ## after a change of dependencies in pyproject.toml
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-header pyproject.toml -o requirements.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-header --group dev pyproject.toml -o requirements-dev.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-header --group judges -o requirements-judges.txt

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# $(1): where. Debian makes the folder and then finds no pip in itself: nothing half-made stays.
venv = $(PYTHON) -m venv --clear $(1) || { rm -rf $(1); echo "This Python cannot make an environment with pip. On Debian or\
 Ubuntu: apt install python3-venv. Then type make again." >&2; exit 1; }

# $(1): the lock. Where pip was interrupted, or is missing, the environment is made anew: a half-written package would
# count as installed.
install = if test -e .venv/.installing || ! $(BIN)/python -m pip --version >/dev/null 2>&1; then $(call venv,.venv); fi; \
	touch .venv/.installing; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(1); code=$$?; \
	rm -f .venv/.installing; exit $$code

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Clawgate needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	@$(call venv,.venv)

.venv/.run: requirements.txt .venv/bin/python
	@echo "Installing what Clawgate needs into .venv (once) ..."
	@$(call install,requirements.txt)
	@touch $@

.venv/.dev: requirements-dev.txt requirements.txt .venv/bin/python
	@echo "Installing what the tests need into .venv (once) ..."
	@$(call install,requirements-dev.txt)
	@touch $@ .venv/.run

# What judges us from outside and wants other versions than ours.
.venv/.judges: requirements-judges.txt | .venv/bin/python
	@echo "Installing the judges into .venv/judges (once) ..."
	@$(call venv,.venv/judges)
	@.venv/judges/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-judges.txt
	@touch $@

# Each of the tests' processes would compile all tests: one does it before, once.
.venv/.compiled: .venv/.dev
	@$(CACHED) $(BIN)/python -m pytest --collect-only >/dev/null 2>&1; touch $@

# A server of tools from npm. Where there is no npm, the one test that wants it is skipped, and says so.
.venv/.npm: tests/npm/package-lock.json | .venv/bin/python
	@mkdir -p .venv/npm && cp tests/npm/*.json .venv/npm
	@if command -v npm >/dev/null; then cd .venv/npm && npm ci --ignore-scripts --no-audit --no-fund >/dev/null; fi
	@touch $@
