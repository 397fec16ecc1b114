# Carillon: two commands matter, `make run` and `make test`; `make help` lists the rest.

# The system's own Python where it will do: distributions optimize theirs, and one that was built on the spot may take
# half as long again for the tests.
PYTHON ?= $(shell for each in /usr/bin/python3 python3; do \
            $$each -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; done; echo $$each)
ARGS   ?=
SEED   ?=
ONLY   ?=

VENV ?= .venv
BIN  := $(VENV)/bin
UV   := $(BIN)/uv
CODE := src tests scripts $(wildcard bench)

COMPILE = $(CERTIFICATES) $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes \
          --no-header --no-emit-index-url --no-annotate $(ARGS) pyproject.toml

# What the chart leaves out unless it is asked for.
EVERYTHING = --set doors.autoscaling.maxReplicas=4,outbound.autoscaling.maxReplicas=4,secretFiles=keys,config=x \
             --set ingress.enabled=true,ingress.host=bells.example.org,ingress.tlsSecret=tls,image.pullSecrets={registry}

# The machine's certificates know a company's own network; uv's own do not.
CERTIFICATES = $(if $(wildcard /etc/ssl/certs/ca-certificates.crt),UV_SYSTEM_CERTS=1)

# uv is quick; where it does not trust the network's certificates or cannot build, pip usually does.
fetch = VIRTUAL_ENV=$(VENV) $(CERTIFICATES) $(UV) pip install --quiet $(1) || { \
          echo "uv could not install; trying pip, which takes longer"; \
          $(BIN)/python -m pip install --quiet --disable-pip-version-check $(1); } || { \
          echo "The packages could not be fetched. Is there a network? Behind a proxy, set HTTPS_PROXY, then run make again."; \
          exit 1; }

# The programs of an environment name its folder: in a folder that was moved or copied they do not start.
ifneq ($(shell cat $(VENV)/.folder 2>/dev/null || echo '$(CURDIR)'),$(CURDIR))
$(info This folder was moved: creating $(VENV) anew)
$(shell rm -rf $(VENV))
endif

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.SUFFIXES:
.PHONY: help install dev servers run test quick check fmt walk durations bench fuzz simulate mutants fleet prove soak docs recording image chart dist release requirements lock sbom audit clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(VENV)/.installed ## Create .venv with everything Carillon needs to run
	@:

dev: $(VENV)/.installed-dev ## Add what tests and checks need
	@:

run: install ## Start Carillon (more arguments: make run ARGS="--processes 2")
	@exec $(BIN)/carillon serve $(ARGS)

# What is missing is said before minutes go into an environment.
servers:
	@scripts/ensure-servers

test: servers dev ## Run every test on private servers (narrow down: make test ARGS="-k retry")
	@$(BIN)/python -m scripts.run_tests $(ARGS)

quick: servers dev ## The house, unit and contract tests without the slow ones (the same: make test ARGS=--quick)
	@$(BIN)/python -m scripts.run_tests --quick $(ARGS)

check: dev ## Formatting, lint, types and import rules
	@$(BIN)/ruff format --check --quiet $(CODE) || { echo "make fmt repairs the formatting"; exit 1; }
	@$(BIN)/ruff check --quiet $(CODE)
	@$(BIN)/mypy --no-error-summary $(CODE)
	@$(BIN)/lint-imports --no-logo

fmt: dev ## Format, and repair what lint can repair
	@$(BIN)/ruff check --quiet --fix-only $(CODE)
	@$(BIN)/ruff format --quiet $(CODE)

walk: dev ## Write docs/explanation/one-notification.md from traces of running programs
	@$(BIN)/python -m scripts.trace_walk

durations: dev ## Write tests/durations.json, by which a fresh checkout orders its tests, from the last whole run here
	@$(BIN)/python -m scripts.durations

bench: dev ## Measure (one bench only: make bench ONLY=name; beside another commit: AGAINST=commit)
	@BENCH_AGAINST=$(AGAINST) $(BIN)/python -m bench $(ONLY)

fuzz: servers dev ## Feed hostile inputs to every reader, listener and queue (how many, which: make fuzz ARGS=--help)
	@$(BIN)/python -m tests.fuzz $(ARGS)

simulate: dev ## Play a million deliveries with 20,000 crashes in virtual time (one world again: make simulate SEED=17)
	@$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED)) $(ARGS)

fleet: dev ## Start a fleet on this machine to play with: highly available servers, processes of every blueprint, faults
	@scripts/ensure-servers --fleet
	@exec $(BIN)/python -m tests.fleet fleet $(ARGS)

prove: dev ## Let faults loose on a fleet under load and write docs/explanation/crash-ledger.md (ARGS="--minutes 30 --least 100000")
	@scripts/ensure-servers --fleet
	@exec $(BIN)/python -m tests.fleet prove $(ARGS)

