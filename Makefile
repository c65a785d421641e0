# All targets require Go, GNU make 4 and bash. `verify` also requires git.

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS   += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help build tools test check count static forget-skipped test-light test-heavy lint bench demo parity install-test tutorials hold deadlines sleep-lab order-lab karmada slurm prometheus grafana axe browser pictures generate verify clean manifests images chart-test test-portable bench-scheduler bench-cycle bench-scheduler-perf bench-batch storm bench-agent bench-controller bench-dashboard bench-hold upstream agent-long gpu-long gpu-real controller-long ledger-damage compare-gaia e2e-real e2e-nodes e2e-vm qemu power-real fuzz fuzz-short mutants nightly repeat experiments benchmark

# JOBS limits the number of packages that are compiled and linked concurrently, because linking Kubernetes needs much memory.
JOBS    ?= 2
# Tests often wait for a clock or another process, so one additional package is tested concurrently.
ABREAST ?= $(shell expr $(JOBS) + 1)
TIMEOUT ?= 20m

# The version of Kubernetes is set at link time. Without it, binaries report the version v0.0.0-master.
kubernetes = $(shell go list -m -f '{{.Version}}' k8s.io/kubernetes)
version    = $(subst ., ,$(patsubst v%,%,$(kubernetes)))
ldflags    = -X k8s.io/component-base/version.gitVersion=$(kubernetes) \
             -X k8s.io/component-base/version.gitMajor=$(word 1,$(version)) \
             -X k8s.io/component-base/version.gitMinor=$(word 2,$(version)) \
             -X k8s.io/client-go/pkg/version.gitVersion=$(kubernetes)

# Packages that link k8s.io/kubernetes take minutes to build, and much longer with the race detector, so they are tested without
# it. Some packages in test/ do not link Kubernetes: the tests of layers and documents, and the test kit.
heavy := /(lab|test)(/|$$)|/cmd/kubenergy-(lab|scheduler)$$|/scheduler/(app|fallback|parking)$$
light_tests := /test/(docs|kit|layers)$$
# The slowest packages that link Kubernetes, which are started first.
longest := ./test/hold ./test/lifecycle ./test/experiment ./test/controller ./internal/lab ./scenarios
# Packages whose tests only run in targets of their own. make test compiles and vets them, but does not link them.
apart := /test/(guest|nodes|order|real|scale|sleep|slurm|vm)$$
light_packages := all=$$(go list ./...); light=$$(grep -vE '$(heavy)' <<<"$$all"; grep -E '$(light_tests)' <<<"$$all")
heavy_packages := all=$$(go list ./...); linking=$$(grep -E '$(heavy)' <<<"$$all" | grep -vE '$(light_tests)')

# The race detector requires a C compiler. Without one, the tests run without the race detector.
RACE ?= $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)

# Packages with golden files, which their tests rewrite if the flag -rewrite is set.
goldens = $(shell grep -rlE --include='*_test.go' 'cockroachdb/datadriven|flag.Bool."rewrite"' . | xargs -r -n 1 dirname | sort -u)

# Slow commands print their progress every few seconds, and skipped tests are listed at the end of make test. go test does not
# run vet, because all packages are vetted before.
alive    := go run ./hack/progress run
go_test  := go run ./hack/progress test -vet=off

# Tests run in random order. After a failure, SHUFFLE=SEED repeats the printed order. SHUFFLE=off selects the order of the files.
# Go does not cache the results of shuffled tests, so make check does not shuffle in order to be fast.
SHUFFLE  ?= on
shuffled := $(go_test) -shuffle=$(SHUFFLE)

lint_tool := go tool -modfile=go.tools.mod golangci-lint

help: ## Print this list.
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build the binaries into bin/.
	@echo "== building bin/ with Kubernetes $(kubernetes) (the first time takes minutes)"
	$(alive) go build -buildvcs=auto -p $(JOBS) -ldflags '$(strip $(ldflags))' -o bin/ ./cmd/...
	@ln -sf kubenergy bin/kubectl-energy

tools: ## Build helm and kubectl (a link to the lab) into bin/.
	@echo "== building bin/helm (the first time takes minutes)"
	$(alive) go build -p $(JOBS) -modfile=go.tools.mod -o bin/helm helm.sh/helm/v4/cmd/helm
	ln -sf kubenergy-lab bin/kubectl

