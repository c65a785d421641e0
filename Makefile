# Everything here needs Go, GNU make 4 and bash; `verify` also needs git.

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS   += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help build tools test check count static forget-skipped test-light test-heavy lint bench demo parity install-test tutorials hold deadlines sleep-lab karmada slurm prometheus grafana axe browser pictures generate verify clean manifests images chart-test test-portable bench-scheduler bench-cycle bench-scheduler-perf bench-batch storm bench-agent bench-controller bench-dashboard bench-hold upstream agent-long gpu-long gpu-real controller-long compare-gaia e2e-real e2e-nodes e2e-vm qemu power-real fuzz fuzz-short mutants nightly repeat experiments benchmark

# Linking Kubernetes takes memory: JOBS limits how many packages are compiled and linked at once.
JOBS    ?= 2
# Tests often wait, for a clock or another process, so one package more is tested at once.
ABREAST ?= $(shell expr $(JOBS) + 1)
TIMEOUT ?= 20m

# Kubernetes' packages get their version at link time; without it binaries call themselves v0.0.0-master.
kubernetes = $(shell go list -m -f '{{.Version}}' k8s.io/kubernetes)
version    = $(subst ., ,$(patsubst v%,%,$(kubernetes)))
ldflags    = -X k8s.io/component-base/version.gitVersion=$(kubernetes) \
             -X k8s.io/component-base/version.gitMajor=$(word 1,$(version)) \
             -X k8s.io/component-base/version.gitMinor=$(word 2,$(version)) \
             -X k8s.io/client-go/pkg/version.gitVersion=$(kubernetes)

# Packages that link k8s.io/kubernetes take minutes to build, and many more with the race detector: they are tested without.
# The tests of layers and of documents and the test kit stand in test/ but link nothing.
heavy := /(lab|test)(/|$$)|/cmd/kubenergy-(lab|scheduler)$$|/scheduler/(app|fallback|parking)$$
light_tests := /test/(docs|kit|layers)$$
# Of what links Kubernetes, these packages take longest: they start first.
longest := ./test/hold ./test/grafana ./test/upstream ./test/lifecycle ./test/controller ./test/surface
light_packages := all=$$(go list ./...); light="$$(grep -vE '$(heavy)' <<<"$$all") $$(grep -E '$(light_tests)' <<<"$$all")"
heavy_packages := all=$$(go list ./...); linking=$$(grep -E '$(heavy)' <<<"$$all" | grep -vE '$(light_tests)' || true)

# The race detector needs a C compiler; without one the same tests run without it.
RACE ?= $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)

# Packages with golden files that their tests rewrite when they are given -rewrite.
goldens = $(shell grep -rlE --include='*_test.go' 'cockroachdb/datadriven|flag.Bool."rewrite"' . | xargs -r -n 1 dirname | sort -u)

# Slow commands say every few seconds that they live; tests that were skipped are listed at the end of make test. All
# packages have been vetted before they are tested.
alive    := go run ./hack/progress run
go_test  := go run ./hack/progress test -vet=off

# Tests run in a random order. After a failure, SHUFFLE=SEED repeats the order that was printed, and SHUFFLE=off that of
# the files. Go does not cache the results of shuffled tests, so make check, which has to be quick, does not shuffle.
SHUFFLE  ?= on
shuffled := $(go_test) -shuffle=$(SHUFFLE)

lint_tool := go tool -modfile=go.tools.mod golangci-lint

help: ## Print this list.
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build the binaries into bin/.
	@echo "== building bin/ with Kubernetes $(kubernetes) (the first time takes minutes)"
	$(alive) go build -buildvcs=auto -p $(JOBS) -ldflags '$(strip $(ldflags))' -o bin/ ./cmd/...
	@ln -sf kubenergy bin/kubectl-energy

tools: ## Build helm, and kubectl as a name of the lab, into bin/.
	@echo "== building bin/helm (the first time takes minutes)"
	$(alive) go build -p $(JOBS) -modfile=go.tools.mod -o bin/helm helm.sh/helm/v4/cmd/helm
	ln -sf kubenergy-lab bin/kubectl

