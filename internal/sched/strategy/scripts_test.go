package strategy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/schedtest"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// TestScripts runs the scenario scripts in testdata. The input is a cluster with signals and jobs, the output are
// the decisions with their reasons.
//
//	reset                                               discard all state
//	site NAME zone=DE pue=1.2 step=1h as-of=T price=P weight=N
//	                                                    followed by lines of hourly intensities
//	profile NAME idle=W max=W exponent=E sleep=W wake-up=J gpu-idle=W gpu-max=W; a line CLASS SHARE for each class of GPU work
//	node NAME site=S profile=P cpu=CORES memory=GIB gpu=N used-cpu=CORES used-memory=GIB jobs=N speed=X pue=R live=W
//	    provisional=W;
//	                                                    followed by a line CLASS RATE LOADED IDLE for each benchmark
//	job ID submitted=T cpu=CORES memory=GIB gpu=N duration=D delay=D finish-by=T released=true class=C gpu-class=C pue=R weight=W expected=W
//	    sites=S/S max-carbon=G percentile=P max-price=P no-carbon=true
//	policy wait=G price=G utilisation=G carbon=G max-delay=D max-age=D min-saving=R
//	plan STRATEGY now=T last=NODE                       plan all jobs and print the decisions
//	costs STRATEGY now=T                                print the cost of the first job on each node
//	admits max-power=W min-efficiency=E                 print the nodes that may run the first job
//
// Times are hours and minutes of 2022-06-01 in UTC. Run with -rewrite to regenerate the output, and only commit
// changes with a known cause.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := newWorld()
		datadriven.RunTest(t, path, w.run)
	})
}

type world struct {
	sites    map[string]*sched.Site
	profiles map[string]*energy.Profile
	snapshot sched.Snapshot
}

func newWorld() *world {
	return &world{sites: map[string]*sched.Site{}, profiles: map[string]*energy.Profile{}}
}

func (w *world) run(t *testing.T, d *datadriven.TestData) string {
	a := args{t, d}
	name := ""
	if len(d.CmdArgs) > 0 {
		name = d.CmdArgs[0].Key
	}
	switch d.Cmd {
	case "reset":
		*w = *newWorld()
	case "site":
		site := &sched.Site{
			Name: name, Zone: grid.Zone(a.text("zone", "")), PUE: a.number("pue", 0),
			Weight: int64(a.number("weight", 0)),
		}
		step := a.duration("step", time.Hour)
		if values := numbers(t, d.Input); len(values) > 0 {
			site.Carbon = grid.Signal{Series: mustSeries(t, step, values)}
		}
		if a.has("as-of") {
			site.Carbon.AsOf = a.clock("as-of")
		}
		if a.has("price") {
			var prices []float64
			for text := range strings.SplitSeq(a.text("price", ""), "/") {
				prices = append(prices, numbers(t, text)...)
			}
			site.Price = grid.Signal{Series: mustSeries(t, step, prices)}
		}
		w.sites[name] = site
		w.snapshot.Sites = append(w.snapshot.Sites, site)
	case "profile":
		w.profiles[name] = w.profile(t, a, name)
	case "node":
		w.snapshot.Nodes = append(w.snapshot.Nodes, w.node(t, a, name))
	case "job":
		w.snapshot.Queue = append(w.snapshot.Queue, a.job(name))
	case "policy":
		w.snapshot.Policy = sched.Policy{
			Weights: sched.Weights{
				Carbon: a.number("carbon", 1), Wait: a.number("wait", 0),
				Price: a.number("price", 0), Utilisation: a.number("utilisation", 0),
			},
			MaxDelay: a.duration("max-delay", 0), MaxSignalAge: a.duration("max-age", 0),
			MinSaving: a.number("min-saving", 0),
		}
	case "plan":
		strategy, err := strategy.ByName(name)
		if err != nil {
			return err.Error() + "\n"
		}
		w.snapshot.Now, w.snapshot.Last = a.clock("now"), a.text("last", "")
		return render(w.snapshot.Now, strategy.Plan(&w.snapshot))
	case "costs":
		w.snapshot.Now = a.clock("now")
		return w.costs(t, name)
	case "admits":
		return w.admits(energy.Watts(a.number("max-power", 0)), a.number("min-efficiency", 0))
	default:
		t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	}
	return ""
}

