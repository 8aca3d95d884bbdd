# Run `make help` for a list of targets.

# With one setting for all builds they share the build cache, also with the build of Kubernetes.
export CGO_ENABLED = 0

GO ?= go

# Without paths of the machine in them, builds of all checkouts share the build cache. `go test` does not vet: `make lint` does, and for each package under
# test all of its dependencies would be read again.
export GOFLAGS := $(filter-out -trimpath -vet=off,$(shell $(GO) env GOFLAGS)) -trimpath -vet=off

TOOL = $(GO) tool -modfile=tools/go.mod
BIN = bin/cellplane

# Packages whose tests start no control plane.
UNIT_PACKAGES = $(shell $(GO) list -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./... | grep -v -e internal/testenv -e internal/kubebin -e internal/controlplane | cut -d' ' -f1)

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-22s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/cellplane
	$(GO) build -o $(BIN) ./cmd/cellplane

.PHONY: images
images: ## Build OCI images for amd64 and arm64 in bin/images, or push them (flags in ARGS, such as -only, -push)
	$(GO) build -C images -o ../bin/cellplane-images .
	bin/cellplane-images $(ARGS)

.PHONY: up
up: build ## Start a local federation (the first time some minutes, to build Kubernetes)
	$(BIN) up

.PHONY: down
down: build ## Stop the local federation; `bin/cellplane down --purge` also deletes it
	$(BIN) down

.PHONY: test
test: ## Run all tests against real control planes; show the slowest packages
	@GO=$(GO) .ci/test

.PHONY: test-unit
test-unit: ## Run the tests that need no control plane
	$(GO) test -timeout 5m $(UNIT_PACKAGES)
	$(GO) test -C images -timeout 5m ./...

.PHONY: lint
lint: ## Check style, formatting, go.mod files and generated files
	$(TOOL) golangci-lint run
	cd images && $(GO) tool -modfile=../tools/go.mod golangci-lint run
	$(MAKE) --no-print-directory verify-modules verify-generated

.PHONY: verify-modules
verify-modules:
	@for module in . tools kube kube/metrics-server images test/conformance/suite internal/testenv/helmtest/program internal/testenv/realnode/programs; do \
		(cd $$module && $(GO) mod tidy -diff) || { echo "go.mod of $$module is not tidy: run \`go mod tidy\` there" >&2; exit 1; }; \
	done

.PHONY: generate
generate: ## Regenerate deep copies, CRDs, the command line reference and the pins of Kubernetes
	$(GO) generate ./...

.PHONY: verify-generated
verify-generated:
	@.ci/verify-generated

.PHONY: bench
bench: build ## Measure the start of a federation, and its cost when idle
	$(GO) run ./test/benchup

.PHONY: bench-engine
bench-engine: ## Measure the engine: latency, cost, failover, restart (flags in ARGS)
	$(GO) run ./test/benchengine $(ARGS)

.PHONY: bench-rollout
bench-rollout: ## Compare rolling updates over all members with those of one member, and measure planning (flags in ARGS)
	$(GO) run ./test/benchengine -rollouts 10 $(ARGS)
	$(GO) test ./internal/rollout -run '^$$' -bench Plan

.PHONY: test-node
test-node: ## Install the chart with its images on a real node, break it and remove it (needs root; flags in ARGS)
	CELLPLANE_TEST_NODE=required $(GO) test ./test/node -count=1 -timeout=0 -v -args -node.full $(ARGS)

.PHONY: test-adopt
test-adopt: ## Adopt, update and release 200 workloads of many kinds under faults (flags in ARGS, such as -adopt.seed)
	$(GO) test ./test/adopt -count=1 -timeout=0 -v -run='TestAdopt/Many' -args -adopt.workloads=200 -adopt.members=3 $(ARGS)

.PHONY: bench-adopt
bench-adopt: build ## Measure how fast running workloads are adopted and released (flags in ARGS)
	$(GO) run ./test/benchadopt $(ARGS)

