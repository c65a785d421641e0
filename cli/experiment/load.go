package experiment

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/sched"
)

const servicePort = 8080

func app(entry string, i int) string { return fmt.Sprintf("%s-%d", entry, i) }

// image is what pods run: outside the lab the image of the kubenergy program, in the lab nothing but services, which it
// runs as processes.
func (r *Runner) image(service bool) string {
	switch {
	case r.Target == TargetCluster:
		return r.File.Image
	case service:
		return "kubenergy"
	}
	return "simulated"
}

// podSpec is a pod of the arm's scheduler.
func (a *arm) podSpec(l *Load) corev1.PodSpec {
	c := corev1.Container{
		Name: "load", Image: a.image(l.Replicas > 0), Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: l.CPU, corev1.ResourceMemory: l.Memory},
		},
	}
	if l.Replicas > 0 {
		c.Args = []string{
			"experiment", "serve", fmt.Sprintf("--listen=:%d", servicePort), "--work=" + l.Work.Duration.String(),
		}
		c.Ports = []corev1.ContainerPort{{ContainerPort: servicePort}}
		c.Env = []corev1.EnvVar{{Name: "POD", ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"},
		}}}
		c.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(servicePort)},
		}}
	} else {
		c.Args = []string{
			"stress", "--cpu", l.CPU.String(), "--utilisation", fmt.Sprint(l.Utilisation), "--duration", "240h",
		}
	}
	return corev1.PodSpec{
		SchedulerName: a.scheduler, TerminationGracePeriodSeconds: new(int64), AutomountServiceAccountToken: new(bool),
		Containers: []corev1.Container{c},
	}
}

// deploy creates the services or the stress of an entry.
func (a *arm) deploy(ctx context.Context, l *Load) error {
	count, replicas := l.Count, l.Replicas
	if l.Utilisation > 0 {
		count, replicas = 1, int32(l.Count) //nolint:gosec // so many pods fit in no cluster
	}
	for i := range count {
		labels := map[string]string{v1alpha1.LabelExperimentLoad: l.Name, v1alpha1.LabelExperimentApp: app(l.Name, i)}
		_, err := a.client.AppsV1().Deployments(a.namespace).Create(ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: labels[v1alpha1.LabelExperimentApp]},
			Spec: appsv1.DeploymentSpec{
				Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: a.podSpec(l)},
			},
		}, metav1.CreateOptions{})
		if err == nil && l.Replicas > 0 {
			_, err = a.client.CoreV1().Services(a.namespace).Create(ctx, &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: labels[v1alpha1.LabelExperimentApp]},
				Spec: corev1.ServiceSpec{
					Selector: labels,
					Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(servicePort)}},
				},
			}, metav1.CreateOptions{})
		}
		if err != nil {
			return err
		}
		a.wanted += int(replicas)
	}
	return nil
}

// jobs are those of an entry, submitted so long after the beginning of 1970.
func (l *Load) jobs() []sched.Job {
	if l.Run.Duration == 0 {
		return l.trace
	}
	all := make([]sched.Job, l.Count)
	for i := range all {
		all[i] = sched.Job{
			Submitted: time.Unix(0, int64(i)*int64(l.Every.Duration)), Duration: l.Run.Duration,
			Request: sched.Resources{MilliCPU: l.CPU.MilliValue(), Memory: l.Memory.Value()}, Class: l.Class,
		}
	}
	return all
}

// submit creates the Jobs of an entry when they are due, or when those that they follow have ended. The lab is told how
// long they run: at once, or of those of a class when their node is known.
func (a *arm) submit(ctx context.Context, l *Load) error {
	for i, j := range l.jobs() {
		due := a.began.Add(j.Submitted.Sub(time.Unix(0, 0)))
		if !a.wait(ctx, due, func() bool { return l.After == "" || a.ended(app(l.After, i)) }) {
			return nil
		}
		job := kube.TraceJob(app(l.Name, i), &j, func(d time.Duration) time.Duration { return d })
		pod := &job.Spec.Template
		pod.Labels = map[string]string{v1alpha1.LabelExperimentLoad: l.Name, v1alpha1.LabelExperimentApp: job.Name}
		if j.Class != "" {
			pod.Labels[v1alpha1.LabelWorkloadClass] = j.Class
		} else {
			pod.Annotations[v1alpha1.AnnotationLabRunSeconds] = fmt.Sprint(j.Duration.Seconds())
		}
		pod.Spec.SchedulerName = a.scheduler
		c := &pod.Spec.Containers[0]
		c.Image = a.image(false)
		c.Args = []string{"stress", "--cpu", fmt.Sprintf("%dm", j.Request.MilliCPU), "--duration", j.Duration.String()}
		if l.Image != "" && a.Target == TargetCluster {
			c.Image, c.Args = l.Image, l.Args
		}
		if _, err := a.client.BatchV1().Jobs(a.namespace).Create(ctx, job, metav1.CreateOptions{}); err != nil {
			return unlessEnded(ctx, err)
		}
	}
	return nil
}

// tell tells the lab how long pods of a class run, once they are bound: as much longer than on the fastest node as that
// one's benchmark is better.
func (a *arm) tell(ctx context.Context) error {
	var untold []*pod
	for a.wait(ctx, time.Time{}, func() bool { untold = a.untold(); return len(untold) > 0 }) {
		for _, p := range untold {
			best, own := 0.0, 0.0
			for i := range a.nodes {
				rate := a.nodes[i].Benchmarks[p.class].Rate
				best = max(best, rate)
				if a.nodes[i].Name == p.node {
					own = rate
				}
			}
			seconds := p.expected.Seconds()
			if own > 0 {
				seconds *= best / own
			}
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%g"}}}`, v1alpha1.AnnotationLabRunSeconds,
				seconds)
			_, err := a.client.CoreV1().Pods(a.namespace).Patch(ctx, p.name, types.MergePatchType, patch,
				metav1.PatchOptions{})
			if unless(apierrors.IsNotFound, err) != nil {
				return unlessEnded(ctx, err)
			}
		}
	}
	return nil
}

// kill deletes ready pods of services and stress without grace, as many each time.
func (a *arm) kill(ctx context.Context) error {
	random := rand.New(rand.NewPCG(a.File.Seed, uint64(a.round)))
	for i := 1; a.wait(ctx, a.began.Add(time.Duration(i)*a.File.Kill.Every.Duration), nil); i++ {
		names := a.ready()
		for _, k := range random.Perm(len(names))[:min(a.File.Kill.Pods, len(names))] {
			err := a.client.CoreV1().Pods(a.namespace).Delete(ctx, names[k], *metav1.NewDeleteOptions(0))
			if unless(apierrors.IsNotFound, err) != nil {
				return unlessEnded(ctx, err)
			}
		}
	}
	return nil
}

// scale gives all services their next number of replicas.
func (a *arm) scale(ctx context.Context) error {
	s := a.File.Scale
	for i := 1; a.wait(ctx, a.began.Add(time.Duration(i)*s.Every.Duration), nil); i++ {
		patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, s.Replicas[(i-1)%len(s.Replicas)])
		for l := range slices.Values(a.File.Load) {
			for k := range l.Count {
				if l.Replicas == 0 {
					break
				}
				_, err := a.client.AppsV1().Deployments(a.namespace).Patch(ctx, app(l.Name, k), types.MergePatchType,
					patch, metav1.PatchOptions{})
				if err != nil {
					return unlessEnded(ctx, err)
				}
			}
		}
	}
	return nil
}

// unlessEnded is an error, but not of what was asked when the arm ended.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}