test: forget-skipped static test-portable test-light test-heavy ## Run the tests of CI: format, vet, unit tests with the race detector, and tests on a real control plane.
	@go run ./hack/progress skipped
	@echo "== all tests passed"

forget-skipped:
	@rm -f out/skipped.txt

check: forget-skipped static ## Check format, vet and generated code, and run the tests without Kubernetes. For use during development.
	@echo "== tests without Kubernetes and without the race detector"
	@$(light_packages); $(go_test) -p $(ABREAST) -timeout $(TIMEOUT) $$light
	@go run ./hack/progress skipped

count: ## Count the lines of code by directory. Fails if a line is wider than 120 columns.
	@go run ./hack/count

static:
	@echo "== gofmt"
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then printf 'gofmt would change:\n%s\n' "$$unformatted"; exit 1; fi
	@echo "== go vet"
	@$(light_packages); $(alive) go vet $$light
	@echo "== generated kinds"
	@mkdir -p out; kinds=$$(mktemp -d out/kinds.XXXXXX); trap 'rm -rf "$$kinds"' EXIT; \
	  go tool -modfile=go.tools.mod controller-gen object paths=./api/... output:dir="$$kinds/go" \
	    crd:allowDangerousTypes=true,maxDescLen=400 output:crd:dir="$$kinds/crds"; \
	  diff -r "$$kinds/crds" charts/kubenergy/crds && diff "$$kinds"/go/zz_generated.deepcopy.go api/v1alpha1/zz_generated.deepcopy.go \
	    || { echo "not current: run go generate ./api/..."; exit 1; }

# The race detector slows tests down by a factor of ten to thirty. It is not used for packages without goroutines (the core, as
# enforced by test/layers, and others), and for tests with the comment //test:norace, which measure time or memory or run a long
# simulation. In forecast, it is used only for the tests on several processors.
single := energy(/batch|/codec)?|forecast|grid|humanize|mincost|predict|report|sched(/codec|/sleep|/strategy)?|sim(/oracle)?|workload
core   := /(internal/($(single))|scenarios(/field)?|hack/(field|images)|test/(docs|layers))$$
light_folders := api cmd deploy hack internal
norace  = $(shell grep -rhA1 --include='*_test.go' '^//test:norace$$' $(light_folders) | sed -n 's/^func \(Test\w*\).*/\1/p' | sort -u | paste -sd '|')

# The slowest packages are started first, so that a core is never idle at the end.
slow := ./internal/ledger/postgres ./internal/agent ./internal/scheduler/hold ./internal/agent/delivery
sql  := ./internal/ledger/sqlite ./internal/ledger/sqlstore

test-light:
ifeq ($(RACE),)
	@echo "== tests WITHOUT the race detector, because no C compiler was found"
	@$(light_packages); $(shuffled) -p $(ABREAST) -timeout $(TIMEOUT) $(slow) $$light
else
	@echo "== tests with the race detector"
	@$(light_packages); $(shuffled) $(RACE) -p $(ABREAST) -timeout $(TIMEOUT) -skip '^($(norace))$$' $(slow) $$(grep -vE '$(core)' <<<"$$light")
	@$(shuffled) $(RACE) -timeout $(TIMEOUT) -run 'OnAnyNumberOfProcessors' ./internal/forecast
	@echo "== tests with the comment //test:norace"
	@$(shuffled) -p $(ABREAST) -timeout $(TIMEOUT) -run '^($(norace))$$' \
	  $$(grep -rlE --include='*_test.go' '^func ($(norace))\(' $(light_folders) | xargs dirname | sort -u | sed 's|^|./|' | grep -vE '$(core)|ledger/sql')
endif

