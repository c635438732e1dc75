# What developing Waggle needs, by name: `make` lists it. CONTRIBUTING.md says what `make test` runs and why.

# Tools run through `go run`, at these versions, so that nothing has to be installed first and everybody gets the same.
GOLANGCI_LINT := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
BUF           := go run github.com/bufbuild/buf/cmd/buf@v1.60.0
CYCLONEDX     := go run -trimpath github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0

# The tools of the Python package, in a virtual environment that is made once for each content of tools.txt.
PYTHON_ENV := bin/python
PYTHON     := $(PYTHON_ENV)/bin/python
PYTHON_SET := $(PYTHON_ENV)/set-$(shell cksum < collector/python/tools.txt | cut -d' ' -f1)

# The race detector needs cgo. Results are never taken from the cache: the tests start servers that Go does not know of.
# Vet is a part of lint, which looks at the tests too, with the tag e2e.
GO_TEST := CGO_ENABLED=1 go test -race -vet=off -count=1 -timeout 25m

# What the tests need from Debian, as command:packages.
NEEDS := redis-server:redis-server cc:gcc,libc6-dev wget:wget psql:postgresql nginx:nginx-light chromium:chromium systemd-analyze:systemd \
	python3:python3,python3-venv node:nodejs npm:npm promtool:prometheus

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# One step at a time, also under -j: a step's output stays together, and generate must not run beside what reads it.
.NOTPARALLEL:

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: test
test: setup build crawlee-node house-check lint buf-lint generate-check unit clients-check examples bench-test e2e ## Everything that must pass

# RUNLEVEL=1 keeps Debian's packages from starting servers of their own; nginx is kept where not every PATH leads.
.PHONY: setup
setup: ## Install redis-server, a C compiler, wget, PostgreSQL, nginx, Chromium, systemd, Python, Node and Prometheus when missing (apt-get, as root)
	@missing=; \
	for need in $(NEEDS); do \
		if ! PATH="$$PATH:/usr/sbin" command -v "$${need%%:*}" >/dev/null; then \
			packages="$${need#*:}"; missing="$$missing $${packages//,/ }"; \
		fi; \
	done; \
	if [ -n "$$missing" ]; then \
		if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
			echo "missing:$$missing; as root on Debian or Ubuntu: apt-get install -y$$missing" \
				"(elsewhere: Redis 7.0 or newer, a C compiler, wget, PostgreSQL, nginx, Chromium, systemd-analyze, Python 3.10 with venv, Node.js, Prometheus 2.42)" >&2; \
			exit 1; \
		fi; \
		apt-get update -q; \
		RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $$missing; \
	fi; \
	if ! node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 3) ? 0 : 1)'; then \
		echo "Node.js $$(node --version) is too old: install 20.3 or newer, with npm: https://nodejs.org" >&2; exit 1; \
	fi

.PHONY: build
build: ## Compile every package, and the command to bin/waggle
	go build ./...
	go build -o bin/waggle ./cmd/waggle

TYPESCRIPT := collector/typescript
$(TYPESCRIPT)/node_modules/.package-lock.json: $(TYPESCRIPT)/package-lock.json
	cd $(TYPESCRIPT) && npm ci --no-audit --no-fund --loglevel=error
	touch $@

.PHONY: typescript
typescript: $(TYPESCRIPT)/node_modules/.package-lock.json ## Check and compile the TypeScript package
	cd $(TYPESCRIPT) && npm run --silent build

CRAWLEE_NODE := collector/crawlee/node
$(CRAWLEE_NODE)/node_modules/.package-lock.json: $(CRAWLEE_NODE)/package-lock.json
	cd $(CRAWLEE_NODE) && npm ci --no-audit --no-fund --loglevel=error
	touch $@

.PHONY: crawlee-node
crawlee-node: typescript $(CRAWLEE_NODE)/node_modules/.package-lock.json ## Check and compile the package for Crawlee
	cd $(CRAWLEE_NODE) && npm run --silent build

.PHONY: demo
demo: ## Crawl a small site in one process, with a collector that dies half-way
	go run ./cmd/waggle demo

PYTHON_PACKAGES := collector/python collector/scrapy collector/crawlee/python
$(PYTHON_SET):
	python3 -m venv --clear $(PYTHON_ENV)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -r collector/python/tools.txt
	@touch $@

.PHONY: python-tools
python-tools: $(PYTHON_SET) ## Install what the Python package is generated, checked and built with to bin/python