test: forget-skipped static test-portable test-light test-heavy ## Run every test: format, vet, unit tests with the race detector, tests on a real control plane.
	@go run ./hack/progress skipped
	@echo "== all tests passed"

forget-skipped:
	@rm -f out/skipped.txt

check: forget-skipped static ## Format, vet, generated kinds, and the tests that need no Kubernetes: for while you work.
	@echo "== tests without Kubernetes and without the race detector"
	@$(light_packages); $(go_test) -p $(ABREAST) -timeout $(TIMEOUT) $$light
	@go run ./hack/progress skipped

count: ## Count the lines that hold code, by folder; fails where code is wider than 120 columns.
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

# The race detector slows tests down ten- to thirty-fold. It finds nothing where no goroutine starts: in the core, which
# test/layers watches, in the simulator, report and scenarios, and in most tests of `alone`. Of forecast it sees the tests on
# several processors.
core  := /(internal/(energy|grid|mincost|sched|sched/(codec|strategy)|forecast|sim|sim/oracle|report)|scenarios)$$
alone := ^Test(Compare(GoesOnWhereItWas|InParts|AlignsTrials)|Release.*Cluster|ReleaseNoticesALongerWay|ManyHolds.*|Failing.*|FullDisk|Faults|SeriesAreBounded|AnswersAreBounded)$$

test-light:
ifeq ($(RACE),)
	@echo "== tests WITHOUT the race detector: no C compiler was found"
	@$(light_packages); $(shuffled) -p $(ABREAST) -timeout $(TIMEOUT) $$light
else
	@echo "== tests with the race detector"
	@$(light_packages); $(shuffled) $(RACE) -p $(ABREAST) -timeout $(TIMEOUT) -skip '$(alone)' $$(grep -vE '$(core)' <<<"$$light")
	@$(shuffled) $(RACE) -timeout $(TIMEOUT) -run 'OnAnyNumberOfProcessors' ./internal/forecast
	@echo "== tests that it would slow down: the core, the simulator, what the ledger holds, what comparisons say, long releases"
	@$(light_packages); $(shuffled) -p $(ABREAST) -timeout $(TIMEOUT) $$(grep -E '$(core)' <<<"$$light") ./internal/ledger/sqlite ./internal/ledger/sqlstore
	@$(shuffled) -p $(ABREAST) -timeout $(TIMEOUT) -run '^TestCompare|$(alone)' ./internal/cli ./internal/scheduler/hold ./internal/power ./internal/controller ./internal/slurm
endif

# Vetting compiles what the tests need, in parallel. Control planes mostly wait, so several stand side by side; what
# judges latencies measures how much of a processor it gets.
test-heavy: prometheus axe
	@$(heavy_packages); if [ -z "$$linking" ]; then exit 0; fi; \
	  echo "== go vet of what links Kubernetes (the first time compiles it: minutes)"; \
	  $(alive) go vet -p $(JOBS) $$linking; \
	  echo "== tests of what links Kubernetes, most of them on a real control plane"; \
	  $(shuffled) -p $(ABREAST) -timeout $(TIMEOUT) $(longest) $$(grep -vxFf <(go list $(longest)) <<<"$$linking")

# The agent runs on small and 32-bit machines as well. An amd64 machine runs programs for 386, which have the same traps:
# 64-bit atomics, int of 32 bits.
metering := ./internal/energy/... ./internal/agent/... ./cmd/kubenergy-agent
test-portable:
	@echo "== go vet of the agent for arm64 and arm/v7"
	@$(alive) env GOARCH=arm64 CGO_ENABLED=0 go vet $(metering)
	@$(alive) env GOARCH=arm GOARM=7 CGO_ENABLED=0 go vet $(metering)
ifeq ($(shell go env GOHOSTARCH),amd64)
	@echo "== tests of the agent for 386"
	@$(alive) env GOARCH=386 CGO_ENABLED=0 go test -short -shuffle=$(SHUFFLE) -p $(JOBS) -timeout $(TIMEOUT) $(metering)
endif

lint: ## Run golangci-lint; it is built as a Go tool the first time.
	@echo "== golangci-lint"
	@$(lint_tool) run ./...

