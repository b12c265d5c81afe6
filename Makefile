# Every target makes the environment it needs, from nothing but python3 and make.
PYTHON ?= python3
BIN    := .venv/bin
# Each process of the tests reads what pip or an earlier one has compiled, also where the environment forbids to write that.
CACHED := PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=
QUICK  := tests/agents tests/channels tests/gateway tests/skills tests/tools tests/test_house.py tests/stories/promises/test_walkthrough.py

# $(1): which, $(2): more options. A test waits longer than it computes: six share two cores. What fails in the crowd is run
# once more, alone, and by name: a race of a test is seen then, and what is broken stays red.
PROCESSES ?= 6
tested = $(CACHED) $(BIN)/python -m pytest -rs -n $(PROCESSES) --dist worksteal -m "$(1)" $(2) || { \
	echo "These failed among the others. Once more, alone:"; \
	$(CACHED) $(BIN)/python -m pytest -v --show-capture=no --last-failed --last-failed-no-failures=none -m "$(1)" $(2); }

.PHONY: run demo rehearsal ready test test-all quick check size bench chaos screenshots film fix docs env browser release lock clean

run: .venv/.run            ## serve bot/config.yaml, which git ignores; write it first if it is not there
	@$(BIN)/python -m gateway

demo: .venv/.run           ## one message through the gateway, offline; ARGS='--full' for every layer, '--api mistral --channel telegram'
	@$(BIN)/python -m tests.demo $(ARGS)

rehearsal: .venv/.run      ## a Telegram and a Feishu on this machine, four people to be, a gateway to kill; ARGS='--demo --keep FOLDER'
	@$(BIN)/python -m tests.rehearsal $(ARGS)

test: ready                ## what a change must pass
	@$(call tested,not long)

test-all: ready            ## the long ones too: every kill point, 200 examples a property, every wall
	@$(call tested,,--hypothesis-profile=long)

quick: .venv/.dev          ## what to run all day: no browser, kills, PostgreSQL, processes, properties, and of the stories the walkthrough
	$(CACHED) $(BIN)/python -m pytest -m "not slow and not long and not hypothesis" -n auto --dist worksteal $(QUICK)

check: .venv/.dev          ## style, types, import direction, size of each room
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -n 2
	$(BIN)/lint-imports
	$(BIN)/python -m tests.size --check

size: .venv/.run           ## lines that serve, functions, the largest file, lines of tests
	@$(BIN)/python -m tests.size

bench: .venv/.dev          ## speed against a bare bot, on this machine; ARGS='--side feishu --no-postgres'
	$(BIN)/python -m tests.bench $(ARGS)

chaos: .venv/.dev          ## kill it at every point and count; ARGS='--kills 5 --seed 1'
	$(BIN)/python -m tests.chaos $(ARGS)

screenshots: .venv/.dev browser     ## docs/images/web-*.png and console-*.png, the pages as they look
	$(BIN)/python -m tests.browser.screenshots

film: .venv/.dev browser   ## docs/images/clawgate.gif, the moving picture of the README
	$(BIN)/python -m tests.rehearsal.film

fix: .venv/.dev            ## what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/.run           ## docs/config.md and the JSON schema, from the models; docs/texts.md, from the code
	$(BIN)/python -m gateway.config.reference docs
	$(BIN)/python -m tests.texts

ready: .venv/.dev
	@$(MAKE) --no-print-directory -sj4 .venv/.compiled .venv/.npm .venv/.judges browser

env: .venv/.dev .venv/.npm .venv/.judges   ## the environment alone

browser: .venv/.run        ## a Chromium for the browser tests, where this is Debian and we are root
	@$(BIN)/python -m tests.browser.chromium

release: .venv/.dev        ## build wheel and sdist into dist/ and try them; wants the tag of the version, ARGS=--untagged does not
	@$(BIN)/python -m tests.release $(ARGS)

lock: .venv/.dev           ## after a change of dependencies in pyproject.toml
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-header pyproject.toml -o requirements.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-header --group dev pyproject.toml -o requirements-dev.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-header --group judges -o requirements-judges.txt

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# An interrupted installation leaves no mark and begins anew: a half-written package would count as installed. uv installs in
# seconds, and pip where uv cannot be had. Compiled, because an environment may forbid to write that later.
.venv/.run: requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Clawgate needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	@echo "Installing what Clawgate needs into .venv (once) ..."
	@rm -rf .venv; $(PYTHON) -m venv .venv || { rm -rf .venv; echo "This Python cannot make an environment with pip. On Debian or\
 Ubuntu: apt install python3-venv. Then type make again." >&2; exit 1; }
	@sed -n '/^uv==/,/[^\\]$$/p' requirements-dev.txt > .venv/uv.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --retries 1 --no-compile --only-binary :all:\
 --require-hashes -r .venv/uv.txt 2>/dev/null || true
	@$(BIN)/python -m tests.installer requirements.txt .venv --compile-bytecode
	@touch $@

.venv/.dev: requirements-dev.txt .venv/.run
	@echo "Installing what the tests need into .venv (once) ..."
	@rm .venv/.run
	@$(BIN)/python -m tests.installer requirements-dev.txt .venv
	@touch .venv/.run $@

# What judges us from outside and wants other versions than ours.
.venv/.judges: requirements-judges.txt | .venv/.run
	@echo "Installing the judges into .venv/judges (once) ..."
	@$(PYTHON) -m venv --without-pip --clear .venv/judges
	@$(BIN)/python -m tests.installer requirements-judges.txt .venv/judges
	@touch $@

# Each of the tests' processes would compile all tests: one does it before, once.
.venv/.compiled: .venv/.dev
	@$(CACHED) $(BIN)/python -m pytest --collect-only >/dev/null 2>&1; touch $@

# A server of tools from npm. Where there is no npm, the one test that wants it is skipped, and says so.
.venv/.npm: tests/npm/package-lock.json | .venv/.run
	@mkdir -p .venv/npm && cp tests/npm/*.json .venv/npm
	@if command -v npm >/dev/null; then cd .venv/npm && npm ci --ignore-scripts --no-audit --no-fund >/dev/null; fi
	@touch $@