.PHONY: lint
lint: $(PYTHON_SET) ## Run golangci-lint by .golangci.yml, with go vet, and mypy on the Python packages
	$(GOLANGCI_LINT) run
	@for package in $(PYTHON_PACKAGES); do \
		(cd $$package && $(abspath $(PYTHON)) -m mypy --cache-dir $(abspath bin/mypy)/$$package); \
	done

.PHONY: buf-lint
buf-lint: ## Check the .proto files: buf lint, buf format
	$(BUF) lint
	$(BUF) format --diff --exit-code

.PHONY: generate
generate: $(PYTHON_SET) $(TYPESCRIPT)/node_modules/.package-lock.json ## Write the generated Go, Python and TypeScript, and openapi.json, from the .proto files
	$(BUF) generate
	$(BUF) generate --template buf.relay.gen.yaml
	$(PYTHON) collector/python/generate.py proto collector/python/src/waggle_collector

.PHONY: generate-check
generate-check: $(PYTHON_SET) $(TYPESCRIPT)/node_modules/.package-lock.json ## Fail when they are not what generate writes
	@fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; package=collector/python/src/waggle_collector; \
	$(BUF) generate --output "$$fresh"; $(BUF) generate --template buf.relay.gen.yaml --output "$$fresh"; \
	$(PYTHON) collector/python/generate.py proto "$$fresh"; \
	if ! diff -rq -x '*.proto' -x '*.md' -x doc.go -x tracing proto "$$fresh/proto" || \
		! diff -rq -x '*.proto' -x doc.go server/internal/relay/proto "$$fresh/server/internal/relay/proto" || \
		! diff -rq -x __pycache__ $$package/v1 "$$fresh/v1" || ! diff -q $$package/_methods.py "$$fresh/_methods.py" || \
		! diff -rq $(TYPESCRIPT)/src/gen "$$fresh/$(TYPESCRIPT)/src/gen"; then \
		echo "the generated code is stale: run make generate and commit what it writes" >&2; exit 1; \
	fi

# One caller makes one operation after another in these, or they only compute: the race detector finds nothing in them that
# the conformance suites and the other tests lack, and they take many times as long with it.
COMPUTES := ^TestModel|^TestStore_(Model|Replay)|^TestCopy_model$$|^TestRestore_damaged$$
COMPUTES := $(COMPUTES)|^TestFormat|^TestExplore_|^TestBrokenPages|^TestDispatcher_(passes|discover_)
COMPUTES := $(COMPUTES)|^TestHoldService_(filter|tooMany)|^TestSchedule_cron_|^TestRead_(brokenInManyPlaces|unknownReferences)$$
COMPUTES := $(COMPUTES)|^TestFind_|^FuzzCache_large$$|^TestOperator_quiet$$
# Both run at once: many packages wait for Redis, a disk or a clock. The longest comes first.
.PHONY: unit
unit: ## Run every Go test with the race detector: unit, conformance, model, integration, repository rules
	@computed=$$(mktemp); trap 'rm -f "$$computed"' EXIT; \
	go test -vet=off -count=1 -p 1 -run '$(COMPUTES)' ./dispatch/... ./server ./store/... ./cmd/waggle/internal/sourcefile ./collector/web/... >"$$computed" 2>&1 & \
	status=0; $(GO_TEST) -p 3 -skip '$(COMPUTES)' ./store/backend/redis ./... || status=$$?; \
	wait $$! || status=$$?; cat "$$computed"; exit $$status

.PHONY: conformance
conformance: ## Run only the stores' conformance suite and model test
	$(GO_TEST) ./store/...

MATRIX := deploy/conformance/MATRIX.md
KIT     = bin/conformance collector --matrix $(MATRIX) --name

.PHONY: protocol-check
protocol-check: clients ## Ask each client package and each kind of store for the manual's rules, and write deploy/conformance/MATRIX.md
	go build -o bin/conformance-go ./deploy/conformance/clients/go
	$(KIT) Go -- bin/conformance-go
	go test -vet=off -count=1 -timeout 10m -v -run TestServer ./deploy/conformance

.PHONY: clients
clients: $(PYTHON_SET) typescript
	go build -o bin/conformance ./deploy/conformance
	PYTHONPATH=collector/python/src $(KIT) Python -- $(PYTHON) collector/python/tests/kitclient.py
	PYTHONPATH=collector/python/src $(KIT) "Python asyncio" -- $(PYTHON) collector/python/tests/kitclient.py --asyncio
	$(KIT) TypeScript -- node deploy/conformance/clients/typescript/client.mjs
	$(KIT) "TypeScript JSON" --transport connect-json -- node deploy/conformance/clients/typescript/client.mjs

