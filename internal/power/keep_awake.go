package power

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// marks are labels and annotations of nodes that must not sleep. A key that ends with a slash matches all keys of
// that domain.
var marks = []struct{ key, why string }{
	{"node-role.kubernetes.io/control-plane", "it belongs to the control plane"},
	{"node-role.kubernetes.io/master", "it belongs to the control plane"},
	{"node-role.kubernetes.io/etcd", "it runs etcd"},

	{"cluster-autoscaler.kubernetes.io/", "it is managed by cluster-autoscaler"},
	{"karpenter.sh/", "it is managed by Karpenter"},
	{"eks.amazonaws.com/nodegroup", "it belongs to a node group of EKS"},
	{"cloud.google.com/gke-nodepool", "it belongs to a node pool of GKE"},
	{"kubernetes.azure.com/agentpool", "it belongs to a node pool of AKS"},
	{"cluster.x-k8s.io/machine", "it is managed by Cluster API"},

	{"node.longhorn.io/", "it stores replicated data: Longhorn"},
	{"cstor.openebs.io/", "it stores replicated data: OpenEBS"},
	{"openebs.io/engine", "it stores replicated data: OpenEBS"},
	{"px/enabled", "it stores replicated data: Portworx"},
	{"linbit.com/", "it stores replicated data: LINSTOR"},
}

// stores are labels of pods that store replicated data on their node. Most of these pods belong to DaemonSets.
var stores = []struct{ key, value, why string }{
	{"app", "rook-ceph-osd", "it stores replicated data: Ceph"},
	{"app", "rook-ceph-mon", "it stores replicated data: Ceph"},
	{"longhorn.io/component", "instance-manager", "it stores replicated data: Longhorn"},
	{"app", "cstor-pool", "it stores replicated data: OpenEBS"},
	{"app", "io-engine", "it stores replicated data: OpenEBS"},
	{"name", "portworx", "it stores replicated data: Portworx"},
	{"app.kubernetes.io/component", "linstor-satellite", "it stores replicated data: LINSTOR"},
}

// keeps returns the reason why a node must not sleep according to its labels and annotations, or "".
func keeps(n *v1.Node) string {
	if n.Labels[v1alpha1.LabelMaySleep] != "true" {
		return "it does not have the label " + v1alpha1.LabelMaySleep
	}
	for _, m := range marks {
		for _, marked := range []map[string]string{n.Labels, n.Annotations} {
			for key := range marked {
				if key == m.key || strings.HasSuffix(m.key, "/") && strings.HasPrefix(key, m.key) {
					return m.why
				}
			}
		}
	}
	return ""
}

// keepsFor returns the reason why a node must not sleep because of a pod that runs on every node, or "".
func keepsFor(p *v1.Pod) string {
	for _, s := range stores {
		if p.Labels[s.key] == s.value {
			return s.why
		}
	}
	if _, static := p.Annotations[v1.MirrorPodAnnotationKey]; static && !isProxy(p) {
		return "it runs the static pod " + p.Namespace + "/" + p.Name
	}
	return ""
}

// isProxy reports whether a static pod is kube-proxy, which is not needed while its node sleeps.
func isProxy(p *v1.Pod) bool {
	return p.Namespace == "kube-system" &&
		(p.Labels["k8s-app"] == "kube-proxy" || p.Labels["component"] == "kube-proxy")
}

// works reports whether the pod prevents its machine from being shut down.
func works(p *v1.Pod) bool { return !hasEnded(p) && (policy.KeepsAwake(p) || keepsFor(p) != "") }

func hasEnded(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
}

// holders returns the nodes that must not sleep because they are the only node with access to a volume, with the
// reason. These are nodes with a label that a volume requires and that no other node has.
func holders(nodes []*v1.Node, volumes []*v1.PersistentVolume) map[string]string {
	wanted := map[string]string{} // key=value → reason
	for _, v := range volumes {
		if v.Spec.NodeAffinity == nil || v.Spec.NodeAffinity.Required == nil {
			continue
		}
		for _, term := range v.Spec.NodeAffinity.Required.NodeSelectorTerms {
			for _, e := range term.MatchExpressions {
				for _, value := range e.Values {
					wanted[labels.Set{e.Key: value}.String()] = "it is the only node that can access volume " + v.Name
				}
			}
		}
	}
	with := map[string][]string{}
	if len(wanted) > 0 {
		for _, n := range nodes {
			for key, value := range n.Labels {
				if one := (labels.Set{key: value}).String(); wanted[one] != "" {
					with[one] = append(with[one], n.Name)
				}
			}
		}
	}
	held := map[string]string{}
	for one, names := range with {
		if len(names) == 1 {
			held[names[0]] = max(held[names[0]], wanted[one]) // any one, but deterministic
		}
	}
	return held
}
