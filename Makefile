SHELL := bash
.SHELLFLAGS := -euo pipefail -c

# go-nvml declares functions that NVIDIA has deprecated; the warnings are not ours to mend.
export CGO_CFLAGS := -Wno-deprecated-declarations

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
V := github.com/prometheus/common/version
LDFLAGS := -X $V.Version=$(VERSION) \
	-X $V.Revision=$(shell git rev-parse HEAD 2>/dev/null || echo unknown) \
	-X $V.Branch=$(shell git rev-parse --abbrev-ref HEAD 2>/dev/null || echo unknown) \
	-X $V.BuildDate=$(shell git log -1 --format=%cI 2>/dev/null || echo unknown)

TOOLS := e2e/tools
BIN := $(TOOLS)/bin
# The Go modules with code of ours. That of the product knows nothing of the others.
MODULES := . e2e $(TOOLS)/vulncheck
# What `make test` runs, the cheap ones first.
STAGES := format tidy build vet nocgo staticcheck vulncheck unit arm64 tools e2e
ARGS ?=
FUZZTIME ?= 10s

.PHONY: help build run demo test lint generate fuzz bench soak scale chaos fleet-sim gpu-check gpu-step-time clean chromium qemu $(STAGES)

help: ## say what each target does
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/\1\t\2/p' Makefile | while IFS=$$'\t' read -r target text; do printf '%-13s %s\n' "$$target" "$$text"; done

build: ## bin/gpuvigil
	go build -trimpath -ldflags '$(LDFLAGS)' -o bin/gpuvigil ./cmd/gpuvigil

run: build ## watch the GPUs of this machine (ARGS='--log.level=debug' for flags)
	bin/gpuvigil run $(ARGS)

demo: build ## the same with simulated GPUs, owners and faults
	bin/gpuvigil demo $(ARGS)

test: chromium qemu ## everything that CI runs, stage by stage
	@for stage in $(STAGES); do \
		echo "== $$stage"; start=$$SECONDS; \
		$(MAKE) --no-print-directory $$stage || { echo "== $$stage FAILED after $$((SECONDS - start)) s; alone: make $$stage"; exit 1; }; \
		echo "== $$stage: ok in $$((SECONDS - start)) s, $$SECONDS s in all"; \
	done

lint: format tidy vet nocgo staticcheck ## the stages that run no test

format: ## files that gofmt would change
	@files=$$(git ls-files -z -co --exclude-standard '*.go' | xargs -0r gofmt -l); \
	[ -z "$$files" ] || { echo "gofmt -w would change:" $$files; exit 1; }

tidy: ## go.mod and go.sum as go mod tidy leaves them
	for m in $(MODULES); do go -C $$m mod tidy -diff; done

vet: ## go vet, of each module
	for m in $(MODULES); do go -C $$m vet ./...; done

nocgo: ## the build without a C compiler, with stubs where NVML is read
	CGO_ENABLED=0 go vet ./...
	CGO_ENABLED=0 go build ./...

staticcheck: $(BIN)/staticcheck ## staticcheck, of each module
	for m in $(MODULES); do (cd $$m && '$(CURDIR)/$(BIN)/staticcheck' ./...); done

vulncheck: $(BIN)/vulncheck ## fails where a known vulnerability in a module is called
	go -C $(TOOLS)/vulncheck test ./...
	go -C $(TOOLS)/vulndb mod download golang.org/x/vulndb
	$(BIN)/vulncheck -db "$$(go -C $(TOOLS)/vulndb list -m -f '{{.Dir}}' golang.org/x/vulndb)/data/osv" ./...

# Detectors run in the one goroutine of their engine, and what plays days of a node to them takes
# many times as long under the race detector: of those only what is concurrent runs with it.
PLAYS := ./detect ./internal/synth/... ./internal/backtest/pods

unit: ## the product's tests, with the race detector
	go test -race $$(go list ./... | grep -vxF "$$(go list $(PLAYS))")
	go test -race -run 'TestReadersBesideTheEngine|TestRunsAreRepeatable|Restore' ./detect
	go test $(PLAYS)

