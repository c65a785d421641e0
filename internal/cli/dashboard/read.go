package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/cli/explain"
	"github.com/kubenergy/kubenergy/internal/dashboard"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// liveReader fills a model.
type liveReader struct {
	*LiveSource
	m *dashboard.Model
}

func (r *liveReader) unseen(what string, err error) {
	r.m.Unseen = append(r.m.Unseen, what+": "+cmdutil.Because(err))
}

func (r *liveReader) overview(ctx context.Context) {
	h := &explain.Holdings{Cluster: r.Cluster, Now: r.m.Now}
	if err := h.Read(ctx, r.only); err != nil {
		r.unseen("held Jobs", err)
	}
	r.m.Jobs = append(r.m.Jobs, h.Items...)
	r.m.Unseen = append(r.m.Unseen, h.Unseen...)
	if h.View != nil && !h.NoPolicy {
		r.modeOf(ctx, h.View)
	}
	r.zones(ctx, h)
	r.budgets(ctx)
	c, err := r.controller(ctx)
	if err != nil {
		r.unseen("power and energy", err)
		return
	}
	r.booked(ctx, c)
	r.drawn(ctx, c)
	r.m.Namespaces = append(r.m.Namespaces, r.used(ctx, c, "namespaces", ledger.Query{
		Limit: 2 * dashboard.MaxNamespaces, GroupBy: []ledger.Dimension{ledger.ByCluster, ledger.ByNamespace},
		Kinds: ledger.Workloads(),
	})...)
	r.m.Namespaces = r.m.Namespaces[:min(len(r.m.Namespaces), dashboard.MaxNamespaces)]
	r.savings(ctx, savingsWait)
}

// mode sets the mode of the cluster, or of the selected namespace.
func (r *liveReader) mode(ctx context.Context) {
	defaults, _ := cmdutil.ReadDefaults(ctx, r.Cluster)
	view, unseen, err := kube.ListView(ctx, r.Config, r.only, defaults)
	for _, u := range unseen {
		if u.Resource == "energypolicies" && !u.Own {
			return // the mode is unknown
		}
	}
	if err == nil {
		r.modeOf(ctx, view)
	}
}

// modeOf sets the mode, and the number of namespaces that enforce although the cluster does not.
func (r *liveReader) modeOf(ctx context.Context, view *kube.View) {
	mode, _ := view.Mode(r.only)
	r.m.Mode = string(mode)
	if r.only != "" || mode == v1alpha1.ModeEnforce {
		return
	}
	names := map[string]bool{}
	for name := range view.Policies() {
		names[name] = true
	}
	// Without permission to list namespaces, only those with a policy are counted. The missing permission is
	// reported with the held Jobs.
	_ = cmdutil.EachItem(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelMode}, r.CoreV1().Namespaces().List,
		func(n *v1.Namespace) { names[n.Name] = true })
	for name := range names {
		if own, _ := view.Mode(name); own == v1alpha1.ModeEnforce {
			r.m.Enforcing++
		}
	}
}

// zones adds the forecasts of the grid zones.
func (r *liveReader) zones(ctx context.Context, h *explain.Holdings) {
	zones, err := cmdutil.ListZones(ctx, r.Cluster)
	if err != nil {
		r.unseen("the grid", err)
		return
	}
	// Zones with nodes are first, and then the default zone.
	place := func(z v1alpha1.GridZone) string {
		return fmt.Sprint(ptr.Deref(z.Status.Nodes, 1) == 0, !z.Spec.Default, " ", z.Name)
	}
	slices.SortFunc(zones, func(a, b v1alpha1.GridZone) int { return strings.Compare(place(a), place(b)) })
	for _, z := range zones {
		carbon, price := true, true
		if h.View != nil && h.View.Site(z.Name) != nil {
			site := h.View.Site(z.Name)
			carbon, price = site.Carbon.Fresh(r.m.Now, 0), site.Price.Fresh(r.m.Now, 0)
		}
		shown := dashboard.Zone{
			Name: z.Name, Carbon: r.signal(z.Status.Carbon, carbon), Price: r.signal(z.Status.Price, price),
		}
		if shown.Carbon != nil || shown.Price != nil {
			r.m.Zones = append(r.m.Zones, shown)
		}
	}
}