bench: ## Measure the simulator, the strategies and the scheduler plugin.
	go test -run '^$$' -bench . -benchmem ./internal/sim/... ./internal/sched/... ./internal/scheduler/place/... ./test/scores/...

# The first part needs no API server and takes minutes. Each arm of the second has one of its own: PAIRS=12 of five rows take
# two hours, and ROW= picks one of unmarked, scored, one-per-node-unmarked, one-per-node-scored and burst.
PAIRS ?= 12
bench-scheduler: bench-cycle bench-scheduler-perf ## Measure what our plugins cost kube-scheduler, beside stock and in turns.

# With BASE=REVISION, bench-cycle, bench-agent and bench-controller run the benchmark of that revision and the present one
# in turns, PAIRS=6 times each, and fail if the lower end of the 95 % interval of new ÷ base is above 1.05.
turns = go run ./hack/turns -base '$(BASE)' -pairs '$(if $(filter file,$(origin PAIRS)),6,$(PAIRS))'

bench-cycle: ## Measure what our plugins cost a scheduling cycle. BASE=REVISION compares revisions in turns, PAIRS=6 times each.
ifneq ($(BASE),)
	$(turns) cycle
else
	go test ./internal/scheduler/place -run '^$$' -bench 'Points|PreScore' -benchmem
	KUBENERGY_BENCH=1 go test ./test/perf -run 'CycleCost|HintsAreUsed' -v -count=1 -timeout 60m
endif

bench-scheduler-perf:
	KUBENERGY_BENCH=1 KUBENERGY_PAIRS=$(PAIRS) go test ./test/perf -run '^$$' -bench 'SchedulerPerf/$(or $(ROW),.)' -benchtime 1ns -timeout 10h

bench-agent: ## Measure the agent on real control groups: 250 and 1,000 busy containers at one second.
ifneq ($(BASE),)
	$(turns) agent
else
	KUBENERGY_BENCH=1 go test ./internal/agent/... -run 'Cost' -v -count=1 -timeout $(TIMEOUT)
endif

bench-controller: ## Measure the controller at 5,000 nodes with 100 containers each for ten minutes, on SQLite and on PostgreSQL.
ifneq ($(BASE),)
	$(turns) controller
else
	go test ./internal/ledger/postgres -run RowsPerSecond -v -count=1 -timeout $(TIMEOUT)
	KUBENERGY_BENCH=1 go test ./test/scale/... -run Controller -v -count=1 -timeout 60m
endif

# Unpacked, nothing is installed; an installed one is used first.
prometheus: ## Unpack Debian's Prometheus and promtool into out/, which tests of dashboards and alerts run.
	@if command -v prometheus promtool >/dev/null || [ -e out/prometheus/usr/bin/prometheus ]; then exit 0; fi; \
	  mkdir -p out/prometheus; cd out/prometheus; \
	  { command -v apt-get >/dev/null && { apt-get -qq download prometheus || { apt-get -qq update && apt-get -qq download prometheus; }; } && dpkg -x prometheus_*.deb .; } \
	    || echo "== no Prometheus: tests that need it are skipped"

grafana: prometheus ## Show that every panel has data on a real Prometheus, alerts fire and not fire, and Grafana's types read the files.
	go test ./test/chart -run 'AlertsFire|GardenerNames' -v -count=1 -timeout $(TIMEOUT)
	KUBENERGY_LONG=1 go test ./test/grafana -run . -v -count=1 -timeout $(TIMEOUT)

axe: ## Fetch axe-core from npm into out/: tests of pages ask it what keeps people from using them.
	@if [ -e out/axe/package/axe.min.js ]; then exit 0; fi; mkdir -p out/axe; cd out/axe; \
	  { command -v npm >/dev/null && npm pack --silent axe-core@4.14.1 >/dev/null && tar xzf axe-core-*.tgz; } \
	    || echo "== no axe-core: its checks are skipped"

browser: axe ## Look at every page of the dashboard in Chromium: in each state, three sizes, both themes. Pictures go to out/browser.
	KUBENERGY_LONG=1 go test ./test/browser ./internal/cli -run PagesOf -v -count=1 -timeout $(TIMEOUT)

