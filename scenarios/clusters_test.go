package scenarios_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/sim/oracle"
	"github.com/kubenergy/kubenergy/internal/workload"
	"github.com/kubenergy/kubenergy/test/kit"
)

const (
	clustersPage  = "../docs/measurements/clusters.md"
	clustersBegin = "<!-- figures: KUBENERGY_LONG=1 go test ./scenarios -run Clusters -rewrite -->\n"
	clustersDays  = 6
)

func TestClustersInputIsCurrent(t *testing.T) {
	var jobs bytes.Buffer
	if err := (&workload.Trace{Jobs: clusterJobs()}).WriteCSV(&jobs, midnight); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]byte{"jobs.csv": jobs.Bytes(), "grid.csv": clusterGrids()} {
		kit.Golden(t, filepath.Join("clusters", name), want, *rewrite)
	}
}

// clusterGrids returns six days of five synthetic grids: low and constant hydropower, nuclear power with an evening
// peak, solar power with clouds, wind power that varies over several days, and coal.
func clusterGrids() []byte {
	rnd := rand.New(rand.NewPCG(22, 1))
	wave := func(hour, period, phase float64) float64 { return math.Sin(2 * math.Pi * (hour - phase) / period) }
	clouds := []float64{1, 0.5, 0.9, 0.7, 1, 0.8}
	var b bytes.Buffer
	b.WriteString("datetime_utc,zone,ci_lifecycle_g_per_kwh,estimated\n")
	for _, zone := range []string{"COAL", "HYDRO", "NUCLEAR", "SOLAR", "WIND"} {
		for hour := range clustersDays * 24 {
			h, day := float64(hour)+0.5, hour/24
			sun := max(0, wave(h, 24, 6))
			g := map[string]float64{
				"COAL": 760 - 90*sun*clouds[day] + 30*wave(h, 24, 13), "HYDRO": 28 + 6*wave(h, 24, 12),
				"NUCLEAR": 70 + 25*wave(h, 24, 13), "SOLAR": 430 - 350*sun*clouds[(day+2)%len(clouds)],
				"WIND": 300 + 190*wave(h, 62, 10) + 40*wave(h, 24, 12),
			}[zone]
			at := midnight.Add(time.Duration(hour) * time.Hour)
			fmt.Fprintf(&b, "%s,%s,%.1f,1\n", at.Format("2006-01-02T15:04Z"), zone, g*(0.97+0.06*rnd.Float64()))
		}
	}
	return b.Bytes()
}

// clusterJobs returns jobs that are submitted over four days, mostly during the day and mostly to clusters with a
// high carbon intensity.
func clusterJobs() []sched.Job {
	rnd := rand.New(rand.NewPCG(22, 2))
	clusters := []string{"coal", "hydro", "nuclear", "solar", "wind"}
	homes := []int{0, 0, 0, 1, 2, 3, 3, 3, 4, 4}
	jobs := make([]sched.Job, 640)
	for i := range jobs {
		j := &jobs[i]
		hour := 7 + 11*rnd.Float64()
		if rnd.IntN(4) == 0 {
			hour = 24 * rnd.Float64()
		}
		at := 24*float64(rnd.IntN(4)) + hour
		j.Submitted = midnight.Add(time.Duration(at * float64(time.Hour)).Round(time.Second))
		length := float64(time.Hour) * math.Exp(0.9*rnd.NormFloat64())
		j.Duration = min(max(time.Duration(length), 5*time.Minute), 6*time.Hour).Round(time.Second)
		j.Request.MilliCPU = 500 << rnd.IntN(5)
		j.Request.Memory = j.Request.MilliCPU * (1 << 30) / 1000 * int64(1+rnd.IntN(4))
		home := homes[rnd.IntN(len(homes))]
		others := rnd.Perm(len(clusters))
		others = slices.Insert(slices.DeleteFunc(others, func(c int) bool { return c == home }), 0, home)
		switch bound := rnd.IntN(12); {
		case bound < 3:
			others = others[:1]
		case bound < 5:
			others = others[:2]
		default:
			slices.Sort(others[1:])
		}
		for _, c := range others {
			j.Sites = append(j.Sites, clusters[c])
		}
		if rnd.IntN(3) > 0 {
			j.AllowedDelay = time.Duration(2+rnd.IntN(11)) * time.Hour
			if rnd.IntN(3) == 0 {
				j.FinishBy = j.Submitted.Add(j.Duration + j.AllowedDelay/2)
			}
		}
	}
	slices.SortStableFunc(jobs, func(a, b sched.Job) int { return a.Submitted.Compare(b.Submitted) })
	for i := range jobs {
		jobs[i].ID = fmt.Sprintf("j%03d", i)
	}
	return jobs
}