func (r *liveReader) signal(s *v1alpha1.SignalStatus, fresh bool) *dashboard.Signal {
	if s == nil || len(s.Values) == 0 || s.Step.Duration <= 0 {
		return nil
	}
	shown := &dashboard.Signal{
		Unit: s.Unit, Source: s.Source, Forecast: s.ForecastSource, Quality: s.Quality, Stale: !fresh,
	}
	banded := len(s.Low) == len(s.Values) && len(s.High) == len(s.Values)
	for i, v := range s.Values {
		p := dashboard.Point{At: s.Start.Add(time.Duration(i) * s.Step.Duration).UTC(), Value: v}
		if banded {
			p.Low, p.High = &s.Low[i], &s.High[i]
		}
		shown.Points, shown.Until = append(shown.Points, p), p.At.Add(s.Step.Duration)
	}
	if v, ok := shown.At(r.m.Now); ok {
		shown.Now = &v
	}
	for _, a := range s.Accuracy {
		if a.Ahead.Duration == 24*time.Hour {
			shown.ForecastError = &a.ErrorPercent
		}
	}
	if s.AsOf != nil {
		shown.AsOf, shown.AgeSeconds = new(s.AsOf.UTC()), new(max(0, r.m.Now.Sub(s.AsOf.Time)).Seconds())
	}
	return shown
}

// booked adds the hourly power, and the booked intensities and prices.
func (r *liveReader) booked(ctx context.Context, c *cmdutil.ControllerClient) {
	q := &ledger.Query{
		From: r.m.From, To: timeutil.Earlier(r.m.To, r.m.Now), Namespaces: r.namespaces(),
		GroupBy: []ledger.Dimension{ledger.ByHour, ledger.BySite, ledger.ByKind},
	}
	if !q.From.Before(q.To) {
		return
	}
	answer, err := c.Ledger(ctx, q, nil)
	if err != nil {
		r.unseen("past power", err)
		return
	}
	hours := map[time.Time]*dashboard.Watts{}
	sites := map[siteHour]*ledger.Row{}
	var all, guessed float64
	for _, row := range answer.Rows {
		if len(row.Key) != 3 {
			continue // the combined rows beyond the limit
		}
		at, err := time.Parse(time.RFC3339, row.Key[0])
		if err != nil {
			continue
		}
		if hours[at] == nil {
			hours[at] = &dashboard.Watts{At: at.UTC()}
		}
		there := siteHour{row.Key[1], at.UTC()}
		if sites[there] == nil {
			sites[there] = &ledger.Row{}
		}
		sites[there].Include(&row)
		seconds := timeutil.Earlier(at.Add(time.Hour), answer.AsOf).Sub(at).Seconds() // the ledger sums whole hours
		if seconds <= 0 {
			continue
		}
		divide(hours[at], &row, seconds)
		all, guessed = all+float64(row.Energy()), guessed+float64(row.Estimated)
	}
	if len(hours) == 0 {
		return
	}
	p := &dashboard.Power{
		Points: []dashboard.Watts{}, Where: "at the nodes", Until: timeutil.Earlier(r.m.Now, answer.AsOf).UTC(),
		StepSeconds: time.Hour.Seconds(), Quality: energy.Derived,
	}
	for _, w := range hours {
		if total := w.Total(); total > 0 {
			w.Estimated /= total
		}
		p.Points = append(p.Points, *w)
	}
	slices.SortFunc(p.Points, func(a, b dashboard.Watts) int { return a.At.Compare(b.At) })
	if all > 0 {
		p.Estimated = guessed / all
	}
	if guessed > 0 {
		p.Quality = energy.Estimated
	}
	r.m.Power = p
	r.past(sites)
}

// divide adds a row to the power of its hour.
func divide(w *dashboard.Watts, row *ledger.Row, seconds float64) {
	watts := func(u energy.Microjoules) float64 { return float64(u.Joules()) / seconds }
	all := watts(row.Energy())
	switch row.Key[2] {
	case ledger.Idle.String(), ledger.Platform.String(), ledger.Booting.String():
		w.Idle += all
	case ledger.Asleep.String():
		w.Asleep += all
	case ledger.Unknown.String():
		w.Unknown += all
	default:
		w.Dynamic, w.Idle = w.Dynamic+watts(row.Dynamic), w.Idle+watts(row.Idle)
	}
	w.Estimated += watts(row.Estimated)
}

type siteHour struct {
	site string
	at   time.Time
}

