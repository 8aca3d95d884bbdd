# Cellplane. `make help` lists what there is to make.

# One setting for all builds lets them share the build cache with Kubernetes' own.
export CGO_ENABLED = 0

GO ?= go
TOOL = $(GO) tool -modfile=tools/go.mod
BIN = bin/cellplane

# Packages whose tests start no control plane.
UNIT_PACKAGES = $(shell $(GO) list -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./... | grep -v -e internal/testenv -e internal/kubebin -e internal/controlplane | cut -d' ' -f1)

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/cellplane
	$(GO) build -o $(BIN) ./cmd/cellplane

.PHONY: up
up: build ## Start a local federation (the first time Kubernetes is built, some minutes)
	$(BIN) up

.PHONY: down
down: build ## Stop the local federation; `bin/cellplane down --purge` forgets it
	$(BIN) down

.PHONY: test
test: ## Run all tests, against real control planes
	@GO=$(GO) .ci/test

.PHONY: test-unit
test-unit: ## Run the tests that need no control plane
	$(GO) test -timeout 5m $(UNIT_PACKAGES)

.PHONY: lint
lint: ## Check formatting, style and that generated files are up to date
	$(TOOL) golangci-lint run
	$(MAKE) --no-print-directory verify-generated

.PHONY: generate
generate: ## Regenerate deep copies, CRDs and the pins of Kubernetes
	$(GO) generate ./...

.PHONY: verify-generated
verify-generated:
	@.ci/verify-generated

.PHONY: bench
bench: build ## Measure how long a federation takes to start and what it costs when idle
	$(GO) run ./test/benchup

.PHONY: bench-engine
bench-engine: ## Measure the engine: latency, cost, takeover, restart (flags in ARGS)
	$(GO) run ./test/benchengine $(ARGS)

.PHONY: bench-gateway
bench-gateway: ## Compare the gateway with an API server asked directly (flags in ARGS)
	$(GO) run ./test/benchgateway $(ARGS)

.PHONY: chaos
chaos: ## Move and kill cells, gateways and hub managers under load, and check all answers (flags in ARGS, such as -chaos.seed)
	$(GO) test ./test/chaos -count=1 -timeout=0 -v -run=TestChaos -args -chaos.duration=1m -chaos.runs=10 $(ARGS)

.PHONY: bench-cells
bench-cells: build ## Measure moving, backing up and failing over cells (flags in ARGS)
	$(GO) run ./test/benchcells $(ARGS)

.PHONY: bench-cluster-gateway
bench-cluster-gateway: ## Measure the cache of member objects, up to ten million pods (flags in ARGS)
	$(GO) run ./test/benchclustergateway $(ARGS)

.PHONY: bench-scheduler
bench-scheduler: ## Measure decisions and simulation, placing in a real cell and losing a cluster (flags in ARGS)
	$(GO) run ./test/benchscheduler $(ARGS)