# Architectures differ in whether a product and a sum are rounded once or twice: what a replay finds must not.
QEMU := qemu-aarch64-static
REPLAY := bin/replay
arm64: ## what the detectors find on arm64, under emulation, is what they find here, to the last bit
	@command -v $(QEMU) >/dev/null || { echo "not run: no $(QEMU) here"; exit 0; }; \
	set -x; rm -rf $(REPLAY); mkdir -p $(REPLAY); \
	CGO_ENABLED=0 GOARCH=arm64 go test -exec $(QEMU) -run Replay ./detect/stream; \
	CGO_ENABLED=0 go build -o $(REPLAY)/here ./cmd/gpuvigil; \
	CGO_ENABLED=0 GOARCH=arm64 go build -o $(REPLAY)/arm64 ./cmd/gpuvigil; \
	$(REPLAY)/here record --simulate demo --for 40m -o $(REPLAY)/demo.rec; \
	$(REPLAY)/here backtest --recording $(REPLAY)/demo.rec --json $(REPLAY)/here.json >/dev/null; \
	$(QEMU) $(REPLAY)/arm64 backtest --recording $(REPLAY)/demo.rec --json $(REPLAY)/arm64.json >/dev/null; \
	grep -q '"rule"' $(REPLAY)/here.json; cmp $(REPLAY)/here.json $(REPLAY)/arm64.json

# Not cached: what these tests run (the product's binary, Prometheus) is not among what go test sees change.
e2e: $(BIN)/prometheus $(BIN)/victoria-metrics $(BIN)/alertmanager ## the agent under real Prometheus, VictoriaMetrics and Alertmanager servers
	go -C e2e test -v -count=1 ./...

tools: $(BIN)/prometheus $(BIN)/victoria-metrics $(BIN)/alertmanager $(BIN)/staticcheck $(BIN)/vulncheck ## build the pinned tools into e2e/tools/bin

# Prometheus is most of a first `make test`. Its clouds' service discovery is left out; without inlining and debug
# information the rest compiles in two thirds of the time, and is fast enough for a test's server.
PROMETHEUS := github.com/prometheus/prometheus/cmd
$(BIN)/prometheus $(BIN)/promtool &: $(TOOLS)/prometheus/go.mod $(TOOLS)/prometheus/go.sum
	CGO_ENABLED=0 go -C $(TOOLS)/prometheus build -tags remove_all_sd -gcflags 'all=-l -dwarf=false' -ldflags '-s -w' \
		-o ../bin/ $(PROMETHEUS)/prometheus $(PROMETHEUS)/promtool
	touch $(BIN)/prometheus $(BIN)/promtool

# The last release that Go 1.26 builds.
$(BIN)/victoria-metrics: $(TOOLS)/victoriametrics/go.mod $(TOOLS)/victoriametrics/go.sum
	CGO_ENABLED=0 go -C $(TOOLS)/victoriametrics build -gcflags 'all=-l -dwarf=false' -ldflags '-s -w' \
		-o ../bin/ github.com/VictoriaMetrics/VictoriaMetrics/app/victoria-metrics
	touch $@

# A module is without the pages that are made for a release, which the program embeds: it is built from a copy with an
# empty one, by its own go.mod.
$(BIN)/alertmanager: $(TOOLS)/alertmanager/go.mod $(TOOLS)/alertmanager/go.sum
	source=$$(mktemp -d); trap 'rm -rf "$$source"' EXIT; \
	go -C $(TOOLS)/alertmanager mod download github.com/prometheus/alertmanager; \
	cp -r "$$(go -C $(TOOLS)/alertmanager list -m -f '{{.Dir}}' github.com/prometheus/alertmanager)/." "$$source"; \
	chmod -R u+w "$$source"; mkdir -p "$$source/ui/app/dist"; echo 'no pages' > "$$source/ui/app/dist/index.html"; \
	CGO_ENABLED=0 go -C "$$source" build -gcflags 'all=-l -dwarf=false' -ldflags '-s -w' -o '$(CURDIR)/$@' ./cmd/alertmanager
	touch $@