.PHONY: clients-check
clients-check: ## Fail when a client package for another language breaks a rule of the manual, or the matrix says otherwise
	@matrix=$$(mktemp); trap 'rm -f "$$matrix"' EXIT; cp $(MATRIX) "$$matrix"; \
	$(MAKE) --no-print-directory MATRIX="$$matrix" clients; \
	if ! diff $(MATRIX) "$$matrix"; then echo "MATRIX.md is stale: run make protocol-check and commit it" >&2; exit 1; fi

.PHONY: model
model: ## Make STEPS=1000000 random steps in memory and on Redis, where owners take over from each other; SEED=n for other ones
	WAGGLE_STEPS=$(or $(STEPS),1000000) $(if $(SEED),WAGGLE_SEED=$(SEED)) go test -count=1 -timeout 24h -v -p 1 -run 'Test(Store_)?Model$$' ./store ./store/backend/redis

.PHONY: integration
integration: ## Run only the server, the collector and the command against each other
	$(GO_TEST) ./server/... ./collector/... ./cmd/...

# Found by their names, so that a new one is not forgotten. The first failure ends it; the input is then in testdata/fuzz.
# Not a part of test: it compiles an instrumented binary for each, and their seeds run in unit.
.PHONY: fuzz
fuzz: ## Run each fuzz test for TIME=10m, one after another
	@grep -roE --include='*_test.go' '^func Fuzz\w+' . | sort | while IFS=: read -r file func; do \
		echo "$${func#func } of $${file%/*}"; \
		(cd "$${file%/*}" && go test -vet=off -run '^$$' -fuzz "^$${func#func }\$$" -fuzztime $(or $(TIME),10m) -fuzzminimizetime 10x . </dev/null); \
	done

.PHONY: crash
crash: ## Cut the power of the file store 1,000 times, restart it 500 times in random steps, kill its dispatcher 200 times
	WAGGLE_CRASHES=250 WAGGLE_STEPS=125000 go test -count=1 -timeout 2h -v -run 'TestStore_PowerCuts|TestStore_Model' ./store/backend/dir
	WAGGLE_CRASH_BYTES=65536 go test -count=1 -timeout 2h -v -run 'TestLog_EachCut|TestLog_PowerCuts' ./store/backend/dir/internal/wal
	WAGGLE_E2E_KILLS=200 go test -count=1 -timeout 2h -v -tags e2e -run 'TestKilled$$' ./deploy/e2e

.PHONY: mutants
mutants: ## Put each fault of deploy/mutants/mutants.txt into the code, and fail when the tests do not find it
	go run ./deploy/mutants

.PHONY: examples
examples: ## Run the tests of the examples and tools that are modules of their own
	cd collector/examples/browser && go vet . && go test -count=1 -timeout 5m .
	cd deploy/house && go vet . && go test -count=1 -timeout 5m .
	cd deploy/prometheus && go vet . && go test -count=1 -timeout 5m .
	cd server/console/browsertest && go vet . && go test -count=1 -timeout 5m .

.PHONY: pictures
pictures: ## Take the pictures of the console for its README
	cd server/console/browsertest && WAGGLE_PICTURES=$(abspath server/console/pictures) go test -count=1 -timeout 5m -run TestConsole/pictures .

# Its scenarios are those that need no heartbeat stream, which it does not have.
RUST_SCENARIOS := ^(fetch|refused|stop|servers)/|^report/([^l]|le|lo)|^lease/([^l]|li|lost$$|la)|^beat/(cursor|no-stream|rate|silent)

.PHONY: rust-example
rust-example: ## Build the collector in Rust, and judge it by the conformance kit (cargo; minutes)
	cd collector/examples/rust && cargo build --locked
	go run ./deploy/conformance collector --run '$(RUST_SCENARIOS)' -- collector/examples/rust/target/debug/waggle-collector-example

.PHONY: bench-test
bench-test: ## Vet and test the benchmarks, which are a module of their own
	cd deploy/bench && go vet ./... && go test -count=1 -timeout 10m ./...

# The test that types the README's tour as slowly as a person waits two minutes, and does nothing else: it runs beside the rest.
SLOWLY := ^TestReadme_Slowly$$
E2E    := go test -vet=off -count=1 -timeout 25m -tags e2e
.PHONY: e2e
e2e: ## Run real processes against a real Redis, with kill -9, and print what they cost
	@slowly=$$(mktemp); trap 'rm -f "$$slowly"' EXIT; \
	$(E2E) -run '$(SLOWLY)' ./deploy/e2e >"$$slowly" 2>&1 & \
	status=0; $(E2E) -v -parallel 8 -skip '$(SLOWLY)' ./deploy/e2e/... || status=$$?; \
	wait $$! || status=$$?; cat "$$slowly"; exit $$status

