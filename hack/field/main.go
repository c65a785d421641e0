// Program field measures strategies on grids and traces on which none of them was tuned. It draws instances by a
// seed: days of jobs on a fleet and a grid. Each arm runs on each instance. Results are appended to a file, from
// which an interrupted run continues.
//
//	field [-data DIR] [-half test] [-seed 1] [-instances 440] [-knowledge perfect] [-out out/field.jsonl]
//
// See docs/measurements/field.md for the protocol and the format of the data.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/sim/oracle"
)

// An arm is a way to schedule the jobs of an instance.
type arm struct {
	name      string
	strategy  string // if empty, the best schedule found by a search
	reference string // arm to compare with; if empty, energy
	constant  bool   // the intensity is constant for the strategy
	night     bool   // jobs that may wait start at 22:00
	flat      bool   // only on grids with a small swing
}

// ours is the default in a cluster.
const ours = "guarded"

var arms = []arm{
	{name: "stock", strategy: "least-allocated"},
	{name: "energy", strategy: "energy"},
	{name: "energy+capacity", strategy: "energy+capacity"},
	{name: "night", strategy: "energy", night: true},
	{name: "window", strategy: "carbon+window"},
	{name: "plan", strategy: "carbon+plan"},
	{name: "energy+plan", strategy: "energy+plan", constant: true},
	{name: ours, strategy: "carbon+guarded"},
	{name: "guarded without carbon", strategy: "carbon+guarded", constant: true, flat: true},
	{name: "held stock", strategy: "least-allocated+guarded", reference: "stock"},
	{name: "best found"},
}

// A row is the result of an arm on an instance.
type row struct {
	Revision  string        `json:"revision"` // of the program
	Half      string        `json:"half"`
	Seed      uint64        `json:"seed"`
	Knowledge string        `json:"knowledge"`
	Instance  Instance      `json:"instance"`
	Arm       string        `json:"arm"`
	Grams     float64       `json:"grams"`
	KWh       float64       `json:"kwh"`
	Wait      time.Duration `json:"wait"` // mean
	Held      int           `json:"held"`
	Late      []lateness    `json:"late,omitempty"` // jobs that started after their latest start
	Boots     int           `json:"boots"`
}

// lateness is the lateness of one job.
type lateness struct {
	By       time.Duration `json:"by"`
	Held     bool          `json:"held,omitempty"`
	Capacity bool          `json:"capacity,omitempty"` // a node had capacity at the submission
}

func main() {
	o := options{arms: make([]string, len(arms))}
	for i := range arms {
		o.arms[i] = arms[i].name
	}
	flag.StringVar(&o.data, "data", "", "directory with grids and traces")
	flag.StringVar(&o.half, "half", "test", "half of the grids and traces: tuning or test")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the instances")
	flag.IntVar(&o.count, "instances", 440, "number of drawn instances; some are omitted because few jobs fit")
	flag.IntVar(&o.workers, "workers", runtime.GOMAXPROCS(0), "number of concurrent instances")
	flag.StringVar(&o.knowledge, "knowledge", Perfect, "knowledge of the strategies: perfect or installed")
	flag.StringVar(&o.out, "out", "out/field.jsonl", "file with the results, to which missing ones are added")
	list := flag.String("arms", strings.Join(o.arms, ","), "arms to run")
	flag.Parse()
	o.arms = strings.Split(*list, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := o.main(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "field:", err)
		os.Exit(1)
	}
}

type options struct {
	data, half, knowledge, out string
	seed                       uint64
	count, workers             int
	arms                       []string
}

func (o *options) main(ctx context.Context, out io.Writer) error {
	if err := o.run(ctx); err != nil {
		return err
	}
	return o.print(out)
}