# go vet compiles the dependencies of the tests in parallel. Control planes are mostly idle, so several of them run concurrently,
# and the core runs beside them. Tests of latencies measure the available processor time.
test-heavy: prometheus axe
	@echo "== go vet of packages that link Kubernetes (takes minutes the first time)"
	@$(heavy_packages); $(alive) go vet -p $(JOBS) $$linking
	@echo "== tests without the race detector: the core, and packages that link Kubernetes, most of them on a real control plane"
	@$(heavy_packages); echo "   not run: $$(grep -E '$(apart)' <<<"$$linking" | xargs -n 1 basename | paste -sd ' ') in test/, which have their own targets"; \
	  $(shuffled) -p $$(($(ABREAST) + 1)) -timeout $(TIMEOUT) $(longest) $$(grep -vE '$(apart)' <<<"$$linking") $(if $(RACE),$$(grep -E '$(core)' <<<"$$all") $(sql))

# The agent also runs on small 32-bit machines. The tests for 386, which run on amd64, detect typical problems of these machines:
# unaligned 64-bit atomics and 32-bit integers. Tests of time, memory and the kernel only run on amd64. The programs of a node
# are also built for arm64.
not_386 := Test(Bombs|Cost|Real.*|Tricks.*)
metering := ./internal/energy/... ./internal/agent/... ./cmd/kubenergy-agent
test-portable:
	@echo "== building the agent for arm/v7, and the programs of a node for arm64"
	@$(alive) env GOARCH=arm GOARM=7 CGO_ENABLED=0 go build -o /dev/null ./cmd/kubenergy-agent
	@$(alive) env GOARCH=arm64 CGO_ENABLED=0 go build -p $(JOBS) ./cmd/kubenergy-agent ./cmd/kubenergy-gpu
ifeq ($(shell go env GOHOSTARCH),amd64)
	@echo "== tests of the agent for 386"
	@export GOARCH=386 CGO_ENABLED=0; if go test -run '^$$' ./internal/humanize >/dev/null 2>&1; then \
		$(shuffled) -short -skip '^$(not_386)$$' -p $(JOBS) -timeout $(TIMEOUT) $(metering); \
	else echo "   not run, because this kernel does not run programs for 386; only compiled"; go vet $(metering); fi
endif

lint: ## Run golangci-lint, which is built as a Go tool the first time.
	@echo "== golangci-lint"
	@$(lint_tool) run ./...

bench: ## Benchmark the simulator, the strategies and the scheduler plugin.
	go test -run '^$$' -bench . -benchmem ./internal/sim/... ./internal/sched/... ./internal/scheduler/place/... ./test/scores/...

# The first part requires no API server and takes minutes. The second part starts an API server for each run. PAIRS=12 pairs of
# five rows take two hours. ROW= selects one of unmarked, scored, one-per-node-unmarked, one-per-node-scored and burst.
PAIRS ?= 12
bench-scheduler: bench-cycle bench-scheduler-perf ## Benchmark the overhead of the plugins, alternating with stock kube-scheduler.

# With BASE=REVISION, bench-cycle, bench-agent, bench-controller and bench-hold run the benchmarks of that revision and of the
# working tree alternately, PAIRS=6 times each. They fail if the lower bound of the 95 % confidence interval of new ÷ base is above 1.05.
turns = go run ./hack/turns -base '$(BASE)' -pairs '$(if $(filter file,$(origin PAIRS)),6,$(PAIRS))'

bench-cycle: ## Benchmark the overhead of the plugins in a scheduling cycle. BASE=REVISION compares with a revision, PAIRS=6 times.
ifneq ($(BASE),)
	$(turns) cycle
else
	go test ./internal/scheduler/place -run '^$$' -bench 'Points|PreScore' -benchmem
	KUBENERGY_BENCH=1 go test ./test/perf -run 'CycleCost|HintsAreUsed' -v -count=1 -timeout 60m
endif

bench-scheduler-perf:
	KUBENERGY_BENCH=1 KUBENERGY_PAIRS=$(PAIRS) go test ./test/perf -run '^$$' -bench 'SchedulerPerf/$(or $(ROW),.)' -benchtime 1ns -timeout 10h

bench-agent: ## Benchmark the agent with 250 and 1,000 busy containers in real control groups at an interval of one second.
ifneq ($(BASE),)
	$(turns) agent
else
	KUBENERGY_BENCH=1 go test ./internal/agent/... -run 'Cost' -v -count=1 -timeout $(TIMEOUT)
endif

