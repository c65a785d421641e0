package kube

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/utils/ptr"
)

// HoldLease is the name of a Lease. Its holder releases Jobs at their windows and writes to held objects.
const HoldLease = "kubenergy-hold"

// HoldPolicy is the name of the admission policy that suspends new Jobs, and of its binding.
const HoldPolicy = "kubenergy-hold"

// Scheduler is the name of the scheduler's Deployment and Lease, and the value of a label of its pods.
const Scheduler = "kubenergy-scheduler"

const labelName = "app.kubernetes.io/name" // label of a pod with the name of its program

// LeaseHeld reports whether a Lease is held. A Lease that has just expired is considered held to account for clock
// differences.
func LeaseHeld(l *coordinationv1.Lease, now time.Time) bool {
	limit := time.Duration(cmp.Or(ptr.Deref(l.Spec.LeaseDurationSeconds, 0), 15)) * time.Second
	return ptr.Deref(l.Spec.HolderIdentity, "") != "" && l.Spec.RenewTime != nil &&
		now.Sub(l.Spec.RenewTime.Time) <= 2*limit
}

// Absent returns the reason why a program is not running. It returns "" if one of the program's pods is ready, or
// if its Lease is held by a process outside of its Deployment. If the caller is not permitted to list pods, only
// Leases are considered, which may outlive their holders.
func Absent(ctx context.Context, c kubernetes.Interface, namespace, program string, now time.Time) (string, error) {
	pods, errPods := c.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: labelName + "=" + program})
	if errPods == nil && slices.ContainsFunc(pods.Items, func(pod v1.Pod) bool {
		return pod.DeletionTimestamp == nil && podutils.IsPodReady(&pod)
	}) {
		return "", nil
	}
	leases := []string{program}
	if program == Scheduler {
		leases = append(leases, HoldLease)
	}
	for _, name := range leases {
		l, err := c.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return "", err
		case LeaseHeld(l, now) && (errPods != nil || !strings.HasPrefix(*l.Spec.HolderIdentity, program+"-")):
			return "", nil
		}
	}
	if errPods != nil {
		return "its Lease is not held", nil
	}
	return "no pod of " + program + " is ready", nil
}

// Lead campaigns for a Lease until ctx is done, also after the Lease has been lost. It calls led each time the
// Lease is acquired, with a context that is canceled when the Lease is lost. renew is the interval at which the
// holder renews the Lease. The duration of the Lease is four times as long, but at least 15 s.
func Lead(ctx context.Context, c kubernetes.Interface, namespace, name, identity string, renew time.Duration,
	led func(context.Context),
) {
	for ctx.Err() == nil {
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Client: c.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
			},
			LeaseDuration: max(15*time.Second, 4*renew), RenewDeadline: max(10*time.Second, 3*renew),
			RetryPeriod: renew, ReleaseOnCancel: true, Name: name,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: led, OnStoppedLeading: func() {}},
		})
	}
}
