package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/kube"
)

// Supported minor versions. kube-scheduler may be one minor version older than the API server, but not newer.
const (
	oldestMinor = 36
	newestMinor = 37
)

const adviceUnreachable = "check the address and the credentials of the kubeconfig"

func (d *Doctor) checkVersion(context.Context) {
	v, err := d.client.Discovery().ServerVersion()
	if err != nil {
		d.fail(adviceUnreachable, "the API server did not respond: %s", cmdutil.OneLine(err))
		return
	}
	major, errMajor := strconv.Atoi(v.Major)
	minor, errMinor := strconv.Atoi(strings.TrimRight(v.Minor, "+")) // cloud providers report 36+
	version := fmt.Sprintf("Kubernetes %s", v.GitVersion)
	switch {
	case errMajor != nil || errMinor != nil:
		d.warn(fmt.Sprintf("use Kubernetes 1.%d or 1.%d", oldestMinor, newestMinor),
			"%s: invalid version %q.%q", version, v.Major, v.Minor)
	case major != 1 || minor < oldestMinor:
		d.fail(fmt.Sprintf("upgrade the cluster to 1.%d or 1.%d", oldestMinor, newestMinor),
			"%s is older than the scheduler, which is based on kube-scheduler 1.%d", version, oldestMinor)
	case minor > newestMinor:
		d.fail("upgrade KubEnergy first",
			"%s is too new: the scheduler is based on kube-scheduler 1.%d, which may be at most one minor version "+
				"older", version, oldestMinor)
	case minor == oldestMinor:
		d.ok("%s, the same minor version as the scheduler", version)
	default:
		d.ok("%s, the scheduler is based on 1.%d, which is one minor version older and supported", version, oldestMinor)
	}
}

// maxSkew is the maximum clock skew. Holds are accurate to the second.
const maxSkew = 2 * time.Second

const adviceClock = "synchronize the clocks (NTP), because deadlines are absolute times"

// checkClock compares this machine's clock with the API server's.
func (d *Doctor) checkClock(ctx context.Context) {
	asked := d.Now()
	review, err := d.client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	if err == nil && review.CreationTimestamp.IsZero() {
		err = errors.New("the response has no creation timestamp")
	}
	if err != nil {
		d.unseen("the API server's clock", err)
		return
	}
	late := kube.Skew(asked, d.Now(), review.CreationTimestamp.Time)
	skew := late.Abs().Round(time.Second)
	switch {
	case late.Abs() <= maxSkew:
		d.ok("the clocks of this machine and the API server differ by at most %v", maxSkew)
	case late > 0:
		d.warn(adviceClock, "the clock of this machine is %v behind the API server", skew)
	default:
		d.warn(adviceClock, "the clock of this machine is %v ahead of the API server", skew)
	}
}

// served reports whether the API server serves a resource in a group and version.
func (d *Doctor) served(groupVersion, resource string) (bool, error) {
	list, err := d.client.Discovery().ServerResourcesForGroupVersion(groupVersion)
	if err != nil {
		return false, cmdutil.IgnoreNotFound(err)
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource }), nil
}

func (d *Doctor) checkServedPolicies(context.Context) {
	served, err := d.served("admissionregistration.k8s.io/v1", "mutatingadmissionpolicies")
	switch {
	case err != nil:
		d.unseen("the resources of the API server", err)
	case !served:
		d.fail("upgrade to Kubernetes 1.36 or enable the API; bare pods can be held without it",
			"MutatingAdmissionPolicy v1 is not served: Jobs cannot be held")
	default:
		d.ok("MutatingAdmissionPolicy v1 is served: Jobs can be held without a webhook")
	}
}

// checkPropagation reports policies of Karmada that duplicate Jobs to all matching clusters.
func (d *Doctor) checkPropagation(ctx context.Context) {
	const version = "policy.karmada.io/v1alpha1"
	var all []string
	if served, _ := d.served(version, "propagationpolicies"); !served {
		return
	}
	for _, kind := range []string{"propagationpolicies", "clusterpropagationpolicies"} {
		var list struct {
			Items []struct {
				metav1.ObjectMeta `json:"metadata"`
				Spec              struct {
					ResourceSelectors []metav1.TypeMeta
					Placement         struct {
						ReplicaScheduling struct{ ReplicaSchedulingType string }
					}
				}
			}
		}
		if err := cmdutil.GetJSON(ctx, d.client, "/apis/"+version+"/"+kind, &list); err != nil {
			d.unseen(kind+" of Karmada", err)
		}
		for _, p := range list.Items {
			job := func(t metav1.TypeMeta) bool { return t.Kind == "Job" }
			if slices.ContainsFunc(p.Spec.ResourceSelectors, job) &&
				p.Spec.Placement.ReplicaScheduling.ReplicaSchedulingType != "Divided" {
				all = append(all, strings.TrimPrefix(p.Namespace+"/"+p.Name, "/"))
			}
		}
	}
	if len(all) > 0 {
		d.warn("set spec.placement.replicaScheduling.replicaSchedulingType to Divided",
			"these policies run Jobs in every matching cluster, so KubEnergy cannot select a cluster: %s", firstOf(all))
	}
}

// checkMetrics reports optional components of third parties. KubEnergy does not depend on them.
func (d *Doctor) checkMetrics(context.Context) {
	for _, m := range []struct{ groupVersion, resource, there, absent string }{
		{
			"metrics.k8s.io/v1beta1", "nodes", "metrics-server is installed",
			"metrics-server is not installed: kubectl top does not work, but KubEnergy does not require it",
		},
		{
			"monitoring.coreos.com/v1", "servicemonitors", "ServiceMonitor of the Prometheus operator is installed",
			"ServiceMonitor is not installed: keep metrics.serviceMonitor of the chart disabled, and configure " +
				"Prometheus as described in docs/how-to/grafana.md",
		},
	} {
		switch served, err := d.served(m.groupVersion, m.resource); {
		case err != nil:
			d.unseen(m.groupVersion, err)
		case served:
			d.ok("%s", m.there)
		default:
			d.ok("%s", m.absent)
		}
	}
}