bench-controller: ## Benchmark the controller with 5,000 nodes and 100 containers each for ten minutes, with SQLite and PostgreSQL.
ifneq ($(BASE),)
	$(turns) controller
else
	go test ./internal/ledger/postgres -run RowsPerSecond -v -count=1 -timeout $(TIMEOUT)
	KUBENERGY_BENCH=1 go test ./test/scale/... -run Controller -v -count=1 -timeout 60m
endif

# The package is unpacked but not installed. An installed Prometheus takes precedence.
prometheus: ## Unpack Prometheus and promtool of Debian into out/, for the tests of dashboards and alerts.
	@if command -v prometheus promtool >/dev/null || [ -e out/prometheus/usr/bin/prometheus ]; then exit 0; fi; \
	  mkdir -p out/prometheus; cd out/prometheus; \
	  { command -v apt-get >/dev/null && { apt-get -qq download prometheus || { apt-get -qq update && apt-get -qq download prometheus; }; } && dpkg -x prometheus_*.deb .; } \
	    || echo "== Prometheus is not available, tests that require it are skipped"

grafana: prometheus ## Test that all panels have data on a real Prometheus, that alerts fire correctly, and that Grafana accepts the files.
	go test ./test/chart -run 'AlertsFire|GardenerNames' -v -count=1 -timeout $(TIMEOUT)
	KUBENERGY_LONG=1 go test ./test/grafana -run . -v -count=1 -timeout $(TIMEOUT)

axe: ## Download axe-core from npm into out/, for the accessibility tests of the pages.
	@if [ -e out/axe/package/axe.min.js ]; then exit 0; fi; mkdir -p out/axe; cd out/axe; \
	  { command -v npm >/dev/null && npm pack --silent axe-core@4.14.1 >/dev/null && tar xzf axe-core-*.tgz; } \
	    || echo "== axe-core is not available, its checks are skipped"

browser: axe ## Test all pages of the dashboard in Chromium, in all states, three sizes and both themes. Writes images to out/browser.
	KUBENERGY_LONG=1 go test ./test/browser ./internal/cli -run PagesOf -v -count=1 -timeout $(TIMEOUT)

pictures: ## Create the screenshots in the documents with the dashboard of the demo in Chromium.
	go test ./test/browser -run Pictures -count=1 -pictures '$(abspath docs/pictures)'

bench-dashboard: ## Benchmark requests, rendering and open pages of the dashboard with 5,000 nodes and 10,000 held Jobs. Takes eight minutes.
	KUBENERGY_BENCH=1 go test ./test/scale -run Dashboard -v -count=1 -timeout 30m

bench-hold: ## Benchmark 100,000 held Jobs, 2,000 held pods and a release of 10,000. Takes 90 minutes, or six with BENCH=short.
ifneq ($(BASE),)
	KUBENERGY_BENCH=$(or $(BENCH),1) $(turns) hold
else
	KUBENERGY_BENCH=$(or $(BENCH),1) go test ./test/scale/... -run '^TestHold' -v -count=1 -timeout 180m
endif

controller-long: ## Test 200 kills of controller and agents each, upgrades, and full disks, with SQLite and PostgreSQL.
	KUBENERGY_LONG=1 go test ./internal/ledger/... ./test/controller/... -run 'Kill|Upgrade|Full|Two' -v -count=1 -timeout 60m

ledger-damage: ## Change and truncate an SQLite ledger at each of its last 65,536 bytes. Takes one to two hours.
	KUBENERGY_LONG=1 go test ./internal/ledger/sqlite -run 'ChangedBytes|Truncated' -v -count=1 -timeout 180m

compare-gaia: ## Simulate the GAIA trace on eight grids with all strategies and forecasts. Takes half an hour on one core.
	KUBENERGY_LONG=1 go test ./internal/cli -run CompareGAIA -v -count=1 -timeout 120m

storm: ## Test batch planning while 5,000 nodes are deleted and added 20 times.
	KUBENERGY_LONG=1 go test ./test/batch -run Storm -v -count=1 -timeout 120m

bench-batch: ## Benchmark bursts of 5,000 pods on 5,000 nodes with stock kube-scheduler, single pods, and batch plans.
	KUBENERGY_BENCH=1 go test ./test/batch -run Burst -v -count=1 -timeout 120m

