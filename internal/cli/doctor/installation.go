package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/kube"
)

// customResource contains the required fields of a CustomResourceDefinition.
type customResource struct {
	Status struct {
		Conditions     []metav1.Condition `json:"conditions"`
		StoredVersions []string           `json:"storedVersions"`
	} `json:"status"`
}

func (d *Doctor) checkCRDs(ctx context.Context) {
	const install = "install the chart, which contains them in the directory crds"
	var missing, broken, old []string
	names := []string{"gridzones", "powerprofiles", "energypolicies", "energybudgets", "jobprofiles"}
	for _, name := range names {
		name += "." + v1alpha1.GroupVersion.Group
		var crd customResource
		err := cmdutil.GetJSON(ctx, d.client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+name, &crd)
		switch {
		case apierrors.IsNotFound(err):
			missing = append(missing, name)
		case err != nil:
			d.unseen("custom resource definitions", err)
			// Every user may read discovery, which also lists the kinds of KubEnergy.
			served, err := d.served(v1alpha1.GroupVersion.String(), "gridzones")
			d.crds = err == nil && served
			return
		case !slices.ContainsFunc(crd.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == "Established" && c.Status == metav1.ConditionTrue
		}):
			broken = append(broken, name)
		case len(crd.Status.StoredVersions) != 1 || crd.Status.StoredVersions[0] != v1alpha1.GroupVersion.Version:
			old = append(old, fmt.Sprintf("%s (%s)", name, strings.Join(crd.Status.StoredVersions, ", ")))
		}
	}
	d.crds = len(missing) < len(names)
	switch {
	case !d.crds:
		d.warn(install, "not installed: signals and profiles can only be read from files")
	case len(missing) > 0:
		d.fail(install, "missing: %s", strings.Join(missing, ", "))
	case len(broken) > 0:
		d.fail("check the conditions: kubectl describe crd", "not established: %s", strings.Join(broken, ", "))
	case len(old) > 0:
		d.warn("migrate the objects and remove the version from status.storedVersions before it is no longer "+
			"served", "stored in versions other than %s: %s", v1alpha1.GroupVersion.Version, strings.Join(old, ", "))
	default:
		d.ok("all kinds of KubEnergy are established and stored as %s", v1alpha1.GroupVersion.Version)
	}
}

func (d *Doctor) checkComponents(ctx context.Context) {
	list, err := d.client.AppsV1().Deployments(d.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		d.unseen("Deployments in "+d.Namespace, err)
		return
	}
	versions := map[string][]string{}
	for _, dep := range list.Items {
		if !strings.HasPrefix(dep.Name, "kubenergy") && dep.Labels["app.kubernetes.io/part-of"] != "kubenergy" {
			continue
		}
		d.deployments[dep.Name] = &dep
		if strings.HasSuffix(dep.Name, "scheduler") {
			d.scheduler = dep.CreationTimestamp.Time
		}
		version := versionOf(&dep)
		versions[version] = append(versions[version], dep.Name)
		switch want, ready := ptr.Deref(dep.Spec.Replicas, 1), dep.Status.ReadyReplicas; {
		case want == 0:
			d.warn(fmt.Sprintf("kubectl -n %s scale deployment %s --replicas=1", d.Namespace, dep.Name),
				"%s is scaled to 0", dep.Name)
		case ready == 0:
			d.fail(fmt.Sprintf("kubectl -n %s describe deployment %s", d.Namespace, dep.Name),
				"%s: none of %d replicas is ready", dep.Name, want)
		case ready < want:
			d.warn(fmt.Sprintf("kubectl -n %s describe deployment %s", d.Namespace, dep.Name),
				"%s: %d of %d replicas are ready", dep.Name, ready, want)
		default:
			d.ok("%s %s: %d of %d replicas are ready", dep.Name, version, ready, want)
		}
	}
	switch {
	case len(versions) == 0:
		d.warn("install the chart; a scheduler outside of the cluster is detected by its Lease",
			"not installed: there is no Deployment of KubEnergy in %s", d.Namespace)
	case len(versions) > 1:
		d.warn("finish the upgrade: a skew of one minor version is supported",
			"components of %d different versions are running: %s", len(versions), named(versions))
	}
}

// versionOf returns the tag or digest of a Deployment's image.
func versionOf(dep *appsv1.Deployment) string {
	for _, c := range dep.Spec.Template.Spec.Containers {
		if _, digest, ok := strings.Cut(c.Image, "@"); ok {
			return digest
		}
		if i := strings.LastIndex(c.Image, ":"); i > strings.LastIndex(c.Image, "/") {
			return c.Image[i+1:]
		}
	}
	return "untagged"
}