.PHONY: bench-gateway
bench-gateway: ## Compare the gateway with a bare API server (flags in ARGS)
	$(GO) run ./test/benchgateway $(ARGS)

.PHONY: chaos
chaos: ## Move, kill, cut off and fail over cells, gateways and hub managers under load, and check all responses (flags in ARGS, such as -chaos.seed)
	$(GO) test ./test/chaos -count=1 -timeout=0 -v -run=TestChaos -args -chaos.duration=1m -chaos.runs=10 -chaos.all-failovers $(ARGS)

.PHONY: rollout-model
rollout-model: ## Run the rollout planner 10 000 times against models of the stock controllers (flags in ARGS, such as -rollout.seed)
	$(GO) test ./internal/rollout -count=1 -timeout=0 -v -run='TestBoundsHold|TestModelNoticesBrokenRules' -args -rollout.runs=10000 $(ARGS)

.PHONY: record-controllers
record-controllers: ## Record what the stock kube-controller-manager does, to check the rollout model against it
	$(GO) test ./test/rollout -count=1 -timeout=0 -v -run=TestControllerHistories -args -rollout.record=$(CURDIR)/internal/rollout/controllermodel/testdata -rollout.histories=6 $(ARGS)

.PHONY: chaos-rollout
chaos-rollout: ## Roll out over three members by 60 seeds while engines are killed, members paused and lost, workloads scaled, cells drained and failed over, and check the bounds at every event of every pod (flags in ARGS, such as -rollout.seed)
	$(GO) test ./test/rollout -count=1 -timeout=0 -v -run='TestSeededRollouts|TestRolloutsAcrossCells' -args -rollout.seeds=40 -rollout.moves=20 $(ARGS)

.PHONY: rollout-picture
rollout-picture: ## Draw docs/rollout.svg from a rolling update over three members
	$(GO) test ./test/rollout -count=1 -timeout=0 -v -run='TestFederatedRollout$$' -args -rollout.picture=$(CURDIR)/docs/rollout.svg $(ARGS)

.PHONY: screenshots
screenshots: ## Make the pictures of the web console in the README, from a real local federation
	mkdir -p docs/images
	$(GO) test ./test/console -count=1 -timeout=0 -v -run='TestConsole/Screenshots' -args -console.screenshots=$(CURDIR)/docs/images $(ARGS)

.PHONY: autoscaler
autoscaler: ## Compare the federated autoscaler with Kubernetes' own in random scenarios (flags in ARGS, such as -first, -count, -write)
	$(GO) run ./test/autoscaler $(ARGS)

.PHONY: conformance
conformance: build ## Run Kubernetes' own tests through the gateway over three cells (flags in ARGS, such as -focus, -moving)
	$(GO) run ./test/conformance $(ARGS)

.PHONY: bench-cells
bench-cells: build ## Measure migration, backup and failover of cells (flags in ARGS)
	$(GO) run ./test/benchcells $(ARGS)

.PHONY: bench-durability
bench-durability: build ## Compare writes that wait for the backup cell with others (flags in ARGS)
	$(GO) run ./test/benchcells -durability $(ARGS)

.PHONY: bench-cluster-gateway
bench-cluster-gateway: ## Measure the cache of member objects, up to ten million pods (flags in ARGS)
	$(GO) run ./test/benchclustergateway $(ARGS)

.PHONY: bench-elasticity
bench-elasticity: build ## Measure reports of metrics, decisions of autoscalers, and the time from load to new pods (flags in ARGS)
	$(GO) run ./test/benchelasticity $(ARGS)

.PHONY: bench-scheduler
bench-scheduler: ## Measure scheduling, simulation, placement in a real cell and cluster failover (flags in ARGS)
	$(GO) run ./test/benchscheduler $(ARGS)

.PHONY: karmadactl
karmadactl: build ## Try every subcommand of your karmadactl against the local federation (KARMADACTL=path of the binary)
	@CELLPLANE=$(BIN) test/karmadactl/try $(KARMADACTL)
