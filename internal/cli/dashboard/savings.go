package dashboard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/dashboard"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/report"
)

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

// renewSavings computes the savings again if they are too old.
func (s *LiveSource) renewSavings(ctx context.Context, now time.Time) error {
	s.mu.Lock()
	age := now.Sub(s.savedAt)
	s.mu.Unlock()
	if age <= savingsAge {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, savingsTake)
	defer cancel()
	saved, err := s.compare(ctx, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved, s.savedErr, s.savedAt = saved, err, now
	return err
}

// compare computes the savings like kubenergy report --savings.
func (s *LiveSource) compare(ctx context.Context, now time.Time) (*dashboard.Saved, error) {
	c, err := s.controller(ctx)
	if err != nil {
		return nil, err
	}
	q := &ledger.Query{From: now.Add(-cmdutil.SavingsSpan), To: now, Namespaces: s.namespaces()}
	evidence, known, missing, err := c.Evidence(ctx, q, true, pageDecisions)
	switch {
	case err != nil:
		return nil, err
	case !known || evidence == nil:
		return nil, errors.New(strings.Join(missing, " "))
	}
	found, err := report.Compare(evidence, report.DefaultBaseline, q.From, 1)
	if err != nil {
		return nil, err
	}
	saved := dashboard.SavedOf(found)
	saved.Method = strings.Join(append([]string{"Savings of the last seven days. " + saved.Method}, missing...), " ")
	saved.Command = fmt.Sprintf("kubenergy report --savings --max-decisions %d", pageDecisions)
	return saved, nil
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
