package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/dashboard"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// events reads the events of the scheduler and the controller for the object. The API server retains them for an
// hour.
func (e *Explainer) events(ctx context.Context, s *subject) {
	list, err := e.CoreV1().Events(s.object.GetNamespace()).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.uid=" + string(s.object.GetUID()),
	})
	if err != nil {
		e.unseen("events: " + cmdutil.Because(err))
		return
	}
	for _, event := range list.Items {
		if strings.HasPrefix(event.ReportingController, "kubenergy-") {
			e.out.Events = append(e.out.Events, dashboard.Reported{
				At:     cmp.Or(event.EventTime.Time, event.LastTimestamp.Time, event.CreationTimestamp.Time),
				Reason: event.Reason, Text: dashboard.WithoutGrams(event.Message),
			})
		}
	}
	slices.SortFunc(e.out.Events, func(a, b dashboard.Reported) int { return a.At.Compare(b.At) })
}

// past explains why a running or finished Job was held or not. It uses recorded annotations and events, then the
// current settings, and finally the decision that would be made for such a Job now.
func (e *Explainer) past(s *subject, job sched.Job, settings *policy.Settings) string {
	w := cmdutil.ReadWritten(s.job.Annotations)
	released := s.job.Annotations[v1alpha1.AnnotationReleasedAt] != ""
	if released && w.Reason != "" {
		return " It was held before, with the reason: " + dashboard.WithoutGrams(w.Reason) + "."
	}
	if released {
		return ""
	}
	for _, event := range slices.Backward(e.out.Events) {
		if event.Reason == "NotHeld" {
			return " It was not held: " + strings.TrimPrefix(event.Text, "not held: ") + "."
		}
	}
	if why := e.notHeld(s, &job, settings); why != "" {
		return " It was not held: " + why + "."
	}
	switch {
	case e.noMode:
		return " It is unknown whether it should have been held."
	case e.noZones:
		return " It was not held, and the reason is unknown."
	}
	return " It was not held, and the event with the reason has expired. " + e.alike(job, settings)
}

// alike returns the decision for an identical Job that is created now.
func (e *Explainer) alike(job sched.Job, settings *policy.Settings) string {
	if !job.FinishBy.IsZero() {
		job.FinishBy = job.FinishBy.Add(e.Now.Sub(job.Submitted))
	}
	job.Submitted = e.Now
	d := e.View.Decide(e.Now, job, *settings)
	why := dashboard.WithoutGrams(d.Reason.String())
	if d.Held(e.Now) {
		return "A Job that is created now would be " + why + ". If no Job is ever held, run kubenergy doctor."
	}
	return "A Job that is created now would also start immediately: " + why + "."
}

// strands adds a warning if the pods wait for a scheduler of KubEnergy that does not run.
func (e *Explainer) strands(ctx context.Context, s *subject) {
	name := s.pod.Spec.SchedulerName
	placed := slices.Contains([]string{StateFinished, StateRunning, StateBound}, e.out.State)
	if name == "" || name == v1.DefaultSchedulerName || placed {
		return
	}
	found, err := cmdutil.ReadServing(ctx, e.Cluster, v1alpha1.SystemNamespace, e.Now)
	switch {
	case !slices.Contains(found.Names(), name):
	case err != nil:
		e.unseen("state of the scheduler " + name + ": " + cmdutil.Because(err))
	case slices.Contains(found.Stranded(), name):
		object, what := metav1.Object(s.pod), "its pods remain"
		switch {
		case s.cron != nil:
			object = s.cron
		case s.job != nil:
			object = s.job
		case s.kind == cmdutil.KindPod:
			what = "it remains"
		}
		e.out.Warnings = append(e.out.Warnings, fmt.Sprintf("%s pending, because no scheduler with the name %s is "+
			"running: start one, or %s", what, name, cmdutil.MendScheduler(titles[s.kind], name, object)))
	}
}