soak: dev ## A steady 500 notifications a second with a fault every minute: what grows? (MINUTES=60)
	@scripts/ensure-servers --fleet
	@exec $(BIN)/python -m tests.fleet soak --minutes $(or $(MINUTES),60) $(ARGS)

mutants: dev ## Take each condition out of the statements of both ledgers and write docs/explanation/mutants.md: who misses it
	@$(BIN)/python -m tests.simulation.mutants $(ARGS)

docs: $(VENV)/.installed-docs ## Build the documentation's site into build/site; a dead link fails
	@$(BIN)/mkdocs build --strict

image: install ## Build the container image with buildah (reaching no registry: make image ARGS=--from-debian)
	@$(BIN)/python -m scripts.image $(ARGS)

chart: $(VENV)/.installed-chart ## Lint and render the Helm chart, and check it against the schemas of Kubernetes
	@$(BIN)/helm lint --strict deploy/helm/carillon
	@mkdir -p build
	@$(BIN)/helm template carillon deploy/helm/carillon > build/chart.yaml
	@$(BIN)/helm template carillon deploy/helm/carillon $(EVERYTHING) > build/chart-everything.yaml
	@$(BIN)/kubernetes-validate --strict -k 1.30 build/chart.yaml build/chart-everything.yaml

recording: dev ## Record docs/recording.svg, the front page's outage, from a real run
	@$(BIN)/python -m scripts.recording

dist: dev ## Build the package into dist (its links: make dist REPOSITORY_URL=https://…)
	@rm -rf dist
	@$(BIN)/python -m hatchling build

release: dev ## Say what keeps this checkout from being released (begin a version: make release VERSION=0.2.0)
	@$(BIN)/python -m scripts.release $(if $(VERSION),cut $(VERSION),check)

requirements: ## Requirement ids that no test carries yet
	@$(PYTHON) -m scripts.requirements

lock: $(UV) ## Compile the lock files (raise every version: make lock ARGS=--upgrade)
	@$(COMPILE) --output-file requirements.lock >/dev/null
	@$(COMPILE) --all-extras --group dev --constraint requirements.lock --output-file requirements-dev.lock >/dev/null

sbom: dev ## Write build/carillon.cdx.json, what Carillon is built from, out of the lock files
	@$(BIN)/python -m scripts.supply_chain sbom

audit: dev ## Check the pins: hashes, yanked and very young versions, known vulnerabilities
	@$(BIN)/python -m scripts.supply_chain audit

clean: ## Remove .venv, caches and build results; databases stay
	@rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	@find src tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +
	@ls carillon.db* 2>/dev/null | grep -v -e '-url$$' -e '-shm$$' | sed 's/^/kept, because it may hold notifications: /'

$(UV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Carillon needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>/dev/null || echo missing)."; \
	  echo "Name another one: make install PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "This Python cannot create virtual environments; on Debian: apt-get install python3-venv"; exit 1; }
	@[ -w "$$(dirname "$(VENV)")" ] || { \
	  echo "$(CURDIR) is read-only: name a folder for the environment, for example make run VENV=/tmp/carillon-venv"; exit 1; }
	@echo "Creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@said=$$($(BIN)/python -m pip install --quiet --disable-pip-version-check --retries 1 'uv>=0.9' 2>&1) || { \
	  why=$$(printf '%s' "$$said" | grep -o -m1 '\] [A-Z][a-z ]*\|CERTIFICATE_VERIFY_FAILED\|40[37] [A-Z][A-Za-z ]*' | head -1); \
	  echo "The packages could not be fetched$${why:+ ($${why#*] })}. Is there a network? Behind a proxy, set HTTPS_PROXY, then run make again."; \
	  rm -rf $(VENV); exit 1; }
	@echo '$(CURDIR)' > $(VENV)/.folder

# The stamps are newer than the locks they came from, so a second run has nothing to do.
$(VENV)/.installed: requirements.lock pyproject.toml | $(UV)
	@echo "Installing Carillon"
	@$(call fetch,--require-hashes -r requirements.lock)
	@$(call fetch,--no-deps -e .)
	@touch $@

$(VENV)/.installed-dev: requirements-dev.lock $(VENV)/.installed
	@echo "Installing test tools"
	@$(call fetch,--require-hashes -r requirements-dev.lock)
	@touch $@

$(VENV)/.installed-chart: pyproject.toml | $(UV)
	@echo "Installing helm"
	@$(call fetch,--group chart)
	@touch $@

# Only for those who build the site: neither running nor testing Carillon needs it.
$(VENV)/.installed-docs: pyproject.toml | $(UV)
	@echo "Installing what builds the documentation"
	@$(call fetch,--group docs)
	@touch $@