.PHONY: soak
soak: ## Let processes, Redis and connections fail in every way for TIME=10m, and check what came of it; SEED=n for the same faults
	$(if $(SEED),WAGGLE_E2E_SEED=$(SEED)) WAGGLE_E2E_SOAK=$(or $(TIME),10m) go test -count=1 -timeout 0 -v -tags e2e -run TestSoak ./deploy/e2e

.PHONY: explore
explore: ## Try the protocol of ownership in every order of many faults: some 110 million states, 2 GB of memory
	WAGGLE_EXPLORE=long GOGC=40 go test -count=1 -timeout 1h -v -run Protocol ./store/backend/redis/protocol

.PHONY: troubles
troubles: ## Stage each trouble that has an alert, or ONLY=REGEXP, under a real Prometheus or PROMETHEUS=FILE: some ten minutes; HEALTHY=1h for none
	WAGGLE_E2E_TROUBLES='$(or $(ONLY),.)' $(if $(HEALTHY),WAGGLE_E2E_HEALTHY=$(HEALTHY)) $(if $(PROMETHEUS),WAGGLE_E2E_PROMETHEUS=$(abspath $(PROMETHEUS))) \
		go test -count=1 -timeout 2h -v -tags e2e -run 'TestTroubles$$' ./deploy/e2e

.PHONY: exhaustion
exhaustion: ## Attack a dispatcher from one address in each way for TIME=10s, and print what it takes and how long others wait
	WAGGLE_E2E_EXHAUSTION=$(or $(TIME),10s) go test -count=1 -timeout 25m -v -tags e2e -run TestExhaustion ./deploy/e2e

.PHONY: bench-crawl
bench-crawl: ## Measure a collector beside wget and a plain Go loop: ROUNDS=5 turns each
	WAGGLE_E2E_ROUNDS=$(or $(ROUNDS),5) go test -count=1 -timeout 25m -v -tags e2e -run TestCrawlRate ./deploy/e2e

# The odd spiders and a shop of 2,000 pages, with each version that the READMEs of the packages list.
.PHONY: frameworks
frameworks: ## Test the packages for Scrapy and Crawlee by large crawls, also with older versions: PAGES=2000
	WAGGLE_E2E_SCRAPY_VERSIONS="2.16.0 2.17.0 2.18.0" WAGGLE_E2E_CRAWLEE_VERSIONS=3.18.0 WAGGLE_E2E_PAGES=$(or $(PAGES),2000) \
		go test -count=1 -timeout 60m -v -tags e2e -run 'TestScrapy_(Odd|Shop)|TestCrawlee(Node|Python)_(Shop|Odd|Versions)' ./deploy/e2e

.PHONY: bench-scrapy
bench-scrapy: ## Measure Scrapy on Waggle beside plain Scrapy, and how soon an idle spider starts: ROUNDS=5 turns each
	WAGGLE_E2E_ROUNDS=$(or $(ROUNDS),5) go test -count=1 -timeout 25m -v -tags e2e -run TestScrapy_Rate ./deploy/e2e

.PHONY: house
house: ## Print what deploy/house/budgets.txt counts: lines, exported names, files opened on the road of a call, words
	cd deploy/house && go run . ../..

.PHONY: house-check
house-check: ## Fail when a figure of deploy/house/budgets.txt is over its budget
	cd deploy/house && go run . -check ../..

.PHONY: bench
bench: build ## Measure a build, A=bin/waggle, or compare it with B=PATH: ROUNDS=5, STORE=memory,file, WORKLOAD=queue,polite
	cd deploy/bench && go run . -a $(abspath $(or $(A),bin/waggle)) $(if $(B),-b $(abspath $(B))) -rounds $(or $(ROUNDS),5) \
		$(if $(STORE),-store $(STORE)) $(if $(WORKLOAD),-workload $(WORKLOAD))

.PHONY: bench-peers
bench-peers: build ## Compare the command with other queues: ROUNDS=5 turns each, PEERS=nats,river (all that are installed), STORES=file,memory,redis
	cd deploy/bench && $(if $(findstring bullmq,$(or $(PEERS),bullmq)),npm install --no-save --prefix peers/bullmq && )go run ./peers \
		-rounds $(or $(ROUNDS),5) $(if $(PEERS),-peers $(PEERS)) $(if $(STORES),-stores $(STORES))

