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

// HoldLease is the Lease whose holder keeps windows and writes on held objects.
const HoldLease = "kubenergy-hold"

// Scheduler is the name of the scheduler's Deployment and of its Lease, and a label of its pods.
const Scheduler = "kubenergy-scheduler"

const labelName = "app.kubernetes.io/name" // of a pod's program

// LeaseHeld reports whether a component holds a Lease. A Lease that has just expired counts as held, because clocks
// differ.
func LeaseHeld(l *coordinationv1.Lease, now time.Time) bool {
	limit := time.Duration(cmp.Or(ptr.Deref(l.Spec.LeaseDurationSeconds, 0), 15)) * time.Second
	return ptr.Deref(l.Spec.HolderIdentity, "") != "" && l.Spec.RenewTime != nil &&
		now.Sub(l.Spec.RenewTime.Time) <= 2*limit
}

// Absent returns why a program of ours does not run, or "" if one of its pods is ready or a process that is no pod of
// its Deployment holds its Lease. Callers that may not list pods depend on Leases, which outlive their holders.
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

// Lead tries to hold a Lease until ctx ends, and again where it is lost. Each time that it is held, led is called: its
// context ends when the Lease cannot be renewed any more. renew is how often the holder writes the Lease, which lasts
// for four such times, and for 15 s at least.
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
