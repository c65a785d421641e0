package layers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strings"
	"testing"
)

// Reasons for calls of time.Sleep in tests. All other tests wait for a condition with kit.Eventually or kit.Await,
// or run in a testing/synctest bubble and advance its clock with bubble.Advance.
const (
	absence  = "verifies that an event does not occur within an interval"
	instant  = "waits for a time of the real clock"
	interval = "measures a real process or device over an interval"
	latency  = "is the latency of a fake"
	moment   = "runs a real process until it is killed at a random time"
	pace     = "sets the pace of real work"
	unseen   = "gives a real process time for an operation that cannot be observed"
	polls    = "implements polling"
	kernel   = "waits for the kernel or a process, in a kit"
)

// An allowance permits calls of time.Sleep in one file of a test or a test kit.
type allowance struct {
	calls int
	why   string
}

var sleeps = map[string]allowance{
	// Calls within a synctest bubble.
	"agent/exposition/handler_test.go":    {2, "advances the clock of a bubble"},
	"scheduler/app/election_test.go":      {2, latency},
	"controller/release/bindings_test.go": {1, latency},
	"controller/zone/call_budget_test.go": {1, latency},
	"karmada/move_test.go":                {1, "advances the clock of a bubble"},
	"ledger/ledger_test.go":               {1, latency},
	"scheduler/batch/planner_test.go":     {2, latency},
	"scheduler/hold/budgets_test.go":      {1, "sets the pace of a fake, on the clock of a bubble"},
	"scheduler/hold/joint_plan_test.go":   {1, latency},
	"scheduler/record/recorder_test.go":   {1, latency},

	// Calls in tests with real processes, devices, files or networks.
	"agent/cost_test.go":                 {2, interval},
	"agent/delivery/kill_test.go":        {2, pace},
	"agent/host/bench_internal_test.go":  {2, interval},
	"agent/meter/gpu_internal_test.go":   {1, interval},
	"cli/experiment/arm_test.go":         {1, polls},
	"child/death_signal_linux_test.go":   {1, absence},
	"kube/objects_test.go":               {1, absence},
	"kube/standalone/server_test.go":     {4, polls + "; " + absence},
	"lab/kubelet/services_test.go":       {1, unseen},
	"lab/lab_test.go":                    {1, absence},
	"lab/redfish_test.go":                {1, absence},
	"test/batch/burst_test.go":           {1, unseen},
	"test/controller/end_to_end_test.go": {1, pace},
	"test/controller/full_test.go":       {1, absence},
	"test/controller/herd_test.go":       {1, moment},
	"test/controller/kill_test.go":       {2, moment},
	"test/controller/tenant_test.go":     {3, pace + "; " + unseen + "; " + absence},
	"test/controller/two_test.go":        {2, moment + "; " + unseen},
	"test/controller/upgrade_test.go":    {2, pace},
	"test/controller/wire_test.go":       {2, moment},
	"test/grafana/panels_test.go":        {1, pace},
	"test/guest/guest_test.go":           {1, interval},
	"test/hold/deadline_test.go":         {5, instant + "; " + unseen},
	"test/hold/exchange_test.go":         {4, instant},
	"test/hold/last_records_test.go":     {2, latency + "; " + unseen},
	"test/hold/never_held_test.go":       {3, absence + "; " + instant},
	"test/karmada/crds_test.go":          {3, unseen + "; " + absence},
	"test/karmada/day_test.go":           {3, instant + "; " + unseen},
	"test/karmada/kills_test.go":         {2, unseen},
	"test/karmada/lost_test.go":          {4, instant + "; " + unseen},
	"test/karmada/real_test.go":          {3, unseen},
	"test/lifecycle/grid_test.go":        {1, instant},
	"test/lifecycle/lifecycle_test.go":   {1, unseen},
	"test/nodes/machine_test.go":         {1, interval},
	"test/real/kernel_test.go":           {1, pace},
	"test/real/real_test.go":             {2, interval},
	"test/scale/controller_test.go":      {2, interval},
	"test/scale/hold_test.go":            {5, interval + "; " + instant + "; " + unseen},
	"test/slurm/energy_test.go":          {2, unseen},
	"test/slurm/ingest_test.go":          {1, moment},
	"test/slurm/power_test.go":           {2, pace},
	"test/slurm/slurm_test.go":           {5, pace + "; " + instant + "; " + unseen},
	"test/slurm/stage_test.go":           {1, unseen},
	"test/slurm/waits_test.go":           {2, pace + "; " + unseen},
	"test/surface/agent_test.go":         {1, absence},
	"test/vm/age_test.go":                {1, interval},
	"test/vm/baselines_test.go":          {1, interval},
	"test/vm/pipeline_test.go":           {2, interval},

	// Calls in test kits.
	"agent/delivery/killtest/killtest.go": {1, moment},
	"agent/delivery/sinktest/sink.go":     {1, latency},
	"agent/host/hosttest/hosttest.go":     {2, pace + "; " + kernel},
	"controller/controllertest/world.go":  {1, "implements controllertest.Eventually, which waits for a condition"},
	"ledger/postgres/pgtest/pgtest.go":    {1, kernel},
	"test/controller/feed/feeder/main.go": {3, pace},
	"test/kit/bubble/bubble.go":           {1, "is bubble.Advance"},
	"test/kit/node/group.go":              {1, kernel},
}

// TestSleepsAreAllowed compares the calls of time.Sleep in tests and test kits with the table, so that new tests do
// not rely on assumptions about durations.
func TestSleepsAreAllowed(t *testing.T) {
	left := map[string]bool{}
	for name := range sleeps {
		left[name] = true
	}
	for _, s := range sources(t) {
		if !s.test && !isTestKit(s.folder) {
			continue
		}
		delete(left, s.path)
		switch n, allowed := countSleeps(s.file), sleeps[s.path].calls; {
		case n > allowed:
			t.Errorf("%s calls time.Sleep %d times, want at most %d; wait for a condition with kit.Eventually or "+
				"kit.Await, or advance the clock of a synctest bubble with bubble.Advance", s.path, n, allowed)
		case n < allowed:
			t.Errorf("%s calls time.Sleep %d times, but its allowance is %d; reduce the allowance", s.path, n, allowed)
		}
	}
	for name := range left {
		t.Errorf("%s has an allowance but is not a test file", name)
	}
}

// isTestKit reports whether a directory contains packages that are only imported by tests.
func isTestKit(folder string) bool {
	return within(folder, "test") || strings.HasSuffix(path.Base(folder), "test")
}

// countSleeps returns the number of references to time.Sleep in a file.
func countSleeps(file *ast.File) (n int) {
	ast.Inspect(file, func(node ast.Node) bool {
		if call, ok := node.(*ast.SelectorExpr); ok && call.Sel.Name == "Sleep" {
			if of, ok := call.X.(*ast.Ident); ok && of.Name == "time" {
				n++
			}
		}
		return true
	})
	return n
}

func TestSleepsAreCounted(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "x_test.go", `package x
// time.Sleep(1) in a comment does not count.
func f() { time.Sleep(1); defer func() { time.Sleep(2) }(); clock.Sleep(3) }
var g = time.Sleep
`, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	if n := countSleeps(file); n != 3 {
		t.Errorf("countSleeps() = %d, want 3", n)
	}
}