agent-long: ## Run the tests of the agent at full length: 200 kills per mode, 100,000 control groups, ten million counter sequences.
	KUBENERGY_LONG=1 go test ./internal/energy/... ./internal/agent/... -v -count=1 -timeout 60m

gpu-long: ## Test the conservation of energy with ten million random histories of GPUs, time slices and MIG instances.
	KUBENERGY_LONG=1 go test ./internal/agent/gpu -run HistoriesConserve -v -count=1 -timeout 180m

# KUBENERGY_GPU_LOAD is a command that generates load on a GPU for half a minute, e.g. python3 -c 'import torch; ...'
gpu-real: ## Measure a real GPU for half a minute. Prints missing requirements if there is none.
	KUBENERGY_REAL=1 go test ./internal/agent/meter -run RealGPU -v -count=1

e2e-real: ## Measure real pods with kubelet, containerd and runc on this machine. Requires root.
	KUBENERGY_REAL=1 go test ./test/real/... -run . -v -count=1 -timeout $(TIMEOUT)

# The package is unpacked but not installed. An installed emulator takes precedence.
qemu:
	@if command -v qemu-arm-static >/dev/null || [ -e out/qemu/usr/bin/qemu-arm-static ]; then exit 0; fi; \
	  mkdir -p out/qemu; cd out/qemu; \
	  { command -v apt-get >/dev/null && { apt-get -qq download qemu-user-static || { apt-get -qq update && apt-get -qq download qemu-user-static; }; } && dpkg -x qemu-user-static_*.deb .; } \
	    || echo "== QEMU is not available, images for other architectures are not tested"

e2e-nodes: qemu ## Test images and manifests on two real kubelets: measure a Job, run an experiment, run ARM images. Requires root.
	KUBENERGY_REAL=1 go test ./test/nodes -run . -v -count=1 -timeout 60m

# The first run also creates the disk of a virtual machine, which takes two minutes. Emulation is ten times slower than KVM.
power-real: ## Put a QEMU guest with a real kubelet to sleep and wake it up for a Job, with or without KVM. Requires root.
	KUBENERGY_REAL=1 go test ./test/guest -run . -v -count=1 -timeout 90m

# VMS= is the maximum number of guests for measuring the age of readings, 16 by default. Each guest requires 250 MB.
e2e-vm: prometheus ## Measure pods inside two QEMU guests with the meter of the host. Writes ages and baselines to out/vm. Requires root.
	KUBENERGY_REAL=1 KUBENERGY_VMS=$(VMS) go test ./test/vm -run . -v -count=1 -timeout 90m

# The same SEED selects the same mutants of the same code. Takes two hours. N= sets the number of mutants.
mutants: ## Run mutation tests of the scheduling, attribution and ledger packages and list the surviving mutants.
	go run ./hack/mutants -p $(JOBS) -n $(or $(N),600) -seed $(or $(SEED),1) internal/energy internal/policy \
	  internal/sched=internal/sched/strategy internal/sched/placement=internal/sched/strategy internal/sched/strategy \
	  internal/scheduler/hold internal/controller/intake internal/ledger internal/ledger/sqlstore=internal/ledger/sqlite

# Kubernetes is compiled again with the plugins, which takes minutes the first time.
upstream: ## Run the scheduler integration tests of Kubernetes with and without the plugins. SUITES= and MODES= select tests.
	GOFLAGS='-p=$(JOBS)' go run ./test/upstream $(if $(SUITES),-suites '$(SUITES)') $(if $(MODES),-modes '$(MODES)')

# Completed parts are not repeated for the same code. FOR=2h only starts parts that fit and uses the remaining time for fuzzing.
nightly: ## Run the long tests and all fuzz targets. FOR= limits the total time, and FUZZTIME= sets the time of each target.
	go run ./hack/nightly $(if $(FOR),-for '$(FOR)') -fuzztime '$(or $(FUZZTIME),10m)'