// TestClustersBetweenBounds simulates the scenario with each strategy and compares the results with the best
// schedule of an offline search and with a lower bound. It checks that the table in the documentation is current. Only
// KUBENERGY_LONG=1 includes the search, which simulates the scenario 3,000 times.
func TestClustersBetweenBounds(t *testing.T) {
	file, err := sim.ReadFile("clusters/scenario.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := file.Load()
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	table.WriteString("| strategy | emissions | saved | energy | mean wait | late |\n|---|---|---|---|---|---|\n")
	runs := map[string]*played{}
	row := func(name string, p *played) {
		fmt.Fprintf(&table, "| %s | %.2f kg | %s | %.1f kWh | %s | %d |\n", name, float64(p.Carbon)/1000,
			percent(1-float64(p.Carbon/runs["home"].Carbon)), float64(p.Energy)/energy.JoulesPerKWh,
			humanize.Rounded(p.wait), p.late)
	}
	for _, name := range file.Strategies {
		strategy, err := strategy.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		runs[name] = play(t, s, strategy)
		row("`"+name+"`", runs[name])
	}
	least := minPossible(t, s)
	for _, name := range []string{"home", "lowest-now", "karmada-static", "karmada-dynamic", "energy"} {
		if runs[name].Carbon <= runs["carbon"].Carbon {
			t.Errorf("%s does not emit more than carbon", name)
		}
	}
	window := runs["carbon+window"]
	if window.late > 0 || !(least < window.Carbon && window.Carbon < runs["carbon"].Carbon) {
		t.Error("jobs are late, or the emissions are not in the expected order")
	}
	if !long {
		wantLines(t, clustersPage, table.String())
		return
	}
	best := searched(t, s, window)
	row("best found offline", best)
	fmt.Fprintf(&table, "| no schedule is below | %.2f kg | %s | | | |\n", float64(least)/1000,
		percent(1-float64(least/runs["home"].Carbon)))

	page, err := os.ReadFile(clustersPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(page), clustersBegin)
	_, after, ends := strings.Cut(rest, figuresEnd)
	if !begins || !ends {
		t.Fatalf("%s does not contain %q and %q", clustersPage, clustersBegin, figuresEnd)
	}
	kit.Golden(t, clustersPage, []byte(before+clustersBegin+table.String()+figuresEnd+after), *rewrite)
	t.Log("\n" + table.String())

	if best.late > 0 || !(least < best.Carbon && best.Carbon < window.Carbon) {
		t.Error("jobs are late, or the emissions are not in the expected order")
	}
}

// played is a simulation result with additional columns of the table.
type played struct {
	*sim.Result
	wait time.Duration // mean
	late int           // jobs that started after their latest start for any reason
}

// clustersEnd is the end of the accounting period of `simulate`, which is the end of the last job over all
// strategies.
var clustersEnd = midnight.Add(4*24*time.Hour + 8*time.Hour)

// play simulates the scenario and accounts for it until clustersEnd, regardless of the strategy.
func play(t *testing.T, s *sim.Scenario, strategy strategy.Strategy) *played {
	t.Helper()
	r, err := sim.Run(t.Context(), s, "", strategy)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.AccountUntil(clustersEnd); err != nil {
		t.Fatal(err)
	}
	p := &played{Result: r}
	for i := range r.Outcomes {
		o, j := &r.Outcomes[i], &s.Jobs[i]
		if o.Placed.Node == "" {
			t.Fatalf("%s did not run", j.ID)
		}
		p.wait += o.Start.Sub(j.Submitted) / time.Duration(len(s.Jobs))
		if o.Start.After(j.LatestStart()) || o.Finish.After(clustersEnd) {
			p.late++
		}
	}
	return p
}

// script is a strategy that runs each job at a given site and start time, on the node with the lowest additional
// energy.
type script struct {
	site  map[string]string
	start map[string]time.Time
	where strategy.Strategy
}

// Plan implements [strategy.Strategy].
func (p *script) Plan(s *sched.Snapshot) sched.Plan {
	j := &s.Queue[0]
	if at := p.start[j.ID]; at.After(s.Now) && !j.Released {
		return sched.Plan{{
			Job: j.ID, Window: sched.Window{Start: at, End: at.Add(j.Duration)},
			Reason: sched.Reason{Kind: sched.CheaperLater},
		}}
	}
	there := *s
	elsewhere := func(n *sched.Node) bool { return n.Site.Name != p.site[j.ID] }
	there.Nodes = slices.DeleteFunc(slices.Clone(s.Nodes), elsewhere)
	return p.where.Plan(&there)
}

// searched improves a schedule with full knowledge by local search. In each step, it changes the site and the start
// of one job, either to the optimal start at the site or to a random one. It keeps the change if the simulated
// schedule has lower emissions without additional late jobs.
func searched(t *testing.T, s *sim.Scenario, from *played) *played {
	t.Helper()
	where, err := strategy.New("energy")
	if err != nil {
		t.Fatal(err)
	}
	sites := map[string]*grid.Series{}
	for _, site := range s.Sites {
		sites[site.Name] = site.Carbon.Series
	}
	at := map[string]string{}
	for i := range s.Nodes {
		at[s.Nodes[i].Name] = s.Nodes[i].Site.Name
	}
	p := &script{site: map[string]string{}, start: map[string]time.Time{}, where: where}
	for i := range s.Jobs {
		p.site[s.Jobs[i].ID], p.start[s.Jobs[i].ID] = at[from.Outcomes[i].Placed.Node], from.Outcomes[i].Start
	}
	best, rnd := play(t, s, p), rand.New(rand.NewPCG(22, 3))
	const tries = 3000
	for range tries {
		j := &s.Jobs[rnd.IntN(len(s.Jobs))]
		site, start := p.site[j.ID], p.start[j.ID]
		p.site[j.ID] = j.Sites[rnd.IntN(len(j.Sites))]
		p.start[j.ID], _ = oracle.NonPreemptive(sites[p.site[j.ID]], j)
		if slack := j.LatestStart().Sub(j.Submitted); slack > 0 && rnd.IntN(2) == 0 {
			p.start[j.ID] = j.Submitted.Add(time.Duration(rnd.Int64N(int64(slack))).Truncate(time.Minute))
		}
		if now := play(t, s, p); now.late < best.late || now.late == best.late && now.Carbon < best.Carbon {
			best = now
		} else {
			p.site[j.ID], p.start[j.ID] = site, start
		}
	}
	return best
}

// minPossible returns a lower bound of the emissions of all schedules without late jobs. It assumes that every
// machine is always asleep, and that each job adds its fraction of the power of a fully used machine, at the best
// site, start time and machine. This is a bound because the power is linear in the load, so the power per core is
// minimal on a fully used machine.
func minPossible(t *testing.T, s *sim.Scenario) (all energy.Grams) {
	t.Helper()
	kinds := map[*energy.Profile]*sched.Node{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if p := n.Profile; math.Abs(float64(p.Power(0.5)-(p.Power(0)+p.Power(1))/2)) > 1e-9 || n.Capacity.GPU > 0 {
			t.Fatalf("the power of %s is not linear", n.Name)
		}
		kinds[n.Profile] = n
		all += n.Site.Account(n.Profile.Sleep, 0, sched.Window{Start: s.Start, End: clustersEnd}).Carbon
	}
	for i := range s.Jobs {
		j := s.Jobs[i]
		latest, least := j.LatestStart(), math.Inf(1)
		for _, n := range kinds {
			if !j.Fits(n) {
				continue
			}
			there := sched.Job{Submitted: j.Submitted, Duration: n.Runtime(&j), AllowedDelay: latest.Sub(j.Submitted)}
			_, cost := oracle.NonPreemptive(n.Site.Carbon.Series, &there)
			share := float64(j.Request.MilliCPU) / float64(n.Capacity.MilliCPU)
			least = min(least, cost*share*float64(n.Profile.Power(1)-n.Profile.Sleep)*n.Facility())
		}
		all += energy.Grams(least / energy.JoulesPerKWh)
	}
	return all
}
