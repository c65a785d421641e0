package doctor

import (
	"context"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/cli/release"
	"github.com/kubenergy/kubenergy/internal/dashboard"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// checkStranded reports objects that wait for a scheduler that does not run.
func (d *Doctor) checkStranded(ctx context.Context) {
	s, err := cmdutil.ReadServing(ctx, d.client, d.Namespace, d.Now())
	if err != nil {
		d.unseen("Leases in "+d.Namespace, err)
		return
	}
	names := s.Stranded()
	if len(names) == 0 {
		d.ok("a scheduler serves pods with schedulerName %s", cmdutil.OrOf(s.Names()))
		return
	}
	all := release.FindDependents(ctx, d.client, v1.NamespaceAll, names, true)
	for _, what := range slices.Sorted(maps.Keys(all.Unseen)) {
		d.unseen(what, all.Unseen[what])
	}
	for i := range all.Found {
		f, status, mend := &all.Found[i], dashboard.StatusFail, all.Found[i].Mend()
		// Another system may serve a name that KubEnergy is not configured for.
		if f.Scheduler != policy.SchedulerName && !slices.Contains(s.Configured, f.Scheduler) {
			status, mend = dashboard.StatusWarn, "if no other system serves this name: "+mend
		}
		d.say(status, mend, "%s", f)
	}
	if len(all.Found)+len(all.Unseen) == 0 {
		d.ok("no scheduler serves pods with schedulerName %s, but there are none", cmdutil.OrOf(names))
	}
}