# All changes must be committed. After an interruption, the same command continues and only the current run is lost. The tests of
# a package may take three times as long under load.
repeat: ## Run make test RUNS=10 times for this commit and list the failed tests. LOAD=8 keeps 8 threads busy during the runs.
	$(if $(LOAD),TIMEOUT=60m )go run ./hack/repeat -runs '$(or $(RUNS),10)' -load '$(or $(LOAD),0)'

# The number of concurrent targets is the number of cores. Totals are recorded in docs/measurements/fuzzing.tsv.
fuzz: ## Run each fuzz target for FUZZTIME, one hour by default.
	go run ./hack/nightly -only fuzz -fuzztime '$(or $(FUZZTIME),1h)' $(if $(FOR),-for '$(FOR)')

fuzz-short: ## Run each fuzz target for one minute.
	@$(MAKE) fuzz FUZZTIME=60s

# Only the required binary is built, to keep the first run of the demo short.
demo: ## Simulate the demo, then replay it on a real control plane. WORKLOAD=, GRID= and ZONE= replace the input of the replay.
ifeq ($(WORKLOAD)$(GRID)$(ZONE),)
	@echo "== building bin/kubenergy"
	@$(alive) go build -buildvcs=auto -p $(JOBS) -o bin/ ./cmd/kubenergy
	@bin/kubenergy simulate -f scenarios/demo/scenario.yaml
endif
	@echo "== building bin/kubenergy-lab with Kubernetes $(kubernetes) (the first time takes minutes)"
	@$(alive) go build -buildvcs=auto -p $(JOBS) -ldflags '$(strip $(ldflags))' -o bin/ ./cmd/kubenergy-lab
	@bin/kubenergy-lab demo $(if $(WORKLOAD),--workload '$(WORKLOAD)') $(if $(GRID),--grid '$(GRID)') $(if $(ZONE),--zone '$(ZONE)')

# Requires an idle machine. Results on a busy machine are marked as not judged. WORK=cpu,gpu selects workloads, and gpu requires
# the NVIDIA driver.
benchmark: ## Measure the speed and, with a meter, the power of this machine five times. Takes three minutes.
	go build -o bin/ ./cmd/kubenergy ./cmd/kubenergy-gpu
	@mkdir -p out
	PATH="$(CURDIR)/bin:$$PATH" bin/kubenergy benchmark --local $(if $(WORK),--workloads '$(WORK)') -o json > out/benchmark.json
	bin/kubenergy benchmark --results out/benchmark.json

# A run continues with the instances that are missing from out/. DATA= selects other grids and traces.
field: ## Compare strategies on unseen grids and traces: 12 instances take minutes, INSTANCES=440 hours. HALF=tuning or test.
	@mkdir -p out && go build -o out/ ./hack/field
	for knowledge in perfect installed; do \
	    out/field -data '$(or $(DATA),../shared/data)' -half '$(or $(HALF),test)' -instances '$(or $(INSTANCES),12)' \
	        -knowledge $$knowledge -arms "$$(test $$knowledge = perfect && echo '$(field-arms),$(field-more)' || echo '$(field-arms)')" \
	        -out out/field-$(or $(HALF),test)-$$knowledge.jsonl || exit; \
	done
field-arms = stock,energy,guarded,held stock
field-more = energy+capacity,night,window,plan,energy+plan,guarded without carbon

parity: ## Test that the simulator and the real scheduler select the same node for every job.
	go test ./test/parity/... -run . -v -count=1 -timeout $(TIMEOUT)

install-test: ## Test the commands in the README: install with Helm, hold, explain, release, recover and uninstall.
	go test ./test/lifecycle/... -run . -v -count=1 -timeout $(TIMEOUT)

tutorials: ## Execute the three tutorials, which takes half an hour. TO= stores the transcripts and uses a clone.
	KUBENERGY_LONG=1 go test ./test/lifecycle/... -run Tutorials -v -count=1 -timeout 90m $(if $(TO),-transcripts '$(abspath $(TO))')

sleep-lab: ## Test on a real control plane that machines sleep as simulated and that no work is lost. Takes half an hour.
	KUBENERGY_LONG=1 go test ./test/sleep -run . -v -count=1 -timeout 90m

order-lab: ## Test on a real control plane that the order "aging" lowers the mean completion time as simulated. Takes half an hour.
	KUBENERGY_LONG=1 go test ./test/order -run . -v -count=1 -timeout 120m