pictures: ## Make the pictures of the documents: the dashboard of the demo, in Chromium.
	go test ./test/browser -run Pictures -count=1 -pictures '$(abspath docs/pictures)'

bench-dashboard: ## Measure the dashboard at 5,000 nodes and 10,000 held Jobs: requests, paint, what open pages cost. Eight minutes.
	KUBENERGY_BENCH=1 go test ./test/scale -run Dashboard -v -count=1 -timeout 30m

bench-hold: ## Measure what 100,000 held Jobs and 2,000 held pods cost others, and a release of 10,000: 90 minutes. BENCH=short takes six.
	KUBENERGY_BENCH=$(or $(BENCH),1) go test ./test/scale/... -run '^TestHold' -v -count=1 -timeout 180m

controller-long: ## Kill controller and agents 200 times each, exchange versions, fill disks: on SQLite and on PostgreSQL.
	KUBENERGY_LONG=1 go test ./internal/ledger/... ./test/controller/... -run 'Kill|Upgrade|Damage|Full|Two' -v -count=1 -timeout 60m

compare-gaia: ## Play GAIA's trace on eight grids under every strategy and forecast, with intervals: half an hour of one core.
	KUBENERGY_LONG=1 go test ./internal/cli -run CompareGAIA -v -count=1 -timeout 120m

storm: ## Delete and add 5,000 nodes 20 times while batches are planned and bound.
	KUBENERGY_LONG=1 go test ./test/batch -run Storm -v -count=1 -timeout 120m

bench-batch: ## Bind bursts of 5,000 pods on 5,000 nodes: stock, pod by pod, and by plans, in turn.
	KUBENERGY_BENCH=1 go test ./test/batch -run Burst -v -count=1 -timeout 120m

agent-long: ## The agent's tests at full length: 200 kills a mode, 100,000 control groups, ten million counter sequences.
	KUBENERGY_LONG=1 go test ./internal/energy/... ./internal/agent/... -count=1 -timeout 60m

gpu-long: ## Play ten million random histories of boards, in time slices and MIG instances, and see that each is conserved.
	KUBENERGY_LONG=1 go test ./internal/agent/gpu -run HistoriesConserve -v -count=1 -timeout 180m

# KUBENERGY_GPU_LOAD is a command that computes on a GPU for half a minute, as: python3 -c 'import torch; ...'
gpu-real: ## Meter a real GPU for half a minute, and say what is missing where there is none.
	KUBENERGY_REAL=1 go test ./internal/agent/meter -run RealGPU -v -count=1

e2e-real: ## Meter real pods: kubelet, containerd and runc on this machine, as root.
	KUBENERGY_REAL=1 go test ./test/real/... -run . -v -count=1 -timeout $(TIMEOUT)

# Unpacked, nothing is installed; an installed one is used first.
qemu:
	@if command -v qemu-arm-static >/dev/null || [ -e out/qemu/usr/bin/qemu-arm-static ]; then exit 0; fi; \
	  mkdir -p out/qemu; cd out/qemu; \
	  { command -v apt-get >/dev/null && { apt-get -qq download qemu-user-static || { apt-get -qq update && apt-get -qq download qemu-user-static; }; } && dpkg -x qemu-user-static_*.deb .; } \
	    || echo "== no emulator of other machines: images for them are not run"

e2e-nodes: qemu ## Install our images by our manifests on two real kubelets, meter a Job, run an experiment, and images for ARM; as root.
	KUBENERGY_REAL=1 go test ./test/nodes -run . -v -count=1 -timeout 60m

# The first time makes the disk of a virtual machine: two minutes more. Where it is emulated, all takes ten times as long.
power-real: ## Send a QEMU guest with a real kubelet to sleep and wake it for a Job: emulated where there is no KVM, as root.
	KUBENERGY_REAL=1 go test ./test/guest -run . -v -count=1 -timeout 90m

# VMS= is the largest number of guests whose readings' age is measured, 16 if it is not given: each takes 250 MB.
e2e-vm: prometheus ## Meter pods inside two QEMU guests from the host's meter to a Prometheus outside, as root; ages and baselines to out/vm.
	KUBENERGY_REAL=1 KUBENERGY_VMS=$(VMS) go test ./test/vm -run . -v -count=1 -timeout 90m

