package policy

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestOwnerOf(t *testing.T) {
	owned := func(kind, name string, labels map[string]string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "pod", Labels: labels, OwnerReferences: []metav1.OwnerReference{{
				Kind: kind, Name: name, Controller: new(true),
			}},
		}}
	}
	for _, c := range []struct {
		pod   *v1.Pod
		want  string
		awake bool
	}{
		{&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}}, "Pod/pod", true},
		{owned("Job", "nightly", nil), "Job/nightly", true},
		{owned("ReplicaSet", "web-5d4f", map[string]string{"pod-template-hash": "5d4f"}), "Deployment/web", true},
		{owned("ReplicaSet", "web-5d4f", nil), "ReplicaSet/web-5d4f", true},
		{owned("ReplicaSet", "-5d4f", map[string]string{"pod-template-hash": "5d4f"}), "ReplicaSet/-5d4f", true},
		{owned("ReplicaSet", "web-else", map[string]string{"pod-template-hash": "5d4f"}), "ReplicaSet/web-else", true},
		{owned("StatefulSet", "db", nil), "StatefulSet/db", true},
		{owned("DaemonSet", "proxy", nil), "DaemonSet/proxy", false},
		{owned("Node", "worker1", nil), "Pod/pod", false}, // a static pod
	} {
		if awake := KeepsAwake(c.pod); awake != c.awake {
			t.Errorf("%s: KeepsAwake() = %v", c.want, awake)
		}
		if kind, name := OwnerOf(c.pod); kind+"/"+name != c.want {
			t.Errorf("%s/%s, want %s", kind, name, c.want)
		}
	}
}
