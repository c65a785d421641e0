package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the scheduler is built on. kube-scheduler may be one minor version older than the API server and never newer.
const (
	oldestMinor = 36
	newestMinor = 37
)

const adviceUnreachable = "check the address and the credentials of the kubeconfig"

func (d *doctor) lookAtVersion(context.Context) {
	v, err := d.client.Discovery().ServerVersion()
	if err != nil {
		d.say(statusFail, adviceUnreachable, "the API server did not answer: %s", oneLine(err))
		return
	}
	major, errMajor := strconv.Atoi(v.Major)
	minor, errMinor := strconv.Atoi(strings.TrimRight(v.Minor, "+")) // clouds write 36+
	version := fmt.Sprintf("Kubernetes %s", v.GitVersion)
	switch {
	case errMajor != nil || errMinor != nil:
		d.say(statusWarn, "", "%s: its version cannot be told from %q.%q", version, v.Major, v.Minor)
	case major != 1 || minor < oldestMinor:
		d.say(statusFail, fmt.Sprintf("upgrade the cluster to 1.%d or 1.%d", oldestMinor, newestMinor),
			"%s: older than the scheduler, which is kube-scheduler 1.%d, may be served by", version, oldestMinor)
	case minor > newestMinor:
		d.say(statusFail, "upgrade KubEnergy first",
			"%s: the scheduler is kube-scheduler 1.%d, and may be one minor version older at most", version,
			oldestMinor)
	case minor == oldestMinor:
		d.ok("%s; the scheduler is built on the same minor version", version)
	default:
		d.ok("%s; the scheduler is built on 1.%d, one minor version older, as it may be", version, oldestMinor)
	}
}

// maxSkew is by how much the clocks may be apart. Holds are kept to the second.
const maxSkew = 2 * time.Second

// lookAtClock compares this machine's clock with the API server's.
func (d *doctor) lookAtClock(ctx context.Context) {
	host := strings.TrimSuffix(d.config.Host, "/")
	if !strings.Contains(host, "://") {
		host = "https://" + host
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		host+strings.TrimSuffix(d.config.APIPath, "/")+"/version", nil)
	if err != nil {
		d.unseen("the API server's clock", err)
		return
	}
	sent := d.now()
	response, err := d.http.Do(request)
	took := d.now().Sub(sent)
	if err != nil {
		d.unseen("the API server's clock", err)
		return
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<16))
	_ = response.Body.Close()
	theirs, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		d.say(statusWarn, "", "the API server says no time")
		return
	}
	skew := clockSkew(theirs, sent, took)
	if skew > maxSkew || skew < -maxSkew {
		d.say(statusWarn, "synchronise the clocks (NTP): deadlines are instants",
			"this machine's clock is %s the API server's", ahead(skew))
		return
	}
	d.ok("this machine and the API server agree to %v", maxSkew)
}

// clockSkew is by how much ours is ahead of theirs at least. Theirs is cut off to the second, and was written at an
// unknown moment while the request took its time.
func clockSkew(theirs, ours time.Time, took time.Duration) time.Duration {
	switch earliest, latest := ours, ours.Add(took); {
	case earliest.After(theirs.Add(time.Second)):
		return earliest.Sub(theirs.Add(time.Second))
	case latest.Before(theirs):
		return latest.Sub(theirs)
	}
	return 0
}

func ahead(skew time.Duration) string {
	if skew < 0 {
		return fmt.Sprintf("%v behind", (-skew).Round(time.Second))
	}
	return fmt.Sprintf("%v ahead of", skew.Round(time.Second))
}

// served reports whether a group and version has a resource.
func (d *doctor) served(groupVersion, resource string) (bool, error) {
	list, err := d.client.Discovery().ServerResourcesForGroupVersion(groupVersion)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, err
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource }), nil
}

func (d *doctor) lookAtServedPolicies(context.Context) {
	served, err := d.served("admissionregistration.k8s.io/v1", "mutatingadmissionpolicies")
	switch {
	case err != nil:
		d.unseen("the kinds that the API server has", err)
	case !served:
		d.say(statusFail, "upgrade to Kubernetes 1.36, or enable the API; bare pods are held without it",
			"MutatingAdmissionPolicy is not served as v1: Jobs cannot be held")
	default:
		d.ok("MutatingAdmissionPolicy is served as v1: Jobs can be held without a webhook")
	}
}

// lookAtMetrics tells of what others may have installed. Nothing of ours needs it.
func (d *doctor) lookAtMetrics(context.Context) {
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