.PHONY: bench-typescript
bench-typescript: build typescript ## Compare the TypeScript package with BullMQ's worker, both with one task at a time: ROUNDS=5 turns each
	cd deploy/bench && npm install --no-save --prefix peers/bullmq && go run ./typescript -rounds $(or $(ROUNDS),5)

bin/crawlee/bin/python:
	python3 -m venv --clear bin/crawlee
	bin/crawlee/bin/python -m pip install --quiet --disable-pip-version-check 'crawlee[parsel]==1.11.0' 'grpcio>=1.66' 'protobuf>=6.31.1,<8' \
		'googleapis-common-protos>=1.70'

.PHONY: bench-crawlee
bench-crawlee: build crawlee-node bin/crawlee/bin/python ## Compare Crawlee on Waggle with Crawlee alone, for Node and for Python: ROUNDS=5 turns each
	cd deploy/bench && go run ./crawlee/node -rounds $(or $(ROUNDS),5)
	cd deploy/bench && PYTHONPATH=$(abspath collector/python/src):$(abspath collector/crawlee/python/src) \
		go run ./crawlee/python -rounds $(or $(ROUNDS),5) -python $(abspath bin/crawlee/bin/python)

PLATFORMS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
# What an archive holds beside the command: the documents and all that they link to.
RELEASED := LICENSE '*.md' 'server/console/pictures/*.webp' '*.proto' proto/openapi.json collector deploy/architecture.svg 'deploy/compose*' 'deploy/Dockerfile*' \
	deploy/redis.conf 'deploy/prometheus/*.yml' deploy/grafana deploy/systemd ':!*_test.go' ':!*_test.yml'

# The same commit gives the same bytes: files are in order, all times are that of the commit, and no path of this machine
# gets in. Go takes the version from git: a tag, or one made of the commit, with +dirty when files differ from it. The tools
# are GNU's.
.PHONY: release
release: $(PYTHON_SET) crawlee-node ## Write archives, packages, bills of materials and checksums to dist: PLATFORMS="linux/amd64" for some
	@rm -rf dist; mkdir dist; epoch=$$(git log -1 --format=%ct); \
	for platform in $(PLATFORMS); do \
		CGO_ENABLED=0 GOOS=$${platform%/*} GOARCH=$${platform#*/} \
			go build -trimpath -buildvcs=true -ldflags='-s -w' -o dist/waggle ./cmd/waggle; \
		version=$$(go version -m dist/waggle | awk '$$1 == "mod" { print $$3 }'); \
		if [[ $$version != v* ]]; then echo "no version ($$version): release from a git clone" >&2; exit 1; fi; \
		name=waggle-$$version-$${platform/\//-}; mkdir dist/$$name; \
		mv dist/waggle dist/$$name; git ls-files -z -- $(RELEASED) | xargs -0 cp --parents -t dist/$$name; \
		$(CYCLONEDX) bin -json -std -noserial -version $$version dist/$$name/waggle | \
			sed 's/"timestamp": "[^"]*"/"timestamp": "'$$(date -u -d @$$epoch +%FT%TZ)'"/' > dist/$$name.cdx.json; \
		tar -C dist -c --format=ustar --sort=name --mtime=@$$epoch --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX $$name | \
			gzip -9n > dist/$$name.tar.gz; \
		rm -r dist/$$name; \
	done; \
	for package in $(TYPESCRIPT) $(CRAWLEE_NODE); do \
		(cd $$package && npm pack --silent --pack-destination $(abspath dist) >/dev/null); \
	done; \
	$(MAKE) wheel; cd dist; sha256sum * > SHA256SUMS; cat SHA256SUMS

DIST := dist
.PHONY: wheel
wheel: $(PYTHON_SET) ## Write the Python packages of this commit to DIST=dist
	@for package in $(PYTHON_PACKAGES); do \
		(cd $$package && SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) \
			$(abspath $(PYTHON)) -m hatchling build -t wheel -d $(abspath $(DIST))); \
	done

.PHONY: fmt
fmt: ## Format the Go and .proto files
	$(GOLANGCI_LINT) fmt
	$(BUF) format --write

.PHONY: clean
clean: ## Remove what build, typescript and release wrote
	rm -rf bin dist $(foreach package,$(TYPESCRIPT) $(CRAWLEE_NODE),$(package)/dist $(package)/node_modules)
