package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

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
	list, err := e.Client.CoreV1().Events(s.object.GetNamespace()).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.uid=" + string(s.object.GetUID()),
	})
	if err != nil {
		e.unseen("events: " + cmdutil.Because(err))
		return
	}
	for _, event := range list.Items {
		if strings.HasPrefix(event.ReportingController, "kubenergy-") {
			e.out.Events = append(e.out.Events, dashboard.Reported{
				At: timeOf(&event), Reason: event.Reason, Text: dashboard.WithoutGrams(event.Message),
			})
		}
	}
	slices.SortFunc(e.out.Events, func(a, b dashboard.Reported) int { return a.At.Compare(b.At) })
}

func timeOf(event *v1.Event) time.Time {
	return cmp.Or(event.EventTime.Time, event.LastTimestamp.Time, event.CreationTimestamp.Time)
}

// past explains why a running or finished Job was held or not. It uses recorded annotations and events, then the
// current settings, and finally the decision that would be made for such a Job now.
func (e *Explainer) past(s *subject, job sched.Job, settings *policy.Settings) string {
	w := cmdutil.ReadWritten(s.job.Annotations)
	released := s.job.Annotations[v1alpha1.AnnotationReleasedAt] != ""
	if released && w.Reason != "" {
		return " It had been held, and the scheduler said: " + dashboard.WithoutGrams(w.Reason) + "."
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
		return " Whether it was to be held cannot be said."
	case e.noZones:
		return " It was not held; why cannot be said."
	}
	return " It was not held, and no event is left that says why. " + e.alike(job, settings)
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
		return "One that came now would be: " + why + ". If none ever is, ask kubenergy doctor."
	}
	return "One that came now would start at once as well: " + why + "."
}

// strands adds a warning if the pods wait for a scheduler of KubEnergy that does not run.
func (e *Explainer) strands(ctx context.Context, s *subject) {
	name := s.pod.Spec.SchedulerName
	placed := slices.Contains([]string{StateFinished, StateRunning, StateBound}, e.out.State)
	if name == "" || name == v1.DefaultSchedulerName || placed {
		return
	}
	found, err := cmdutil.ReadServing(ctx, e.Client, v1alpha1.SystemNamespace, e.Now)
	switch {
	case !slices.Contains(found.Names(), name):
	case err != nil:
		e.unseen("whether the scheduler " + name + " runs: " + cmdutil.Because(err))
	case slices.Contains(found.Stranded(), name):
		object, what := metav1.Object(s.pod), "its pods stay"
		switch {
		case s.cron != nil:
			object = s.cron
		case s.job != nil:
			object = s.job
		case s.kind == cmdutil.KindPod:
			what = "it stays"
		}
		e.out.Warnings = append(e.out.Warnings, fmt.Sprintf("%s pending, since no scheduler of the name %s runs: "+
			"start "+
			"one, or %s", what, name, cmdutil.MendScheduler(titles[s.kind], name, object)))
	}
}