# Seeded: the same SEED tries the same places of the same code. Two hours; N= tries fewer.
mutants: ## Change one thing at a time in what decides, attributes and books, and list the changes that no test notices.
	go run ./hack/mutants -p $(JOBS) -n $(or $(N),600) -seed $(or $(SEED),1) internal/energy internal/policy \
	  internal/sched=internal/sched/strategy internal/sched/placement=internal/sched/strategy internal/sched/strategy \
	  internal/scheduler/hold internal/controller/intake internal/ledger internal/ledger/sqlstore=internal/ledger/sqlite

# Kubernetes is compiled once more, with our plugins in it: minutes, the first time.
upstream: ## Run Kubernetes' own integration tests of the scheduler, stock and with our plugins. SUITES= and MODES= choose.
	GOFLAGS='-p=$(JOBS)' go run ./test/upstream $(if $(SUITES),-suites '$(SUITES)') $(if $(MODES),-modes '$(MODES)')

# What is done of the same code is not repeated. FOR=2h starts only what fits, and fuzzes until then.
nightly: ## Run what make test leaves out: kills, damage and storms at full length, fuzzing, … FOR= limits it, FUZZTIME= a target.
	go run ./hack/nightly $(if $(FOR),-for '$(FOR)') -fuzztime '$(or $(FUZZTIME),10m)'

# The working tree must be committed. An interruption costs the current run only: the same command continues. Under load
# the tests of a package may take three times as long.
repeat: ## Run make test RUNS=10 times at this commit and list the tests that failed. LOAD=8 keeps as many threads busy meanwhile.
	$(if $(LOAD),TIMEOUT=60m )go run ./hack/repeat -runs '$(or $(RUNS),10)' -load '$(or $(LOAD),0)'

# As many targets at once as there are cores. The totals are in docs/measurements/fuzzing.tsv.
fuzz: ## Fuzz every reader of what others write for FUZZTIME each, by default an hour.
	go run ./hack/nightly -only fuzz -fuzztime '$(or $(FUZZTIME),1h)' $(if $(FOR),-for '$(FOR)')

fuzz-short: ## Fuzz every one for a minute each.
	@$(MAKE) fuzz FUZZTIME=60s

# The demo needs one binary only, and its reader waits for the first build.
demo: ## Replay a trace on a real control plane: stock, energy, carbon+window, on machines that sleep. WORKLOAD= GRID= ZONE= replace the input.
	@echo "== building bin/kubenergy-lab with Kubernetes $(kubernetes) (the first time takes minutes)"
	@$(alive) go build -buildvcs=auto -p $(JOBS) -ldflags '$(strip $(ldflags))' -o bin/ ./cmd/kubenergy-lab
	@bin/kubenergy-lab demo $(if $(WORKLOAD),--workload '$(WORKLOAD)') $(if $(GRID),--grid '$(GRID)') $(if $(ZONE),--zone '$(ZONE)')

# Wants a quiet machine: on another, what is not judged says so. WORK=cpu,gpu chooses, and gpu needs NVIDIA's driver.
benchmark: ## Measure this machine five times: speeds, and watts where there is a meter, or "not judged". Three minutes.
	go build -o bin/ ./cmd/kubenergy ./cmd/kubenergy-gpu
	@mkdir -p out
	PATH="$(CURDIR)/bin:$$PATH" bin/kubenergy benchmark --local $(if $(WORK),--workloads '$(WORK)') -o json > out/benchmark.json
	bin/kubenergy benchmark --results out/benchmark.json

parity: ## Show that the simulator and the real scheduler choose the same node for every job.
	go test ./test/parity/... -run . -v -count=1 -timeout $(TIMEOUT)

install-test: ## Install with Helm, hold, explain, release, break glass and uninstall, as the README says it.
	go test ./test/lifecycle/... -run . -v -count=1 -timeout $(TIMEOUT)

tutorials: ## Follow the three tutorials word by word: half an hour. TO= keeps what was printed, and follows them in a clone.
	KUBENERGY_LONG=1 go test ./test/lifecycle/... -run Tutorials -v -count=1 -timeout 90m $(if $(TO),-transcripts '$(abspath $(TO))')

