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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
		d.say(StatusFail, adviceUnreachable, "the API server did not answer: %s", cmdutil.OneLine(err))
		return
	}
	major, errMajor := strconv.Atoi(v.Major)
	minor, errMinor := strconv.Atoi(strings.TrimRight(v.Minor, "+")) // cloud providers report 36+
	version := fmt.Sprintf("Kubernetes %s", v.GitVersion)
	switch {
	case errMajor != nil || errMinor != nil:
		d.say(StatusWarn, fmt.Sprintf("use a server of version 1.%d or 1.%d", oldestMinor, newestMinor),
			"%s: its version cannot be told from %q.%q", version, v.Major, v.Minor)
	case major != 1 || minor < oldestMinor:
		d.say(StatusFail, fmt.Sprintf("upgrade the cluster to 1.%d or 1.%d", oldestMinor, newestMinor),
			"%s: older than the scheduler, which is kube-scheduler 1.%d, may be served by", version, oldestMinor)
	case minor > newestMinor:
		d.say(StatusFail, "upgrade KubEnergy first",
			"%s: the scheduler is kube-scheduler 1.%d, and may be one minor version older at most", version,
			oldestMinor)
	case minor == oldestMinor:
		d.ok("%s; the scheduler is built on the same minor version", version)
	default:
		d.ok("%s; the scheduler is built on 1.%d, one minor version older, as it may be", version, oldestMinor)
	}
}

// maxSkew is the maximum clock skew. Holds are accurate to the second.
const maxSkew = 2 * time.Second

const adviceClock = "synchronise the clocks (NTP): deadlines are instants"

// checkClock compares this machine's clock with the API server's.
func (d *Doctor) checkClock(ctx context.Context) {
	asked := d.Now()
	review, err := d.client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	if err == nil && review.CreationTimestamp.IsZero() {
		err = errors.New("its response has no creation timestamp")
	}
	if err != nil {
		d.unseen("the API server's clock", err)
		return
	}
	late := kube.Skew(asked, d.Now(), review.CreationTimestamp.Time)
	skew := late.Abs().Round(time.Second)
	switch {
	case late.Abs() <= maxSkew:
		d.ok("this machine and the API server agree to %v", maxSkew)
	case late > 0:
		d.say(StatusWarn, adviceClock, "this machine's clock is %v behind the API server's", skew)
	default:
		d.say(StatusWarn, adviceClock, "this machine's clock is %v ahead of the API server's", skew)
	}
}

// served reports whether the API server serves a resource in a group and version.
func (d *Doctor) served(groupVersion, resource string) (bool, error) {
	list, err := d.client.Discovery().ServerResourcesForGroupVersion(groupVersion)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, err
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource }), nil
}

func (d *Doctor) checkServedPolicies(context.Context) {
	served, err := d.served("admissionregistration.k8s.io/v1", "mutatingadmissionpolicies")
	switch {
	case err != nil:
		d.unseen("the kinds that the API server has", err)
	case !served:
		d.say(StatusFail, "upgrade to Kubernetes 1.36, or enable the API; bare pods are held without it",
			"MutatingAdmissionPolicy is not served as v1: Jobs cannot be held")
	default:
		d.ok("MutatingAdmissionPolicy is served as v1: Jobs can be held without a webhook")
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
		d.say(StatusWarn, "set spec.placement.replicaScheduling.replicaSchedulingType to Divided in them",
			"by these policies Karmada runs Jobs in every cluster that fits, and KubEnergy chooses none: %s",
			firstOf(all))
	}
}

// checkMetrics reports optional components of third parties. KubEnergy does not depend on them.
func (d *Doctor) checkMetrics(context.Context) {
	for _, m := range []struct{ groupVersion, resource, there, absent string }{
		{
			"metrics.k8s.io/v1beta1", "nodes", "metrics-server is there",
			"there is no metrics-server: kubectl top does not work; nothing of ours needs it",
		},
		{
			"monitoring.coreos.com/v1", "servicemonitors", "the Prometheus operator's ServiceMonitor is there",
			"there is no ServiceMonitor kind: leave the chart's serviceMonitor off, and let Prometheus find pods by " +
				"annotations",
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