func named(versions map[string][]string) string {
	var all []string
	for version, names := range versions {
		all = append(all, fmt.Sprintf("%s %s", strings.Join(names, " and "), version))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// checkLeases reports which components hold their Leases.
func (d *Doctor) checkLeases(ctx context.Context) {
	list, err := d.client.CoordinationV1().Leases(d.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		d.unseen("Leases in "+d.Namespace, err)
		return
	}
	const check = "check whether its component is running"
	found := false
	for _, l := range list.Items {
		if !strings.HasPrefix(l.Name, "kubenergy") {
			continue
		}
		found = true
		holder := ptr.Deref(l.Spec.HolderIdentity, "")
		switch {
		case kube.LeaseHeld(&l, d.Now()) && d.podIsGone(ctx, holder):
			d.warn(check, "Lease %s is held by %s, a pod that no longer exists", l.Name, holder)
		case kube.LeaseHeld(&l, d.Now()):
			d.fresh[l.Name] = true
			d.ok("Lease %s is held by %s", l.Name, holder)
		case holder == "" || l.Spec.RenewTime == nil:
			d.warn(check, "Lease %s has no holder", l.Name)
		default:
			d.warn(check, "Lease %s was last renewed %s ago by %s",
				l.Name, humanize.Rounded(d.Now().Sub(l.Spec.RenewTime.Time)), holder)
		}
	}
	if !found {
		d.warn("install the chart, or check its pods: kubectl -n "+d.Namespace+" get pods",
			"there is no Lease of KubEnergy in %s: no component has been running there", d.Namespace)
	}
}

// podIsGone reports whether the holder of a Lease is a pod of KubEnergy, judging by its name, that no longer
// exists.
func (d *Doctor) podIsGone(ctx context.Context, holder string) bool {
	name, _, _ := strings.Cut(holder, "_")
	if !strings.HasPrefix(name, "kubenergy-") {
		return false
	}
	_, err := d.client.CoreV1().Pods(d.Namespace).Get(ctx, name, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

// rights are the required permissions by account that are critical in installations. Each consists of a verb and a
// resource with its subresource and group.
var rights = map[string][]string{
	cmdutil.SchedulerName: {
		"create pods/binding", "watch nodes", "watch jobs.batch", "patch jobs.batch", "get cronjobs.batch",
		"watch gridzones.kubenergy.io", "watch powerprofiles.kubenergy.io", "watch energypolicies.kubenergy.io",
		"create leases.coordination.k8s.io",
	},
	cmdutil.ControllerName: {
		"watch gridzones.kubenergy.io", "patch gridzones/status.kubenergy.io", "watch energypolicies.kubenergy.io",
		"patch energypolicies/status.kubenergy.io", "watch nodes", "watch jobs.batch",
		"patch jobs.batch", // to release overdue Jobs if no scheduler runs
		"watch cronjobs.batch",
		"create leases.coordination.k8s.io",
	},
}

// neverRights are the permissions that no account of KubEnergy may have.
var neverRights = []string{
	"get secrets", "list secrets", "create pods", "create jobs.batch", "delete jobs.batch",
	"escalate clusterroles.rbac.authorization.k8s.io",
}

// attributes parses a permission for a SubjectAccessReview.
func (d *Doctor) attributes(right string) *authorizationv1.ResourceAttributes {
	verb, what, _ := strings.Cut(right, " ")
	what, group, _ := strings.Cut(what, ".")
	resource, part, _ := strings.Cut(what, "/")
	a := &authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource, Subresource: part}
	if resource == "leases" {
		a.Namespace = d.Namespace
	}
	return a
}

func (d *Doctor) checkPermissions(ctx context.Context) {
	for _, account := range []string{cmdutil.SchedulerName, cmdutil.ControllerName} {
		if _, err := d.client.CoreV1().ServiceAccounts(d.Namespace).Get(ctx, account, metav1.GetOptions{}); err != nil {
			if apierrors.IsNotFound(err) {
				d.warn("install the chart, or apply deploy/kubenergy.yaml",
					"there is no service account %s/%s", d.Namespace, account)
				continue
			}
			d.unseen("service accounts in "+d.Namespace, err)
			return
		}
		if !d.checkAccount(ctx, account) {
			return
		}
	}
}

// checkAccount checks the permissions of an account. It returns false if the user may not create
// SubjectAccessReviews.
func (d *Doctor) checkAccount(ctx context.Context, account string) bool {
	var lacks, exceeds []string
	user := fmt.Sprintf("system:serviceaccount:%s:%s", d.Namespace, account)
	groups := []string{"system:serviceaccounts", "system:serviceaccounts:" + d.Namespace, "system:authenticated"}
	for i, right := range slices.Concat(rights[account], neverRights) {
		attributes, never := d.attributes(right), i >= len(rights[account])
		if attributes.Group == v1alpha1.GroupVersion.Group && !d.crds {
			continue
		}
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, Groups: groups, ResourceAttributes: attributes,
		}}
		review, err := d.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		switch {
		case err != nil:
			d.unseen("the permissions of other accounts (create subjectaccessreviews)", err)
			return false
		case never && review.Status.Allowed:
			exceeds = append(exceeds, right)
		case !never && !review.Status.Allowed:
			lacks = append(lacks, right)
		}
	}
	if len(lacks) > 0 {
		d.fail("apply the roles of the chart or of deploy/kubenergy.yaml", "%s is not allowed to %s",
			account, strings.Join(lacks, ", "))
	}
	if len(exceeds) > 0 {
		d.warn("check for additional role bindings", "%s is allowed to %s, which is not required", account,
			strings.Join(exceeds, ", "))
	}
	if len(lacks)+len(exceeds) == 0 {
		d.ok("%s has the required permissions, and cannot read secrets or create or delete workloads across namespaces",
			account)
	}
	return true
}
