package lab

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	kubeletapis "k8s.io/kubelet/pkg/apis"
)

// NodeSpec describes a simulated node.
type NodeSpec struct {
	Name        string
	Labels      map[string]string // in addition to hostname, os and arch
	Annotations map[string]string
	Capacity    corev1.ResourceList // CPU, memory, pods and other resources such as GPUs; all of it is allocatable
	Taints      []corev1.Taint
}

// Capacity returns the capacity of a node: whole CPUs, memory in GiB, and 110 pods, which is kubelet's default
// limit.
func Capacity(cpus, memoryGiB int64) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(cpus, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(memoryGiB<<30, resource.BinarySI),
		corev1.ResourcePods:   *resource.NewQuantity(110, resource.DecimalSI),
	}
}

// AddNodes creates simulated nodes and returns when KWOK manages all of them. The nodes are ready from the
// beginning. Otherwise, kube-controller-manager would remove the taint of each new node with several requests,
// which takes 20 s for a hundred nodes with its default client limits.
func (c *Cluster) AddNodes(ctx context.Context, specs []NodeSpec) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	waiting := sets.New[string]()
	for _, s := range specs {
		waiting.Insert(s.Name)
		group.Go(func() error {
			_, err := c.client.CoreV1().Nodes().Create(groupCtx, s.node(time.Now()), metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("adding nodes: %w", err)
	}
	// When KWOK acquires the Lease of a node, it lists the pods of the node. Pods bound before that start late, and
	// some of them twice.
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		leases, err := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx,
			metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false, err
		}
		for _, l := range leases.Items {
			waiting.Delete(l.Name)
		}
		return waiting.Len() == 0, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %d of %d nodes: %w", waiting.Len(), len(specs), err)
	}
	return nil
}

// node returns the node as it would be after KWOK's stage node-initialize, including the labels and the annotation
// added by controllers, so that none of them has to update it.
func (s NodeSpec) node(now time.Time) *corev1.Node {
	labels := map[string]string{
		corev1.LabelHostname:   s.Name,
		corev1.LabelOSStable:   "linux",
		corev1.LabelArchStable: "amd64",
	}
	maps.Copy(labels, s.Labels)
	labels[kubeletapis.LabelOS] = labels[corev1.LabelOSStable]
	labels[kubeletapis.LabelArch] = labels[corev1.LabelArchStable]
	annotations := map[string]string{kwokAnnotation: "fake", corev1.ObjectTTLAnnotationKey: "0"}
	maps.Copy(annotations, s.Annotations)
	capacity := s.Capacity
	if capacity == nil {
		capacity = Capacity(8, 32)
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Labels: labels, Annotations: annotations},
		Spec:       corev1.NodeSpec{Taints: s.Taints},
		Status: corev1.NodeStatus{
			Phase:       corev1.NodeRunning,
			Capacity:    capacity,
			Allocatable: capacity,
			Conditions:  healthy(now),
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: nodeIP},
				{Type: corev1.NodeHostName, Address: s.Name},
			},
			NodeInfo: corev1.NodeSystemInfo{
				SystemUUID:              SystemUUID(s.Name),
				KubeletVersion:          KubernetesVersion,
				ContainerRuntimeVersion: "kwok",
				OperatingSystem:         labels[corev1.LabelOSStable],
				Architecture:            labels[corev1.LabelArchStable],
			},
		},
	}
}

// SystemUUID returns the UUID of a simulated node's machine.
func SystemUUID(node string) string { return uuid.NewSHA1(uuid.NameSpaceOID, []byte(node)).String() }

// healthy returns the conditions of a ready node.
func healthy(now time.Time) []corev1.NodeCondition {
	return []corev1.NodeCondition{
		condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", now),
		condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", now),
		condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", now),
		condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", now),
	}
}

func condition(t corev1.NodeConditionType, status corev1.ConditionStatus, reason string,
	now time.Time,
) corev1.NodeCondition {
	at := metav1.NewTime(now)
	return corev1.NodeCondition{Type: t, Status: status, Reason: reason, LastHeartbeatTime: at, LastTransitionTime: at}
}