$(BIN)/staticcheck: $(TOOLS)/staticcheck/go.mod $(TOOLS)/staticcheck/go.sum
	CGO_ENABLED=0 go -C $(TOOLS)/staticcheck build -o ../bin/ honnef.co/go/tools/cmd/staticcheck
	touch $@

$(BIN)/vulncheck: $(wildcard $(TOOLS)/vulncheck/*.go) $(TOOLS)/vulncheck/go.mod $(TOOLS)/vulncheck/go.sum
	CGO_ENABLED=0 go -C $(TOOLS)/vulncheck build -o ../bin/ .
	touch $@

# The browser test is skipped without Chromium. A packaged system is changed only where CI says that it is CI's.
chromium:
	@if command -v chromium chromium-browser google-chrome >/dev/null; then :; \
	elif [ "$${CI:-}" = true ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "== chromium: installing it for the browser test"; \
		apt-get update -qq; \
		DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; \
	else echo "== chromium: not found, so that the browser test is skipped; install Chromium to run it"; fi

# Likewise the emulator of the stage arm64.
qemu:
	@if command -v $(QEMU) >/dev/null; then :; \
	elif [ "$${CI:-}" = true ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "== qemu: installing it to replay on arm64"; \
		apt-get update -qq; \
		DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends qemu-user-static >/dev/null; \
	else echo "== qemu: not found, so that nothing is replayed on arm64; install qemu-user-static to do it"; fi

generate: ## rewrite the golden files from what the code does now; read the diff
	git grep -lE '"update"|"gpuvigil/internal/golden"' -- '*_test.go' ':!e2e' | xargs -n1 dirname | sort -u | sed 's|^|./|' | xargs -t -I{} go test {} -update

fuzz: ## each fuzz target for FUZZTIME (10s)
	@git grep -oE '^func Fuzz[A-Za-z0-9_]*' -- '*_test.go' | sed -E 's|/[^/]*:func | |' | while read -r dir name; do \
		echo "== $$dir $$name"; case $$dir in e2e/*) module=e2e dir=$${dir#e2e/} ;; *) module=. ;; esac; \
		go -C $$module test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "./$$dir" </dev/null; done

bench: ## benchmarks, with allocations
	go test -run '^$$' -bench . -benchmem ./...

SOAK ?= 1h
soak: ## TestSoak for SOAK (1h) instead of half a minute: nothing grows under process churn
	go -C e2e test -v -count=1 -timeout 0 -run '^TestSoak$$' . -soak $(SOAK)

SCALE ?= 150s
scale: ## what the cluster role costs for 100, 1,000 and 10,000 GPUs, each watched for SCALE (150s) by both ways
	go -C e2e test -v -count=1 -timeout 0 -run '^TestScale$$' . -scale $(SCALE)

SEEDS ?= 200
chaos: ## from the engine to Slack, with kills, full disks, outages and clock jumps in SEEDS (200) random orders
	go test -count=1 -timeout 0 -run '^TestChaos' ./alerting/slack -seeds $(SEEDS)

GPU_WEEKS ?= 10000
fleet-sim: ## synthetic fleets at full size: GPU_WEEKS (10000) of healthy nodes, each fault and look-alike 20 times
	go test -v -count=1 -timeout 0 -run 'Faults|Fleet' ./internal/synth/trial -fleet.gpu-weeks $(GPU_WEEKS) -fleet.times 20

gpu-check: build ## on a machine with an NVIDIA GPU: compare with nvidia-smi, read-only, 8 minutes (OUT=directory)
	go -C e2e build -trimpath -o ../bin/ ./gpucheck ./steptime
	scripts/gpu-check.sh $(OUT)

gpu-step-time: build ## the last part of gpu-check alone: what the agent costs the work on a GPU (needs PyTorch)
	go -C e2e build -trimpath -o ../bin/ ./steptime
	scripts/gpu-step-time.sh $(OUT)

clean: ## remove what was built here (not Go's own caches)
	rm -rf bin $(BIN)
