package experiment

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"math/rand/v2"
	"text/template"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/kube"
)

//go:embed load.yaml
var loadText string

var loadTemplate = template.Must(template.New("load").Parse(loadText))

func app(entry string, i int) string { return fmt.Sprintf("%s-%d", entry, i) }

// image returns the image of pods. It is the kubenergy program in a cluster. The lab runs services as processes and
// simulates all other pods.
func (f *File) image(service bool) string {
	switch {
	case f.target == TargetCluster:
		return f.Image
	case service:
		return "kubenergy"
	}
	return "simulated"
}

// deploy creates the services or the stress pods of an entry.
func (a *arm) deploy(ctx context.Context, l *Load) error {
	count, replicas := l.Count, int(l.Replicas)
	if l.Utilisation > 0 {
		count, replicas = 1, l.Count
	}
	a.wanted += count * replicas
	for i := range count {
		var text bytes.Buffer
		var objects struct {
			Deployment *appsv1.Deployment
			Service    *corev1.Service
		}
		err := loadTemplate.Execute(&text, map[string]any{
			"Load": l, "App": app(l.Name, i), "Replicas": replicas, "Scheduler": a.scheduler,
			"Image": a.File.image(l.Replicas > 0),
		})
		if err == nil {
			err = yaml.UnmarshalStrict(text.Bytes(), &objects)
		}
		if err == nil {
			_, err = a.client.AppsV1().Deployments(a.namespace).Create(ctx, objects.Deployment, metav1.CreateOptions{})
		}
		if err == nil && objects.Service != nil {
			_, err = a.client.CoreV1().Services(a.namespace).Create(ctx, objects.Service, metav1.CreateOptions{})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// submit creates the Jobs of an entry when they are due, or when the preceding Jobs have finished. It sets the run
// time in the lab immediately, or after scheduling for Jobs with a class.
func (a *arm) submit(ctx context.Context, l *Load) error {
	for i, j := range l.jobs {
		kube.Pause(ctx, time.Until(a.began.Add(j.Submitted.Sub(time.Unix(0, 0)))))
		for l.After != "" && !a.ended(app(l.After, i)) && kube.Pause(ctx, 50*time.Millisecond) {
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		job := kube.TraceJob(app(l.Name, i), &j, func(d time.Duration) time.Duration { return d })
		pod := &job.Spec.Template
		pod.Labels = map[string]string{v1alpha1.LabelExperimentLoad: l.Name, v1alpha1.LabelExperimentApp: job.Name}
		if j.Class != "" {
			pod.Labels[v1alpha1.LabelWorkloadClass] = j.Class
		} else {
			pod.Annotations[v1alpha1.AnnotationLabRunSeconds] = fmt.Sprintf("%f", j.Duration.Seconds())
		}
		pod.Spec.SchedulerName = a.scheduler
		c := &pod.Spec.Containers[0]
		c.Image = a.File.image(false)
		c.Args = []string{"stress", "--cpu", fmt.Sprintf("%dm", j.Request.MilliCPU), "--duration", j.Duration.String()}
		if l.Image != "" && a.File.target == TargetCluster {
			c.Image, c.Args = l.Image, l.Args
		}
		if _, err := a.client.BatchV1().Jobs(a.namespace).Create(ctx, job, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// notify sets the run time in the lab of scheduled pods with a class. It is proportional to the ratio of the best
// benchmark to that of the pod's node.
func (a *arm) notify(ctx context.Context) error {
	for kube.Pause(ctx, 50*time.Millisecond) {
		for _, p := range a.some(func(p *pod) bool {
			return p.class() != "" && p.Spec.NodeName != "" && !p.gone &&
				p.Annotations[v1alpha1.AnnotationLabRunSeconds] == ""
		}) {
			seconds, err := time.ParseDuration(p.Annotations[v1alpha1.AnnotationExpectedDuration])
			if err != nil {
				return err
			}
			best, own := 0.0, 0.0
			for i := range a.nodes {
				rate := a.nodes[i].Benchmarks[p.class()].Rate
				best = max(best, rate)
				if a.nodes[i].Name == p.Spec.NodeName {
					own = rate
				}
			}
			if own == 0 {
				own, best = 1, 1
			}
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%f"}}}`, v1alpha1.AnnotationLabRunSeconds,
				seconds.Seconds()*best/own)
			_, err = a.client.CoreV1().Pods(a.namespace).Patch(ctx, p.Name, types.MergePatchType, patch,
				metav1.PatchOptions{})
			if cmdutil.IgnoreNotFound(err) != nil {
				return err
			}
		}
	}
	return nil
}

// disturb periodically kills pods or changes the number of replicas.
func (a *arm) disturb(ctx context.Context, d *Disturbance) error {
	random := rand.New(rand.NewPCG(a.File.Seed, uint64(a.round)))
	for i := 0; kube.Pause(ctx, time.Until(a.began.Add(time.Duration(i+1)*d.Every.Duration))); i++ {
		var err error
		if d.Pods > 0 {
			err = a.kill(ctx, random, d.Pods)
		} else {
			err = a.scale(ctx, d.Replicas[i%len(d.Replicas)])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// kill deletes ready pods of services and stress without a grace period.
func (a *arm) kill(ctx context.Context, random *rand.Rand, pods int) error {
	ready := a.ready()
	for _, k := range random.Perm(len(ready))[:min(pods, len(ready))] {
		err := a.client.CoreV1().Pods(a.namespace).Delete(ctx, ready[k], *metav1.NewDeleteOptions(0))
		if cmdutil.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// scale sets the number of replicas of all services.
func (a *arm) scale(ctx context.Context, replicas int32) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	for _, l := range a.File.Load {
		for k := 0; l.Replicas > 0 && k < l.Count; k++ {
			_, err := a.client.AppsV1().Deployments(a.namespace).Patch(ctx, app(l.Name, k), types.MergePatchType, patch,
				metav1.PatchOptions{})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
