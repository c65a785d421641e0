package install

import (
	"context"
	"net/http"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/test/chart"
	"github.com/kubenergy/kubenergy/test/kit"
)

// as is a client that impersonates a user.
type as struct {
	kubernetes.Interface
	objects dynamic.Interface
}

func (w *world) as(t *testing.T, user string, groups ...string) as {
	t.Helper()
	config := rest.CopyConfig(w.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return as{client, objects}
}

// bind binds a role to a user in a namespace, or cluster-wide if namespace is "".
func (w *world) bind(t *testing.T, namespace, role string, subject rbacv1.Subject) {
	t.Helper()
	meta := metav1.ObjectMeta{GenerateName: "test-", Namespace: namespace}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	var err error
	if namespace == "" {
		_, err = w.Client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, RoleRef: ref, Subjects: []rbacv1.Subject{subject},
		}, metav1.CreateOptions{})
	} else {
		_, err = w.Client.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: ref, Subjects: []rbacv1.Subject{subject},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// testTenant performs attacks with an account that can edit one namespace. It tries to set values that only
// KubEnergy may set, on its own and other workloads, and to create objects that affect others. All attacks must be
// denied, and ordinary operations of tenants must succeed.
func (w *world) testTenant(t *testing.T) {
	ctx := t.Context()
	const mine, yours, user = "tenant-mine", "tenant-yours", "system:serviceaccount:tenant-mine:attacker"
	for _, name := range []string{mine, yours} {
		if _, err := w.Client.CoreV1().Namespaces().Create(ctx,
			&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		suspended := newJob(func(j *batchv1.Job) {
			j.Name, j.Spec.Suspend = "suspended", new(true)
			j.Annotations = map[string]string{v1alpha1.AnnotationHeldReason: "a KubEnergy reason"}
			j.Labels = map[string]string{v1alpha1.LabelBudgetSuspended: "month"}
		})
		for _, job := range []*batchv1.Job{suspended, newJob(func(j *batchv1.Job) { j.Name = "runs" })} {
			if _, err := w.Client.BatchV1().Jobs(name).Create(ctx, job, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Client.CoreV1().Pods(name).Create(ctx, newPod("pod", nil), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // must not interfere with the uninstallation
			if err := w.Client.BatchV1().Jobs(name).DeleteCollection(context.WithoutCancel(t.Context()),
				metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	account := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: mine, Name: "attacker"}
	for _, role := range []string{"system:aggregate-to-edit", "system:aggregate-to-view", "kubenergy-view-energy"} {
		w.bind(t, mine, role, account)
	}
	me := w.as(t, user, "system:serviceaccounts", "system:serviceaccounts:"+mine)

	dry := []string{metav1.DryRunAll}
	createJob := func(change func(*batchv1.Job)) error {
		_, err := me.BatchV1().Jobs(mine).Create(ctx, newJob(change), metav1.CreateOptions{DryRun: dry})
		return err
	}
	annotated := func(key, value string) error {
		return createJob(func(j *batchv1.Job) { j.Annotations = map[string]string{key: value} })
	}
	patchJob := func(namespace, name, patch string) error {
		_, err := me.BatchV1().Jobs(namespace).Patch(ctx, name, types.MergePatchType, []byte(patch),
			metav1.PatchOptions{DryRun: dry})
		return err
	}
	annotate := func(key, value string) string { return `{"metadata":{"annotations":{"` + key + `":` + value + `}}}` }
	createCron := func(change func(*batchv1.CronJob)) error {
		c := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "cron"}, Spec: batchv1.CronJobSpec{
			Schedule: "0 0 1 1 *", JobTemplate: batchv1.JobTemplateSpec{Spec: newJob(nil).Spec},
		}}
		change(c)
		_, err := me.BatchV1().CronJobs(mine).Create(ctx, c, metav1.CreateOptions{DryRun: dry})
		return err
	}
	createPod := func(annotations map[string]string) error {
		_, err := me.CoreV1().Pods(mine).Create(ctx, newPod("", annotations), metav1.CreateOptions{DryRun: dry})
		return err
	}
	create := func(kind, namespace, spec string) error {
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON([]byte(`{"apiVersion":"kubenergy.io/v1alpha1","kind":"` + kind +
			`","metadata":{"name":"x"},"spec":` + spec + `}`)); err != nil {
			t.Fatal(err)
		}
		resource := map[string]string{
			"EnergyBudget": "energybudgets", "EnergyPolicy": "energypolicies", "GridZone": "gridzones",
			"PowerProfile": "powerprofiles", "JobProfile": "jobprofiles",
		}[kind]
		client := dynamic.ResourceInterface(me.objects.Resource(v1alpha1.GroupVersion.WithResource(resource)))
		if namespace != "" {
			client = me.objects.Resource(v1alpha1.GroupVersion.WithResource(resource)).Namespace(namespace)
		}
		_, err := client.Create(ctx, object, metav1.CreateOptions{DryRun: dry})
		return err
	}
	const budget = `{"limits":{"energyKWh":0.001},"period":{"type":"Lifetime"},"actions":[{"at":100,"do":["Suspend"]}]}`
	year := time.Now().AddDate(1, 0, 0).UTC().Format(time.RFC3339)
	attacks := map[string]func() error{
		"a forged saving":              func() error { return annotated(v1alpha1.AnnotationReleasedAt, year) },
		"a latest start in a year":     func() error { return annotated(v1alpha1.AnnotationLatestStart, year) },
		"a hold for a year":            func() error { return annotated(v1alpha1.AnnotationHeldUntil, year) },
		"a KubEnergy reason":           func() error { return annotated(v1alpha1.AnnotationHeldReason, "trust me") },
		"a Job released from a budget": func() error { return annotated(v1alpha1.AnnotationBudgetReleased, "month") },
		"another submitter":            func() error { return annotated("kubenergy.io/submitted-by", "alice") },
		"a running Job marked as suspended": func() error {
			return createJob(func(j *batchv1.Job) { j.Labels = map[string]string{v1alpha1.LabelBudgetSuspended: "month"} })
		},
		"a forged saving of an existing Job": func() error { return patchJob(mine, "runs", annotate(v1alpha1.AnnotationReleasedAt, `"`+year+`"`)) },
		"a running Job marked as held": func() error {
			return patchJob(mine, "runs", `{"metadata":{"labels":{"`+v1alpha1.LabelHeld+`":"true"}}}`)
		},
		"a Job resumed despite a budget": func() error {
			return patchJob(mine, "suspended", `{"metadata":{"labels":{"`+v1alpha1.LabelBudgetSuspended+
				`":null}},"spec":{"suspend":false}}`)
		},
		"a suspended Job released from a budget": func() error {
			return patchJob(mine, "suspended", annotate(v1alpha1.AnnotationBudgetReleased, `"month"`))
		},
		"a forged saving through a CronJob": func() error {
			return createCron(func(c *batchv1.CronJob) {
				c.Spec.JobTemplate.Annotations = map[string]string{v1alpha1.AnnotationReleasedAt: year}
			})
		},
		"marks on the pods of a CronJob": func() error {
			return createCron(func(c *batchv1.CronJob) {
				c.Spec.JobTemplate.Spec.Template.Annotations = map[string]string{v1alpha1.AnnotationBudgetActions: "x"}
			})
		},
		"marks on the pods of a Job": func() error {
			return createJob(func(j *batchv1.Job) {
				j.Spec.Template.Annotations = map[string]string{v1alpha1.AnnotationBudgetActions: "x"}
			})
		},
		"marks on the pods of a Deployment": func() error {
			labels := map[string]string{"app": "marked"}
			pod := newPod("", map[string]string{v1alpha1.AnnotationBudgetActions: "x"})
			pod.Spec.RestartPolicy = ""
			_, err := me.AppsV1().Deployments(mine).Create(ctx, &appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Name: "marked"}, Spec: appsv1.DeploymentSpec{
					Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: v1.PodTemplateSpec{
						ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: pod.Annotations}, Spec: pod.Spec,
					},
				},
			}, metav1.CreateOptions{DryRun: dry})
			return err
		},
		"a pod with recorded budget actions": func() error {
			return createPod(map[string]string{v1alpha1.AnnotationBudgetActions: "x"})
		},
		"a pod with Compute Gardener's label for an exceeded budget": func() error {
			return createPod(map[string]string{policy.GardenerBudgetExceeded: "true"})
		},
		"another tenant's Job runs now":     func() error { return patchJob(yours, "runs", annotate(v1alpha1.AnnotationRunNow, `"true"`)) },
		"another tenant's Job is held":      func() error { return patchJob(yours, "runs", `{"spec":{"suspend":true}}`) },
		"a budget for another tenant":       func() error { return create("EnergyBudget", yours, budget) },
		"a budget for its own namespace":    func() error { return create("EnergyBudget", mine, budget) },
		"a policy for another tenant":       func() error { return create("EnergyPolicy", yours, `{"allowedDelay":"24h"}`) },
		"a cluster-wide policy":             func() error { return create("EnergyPolicy", v1alpha1.SystemNamespace, `{"mode":"off"}`) },
		"a zone":                            func() error { return create("GridZone", "", `{"source":{"static":{"carbonIntensity":1}}}`) },
		"a profile":                         func() error { return create("PowerProfile", "", `{"idleWatts":1,"maxWatts":2}`) },
		"learnt run times":                  func() error { return create("JobProfile", mine, `{}`) },
		"a namespace's mode":                func() error { return label(ctx, me, yours) },
		"a token of the viewer account":     func() error { return viewerToken(ctx, me, v1alpha1.SystemNamespace) },
		"Secrets with API keys":             func() error { return get(ctx, me, "secrets", v1alpha1.SystemNamespace) },
		"the KubEnergy ConfigMaps":          func() error { return get(ctx, me, "configmaps", v1alpha1.SystemNamespace) },
		"another port of the controller":    func() error { return proxied(ctx, me, http.MethodGet, "https:kubenergy-controller:metrics") },
		"unencrypted access to the API":     func() error { return proxied(ctx, me, http.MethodGet, "kubenergy-controller:api") },
		"another Service":                   func() error { return proxied(ctx, me, http.MethodGet, "https:kubenergy-scheduler:metrics") },
		"a write request to the controller": func() error { return proxied(ctx, me, http.MethodPost, controllerAPI) },
		"without the guard": func() error {
			return me.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(ctx, "kubenergy-keys",
				metav1.DeleteOptions{DryRun: dry})
		},
	}
	kit.Eventually(t, 20*time.Second, "the policy is effective", func() bool {
		return annotated(v1alpha1.AnnotationReleasedAt, year) != nil
	})
	for what, attack := range attacks {
		if err := attack(); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	t.Logf("%d attacks", len(attacks))
	w.attackByStatus(t, mine, account, me)
	for what, err := range map[string]error{
		"a delay": createJob(func(j *batchv1.Job) {
			j.Annotations = map[string]string{v1alpha1.AnnotationAllowedDelay: "6h"}
		}),
		"a team":                          createPod(map[string]string{v1alpha1.LabelTeam: "mine"}),
		"run now":                         patchJob(mine, "runs", annotate(v1alpha1.AnnotationRunNow, `"true"`)),
		"a CronJob":                       createCron(func(*batchv1.CronJob) {}),
		"paused":                          patchJob(mine, "runs", `{"spec":{"suspend":true}}`),
		"removal of the KubEnergy reason": patchJob(mine, "suspended", annotate(v1alpha1.AnnotationHeldReason, "null")),
		"other marks":                     patchJob(mine, "suspended", annotate("example.com/note", `"x"`)),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	w.bind(t, mine, "kubenergy-releaser", account)
	kit.Eventually(t, 20*time.Second, "the account can release Jobs", func() bool {
		return patchJob(mine, "suspended", annotate(v1alpha1.AnnotationBudgetReleased, `"month"`)) == nil
	})
}

// attackByStatus performs attacks with an account that can also update statuses and bind pods, such as an operator.
// A status update may contain labels and annotations, and the annotations of a binding are copied to the pod.
func (w *world) attackByStatus(t *testing.T, namespace string, account rbacv1.Subject, me as) {
	ctx := t.Context()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "test-status"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"batch"}, Resources: []string{"jobs/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{""}, Resources: []string{"pods/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{""}, Resources: []string{"pods/binding", "bindings"}, Verbs: []string{"create"}},
	}}
	if _, err := w.Client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.bind(t, namespace, role.Name, account)
	dry := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
	job := func(key string) (map[string]string, error) {
		j, err := me.BatchV1().Jobs(namespace).Patch(ctx, "runs", types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"`+key+`":"x"}}}`), dry, "status")
		return j.GetAnnotations(), err
	}
	pod := func(key string) (map[string]string, error) {
		p, err := me.CoreV1().Pods(namespace).Patch(ctx, "pod", types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"`+key+`":"x"}}}`), dry, "status")
		return p.GetAnnotations(), err
	}
	bind := func(key string) (map[string]string, error) {
		return map[string]string{key: "x"}, me.CoreV1().Pods(namespace).Bind(ctx, &v1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: "pod", Annotations: map[string]string{key: "x"}},
			Target:     v1.ObjectReference{Kind: "Node", Name: "none"},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	kit.Eventually(t, 20*time.Second, "the account can update statuses", func() bool {
		_, err := pod("example.com/note")
		return err == nil
	})
	for what, write := range map[string]func(string) (map[string]string, error){
		"a Job's status": job, "a pod's status": pod, "a binding": bind,
	} {
		if got, err := write("example.com/note"); err != nil || got["example.com/note"] != "x" {
			t.Errorf("unexpected result of setting an annotation through %s: %v, %v", what, got, err)
		}
		for _, key := range []string{v1alpha1.AnnotationReleasedAt, v1alpha1.AnnotationBudgetActions} {
			if _, err := write(key); !apierrors.IsForbidden(err) {
				t.Errorf("setting %s through %s: got error %v, want forbidden", key, what, err)
			}
		}
	}
}

