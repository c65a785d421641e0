package lab

import (
	"context"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/power"
)

// The power controller turns off an empty machine and boots it for a waiting pod, also the second time, when the
// first boot attempt fails.
func TestAMachineSleepsAndWakesForAPod(t *testing.T) {
	b := newBench(t)
	ctx, stop := context.WithCancel(t.Context())
	p := &energy.Profile{Name: "p", Idle: 100, Max: 200, Sleep: 5, WakeUp: 10, BootSeconds: 0.05}
	view, err := kube.NewView(nil, []*energy.Profile{p}, "p")
	if err != nil {
		t.Fatal(err)
	}
	node, err := b.client.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Labels[v1alpha1.LabelMaySleep] = "true"
	if _, err := b.client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- power.Run(ctx, power.Options{
			Client: b.client, View: func() *kube.View { return view }, Mode: power.ModeEnforce, Identity: "me",
			Namespace: "trial-1", Faster: 100, Every: time.Second, Loopback: true,
			Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
			Machines: []power.Machine{{
				Node: "n1", UUID: SystemUUID("n1"), Kind: power.KindRedfish, URL: b.URL, System: systems + "/n1",
			}},
		})
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	pods := b.client.CoreV1().Pods("default")
	for range 2 {
		b.becomes("Off")
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "waits", CreationTimestamp: metav1.Now()}}
		pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
		}}}
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			LastTransitionTime: metav1.Now(),
		}}
		if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the machine is on and accepts pods", func() bool {
			node, err := b.client.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
			return err == nil && node.Labels[v1alpha1.LabelPowerState] == "" && len(node.Spec.Taints) == 0
		})
		b.becomes("On")
		if err := pods.Delete(ctx, "waits", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := b.machine.boots; n != 3 || b.Forced != 0 || b.Killed != 0 {
		t.Errorf("got %d boots, %d machines forced off, %d pods killed, want 3, 0 and 0", n, b.Forced, b.Killed)
	}
}