// past adds the booked intensities and prices to the signals, before the forecasts. Hours without bookings are
// unknown.
func (r *liveReader) past(sites map[siteHour]*ledger.Row) {
	for _, z := range r.m.Zones {
		rate := func(s *dashboard.Signal, fn func(*ledger.Row) (amount float64, known energy.Microjoules, one bool)) {
			if s == nil {
				return
			}
			var points []dashboard.Point
			for at := r.m.From.Truncate(time.Hour).UTC(); at.Before(s.Points[0].At); at = at.Add(time.Hour) {
				p := dashboard.Point{At: at, Unknown: true}
				if row := sites[siteHour{z.Name, at}]; row != nil {
					if amount, known, one := fn(row); one && known > 0 {
						p.Value, p.Unknown = amount/float64(known)*3.6e12, false
					}
				}
				points = append(points, p)
			}
			s.Points = append(points, s.Points...)
		}
		rate(z.Carbon, func(row *ledger.Row) (float64, energy.Microjoules, bool) {
			return float64(row.Carbon) / 1e6, row.Facility - row.Uncharted, len(row.Emissions) == 1
		})
		rate(z.Price, func(row *ledger.Row) (float64, energy.Microjoules, bool) {
			return float64(row.Cost) / 1e9, row.Facility - row.Unpriced, len(row.Costs) == 1
		})
	}
}

// drawn adds the current power of nodes.
func (r *liveReader) drawn(ctx context.Context, c *cmdutil.ControllerClient) {
	if r.only != "" {
		return // only available for all namespaces
	}
	nodes, err := c.Nodes(ctx)
	if err != nil {
		r.unseen("current power of nodes", err)
		return
	}
	if len(nodes) == 0 {
		return
	}
	if r.m.Power == nil {
		r.m.Power = &dashboard.Power{Points: []dashboard.Watts{}, Where: "at the nodes", Until: r.m.Now}
	}
	p, sum := r.m.Power, 0.0
	tells := map[string]bool{}
	for i := range nodes {
		tells[nodes[i].Name] = !nodes[i].Stale
	}
	for _, n := range nodes {
		if n.Stale {
			p.Late++
			continue
		}
		if tells[n.Host] {
			p.Guests++ // included in the power of its host
		} else {
			sum += n.Watts
		}
		if n.Implausible {
			p.Odd++
		}
		if n.PowerState == v1alpha1.PowerAsleep {
			p.Asleep++
		}
	}
	p.Nodes, p.Now = len(nodes), &sum
	if p.Late == p.Nodes {
		p.Now = nil
	}
}

// used returns the consumption in a week by cluster and a further dimension, in descending order of energy.
func (r *liveReader) used(ctx context.Context, c *cmdutil.ControllerClient, of string, q ledger.Query,
) (all []dashboard.Use) {
	q.From, q.To, q.Namespaces = r.m.Now.Add(-cmdutil.SavingsSpan), r.m.Now, r.namespaces()
	answer, err := c.Ledger(ctx, &q, nil)
	if err != nil {
		r.unseen("energy of "+of, err)
		return nil
	}
	for _, row := range answer.Rows {
		if len(row.Key) != 2 || row.Key[1] == "" {
			continue
		}
		u := dashboard.Use{
			Cluster: row.Key[0], Name: row.Key[1], KWh: row.Energy().Joules().KWh(), Estimated: row.EstimatedShare(),
		}
		if len(row.Emissions) == 1 {
			u.Kg = new(row.Carbon.Grams().Kg())
		}
		all = append(all, u)
	}
	slices.SortStableFunc(all, func(a, b dashboard.Use) int { return cmp.Compare(b.KWh, a.KWh) })
	return all
}

// budgets adds the budgets in order of their exhaustion.
func (r *liveReader) budgets(ctx context.Context) {
	path := cmdutil.ResourcePath + "energybudgets"
	if r.only != "" {
		path = cmdutil.ResourcePath + "namespaces/" + url.PathEscape(r.only) + "/energybudgets"
	}
	var list v1alpha1.EnergyBudgetList
	if err := cmdutil.GetJSON(ctx, r.Cluster, path, &list); err != nil {
		if !apierrors.IsNotFound(err) { // clusters without the kind have no budgets
			r.unseen("budgets", err)
		}
		return
	}
	r.m.Budgets = sliceutil.Map(list.Items, func(b v1alpha1.EnergyBudget) dashboard.Budget { return r.budget(&b) })
	slices.SortStableFunc(r.m.Budgets, func(a, b dashboard.Budget) int {
		return cmp.Or(budgetEnd(&a, r.m.Now).Compare(budgetEnd(&b, r.m.Now)), cmp.Compare(b.Percent, a.Percent))
	})
}