# FASTER= is the factor by which all times are reduced. FASTER=1 takes five days.
experiments: ## Run each bundled experiment twice and compare the results, and kill an experiment. Takes two hours.
	KUBENERGY_LONG=1 KUBENERGY_FASTER=$(FASTER) go test ./test/experiment -run 'Shipped|Killed' -v -count=1 -timeout 200h

# The first run builds Karmada into out/karmada, which takes six minutes on one core.
karmada: ## Test placement and start times with failures on a real Karmada, built from the checkout KARMADA_SRC. Takes an hour.
	@if [ ! -d '$(KARMADA_SRC)/cmd/scheduler' ]; then \
	  echo "KARMADA_SRC is not a checkout of Karmada: clone github.com/karmada-io/karmada, check out v1.19 (tested with f8fdd02df), and set KARMADA_SRC=DIR"; exit 1; fi
	KARMADA_SRC='$(abspath $(KARMADA_SRC))' KUBENERGY_LONG=1 go test ./test/karmada -run . -v -count=1 -timeout 180m

# Kills, failures and conflicts take ten minutes each. The daemons listen on localhost and use a separate directory.
slurm: ## Test deadlines, energy by job and MPI rank, and sleeping nodes on a real Slurm of Debian. Takes an hour. Requires root.
	@for p in munged mariadbd slurmdbd slurmctld slurmd slurmrestd mpicc; do PATH=$$PATH:/usr/sbin command -v $$p >/dev/null || { \
	  echo "$$p is missing: as root, run apt-get install slurm-wlm slurmdbd slurmrestd slurm-wlm-jwt-plugin slurm-wlm-mysql-plugin mariadb-server munge openmpi-bin libopenmpi-dev"; exit 1; }; done
	KUBENERGY_LONG=1 go test ./test/slurm -run . -v -count=1 -parallel 15 -timeout 100m

hold: ## Test on a real control plane that no hold exceeds its deadline (promise P1). Takes half an hour.
	KUBENERGY_LONG=1 go test ./test/hold/... -run . -v -count=1 -timeout 60m

deadlines: ## Test promise P1 while scheduler and controller are randomly restarted 50 times. Takes a quarter of an hour.
	KUBENERGY_LONG=1 go test ./test/hold -run DeadlinesAcrossExchanges -v -count=1 -timeout 40m

chart-test: ## Test the installation of the Helm chart, its manifests and permissions, and the examples.
	go test ./test/chart/... ./test/install/... -run . -v -count=1 -timeout $(TIMEOUT)

manifests: ## Regenerate deploy/ and parts of values.schema.json from the Helm chart, and its CEL from the lists in Go.
	go test -count=1 ./internal/policy -run AdmissionPolicies -rewrite
	go test -count=1 ./test/chart -run 'Current|Schema' -rewrite

# Builds one image from scratch for each binary, without a container daemon.
images: ## Build container images into out/images. ARCH=amd64 builds a single architecture. REGISTRY= sets the registry.
	go run ./hack/images -ldflags '$(strip $(ldflags))' $(if $(ARCH),-arch '$(ARCH)') $(if $(REGISTRY),-registry '$(REGISTRY)') $(if $(TAG),-tag '$(TAG)')

generate: ## Regenerate golden files and documents. Review the diff before you commit it.
	go generate ./...
	@for package in $(goldens); do echo "go test $$package -rewrite"; go test -count=1 "$$package" -rewrite; done

# The working tree is stored as a git tree before and after generation, using a temporary index.
verify: ## Fail if generated files are not current.
	@tree() { index=$$(mktemp -u); GIT_INDEX_FILE=$$index git add -A; GIT_INDEX_FILE=$$index git write-tree; rm -f "$$index"; }; \
	  before=$$(tree); $(MAKE) generate; after=$$(tree); \
	  changed=$$(git diff --stat "$$before" "$$after"); \
	  if [ -n "$$changed" ]; then printf 'not current, make generate has rewritten:\n%s\n' "$$changed"; exit 1; fi; \
	  echo "generated files are current"

clean: ## Remove the output of build and demo.
	rm -rf bin out