func newPod(name string, annotations map[string]string) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "none"}}},
	}
	if name == "" {
		p.GenerateName = "pod-"
	}
	return p
}

func label(ctx context.Context, me as, namespace string) error {
	_, err := me.CoreV1().Namespaces().Patch(ctx, namespace, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"`+v1alpha1.LabelMode+`":"enforce"}}}`), metav1.PatchOptions{})
	return err
}

func get(ctx context.Context, me as, resource, namespace string) error {
	_, err := me.objects.Resource(schema.GroupVersionResource{Version: "v1", Resource: resource}).Namespace(namespace).
		List(ctx, metav1.ListOptions{})
	return err
}

func viewerToken(ctx context.Context, me as, namespace string) error {
	_, err := me.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, "kubenergy-viewer",
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	return err
}

const controllerAPI = "https:kubenergy-controller:api"

// proxied sends a request to a KubEnergy Service through the API server.
func proxied(ctx context.Context, me as, method, service string) error {
	return me.CoreV1().RESTClient().Verb(method).Namespace(v1alpha1.SystemNamespace).Resource("services").Name(service).
		SubResource("proxy").Suffix("api/v1/ledger").Do(ctx).Error()
}

// testViewer tests the default access to the energy data of a namespace. A user with the role view may send
// requests to the controller, which does not run in this cluster. The role kubenergy-view-token allows creating a
// token of the account kubenergy-viewer, but of no other account. The responses of the controller are tested in
// test/lifecycle.
func (w *world) testViewer(t *testing.T) {
	ctx := t.Context()
	const namespace = "viewed"
	if _, err := w.Client.CoreV1().Namespaces().Create(ctx,
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kubenergy-viewer", "other"} {
		if _, err := w.Client.CoreV1().ServiceAccounts(namespace).Create(ctx,
			&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	subject := rbacv1.Subject{Kind: rbacv1.UserKind, Name: "viewer"}
	for _, role := range []string{"system:aggregate-to-view", "kubenergy-view-energy"} { // roles of view
		w.bind(t, namespace, role, subject)
	}
	viewer := w.as(t, "viewer")
	kit.Eventually(t, 20*time.Second, "the viewer can list Jobs", func() bool {
		_, err := viewer.BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{})
		return err == nil
	})
	if err := viewerToken(ctx, viewer, namespace); !apierrors.IsForbidden(err) {
		t.Errorf("creating a token with the role view: got error %v, want forbidden", err)
	}
	w.bind(t, namespace, "kubenergy-view-token", subject)
	kit.Eventually(t, 20*time.Second, "the viewer can create a token", func() bool {
		return viewerToken(ctx, viewer, namespace) == nil
	})
	if err := proxied(ctx, viewer, http.MethodGet, controllerAPI); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("request of the viewer to the controller: got error %v, want service unavailable", err)
	}
	_, other := viewer.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, "other", &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	for what, err := range map[string]error{
		"of another account": other, "in another namespace": viewerToken(ctx, viewer, v1alpha1.SystemNamespace),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("viewer creates a token %s: got error %v, want forbidden", what, err)
		}
	}
	w.helm(t, "upgrade", "kubenergy", chart.Folder, "--set", "policy.mode=enforce,agent.enabled=true",
		"--set-json", "api.proxyGroups=[]")
	kit.Eventually(t, 20*time.Second, "access through the API server is denied", func() bool {
		return apierrors.IsForbidden(proxied(ctx, viewer, http.MethodGet, controllerAPI))
	})
}

// testKubelet performs attacks as a kubelet that tries to change properties that determine the power source of its
// node.
func (w *world) testKubelet(t *testing.T) {
	ctx := t.Context()
	const name = "attacked"
	w.bind(t, "", "system:node", rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:nodes"})
	kubelet := w.as(t, "system:node:"+name, "system:nodes")
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		v1alpha1.LabelSite: "coal", v1.LabelTopologyRegion: "west",
	}}}
	kit.Eventually(t, 20*time.Second, "the kubelet can create its node with a site", func() bool {
		_, err := kubelet.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		return err == nil
	})
	t.Cleanup(func() {
		if err := w.Client.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), name,
			metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	patch := func(key, value string, subresources ...string) error {
		_, err := kubelet.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"`+key+`":`+value+`}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}},
			subresources...)
		return err
	}
	profiles := w.objects.Resource(v1alpha1.GroupVersion.WithResource("powerprofiles"))
	if _, err := profiles.Create(ctx, object(t, `{apiVersion: kubenergy.io/v1alpha1, kind: PowerProfile,
		metadata: {name: frugal-racks}, spec: {idleWatts: 1, maxWatts: 2, nodeSelector: {example.com/rack-kind: frugal}}}`),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := profiles.Delete(context.WithoutCancel(ctx), "frugal-racks", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	annotate := func(key, value string, subresources ...string) error {
		_, err := kubelet.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"`+key+`":`+value+`}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}},
			subresources...)
		return err
	}
	join := func(labels, annotations map[string]string) error {
		_, err := kubelet.CoreV1().Nodes().Create(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: "joins", Labels: labels, Annotations: annotations,
		}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	fn := func(key, value string) map[string]string { return map[string]string{key: value} }
	kit.Eventually(t, 20*time.Second, "the policies are effective", func() bool {
		return patch(v1alpha1.LabelSite, `"hydro"`) != nil && patch("example.com/rack-kind", `"frugal"`) != nil
	})
	for what, c := range map[string]struct {
		err     error
		allowed bool
	}{
		"another site":                          {patch(v1alpha1.LabelSite, `"hydro"`), false},
		"no site":                               {patch(v1alpha1.LabelSite, `null`), false},
		"a site through the status":             {patch(v1alpha1.LabelSite, `"hydro"`, "status"), false},
		"a better profile":                      {patch(v1alpha1.LabelPowerProfile, `"frugal"`), false},
		"another region":                        {patch(v1.LabelTopologyRegion, `"north"`), false},
		"a zone that was not set before":        {patch(v1.LabelTopologyZone, `"a"`), true},
		"an unrelated label":                    {patch("example.com/rack", `"7"`), true},
		"an unrelated label through the status": {patch("example.com/rack", `"7"`, "status"), true},
		"a label that a profile selects":        {patch("example.com/rack-kind", `"frugal"`), false},
		"another GPU":                           {patch("nvidia.com/gpu.product", `"NVIDIA-H100"`), false},
		"another CPU":                           {patch("node.kubernetes.io/cpu-model", `"frugal"`), false},
		"a label set for an agent":              {patch(v1alpha1.LabelCPUModel, `"frugal"`), false},
		"a CPU in an annotation":                {annotate("node.kubernetes.io/cpu-model", `"frugal"`), false},
		"an instance type":                      {patch(v1.LabelInstanceTypeStable, `"m7g.large"`), false},
		"a better PUE":                          {annotate("compute-gardener-scheduler.kubernetes.io/pue", `"1.0"`), false},
		"live watts":                            {annotate("energy.thesis.io/current-watts", `"1"`), false},
		"an unrelated annotation":               {annotate("volumes.kubernetes.io/controller-managed-attach-detach", `"true"`), true},
		"an unchanged site":                     {patch(v1alpha1.LabelSite, `"coal"`), true},

		"the label for a sleeping node":                        {patch(v1alpha1.LabelPowerState, `"asleep"`), false},
		"the label may-sleep":                                  {patch(v1alpha1.LabelMaySleep, `"true"`), false},
		"the annotation of kubenergy-power":                    {annotate(v1alpha1.AnnotationPower, `"{\"failed\":-1}"`), false},
		"the annotation of kubenergy-power through the status": {annotate(v1alpha1.AnnotationPower, `"{\"failed\":-1}"`, "status"), false},
		"live watts through the status":                        {annotate("energy.thesis.io/current-watts", `"1"`, "status"), false},
		"an unrelated annotation through the status":           {annotate("example.com/note", `"x"`, "status"), true},
		"joins":                       {join(nil, fn("example.com/note", "x")), true},
		"joins with a site":           {join(fn(v1alpha1.LabelSite, "hydro"), nil), true},
		"joins and may sleep":         {join(fn(v1alpha1.LabelMaySleep, "true"), nil), true},
		"joins asleep":                {join(fn(v1alpha1.LabelPowerState, "asleep"), nil), false},
		"joins with failed boots":     {join(nil, fn(v1alpha1.AnnotationPower, `{"failed":-1}`)), false},
		"joins with watts":            {join(nil, fn("energy.thesis.io/current-watts", "1")), false},
		"joins with a PUE":            {join(nil, fn("compute-gardener-scheduler.kubernetes.io/pue", "1.0")), false},
		"joins with a CPU's name":     {join(nil, fn("node.kubernetes.io/cpu-model", "frugal")), false},
		"joins with a guess of watts": {join(nil, fn(v1alpha1.AnnotationPowerGuess, "frugal")), false},
	} {
		if allowed := c.err == nil; allowed != c.allowed {
			t.Errorf("%s: allowed is %v, want %v (%v)", what, allowed, c.allowed, c.err)
		}
	}
}