sleep-lab: ## Show on a real control plane that machines sleep as simulated and that no work is lost: half an hour.
	KUBENERGY_LONG=1 go test ./test/sleep -run . -v -count=1 -timeout 90m

# FASTER= makes the times of all of them so many times shorter, 1 not at all: five days.
experiments: ## Run each shipped experiment twice, and show that both agree and that equal contestants do not differ: two hours.
	KUBENERGY_LONG=1 KUBENERGY_FASTER=$(FASTER) go test ./test/experiment -run Shipped -v -count=1 -timeout 200h

# Karmada's programs are built into out/karmada the first time: six minutes of one core.
karmada: ## Show on a real Karmada, built from the checkout KARMADA_SRC, where work goes, and when, whatever dies: an hour.
	@if [ ! -d '$(KARMADA_SRC)/cmd/scheduler' ]; then \
	  echo "KARMADA_SRC names no checkout: clone github.com/karmada-io/karmada, check out v1.19 (f8fdd02df was tried), KARMADA_SRC=DIR"; exit 1; fi
	KARMADA_SRC='$(abspath $(KARMADA_SRC))' KUBENERGY_LONG=1 go test ./test/karmada -run . -v -count=1 -timeout 180m

# Ten minutes each: kills, failures, and who wins. Daemons listen on this machine alone, in a folder of their own.
slurm: ## Show on Debian's real Slurm, as root: deadlines whatever dies, joules by job and MPI rank, nodes that sleep; an hour.
	@for p in munged mariadbd slurmdbd slurmctld slurmd slurmrestd mpicc; do PATH=$$PATH:/usr/sbin command -v $$p >/dev/null || { \
	  echo "no $$p: as root, apt-get install slurm-wlm slurmdbd slurmrestd slurm-wlm-jwt-plugin slurm-wlm-mysql-plugin mariadb-server munge openmpi-bin libopenmpi-dev"; exit 1; }; done
	KUBENERGY_LONG=1 go test ./test/slurm -run . -v -count=1 -parallel 15 -timeout 100m

hold: ## Show on a real control plane that no hold outlives its deadline (promise P1).
	go test ./test/hold/... -run . -v -count=1 -timeout $(TIMEOUT)

deadlines: ## Show promise P1 while scheduler and controller are stopped and started 50 times at random: a quarter of an hour.
	KUBENERGY_LONG=1 go test ./test/hold -run DeadlinesAcrossExchanges -v -count=1 -timeout 40m

chart-test: ## Show that the Helm chart installs, and that what it renders, the examples and the rights are as they should be.
	go test ./test/chart/... ./test/install/... -run . -v -count=1 -timeout $(TIMEOUT)

manifests: ## Rewrite what is generated from the Helm chart: deploy/ and parts of its values.schema.json.
	go test -count=1 ./test/chart -run 'Current|Schema' -rewrite

# One image for each binary, from scratch, without a container daemon.
images: ## Build container images into out/images. ARCH=amd64 is quicker than all; REGISTRY= names them.
	go run ./hack/images -ldflags '$(strip $(ldflags))' $(if $(ARCH),-arch '$(ARCH)') $(if $(REGISTRY),-registry '$(REGISTRY)') $(if $(TAG),-tag '$(TAG)')

generate: ## Rewrite golden files and generated documents; read the diff before committing it.
	go generate ./...
	@for package in $(goldens); do echo "go test $$package -rewrite"; go test -count=1 "$$package" -rewrite; done

# The working tree before and after, as two trees of git made through an index of their own.
verify: ## Fail if generated files are not current.
	@tree() { index=$$(mktemp -u); GIT_INDEX_FILE=$$index git add -A; GIT_INDEX_FILE=$$index git write-tree; rm -f "$$index"; }; \
	  before=$$(tree); $(MAKE) generate; after=$$(tree); \
	  changed=$$(git diff --stat "$$before" "$$after"); \
	  if [ -n "$$changed" ]; then printf 'not current; make generate has just rewritten:\n%s\n' "$$changed"; exit 1; fi; \
	  echo "generated files are current"

clean: ## Remove what build and demo wrote.
	rm -rf bin out