// read returns the results in the file.
func (o *options) read() (rows []row, err error) {
	text, err := os.ReadFile(o.out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for line := range bytes.Lines(text) {
		var r row
		if json.Unmarshal(line, &r) == nil { // an interrupted run may leave an incomplete line
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// run runs the arms that are missing from the file.
func (o *options) run(ctx context.Context) error {
	for _, name := range o.arms {
		if !slices.ContainsFunc(arms, func(a arm) bool { return a.name == name }) {
			return fmt.Errorf("unknown arm %q in -arms", name)
		}
	}
	all, err := ReadSources(o.data, o.half)
	if err != nil {
		return err
	}
	done := map[string]bool{}
	rows, err := o.read()
	if err != nil {
		return err
	}
	for i := range rows {
		r := &rows[i]
		if r.Half != o.half || r.Seed != o.seed || r.Knowledge != o.knowledge || r.Revision != revision() {
			return fmt.Errorf("%s has results of the half %s, seed %d, knowledge %s and revision %q, not %q: want "+
				"another -out", o.out, r.Half, r.Seed, r.Knowledge, r.Revision, revision())
		}
		done[fmt.Sprint(rows[i].Instance.ID, rows[i].Arm)] = true
	}
	file, err := os.OpenFile(o.out, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	var mu sync.Mutex
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(o.workers)
	for id := range o.count {
		missing := slices.DeleteFunc(slices.Clone(arms), func(a arm) bool {
			return !slices.Contains(o.arms, a.name) || done[fmt.Sprint(id, a.name)]
		})
		if len(missing) == 0 {
			continue
		}
		in, err := all.Draw(o.seed, id)
		if err != nil {
			return err
		}
		if in.Jobs < MinJobs {
			fmt.Fprintf(os.Stderr, "field: instance %d is omitted: %d jobs of %s fit, want at least %d\n", id, in.Jobs,
				in.Trace, MinJobs)
			continue
		}
		missing = slices.DeleteFunc(missing, func(a arm) bool { return a.flat && in.Swing >= flat })
		work.Go(func() error {
			if err := in.Limit(ctx, o.knowledge); err != nil {
				return fmt.Errorf("instance %d, %s: %w", in.ID, in.Zone, err)
			}
			rows, err := runArms(ctx, in, missing)
			if err != nil {
				return fmt.Errorf("instance %d: %w", in.ID, err)
			}
			lines := bytes.NewBufferString("\n") // in case an interrupted run has left an incomplete line
			for i := range rows {
				rows[i].Half, rows[i].Seed, rows[i].Knowledge = o.half, o.seed, o.knowledge
				rows[i].Revision = revision()
				if err := json.NewEncoder(lines).Encode(&rows[i]); err != nil {
					return err
				}
			}
			mu.Lock()
			defer mu.Unlock()
			_, err = file.Write(lines.Bytes())
			return err
		})
	}
	return work.Wait()
}

// revision returns the commit from which the program was built, or "" if it is unknown.
func revision() string {
	info, _ := debug.ReadBuildInfo()
	var commit, changed string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = " with changes"
		}
	}
	return commit + changed
}

// runArms runs arms on an instance.
func runArms(ctx context.Context, in *Instance, arms []arm) (rows []row, err error) {
	for _, a := range arms {
		s := in.Scenario
		if a.night {
			s.Jobs = in.AtNight()
		}
		if a.constant {
			s.Foresight = []sim.Foresight{constant{}}
		}
		var r *sim.Result
		if a.strategy == "" {
			r, err = best(ctx, &in.Scenario)
		} else {
			r, err = simulate(ctx, &s, a.strategy)
		}
		if err == nil {
			err = r.AccountUntil(in.Until())
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.name, err)
		}
		out := row{
			Instance: *in, Arm: a.name, Grams: float64(r.Carbon), KWh: r.Energy.KWh(), Boots: r.Sleep.Boots,
		}
		for i := range r.Outcomes {
			o, j := &r.Outcomes[i], &in.Scenario.Jobs[i]
			held := o.Held() || s.Jobs[i].Submitted.After(j.Submitted)
			out.Wait += o.Start.Sub(j.Submitted) / time.Duration(len(r.Outcomes))
			if held {
				out.Held++
			}
			if by := o.Start.Sub(j.LatestStart()); by > 0 {
				out.Late = append(out.Late, lateness{by, held, o.HadCapacity})
			}
		}
		rows = append(rows, out)
	}
	return rows, nil
}

func simulate(ctx context.Context, s *sim.Scenario, name string) (*sim.Result, error) {
	strategy, err := strategy.ByName(name)
	if err != nil {
		return nil, err
	}
	return sim.Run(ctx, s, name, strategy)
}

// best returns the best schedule found by a search of fixed effort.
func best(ctx context.Context, s *sim.Scenario) (*sim.Result, error) {
	var from []*sim.Result
	for _, name := range []string{"energy", "carbon+plan"} {
		r, err := simulate(ctx, s, name)
		if err != nil {
			return nil, err
		}
		from = append(from, r)
	}
	steps := 0.
	found, _, err := oracle.Best(ctx, s, from, 1, func() float64 { steps++; return steps / effort })
	return found, err
}

// effort is the number of steps of the search for the best schedule.
const effort = 4000

// constant is a forecast that is the same at all times.
type constant struct{}

// At implements [sim.Foresight].
func (constant) At(now time.Time) grid.Signal {
	series, err := grid.Constant(now.Truncate(time.Hour), 7*sched.Day, 300)
	if err != nil {
		panic(err) // the arguments are valid
	}
	return grid.Signal{Series: series}
}
