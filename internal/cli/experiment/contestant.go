package experiment

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"text/template"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

//go:embed contestant.yaml
var contestantText string

var contestantTemplate = template.Must(template.New("contestant").Parse(contestantText))

// startImage runs the image of a contestant in the cluster, in a separate namespace and with cluster-admin
// permissions. With a strategy, the image is kubenergy-scheduler and uses the shipped profile.
func (a *arm) startImage(ctx context.Context) error {
	config, args := "", a.Args
	if a.Strategy != "" {
		a.scheduler = "experiment-" + a.Name
		config = string(schedulerConfig(a.scheduler, "", a.Strategy))
		args = []string{"--config=/etc/scheduler/config.yaml", "--secure-port=0", "--leader-elect=false"}
	}
	var text bytes.Buffer
	err := contestantTemplate.Execute(&text, map[string]any{
		"Namespace": a.namespace + "-scheduler", "Label": v1alpha1.LabelExperiment, "Run": a.Runner.run,
		"Image": a.Image, "Args": args, "Config": config,
	})
	var o struct {
		Namespace  *corev1.Namespace
		Rights     *rbacv1.ClusterRoleBinding
		Config     *corev1.ConfigMap
		Deployment *appsv1.Deployment
	}
	if err = cmp.Or(err, yaml.UnmarshalStrict(text.Bytes(), &o)); err != nil {
		return err
	}
	create := metav1.CreateOptions{}
	if _, err = a.client.CoreV1().Namespaces().Create(ctx, o.Namespace, create); err == nil {
		_, err = a.client.RbacV1().ClusterRoleBindings().Create(ctx, o.Rights, create)
	}
	if err == nil {
		_, err = a.client.CoreV1().ConfigMaps(o.Namespace.Name).Create(ctx, o.Config, create)
	}
	if err == nil {
		_, err = a.client.AppsV1().Deployments(o.Namespace.Name).Create(ctx, o.Deployment, create)
	}
	return err
}