func (w *world) profile(t *testing.T, a args, name string) *energy.Profile {
	p := &energy.Profile{
		Name: name, Idle: energy.Watts(a.number("idle", 0)), Max: energy.Watts(a.number("max", 0)),
		Exponent: a.number("exponent", 1), Sleep: energy.Watts(a.number("sleep", a.number("idle", 0))),
		WakeUp: energy.Joules(a.number("wake-up", 0)), GPUIdle: energy.Watts(a.number("gpu-idle", 0)),
		GPUMax:     energy.Watts(a.number("gpu-max", 0)),
		GPUClasses: map[string]float64{},
	}
	for line := range strings.Lines(a.d.Input) {
		class, share, _ := strings.Cut(strings.TrimSpace(line), " ")
		p.GPUClasses[class] = numbers(t, share)[0]
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	return p
}

func (w *world) node(t *testing.T, a args, name string) *sched.Node {
	capacity := sched.Resources{
		MilliCPU: int64(1000 * a.number("cpu", 0)), Memory: int64(a.number("memory", 0)) << 30,
		GPU: int64(a.number("gpu", 0)),
	}
	used := sched.Resources{
		MilliCPU: int64(1000 * a.number("used-cpu", 0)), Memory: int64(a.number("used-memory", 0)) << 30,
	}
	n := &sched.Node{
		Name: name, Site: w.sites[a.text("site", "")], Profile: w.profiles[a.text("profile", "")],
		Capacity: capacity, Free: capacity.Sub(used), Jobs: int(a.number("jobs", 0)), Speed: a.number("speed", 1),
		PUE: a.number("pue", 0), Benchmarks: map[string]energy.Benchmark{}, Live: energy.Watts(a.number("live", 0)),
		HasLive:     a.has("live"),
		Provisional: energy.Watts(a.number("provisional", 0)),
	}
	for line := range strings.Lines(a.d.Input) {
		class, measured, _ := strings.Cut(strings.TrimSpace(line), " ")
		v := numbers(t, measured)
		n.Benchmarks[class] = energy.Benchmark{Rate: v[0], Power: energy.Watts(v[1]), Idle: energy.Watts(v[2])}
	}
	return n
}

func (a args) job(name string) sched.Job {
	job := sched.Job{
		ID: name, Submitted: a.clock("submitted"), Duration: a.duration("duration", time.Hour),
		AllowedDelay: a.duration("delay", 0),
		Request: sched.Resources{
			MilliCPU: int64(1000 * a.number("cpu", 1)), Memory: int64(a.number("memory", 1)) << 30,
			GPU: int64(a.number("gpu", 0)),
		},
		Released: a.has("released"), Class: a.text("class", ""), GPUClass: a.text("gpu-class", ""),
		PUE:               a.number("pue", 0),
		PerformanceWeight: a.number("weight", 0), HasPerformanceWeight: a.has("weight"),
		Expected: energy.Watts(a.number("expected", 0)), HasExpected: a.has("expected"),
		Limits: sched.Limits{
			Carbon: grid.Intensity(a.number("max-carbon", 0)), Percentile: a.number("percentile", 0),
			Price: grid.Price(a.number("max-price", 0)), HasPrice: a.has("max-price"), NoCarbon: a.has("no-carbon"),
		},
	}
	if a.has("sites") {
		job.Sites = strings.Split(a.text("sites", ""), "/")
	}
	if a.has("finish-by") {
		job.FinishBy = a.clock("finish-by")
	}
	return job
}

func (w *world) costs(t *testing.T, name string) string {
	strategy, err := strategy.New(name)
	if err != nil {
		t.Fatal(err)
	}
	costs, ok := strategy.Costs(&w.snapshot, &w.snapshot.Queue[0], nil)
	if !ok {
		return "no opinion\n"
	}
	var b strings.Builder
	for i, cost := range costs {
		fmt.Fprintf(&b, "%s: %.4g\n", w.snapshot.Nodes[i].Name, cost)
	}
	return b.String()
}

func (w *world) admits(maxPower energy.Watts, minEfficiency float64) string {
	var b strings.Builder
	for _, n := range w.snapshot.Nodes {
		why, ok := w.snapshot.Queue[0].Admits(n, maxPower, minEfficiency)
		if ok {
			why = "admitted"
		}
		fmt.Fprintf(&b, "%s: %s\n", n.Name, why)
	}
	return b.String()
}

func render(now time.Time, plan sched.Plan) string {
	var b strings.Builder
	for _, d := range plan {
		switch {
		case d.Held(now):
			fmt.Fprintf(&b, "%s: hold", d.Job)
		case d.Node == "":
			fmt.Fprintf(&b, "%s: no node", d.Job)
		default:
			fmt.Fprintf(&b, "%s: run on %s, %v, %v", d.Job, d.Node, d.Cost.Energy, d.Cost.Carbon)
			if d.Cost.Cost != 0 {
				fmt.Fprintf(&b, ", cost %.4g", float64(d.Cost.Cost))
			}
		}
		fmt.Fprintf(&b, " (%v: %v)\n", d.Reason.Kind, d.Reason)
	}
	return b.String()
}

func mustSeries(t *testing.T, step time.Duration, values []float64) *grid.Series {
	t.Helper()
	s, err := grid.NewSeries(schedtest.Day, step, values)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func numbers(t *testing.T, text string) (values []float64) {
	t.Helper()
	for field := range strings.FieldsSeq(text) {
		var v float64
		if _, err := fmt.Sscan(field, &v); err != nil {
			t.Fatalf("number %q: %v", field, err)
		}
		values = append(values, v)
	}
	return values
}

// args parses the key=value arguments of a command.
type args struct {
	t *testing.T
	d *datadriven.TestData
}

func (a args) has(key string) bool { return a.d.HasArg(key) }

func (a args) text(key, otherwise string) string {
	for _, arg := range a.d.CmdArgs {
		if arg.Key == key && len(arg.Vals) == 1 {
			return arg.Vals[0]
		}
	}
	return otherwise
}

func (a args) number(key string, otherwise float64) float64 {
	if !a.has(key) {
		return otherwise
	}
	return numbers(a.t, a.text(key, ""))[0]
}

func (a args) duration(key string, otherwise time.Duration) time.Duration {
	if !a.has(key) {
		return otherwise
	}
	v, err := time.ParseDuration(a.text(key, ""))
	if err != nil {
		a.d.Fatalf(a.t, "%s: %v", key, err)
	}
	return v
}

// clock parses hh:mm on the day of the scripts, or d+hh:mm on a later day.
func (a args) clock(key string) time.Time {
	text, days := a.text(key, "00:00"), 0
	if before, after, ok := strings.Cut(text, "+"); ok {
		if _, err := fmt.Sscan(before, &days); err != nil {
			a.d.Fatalf(a.t, "%s: %v", key, err)
		}
		text = after
	}
	v, err := time.Parse("15:04", text)
	if err != nil {
		a.d.Fatalf(a.t, "%s: %v", key, err)
	}
	return schedtest.Day.AddDate(0, 0, days).Add(v.Sub(v.Truncate(24 * time.Hour)))
}
