package dashboard

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// decision fills the page of one decision and its inputs.
func (p *page) decision(d *ledger.Record) {
	work := Job{Held: Held{Namespace: d.Namespace, Name: d.Owner}}
	p.View, p.Heading = "decision", d.Action+" "+work.path()
	text := fmt.Sprintf("Decided %s by %s", p.clock(d.At), cmp.Or(d.Strategy, "no strategy"))
	text += given(d.Reason != "", ": "+d.Reason) + given(d.Node != "", ", on "+d.Node) +
		given(!d.Start.IsZero(), ", start "+p.clock(d.Start))
	p.Said = said(text+".", humanize.Plain(d.Message, p.Now))
	s, err := report.ReadSnapshot(d)
	if len(d.Snapshot) == 0 {
		err = errors.New("there is no snapshot, or you may not see it")
	}
	if err != nil {
		p.Said = append(p.Said, "Inputs of the decision are not available: "+err.Error()+".")
		return
	}
	job := &s.Queue[0]
	const asked = "The job requested %.3g cores and %.3g GiB for %s, may wait %s, and was submitted %s."
	p.Said = append(p.Said, fmt.Sprintf(asked, float64(job.Request.MilliCPU)/1000,
		float64(job.Request.Memory)/(1<<30), humanize.Rounded(job.Duration), humanize.Rounded(job.AllowedDelay),
		p.clock(job.Submitted)))
	p.Tables = []*table{candidates(s, job, d.Node), grids(s)}
}

// candidates returns a table of the nodes of a snapshot, sorted by the emissions that the job would have added on
// each.
func candidates(s *sched.Snapshot, job *sched.Job, chosen string) *table {
	t := &table{
		Caption: "Feasible nodes, by the estimated increase with an immediate start", Limit: 100,
		Header: columns(3, "node", "site", "profile", "free cores", "jobs", "Wh", "gCO2e", "cost"),
	}
	nodes := slices.Clone(s.Nodes)
	estimates := map[*sched.Node]sched.Estimate{}
	for _, n := range nodes {
		if n.Profile != nil {
			estimates[n] = s.Estimate(job, n, sched.Window{Start: s.Now, End: s.Now.Add(n.Runtime(job))})
		}
	}
	slices.SortStableFunc(nodes, func(a, b *sched.Node) int {
		return cmp.Or(cmp.Compare(estimates[a].Carbon, estimates[b].Carbon), cmp.Compare(a.Name, b.Name))
	})
	t.fill(len(nodes), false, func(i int) row {
		n, e := nodes[i], estimates[nodes[i]]
		r := row{Cells: []string{
			n.Name, "–", "–", short(float64(n.Free.MilliCPU) / 1000), strconv.Itoa(n.Jobs),
			expected(1000 * e.Energy.KWh()), expected(float64(e.Carbon)), expected(float64(e.Cost)),
		}}
		if n.Site != nil {
			r.Cells[1] = n.Site.Name
		}
		if n.Profile != nil {
			r.Cells[2] = n.Profile.Name
		}
		if n.Name == chosen {
			r.Class = "set"
		}
		return r
	})
	return t
}

// grids returns a table of the signals of a snapshot.
func grids(s *sched.Snapshot) *table {
	t := &table{Caption: "Sites at decision time", Header: columns(1, "site", "gCO2e/kWh", "price", "known until")}
	for _, site := range s.Sites {
		r := row{Cells: []string{site.Name, "–", "–", "–"}}
		if c := site.Carbon.Series; c != nil && c.Covers(s.Now, s.Now) {
			r.Cells[1], r.Cells[3] = short(c.At(s.Now)), stamp(c.End())
		}
		if c := site.Price.Series; c != nil && c.Covers(s.Now, s.Now) {
			r.Cells[2] = short(c.At(s.Now))
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}