func (r *liveReader) budget(b *v1alpha1.EnergyBudget) dashboard.Budget {
	shown := dashboard.Budget{
		Namespace: b.Namespace, Name: b.Name, Period: strings.ToLower(b.Spec.Period.Type), Percent: b.Status.Percent,
		Suspended: b.Status.Suspended,
	}
	if policy.Closes(b) {
		shown.Closed = new(b.Status.ClosedUntil.UTC())
	}
	start, end := b.Status.PeriodStart, b.Status.PeriodEnd
	if start == nil || end == nil {
		return shown
	}
	shown.Ends = new(end.UTC())
	if gone := r.m.Now.Sub(start.Time); gone > 0 && b.Status.Percent > 0 && b.Status.Percent < 100 {
		at := start.Add(time.Duration(float64(gone) * 100 / b.Status.Percent)).UTC()
		if at.Before(end.Time) {
			shown.UsedUp = &at
		}
	}
	return shown
}

// budgetEnd returns the time at which a budget is exhausted, or a later time if it lasts until the end of its
// period.
func budgetEnd(b *dashboard.Budget, now time.Time) time.Time {
	switch {
	case b.Percent >= 100:
		return now
	case b.UsedUp != nil:
		return *b.UsedUp
	case b.Ends != nil:
		return b.Ends.Add(100 * 365 * 24 * time.Hour) // sorts after all exhausted budgets
	}
	return now.Add(200 * 365 * 24 * time.Hour)
}

func (r *liveReader) decisions(ctx context.Context) {
	c, err := r.controller(ctx)
	if err != nil {
		r.unseen("decisions", err)
		return
	}
	records, since, err := c.Decisions(ctx, &ledger.RecordQuery{
		From: r.m.From, To: timeutil.Earlier(r.m.To, r.m.Now), Namespaces: r.namespaces(), Limit: pageDecisions,
	}, nil)
	if err != nil {
		r.unseen("decisions", err)
		return
	}
	if r.m.Decisions = records; !since.IsZero() {
		r.m.Unseen = append(r.m.Unseen, fmt.Sprintf("decisions before %s UTC: only the %d most recent ones are shown",
			humanize.Clock(since, r.m.Now), pageDecisions))
	}
}

// savings adds the savings of decisions if they are computed within the timeout. Otherwise the computation
// continues in the background.
func (r *liveReader) savings(ctx context.Context, timeout time.Duration) {
	mode := v1alpha1.Mode(r.m.Mode)
	if r.m.Enforcing == 0 && (mode == v1alpha1.ModeShadow || mode == v1alpha1.ModeAdvise) {
		r.shadowed(ctx)
		return
	}
	select {
	case <-r.saving.DoChan("", func() (any, error) { return nil, r.renewSavings(context.WithoutCancel(ctx), r.m.Now) }):
	case <-ctx.Done():
	case <-time.After(timeout):
		r.m.Unseen = append(r.m.Unseen, "savings are still being computed: reload the page in a minute")
	}
	r.mu.Lock()
	saved, err := r.saved, r.savedErr
	r.mu.Unlock()
	r.m.Saved = saved
	r.m.Power.Under(saved)
	if err != nil {
		r.unseen("savings", err)
	}
}

// shadowed adds the hypothetical savings that the controller counts in shadow mode.
func (r *liveReader) shadowed(ctx context.Context) {
	var list v1alpha1.EnergyPolicyList
	if err := cmdutil.GetJSON(ctx, r.Cluster, cmdutil.ResourcePath+"energypolicies", &list); err != nil {
		return // reported with the mode
	}
	saved := &dashboard.Saved{
		Against: "immediate starts", Shadow: true,
		Method: "The controller has counted the savings since the start of shadow mode at the forecast intensities. " +
			"They have no interval.",
	}
	grams := 0.0
	for i := range list.Items {
		if c := list.Items[i].Status.Shadow; c != nil {
			saved.Jobs, saved.Held, grams = saved.Jobs+int(c.Decided), saved.Held+int(c.Held), grams+c.SavedGrams
		}
	}
	if saved.Jobs > 0 {
		saved.Emissions = &report.Difference{Saved: grams / 1000}
		r.m.Saved = saved
	}
}
